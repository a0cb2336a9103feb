package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/stage"
	"github.com/leasehold-go/leasehold/locktable"
)

const slots = 3 // of the semaphore

// demo runs the members, and counts what they do.
type demo struct {
	*stage.Stage
	store leasehold.Store
	ttl   time.Duration
	key   string // of the table
	locks int
	takes time.Duration // a request, besides what the store needs

	mu      sync.Mutex // guards what follows
	members []*member
	leases  int // of locks
	ran     int // functions under the semaphore that have ended
	using   int // functions under the semaphore that run
	most    int // the most of them at once
}

// member is one process; here it is a table and the functions under its locks.
type member struct {
	name    string
	table   *locktable.Table
	network *stage.Network
	ctx     context.Context // ends when it is told to stop
	stop    func()          // gracefully; waits until it has stopped
	running sync.WaitGroup  // functions, and those that wait
	wasCut  atomic.Bool
	holds   int // functions of locks that run; guarded by demo.mu
}

// start starts a member.
func (d *demo) start(ctx context.Context, name string) (*member, error) {
	m := &member{name: name, network: stage.NewNetwork(d.store, d.takes, d.key)}
	var err error
	m.table, err = locktable.New(m.network, d.key, locktable.WithMemberName(name), locktable.WithTTL(d.ttl),
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
	d.Fail(fmt.Errorf("%s: %w", m.name, err))
}

// cut cuts a member off from the store, or connects it again.
func (m *member) cut(cut bool) {
	m.wasCut.Store(true)
	m.network.Cut(cut)
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
				func(ctx context.Context, _ *locktable.Lease) error {
					d.count(func() { d.leases, m.holds = d.leases+1, m.holds+1 })
					<-ctx.Done() // a service works here, and returns soon after ctx is done
					d.count(func() { m.holds-- })
					return nil
				}))
		})
	}
}

// wantSlot makes a member wait for a slot of the semaphore, and run a function under it.
func (d *demo) wantSlot(m *member) {
	m.running.Go(func() {
		d.note(m, m.table.Semaphore("semaphore", slots).Do(m.ctx,
			func(ctx context.Context, _ *locktable.Lease) error {
				d.count(func() { d.using, d.most = d.using+1, max(d.most, d.using+1) })
				select {
				case <-time.After(d.ttl / 10):
				case <-ctx.Done():
				}
				d.count(func() { d.using, d.ran = d.using-1, d.ran+1 })
				return nil
			}))
	})
}

// count runs f under d.mu.
func (d *demo) count(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
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
	return d.Await(ctx, d.ttl/1000, otherwise, func(context.Context) (ok bool, _ error) {
		d.count(func() { ok = that() })
		return ok, nil
	})
}

// awaitTable waits until the table is as wanted, as m reads it.
func (d *demo) awaitTable(ctx context.Context, m *member,
	as func(locktable.State) bool) (state locktable.State, err error) {
	err = d.Await(ctx, d.ttl/20, "the table is not as it should be", func(ctx context.Context) (bool, error) {
		state, err = m.table.Inspect(ctx)
		return err == nil && as(state), err
	})
	return state, err
}
