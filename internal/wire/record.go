// Package wire is the published format of a lock object: one JSON record, read strictly, so that
// nothing else is ever taken for a lock that is free. It also names the content of an object that
// is not a record.
package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

const (
	MaxSize     = 64 << 10 // of an object, in bytes
	MaxPayload  = 32 << 10 // in bytes
	MaxTTL      = 100 * 365 * 24 * time.Hour
	MaxSeconds  = 253_402_300_800 // the year 10000
	maxHolder   = 6<<10 + 2       // of 1 KiB of text that all needs escapes
	maxMetadata = 8 << 10
	maxName     = 1 << 10 // of a nonce or an ID
)

// Record has the fields of leasehold.Record, which documents them.
type Record struct {
	Key        string
	ExpiresAt  time.Time
	Token      uint64
	Holder     string
	TTL        time.Duration
	Nonce      string
	AcquiredAt time.Time
	RenewedAt  time.Time
	Metadata   map[string]string
	Payload    []byte
	ObjectID   string
	TermID     string
}

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
	ObjectID   string            `json:"object_id,omitempty"`
	TermID     string            `json:"term_id,omitempty"`
}

// Encode writes the record. It escapes nothing for HTML, so that a text needs the same number of
// bytes in the record as in the option that gave it.
func (r Record) Encode() ([]byte, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
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
		ObjectID:   r.ObjectID,
		TermID:     r.TermID,
	})
	return bytes.TrimRight(body.Bytes(), "\n"), err
}

// Decode reads a record. It ignores members that it does not know. Anything else that is not
// exactly a record, such as a negative or overflowing number, is an error that matches
// ErrCorruptRecord. If body is not a record at all, the error names its content: see Misplaced.
func Decode(body []byte) (Record, error) {
	rec, err := decode(body)
	if err != nil {
		err = cmp.Or(Misplaced(Lock, body), err)
	}
	return rec, err
}

func decode(body []byte) (Record, error) {
	corrupt := func(format string, args ...any) (Record, error) {
		return Record{}, fmt.Errorf("%w: "+format, append([]any{storeapi.ErrCorruptRecord}, args...)...)
	}
	if len(body) > MaxSize {
		return corrupt("%d bytes exceed the limit of %d", len(body), MaxSize)
	}
	if !utf8.Valid(body) {
		return corrupt("not UTF-8")
	}
	// Members are read one by one: into a struct, encoding/json would also accept "Expires_At" or
	// "TTL".
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return corrupt("not a JSON record: %w", err)
	}
	var o object
	var expires *seconds // nil if absent
	var token seconds    // some languages write 7.0
	for _, m := range [...]struct {
		name  string
		into  any
		limit int // of those that are kept, in bytes: together they always fit into an object
	}{
		{
			"expires_at",
			&expires,
			MaxSize,
		}, {"token", &token, MaxSize}, {"holder", &o.Holder, maxHolder}, {"ttl", &o.TTL, MaxSize},
		{"nonce", &o.Nonce, maxName}, {"acquired_at", &o.AcquiredAt, MaxSize}, {"renewed_at", &o.RenewedAt, MaxSize},
		{"metadata", &o.Metadata, maxMetadata}, {"payload", &o.Payload, MaxSize}, {"object_id", &o.ObjectID, maxName},
		{"term_id", &o.TermID, maxName},
	} {
		if member, ok := members[m.name]; ok {
			if size := encodedSize(member); size > m.limit {
				return corrupt("%s of %d bytes exceeds the limit of %d", m.name, size, m.limit)
			}
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
		{"ttl", o.TTL, seconds(math.Nextafter(MaxTTL.Seconds(), math.MaxFloat64))}, // MaxTTL itself is allowed
	} {
		if !(sec.value >= 0 && sec.value < sec.limit) {
			return corrupt("%s is %v, not between 0 and %.0f seconds", sec.name, sec.value, sec.limit)
		}
	}
	if !(token >= 0 && token <= storeapi.MaxToken) || token != seconds(math.Trunc(float64(token))) {
		return corrupt("token %v is not an integer between 0 and 2^53-1", token)
	}
	if len(o.Payload) > MaxPayload {
		return corrupt("payload of %d bytes exceeds the limit of %d", len(o.Payload), MaxPayload)
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
		ObjectID:   o.ObjectID,
		TermID:     o.TermID,
	}, nil
}

// encodedSize is the size of a member when Encode has written it again, at most. Only two
// characters grow, from three bytes to six.
func encodedSize(member []byte) int {
	return len(member) + 3*(bytes.Count(member, []byte("\u2028"))+bytes.Count(member, []byte("\u2029")))
}
