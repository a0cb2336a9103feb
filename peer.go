package leasehold

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/ctxmutex"
	"github.com/leasehold-go/leasehold/internal/hints"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// peers are the sessions that the locks of others lean on, as far as this process has met them. The locks of one Session share what
// it knows, and each other Lock has its own. The zero value is ready.
type peers struct {
	mu    sync.Mutex
	byKey map[string]*peer
	sweep int // as soon as there are so many, those that nobody uses are forgotten
}

// peer is what is known of the session of one key.
type peer struct {
	used    time.Duration  // monotonic time of the last use; guarded by peers.mu
	lock    *Lock          // reads its object, and seals it
	looking ctxmutex.Mutex // locked during a look and what follows from it

	mu       sync.Mutex                    // guards what follows; never held over I/O
	began    time.Duration                 // monotonic time at which the last look that got an answer began; math.MinInt64: there was none
	failure  error                         // of the last look
	failedAt time.Duration                 // monotonic time of it
	refused  time.Duration                 // monotonic time at which the store has last refused to create it
	over     map[string]uint64             // by session ID: the highest token of a term that is over for good
	missing  map[sessionTerm]time.Duration // when the first look was answered that showed another object in the place of a term's
	waiting  map[*following]struct{}
	follows  bool      // a goroutine reads the object for all that wait
	log      hints.Log // of the last look
}

// sessionTerm names one term of a session.
type sessionTerm struct {
	id    string
	token uint64
}

func (s *SessionTerm) term() sessionTerm { return sessionTerm{s.ID, s.Token} }

// maxPeers bounds what a process remembers of sessions that nobody waits for.
const maxPeers = 1000

// peers are those that this lock shares with the others of its session.
func (l *Lock) peers() *peers {
	if l.session != nil {
		return &l.session.peers
	}
	return &l.own
}

// get returns the peer of a key. Its requests have the options of l.
func (ps *peers) get(l *Lock, key string) *peer {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	now := l.clock.Now().Mono
	if p := ps.byKey[key]; p != nil {
		p.used = now
		return p
	}
	if len(ps.byKey) >= ps.sweep {
		kept := make(map[string]*peer)
		for key, p := range ps.byKey {
			if p.isAwaited() || now-p.used < l.untilLook() {
				kept[key] = p
			}
		}
		ps.byKey, ps.sweep = kept, max(maxPeers, 2*len(kept))
	}
	asks := l // the requests are its own, because it takes no part in the elections of the other session
	if l.session != nil {
		asks = l.session.lock
	}
	o := *asks.options
	o.reclaim, o.fair, o.storeCheck, o.hasName = false, false, false, false
	o.observe = func(e Event) {
		if e.Kind == EventRequest {
			e.Key = asks.key
			asks.observe(e)
		}
	}
	p := &peer{
		used: now,
		lock: newLock(l.store, key, &o), looking: ctxmutex.New(), began: math.MinInt64, refused: math.MinInt64 / 2,
		over: make(map[string]uint64), missing: make(map[sessionTerm]time.Duration), waiting: make(map[*following]struct{}),
	}
	ps.byKey[key] = p
	return p
}

func (ps *peers) known(key string) *peer {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.byKey[key]
}

// judge says whether the session's term is over that version v of l's object leans on. If it has expired and maySeal, judge ends it
// for good first.
func (ps *peers) judge(ctx context.Context, l *Lock, v *version, maySeal bool) (verdict, error) {
	named := v.rec.Session
	switch {
	case named.Lock != l.key:
		return verdict{}, fmt.Errorf("%w: its record says that it is the lock %q, so the session %q is not in this store either: "+
			"give this store the prefix of its holder's", ErrPermanent, named.Lock, named.Key)
	case named.Key == l.key:
		return verdict{}, fmt.Errorf("%w: it leans on itself (inspect the object, then repair it with Lock.Break)", ErrCorruptRecord)
	}
	if l.session.holds(named) { // another Lock of this process holds it
		return verdict{reason: "held under this session", wait: l.poll}, nil
	}
	p := ps.get(l, named.Key)
	if p.isOver(*named) {
		return sessionOver, nil
	}
	if err := p.looking.Lock(ctx); err != nil {
		return verdict{}, endOf(ctx)
	}
	defer p.looking.Unlock()
	said, err := p.judge(ctx, *named, v.readAfter, maySeal)
	if err != nil {
		return verdict{}, fmt.Errorf("its session %q: %w", named.Key, err)
	}
	if answered := p.lock.lastAnswered.Load(); answered > l.lastAnswered.Load() {
		l.succeeded(time.Duration(answered))
	}
	return said, nil
}

