package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/locktable"
)

const slots = 3 // of the semaphore

// demo runs the members, and checks what they do.
type demo struct {
	out    io.Writer
	store  leasehold.Store
	ttl    time.Duration
	key    string        // of the table
	takes  time.Duration // a request, besides what the store needs
	began  time.Time
	failed chan error // of members and functions that have given up

	mu        sync.Mutex // guards what follows, and out
	members   []*member
	last      []holder // the last one of each lock
	leases    int      // of locks
	followers int      // leases of locks that followed another
	slots     []*locktable.Lease
	ran       int // functions under the semaphore that have ended
	most      int // slots in use at once
	wrong     []error
}

// holder is one lease of one lock.
type holder struct {
	member string
	lease  *locktable.Lease
}

// member is one process; here it is a table and the functions under its locks.
type member struct {
	name    string
	table   *locktable.Table
	network *network
	ctx     context.Context // ends when it is told to stop
	stop    func()          // gracefully; waits until it has stopped
	running sync.WaitGroup  // functions, and those that wait
	wasCut  atomic.Bool
	holds   int // functions of locks that run; guarded by demo.mu
}

func newDemo(out io.Writer, store leasehold.Store, ttl time.Duration, key string, locks int,
	takes time.Duration) *demo {
	return &demo{
		out: out, store: store, ttl: ttl, key: key, takes: takes, began: time.Now(),
		failed: make(chan error, 1), last: make([]holder, locks),
	}
}

// print prints a line of the timeline.
func (d *demo) print(name, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "%7.3fs  %-4s %s\n", time.Since(d.began).Seconds(), name, fmt.Sprintf(format, args...))
}

func (d *demo) ttls(t time.Duration) float64 { return t.Seconds() / d.ttl.Seconds() }

