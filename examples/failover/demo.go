package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/stage"
)

// demo runs the candidates, and records what they do.
type demo struct {
	*stage.Stage
	ttl     time.Duration
	leaders chan *candidate // one for each term
	running sync.WaitGroup

	fence      leasehold.Fence // protects what the leaders work on
	candidates []*candidate

	mu      sync.Mutex       // guards what follows
	lease   *leasehold.Lease // the latest leader's
	tokens  []uint64
	checks  int
	doubles int // checks that found two leaders
	steps   int // of work
	refused int // steps that a newer token has fenced off
}

// candidate is one process that wants to lead; here it is a goroutine.
type candidate struct {
	name    string
	network *stage.Network
	elector *leasehold.Elector
	stop    context.CancelFunc
	crashed atomic.Bool
	lease   atomic.Pointer[leasehold.Lease]
}

func newDemo(out io.Writer, ttl time.Duration) *demo {
	return &demo{Stage: stage.New(out, ttl), ttl: ttl, leaders: make(chan *candidate, 16)}
}

// start starts a candidate. It is all that a service needs to have one leader.
func (d *demo) start(ctx context.Context, name string, store leasehold.Store, key string) error {
	c := &candidate{name: name, network: stage.NewNetwork(store, 0, "")}
	lock, err := leasehold.NewLock(c.network, key, leasehold.WithTTL(d.ttl), leasehold.WithHolder(name),
		// because the timeline tells what happens; keep the log in a program of your own
		leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	c.elector, err = leasehold.NewElector(lock, leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
			c.lease.Store(lease)
			d.announce(c, lease)
			d.work(ctx, c, lease)
		},
		OnStoppedLeading: func(cause error) {
			if !c.crashed.Load() {
				d.Print(c.name, "stops leading: %s", d.why(c.lease.Load(), cause))
			}
		},
		OnNewLeader: func(r leasehold.Record) {
			if !c.crashed.Load() && r.Holder != c.name {
				d.Print(c.name, "follows %s (token %d)", r.Holder, r.Token)
			}
		},
	})
	if err != nil {
		return err
	}
	d.candidates = append(d.candidates, c)
	ctx, c.stop = context.WithCancel(ctx)
	d.running.Go(func() {
		if err := c.elector.Run(ctx); err != nil && !c.crashed.Load() {
			d.Fail(fmt.Errorf("%s: %w", c.name, err))
		}
	})
	return nil
}

// announce prints who leads, and when and why it could take over.
func (d *demo) announce(c *candidate, lease *leasehold.Lease) {
	d.mu.Lock()
	last := d.lease
	d.lease, d.tokens = lease, append(d.tokens, lease.Token())
	d.mu.Unlock()
	why := ""
	if last != nil {
		r := last.Record() // as last written: renewed or released
		reason := "last renewal, so the lease had expired"
		if r.Released() {
			reason = "release"
		}
		why = fmt.Sprintf(": %.2f TTL after %s's %s", d.TTLs(time.Since(r.RenewedAt)), r.Holder, reason)
	}
	d.Print(c.name, "LEADS (token %d)%s", lease.Token(), why)
	d.leaders <- c
}

// why says why a leader's term has ended.
func (d *demo) why(lease *leasehold.Lease, cause error) string {
	switch {
	case errors.Is(cause, leasehold.ErrLost):
		lasted := lease.Deadline().Sub(lease.Record().RenewedAt)
		return fmt.Sprintf("its lease ended %.2f TTL after the last renewal, before anyone else may lead",
			d.TTLs(lasted))
	case errors.Is(cause, leasehold.ErrReleased):
		return "it has resigned"
	case errors.Is(cause, context.Canceled):
		return "the program ends"
	}
	return cause.Error()
}

// nextLeader waits for the next term of anybody, and lets it last for a while.
func (d *demo) nextLeader(ctx context.Context) (next *candidate, err error) {
	err = d.Await(ctx, d.ttl/1000, "no candidate has become the leader", func(context.Context) (bool, error) {
		select {
		case next = <-d.leaders:
			return true, nil
		default:
			return false, nil
		}
	})
	if err != nil {
		return nil, errors.Join(err, d.health())
	}
	time.Sleep(d.ttl / 2)
	return next, nil
}

// health returns why a candidate cannot lead, if one knows.
func (d *demo) health() error {
	for _, c := range d.candidates {
		if err := c.elector.Check(nil); err != nil && !c.crashed.Load() {
			return err
		}
	}
	return nil
}

// work is what only the leader may do. Each step carries the token, so that what is worked on can
// refuse a former leader.
func (d *demo) work(ctx context.Context, c *candidate, lease *leasehold.Lease) {
	tick := time.NewTicker(d.ttl / 50)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if c.crashed.Load() || !lease.Valid() {
			continue
		}
		err := d.fence.Check(lease.Token())
		d.mu.Lock()
		d.steps++
		if err != nil {
			d.refused++
		}
		d.mu.Unlock()
	}
}

// countLeaders counts, every millisecond, how many candidates hold a valid lease.
func (d *demo) countLeaders() (stop func()) {
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
			for _, c := range d.candidates {
				if lease := c.lease.Load(); lease != nil && !c.crashed.Load() && lease.Valid() {
					valid++
				}
			}
			d.mu.Lock()
			d.checks++
			if valid > 1 {
				d.doubles++
			}
			d.mu.Unlock()
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-ended
	})
}

// reconnect repairs the network of every candidate that has not crashed.
func (d *demo) reconnect() {
	for _, c := range d.candidates {
		c.network.Cut(c.crashed.Load())
	}
}

// stopAll stops every candidate and waits for it.
func (d *demo) stopAll() {
	for _, c := range d.candidates {
		c.stop()
	}
	d.running.Wait()
}

// report prints the totals. It returns an error if two candidates could act at once.
func (d *demo) report(out io.Writer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(out, "\n%-10s %8s %8s %10s\n", "requests", "GET", "PUT", "unanswered")
	for _, c := range d.candidates {
		sent := c.network.Requests()
		fmt.Fprintf(out, "%-10s %8d %8d %10d\n", c.name, sent.Gets, sent.Puts, sent.Unanswered)
	}
	fmt.Fprintf(out, "\nTwo leaders at once: in %d of %d checks.\n", d.doubles, d.checks)
	fmt.Fprintf(out, "Fencing tokens of the terms: %v.\n", d.tokens)
	fmt.Fprintf(out, "Work of a former leader: %d of %d steps.\n", d.refused, d.steps)
	for i := 1; i < len(d.tokens); i++ {
		if d.tokens[i] <= d.tokens[i-1] {
			return fmt.Errorf("tokens do not increase: %v", d.tokens)
		}
	}
	switch {
	case d.doubles > 0:
		return fmt.Errorf("two candidates held a valid lease at once, in %d checks", d.doubles)
	case d.refused > 0:
		return fmt.Errorf("a former leader went on working: %d steps", d.refused)
	case len(d.tokens) < 4:
		return fmt.Errorf("only %d terms", len(d.tokens))
	}
	return nil
}

// crash ends a candidate as the end of its process would: from this moment on it sends nothing and
// does nothing.
func (c *candidate) crash() {
	c.crashed.Store(true)
	c.network.Cut(true)
	c.stop()
}