var sessionOver = verdict{free: true, reason: "its session is over"}

// judge judges the term that named names. A lock was read at the monotonic time read that names it. The caller has locked p.looking.
func (p *peer) judge(ctx context.Context, named SessionTerm, read time.Duration, maySeal bool) (verdict, error) {
	for range maxWritesPerTry {
		if p.isOver(named) {
			return sessionOver, nil
		}
		v, err := p.look(ctx, named, read)
		if err != nil {
			return verdict{}, err
		}
		wait := time.Duration(0)
		switch {
		case p.learn(v, named):
			continue
		case !v.exists && p.existed(): // the store only says that it is missing
			return verdict{reason: "held under a session that a read did not show", wait: p.lock.poll}, nil
		case !v.exists:
		case p.shows(v, named):
			held := p.lock.decide(p.lock.observed(v))
			wait = max(held.wait, p.lock.withDrift(named.TTL)-p.lock.observed(v).age)
		default:
			wait = p.lock.withDrift(named.TTL) - (p.lock.clock.Now().Mono - p.missingSince(named))
		}
		switch {
		case wait > 0:
			return verdict{reason: "held under a session", wait: wait}, nil
		case v.exists && !p.shows(v, named): // nobody can renew it
			p.isNowOver(named)
		case !maySeal:
			return verdict{reason: "held under a session that has expired"}, nil
		default:
			if err := p.seal(ctx, v, named); err != nil {
				return verdict{}, err
			}
		}
	}
	return verdict{reason: "held under a session that changes", wait: p.lock.attempt}, nil
}

// shows reports whether v shows the term of named, not ended.
func (p *peer) shows(v *version, named SessionTerm) bool {
	return v.exists && v.rec.SessionID == named.ID && v.rec.Token == named.Token && !v.rec.Released() && v.rec.Session == nil
}

// learn takes what v says of the term for good: that it was released or sealed, or that another term has followed it. A term of the
// same object follows only after the end of the one before.
func (p *peer) learn(v *version, named SessionTerm) (over bool) {
	if !v.exists || v.rec.SessionID != named.ID || v.rec.Token < named.Token || v.rec.Token == named.Token && !v.rec.Released() {
		return false
	}
	p.isNowOver(named)
	return true
}

// look returns the session's object as it is now, or was within the last poll interval. If the last look did not show the term of
// named, it began after the monotonic time read.
func (p *peer) look(ctx context.Context, named SessionTerm, read time.Duration) (*version, error) {
	now := p.lock.clock.Now().Mono
	last, refused := p.lock.memory.latest()
	p.mu.Lock()
	fresh := last != nil && !refused && p.began > math.MinInt64 && now-p.began < p.lock.poll*9/10
	_, noted := p.missing[named.term()]
	if fresh && !p.shows(last, named) && !noted {
		fresh = p.began > read
	}
	if fresh && p.shows(last, named) && p.lock.decide(p.lock.observed(last)).free {
		fresh = last.readAfter > now-p.lock.attempt // it may have been renewed just now
	}
	p.mu.Unlock()
	if !fresh {
		v, err := p.read(ctx)
		if err != nil {
			return nil, err
		}
		last = v
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !last.exists || p.shows(last, named) {
		delete(p.missing, named.term())
	} else if _, noted := p.missing[named.term()]; !noted {
		p.missing[named.term()] = last.readAfter // it may have been renewed while the look was under way
	}
	return last, nil
}

// read reads the session's object.
func (p *peer) read(ctx context.Context) (*version, error) {
	began := p.lock.clock.Now().Mono
	if err := p.failedJustNow(began); err != nil {
		return nil, err
	}
	v, err := p.lock.read(ctx)
	log, told := hints.Decode(v.recOrNone().Payload)
	now := p.lock.clock.Now().Mono
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.waiting { // this is a look for all of them
		if err != nil {
			f.l.failure.Store(&err)
		} else {
			f.l.succeeded(now)
		}
	}
	if p.failure = err; err != nil {
		p.failedAt = now
		return nil, err
	}
	p.began = began
	if told {
		p.wake(&log)
		p.log = log
	}
	return v, nil
}

// failedJustNow is the error of the last read, if that failed within the time of an attempt: many may ask at once.
func (p *peer) failedJustNow(now time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now-p.failedAt < p.lock.attempt {
		return p.failure
	}
	return nil
}

// ringLater makes f look within a TTL. The caller holds p.mu.
func (p *peer) ringLater(f *following) {
	if f.late {
		return
	}
	f.late = true
	p.lock.clock.AfterFunc(time.Duration((1+p.lock.clock.Rand())/2*float64(p.lock.ttl)), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if f.late = false; f.p == p { // it still waits
			f.l.bell.Ring()
		}
	})
}

