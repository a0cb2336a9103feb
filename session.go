package leasehold

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/ctxmutex"
	"github.com/leasehold-go/leasehold/internal/hints"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// ErrNoSession says that a lock cannot be taken because the session that it leans on is not held now: [Session.Run] has not taken
// it yet, has lost it, or has ended. [Lock.Acquire] and [Elector.Run] wait for the session's next term.
var ErrNoSession = errors.New("the session is not held")

// Session is a lease that other locks lean on, so that a process pays for one heartbeat, however many locks it holds. It is made by
// [NewSession] and held by [Session.Run]. A lock of [Session.Lock] is a [Lock] like any other, but it is held for as long as the
// session's term lasts, without renewals of its own. The price is that one loss ends all: when the session is lost, every lease
// under it ends. A Session is safe for concurrent use. It must not be copied.
//
// Take a key of its own for each process, such as a pod's name, and keep it when the process restarts. Never delete the objects of
// sessions while locks may name them.
type Session struct {
	lock    *Lock // of the session's object
	elector *Elector
	options *options       // of its locks, unless they have options of their own
	peers   peers          // the sessions of others
	tries   ctxmutex.Mutex // has room for maxTries

	mu    sync.Mutex    // guards what follows; locked after that of a term, never before
	now   *term         // that locks may lean on; nil if there is none
	next  chan struct{} // closed when a term begins
	hints hints.Log     // what the locks of this session tell those that wait for them
	told  clock.Timer   // writes hints; nil if there is nothing new
}

// maxTries bounds the acquisitions of a session's locks that are under way at once, so that thousands of takeovers do not hold up
// the session's renewal.
const maxTries = 64

// NewSession returns the session of one key of a store. Its options are those of a lock, without [WithReclaim], [WithFairness] and
// [WithManualRenewal]. It sends no request.
func NewSession(s Store, key string, opts ...Option) (*Session, error) {
	l, err := makeLock(s, key, opts)
	if err != nil {
		return nil, err
	}
	for name, given := range map[string]bool{
		"WithReclaim":       l.reclaim, // the session would give its locks to others while functions under them may still run
		"WithFairness":      l.fair,
		"WithManualRenewal": l.manual,
	} {
		if given {
			return nil, fmt.Errorf("leasehold: %s is not for sessions: leave it out", name)
		}
	}
	session := &Session{lock: l, tries: make(ctxmutex.Mutex, maxTries), next: make(chan struct{})}
	l.heartOf = session
	shared := *l.options
	shared.hasName, shared.storeCheck, shared.each, shared.metadata = false, false, false, nil
	session.options = &shared
	session.elector, err = NewElector(l, Callbacks{OnStartedLeading: session.lead})
	return session, err
}

// Key returns the key of the session's object.
func (s *Session) Key() string {
	if s.made() != nil {
		return ""
	}
	return s.lock.key
}

// made refuses a Session that NewSession has not made.
func (s *Session) made() error {
	if s == nil || s.lock == nil {
		return errors.New("leasehold: this Session was not made by NewSession")
	}
	return nil
}