// start starts a member.
func (d *demo) start(ctx context.Context, name string) (*member, error) {
	m := &member{name: name, network: &network{Store: d.store, table: d.key, takes: d.takes}}
	var err error
	m.table, err = locktable.New(m.network, d.key, locktable.WithMember(name), locktable.WithTTL(d.ttl),
		// The timeline tells what happens. Keep the log in a program of your own.
		locktable.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	m.ctx = ctx
	m.running.Go(func() { d.note(m, m.table.Run(ctx)) })
	m.stop = func() {
		cancel()
		m.running.Wait()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.members = append(d.members, m)
	return m, nil
}

// stopAll stops all members at once, and waits until they have stopped.
func (d *demo) stopAll() {
	d.mu.Lock()
	members := slices.Clone(d.members)
	d.mu.Unlock()
	var stopping sync.WaitGroup
	for _, m := range members {
		stopping.Go(m.stop)
	}
	stopping.Wait()
}

// note notes an error that nobody expects.
func (d *demo) note(m *member, err error) {
	if err == nil || m.ctx.Err() != nil || m.wasCut.Load() && errors.Is(err, leasehold.ErrLost) {
		return
	}
	select {
	case d.failed <- fmt.Errorf("%s: %w", m.name, err):
	default: // one is enough
	}
}

// want makes a member wait for the locks from one number to another, and run a function under each.
// It is all that a service needs.
func (d *demo) want(m *member, from, to int) {
	start := make(chan struct{})
	defer close(start) // all ask at once
	for i := from; i < to; i++ {
		m.running.Go(func() {
			<-start
			d.note(m, m.table.Lock(fmt.Sprintf("lock-%05d", i)).Do(m.ctx,
				func(ctx context.Context, lease *locktable.Lease) error {
					d.begin(m, i, lease)
					defer d.end(m)
					<-ctx.Done() // a service works here, and returns soon after ctx is done
					return nil
				}))
		})
	}
}

// begin notes that a member holds lock i, and checks that the last lease of the lock is over.
func (d *demo) begin(m *member, i int, lease *locktable.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.holds++
	last := d.last[i]
	two := last.lease != nil && (last.lease.Valid() || last.lease.Context().Err() == nil)
	if !lease.Valid() {
		return // it was lost before its function began, and others may have come since
	}
	d.leases++
	if last.lease != nil {
		d.followers++
		if two {
			d.wrong = append(d.wrong, fmt.Errorf("lock %d: %s holds it while the lease of %s goes on", i,
				m.name, last.member))
		}
		if lease.Token() <= last.lease.Token() {
			d.wrong = append(d.wrong, fmt.Errorf("lock %d: token %d follows %d", i, lease.Token(), last.lease.Token()))
		}
	}
	d.last[i] = holder{m.name, lease}
}

func (d *demo) end(m *member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.holds--
}

// wantSlot makes a member wait for a slot of the semaphore, and run a function under it.
func (d *demo) wantSlot(m *member) {
	m.running.Go(func() {
		d.note(m, m.table.Semaphore("semaphore", slots).Do(m.ctx,
			func(ctx context.Context, lease *locktable.Lease) error {
				d.beginSlot(lease)
				select {
				case <-time.After(d.ttl / 10):
				case <-ctx.Done():
				}
				d.mu.Lock()
				defer d.mu.Unlock()
				d.ran++
				return nil
			}))
	})
}

// beginSlot checks that no more slots are in use than there are.
func (d *demo) beginSlot(lease *locktable.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slots = slices.DeleteFunc(d.slots, func(l *locktable.Lease) bool { return !l.Valid() })
	if !lease.Valid() {
		return
	}
	d.slots = append(d.slots, lease)
	d.most = max(d.most, len(d.slots))
	if len(d.slots) > slots {
		d.wrong = append(d.wrong, fmt.Errorf("%d valid leases of %d slots", len(d.slots), slots))
	}
}

func (d *demo) mostSlots() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

// holds is how many locks a member is to hold.
type holds struct {
	m     *member
	locks int
}

// await waits until each member holds so many locks.
func (d *demo) await(ctx context.Context, want ...holds) error {
	var what []string
	for _, w := range want {
		what = append(what, fmt.Sprintf("%s does not hold %d locks", w.m.name, w.locks))
	}
	return d.awaitThat(ctx, strings.Join(what, ", or "), func() bool {
		return !slices.ContainsFunc(want, func(w holds) bool { return w.m.holds != w.locks })
	})
}

// awaitThat waits until that is true, which is called under d.mu.
func (d *demo) awaitThat(ctx context.Context, otherwise string, that func() bool) error {
	return d.poll(ctx, d.ttl/1000, otherwise, func(context.Context) (bool, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return that(), nil
	})
}

// awaitTable waits until the table is as wanted, as m reads it.
func (d *demo) awaitTable(ctx context.Context, m *member,
	as func(locktable.State) bool) (state locktable.State, err error) {
	return state, d.poll(ctx, d.ttl/20, "the table is not as it should be", func(ctx context.Context) (bool, error) {
		state, err = m.table.Inspect(ctx)
		return err == nil && as(state), err
	})
}

func (d *demo) poll(ctx context.Context, every time.Duration, otherwise string,
	done func(context.Context) (bool, error)) error {
	limit := 30*time.Second + 5*d.ttl
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s within %v", otherwise, limit))
	defer cancel()
	tick := time.NewTicker(max(every, 1))
	defer tick.Stop()
	for {
		if ok, err := done(ctx); ok || err != nil {
			return err
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

// report prints what the checks have found. It returns an error if two held one lock at once, or a
// token did not rise.
func (d *demo) report() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "\n%d leases of %d locks, of which %d followed another, and %d leases of the semaphore.\n",
		d.leases, len(d.last), d.followers, d.ran)
	fmt.Fprintf(d.out, "Two valid leases of one lock, a token that did not rise, or more than %d slots in use: %d "+
		"times.\n",
		slots, len(d.wrong))
	return errors.Join(d.wrong[:min(len(d.wrong), 10)]...)
}

// requests are those that have reached the store.
type requests struct{ puts, gets, deletes, writes int64 } // writes are the PUTs of the table

func (r requests) String() string {
	if r.deletes > 0 {
		return fmt.Sprintf("%d PUT, %d GET and %d DELETE", r.puts, r.gets, r.deletes)
	}
	return fmt.Sprintf("%d PUT and %d GET", r.puts, r.gets)
}

// network is a member's way to the store. It can be cut, and it counts the requests that reach the
// store.
type network struct {
	leasehold.Store
	table                       string // its key
	takes                       time.Duration
	isCut                       atomic.Bool
	puts, gets, deletes, writes atomic.Int64
}

// Describe passes on what the store reports about itself.
func (n *network) Describe() leasehold.StoreInfo { return leasehold.Describe(n.Store) }

// cut cuts a member off from the store, or connects it again.
func (m *member) cut(cut bool) {
	m.wasCut.Store(true)
	m.network.isCut.Store(cut)
}

// counted begins to count. The result returns the requests since then.
func (n *network) counted() func() requests {
	now := func() requests { return requests{n.puts.Load(), n.gets.Load(), n.deletes.Load(), n.writes.Load()} }
	was := now()
	return func() requests {
		is := now()
		return requests{is.puts - was.puts, is.gets - was.gets, is.deletes - was.deletes, is.writes - was.writes}
	}
}

// send counts a request. On a cut network it waits, as a request does when its packets are dropped.
func (n *network) send(ctx context.Context, count *atomic.Int64) error {
	if n.isCut.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	count.Add(1)
	time.Sleep(n.takes)
	return nil
}

func (n *network) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := n.send(ctx, &n.gets); err != nil {
		return leasehold.Object{}, err
	}
	return n.Store.Get(ctx, key)
}

func (n *network) put(ctx context.Context, key string) error {
	if err := n.send(ctx, &n.puts); err != nil {
		return err
	}
	if key == n.table {
		n.writes.Add(1)
	}
	return nil
}

func (n *network) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if err := n.put(ctx, key); err != nil {
		return "", err
	}
	return n.Store.PutIfNoneMatch(ctx, key, body)
}

func (n *network) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := n.put(ctx, key); err != nil {
		return "", err
	}
	return n.Store.PutIfMatch(ctx, key, body, etag)
}

func (n *network) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if err := n.send(ctx, &n.deletes); err != nil {
		return err
	}
	return n.Store.DeleteIfMatch(ctx, key, etag)
}
