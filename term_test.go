package leasehold

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/bell"
	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
)

// A term remembers writes of unknown outcome until a later one is known to have landed, and no
// longer.
func TestUnconfirmedWritesAreSettledByTheNextThatLands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mute{Store: NewMemStore()}
		l, err := NewLock(store, "k", WithLogger(slog.New(slog.DiscardHandler)), WithManualRenewal())
		require.NoError(t, err)
		lease, err := l.TryAcquire(t.Context())
		require.NoError(t, err)
		for range 100 {
			time.Sleep(time.Second)
			store.on = true
			once, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			require.Error(t, lease.Renew(once))
			require.Len(t, lease.t.unconfirmed, 1)
			cancel()
			store.on = false
			require.NoError(t, lease.Renew(t.Context()))
			require.Empty(t, lease.t.unconfirmed)
		}
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A goroutine that has read the clocks before Abandon may only afterwards say that the lease has
// run out.
func TestAnAbandonedLeaseThatRunsOutKeepsOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLock(NewMemStore(), "k", WithLogger(slog.New(slog.DiscardHandler)), WithManualRenewal())
		require.NoError(t, err)
		lease, err := l.TryAcquire(t.Context())
		require.NoError(t, err)
		time.Sleep(12*time.Second - 1)
		lease.Abandon()
		lease.t.lose(errRanOut)
		require.Equal(t, 3300*time.Millisecond+1, lease.t.blocks())
		time.Sleep(time.Second)
		_ = lease.t.replaced(errTakenOver) // as a renewal that was under way finds out
		require.Equal(t, 2300*time.Millisecond+1, lease.t.blocks())
	})
}

// The timer for the next look at the clocks may fire just as another goroutine finds the lease
// lost.
func TestAnOverrunIsReportedOnceTheSafetyMarginIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var overruns atomic.Int64
		l, err := NewLock(NewMemStore(), "k", WithLogger(slog.New(slog.DiscardHandler)),
			WithObserver(func(_ context.Context, e Event) {
				if e.Kind == EventOverrun {
					overruns.Add(1)
				}
			}))
		require.NoError(t, err)
		require.ErrorIs(t, l.Do(t.Context(), func(_ context.Context, lease *Lease) error {
			lease.t.lose(errBroken)
			lease.t.check()
			time.Sleep(3*time.Second - 1)
			require.Zero(t, overruns.Load())
			time.Sleep(2 * time.Nanosecond)
			require.EqualValues(t, 1, overruns.Load())
			return nil
		}), ErrLost)
	})
}

// A program may keep a Lock, its lease and what observes it in one struct. All of it is collected.
func TestALeaseThatItsObserverRefersToIsCollected(t *testing.T) {
	type job struct {
		lock  *Lock
		lease *Lease
		last  Event
	}
	gone := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context()) // lives on
	defer cancel()
	func() {
		j := new(job)
		runtime.AddCleanup(j, func(struct{}) { close(gone) }, struct{}{})
		var err error
		j.lock, err = NewLock(NewMemStore(), "k", WithLogger(slog.New(slog.DiscardHandler)),
			WithObserver(func(_ context.Context, e Event) {
				j.last = e
			}))
		require.NoError(t, err)
		j.lease, err = j.lock.TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, j.lease.Release(t.Context()))
		require.NoError(t, j.lock.Do(ctx, func(context.Context, *Lease) error { return nil }))
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}, 10*time.Second, 10*time.Millisecond)
}

// A Lock, which may live as long as its process, keeps nothing of the contexts of its former terms.
func TestALockKeepsNothingOfALastContext(t *testing.T) {
	type value struct{ _ [64]byte }
	type valueKey struct{}
	opts := []Option{WithLogger(slog.New(slog.DiscardHandler))}
	for name, use := range map[string]func(ctx context.Context, t *testing.T, l *Lock){
		"released": func(ctx context.Context, t *testing.T, l *Lock) {
			lease, err := l.Acquire(ctx)
			require.NoError(t, err)
			require.NoError(t, lease.Release(ctx))
		},
		"abandoned": func(ctx context.Context, t *testing.T, l *Lock) {
			lease, err := l.TryAcquire(ctx)
			require.NoError(t, err)
			lease.Abandon()
		},
		"broken": func(ctx context.Context, t *testing.T, l *Lock) {
			lease, err := l.TryAcquire(ctx)
			require.NoError(t, err)
			require.NoError(t, l.Break(ctx, 1))
			require.ErrorIs(t, lease.Renew(ctx), ErrLost)
		},
		"dropped": func(ctx context.Context, t *testing.T, l *Lock) {
			_, err := l.TryAcquire(ctx)
			require.NoError(t, err)
		},
		"Do": func(ctx context.Context, t *testing.T, l *Lock) {
			require.NoError(t, l.Do(ctx, func(context.Context, *Lease) error { return nil }))
		},
		"Run": func(ctx context.Context, t *testing.T, l *Lock) {
			e, err := NewElector(l, Callbacks{})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			require.NoError(t, e.Run(ctx))
		},
		"held by another": func(ctx context.Context, t *testing.T, l *Lock) {
			other, err := NewLock(l.store, l.key, opts...)
			require.NoError(t, err)
			lease, err := other.TryAcquire(t.Context())
			require.NoError(t, err)
			_, err = l.TryAcquire(ctx)
			require.ErrorIs(t, err, ErrHeld)
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, err = l.Acquire(ctx)
			require.ErrorIs(t, err, ErrHeld)
			require.NoError(t, lease.Release(t.Context()))
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			l, err := NewLock(NewMemStore(), "k", opts...)
			require.NoError(t, err)
			kept := func() weak.Pointer[value] {
				v := new(value)
				use(context.WithValue(t.Context(), valueKey{}, v), t, l)
				return weak.Make(v)
			}()
			for range 60 { // a dropped lease runs out first
				runtime.GC()
				time.Sleep(time.Second)
			}
			runtime.GC()
			require.Nil(t, kept.Value())
			runtime.KeepAlive(l)
		})
	}
}

