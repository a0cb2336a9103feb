package locktable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// Lock is a lock of a [Table], or several locks that one request asks for together. A Lock has no
// state and is safe for concurrent use.
type Lock struct {
	t      *Table
	claims []tables.Claim
	err    error
}

// Lock returns the exclusive lock of this name: one request holds it at a time.
func (t *Table) Lock(name string) *Lock { return t.claim(tables.Claim{Name: name}) }

// Shared returns the shared lock of this name: any number of requests hold it shared, or one
// request holds it by [Table.Lock].
func (t *Table) Shared(name string) *Lock { return t.claim(tables.Claim{Name: name, Shared: true}) }

// Semaphore returns one slot of a semaphore with this number of slots. [Lock.Slots] asks for
// several slots at once. Each request counts by its own number of slots, so a new release of a
// program may use another number while the old release runs. While a request with a lower number
// waits, the requests behind it get no more slots than that number. If the name is in use as a lock
// without slots, the error matches [ErrCapacity], and the other way round.
func (t *Table) Semaphore(name string, slots int) *Lock {
	if slots < 1 {
		return &Lock{t: t, err: fmt.Errorf("semaphore %.80q has %d slots: use at least 1", name, slots)}
	}
	return t.claim(tables.Claim{Name: name, Slots: 1, Of: slots})
}

// Slots returns n slots, at once, of a semaphore that [Table.Semaphore] has returned.
func (l *Lock) Slots(n int) *Lock {
	if l.err != nil || len(l.claims) != 1 || l.claims[0].Of == 0 {
		return &Lock{t: l.t, err: cmp.Or(l.err, errors.New("Slots: this is no semaphore: use Table.Semaphore"))}
	}
	c := l.claims[0]
	c.Slots = n
	return l.t.claim(c)
}

// All returns a Lock for several locks at once: a request gets all of them or none. The order does
// not matter.
func (t *Table) All(locks ...*Lock) *Lock {
	all := &Lock{t: t}
	for _, l := range locks {
		switch {
		case l == nil:
			all.err = cmp.Or(all.err, errors.New("All: a Lock is nil"))
		case l.t != t:
			all.err = cmp.Or(all.err, errors.New("All: a Lock belongs to another Table"))
		default:
			all.claims, all.err = append(all.claims, l.claims...), cmp.Or(all.err, l.err)
		}
	}
	slices.SortStableFunc(all.claims, func(a, b tables.Claim) int { return strings.Compare(a.Name, b.Name) })
	all.err = cmp.Or(all.err, tables.CheckClaims(all.claims))
	return all
}

func (t *Table) claim(c tables.Claim) *Lock {
	return &Lock{t: t, claims: []tables.Claim{c}, err: tables.CheckClaims([]tables.Claim{c})}
}

// names are the names of the locks that are claimed.
func names(claims []tables.Claim) []string {
	names := make([]string, len(claims))
	for i, c := range claims {
		names[i] = c.Name
	}
	return names
}

// HeldError names the members that hold a lock or wait in front. It matches [leasehold.ErrHeld].
type HeldError struct {
	Table string   // the table's key
	Locks []string // that were asked for
	By    []Member // that hold them or wait in front, as the table names them; their objects were not read
}

// Error names the locks and the members.
func (e *HeldError) Error() string {
	names := make([]string, len(e.By))
	for i, m := range e.By {
		names[i] = m.Name
	}
	return fmt.Sprintf("%v: %s of table %q, by %s", leasehold.ErrHeld, list(e.Locks), e.Table, list(names))
}

// Unwrap returns [leasehold.ErrHeld].
func (e *HeldError) Unwrap() error { return leasehold.ErrHeld }

// list is the names for people to read, or some of them if there are many.
func list(names []string) string {
	const most = 5
	var quoted []string
	for _, name := range names[:min(len(names), most)] {
		quoted = append(quoted, fmt.Sprintf("%.80q", name))
	}
	if more := len(names) - most; more > 0 {
		quoted = append(quoted, fmt.Sprintf("%d more", more))
	}
	return strings.Join(quoted, ", ")
}

