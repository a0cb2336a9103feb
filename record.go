package leasehold

import (
	"bytes"
	"maps"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// ErrCorruptRecord says that the lock object holds something that is not a lock record. No acquisition overwrites it;
// [Lock.Break] repairs it.
var ErrCorruptRecord = storeapi.ErrCorruptRecord

// Record is what the lock object holds: who leads, in which term, and until when.
//
// In the store it is one JSON object. Its first two members, expires_at (seconds since the Unix epoch, 0 once released)
// and token, are the published protocol: a client that knows only these can take part. Times are by the writer's
// wall clock. Leasehold decides by TTL and never by these times, unless the writer gave no TTL. A Record that this package
// returns is the caller's own: changing its Metadata or Payload changes nothing else.
type Record struct {
	ExpiresAt  time.Time         // by the holder's wall clock; zero once released
	Token      uint64            // fencing token of the term: +1 at every acquisition, kept by release
	Holder     string            // identity of the holder, or of the last one
	TTL        time.Duration     // how long a renewal is good for, as the holder chose; 0 if a foreign client gave none
	Nonce      string            // fresh in every write, so that a writer recognises its own
	AcquiredAt time.Time         // start of the term
	RenewedAt  time.Time         // last write of the term
	Metadata   map[string]string // the holder's own, see [WithMetadata]
	Payload    []byte            // state committed by a leader, kept across terms; at most 32 KiB
	SessionID  string            // names the object itself if it is that of a [Session]; drawn once, and kept by every write
	Session    *SessionTerm      // the term of a session that this lock leans on; nil if it does not, and once released
}

// SessionTerm names one term of a [Session]. ID and Token together name it forever, even if the session's object is deleted and
// made again.
type SessionTerm struct {
	Lock  string        // the key of the lock that leans on it, as its holder's store sees it
	Key   string        // the session's key in the same store
	ID    string        // [Record].SessionID of the session's object
	Token uint64        // of the session's term
	TTL   time.Duration // of the session
}

// Released reports whether the term was ended by its holder or by [Lock.Break].
func (r Record) Released() bool { return r.ExpiresAt.IsZero() }

// MarshalJSON returns the record as it stands in the store.
func (r Record) MarshalJSON() ([]byte, error) { return r.wire().Encode() }

// UnmarshalJSON reads a record as it stands in the store. It ignores members that it does not know. Anything else that
// is not exactly a record, such as a negative or overflowing number, is an error that matches [ErrCorruptRecord].
func (r *Record) UnmarshalJSON(body []byte) error {
	rec, err := wire.Decode(body)
	if err == nil {
		*r = Record{
			ExpiresAt: rec.ExpiresAt, Token: rec.Token, Holder: rec.Holder, TTL: rec.TTL, Nonce: rec.Nonce, AcquiredAt: rec.AcquiredAt,
			RenewedAt: rec.RenewedAt, Metadata: rec.Metadata, Payload: rec.Payload, SessionID: rec.SessionID,
			Session: (*SessionTerm)(rec.Session),
		}
	}
	return err
}

func (r Record) wire() wire.Record {
	return wire.Record{
		ExpiresAt: r.ExpiresAt, Token: r.Token, Holder: r.Holder, TTL: r.TTL, Nonce: r.Nonce, AcquiredAt: r.AcquiredAt,
		RenewedAt: r.RenewedAt, Metadata: r.Metadata, Payload: r.Payload, SessionID: r.SessionID, Session: (*wire.Session)(r.Session),
	}
}

// clone returns r with a Metadata and a Payload of its own.
func (r Record) clone() Record {
	r.Metadata, r.Payload = maps.Clone(r.Metadata), bytes.Clone(r.Payload)
	if r.Session != nil {
		session := *r.Session
		r.Session = &session
	}
	return r
}

// sameTerm reports whether a and b are records of one term. The token alone does not tell: an object that was deleted and
// created again may have the token of an earlier term, but not its holder and time as well.
func sameTerm(a, b Record) bool {
	return a.Token == b.Token && a.Holder == b.Holder && a.AcquiredAt.Equal(b.AcquiredAt)
}
