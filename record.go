package leasehold

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// ErrCorruptRecord says that the lock object holds something that is no lock record. It is never overwritten by an
// acquisition; [Lock.Break] repairs it.
var ErrCorruptRecord = storeapi.ErrCorruptRecord

// Record is what the lock object holds: who leads, in which term, and until when.
//
// In the store it is one JSON object. Its first two members, expires_at (seconds since the Unix epoch, 0 once released)
// and token, are the published protocol: a client that knows only these can take part. Times are those of the writer's
// wall clock; leasehold decides by TTL and never by them, unless the writer gave no TTL. A Record that this package returns is
// the caller's own: changing its Metadata or Payload changes nothing else.
type Record struct {
	ExpiresAt  time.Time         // by the holder's wall clock; zero once released
	Token      uint64            // fencing token of the term: +1 at every acquisition, kept by release
	Holder     string            // identity of the holder, or of the last one
	TTL        time.Duration     // for how long a renewal is good, as the holder chose; 0 if a foreign client gave none
	Nonce      string            // fresh in every write, so that a writer recognises its own
	AcquiredAt time.Time         // start of the term
	RenewedAt  time.Time         // last write of the term
	Metadata   map[string]string // the holder's own, see [WithMetadata]
	Payload    []byte            // state committed by a leader, kept across terms; at most 32 KiB
}

// Released reports whether the term has been ended by its holder or by [Lock.Break].
func (r Record) Released() bool { return r.ExpiresAt.IsZero() }

const (
	maxToken   = storeapi.MaxToken
	maxSeconds = 253_402_300_800 // the year 10000
	maxTTL     = 100 * 365 * 24 * time.Hour
	maxPayload = 32 << 10
)