// TryAcquire returns a lease if the locks can be granted now, and does not wait for running
// members. If running members hold a lock, or wait in front, the error matches [leasehold.ErrHeld]
// and is a [*HeldError]. Other errors match [ErrNotRunning], [ErrNoTerm], [ErrFull], [ErrCapacity],
// [leasehold.ErrCorruptRecord] or ctx's error. ctx bounds the call, not the lease: the lease's
// context has the values of ctx, but neither its deadline nor its cancellation.
//
// TryAcquire does wait for the locks of members that seem to have crashed, so that a program that
// tries once, in a new process each time, gets those locks. It first reads the objects of the
// members in front. If a member has not renewed its lock within its TTL, by that member's own
// clock, TryAcquire waits in line and watches the member. It gets the lock when the member's term
// has ended, a TTL later at most, or fails as soon as the member renews. Wrong clocks can delay one
// of these answers, but never decide which member has a lock. While the first term of [Table.Run]
// has not begun, TryAcquire waits for it, for a TTL at most. It waits with [ErrFull] and
// [ErrCapacity] as Acquire does.
func (l *Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	return l.acquire(ctx, context.WithoutCancel(ctx), true)
}

// Acquire waits in line until it has the locks, and returns their lease. If ctx ends first, the
// error matches ctx's error, and [leasehold.ErrHeld] if a lock was held. If the member has no term,
// Acquire waits for the next term, and is then at the end of the line. The error matches
// [ErrNotRunning] if [Table.Run] has returned, or is not called within a second. It matches
// [ErrFull] or [ErrCapacity] if the request cannot be part of the table. Acquire then first watches
// the members that seem to have crashed, for two TTLs or poll intervals: when they are removed, the
// request may be possible. Acquire uses ctx as [Lock.TryAcquire] does.
func (l *Lock) Acquire(ctx context.Context) (*Lease, error) {
	return l.acquire(ctx, context.WithoutCancel(ctx), false)
}

// Do runs fn while it holds the locks: it waits as [Lock.Acquire] does, and runs fn as [Lease.Do]
// does, with the errors of both. fn's context descends from ctx.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	lease, err := l.acquire(ctx, ctx, false)
	if err != nil {
		return err
	}
	return lease.do(lease.Context(), ctx, fn)
}

// acquire asks for the locks, and waits. The lease's context descends from parent.
func (l *Lock) acquire(ctx, parent context.Context, try bool) (*Lease, error) {
	t := l.t
	if t == nil {
		return nil, errors.New("locktable: this Lock belongs to no Table: use Table.Lock")
	}
	if l.err != nil {
		return nil, t.named(l.err)
	}
	if err := ctx.Err(); err != nil {
		return nil, t.named(err)
	}
	if outer, _ := ctx.Value(leaseKey{t}).(*Lease); outer != nil {
		if name := outer.keepsOut(l.claims); name != "" {
			return nil, t.named(fmt.Errorf("%w: ctx belongs to a lease (token %d) that, with those around it, has too "+
				"much of %.80q, so the call would wait for itself: use that lease", leasehold.ErrHeld, outer.Token(),
				name))
		}
	}
	if err := t.awaitRun(ctx); err != nil {
		return nil, t.named(err)
	}
	r := &request{t: t, claims: l.claims, try: try, began: t.clock.Now().Mono}
	r.lease = &Lease{r: r, parent: parent}
	r.lease.outer, _ = parent.Value(leaseKey{t}).(*Lease)
	done := make(chan struct{})
	r.done = done
	if err := t.ask(r); err != nil {
		return nil, t.named(err)
	}
	if try { // the first term of Run begins in a moment, unless another process has the name
		defer t.clock.AfterFunc(t.ttl, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if r.state == waiting && t.term == nil {
				t.giveBack(r, t.named(ErrNoTerm))
			}
		}).Stop()
	}
	select {
	case <-done:
		t.mu.Lock()
		defer t.mu.Unlock()
		lease := r.lease
		r.lease = nil // the caller has it, and may forget it
		if lease == nil || r.state != held {
			return nil, cmp.Or(r.err, t.named(r.cause))
		}
		return lease, nil
	case <-ctx.Done():
		if blocked := t.giveUp(r); blocked != nil {
			return nil, t.named(fmt.Errorf("waiting: %w: %w", ended(ctx), blocked))
		}
		return nil, t.named(fmt.Errorf("waiting for %s: %w", list(names(l.claims)), ended(ctx)))
	}
}

// ended is why a context has ended: its error, and its cause if that says more.
func ended(ctx context.Context) error {
	if err, cause := ctx.Err(), context.Cause(ctx); !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return context.Cause(ctx)
}

// awaitRun waits a moment for Run, which is often called on another goroutine just before.
func (t *Table) awaitRun(ctx context.Context) error {
	t.mu.Lock()
	running, ended, began := t.running, t.ended, t.began
	t.mu.Unlock()
	switch {
	case running:
		return nil
	case ended:
		return ErrNotRunning
	}
	if err := clock.Wait(ctx, t.clock, time.Second, began); err != nil {
		return err
	}
	select {
	case <-began:
		return nil
	default:
		return ErrNotRunning
	}
}
