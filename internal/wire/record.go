// Package wire is the published format of a lock object: one JSON record, read strictly, so that nothing else is ever taken for
// a lock that is free.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

const (
	MaxSize    = 64 << 10 // of an object, in bytes
	MaxPayload = 32 << 10 // in bytes
	MaxTTL     = 100 * 365 * 24 * time.Hour
	MaxSeconds = 253_402_300_800 // the year 10000
	// Leaning is the expires_at of a lock that leans on a session. Who does not know sessions sees a lock that does not expire. A
	// later one would be past the dates of Python east of UTC.
	Leaning = 253_370_764_800
)

// Record has the fields of leasehold.Record, which documents them.
type Record struct {
	ExpiresAt  time.Time
	Token      uint64
	Holder     string
	TTL        time.Duration
	Nonce      string
	AcquiredAt time.Time
	RenewedAt  time.Time
	Metadata   map[string]string
	Payload    []byte
	SessionID  string
	Session    *Session
}

// Session has the fields of leasehold.SessionTerm, which documents them.
type Session struct {
	Lock  string
	Key   string
	ID    string
	Token uint64
	TTL   time.Duration
}

// session is a Session as JSON.
type session struct {
	Lock  string  `json:"lock"`
	Key   string  `json:"key"`
	ID    string  `json:"id"`
	Token uint64  `json:"token"`
	TTL   seconds `json:"ttl"`
}

// LeaningTime is the ExpiresAt of a record with a Session.
func LeaningTime() time.Time { return time.Unix(Leaning, 0) }

// object is a Record as JSON.
type object struct {
	ExpiresAt  seconds           `json:"expires_at"`
	Token      uint64            `json:"token"`
	Holder     string            `json:"holder,omitempty"`
	TTL        seconds           `json:"ttl,omitempty"`
	Nonce      string            `json:"nonce,omitempty"`
	AcquiredAt seconds           `json:"acquired_at,omitempty"`
	RenewedAt  seconds           `json:"renewed_at,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Payload    []byte            `json:"payload,omitempty"`
	SessionID  string            `json:"session_id,omitempty"`
	Session    *session          `json:"session,omitempty"`
}

// Encode writes the record. It escapes nothing for HTML, so that a text needs the same number of bytes in the record as in the
// option that gave it.
func (r Record) Encode() ([]byte, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	var leans *session
	if s := r.Session; s != nil {
		leans = &session{s.Lock, s.Key, s.ID, s.Token, seconds(s.TTL.Seconds())}
	}
	err := enc.Encode(&object{
		ExpiresAt:  epoch(r.ExpiresAt),
		Token:      r.Token,
		Holder:     r.Holder,
		TTL:        seconds(r.TTL.Seconds()),
		Nonce:      r.Nonce,
		AcquiredAt: epoch(r.AcquiredAt),
		RenewedAt:  epoch(r.RenewedAt),
		Metadata:   r.Metadata,
		Payload:    r.Payload,
		SessionID:  r.SessionID,
		Session:    leans,
	})
	return bytes.TrimRight(body.Bytes(), "\n"), err
}

// Decode reads a record. It ignores members that it does not know. Anything else that is not exactly a record, such as a
// negative or overflowing number, is an error that matches ErrCorruptRecord.
func Decode(body []byte) (Record, error) {
	corrupt := func(format string, args ...any) (Record, error) {
		return Record{}, fmt.Errorf("%w: "+format, append([]any{storeapi.ErrCorruptRecord}, args...)...)
	}
	if len(body) > MaxSize {
		return corrupt("%d bytes are over the limit of %d", len(body), MaxSize)
	}
	if !utf8.Valid(body) {
		return corrupt("not UTF-8")
	}
	// Members are read one by one: into a struct, encoding/json would take "Expires_At" or "TTL" for ours.
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return corrupt("not a JSON record: %w", err)
	}
	var o object
	var expires *seconds // nil if absent
	var token seconds    // some languages write 7.0
	for _, m := range [...]struct {
		name string
		into any
	}{
		{"expires_at", &expires}, {"token", &token}, {"holder", &o.Holder}, {"ttl", &o.TTL}, {"nonce", &o.Nonce},
		{"acquired_at", &o.AcquiredAt}, {"renewed_at", &o.RenewedAt}, {"metadata", &o.Metadata}, {"payload", &o.Payload},
		{"session_id", &o.SessionID},
	} {
		if member, ok := members[m.name]; ok {
			if err := json.Unmarshal(member, m.into); err != nil {
				return corrupt("%s: %w", m.name, err)
			}
		}
	}
	if expires == nil {
		return corrupt("no expires_at")
	}
	for _, sec := range []struct {
		name         string
		value, limit seconds
	}{
		{"expires_at", *expires, MaxSeconds},
		{"acquired_at", o.AcquiredAt, MaxSeconds},
		{"renewed_at", o.RenewedAt, MaxSeconds},
		{"ttl", o.TTL, seconds(MaxTTL.Seconds())},
	} {
		if !(sec.value >= 0 && sec.value < sec.limit) {
			return corrupt("%s is %v, not between 0 and %.0f seconds", sec.name, sec.value, sec.limit)
		}
	}
	if !(token >= 0 && token <= storeapi.MaxToken) || token != seconds(math.Trunc(float64(token))) {
		return corrupt("token %v is not an integer between 0 and 2^53-1", token)
	}
	if len(o.Payload) > MaxPayload {
		return corrupt("payload of %d bytes is over the limit of %d", len(o.Payload), MaxPayload)
	}
	var leans *Session
	if text, ok := members["session"]; ok && *expires == Leaning && o.TTL == 0 { // else a foreign client has kept it
		var err error
		if leans, err = decodeSession(text); err != nil {
			return corrupt("session: %w", err)
		}
	}
	return Record{
		ExpiresAt:  fromEpoch(*expires),
		Token:      uint64(token),
		Holder:     o.Holder,
		TTL:        o.TTL.duration(),
		Nonce:      o.Nonce,
		AcquiredAt: fromEpoch(o.AcquiredAt),
		RenewedAt:  fromEpoch(o.RenewedAt),
		Metadata:   o.Metadata,
		Payload:    o.Payload,
		SessionID:  o.SessionID,
		Session:    leans,
	}, nil
}

// decodeSession reads the member session of a lock that leans on one. All of its members must be there.
func decodeSession(text []byte) (*Session, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	var s Session
	var token, ttl seconds
	for _, m := range [...]struct {
		name string
		into any
	}{{"lock", &s.Lock}, {"key", &s.Key}, {"id", &s.ID}, {"token", &token}, {"ttl", &ttl}} {
		if err := json.Unmarshal(members[m.name], m.into); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	switch {
	case s.Lock == "" || s.ID == "":
		return nil, errors.New("no lock or no id")
	case storeapi.BadKey(s.Key) != "" || s.Key == s.Lock:
		return nil, fmt.Errorf("%.80q is not the key of a session of %.80q", s.Key, s.Lock)
	case !(token >= 1 && token <= storeapi.MaxToken) || token != seconds(math.Trunc(float64(token))):
		return nil, fmt.Errorf("token %v is not an integer between 1 and 2^53-1", token)
	case !(ttl > 0 && ttl < seconds(MaxTTL.Seconds())):
		return nil, fmt.Errorf("ttl is %v, not between 0 and %.0f seconds", ttl, MaxTTL.Seconds())
	}
	s.Token, s.TTL = uint64(token), ttl.duration()
	return &s, nil
}
