package leasehold

import (
	"errors"
	"fmt"
	"sync"
)

// A fencing token is the number of a term. A term gets the token of the last term plus one, by the
// same conditional write that begins it. So no two terms share a token, and a later term has a
// higher token. Release and takeover keep the number in the object. If the object is lost, this
// process still knows the highest token that it has seen. A resource that refuses a token below the
// highest that it has seen is safe from writes of former leaders, however late they come.

// MaxToken is the highest token that a term can have: 2^53-1, which every reader of JSON can read.
const MaxToken uint64 = 1<<53 - 1

// tokens is what this process has seen of the tokens of one lock. It is safe for concurrent use.
type tokens struct {
	mu   sync.Mutex
	seen terms
}

// terms is what was seen of the tokens of one lock until some moment.
type terms struct {
	latest   Record // the last one seen of the highest token: what names it, and how long it, or one seen later, lasts
	released uint64 // the highest in a record that was released
	twice    uint64 // the last one seen in two terms, as a restore makes them
}

// implausible is a gap between tokens that acquisitions never make: the record was damaged and
// repaired.
const implausible = 1 << 40

// saw notes the token of a record in the store.
func (t *tokens) saw(rec Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	latest := &t.seen.latest
	if rec.Token == latest.Token && !mayBeSame(rec.TermID, latest.TermID) {
		t.seen.twice = rec.Token
	}
	if rec.Token < latest.Token || rec.Token == t.seen.twice { // either term may continue
		latest.TTL = max(latest.TTL, rec.TTL)
	} else {
		*latest = Record{Token: rec.Token, TermID: rec.TermID, TTL: rec.TTL, RenewedAt: rec.RenewedAt,
			ExpiresAt: rec.ExpiresAt}
	}
	if rec.Released() {
		t.seen.released = max(t.seen.released, rec.Token)
	}
}

// next is the token of the term that follows rec: the token of rec plus one, unless the object was
// deleted or reset.
func (t *tokens) next(rec Record) (uint64, error) {
	token := rec.Token
	if highest := t.soFar().latest.Token; highest > token && highest-token < implausible {
		token = highest
	}
	if token >= MaxToken {
		return 0, fmt.Errorf("%w: token %d is the highest there is (inspect the object, then start a new series of "+
			"tokens with Lock.Break)",
			ErrCorruptRecord, token)
	}
	return token + 1, nil
}

// soFar is what was seen until now.
func (t *tokens) soFar() terms {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen
}

// revived reports whether rec, which was seen, is older than what was seen before: see terms.
func (t *tokens) revived(rec Record) bool { return t.soFar().revived(rec) }

// revived reports whether rec is older than these terms, or may be: an old version of the object
// was restored, and a later term may not have ended. A record without a token, as only foreign
// clients write it, is neither old nor new.
func (s terms) revived(rec Record) bool {
	older := rec.Token < s.latest.Token || !rec.Released() && rec.Token <= s.released ||
		rec.Token == s.twice
	return older && rec.Token > 0 && s.latest.Token-rec.Token < implausible
}

// ErrFenced says that a newer term has already acted on the resource: the caller is a former leader
// and must stop.
var ErrFenced = errors.New("fenced off by a newer token")

// FencedError is the error of a write whose token is too low. It matches [ErrFenced].
type FencedError struct {
	Key            string // of the object or resource; empty for a [Fence]
	Token, Highest uint64 // the writer's token, and the highest one seen
}

// Error names the object or resource, the writer's token, and the highest token seen.
func (e *FencedError) Error() string {
	of := ""
	if e.Key != "" {
		of = fmt.Sprintf(": %q", e.Key)
	}
	return fmt.Sprintf("%v%s: token %d, seen %d", ErrFenced, of, e.Token, e.Highest)
}

// Unwrap returns [ErrFenced].
func (e *FencedError) Unwrap() error { return ErrFenced }

// Fence is the check for a resource in memory: it keeps the highest token seen and refuses lower
// tokens. The zero value is ready to use. A Fence is safe for concurrent use. A resource that
// outlives the process must store the token with its data instead.
type Fence struct {
	mu      sync.Mutex
	highest uint64
}

// Check returns nil if token is at least the highest token seen so far, and remembers token. For a
// lower token, and for 0, which no term has, it returns a [*FencedError], which matches
// [ErrFenced]. A token above [MaxToken], which no term has either, is refused with an error that
// matches ErrFenced, and is not remembered.
func (f *Fence) Check(token uint64) error {
	if token > MaxToken { // remembered, it would lock out every term
		return fmt.Errorf("%w: token %d exceeds 2^53-1, so no term has it (pass Lease.Token)", ErrFenced, token)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if token < f.highest || token == 0 {
		return &FencedError{Token: token, Highest: f.highest}
	}
	f.highest = token
	return nil
}

// Token returns the highest token seen, or 0 if none was seen.
func (f *Fence) Token() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}
