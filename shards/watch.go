package shards

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// watch is what the planner and its deputy know of the members: the roster, and the session of each. The deputy watches along, so
// that it knows for how long a session has not been renewed when it becomes the planner. It is used on one goroutine.
type watch struct {
	g        *Group
	roster   roster
	rosterAt time.Duration // monotonic time of the next look at it
	readAt   time.Duration // monotonic time of the last read of it that was answered; 0 if there was none
	members  map[string]*watched
}

// watched is one member.
type watched struct {
	lock   *leasehold.Lock // of its session
	nonce  string          // of the last version seen
	ttl    time.Duration   // of that
	since  time.Duration   // monotonic time at which that was first seen
	next   time.Duration   // monotonic time of the next look
	looked bool            // a look has been answered
	live   bool            // its session is held
	absent time.Duration   // monotonic time since which it is not
	sealed bool            // this process has ended its last session, which had expired
	grace  time.Duration   // it came back from that, and gets no shards before this monotonic time
}

// maxLooks bounds the looks at sessions that are under way at once.
const maxLooks = 16

// look looks at all that is due, and returns when the next look is due. If maySeal, it ends the sessions that have expired, so that
// each shard under them can be taken at once.
func (w *watch) look(ctx context.Context, p *plan, maySeal bool) (next time.Duration) {
	g := w.g
	now := g.now()
	if now >= w.rosterAt {
		w.rosterAt = now + clock.Jitter(g.clock, g.poll)
		w.readRoster(ctx)
	}
	w.enlist(p)
	limit := make(chan struct{}, maxLooks)
	var all sync.WaitGroup
	for name, m := range w.members {
		if name == g.member {
			m.live, m.looked, m.next = g.session.Held(), true, now+g.poll
			continue
		}
		if now < m.next {
			continue
		}
		limit <- struct{}{}
		all.Go(func() {
			defer func() { <-limit }()
			m.look(ctx, g, maySeal)
		})
	}
	all.Wait()
	next = w.rosterAt
	for _, m := range w.members {
		next = min(next, m.next)
	}
	return next
}

func (w *watch) readRoster(ctx context.Context) {
	obj, err := w.g.get(ctx, w.g.key("roster"))
	if err != nil && !errors.Is(err, leasehold.ErrNotExist) && !errors.Is(err, leasehold.ErrCorruptRecord) {
		w.g.warn(ctx, "reading the roster failed, will retry", err)
		return
	}
	w.roster, w.readAt = decodeRoster(obj.Body), w.g.now()
}

// enlist makes the list of those to watch: the members of the roster, and those of the plan, in case the roster was damaged.
func (w *watch) enlist(p *plan) {
	names := append(slices.Collect(maps.Keys(w.roster.Members)), w.g.member)
	if p != nil {
		names = append(names, p.members...)
	}
	kept := make(map[string]*watched, len(names))
	for _, name := range sorted(names) {
		m := w.members[name]
		if m == nil {
			lock, err := w.g.lockOf(name)
			if err != nil {
				continue // nobody can have a session of that name
			}
			m = &watched{lock: lock}
		}
		kept[name] = m
	}
	w.members = kept
}

// complete reports whether every member was looked at.
func (w *watch) complete() bool {
	for _, m := range w.members {
		if !m.looked {
			return false
		}
	}
	return w.readAt > 0
}

// look reads the session, or takes it if it has expired, and releases it.
func (m *watched) look(ctx context.Context, g *Group, maySeal bool) {
	now := g.now()
	m.next = now + clock.Jitter(g.clock, g.poll)
	if m.live && maySeal && now >= m.since+m.ttl {
		m.seal(ctx, g)
		return
	}
	rec, err := m.lock.Inspect(ctx)
	switch {
	case errors.Is(err, leasehold.ErrNotExist), errors.Is(err, leasehold.ErrCorruptRecord), err == nil && rec.Released():
		m.gone(g)
	case err == nil:
		m.saw(g, rec)
	}
}

func (m *watched) gone(g *Group) {
	if m.live || !m.looked {
		m.absent = g.now()
	}
	m.live, m.looked = false, true
}

// saw notes that the session is held.
func (m *watched) saw(g *Group, rec leasehold.Record) {
	now := g.now()
	m.looked = true
	if m.nonce != rec.Nonce {
		m.nonce, m.ttl, m.since = rec.Nonce, max(rec.TTL, g.poll), now
		if !m.live && m.sealed {
			m.grace, m.sealed = now+g.ttl, false
		}
		m.live = true
	}
	if expires := m.since + m.ttl; expires > now {
		m.next = min(m.next, expires)
	}
}

// seal ends a session that its holder has not renewed for its TTL, by the protocol of locks: it takes the lock of the session, if that
// may be taken, and releases it.
func (m *watched) seal(ctx context.Context, g *Group) {
	lease, err := m.lock.TryAcquire(ctx)
	now := g.now()
	if held, ok := errors.AsType[*leasehold.HeldError](err); ok {
		m.saw(g, held.Record)
		m.next = min(m.next, now+held.Wait+time.Microsecond)
		return
	}
	switch {
	case err == nil:
		err = lease.Release(ctx)
	case errors.Is(err, leasehold.ErrPermanent):
		g.warn(ctx, "ending the expired session of a member needs the permission to write its object: its shards are free later", err)
	default:
		return
	}
	if err != nil && ctx.Err() == nil {
		g.warn(ctx, "ending the session of a member", err)
	}
	m.gone(g)
	m.sealed = true
}
