package wire

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// Process is the name of a process, with which the nonces of all its Locks begin.
type Process string

// NewProcess returns a Process that differs from every other one.
func NewProcess() Process { return Process(rand.Text()[:16] + ".") }

// ThisProcess is the one of all Locks, except in tests of several.
var ThisProcess = NewProcess()

// Option is a func(Process) leasehold.Option, which package leasehold sets. Package testopt has it
// with its type.
var Option any

// NewNonce returns a text that no other write has. All of it that counts is drawn for this one
// write, because a machine may be copied with all that its processes remember, and both copies
// continue. They may draw the same random bytes until the kernel of each has new random input.
// Until then, the time of the draw, in nanoseconds, distinguishes the two.
func (p Process) NewNonce() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // which never fails
	b := append(make([]byte, 0, 96), p...)
	b = append(hex.AppendEncode(b, random[:]), '.')
	return string(strconv.AppendInt(b, time.Now().UnixNano(), 36))
}

// Wrote reports whether a Lock of this process, or of a copy of it, wrote r, or what a foreign
// client has changed since.
func (p Process) Wrote(r Record) bool { return strings.HasPrefix(r.Nonce, string(p)) }

// SameWrite reports whether a and b are the record of one write. A foreign client that changes
// token or expiry may keep the members that it does not know, the nonce among them.
func SameWrite(a, b Record) bool {
	return a.Nonce != "" && a.Nonce == b.Nonce && a.Token == b.Token &&
		a.ExpiresAt.Sub(b.ExpiresAt).Abs() < time.Millisecond // rounded in the record
}