// wireRecord is Record as JSON.
type wireRecord struct {
	ExpiresAt  seconds           `json:"expires_at"`
	Token      uint64            `json:"token"`
	Holder     string            `json:"holder,omitempty"`
	TTL        seconds           `json:"ttl,omitempty"`
	Nonce      string            `json:"nonce,omitempty"`
	AcquiredAt seconds           `json:"acquired_at,omitempty"`
	RenewedAt  seconds           `json:"renewed_at,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Payload    []byte            `json:"payload,omitempty"`
}

// MarshalJSON returns the record as it stands in the store.
func (r Record) MarshalJSON() ([]byte, error) { return r.encode() }

// encode is MarshalJSON without the second pass that json.Marshal makes over its result. It escapes nothing for HTML, so that
// a text needs the same number of bytes in the record as in the option that gave it.
func (r Record) encode() ([]byte, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	err := enc.Encode(&wireRecord{
		ExpiresAt:  epoch(r.ExpiresAt),
		Token:      r.Token,
		Holder:     r.Holder,
		TTL:        seconds(r.TTL.Seconds()),
		Nonce:      r.Nonce,
		AcquiredAt: epoch(r.AcquiredAt),
		RenewedAt:  epoch(r.RenewedAt),
		Metadata:   r.Metadata,
		Payload:    r.Payload,
	})
	return bytes.TrimRight(body.Bytes(), "\n"), err
}

// clone returns r with a Metadata and a Payload of its own.
func (r Record) clone() Record {
	r.Metadata, r.Payload = maps.Clone(r.Metadata), bytes.Clone(r.Payload)
	return r
}

// sameTerm reports whether a and b are records of one term. An object that was deleted and made anew may have the token of
// an earlier term, but not its holder and time as well.
func sameTerm(a, b Record) bool {
	return a.Token == b.Token && a.Holder == b.Holder && a.AcquiredAt.Equal(b.AcquiredAt)
}

// UnmarshalJSON reads a record as it stands in the store. Members it does not know are passed over. Anything else that
// is not exactly a record, such as a negative or overflowing number, is an error that matches [ErrCorruptRecord].
func (r *Record) UnmarshalJSON(body []byte) error {
	rec, err := decodeRecord(body)
	if err == nil {
		*r = rec
	}
	return err
}

func decodeRecord(body []byte) (Record, error) {
	corrupt := func(format string, args ...any) (Record, error) {
		return Record{}, fmt.Errorf("%w: "+format, append([]any{ErrCorruptRecord}, args...)...)
	}
	if len(body) > MaxObjectSize {
		return corrupt("%d bytes, more than %d", len(body), MaxObjectSize)
	}
	if !utf8.Valid(body) {
		return corrupt("not UTF-8")
	}
	// Members are read one by one: into a struct, encoding/json would take "Expires_At" or "TTL" for ours.
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return corrupt("not a JSON record: %w", err)
	}
	var w wireRecord
	var expires *seconds // nil if absent
	var token seconds    // some languages write 7.0
	for _, m := range [...]struct {
		name string
		into any
	}{
		{"expires_at", &expires}, {"token", &token}, {"holder", &w.Holder}, {"ttl", &w.TTL}, {"nonce", &w.Nonce},
		{"acquired_at", &w.AcquiredAt}, {"renewed_at", &w.RenewedAt}, {"metadata", &w.Metadata}, {"payload", &w.Payload},
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
		{"expires_at", *expires, maxSeconds},
		{"acquired_at", w.AcquiredAt, maxSeconds},
		{"renewed_at", w.RenewedAt, maxSeconds},
		{"ttl", w.TTL, seconds(maxTTL.Seconds())},
	} {
		if !(sec.value >= 0 && sec.value < sec.limit) {
			return corrupt("%s is %v, outside 0 to %.0f seconds", sec.name, sec.value, sec.limit)
		}
	}
	if !(token >= 0 && token <= maxToken) || token != seconds(math.Trunc(float64(token))) {
		return corrupt("token %v is no integer from 0 to 2^53-1", token)
	}
	if len(w.Payload) > maxPayload {
		return corrupt("payload of %d bytes, more than %d", len(w.Payload), maxPayload)
	}
	whole, fraction := math.Modf(float64(w.TTL))
	ttl := time.Duration(whole)*time.Second + time.Duration(math.Round(fraction*1e9))
	if w.TTL > 0 {
		ttl = max(ttl, 1) // a tiny TTL is still one
	}
	return Record{
		ExpiresAt:  fromEpoch(*expires),
		Token:      uint64(token),
		Holder:     w.Holder,
		TTL:        ttl,
		Nonce:      w.Nonce,
		AcquiredAt: fromEpoch(w.AcquiredAt),
		RenewedAt:  fromEpoch(w.RenewedAt),
		Metadata:   w.Metadata,
		Payload:    w.Payload,
	}, nil
}

// seconds is a JSON number.
type seconds float64

// UnmarshalJSON refuses what only rounds to zero: 1e-400 does not say "released".
func (s *seconds) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return fmt.Errorf("%s is no number", text)
	}
	*s = seconds(f)
	mantissa, _, _ := bytes.Cut(bytes.ToLower(text), []byte("e"))
	if *s == 0 && bytes.ContainsAny(mantissa, "123456789") {
		return fmt.Errorf("%s is too small", text)
	}
	return nil
}

// epoch is t in seconds since the Unix epoch, in microseconds as the protocol writes them; the zero Time is 0, and no
// other is, however wrong the clock that told it.
func epoch(t time.Time) seconds {
	if t.IsZero() {
		return 0
	}
	sec := float64(t.Unix()) + float64(t.Nanosecond()/1000)/1e6
	return seconds(min(max(sec, 1e-6), math.Nextafter(maxSeconds, 0)))
}

// fromEpoch is the inverse of epoch. Only an exact 0 is the zero Time: a positive instant, however small, is not "released".
func fromEpoch(sec seconds) time.Time {
	if sec == 0 {
		return time.Time{}
	}
	whole, fraction := math.Modf(float64(sec)) // apart, to lose no digits in far years
	t := time.Unix(int64(whole), int64(math.Round(fraction*1e6))*1000)
	if first := time.UnixMicro(1); t.Before(first) {
		return first
	}
	return t
}
