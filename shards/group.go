package shards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/bell"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/ctxmutex"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Group is one member's part in dividing shards among all members that use the same store and prefix. It is made by [New] and is safe
// for concurrent use. It must not be copied.
//
// All members of a group divide the same [Set]. Where they differ, as during a deployment that changes the number of shards, those
// in the majority divide theirs, and the others own nothing. As soon as the majority has changed, so does the plan. A shard of the
// same name is still owned by one member at a time.
type Group struct {
	options
	store       leasehold.Store
	prefix      string
	set         Set
	handler     func(context.Context, Shard) error
	session     *leasehold.Session
	plannerLock *leasehold.Lock
	elector     *leasehold.Elector // for that
	starts      ctxmutex.Mutex     // has room for WithMaxStarts handlers
	bell        bell.Bell          // rung when the plan is to be read now
	role        bell.Bell          // rung when the watch is to begin or end
	made        time.Duration      // monotonic
	running     atomic.Bool
	watch       *watch // is used on one goroutine

	mu        sync.Mutex // guards what follows; never held over I/O
	workers   map[string]*worker
	refusals  map[string]bool // shards that could not be taken, to be reported
	plan      *plan           // the last one read
	planner   *planner        // nil unless this member is the planner
	watches   bool            // it is the deputy
	pause     time.Duration   // monotonic time until which it must not be the planner
	answered  time.Duration   // monotonic time at which the plan was last read
	asked     time.Duration   // monotonic time at which the last read began that found a plan, or a damaged one
	readError error           // of the last read, if that failed
	planless  bool            // the last version that was read has no plan, or there was none: the plan was deleted or replaced

	endSession context.CancelFunc // ends the session gracefully
}

// New returns a member of a group. It divides the shards of set with all others that use the same store and prefix, and calls
// handler for each shard that it owns. It refuses what cannot work. It sends no request.
//
// The handler runs on a goroutine of its own for each shard. Its context ends when the shard moves to another member, when the
// member leaves, or when the member's session is lost; the handler must then return, because until it does nobody else owns the shard,
// for a TTL at most. If it returns nil earlier, this member owns the shard on. If it returns an error or panics, it is called again
// after a pause, with the same token.
func New(store leasehold.Store, prefix string, set Set, handler func(ctx context.Context, s Shard) error, opts ...Option) (*Group, error) {
	g, err := newGroup(store, prefix, set, handler, opts)
	if err != nil {
		return nil, fmt.Errorf("shards: %w", err)
	}
	return g, nil
}

func newGroup(store leasehold.Store, prefix string, set Set, handler func(context.Context, Shard) error, opts []Option) (*Group, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	switch {
	case handler == nil:
		return nil, errors.New("the handler is nil")
	case storeapi.BadKey(prefix) != "":
		return nil, fmt.Errorf("prefix %.80q %s: use a path such as \"workers\"", prefix, storeapi.BadKey(prefix))
	}
	if err := set.validate(prefix); err != nil {
		return nil, err
	}
	g := &Group{
		options: *o, store: store, prefix: prefix, set: set, handler: handler, starts: make(ctxmutex.Mutex, o.starts),
		bell: bell.New(), role: bell.New(), workers: make(map[string]*worker), refusals: make(map[string]bool),
		made: o.clock.Now().Mono,
	}
	if g.session, err = leasehold.NewSession(store, g.memberKey(g.member), g.lock...); err != nil {
		return nil, err
	}
	if _, err := g.lockOf(g.member); err != nil {
		return nil, err
	}
	if g.plannerLock, err = g.session.Lock(g.key("planner")); err != nil {
		return nil, err
	}
	g.elector, err = leasehold.NewElector(g.plannerLock, leasehold.Callbacks{OnStartedLeading: g.lead})
	return g, err
}

func shardKey(prefix, id string) string { return prefix + "/shards/" + id }

func (g *Group) key(name string) string       { return g.prefix + "/" + name }
func (g *Group) memberKey(name string) string { return g.key("members/" + name) }
func (g *Group) pieceKey(i int) string        { return g.key(fmt.Sprint("plan/", i)) }

