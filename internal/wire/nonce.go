package wire

import (
	"crypto/rand"
	"encoding/binary"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
)

// Process is the name of a process, with which the nonces of all its Writers begin.
type Process string

// NewProcess returns a Process that no other one is taken for.
func NewProcess() Process { return Process(rand.Text()[:16] + ".") }

// ThisProcess is the one of all Locks, except in tests of several.
var ThisProcess = NewProcess()

// Option is a func(Process) leasehold.Option, which package leasehold sets. Package testopt has it with its type.
var Option any

// Writer signs the records of one Lock and recognises them. A nonce is the name of the process, one of the Writer, a number, and a
// checksum of token and expiry. The names tell the Writer's own records from those of others. The checksum tells them from the record
// of a foreign client that changed token or expiry and kept the members it does not know, the nonce among them.
//
// It is made by NewWriter and is safe for concurrent use.
type Writer struct {
	process Process
	prefix  string // also unique if the machine was copied when the process had its name
	seed    maphash.Seed
	writes  atomic.Uint64
}

// NewWriter returns a Writer of a process that no other one's records are taken for.
func NewWriter(p Process) *Writer {
	return &Writer{process: p, prefix: string(p) + rand.Text() + ".", seed: maphash.MakeSeed()}
}

// Nonce returns a fresh nonce for r, whose token and expiry must not change after that.
func (w *Writer) Nonce(r Record) string {
	number := w.writes.Add(1)
	return w.prefix + strconv.FormatUint(number, 36) + "." + w.checksum(number, r)
}

// Wrote reports whether this very Writer signed r.
func (w *Writer) Wrote(r Record) bool {
	rest, ok := strings.CutPrefix(r.Nonce, w.prefix)
	text, sum, _ := strings.Cut(rest, ".")
	number, err := strconv.ParseUint(text, 36, 64)
	return ok && err == nil && sum == w.checksum(number, r)
}

// SameProcess reports whether a Writer of the same process signed r, or what a foreign client has changed since.
func (w *Writer) SameProcess(r Record) bool { return strings.HasPrefix(r.Nonce, string(w.process)) }

func (w *Writer) checksum(number uint64, r Record) string {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], number)
	binary.LittleEndian.PutUint64(b[8:], r.Token)
	binary.LittleEndian.PutUint64(b[16:], math.Float64bits(float64(epoch(r.ExpiresAt))))
	return strconv.FormatUint(maphash.Bytes(w.seed, b[:]), 36)
}
