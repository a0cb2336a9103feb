package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testopt"
)

// sessionActions are further kinds of actions in worlds with sessions.
var sessionActions = []string{"delete session", "break session"}

// drawSessions draws whether processes have sessions that their locks may lean on.
func (c *Config) drawSessions(r *rand.Rand) {
	c.Sessions = r.IntN(3) == 0
	c.OneSession, c.Missing = r.IntN(8) == 0, r.IntN(4) == 0
	if c.Sessions && c.OneSession && (c.Ages == ReportedAges || c.Ages == TrustedDates) {
		c.Ages = NoAges // two Locks of a process read one object, and what is true in a first reply is true for one of them
	}
	for range r.IntN(4) {
		a := Action{
			At: time.Duration(r.Int64N(int64(c.Chaos * 7 / 10))), Node: r.IntN(c.Nodes), Kind: sessionActions[r.IntN(len(sessionActions))],
		}
		if c.Sessions {
			c.Actions = append(c.Actions, a)
		}
	}
	c.sortActions()
	many := r.IntN(3) == 0 && c.Sessions && !c.OneSession
	if !many || c.Fair || c.Ages.wrong() { // fairness, and what wrong ages cannot break, are of one Lock
		return
	}
	c.ManySessions = true
	if c.Ages == ReportedAges || c.Ages == TrustedDates {
		c.Ages = NoAges
	}
}

// sessionTerm names a term of a session.
type sessionTerm struct {
	key, id string
	token   uint64
}

func termOf(s *leasehold.SessionTerm) sessionTerm {
	if s == nil {
		return sessionTerm{}
	}
	return sessionTerm{s.Key, s.ID, s.Token}
}

// sessions is what a world knows of the sessions in it. The world's mutex guards it.
type sessions struct {
	takenFrom map[sessionTerm]string // a lock was taken from this term, by whom
	broken    map[sessionTerm]bool   // by an administrator
	deleted   map[string]bool        // keys whose object was deleted
	under     map[uint64]sessionTerm // what the lock's token leans on
}

// newSessions draws which sessions the process has, makes a Lock that leans on each, and starts to run them.
func (p *process) newSessions(ctx context.Context) {
	cfg := p.w.cfg
	if !cfg.Sessions || p.node < 0 {
		return
	}
	r := p.w.rng("session", p.name)
	if kind := r.IntN(8); kind < 2 {
		p.client.old = kind == 0 && p.node > 0 // such a candidate may wait for ever
		return
	}
	key := fmt.Sprint("sessions/node", p.node)
	if cfg.OneSession {
		key = "sessions/of-all"
	}
	p.newSession(ctx, key)
	if cfg.ManySessions {
		p.mixed = r.IntN(3) == 0
		for i := range r.IntN(3) {
			p.newSession(ctx, fmt.Sprint(key, "-", i))
		}
	}
}

func (p *process) newSession(ctx context.Context, key string) {
	cfg := p.w.cfg
	session, err := leasehold.NewSession(p.client.store(), key,
		testopt.WithClock(p.clock), leasehold.WithTTL(cfg.TTL), leasehold.WithSafetyMargin(cfg.Margin), leasehold.WithClockDrift(cfg.Drift),
		leasehold.WithIdentity(p.identity), leasehold.WithLogger(nil), leasehold.WithObserver(p.observe))
	if err != nil {
		panic(err)
	}
	var opts []leasehold.Option
	if cfg.Fair {
		opts = append(opts, leasehold.WithFairness())
	}
	lock, err := session.Lock(lockKey, opts...)
	if err != nil {
		panic(err)
	}
	p.sessions, p.locks = append(p.sessions, session), append(p.locks, lock)
	pause := time.Duration(len(p.sessions)) * 701 * time.Nanosecond // no two goroutines act at one instant
	p.goroutines.Go(func() {
		time.Sleep(pause)
		p.runUntilEnd(ctx, session.Run)
	})
}

