package explore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testopt"
)

// client is one process. Its history is all it has ever observed, and so determines its state.
type client struct {
	w       *world
	name    string
	life    int
	rate    float64
	base    clock.Reading // at true time since
	since   time.Duration
	timers  []*timer
	pending *request
	writes  int
	lease   *leasehold.Lease
	dead    bool
	ctx     context.Context
	kill    context.CancelFunc
	rounds  int
	shown   *write // by the last read of this round
	history []event
}

// event is something that a client has observed, or done.
type event struct {
	at   time.Duration // true time, which the client's clocks tell but for a constant and the suspends
	what string
	of   *write // the version it was about, if any
}

func (w *world) start(i, life, rounds int) {
	c := &client{w: w, name: fmt.Sprint(string(rune('A'+i)), life), life: life, rate: w.cfg.Rates[i], rounds: rounds}
	c.ctx, c.kill = context.WithCancel(w.over)
	if i < len(w.clients) {
		w.clients[i] = c
	} else {
		w.clients = append(w.clients, c)
	}
	go c.run()
}

// run is the client's program: take the lock, prove the lease, release it. Each term is of a new Lock, as in a program that
// is started anew, so that what came before is forgotten by all but the store.
func (c *client) run() {
	for c.rounds-c.life < c.w.cfg.Terms {
		c.forget()
		lock, err := leasehold.NewLock(c, "lock", testopt.WithClock(c), leasehold.WithTTL(ttl),
			leasehold.WithSafetyMargin(margin), leasehold.WithClockDrift(drift), leasehold.WithManualRenewal(), leasehold.WithIdentity("x"), leasehold.WithLogger(nil))
		if err != nil {
			panic(err)
		}
		lease, err := lock.TryAcquire(c.ctx)
		if held, ok := errors.AsType[*leasehold.HeldError](err); ok {
			_ = c.Sleep(c.ctx, held.Wait)
			lease, err = lock.TryAcquire(c.ctx)
		}
		if err != nil {
			_ = c.Sleep(c.ctx, ttl/2)
			continue
		}
		c.acquired(lease)
		_ = lease.Renew(c.ctx)
		_ = c.Sleep(lease.Context(), ttl/3)
		_ = lease.Release(c.ctx)
	}
	c.forget()
}

// forget begins a new life. That of the old lease is over.
func (c *client) forget() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.rounds++
	c.writes, c.shown = 0, nil
	c.base, c.since = clock.Reading{Wall: time.Hour}, c.w.now
	c.lease, c.timers, c.history = nil, nil, nil
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

// note adds to the client's history.
func (c *client) note(what string, of *write) {
	c.history = append(c.history, event{c.w.now, what, of})
}
