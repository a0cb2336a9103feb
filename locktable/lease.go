package locktable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// Lease is the right to act under the locks of one request, until the lease is released or the
// member's term ends. It is safe for concurrent use. A lease is also released when both the Lease
// and its context have become unreachable.
type Lease struct {
	r      *request
	outer  *Lease          // under which this one was asked for, or runs its function; nil if under none
	parent context.Context // of ctx
	// Has the Lease as a value, so that either keeps both reachable. Nil until Context is called.
	// The table's mutex guards it.
	ctx context.Context
}

// leaseKey is the key under which the context of a lease of this table has the Lease.
type leaseKey struct{ t *Table }

// under is the context of a function that runs under this lease, and under the leases to which ctx
// belongs.
func (le *Lease) under(ctx context.Context) context.Context {
	around, _ := ctx.Value(leaseKey{le.r.t}).(*Lease)
	for o := around; o != nil; o = o.outer {
		if o.r == le.r { // counted once
			return ctx
		}
	}
	return context.WithValue(ctx, leaseKey{le.r.t}, &Lease{r: le.r, outer: cmp.Or(around, le.outer)})
}

// keepsOut names a lock of which a lease and its outer leases together hold too much for these
// claims; "" if there is none.
func (le *Lease) keepsOut(claims []tables.Claim) string {
	le.r.t.mu.Lock()
	defer le.r.t.mu.Unlock()
	for _, c := range claims {
		slots := c.Slots
		for o := le; o != nil; o = o.outer {
			i := slices.IndexFunc(o.r.claims, func(mine tables.Claim) bool { return mine.Name == c.Name })
			if i < 0 || o.r.state != held || c.Shared && o.r.claims[i].Shared {
				continue
			}
			if slots += o.r.claims[i].Slots; c.Of == 0 || slots > c.Of {
				return c.Name
			}
		}
	}
	return ""
}

// Token returns the fencing token: the revision of the table that has granted the lease. It is
// higher than the token of every earlier lease that excludes this one.
func (le *Lease) Token() uint64 { return le.r.token }

// Locks returns the names of the lease's locks, sorted.
func (le *Lease) Locks() []string { return names(le.r.claims) }

// Context returns a context that ends before another request that these locks exclude can be
// granted, unless this process is paused at that moment. Its context.Cause then matches
// [leasehold.ErrLost] or [leasehold.ErrReleased]. Under [Lock.Do] it may also be the cause of ctx,
// and while a function runs under the lease, the cause of the ctx of [Table.Run].
func (le *Lease) Context() context.Context {
	r, t := le.r, le.r.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if le.ctx == nil {
		ctx, cancel := context.WithCancelCause(le.parent)
		if r.cause != nil {
			cancel(r.cause)
		}
		r.cancel = cancel
		le.ctx = context.WithValue(ctx, leaseKey{t}, le)
	}
	return le.ctx
}

// Valid reports whether the holder may act now. It sends no request, and reads all clocks: see
// [leasehold.Lease.Valid]. Once false it stays false.
func (le *Lease) Valid() bool {
	r := le.r
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	return r.state == held && r.term.lease.Valid()
}

// Deadline returns the time until which the lease is valid unless the term of its member is
// renewed: see [leasehold.Lease.Deadline]. Once the lease has ended, Deadline is no later than that
// end.
func (le *Lease) Deadline() time.Time {
	le.r.t.mu.Lock()
	term, ended := le.r.term, le.r.ended
	le.r.t.mu.Unlock()
	end := term.lease.Deadline()
	if was := time.UnixMicro(ended); ended != 0 && was.Before(end) {
		return was
	}
	return end
}

// Wanted returns a channel that is closed when this process sees that a request waits for a lock of
// this lease, or when the lease ends. From the first call on, the member reads the table once per
// poll interval.
func (le *Lease) Wanted() <-chan struct{} {
	r := le.r
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	if r.wanted == nil {
		r.wanted = make(chan struct{})
		if r.state == over {
			close(r.wanted)
			return r.wanted
		}
		r.t.listened++
		r.t.ring()
	}
	return r.wanted
}

// Release ends the lease and hands its locks over: it ends the context first, then removes the
// entries from the table. It returns when the table is written. If ctx ends first, it returns ctx's
// error, and the table continues to release the lease. Releasing twice does no harm. If the lease
// was lost, the error matches [leasehold.ErrLost]. If the member ends and cannot write that it
// leaves, the error says so. Other members then get the locks once the member's own lock is
// released, which [Table.Run] does next.
func (le *Lease) Release(ctx context.Context) error {
	r, t := le.r, le.r.t
	t.mu.Lock()
	if r.state == held {
		t.free(r, leasehold.ErrReleased)
	}
	if r.state == over {
		defer t.mu.Unlock()
		return r.err
	}
	if r.done == nil {
		r.done = make(chan struct{})
	}
	done := r.done
	t.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return t.named(fmt.Errorf("releasing: %w", ended(ctx)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.err
}

// Do runs fn under the lease on this goroutine, then releases the lease. The context of fn descends
// from ctx, and ends early if the lease is lost, or if the ctx of [Table.Run] ends. fn must then
// return, because another process may soon hold the locks. The lease is not released before fn has
// returned, unless you call Release yourself. If fn panics, Do releases the lease and re-panics. Do
// waits for 30 s at most until the release is written. Then it returns an error that matches
// [context.DeadlineExceeded], and the table continues to release the lease.
//
// Do returns fn's error unchanged if nothing else went wrong. If the lease was lost while fn ran,
// the error matches [leasehold.ErrLost] and fn's error. Do refuses a lease that has ended, or on
// which Do was called before. It then returns an error without calling fn.
func (le *Lease) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	caller := ctx
	ctx, cancel := context.WithCancelCause(le.under(ctx))
	defer cancel(nil)
	leased := le.Context()
	defer context.AfterFunc(leased, func() { cancel(context.Cause(leased)) })()
	return le.do(ctx, caller, fn)
}

// parting bounds how long Do waits for its release to be written. A table that is damaged cannot be
// written until a person has repaired it.
const parting = 30 * time.Second

func (le *Lease) do(ctx, caller context.Context, fn func(context.Context, *Lease) error) (err error) {
	r, t := le.r, le.r.t
	if err := r.startFunction(); err != nil {
		return t.named(err)
	}
	defer func() { // even if fn panics
		t.mu.Lock()
		r.runs = returned
		r.term.functions--
		if r.state == held { // before the committer can see that nothing runs any more
			t.free(r, leasehold.ErrReleased)
		}
		t.ring()
		t.mu.Unlock()
		lasting, cancel := context.WithTimeout(context.WithoutCancel(caller), parting)
		defer cancel()
		wrong := le.Release(lasting)
		if wrong != nil && err != nil {
			wrong = errors.Join(wrong, err)
		}
		err = cmp.Or(wrong, err)
	}()
	return fn(ctx, le)
}

// startFunction notes that a function runs under the lease. It refuses a second one.
func (r *request) startFunction() error {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	switch {
	case r.runs != noFunction:
		return fmt.Errorf("the lease (token %d) has its function already, from another call of Do", r.token)
	case r.state == over && r.err != nil:
		return r.err
	case r.state != held:
		return fmt.Errorf("%w (token %d)", leasehold.ErrReleased, r.token)
	case !r.term.lease.Valid():
		return fmt.Errorf("%w (token %d): its member's term has ended", leasehold.ErrLost, r.token)
	}
	r.runs = running
	r.term.functions++
	return nil
}