// wake wakes those whose lock may have been released since the last look. The caller holds p.mu.
func (p *peer) wake(log *hints.Log) {
	before := p.log.Number
	if before == 0 { // nothing was told until now
		before = log.Oldest()
	}
	if log.Number == before {
		return
	}
	for f := range p.waiting {
		switch {
		case log.Gap(before): // look at all, but not at once
			p.ringLater(f)
		case log.MayHave(f.l.key, before):
			f.l.bell.Ring()
		}
	}
}

func (p *peer) missingSince(named SessionTerm) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missing[named.term()]
}

// seal ends a term whose holder has not renewed it for longer than it may trust it. The write replaces that very version, so it and a
// renewal exclude each other. Unless the write is known to have landed, only what the next look shows counts.
//
// If the object is missing, seal creates it, released and without an ID. A store that only says that it is missing refuses that. From
// then on no renewal can land, and the wait for the end of the term begins.
func (p *peer) seal(ctx context.Context, v *version, named SessionTerm) error {
	if !v.exists {
		v = &version{rec: Record{Token: named.Token}}
	}
	err := p.lock.writeReleased(ctx, v)
	if err == nil && v.exists {
		p.isNowOver(named)
		return nil
	}
	p.mu.Lock()
	if p.began = math.MinInt64; !v.exists && storeapi.Refused(err) {
		p.refused = p.lock.clock.Now().Mono
	}
	p.mu.Unlock()
	if storeapi.Permanent(err) {
		return fmt.Errorf("ending its expired term needs the permission to write its object (s3:PutObject): %w", err)
	}
	return nil
}

// existed reports whether the store has refused to create the object within the last poll interval.
func (p *peer) existed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lock.clock.Now().Mono-p.refused < p.lock.poll*9/10
}

// maxOver bounds the objects of one key whose ended terms a process remembers.
const maxOver = 100

func (p *peer) isNowOver(named SessionTerm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.over) >= maxOver {
		clear(p.over)
	}
	p.over[named.ID] = max(p.over[named.ID], named.Token)
	delete(p.missing, named.term())
	for f := range p.waiting {
		if f.named.ID == named.ID && f.named.Token <= named.Token {
			f.l.bell.Ring()
		}
	}
}

func (p *peer) isOver(named SessionTerm) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over[named.ID] >= named.Token
}

func (p *peer) isAwaited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting) > 0
}

// seen is rec as people want to see it: a lock that leans on a session lasts for as long as that, as far as is known without a
// request.
func (l *Lock) seen(rec Record) Record {
	if rec.Session == nil {
		return rec
	}
	if l.session.holds(rec.Session) {
		session := l.session.lock.term.Load().record()
		rec.RenewedAt, rec.ExpiresAt, rec.TTL = session.RenewedAt, session.ExpiresAt, session.TTL
		return rec
	}
	p := l.peers().known(rec.Session.Key)
	if p == nil {
		return rec
	}
	last, _ := p.lock.memory.latest()
	switch {
	case p.isOver(*rec.Session):
		rec.ExpiresAt = time.Time{}
	case last != nil && p.shows(last, *rec.Session):
		rec.RenewedAt, rec.ExpiresAt, rec.TTL = last.rec.RenewedAt, last.rec.ExpiresAt, last.rec.TTL
	}
	return rec
}

