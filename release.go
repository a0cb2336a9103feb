package leasehold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// release ends the term and releases the lock: see Lease.Release. asked says that the user has
// called it. Nothing else releases an abandoned lease.
func (t *term) release(ctx context.Context, asked bool) error {
	settling, settled := outlast(ctx, t.lock.attempt+t.lock.patience())
	defer settled()
	return t.free(ctx, settling, asked)
}

// free is release with a context that outlasts ctx.
func (t *term) free(ctx, settling context.Context, asked bool) error {
	defer t.lock.wakeSiblings()
	t.valid() // a lease that has run out is lost
	t.mu.Lock()
	announced := t.state == abandoned
	switch {
	case t.state == held:
		t.over(releasing, ErrReleased)
	case t.state == lost:
		defer t.mu.Unlock()
		return t.cause
	case announced && !asked:
		t.mu.Unlock()
		return nil
	}
	until := t.sent.Mono + t.lock.ttl
	t.mu.Unlock()

	err := t.writing.Lock(settling)
	if err == nil {
		defer t.writing.Unlock()
	}
	if !t.become(releasing) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.cause // nil, unless another write has found the object replaced
	}
	defer func() { // even if a Store or an observer panics
		e := t.event(EventReleased, err)
		if t.become(unreleased) && err == nil {
			e.Err = errors.New("the store or an observer panicked")
		}
		if !announced && !ended(err) {
			t.lock.emit(ctx, e)
		}
	}()
	if err != nil {
		err = fmt.Errorf("releasing: another write of this lease is still under way: %w", cmp.Or(ctx.Err(), err))
		return err
	}
	if t.passOn(settling) {
		t.noteReleased(ctx, "lock handed over")
		return nil
	}
	err = t.writeRelease(ctx, settling, until)
	return err
}

// noteReleased notes that others may take the lock, or that one of them has taken it.
func (t *term) noteReleased(ctx context.Context, how string) {
	t.become(released)
	t.lock.turns.Ended(t.lock.clock.Now().Mono)
	t.lock.log.InfoContext(ctx, how, "key", t.lock.key, "token", t.token)
}

// writeRelease tries to write the release until it has landed or the lease would have ended.
func (t *term) writeRelease(ctx, settling context.Context, until time.Duration) error {
	remaining := func() time.Duration { return until - t.lock.clock.Now().Mono }
	err := t.retry(ctx, remaining, func() error {
		return t.put(settling, markReleased)
	}, func(err error) bool {
		return errors.Is(err, errNothingToRelease) || storeapi.Permanent(err) || remaining() <= 0
	})
	switch {
	case err == nil, errors.Is(err, errNothingToRelease):
		t.noteReleased(ctx, "lock released")
		return nil
	case ended(err):
		return err
	}
	return fmt.Errorf("releasing: %w", err)
}

func markReleased(r *Record) { r.ExpiresAt = time.Time{} }

// abandon ends the term and leaves the lock to expire: see Lease.Abandon.
func (t *term) abandon() {
	t.valid() // a lease that has run out is lost
	t.mu.Lock()
	first := t.state == held
	if first {
		t.over(abandoned, ErrReleased)
		t.toldEnd = true
	}
	t.mu.Unlock()
	if first {
		t.announce(EventReleased, nil)
		t.lock.log.Info("lease abandoned", "key", t.lock.key, "token", t.token, "free_after", t.lock.ttl)
	}
}
