// Package handover passes a lock from its holder to a candidate without setting it free. The holder
// that has stopped signs a [Note], and a peer carries that to a candidate. Only the holder's own
// signature lets a candidate write, and only over the version that the note names.
//
// It joins package leasehold with the packages that carry notes. Notes are not for users, so
// package leasehold exports nothing of them.
package handover

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/handle"
)

// Note says that one version of a lock object may be replaced: its holder has ended the term, and
// writes nothing under it any more, except its release. It names a version, and no time. So it may
// be late, copied or repeated: a write over that version succeeds only while it is there.
type Note struct {
	ETag      string `json:"etag"`
	Record    []byte `json:"record"` // of that version, as JSON; the next term keeps its payload
	Key       []byte `json:"key"`    // of the term: see handle.TermID
	Signature []byte `json:"signature"`
}

// Sign returns the note for a version of the lock, whose term the handle names.
func Sign(lock string, term handle.Handle, etag string, record []byte) Note {
	n := Note{ETag: etag, Record: record}
	n.Key, n.Signature = handle.Sign(lock, term.Secret, n.statement(lock))
	return n
}

// SignedBy reports whether the signer of n knows the secret of the lock's term with this ID, as the
// holder of that term does.
func (n Note) SignedBy(lock, termID string) bool {
	return handle.Signed(termID, n.statement(lock), n.Key, n.Signature)
}

// statement is what is signed. Neither a key nor an ETag has a line feed.
func (n Note) statement(lock string) []byte {
	return fmt.Appendf(nil, "leasehold: may be replaced\n%s\n%s\n%s", lock, n.ETag, n.Record)
}

// Patience bounds how long a holder with this TTL waits for a candidate to take the lock.
func Patience(ttl time.Duration) time.Duration { return min(ttl/5, time.Second) }

// PassOn offers the lock, whose term with this token has ended, to a candidate. It reports whether
// the note has left, and whether another term has begun, which it has read from the store. It
// returns when ctx ends at the latest.
type PassOn func(ctx context.Context, token uint64, note Note) (sent, taken bool)

// Package leasehold sets these functions. All are safe for concurrent use.
var (
	// Offer is a func(*leasehold.Lock, Note) bool: a goroutine that waits for the lock takes it
	// now, by one write. It reports false if the note is not of the term that this process has read
	// last from the store, or no goroutine waits.
	Offer any
	// Heir is a func(*leasehold.Lock, PassOn): each release offers the lock first.
	Heir any
	// Of is a func(*leasehold.Lease) (Note, bool): the note of a lease that was released. It says
	// no more than the released record, but saves the candidate a read.
	Of any
	// Resign is a func(*leasehold.Lease): the term ends as by leasehold.Elector.Resign.
	Resign any
	// Wrote is a func(*leasehold.Lock, leasehold.Record) bool: this Lock has sent that very record,
	// so the process need not ask a peer about it.
	Wrote any
	// Waits is a func(*leasehold.Lock) bool: a goroutine that can take an offer waits for the lock.
	Waits any
)