// following is a wait for a lock that leans on a session. One goroutine for each session reads its object, for all that wait, and wakes
// those for which there may be something new.
type following struct {
	l     *Lock
	p     *peer
	named SessionTerm
	late  bool // it will look within a TTL; guarded by p.mu
}

// mark is what the session had told at the last look; nil if nobody has followed it yet.
func (f *following) mark() *uint64 {
	if f.p == nil {
		return nil
	}
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	number := f.p.log.Number
	return &number
}

// start follows the session that l's object leans on by the last read, and reports whether there is one. What has been told since
// mark wakes l at once.
func (f *following) start(l *Lock, mark *uint64) bool {
	v, _ := l.memory.latest()
	if v == nil || !v.exists || v.rec.Session == nil || l.heldByUs() != nil || l.wrote(v.rec) || l.session.holds(v.rec.Session) {
		f.stop()
		return false
	}
	p := l.peers().get(l, v.rec.Session.Key)
	if f.p != p {
		f.stop()
		f.l, f.p = l, p
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f.named = *v.rec.Session
	p.waiting[f] = struct{}{}
	if !p.follows {
		p.follows = true
		go p.follow()
	}
	told := p.log.Full() || p.log.MayHave(l.key, p.log.Oldest()) // anything since before the first look
	if mark != nil {
		told = p.log.MayHave(l.key, *mark)
	}
	if told || p.over[f.named.ID] >= f.named.Token {
		l.bell.Ring()
	}
	return true
}

// stop ends following.
func (f *following) stop() {
	if f.p == nil {
		return
	}
	p := f.p
	p.mu.Lock()
	delete(p.waiting, f)
	last := len(p.waiting) == 0
	f.p = nil
	p.mu.Unlock()
	if last {
		p.lock.bell.Ring()
	}
}

// untilLook is how long to wait before the lock itself is looked at, if nothing is told.
func (f *following) untilLook() time.Duration {
	return clock.Jitter(f.l.clock, f.l.untilLook())
}

// follow reads the session's object until nobody waits.
func (p *peer) follow() {
	ctx := inBackground(context.Background())
	for failures := 0; ; {
		quit := p.lock.bell.Listen()
		p.mu.Lock()
		named := make(map[sessionTerm]SessionTerm)
		for f := range p.waiting {
			named[f.named.term()] = f.named
		}
		p.follows = len(named) > 0
		p.mu.Unlock()
		if len(named) == 0 {
			return
		}
		wait := p.lock.untilNextRead()
		if failures > 0 {
			wait = p.lock.backoff(&failures)
		} else if v, _ := p.lock.memory.latest(); v != nil && v.exists && !v.rec.Released() {
			if expires := p.lock.decide(p.lock.observed(v)).wait; expires > 0 {
				wait = min(wait, expires)
			}
		}
		_ = clock.Wait(ctx, p.lock.clock, wait, quit)
		if err := p.lookForAll(ctx, named); err == nil {
			failures = 0
		} else {
			failures = max(failures, 1)
			if storeapi.Permanent(err) { // those who wait must learn of it
				p.ringAll()
			}
			p.lock.log.WarnContext(ctx, "following a session failed, will retry", "key", p.lock.key, "err", err)
		}
	}
}

// lookForAll looks for those who wait for locks that name these terms, and wakes them if a term is over.
func (p *peer) lookForAll(ctx context.Context, named map[sessionTerm]SessionTerm) error {
	if !p.isAwaited() {
		return nil
	}
	if err := p.looking.Lock(ctx); err != nil {
		return err
	}
	defer p.looking.Unlock()
	v, err := p.read(ctx)
	if err != nil {
		return err
	}
	for _, term := range named { // of locks that were read before v
		if _, err := p.judge(ctx, term, v.readBefore-1, true); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) ringAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.waiting {
		f.l.bell.Ring()
	}
}

// recOrNone is v's record, or an empty one if v is nil.
func (v *version) recOrNone() Record {
	if v == nil {
		return Record{}
	}
	return v.rec
}