// Lock returns the lock of one key of the session's store, which leans on this session. Its options are the session's, without
// metadata, and then those given. The session decides the TTL, the renew interval, the safety margin, the clock drift and who
// renews, so these cannot be given, and neither can [WithReclaim].
//
// What differs from a lock without a session: TryAcquire fails with [ErrNoSession] while the session is not held. The lease is
// lost when the session is lost. [Lease.Renew] renews the session and reads the lock. Whoever deletes or overwrites the lock's
// object is noticed only by that, by [Lease.Commit], or within 100 TTLs. [Lock.Break] is refused: break the session. While the
// session ends gracefully, [Lease.Release] sends nothing.
func (s *Session) Lock(key string, opts ...Option) (*Lock, error) {
	if err := s.made(); err != nil {
		return nil, err
	}
	if key == s.lock.key {
		return nil, fmt.Errorf("leasehold: key %.80q is that of the session itself: give the lock another one", key)
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	o := s.options
	if len(opts) > 0 {
		own := *s.options
		for _, opt := range opts {
			if opt == nil {
				return nil, errNilOption
			}
			opt(&own)
		}
		if err := s.decides(&own); err != nil {
			return nil, err
		}
		o = &own
	}
	l := newLock(s.lock.store, key, o)
	l.session = s
	return l, nil
}

var errEachLock = errors.New("leasehold: WithEachLockReleased is for NewSession: leave it out")

// decides refuses what the session decides.
func (s *Session) decides(o *options) error {
	mine := s.options
	for name, differs := range map[string]bool{
		"WithTTL":           o.ttl != mine.ttl,
		"WithRenewInterval": o.renew != mine.renew,
		"WithSafetyMargin":  o.margin != mine.margin,
		"WithClockDrift":    o.drift != mine.drift,
		"WithManualRenewal": o.manual,
		"WithReclaim":       o.reclaim,
	} {
		if differs {
			return fmt.Errorf("leasehold: %s is decided by the session: give it to NewSession, or leave it out", name)
		}
	}
	if o.each {
		return errEachLock
	}
	if o.observe == nil {
		o.observe = func(Event) {}
	}
	if err := o.validate(s.lock.store); err != nil {
		return fmt.Errorf("leasehold: %w", err)
	}
	return nil
}

// Run takes the session, keeps it, and takes it anew after a loss, until ctx ends. A new term begins only when every function
// under the last one has returned, or when others may take the session too. When ctx ends, the contexts of all leases under the
// session end with [ErrReleased]. Run waits until the functions that they guard have returned, and for the safety margin if there are
// leases without one. Then it releases the session, which frees all its locks with one request (see [WithEachLockReleased]).
// Meanwhile the session is renewed for one TTL at most. If a function runs on, Run returns when the session has run out. Its
// errors are those of [Elector.Run].
func (s *Session) Run(ctx context.Context) error {
	if err := s.made(); err != nil {
		return err
	}
	return s.elector.Run(ctx)
}

// Held reports whether locks can be taken under this session now. It sends no request and never blocks.
func (s *Session) Held() bool {
	if s.made() != nil {
		return false
	}
	t, _ := s.term()
	return t != nil
}

// Check is for a health endpoint: see [Elector.Check]. It also fails while another process holds the session's key.
func (s *Session) Check(r *http.Request) error {
	if err := s.made(); err != nil {
		return err
	}
	if err := s.elector.Check(r); err != nil {
		return err
	}
	if !s.elector.running.Load() || s.elector.leading.Load() != nil {
		return nil
	}
	if other := s.elector.leader.Load(); other != nil && !other.Released() && !s.lock.wrote(*other) {
		return s.lock.named(fmt.Errorf("%w: %q holds it with token %d (give each process a session key of its own)",
			ErrNoSession, other.Holder, other.Token))
	}
	return nil
}

// absent says why no lock can be taken under s, unless it is about to be held. s may be nil.
func (s *Session) absent() error {
	switch {
	case s == nil || s.Held():
		return nil
	case !s.elector.running.Load():
		return fmt.Errorf("%w: Session.Run of %q does not run", ErrNoSession, s.Key())
	}
	return s.Check(nil)
}

// term is the term that locks may lean on, if there is one, and a channel that is closed when the next one begins.
func (s *Session) term() (*term, <-chan struct{}) {
	s.mu.Lock()
	t, next := s.now, s.next
	s.mu.Unlock()
	if t == nil || !t.valid() || t.ctx.Err() != nil {
		return nil, next
	}
	return t, next
}

// holds reports whether named is the term that s holds now. s may be nil.
func (s *Session) holds(named *SessionTerm) bool {
	if s == nil || named == nil || named.Key != s.lock.key {
		return false
	}
	t, _ := s.term()
	return t != nil && t.token == named.Token && t.record().SessionID == named.ID
}

// begins returns a channel that is closed when the session's next term begins, or at once if it is held.
func (s *Session) begins() <-chan struct{} {
	t, next := s.term()
	if t != nil {
		return closedChannel
	}
	return next
}

var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// lead runs during each term of the session. The elector does not release the session, or take it anew, before lead has returned.
func (s *Session) lead(ctx context.Context, lease *Lease) {
	t := lease.t
	defer func() { // also if a Store or an observer panics
		t.closeLeaning()
		t.awaitLeaning()
	}()
	defer context.AfterFunc(ctx, func() { t.closeLeaning() })()
	told := t.record().Payload // before s.mu is locked, which a renewal locks after the term's
	s.mu.Lock()
	s.now = t
	s.hints.Resume(told)
	close(s.next)
	s.next = make(chan struct{})
	s.mu.Unlock()
	for clock.Wait(ctx, s.lock.clock, s.lock.renew, nil) == nil {
		t.tidy(ctx)
	}
}

// tell writes soon which lock was released, for those that wait for it. Many releases are told in one write.
func (s *Session) tell(key string) {
	wait := s.lock.poll / 4
	if t, _ := s.term(); t != nil { // some stores take one write of a key a second
		wait = max(wait, min(s.lock.renew, time.Second)-t.sinceSent())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hints.Add(key)
	if s.told == nil {
		s.told = s.lock.clock.AfterFunc(wait, s.writeHints)
	}
}

func (s *Session) writeHints() {
	t, _ := s.term()
	s.mu.Lock()
	s.told = nil
	s.mu.Unlock()
	if t != nil {
		_ = t.renew(inBackground(t.ctx), s.addHints) // if it fails, the next renewal tells
	}
}

// addHints is how each renewal of the session edits the record.
func (s *Session) addHints(r *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hints.Number > 0 {
		r.Payload = s.hints.Encode()
	}
}

// edit is how each renewal edits the record.
func (l *Lock) edit(r *Record) {
	if l.heartOf != nil {
		l.heartOf.addHints(r)
	}
}

// lean makes r a record that leans on a session's term.
func (r *Record) lean(lock string, base *term) {
	session := base.record()
	r.TTL, r.ExpiresAt = 0, wire.LeaningTime()
	r.Session = &SessionTerm{Lock: lock, Key: base.lock.key, ID: session.SessionID, Token: base.token, TTL: base.lock.ttl}
}
