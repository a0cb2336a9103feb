package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
)

// client is one process that tries to lead.
type client struct {
	*machine
	w           *world
	name        string
	incarnation int
	writes      int
	lease       *leasehold.Lease
	abandoned   bool // the lease of this attempt
	lock        *leasehold.Lock
	attempts    int
	lastRead    *request // the version in the last read of this attempt
}

func (w *world) start(i, incarnation, attempts int) {
	c := &client{w: w, name: fmt.Sprint(string(rune('A'+i)), incarnation), incarnation: incarnation, attempts: attempts}
	c.machine = w.newMachine(c, w.cfg.Rates[i])
	if i < len(w.clients) {
		w.clients[i], w.machines[i] = c, c.machine
	} else {
		w.clients, w.machines = append(w.clients, c), append(w.machines, c.machine)
	}
	go c.run()
}

// sends labels a write with the attempt that it is part of.
func (c *client) sends(r *request) {
	r.label = c.name + " get"
	if r.writes() {
		c.writes++
		r.attempt, r.seq = c.attempts, c.writes
		r.label = fmt.Sprintf("%s.%d put %d", c.name, r.attempt, r.seq)
		if err := json.Unmarshal(r.body, &r.rec); err != nil {
			c.w.violate("the body of %s is not a record: %v", r.label, err)
		}
	}
	c.note("sends", nil)
}

// hears tells the client the age of a version that it reads, if the store reports ages.
func (c *client) hears(r *request, got *reply) {
	if !r.writes() && got.err == nil {
		if c.w.cfg.ReportsAge {
			got.obj.Age = c.w.now - got.of.at
			if c.lastRead == got.of { // as if the store's clock had been stepped
				got.obj.Age += time.Hour
			}
		}
		c.lastRead = got.of
	}
	c.note(fmt.Sprint(got.err, got.obj.Age), got.of)
}

// run is the client's program: acquire the lock, renew once, release. Each attempt has a new Lock,
// as after a restart, so that only the store remembers earlier terms. In worlds in which leases are
// abandoned, a lease has its function under Do, and a client that has abandoned its lease tries
// with the same Lock again.
func (c *client) run() {
	for c.attempts-c.incarnation < c.w.cfg.Terms {
		c.reset()
		lock, err := leasehold.NewLock(c, lockKey, testopt.WithClock(c), leasehold.WithTTL(ttl),
			leasehold.WithSafetyMargin(margin), leasehold.WithClockDrift(drift), leasehold.WithManualRenewal(),
			leasehold.WithHolder("x"), leasehold.WithLogger(slog.New(slog.DiscardHandler)),
			leasehold.WithPollInterval(c.w.cfg.poll()))
		if err != nil {
			panic(err)
		}
		c.offers(lock)
		lease, err := c.take(lock)
		if err != nil {
			_ = c.Sleep(c.life, ttl/2)
			continue
		}
		if c.w.cfg.Abandons == 0 {
			c.work(lease.Context(), lease)
			c.released(lease, lease.Release(c.life))
			continue
		}
		err = lease.Do(c.life, func(ctx context.Context, lease *leasehold.Lease) error {
			c.work(ctx, lease)
			return nil
		})
		if !c.hasAbandoned() {
			c.released(lease, err)
		} else if lease, err = c.take(lock); err == nil {
			c.released(lease, lease.Release(c.life))
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
		lease, err := lock.Acquire(c.life)
		if err == nil {
			c.acquired(lease)
		}
		return lease, err
	}
	lease, err := lock.TryAcquire(hurried{c.life})
	if held, ok := errors.AsType[*leasehold.HeldError](err); ok {
		_ = c.Sleep(c.life, held.Wait)
		lease, err = lock.TryAcquire(hurried{c.life})
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
	if o := c.w.object(); c.w.cfg.Abandons > 0 && o != nil && o.by == c.machine {
		c.w.lost[o.rec.Token] = true
	}
}

func (c *client) work(ctx context.Context, lease *leasehold.Lease) {
	_ = lease.Renew(c.life)
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
	o := c.w.object()
	held := o != nil && o.rec.Token == lease.Token() && !o.rec.Released()
	switch {
	case c.dead || !held:
	case err == nil:
		c.w.violate("%s has released token %d, but the store still has it held", c.name, lease.Token())
	case errors.Is(err, leasehold.ErrLost), c.w.now-o.at > ttl*97/100: // its clock may be fast
		c.w.lost[lease.Token()] = true
	default:
		c.w.violate("%s could not release token %d: %v", c.name, lease.Token(), err)
	}
}
