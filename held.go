package leasehold

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrHeld says that another holder has the lock. The error is a [*HeldError], or wraps one.
var ErrHeld = errors.New("lock is held")

// HeldError names the holder of the lock. It matches [ErrHeld].
type HeldError struct {
	// Record is the holder's, or belongs to the last term seen if other candidates were faster. It
	// has only a Key if no term was seen.
	Record Record
	Wait   time.Duration // from the time of the error until the lock can be taken, unless it is renewed before
	// SeemsGone says that the holder may have crashed: it has not renewed for its TTL, by its wall
	// clock and this machine's, give or take [WithSkewAllowance]. A candidate that watches the lock
	// for Wait knows for certain.
	SeemsGone bool

	silent  time.Duration // time since the last renewal, by wall clocks
	revived bool          // Record is an old one that has come back, not a holder's
}

// Error names the holder, its token, and for how long it holds the lock. The errors that wrap it
// name the key.
func (e *HeldError) Error() string {
	if e.creating() {
		return fmt.Sprintf("%v: another candidate is creating it", ErrHeld)
	}
	if e.revived {
		return fmt.Sprintf("%v: an old version with token %d has come back, as from a backup: a later term may "+
			"last for %v", ErrHeld, e.Record.Token, e.Wait.Round(time.Millisecond))
	}
	if e.Record.Released() {
		return fmt.Sprintf("%v: its last term, by %q with token %d, has only just been released", ErrHeld,
			e.Record.Holder, e.Record.Token)
	}
	by := fmt.Sprintf("%v by %q with token %d", ErrHeld, e.Record.Holder, e.Record.Token)
	if !e.SeemsGone {
		return fmt.Sprintf("%s, for %v unless renewed", by, e.Wait.Round(time.Millisecond))
	}
	last := fmt.Sprintf("renewed it %v ago", e.silent.Round(time.Second))
	if e.silent < 0 {
		last = fmt.Sprintf("renewed it %v ahead of this machine's clock", -e.silent.Round(time.Second))
	}
	return fmt.Sprintf("%s, which last %s and seems to have crashed: a candidate that watches the lock for %v can "+
		"take it", by, last, e.Wait.Round(time.Millisecond))
}

// creating reports whether the lock has had no holder yet.
func (e *HeldError) creating() bool { return e.Record.Token == 0 && e.Record.Released() }

// worthWatching reports whether a try that has ended so may get the lock by watching, before ctx's
// deadline.
func (e *HeldError) worthWatching(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return (e.SeemsGone || e.creating()) && (!limited || time.Until(deadline) > e.Wait)
}

// Unwrap returns [ErrHeld].
func (e *HeldError) Unwrap() error { return ErrHeld }

// heldVersion is the error of a version that may not be taken.
func (r *register) heldVersion(v *version, why verdict) error {
	rec := v.rec.clone()
	rec.Key = r.key // if there is none
	return &HeldError{Record: rec, Wait: why.wait, SeemsGone: why.gone, silent: why.silent, revived: why.revived}
}
