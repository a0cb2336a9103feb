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

// Writer signs the records of one Lock and recognises them. A nonce is the Writer's own prefix, a number, and a checksum of
// token and expiry. The prefix tells the Writer's own records from those of others. The checksum tells them from the record of a
// foreign client that changed token or expiry and kept the members it does not know, the nonce among them.
//
// It is made by NewWriter and is safe for concurrent use.
type Writer struct {
	prefix string
	seed   maphash.Seed
	writes atomic.Uint64
}

// NewWriter returns a Writer that no other one's records are taken for.
func NewWriter() *Writer { return &Writer{prefix: rand.Text() + ".", seed: maphash.MakeSeed()} }

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

func (w *Writer) checksum(number uint64, r Record) string {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], number)
	binary.LittleEndian.PutUint64(b[8:], r.Token)
	binary.LittleEndian.PutUint64(b[16:], math.Float64bits(float64(epoch(r.ExpiresAt))))
	return strconv.FormatUint(maphash.Bytes(w.seed, b[:]), 36)
}