// lockOf returns the lock of a member's session.
func (g *Group) lockOf(member string) (*leasehold.Lock, error) {
	return leasehold.NewLock(g.store, g.memberKey(member), g.lock...)
}

// Member returns the name of this member.
func (g *Group) Member() string { return g.member }

// Run joins the group, works, and leaves when ctx ends. Then the contexts of all handlers end. Run waits until they have returned,
// and releases all shards with one request, so that the others take them over. A handler that does not return holds up Run; its
// shards are free after a TTL.
//
// Run returns nil after the end of ctx, unless the release has failed or the store has never answered. Before the member has joined,
// it returns errors that retrying cannot fix, which match [leasehold.ErrPermanent], [leasehold.ErrUnsafeStore] or
// [leasehold.ErrCorruptRecord]. Run may be called again after it has returned. A second Run at the same time is an error.
func (g *Group) Run(ctx context.Context) error {
	if g == nil || g.session == nil {
		return errors.New("shards: this Group was not made by New")
	}
	if !g.running.CompareAndSwap(false, true) {
		return errors.New("shards: the group is already running")
	}
	defer g.running.Store(false)
	g.mu.Lock()
	g.plan, g.planner, g.watches, g.pause, g.answered, g.asked, g.readError, g.planless = nil, nil, false, 0, g.now(), 0, nil, false
	g.endSession = func() {}
	g.mu.Unlock()
	g.watch = &watch{g: g}

	values := context.WithoutCancel(ctx) // what stops first, and what last, is decided below
	follow, stopFollowing := context.WithCancel(values)
	work, stopWork := context.WithCancel(values)
	defer stopWork()
	session, fatal := make(chan error, 1), make(chan error, 1)
	go func() { session <- g.holdSession(follow) }()
	var loops, workers sync.WaitGroup
	loops.Go(func() {
		if err := g.follow(follow, work, &workers); err != nil {
			fatal <- err
		}
	})
	loops.Go(func() { g.runWatch(follow) })

	var err error
	ended := false
	select {
	case <-ctx.Done():
	case err = <-session:
		ended = true
	case err = <-fatal:
	}
	stopFollowing() // nothing more is begun
	loops.Wait()
	g.mu.Lock()
	g.endSession() // with its locks, by one request
	g.mu.Unlock()
	if !ended {
		if sessionErr := <-session; err == nil {
			err = sessionErr
		}
	}
	stopWork()
	workers.Wait()
	return err
}

// holdSession holds the session until ctx has ended and endSession was called. If endSession is called before, a new session follows.
func (g *Group) holdSession(ctx context.Context) error {
	for {
		held, end := context.WithCancel(context.WithoutCancel(ctx))
		g.mu.Lock()
		g.endSession = end
		g.mu.Unlock()
		if ctx.Err() != nil {
			end()
		}
		err := g.session.Run(held)
		restart := held.Err() != nil
		if end(); !restart || ctx.Err() != nil {
			return err
		}
	}
}

// Owned returns the shards whose handlers run now, in any order. It sends no request.
func (g *Group) Owned() []Shard {
	g.mu.Lock()
	defer g.mu.Unlock()
	var owned []Shard
	for _, w := range g.workers {
		if w.lease != nil && w.lease.Valid() {
			owned = append(owned, w.shard(w.lease))
		}
	}
	return owned
}

// attempt bounds one request.
func (g *Group) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, g.ttl/6)
}

// now is the monotonic time, counted so that 0 is long ago.
func (g *Group) now() time.Duration { return g.clock.Now().Mono - g.made + 1000*time.Hour }

// within is a random time below d.
func (g *Group) within(d time.Duration) time.Duration {
	return time.Duration(g.clock.Rand() * float64(d))
}

func (g *Group) warn(ctx context.Context, what string, err error, args ...any) {
	if err != nil {
		args = append(args, "err", err)
	}
	g.log.WarnContext(ctx, what, append([]any{slog.String("prefix", g.prefix), slog.String("member", g.member)}, args...)...)
}

// sleep returns when d has passed, woken is closed or ctx has ended.
func (g *Group) sleep(ctx context.Context, d time.Duration, woken <-chan struct{}) {
	_ = clock.Wait(ctx, g.clock, max(d, time.Microsecond), woken)
}
