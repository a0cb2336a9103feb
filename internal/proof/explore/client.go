package explore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
)

// client is one process. Its history is all that it has observed, and therefore determines its
// state.
type client struct {
	w           *world
	name        string
	incarnation int
	rate        float64
	base        clock.Reading // at true time since
	since       time.Duration
	timers      []*timer
	pending     *request
	writes      int
	lease       *leasehold.Lease
	abandoned   bool // the lease of this attempt
	lock        *leasehold.Lock
	dead        bool
	ctx         context.Context
	kill        context.CancelFunc
	attempts    int
	lastRead    *write // in the last read of this attempt
	history     []event
}

// event is something that a client observed or did.
type event struct {
	at   time.Duration // true time, from which the client's clocks differ by a constant, their rate and its suspends
	what string
	of   *write // the version concerned, if any
}

func (w *world) start(i, incarnation, attempts int) {
	c := &client{
		w:           w,
		name:        fmt.Sprint(string(rune('A'+i)), incarnation),
		incarnation: incarnation,
		rate:        w.cfg.Rates[i],
		attempts:    attempts,
	}
	c.ctx, c.kill = context.WithCancel(w.ctx)
	if i < len(w.clients) {
		w.clients[i] = c
	} else {
		w.clients = append(w.clients, c)
	}
	go c.run()
}

// run is the client's program: acquire the lock, renew once, release. Each attempt has a new Lock,
// as after a restart, so that only the store remembers earlier terms. In worlds in which leases are
// abandoned, a lease has its function under Do, and a client that has abandoned its lease tries
// with the same Lock again.
func (c *client) run() {
	for c.attempts-c.incarnation < c.w.cfg.Terms {
		c.reset()
		lock, err := leasehold.NewLock(c, "lock", testopt.WithClock(c), leasehold.WithTTL(ttl),
			leasehold.WithSafetyMargin(margin), leasehold.WithClockDrift(drift), leasehold.WithManualRenewal(),
			leasehold.WithIdentity("x"), leasehold.WithLogger(slog.New(slog.DiscardHandler)),
			leasehold.WithPollInterval(c.w.cfg.poll()))
		if err != nil {
			panic(err)
		}
		c.offers(lock)
		lease, err := c.take(lock)
		if err != nil {
			_ = c.Sleep(c.ctx, ttl/2)
			continue
		}
		if c.w.cfg.Abandons == 0 {
			c.work(lease.Context(), lease)
			c.released(lease, lease.Release(c.ctx))
			continue
		}
		err = lease.Do(c.ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			c.work(ctx, lease)
			return nil
		})
		if !c.hasAbandoned() {
			c.released(lease, err)
		} else if lease, err = c.take(lock); err == nil {
			c.released(lease, lease.Release(c.ctx))
		}
	}
	c.reset()
}

// hurried is a context that leaves no time to watch a holder. The client waits by itself.
type hurried struct{ context.Context }

func (hurried) Deadline() (time.Time, bool) { return time.Time{}, true }

// take acquires the lock, after one wait if it is held; or in line, if the world has offers.
func (c *client) take(lock *leasehold.Lock) (*leasehold.Lease, error) {
	if c.w.cfg.Offers > 0 {
		lease, err := lock.Acquire(c.ctx)
		if err == nil {
			c.acquired(lease)
		}
		return lease, err
	}
	lease, err := lock.TryAcquire(hurried{c.ctx})
	if held, ok := errors.AsType[*leasehold.HeldError](err); ok {
		_ = c.Sleep(c.ctx, held.Wait)
		lease, err = lock.TryAcquire(hurried{c.ctx})
	}
	if err == nil {
		c.acquired(lease)
	} else if !errors.Is(err, leasehold.ErrHeld) {
		c.leftBehind()
	}
	return lease, err
}

// leftBehind notes that a failed acquisition may have left the lock held. That takes two faults,
// or, where leases are abandoned, one: a TTL can pass there while the request is under way, so that
// it comes too late, and then the release is lost.
func (c *client) leftBehind() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if o := c.w.object; c.w.cfg.Abandons > 0 && o != nil && o.by == c {
		c.w.lost[o.rec.Token] = true
	}
}

func (c *client) work(ctx context.Context, lease *leasehold.Lease) {
	_ = lease.Renew(c.ctx)
	_ = c.Sleep(ctx, ttl/3)
}

func (c *client) hasAbandoned() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.abandoned
}

// reset forgets all that the client knew, before its next attempt.
func (c *client) reset() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.attempts++
	c.writes, c.lastRead = 0, nil
	c.base, c.since = clock.Reading{Wall: time.Hour}, c.w.now
	c.lease, c.timers, c.history, c.abandoned = nil, nil, nil, false
}

func (c *client) acquired(lease *leasehold.Lease) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.dead {
		return
	}
	c.lease = lease
	if other, taken := c.w.tokens[lease.Token()]; taken {
		c.w.violate("token %d was given to %s and to %s", lease.Token(), other.name, c.name)
	}
	c.w.tokens[lease.Token()] = c
	c.note("acquired", nil)
}

// released checks what a release has left in the store. No fault that these worlds have keeps a
// release from freeing the lock before the lease would have ended.
func (c *client) released(lease *leasehold.Lease, err error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	o := c.w.object
	held := o != nil && o.rec.Token == lease.Token() && !o.rec.Released()
	switch {
	case c.dead || !held:
	case err == nil:
		c.w.violate("%s has released token %d, but the store still has it held", c.name, lease.Token())
	case errors.Is(err, leasehold.ErrLost), c.w.now-c.w.writtenAt > ttl*97/100: // its clock may be fast
		c.w.lost[lease.Token()] = true
	default:
		c.w.violate("%s could not release token %d: %v", c.name, lease.Token(), err)
	}
}

// note adds an event to the client's history.
func (c *client) note(what string, of *write) {
	c.history = append(c.history, event{c.w.now, what, of})
}