// A lock that was acquired under the lease of another, and released, keeps that lease no longer
// renewed.
func TestALockDoesNotKeepALeaseItWasAcquiredUnder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks [2]*Lock
		for i := range locks {
			var err error
			locks[i], err = NewLock(NewMemStore(), "k", WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
		}
		func() {
			outer, err := locks[0].TryAcquire(t.Context())
			require.NoError(t, err)
			inner, err := locks[1].TryAcquire(outer.Context())
			require.NoError(t, err)
			require.NoError(t, inner.Release(t.Context()))
		}()
		for range 60 {
			runtime.GC()
			time.Sleep(time.Second)
		}
		lease, err := locks[0].TryAcquire(t.Context())
		require.NoError(t, err, "it was dropped, and ran out")
		require.NoError(t, lease.Release(t.Context()))
		runtime.KeepAlive(locks)
	})
}

func TestATermIsLostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLock(NewMemStore(), "k", WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		lease, err := l.TryAcquire(t.Context())
		require.NoError(t, err)
		first := lease.t.replaced(errBroken)
		require.Equal(t, first, lease.t.replaced(errDeleted))
		require.False(t, lease.Valid())
		require.ErrorIs(t, lease.Release(t.Context()), errBroken)
	})
}

func TestNobodyStaysListedAsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		const key = "locks/nobody-waits"
		listed := func() int {
			synctest.Wait()
			return bell.Free(bell.PlaceOf(store, key))
		}
		l, err := NewLock(store, key, WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		ctx := testctx.Within(t, time.Second)
		held, err := l.Acquire(ctx)
		require.NoError(t, err)
		for range 3 {
			go func() {
				_, err := l.Acquire(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}()
		}
		for range l.Watch(ctx) {
			require.Equal(t, 4, listed())
			break
		}
		require.Equal(t, 3, listed())
		<-ctx.Done()
		require.Zero(t, listed())
		require.NoError(t, held.Release(t.Context()))
	})
}

// What a refused write finds decides whether the term goes on, is lost, or has ended as it should.
func TestWhatARefusedWriteFinds(t *testing.T) {
	l, err := NewLock(NewMemStore(), "k", WithHolder("me"))
	require.NoError(t, err)
	secret := handle.NewSecret()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	renewal := func(nonce string, at time.Time) Record {
		return Record{
			Token: 7, Holder: "me", TermID: handle.TermID("k", secret), Nonce: nonce, TTL: l.ttl,
			RenewedAt: at, ExpiresAt: at.Add(l.ttl),
		}
	}
	released := func(r Record) Record { markReleased(&r); return r }
	other := func(r Record, edit func(*Record)) Record { edit(&r); return r }
	before, stored := renewal("earlier", now), renewal("stored", now.Add(time.Second))
	sent := renewal("sent", now.Add(2*time.Second))
	gone := released(renewal("gone", now.Add(2*time.Second))) // an earlier release of unknown outcome
	theirs := other(sent, func(r *Record) { r.Token, r.TermID, r.Nonce, r.Holder = 8, "theirs", "theirs", "they" })
	resumed := other(sent, func(r *Record) { r.Holder, r.Nonce, r.RenewedAt = "heir", "heir", now.Add(3*time.Second) })
	for name, c := range map[string]struct {
		rec     Record
		sent    []Record
		offered bool
		want    finding
	}{
		"the write itself":                        {sent, []Record{sent}, false, foundOwn},
		"an earlier one":                          {gone, []Record{gone, sent}, false, foundOwn},
		"the last that was confirmed":             {stored, []Record{sent}, false, foundStored},
		"one before it":                           {before, []Record{sent}, false, foundEarlier},
		"another's term":                          {theirs, []Record{sent}, false, foundOther},
		"the same, after a release":               {theirs, []Record{gone, sent}, false, foundFollower},
		"the same, but this is the first release": {theirs, []Record{gone}, false, foundOther},
		"the same, after an offer":                {theirs, []Record{sent}, true, foundFollower},
		"this term, renewed by its heir":          {resumed, []Record{sent}, false, foundResumed},
		"this term, released by its heir":         {released(resumed), []Record{sent}, false, foundResumed},
		"what Break writes": {
			released(other(stored, func(r *Record) { r.Nonce = "broken" })),
			[]Record{sent}, false, foundBroken,
		},
		"another object's": {
			other(theirs, func(r *Record) { r.ObjectID = "another" }),
			[]Record{sent}, false, foundOther,
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := &term{
				lock: l.register, token: 7, secret: secret, stored: &version{rec: stored}, earlier: [2]Record{before},
				offered: c.offered,
			}
			for _, r := range c.sent {
				is.unconfirmed = append(is.unconfirmed, write{rec: r})
			}
			last := c.sent[len(c.sent)-1].Nonce
			what, own := is.finds(c.rec, last)
			require.Equal(t, c.want, what)
			if what == foundOwn {
				require.Equal(t, c.rec, own.rec)
			}
		})
	}
}
