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
)

// demo runs the processes, and checks what they do.
type demo struct {
	out    io.Writer
	ttl    time.Duration
	prefix string
	began  time.Time
	failed chan error // of electors and sessions that have given up

	mu      sync.Mutex        // guards what follows, and out
	terms   [][]term          // of each lock
	unclear map[string]uint64 // by key: PUTs without an answer, each of which may have taken a token
	checks  int
	wrong   []error // two leaders of a lock, and tokens that do not rise by one
}

// term is one term of one lock.
type term struct {
	leader string
	lease  *leasehold.Lease
}

// process is one process; here it is a session and its electors.
type process struct {
	name    string
	network *network
	stop    func() // gracefully; waits until it has stopped
	leading int    // functions that run; guarded by demo.mu
}

func newDemo(out io.Writer, ttl time.Duration, prefix string, locks int) *demo {
	return &demo{
		out: out, ttl: ttl, prefix: prefix, began: time.Now(), failed: make(chan error, 1),
		terms: make([][]term, locks), unclear: make(map[string]uint64),
	}
}

// print prints a line of the timeline.
func (d *demo) print(name, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "%7.3fs  %-4s %s\n", time.Since(d.began).Seconds(), name, fmt.Sprintf(format, args...))
}

func (d *demo) ttls(t time.Duration) float64 { return t.Seconds() / d.ttl.Seconds() }

// start starts a process. It is all that a service needs to have one leader for each of many things.
func (d *demo) start(ctx context.Context, name string, store leasehold.Store) (*process, error) {
	p := &process{name: name, network: &network{Store: store, put: d.notePut}}
	session, err := leasehold.NewSession(p.network, d.prefix+"/session-of-"+name, leasehold.WithTTL(d.ttl), leasehold.WithIdentity(name),
		leasehold.WithLogger(nil)) // because the timeline tells what happens; keep the log in a program of your own
	if err != nil {
		return nil, err
	}
	var electors []*leasehold.Elector
	for i := range d.terms {
		lock, err := session.Lock(d.key(i))
		if err != nil {
			return nil, err
		}
		elector, err := leasehold.NewElector(lock, leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
				d.startLeading(p, i, lease)
				<-ctx.Done() // a service works here, and returns soon after ctx is done
				d.stopLeading(p)
			},
		})
		if err != nil {
			return nil, err
		}
		electors = append(electors, elector)
	}
	stopSession := d.run(ctx, name, session.Run)
	var stopElectors []func()
	for _, elector := range electors {
		stopElectors = append(stopElectors, d.run(ctx, name, elector.Run)) // waits until the session is held
	}
	p.stop = func() {
		stopSession() // first, so that its release frees all locks with one request
		for _, stop := range stopElectors {
			stop()
		}
	}
	return p, nil
}

// run runs a session or an elector until stop is called, which waits for its end.
func (d *demo) run(ctx context.Context, name string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			select {
			case d.failed <- fmt.Errorf("%s: %w", name, err):
			default: // one is enough
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// startLeading notes that a term of lock i has begun, and checks that it follows the last one.
func (d *demo) startLeading(p *process, i int, lease *leasehold.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.leading++
	if n := len(d.terms[i]); n > 0 {
		last := d.terms[i][n-1]
		if last.lease.Valid() || last.lease.Context().Err() == nil {
			d.wrong = append(d.wrong, fmt.Errorf("lock %d: %s leads while the lease of %s goes on", i, p.name, last.leader))
		}
		if next := last.lease.Token() + 1; lease.Token() < next || lease.Token() > next+d.unclear[d.key(i)] {
			d.wrong = append(d.wrong, fmt.Errorf("lock %d: token %d follows %d", i, lease.Token(), last.lease.Token()))
		}
	}
	d.terms[i] = append(d.terms[i], term{p.name, lease})
}

func (d *demo) key(i int) string { return fmt.Sprintf("%s/lock-%04d", d.prefix, i) }

// notePut notes how a PUT has ended.
func (d *demo) notePut(key string, err error) {
	if err == nil || errors.Is(err, leasehold.ErrPreconditionFailed) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unclear[key]++
}

func (d *demo) stopLeading(p *process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.leading--
}

// await waits until p leads so many locks.
func (d *demo) await(ctx context.Context, p *process, locks int) error {
	limit := 30*time.Second + 5*d.ttl
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s does not lead %d locks within %v", p.name, locks, limit))
	defer cancel()
	tick := time.NewTicker(d.ttl / 1000)
	defer tick.Stop()
	for {
		d.mu.Lock()
		leading := p.leading
		d.mu.Unlock()
		if leading == locks {
			return nil
		}
		select {
		case <-tick.C:
		case err := <-d.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// countLeaders counts, in every fiftieth of a TTL, the valid leases of each lock.
func (d *demo) countLeaders() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(d.ttl / 50)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				d.countOnce()
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-ended
	})
}

func (d *demo) countOnce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, terms := range d.terms {
		valid := 0
		for _, t := range terms {
			if t.lease.Valid() {
				valid++
			}
		}
		d.checks++
		if valid > 1 {
			d.wrong = append(d.wrong, fmt.Errorf("lock %d: %d valid leases at once", i, valid))
		}
	}
}

// report prints the totals. It returns an error if two processes led one lock at once, or a token did not rise by one.
func (d *demo) report() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	terms := 0
	for _, of := range d.terms {
		terms += len(of)
	}
	fmt.Fprintf(d.out, "\n%d terms of %d locks, %d checks. Two leaders of one lock, or a token that did not rise by one: %d times.\n",
		terms, len(d.terms), d.checks, len(d.wrong))
	if len(d.unclear) > 0 {
		fmt.Fprintf(d.out, "PUTs for %d keys had no answer. Each may have taken a token, which is then skipped.\n", len(d.unclear))
	}
	return errors.Join(d.wrong[:min(len(d.wrong), 10)]...)
}

