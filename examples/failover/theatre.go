package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
)

// theatre is where the candidates play, and the referee looks on.
type theatre struct {
	out   io.Writer
	ttl   time.Duration
	began time.Time
	led   chan *candidate // one for each term
	done  sync.WaitGroup

	failed     chan error
	fence      fenced.Fence // what the leaders work on
	candidates []*candidate

	mu      sync.Mutex // guards what follows
	tokens  []uint64
	faultAt time.Time // when the last leader was struck
	looks   int
	double  int
	steps   int // of work done
	refused int // of these turned away by a newer token
}

// candidate is one process that wants to lead; here it is a goroutine.
type candidate struct {
	name    string
	store   *network
	elector *leasehold.Elector
	stop    context.CancelFunc
	gone    atomic.Bool
	lease   atomic.Pointer[leasehold.Lease]
}

func newTheatre(out io.Writer, ttl time.Duration) *theatre {
	return &theatre{out: out, ttl: ttl, began: time.Now(), led: make(chan *candidate, 16), failed: make(chan error, 3)}
}

// say prints a line of the timeline.
func (t *theatre) say(who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "%7.3fs  %-4s %s\n", time.Since(t.began).Seconds(), who, fmt.Sprintf(format, args...))
}

// enter starts a candidate: all that a service needs to have one leader.
func (t *theatre) enter(ctx context.Context, name string, store leasehold.Store, key string) error {
	c := &candidate{name: name, store: &network{Store: store}}
	lock, err := leasehold.NewLock(c.store, key, leasehold.WithTTL(t.ttl), leasehold.WithIdentity(name))
	if err != nil {
		return err
	}
	c.elector, err = leasehold.NewElector(lock, leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
			c.lease.Store(lease)
			t.curtain(c, lease)
			t.work(ctx, c, lease)
		},
		OnStoppedLeading: func(cause error) {
			if c.gone.Load() {
				return // the dead do not speak
			}
			t.say(c.name, "leads no more: %v", why(cause))
		},
		OnNewLeader: func(r leasehold.Record) {
			if !c.gone.Load() && r.Holder != c.name {
				t.say(c.name, "follows %s (token %d)", r.Holder, r.Token)
			}
		},
	})
	if err != nil {
		return err
	}
	t.candidates = append(t.candidates, c)
	ctx, c.stop = context.WithCancel(ctx)
	t.done.Go(func() {
		if err := c.elector.Run(ctx); err != nil && !c.gone.Load() {
			t.failed <- fmt.Errorf("%s: %w", c.name, err)
		}
	})
	return nil
}

// curtain announces a new leader.
func (t *theatre) curtain(c *candidate, lease *leasehold.Lease) {
	t.mu.Lock()
	t.tokens = append(t.tokens, lease.Token())
	after := ""
	if !t.faultAt.IsZero() {
		d := time.Since(t.faultAt)
		after = fmt.Sprintf(", after %v (%.2f TTL)", d.Round(time.Millisecond), d.Seconds()/t.ttl.Seconds())
		t.faultAt = time.Time{}
	}
	t.mu.Unlock()
	t.say(c.name, "LEADS with token %d%s", lease.Token(), after)
	t.led <- c
}

// work is what only the leader may do. Each step carries the token, so that the resource can turn a former leader away.
func (t *theatre) work(ctx context.Context, c *candidate, lease *leasehold.Lease) {
	tick := time.NewTicker(t.ttl / 50)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if c.gone.Load() || !lease.Valid() {
			continue
		}
		err := t.fence.Check(lease.Token())
		t.mu.Lock()
		t.steps++
		if err != nil {
			t.refused++
		}
		t.mu.Unlock()
	}
}

// referee counts, every millisecond, who of the living holds a valid lease.
func (t *theatre) referee() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			valid := 0
			for _, c := range t.candidates {
				if lease := c.lease.Load(); lease != nil && !c.gone.Load() && lease.Valid() {
					valid++
				}
			}
			t.mu.Lock()
			t.looks++
			if valid > 1 {
				t.double++
			}
			t.mu.Unlock()
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-ended
	})
}

// fault notes the time from which a takeover counts.
func (t *theatre) fault() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faultAt = time.Now()
}

// heal reconnects everybody but the dead.
func (t *theatre) heal() {
	for _, c := range t.candidates {
		c.store.cut(c.gone.Load())
	}
}

// close has everybody leave, and waits for them.
func (t *theatre) close() {
	for _, c := range t.candidates {
		c.stop()
	}
	t.done.Wait()
}

// crash is the end of a process: from one moment to the next it sends nothing and does nothing.
func (c *candidate) crash() {
	c.gone.Store(true)
	c.store.cut(true)
	c.stop()
}

func why(cause error) string {
	switch {
	case errors.Is(cause, leasehold.ErrLost):
		return "the lease could not be renewed in time"
	case errors.Is(cause, leasehold.ErrReleased):
		return "released"
	case errors.Is(cause, context.Canceled):
		return "stopped, and released"
	}
	return cause.Error()
}

// network is the way to the store, which can be cut, and counts requests.
type network struct {
	leasehold.Store
	isCut              atomic.Bool
	gets, puts, failed atomic.Int64
}

// MinTTL is that of the store behind.
func (n *network) MinTTL() time.Duration {
	if m, ok := n.Store.(interface{ MinTTL() time.Duration }); ok {
		return m.MinTTL()
	}
	return time.Second
}

func (n *network) cut(cut bool) { n.isCut.Store(cut) }

// pass counts a request. On a cut network it waits, as a request does whose packets are dropped.
func (n *network) pass(ctx context.Context, count *atomic.Int64) error {
	count.Add(1)
	if n.isCut.Load() {
		n.failed.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (n *network) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := n.pass(ctx, &n.gets); err != nil {
		return leasehold.Object{}, err
	}
	return n.Store.Get(ctx, key)
}

func (n *network) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if err := n.pass(ctx, &n.puts); err != nil {
		return "", err
	}
	return n.Store.PutIfNoneMatch(ctx, key, body)
}

func (n *network) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := n.pass(ctx, &n.puts); err != nil {
		return "", err
	}
	return n.Store.PutIfMatch(ctx, key, body, etag)
}
