package leasehold

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Check returns an error if the use of this lock is not healthy. It is for the health endpoint of a
// program that uses the lock without an [Elector].
//
// Check fails if a call of [Lock.Acquire] or [Lock.Do] has waited without an answer from the store
// for two TTLs (or poll intervals, if these are longer). It also fails if for this time such a call
// has failed to acquire a lock that was not held. The error wraps the error of the last request or
// acquisition. Check fails, too, if the function of Do still runs after its lease has ended. A Lock
// for which no goroutine waits is healthy. The argument is ignored. It makes Check usable as a
// Kubernetes healthz.Checker.
func (l *Lock) Check(*http.Request) error {
	if err := l.made(); err != nil {
		return err
	}
	if t := l.term.Load(); t != nil && t.overruns() {
		return l.named(fmt.Errorf("a function still runs although its lease (token %d) has ended", t.token))
	}
	if !l.bell.Queued() {
		return nil
	}
	return l.trouble(time.Duration(l.waits.Load()))
}

// healthyFor is how long what is to end, or to succeed, may take.
func (l *Lock) healthyFor() time.Duration { return 2 * max(l.ttl, l.poll) }

// trouble is why a wait that has begun at the monotonic time since is not healthy, or nil.
func (l *Lock) trouble(since time.Duration) error {
	if l.heldByUs() != nil && !l.term.Load().isReleasing() {
		return nil
	}
	now := l.clock.Now().Mono
	if silent := now - max(time.Duration(l.lastAnswered.Load()), since); silent > l.healthyFor() {
		failure := errors.New("the request is still under way")
		if last := l.failure.Load(); last != nil {
			failure = *last
		}
		return l.named(fmt.Errorf("no answer from the store for %v: %w", silent.Round(time.Second), failure))
	}
	failing := l.failing.Load()
	if failing == nil {
		return nil
	}
	if vain := now - max(failing.since, since); vain > l.healthyFor() {
		return l.named(fmt.Errorf("each acquisition has failed for %v: %w", vain.Round(time.Second), failing.last))
	}
	return nil
}

// failing are tries that have failed in a row, other than because the lock was held.
type failing struct {
	since time.Duration // monotonic time of the first failure
	last  error
}

// tried notes for Check how a try has ended.
func (l *Lock) tried(err error) {
	if held, ok := errors.AsType[*HeldError](err); err == nil || ok && held.Wait > 0 {
		l.failing.Store(nil)
		return
	}
	now := &failing{l.clock.Now().Mono, err}
	if before := l.failing.Load(); before != nil {
		now.since = before.since
	}
	l.failing.Store(now)
}
