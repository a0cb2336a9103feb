package shards

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// Shard is one shard that this member owns.
type Shard struct {
	ID     string // its name, or its number in decimal
	Number int    // of a group made with [Count]; otherwise -1
	lease  *leasehold.Lease
}

// Token returns the fencing token of this ownership: it rises by one with each owner. See package fenced, and [leasehold.Lease.Token].
func (s Shard) Token() uint64 { return s.lease.Token() }

// Lease returns the lease of the shard's lock. Use it for [leasehold.Lease.Commit], [leasehold.Lease.Valid] and
// [leasehold.Lease.Renew], and leave its release to the group.
func (s Shard) Lease() *leasehold.Lease { return s.lease }

// worker owns one shard, or waits until it is free. It ends when the shard moves or its lease is over.
type worker struct {
	g       *Group
	id      string
	stop    context.CancelCauseFunc
	started bool // EventStarted was emitted

	// Guarded by g.mu.
	lease   *leasehold.Lease // while the handler is under it; nil before and after
	endedAt time.Duration    // monotonic time at which the handler's context ended; 0 if it has not
}

var errMoved = fmt.Errorf("%w: the shard moves to another member", leasehold.ErrReleased)

func (w *worker) shard(lease *leasehold.Lease) Shard {
	s := Shard{ID: w.id, Number: -1, lease: lease}
	if w.g.set.numbered() {
		s.Number, _ = strconv.Atoi(w.id)
	}
	return s
}

func (w *worker) run(ctx context.Context) {
	g := w.g
	defer func() {
		w.stop(nil)
		g.mu.Lock()
		delete(g.workers, w.id)
		g.mu.Unlock()
	}()
	lock, err := g.session.Lock(shardKey(g.prefix, w.id))
	if err != nil {
		g.warn(ctx, "a shard cannot be taken", err, "shard", w.id)
		w.refuse(err)
		<-ctx.Done()
		return
	}
	lease := w.acquire(ctx, lock)
	if lease == nil {
		return
	}
	err = lease.Do(ctx, w.own)
	if err != nil && !errors.Is(err, leasehold.ErrLost) {
		g.warn(ctx, "releasing a shard failed", err, "shard", w.id)
	}
	if w.started {
		g.emit(Event{Kind: EventStopped, Shard: w.id, Token: lease.Token(), Err: why(ctx, lease)})
	}
}

// why says why the lease of a worker with this context has ended.
func why(ctx context.Context, lease *leasehold.Lease) error {
	err := context.Cause(lease.Context())
	if moved := context.Cause(ctx); moved == errMoved && errors.Is(err, leasehold.ErrReleased) {
		return moved
	}
	return err
}

// acquire waits until the shard is free, and takes it. It returns nil if the shard moves first, or the session is not held. If the
// shard cannot be taken for a TTL although nobody holds it, or for good, the planner is told.
func (w *worker) acquire(ctx context.Context, lock *leasehold.Lock) *leasehold.Lease {
	g := w.g
	for failures := 0; ; {
		limited, cancel := context.WithTimeout(ctx, g.ttl)
		lease, err := lock.Acquire(limited)
		cancel()
		switch {
		case err == nil:
			return lease
		case ctx.Err() != nil, errors.Is(err, leasehold.ErrNoSession), !g.session.Held():
			return nil
		case errors.Is(err, leasehold.ErrHeld):
			failures = 0
			continue
		case !errors.Is(err, leasehold.ErrCorruptRecord): // that is not this member's fault
			w.refuse(err)
		}
		g.warn(ctx, "a shard cannot be taken, will retry", err, "shard", w.id)
		g.sleep(ctx, clock.Backoff(g.clock, &failures, g.poll, 4*g.ttl), nil)
	}
}

// refuse tells the planner that this member cannot take the shard.
func (w *worker) refuse(err error) {
	g := w.g
	g.mu.Lock()
	g.refusals[w.id] = true
	g.mu.Unlock()
	g.emit(Event{Kind: EventRefused, Shard: w.id, Err: err})
	g.bell.Ring()
}

// toReport returns the shards that could not be taken and are not reported yet.
func (g *Group) toReport() (ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.refusals {
		ids = append(ids, id)
	}
	return ids
}

func (g *Group) reported(ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range ids {
		delete(g.refusals, id)
	}
}

// own calls the handler until the shard's context ends. It bounds the handlers that start at once.
func (w *worker) own(ctx context.Context, lease *leasehold.Lease) error {
	g := w.g
	if g.starts.Lock(ctx) != nil {
		return nil
	}
	started := sync.OnceFunc(g.starts.Unlock)
	defer started()
	defer g.clock.AfterFunc(g.poll/30, started).Stop()
	g.mu.Lock()
	w.lease = lease
	g.mu.Unlock()
	defer context.AfterFunc(ctx, func() {
		g.mu.Lock()
		w.endedAt = g.now()
		g.mu.Unlock()
	})()
	defer func() {
		g.mu.Lock()
		w.lease = nil
		g.mu.Unlock()
	}()
	shard := w.shard(lease)
	w.started = true
	g.emit(Event{Kind: EventStarted, Shard: w.id, Token: lease.Token()})
	for failures := 0; lease.Valid(); { // after a suspend of the machine it knows before ctx does
		began := g.now()
		err := g.call(ctx, shard)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			<-ctx.Done()
			return nil
		case g.now()-began > g.ttl:
			failures = 0
		}
		g.warn(ctx, "the handler of a shard failed, will call it again", err, "shard", w.id, "token", lease.Token())
		g.emit(Event{Kind: EventFailed, Shard: w.id, Token: lease.Token(), Err: err})
		g.sleep(ctx, clock.Backoff(g.clock, &failures, min(g.poll/4, time.Second), 4*g.ttl), nil)
	}
	return nil
}

// call calls the handler. A panic is an error, because the other shards of this member must go on.
func (g *Group) call(ctx context.Context, s Shard) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the handler panicked: %v\n%s", r, debug.Stack())
		}
	}()
	return g.handler(ctx, s)
}
