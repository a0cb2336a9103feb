package leasehold

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/bell"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/ctxmutex"
)

// leaning are the terms that lean on a session's term: those that are held, and those that the store may still show as held. The
// mutex of the session's term guards it. It is locked after that of a leaning term, never before.
type leaning struct {
	terms    []*term
	closed   bool
	closedAt time.Duration // monotonic
	changed  bell.Bell     // rung when a function under one of them returns, and when one is removed
}

var (
	errSession     = errors.New("its session is over")
	errNotReturned = errors.New("its function has not returned a TTL after its context ended")
	errSessionEnds = fmt.Errorf("%w: the session ends", ErrReleased)
)

// adopt lets t lean on the session's term s. It refuses if s is over, in one step against its loss.
func (s *term) adopt(t *term) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != held || s.leaning.closed || s.remaining() <= 0 {
		return false
	}
	t.place = len(s.leaning.terms)
	s.leaning.terms = append(s.leaning.terms, t)
	return true
}

// leave notes that the store does not show t as held any more.
func (t *term) leave() {
	s := t.base
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	terms := s.leaning.terms
	if t.place < 0 || t.place >= len(terms) || terms[t.place] != t {
		return
	}
	last := terms[len(terms)-1]
	terms[t.place], last.place = last, t.place
	terms[len(terms)-1] = nil
	s.leaning.terms, t.place = terms[:len(terms)-1], -1
	s.leaning.changed.Ring()
}

// leaners returns the terms that lean on s.
func (s *term) leaners() []*term {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*term(nil), s.leaning.terms...)
}

// left is how long the session's term s is still valid.
func (s *term) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != held {
		return 0
	}
	return s.remaining()
}

// sinceSent is how long ago the last write of the term was sent.
func (t *term) sinceSent() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lock.clock.Now().Mono - t.sent.Mono
}

// loseLeaning ends all that leans on a lost session: first every context, then the rest.
func (s *term) loseLeaning(cause error) {
	terms := s.leaners()
	causes := make([]error, len(terms))
	why := fmt.Errorf("%w: %w", errSession, bare(cause))
	for i, t := range terms {
		if cause, first := t.end(why); first {
			causes[i] = cause
		}
	}
	for i, t := range terms {
		if causes[i] != nil && !t.stray {
			t.tell(EventLost, causes[i])
		}
	}
}

// closeLeaning ends the contexts of all that leans on a session that ends gracefully. Nothing more may lean on it.
func (s *term) closeLeaning() {
	s.mu.Lock()
	if !s.leaning.closed {
		s.leaning.closed, s.leaning.closedAt = true, s.lock.clock.Now().Mono
	}
	graceful := s.state == held
	s.mu.Unlock()
	if !graceful {
		return
	}
	for _, t := range s.leaners() {
		t.cancel(errSessionEnds)
	}
}

// closing reports whether the session's term s frees all its locks itself.
func (s *term) closing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaning.closed || s.ctx.Err() != nil
}

