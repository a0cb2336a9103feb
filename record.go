package leasehold

import (
	"bytes"
	"crypto/rand"
	"maps"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// ErrCorruptRecord says that the lock object holds something that is not a lock record. No
// acquisition overwrites such an object. [Lock.Break] repairs a damaged record, and nothing else.
var ErrCorruptRecord = storeapi.ErrCorruptRecord

// Record is what the lock object contains: the holder, the term, and the time at which the lease
// expires.
//
// In the store it is one JSON object. Its first two members, expires_at (seconds since the Unix
// epoch, 0 once released) and token, are the published protocol: a client that knows only these two
// members can take part. Times are by the writer's wall clock. Leasehold decides by TTL and never
// by these times, unless the writer gave no TTL. A Record that this package returns is a copy:
// changing its Metadata or Payload changes nothing else.
type Record struct {
	Key        string            // of the lock; not in the object, so empty after UnmarshalJSON
	ExpiresAt  time.Time         // by the holder's wall clock; zero once released
	Token      uint64            // fencing token of the term: +1 at every acquisition, kept by release
	Holder     string            // name of the holder, or of the last one
	TTL        time.Duration     // how long a renewal lasts, as the holder chose; 0 if a foreign client gave none
	Nonce      string            // fresh in every write, so that a writer recognises its own
	AcquiredAt time.Time         // start of the term
	RenewedAt  time.Time         // last write of the term
	Metadata   map[string]string // the holder's own, see [WithMetadata]
	Payload    []byte            // state committed by a leader, kept across terms; at most 32 KiB
	// names the object, which may be deleted and made again; random, kept by every write
	ObjectID string
	// names the term, together with Token: the hash of the key and the secret of [Lease.Handle];
	// kept until the next term
	TermID string
}

// Released reports whether the term was ended by its holder or by [Lock.Break].
func (r Record) Released() bool { return r.ExpiresAt.IsZero() }

// MarshalJSON returns the record in the form in which the store has it.
func (r Record) MarshalJSON() ([]byte, error) { return wire.Record(r).Encode() }

// UnmarshalJSON reads a record in the form in which the store has it. It ignores unknown members.
// Anything else that is not exactly a record, such as a negative or overflowing number, is an error
// that matches [ErrCorruptRecord].
func (r *Record) UnmarshalJSON(body []byte) error {
	rec, err := wire.Decode(body)
	if err == nil {
		*r = Record(rec)
	}
	return err
}

// clone returns r with copies of Metadata and Payload.
func (r Record) clone() Record {
	r.Metadata, r.Payload = maps.Clone(r.Metadata), bytes.Clone(r.Payload)
	return r
}

// sameTerm reports whether a and b are records of one term, which Resume gives another holder. The
// token alone does not show it: an object that was deleted and created again may have the token of
// an earlier term, but not its ID as well, or its holder and time if one of them has no ID.
func sameTerm(a, b Record) bool {
	identified := a.TermID != "" && a.TermID == b.TermID
	return a.Token == b.Token && a.AcquiredAt.Equal(b.AcquiredAt) &&
		(identified || a.Holder == b.Holder && mayBeSame(a.TermID, b.TermID))
}

// mayBeSame reports whether two IDs do not differ. Records of foreign clients and of older versions
// have none.
func mayBeSame(a, b string) bool { return a == "" || b == "" || a == b }

// newID is random text of 80 bits.
func newID() string { return rand.Text()[:16] }