// Prices of the README, in dollars: S3 Standard in us-east-1, as listed in November 2026.
const (
	pricePut = 0.005 / 1000
	priceGet = 0.0004 / 1000
	month    = 730 * time.Hour
	perMonth = float64(month / (15 * time.Second)) // TTLs, at the default one
)

// printCosts prints what the requests counted in some TTLs cost at the default TTL, and what locks without a session would cost.
func (d *demo) printCosts(holding, waiting requests, ttls float64) {
	locks := float64(len(d.terms))
	plainPut, plainGet := 3*locks*pricePut, 6*locks*priceGet // per TTL
	looks := locks / 100 * priceGet                          // each lock is read every 100 TTLs, which is too rare to be counted here
	session := func(r requests) float64 {
		return perMonth * ((float64(r.puts)*pricePut+float64(r.gets)*priceGet)/ttls + looks)
	}
	fmt.Fprintf(d.out, "\nDollars a month at the default TTL of 15 s, and at the prices of the README:\n\n")
	fmt.Fprintf(d.out, "%-28s %10s %10s\n", fmt.Sprintf("%d locks", len(d.terms)), "holder", "candidate")
	fmt.Fprintf(d.out, "%-28s %10.2f %10.2f\n", "each renewed by itself", perMonth*plainPut, perMonth*plainGet)
	fmt.Fprintf(d.out, "%-28s %10.2f %10.2f\n", "under sessions, as counted", session(holding), session(waiting))
}

// requests are those that have reached the store.
type requests struct{ gets, puts int64 }

func (r requests) String() string { return fmt.Sprintf("%d PUT and %d GET", r.puts, r.gets) }

// network is a process's way to the store. It can be cut, and it counts the requests that reach the store.
type network struct {
	leasehold.Store
	put        func(key string, err error) // is told how each PUT has ended
	isCut      atomic.Bool
	gets, puts atomic.Int64
}

func (n *network) cut(cut bool) { n.isCut.Store(cut) }

// counted begins to count. The result returns the requests since then.
func (n *network) counted() func() requests {
	gets, puts := n.gets.Load(), n.puts.Load()
	return func() requests { return requests{n.gets.Load() - gets, n.puts.Load() - puts} }
}

// send counts a request. On a cut network it waits, as a request does when its packets are dropped.
func (n *network) send(ctx context.Context, count *atomic.Int64) error {
	if n.isCut.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	count.Add(1)
	return nil
}

func (n *network) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := n.send(ctx, &n.gets); err != nil {
		return leasehold.Object{}, err
	}
	return n.Store.Get(ctx, key)
}

func (n *network) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if err := n.send(ctx, &n.puts); err != nil {
		return "", err
	}
	etag, err := n.Store.PutIfNoneMatch(ctx, key, body)
	n.put(key, err)
	return etag, err
}

func (n *network) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := n.send(ctx, &n.puts); err != nil {
		return "", err
	}
	etag, err := n.Store.PutIfMatch(ctx, key, body, etag)
	n.put(key, err)
	return etag, err
}