// awaitLeaning waits until nothing runs any more under the leases that leaned on s, or until others may take the session.
func (s *term) awaitLeaning() {
	for {
		changed := s.leaning.changed.Listen()
		wait := s.leanersRunFor()
		if wait <= 0 {
			break
		}
		_ = clock.Wait(context.Background(), s.lock.clock, wait, changed)
	}
	graceful := s.valid()
	for _, t := range s.leaners() {
		t.mu.Lock()
		wasHeld := t.state == held
		switch {
		case !graceful || t.state == lost:
		case wasHeld:
			t.over(released)
		default:
			t.state = released
		}
		t.mu.Unlock()
		if graceful && wasHeld {
			t.tell(EventReleased, nil)
		}
	}
	if s.lock.each {
		s.forEach(inBackground(context.Background()), func(t *term) func(context.Context) error {
			if !s.valid() {
				return nil
			}
			return t.settle
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaning.terms = nil // or a Lock that has led under s would keep all the others
}

// leanersRunFor is how long something may run under the leases that leaned on s.
func (s *term) leanersRunFor() time.Duration {
	now := s.lock.clock.Now().Mono
	s.mu.Lock()
	limit, closedAt := s.sent.Mono+s.lock.withDrift(s.lock.ttl)-now, s.leaning.closedAt
	s.mu.Unlock()
	wait := time.Duration(0)
	for _, t := range s.leaners() {
		t.mu.Lock()
		switch {
		case t.guarding():
			wait = limit
		case t.function == returned, t.state == released, t.state == unreleased:
		case t.state == abandoned:
			wait = max(wait, t.sent.Mono+s.lock.withDrift(s.lock.ttl)-now)
		default:
			wait = max(wait, closedAt+s.lock.margin-now)
		}
		t.mu.Unlock()
	}
	return min(wait, limit)
}

// untilLook is the time between two looks at a lock that leans on a session: 100 TTLs.
func (l *Lock) untilLook() time.Duration { return 100 * min(l.ttl, math.MaxInt64/1000) }

// Bounds of forEach: the requests that fail, each of which may take the time of an attempt, and those that are under way at once.
const (
	maxFailures = 8
	maxTidying  = 16
)

// tidy does what the terms that lean on s need: it looks at each now and then, and frees what nobody holds.
func (s *term) tidy(ctx context.Context) { s.forEach(ctx, (*term).due) }

// forEach does what each term that leans on s needs, for several at once. It gives up when too many have failed.
func (s *term) forEach(ctx context.Context, needs func(*term) func(context.Context) error) {
	terms := s.leaners()
	first := int(s.lock.clock.Rand() * float64(len(terms))) // so that each has its turn, even if some fail
	var failures atomic.Int64
	var all sync.WaitGroup
	defer all.Wait()
	underWay := make(ctxmutex.Mutex, maxTidying)
	for i := range terms {
		t := terms[(first+i)%len(terms)]
		work := needs(t)
		if work == nil {
			continue
		}
		if underWay.Lock(ctx) != nil {
			return
		}
		if failures.Load() >= maxFailures {
			underWay.Unlock()
			return
		}
		all.Go(func() {
			defer underWay.Unlock()
			if err := work(ctx); err != nil && ctx.Err() == nil {
				failures.Add(1)
				s.lock.log.WarnContext(ctx, "looking at or freeing a lock of this session failed, will retry",
					"key", t.lock.key, "token", t.token, "err", err)
			}
		})
	}
}

// due is what one leaning term needs now; nil if it needs nothing.
func (t *term) due() (work func(context.Context) error) {
	now := t.lock.clock.Now().Mono
	t.mu.Lock()
	defer t.mu.Unlock()
	owed := false
	switch t.state {
	case held:
		switch {
		case now >= t.renewUntil:
			return func(context.Context) error { _ = t.lose(errNotReturned); return nil }
		case t.forgotten.Load():
			return t.releaseForgotten
		case now >= t.lookAt:
			return t.look
		}
	case unreleased:
		owed = true
	case abandoned:
		owed = now >= t.sent.Mono+t.lock.withDrift(t.lock.ttl)
	case lost: // because its function goes on, or because of what one read showed
		owed = t.marginLeft() <= 0
	}
	if owed {
		return t.settle
	}
	return nil
}

// releaseForgotten releases a lease that was dropped.
func (t *term) releaseForgotten(ctx context.Context) error {
	t.lock.log.Warn("a lease was dropped without Release: its session releases it", "key", t.lock.key, "token", t.token)
	return t.release(ctx)
}

// settle makes one try to free the lock of a term that is over, if the store shows it as held.
func (t *term) settle(ctx context.Context) error {
	if err := t.writing.Lock(ctx); err != nil {
		return err
	}
	defer t.writing.Unlock()
	err := t.put(ctx, markReleased)
	if err != nil && err != errNothingToRelease && !ended(err) {
		return fmt.Errorf("releasing: %w", err)
	}
	t.mu.Lock()
	if t.state != lost {
		t.state = released
	}
	t.mu.Unlock()
	t.freed()
	return nil
}

// freed notes that the lock is free.
func (t *term) freed() {
	t.leave()
	if t.base != nil {
		t.lock.session.tell(t.lock.key)
	}
	t.lock.wakeSiblings()
}

// look reads the lock of a leaning term, and ends the term if somebody has changed it. That is not an error of look.
func (t *term) look(ctx context.Context) error {
	if err := t.writing.Lock(ctx); err != nil {
		return err
	}
	defer t.writing.Unlock()
	if t.whyOver() != nil {
		return nil
	}
	v, err := t.lock.read(ctx)
	if err != nil && !errors.Is(err, ErrCorruptRecord) {
		return err
	}
	t.mu.Lock()
	stored := t.stored
	t.lookAt = t.lock.clock.Now().Mono + t.lock.untilLook()
	t.mu.Unlock()
	if err == nil && v.same(stored) {
		return nil
	}
	if _, err = t.compare(ctx, v, err, ""); ended(err) {
		return nil
	}
	return err
}

// confirm renews the session and reads the lock: see Lease.Renew.
func (t *term) confirm(ctx context.Context) error {
	began := t.lock.clock.Now().Mono
	return t.lock.named(t.retry(ctx, func() error {
		if err := t.whyOver(); err != nil {
			return err
		}
		if err := t.base.renewSince(ctx, began); err != nil {
			if over := t.whyOver(); over != nil {
				return over
			}
			return err
		}
		if err := t.look(ctx); err != nil {
			return err
		}
		return t.whyOver()
	}, func(err error) bool { return errors.Is(err, ErrReleased) }))
}

// renewSince renews the session's term s, unless that was done since a monotonic time, or s ends.
func (s *term) renewSince(ctx context.Context, since time.Duration) error {
	if err := s.writing.Lock(ctx); err != nil {
		return err
	}
	defer s.writing.Unlock()
	s.mu.Lock()
	done := s.sent.Mono >= since
	s.mu.Unlock()
	if done || s.closing() {
		return s.whyOver()
	}
	return s.renewLocked(ctx, s.lock.edit)
}

// owe keeps an acquisition whose outcome is unknown. If it has landed, or lands later, nobody knows that they hold the lock, and it
// would not run out. So the session writes over v until nothing of it can be there.
func (l *Lock) owe(base *term, v *version, w write) {
	if base == nil {
		return
	}
	t := &term{
		lock: l, token: w.rec.Token, base: base, stored: v, sent: w.sent, unconfirmed: []write{w}, state: unreleased, function: returned,
		stray: true, ctx: context.Background(), cancel: func(error) {}, writing: ctxmutex.New(),
	}
	base.adopt(t)
}