// observeSession receives the events of the process's session.
func (p *process) observeSession(e leasehold.Event) {
	switch e.Kind {
	case leasehold.EventRequest:
		return
	case leasehold.EventNewLeader:
		p.happened(&p.newTerms)
	case leasehold.EventReleased:
		p.happened(&p.released)
	case leasehold.EventAcquired, leasehold.EventRenewed:
		p.w.mu.Lock()
		if time.Since(later(p.resumedAt, p.pauseEnded)) > e.Duration+e.Duration/4 {
			p.excused = p.excused && (p.under.key != e.Key || p.w.sessions.broken[p.under])
			delete(p.staleSessions, e.Key)
		}
		p.w.mu.Unlock()
	}
	if p.w.traced {
		p.w.log(p.name, "session: %s token %d %s", e.Kind, e.Token, firstLine(e.Err))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// checkSessionWrite checks every change of a session's object. The caller holds store.mu.
func (w *world) checkSessionWrite(writer *process, r request, old, now leasehold.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	term, before := sessionTerm{r.key, now.SessionID, now.Token}, sessionTerm{r.key, old.SessionID, old.Token}
	existed := old.Nonce != ""
	switch {
	case now.Session != nil:
		w.violateLocked("%s made the session %q lean on another", writer.name, r.key)
	case existed && now.Token < old.Token, existed && now.Token > old.Token+1 && !w.deleted[r.key]:
		w.violateLocked("%s changed the token of the session %q from %d to %d", writer.name, r.key, old.Token, now.Token)
	case old.SessionID != "" && now.SessionID != old.SessionID:
		w.violateLocked("%s changed the ID of the session %q", writer.name, r.key)
	case existed && term == before && old.Released() && !now.Released():
		w.violateLocked("%s revived the term %+v of a session", writer.name, term)
	case !now.Released() && w.takenFrom[term] != "" && r.kind == "update":
		w.violateLocked("%s renewed the term %+v of a session, from which %s had taken the lock", writer.name, term, w.takenFrom[term])
	}
	if !existed || !now.Released() || old.Released() {
		return
	}
	if writer.node == administrator {
		w.sessions.broken[term] = true
	}
	for _, p := range w.processes {
		switch {
		case p.lease == nil || p.under != term || p.crashed.Load():
		case writer.node == administrator:
			w.broken[p.lease.Token()] = true
			p.excused, p.resumedAt = true, time.Now()
		case p == writer && len(p.sessions) == 1 && !p.mixed: // or a candidate of the process has sealed it that does not know the session
			w.violateLocked("%s released its session with token %d while a function ran under it", p.name, now.Token)
		case p.accountable() && p.lease.Context().Err() == nil && time.Since(p.resumedAt) > w.cfg.TTL/5*11/10:
			w.violateLocked("%s sealed the session of %s with token %d before the context of token %d had ended", writer.name, p.name, now.Token, p.lease.Token())
		}
	}
}

// checkTakenFrom wants the term of a session ended when another process takes a lock that leans on it. The caller holds w.mu and store.mu.
func (w *world) checkTakenFrom(writer *process, old, now leasehold.Record) {
	if old.Session == nil || now.Token != old.Token+1 || writer.node == administrator || writer.owns(old.Session.Key) && old.Holder == writer.identity {
		return
	}
	term := termOf(old.Session)
	w.takenFrom[term] = writer.name
	k := w.store.at(term.key)
	if live := k.exists && k.rec.SessionID == term.id && k.rec.Token == term.token && !k.rec.Released(); live && !w.deleted[term.key] {
		w.violateLocked("%s took token %d from the term %+v of a session, which was not over", writer.name, now.Token, term)
	}
}

// actOnSession deletes or breaks the object of a node's session.
func (w *world) actOnSession(p *process, a Action) {
	if len(p.sessions) == 0 {
		return
	}
	key := p.sessions[int(a.At)%len(p.sessions)].Key()
	if a.Kind == "delete session" {
		w.store.mu.Lock()
		w.mu.Lock()
		w.deleted[key] = true
		w.mu.Unlock()
		w.store.sessions[key] = &object{}
		w.store.mu.Unlock()
		return
	}
	admin := w.newAdministrator(a)
	go admin.breakObject(key)
}

func (w *world) newAdministrator(a Action) *process {
	admin := &process{w: w, name: fmt.Sprintf("admin%d", a.At), node: administrator, clock: newNodeClock(1, 0, w.rng("admin", a.At))}
	admin.client = w.newClient(admin)
	return admin
}

// breakObject breaks the current term of a lock or, if it leans on a session, of that.
func (p *process) breakObject(key string) {
	lock, err := leasehold.NewLock(p.client.store(), key, testopt.WithClock(p.clock), leasehold.WithLogger(nil))
	if err != nil {
		panic(err)
	}
	rec, err := lock.Inspect(context.Background())
	switch {
	case err != nil:
	case rec.Session == nil:
		_ = lock.Break(context.Background(), rec.Token)
	default:
		if err := lock.Break(context.Background(), rec.Token); err == nil {
			p.w.checkBroken(rec)
			return
		}
		p.breakObject(rec.Session.Key)
	}
}

// checkBroken wants that Break has not let a lock through that leans on the term of a session that goes on.
func (w *world) checkBroken(leans leasehold.Record) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	rec := w.store.rec
	w.mu.Lock()
	defer w.mu.Unlock()
	if byBreak := w.lastWriter != nil && w.lastWriter.node == administrator; byBreak && rec.Token == leans.Token && rec.Released() && !w.freeAtEnd(leans) {
		w.violateLocked("Break released token %d, which leans on a session", leans.Token)
	}
}

// sessionMember is the member of a record that an older version of the library does not know.
var sessionMember = regexp.MustCompile(`,"session":\{[^}]*\}`)

// asOld is what an older version of the library understands of an object.
func (c *client) asOld(obj leasehold.Object, err error) (leasehold.Object, error) {
	if c.old && err == nil {
		obj.Body = sessionMember.ReplaceAll(obj.Body, nil)
	}
	return obj, err
}

// missing reports whether a read of another process's session is answered as if there were no object. The caller holds c.mu.
func (c *client) missing(r *request, on bool) bool {
	cfg := c.p.w.cfg
	return cfg.Sessions && cfg.Missing && on && r.kind == "get" && r.key != lockKey && r.key != "" && !c.p.owns(r.key) && c.rand.IntN(5) > 0
}

func (p *process) owns(key string) bool {
	return slices.ContainsFunc(p.sessions, func(s *leasehold.Session) bool { return s.Key() == key })
}

// mayAcquire reports whether the process looks for the lock. Without a session there is nothing to look for.
func (p *process) mayAcquire() bool {
	return len(p.sessions) == 0 || p.mixed || slices.ContainsFunc(p.sessions, (*leasehold.Session).Held)
}

// freeAtEnd reports whether a record that was not released is of a session that is over.
func (w *world) freeAtEnd(rec leasehold.Record) bool {
	if rec.Session == nil {
		return false
	}
	k := w.store.at(rec.Session.Key)
	return !k.exists || k.rec.SessionID != rec.Session.ID || k.rec.Token != rec.Session.Token || k.rec.Released()
}
