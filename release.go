package leasehold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// release ends the term and frees the lock: see Lease.Release.
func (t *term) release(ctx context.Context) error {
	defer t.lock.wakeSiblings()
	if t.valid() { // a lease that has just run out is lost first
		t.cancel(ErrReleased)
	}
	t.mu.Lock()
	announced := t.state == abandoned
	switch t.state {
	case held:
		t.over(releasing)
	case lost:
		defer t.mu.Unlock()
		return t.cause
	}
	until := t.sent.Mono + t.lock.ttl
	if t.base != nil {
		until = t.lock.clock.Now().Mono + t.lock.ttl
	}
	t.mu.Unlock()
	t.awaitSession()

	_ = t.writing.Lock(context.WithoutCancel(ctx)) // any write under way is bounded
	defer t.writing.Unlock()
	if !t.become(releasing) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.cause // nil, unless another write has found the object replaced
	}
	var err error
	defer func() { // also if a Store or an observer panics
		e := t.event(EventReleased, err)
		if t.become(unreleased) && err == nil {
			e.Err = errPanicked
		}
		if !announced && !ended(err) {
			t.lock.emit(ctx, e)
		}
	}()
	if t.base != nil && t.base.closing() { // the session's release frees the lock
		t.become(released)
		return nil
	}
	err = t.writeRelease(ctx, until)
	return err
}

// awaitSession lets the session's context end first if that of the leaning term t has ended. They often end together, and the
// session then frees all its locks with one write.
func (t *term) awaitSession() {
	if t.base != nil && t.ctx.Err() != nil && !ended(context.Cause(t.ctx)) {
		_ = clock.Wait(context.Background(), t.lock.clock, t.lock.attempt/64, t.base.ctx.Done())
	}
}

var errPanicked = errors.New("the store or an observer panicked")

// writeRelease tries to write the release until it has landed or the lease would have ended.
func (t *term) writeRelease(ctx context.Context, until time.Duration) error {
	err := t.retry(ctx, func() error {
		return t.put(ctx, markReleased)
	}, func(err error) bool {
		return err == errNothingToRelease || storeapi.Permanent(err) || t.lock.clock.Now().Mono >= until
	})
	switch {
	case err == nil, err == errNothingToRelease:
		t.become(released)
		if t.base != nil {
			t.freed()
		}
		t.lock.log.InfoContext(ctx, "lock released", "key", t.lock.key, "token", t.token)
		return nil
	case ended(err):
		return err
	}
	return fmt.Errorf("releasing: %w", err)
}

func markReleased(r *Record) { r.ExpiresAt, r.Session = time.Time{}, nil }

// abandon ends the term and leaves the lock to run out: see Lease.Abandon.
func (t *term) abandon() {
	if !t.valid() { // a lease that has just run out is lost first
		return
	}
	t.cancel(ErrReleased)
	t.mu.Lock()
	first := t.state == held
	if first {
		t.over(abandoned)
		if t.base != nil {
			t.sent = t.lock.clock.Now() // the session frees the lock a TTL from now
		}
	}
	t.mu.Unlock()
	if first {
		t.tell(EventReleased, nil)
		t.lock.log.Info("lease abandoned: "+t.lock.willBeFree(), "key", t.lock.key, "token", t.token)
	}
}

// become moves on to another state of a release, and reports whether it did. A term that is released stays released.
func (t *term) become(s state) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == released {
		return false
	}
	t.state = s
	return true
}
