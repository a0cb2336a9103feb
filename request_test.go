package leasehold_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
)

// Limits in time at a long TTL: of an attempt, the first pause, the pause after a conflict, and the
// back-off, with their jitter.
const (
	anAttempt = 10 * time.Second
	aPause    = 1100 * time.Millisecond
	aConflict = 110 * time.Millisecond
	aBackoff  = 33 * time.Second
)

var aDay = leasehold.WithTTL(24 * time.Hour)

// took is how long f took in virtual time.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func TestARequestWithoutAnAnswerAtALongTTL(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store, aDay)
		store.down.Store(true)
		require.Equal(t, anAttempt, took(func() {
			_, err := lock.TryAcquire(t.Context())
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}))
		require.Equal(t, anAttempt, took(func() {
			_, err := lock.Inspect(t.Context())
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}))
		store.down.Store(false)
		store.next(fault{op: "get", delay: time.Hour})
		require.LessOrEqual(t, took(func() {
			lease, err := lock.Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}), anAttempt+aPause)
	})
}

func TestPausesAtALongTTL(t *testing.T) {
	passing := errors.New("503 Slow Down")
	for name, c := range map[string]struct {
		fault fault
		limit time.Duration
		run   func(t *testing.T, l *leasehold.Lock, next func())
	}{
		"503 at a read": {fault{op: "get", err: passing}, aPause, func(t *testing.T, l *leasehold.Lock, next func()) {
			next()
			_, err := l.Acquire(t.Context())
			require.NoError(t, err)
		}},
		"503 at a release": {fault{op: "put", err: passing}, aPause,
			func(t *testing.T, l *leasehold.Lock, next func()) {
				lease := acquire(t, l)
				next()
				require.NoError(t, lease.Release(t.Context()))
			}},
		"503 at a renewal": {fault{op: "put", err: passing}, aPause,
			func(t *testing.T, l *leasehold.Lock, next func()) {
				lease := acquire(t, l)
				next()
				require.NoError(t, lease.Renew(t.Context()))
			}},
		"409 at an acquisition": {fault{op: "put", err: leasehold.ErrConflict}, aConflict,
			func(t *testing.T, l *leasehold.Lock, next func()) {
				next()
				acquire(t, l)
			}},
		"409 at a release": {fault{op: "put", err: leasehold.ErrConflict}, aPause,
			func(t *testing.T, l *leasehold.Lock, next func()) {
				lease := acquire(t, l)
				next()
				require.NoError(t, lease.Release(t.Context()))
			}},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			lock := newLock(t, store, aDay)
			require.LessOrEqual(t, took(func() { c.run(t, lock, func() { store.next(c.fault) }) }), c.limit)
		})
	}
}

func TestAfterAnOutageOfAnHourAtALongTTL(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, l *leasehold.Lock,
		outage func(context.Context) context.Context){
		"Acquire": func(t *testing.T, l *leasehold.Lock, outage func(context.Context) context.Context) {
			_, err := l.Acquire(outage(t.Context()))
			require.NoError(t, err)
		},
		"Do": func(t *testing.T, l *leasehold.Lock, outage func(context.Context) context.Context) {
			require.NoError(t, l.Do(outage(t.Context()), func(context.Context, *leasehold.Lease) error { return nil }))
		},
		"Watch": func(t *testing.T, l *leasehold.Lock, outage func(context.Context) context.Context) {
			require.NoError(t, acquire(t, l).Release(t.Context()))
			for _, err := range l.Watch(outage(t.Context())) {
				if err == nil {
					break
				}
			}
		},
		"Renew": func(t *testing.T, l *leasehold.Lock, outage func(context.Context) context.Context) {
			lease := acquire(t, l)
			require.NoError(t, lease.Renew(outage(t.Context())))
		},
		"Release": func(t *testing.T, l *leasehold.Lock, outage func(context.Context) context.Context) {
			lease := acquire(t, l)
			require.NoError(t, lease.Release(outage(t.Context())))
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			var over time.Time
			run(t, newLock(t, store, aDay), func(ctx context.Context) context.Context {
				store.down.Store(true)
				over = time.Now().Add(time.Hour)
				time.AfterFunc(time.Hour, func() { store.down.Store(false) })
				return ctx
			})
			require.Positive(t, time.Since(over))
			require.LessOrEqual(t, time.Since(over), anAttempt+aBackoff)
		})
	}
}

// A renewal that is due during an outage follows soon after it.
func TestRenewalsAfterAnOutageAtALongTTL(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lease := acquire(t, newLock(t, store, aDay))
		store.down.Store(true)
		time.Sleep(10 * time.Hour)
		store.down.Store(false)
		over := time.Now()
		time.Sleep(anAttempt + aBackoff)
		require.False(t, lease.Record().RenewedAt.Before(over.Add(-anAttempt).Truncate(time.Microsecond)))
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestWakeEndsABackoff(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, l *leasehold.Lock) error{
		"Acquire": func(ctx context.Context, l *leasehold.Lock) error { _, err := l.Acquire(ctx); return err },
		"Run": func(ctx context.Context, l *leasehold.Lock) error {
			ctx, cancel := context.WithCancel(ctx)
			e, err := leasehold.NewElector(l, leasehold.Callbacks{OnStartedLeading: func(context.Context,
				*leasehold.Lease) {
				cancel()
			}})
			return errors.Join(err, e.Run(ctx))
		},
		"Watch": func(ctx context.Context, l *leasehold.Lock) error {
			for _, err := range l.Watch(ctx) {
				if err == nil {
					break
				}
			}
			return nil
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			require.NoError(t, acquire(t, newLock(t, store)).Release(t.Context()))
			store.next(slices.Repeat([]fault{{op: "get", err: errInjected}}, 10)...)
			lock := newLock(t, store)
			done := make(chan error, 1)
			go func() { done <- run(t.Context(), lock) }()
			time.Sleep(time.Minute)
			store.count()
			began := time.Now()
			for i := range 10 {
				synctest.Wait()
				if len(done) > 0 {
					break
				}
				require.Less(t, i, 9)
				lock.Wake()
			}
			require.NoError(t, <-done)
			require.Less(t, time.Since(began), time.Second, "without the pause")
		})
	}
}

// The answer of a write is lost and ctx ends: there is time to find out and to release.
func TestAnAcquisitionWithoutAnAnswerIsReleasedWithinAnAttempt(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store, aDay)
		require.NoError(t, acquire(t, lock).Release(t.Context())) // so that the next acquisition begins with its write
		store.next(fault{op: "put", apply: true, delay: time.Hour}, fault{op: "get", apply: true, delay: time.Second},
			fault{op: "put", apply: true, delay: time.Second})
		ctx := testctx.Within(t, time.Millisecond)
		require.LessOrEqual(t, took(func() {
			_, err := lock.Acquire(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}), time.Millisecond+anAttempt)
		rec, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
	})
}

func TestTheEndOfCtxEndsACallWithinAnAttempt(t *testing.T) {
	never := 1000 * time.Hour
	for name, c := range map[string]struct {
		faults []fault
		run    func(ctx context.Context, lease *leasehold.Lease) error
		held   bool
	}{
		"Acquire, hanging read":  {faults: []fault{{op: "get", delay: never}}},
		"Acquire, hanging write": {faults: []fault{{op: "put", delay: never}, {op: "get", delay: never}}},
		"Acquire, a slow write": {faults: []fault{{op: "put", apply: true, delay: 5 * time.Second},
			{op: "put", delay: never}}},
		"Acquire, a hanging settling": {faults: []fault{{op: "put", err: errInjected}, {op: "get", delay: never}}},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			lock := newLock(t, store, aDay)
			store.next(c.faults...)
			ctx := testctx.Within(t, time.Second)
			require.LessOrEqual(t, took(func() {
				_, err := lock.Acquire(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}), time.Second+anAttempt)
		})
	}
	for name, call := range map[string]func(ctx context.Context, l *leasehold.Lock, lease *leasehold.Lease) error{
		"Renew": func(ctx context.Context, _ *leasehold.Lock, lease *leasehold.Lease) error { return lease.Renew(ctx) },
		"Commit": func(ctx context.Context, _ *leasehold.Lock, lease *leasehold.Lease) error {
			return lease.Commit(ctx, nil)
		},
		"Release": func(ctx context.Context, _ *leasehold.Lock, lease *leasehold.Lease) error {
			return lease.Release(ctx)
		},
		"Break": func(ctx context.Context, l *leasehold.Lock, _ *leasehold.Lease) error { return l.Break(ctx, 1) },
		"Inspect": func(ctx context.Context, l *leasehold.Lock, _ *leasehold.Lease) error {
			_, err := l.Inspect(ctx)
			return err
		},
	} {
		for what, faults := range map[string][]fault{
			"nothing answers": {{op: "put", delay: never}, {op: "get", delay: never}, {op: "put", delay: never}},
			"only the first write is answered, late": {{
				op:    "put",
				delay: 9 * time.Second,
				err:   leasehold.ErrPreconditionFailed,
			},
				{op: "get", delay: never}, {op: "put", delay: never}},
		} {
			for _, behind := range []bool{false, true} {
				bubble.Run(t, name+", "+what+map[bool]string{true: ", behind a renewal"}[behind], func(t *testing.T) {
					store := newFaultStore(leasehold.NewMemStore())
					lock := newLock(t, store, aDay, leasehold.WithManualRenewal())
					lease := acquire(t, lock)
					var wg sync.WaitGroup
					if behind {
						store.next(fault{
							op:    "put",
							delay: 9 * time.Second,
							err:   leasehold.ErrPreconditionFailed,
						}, fault{op: "get", delay: never})
						wg.Go(func() { _ = lease.Renew(t.Context()) })
						synctest.Wait()
					}
					store.next(faults...)
					if name == "Inspect" || name == "Break" {
						store.down.Store(true)
					}
					ctx := testctx.Within(t, time.Second)
					require.LessOrEqual(t, took(func() {
						require.Error(t, call(ctx, lock, lease))
					}), time.Second+anAttempt)
					store.mu.Lock()
					store.plan = nil
					store.mu.Unlock()
					store.down.Store(false)
					wg.Wait()
				})
			}
		}
	}
}

// After the end of ctx, Do and Run return soon once the function has, also if the store has failed
// for good.
func TestDoAndRunEndInAnOutageAtALongTTL(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, l *leasehold.Lock,
		work func(ctx context.Context)) error{
		"Do": func(ctx context.Context, l *leasehold.Lock, work func(ctx context.Context)) error {
			return l.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error { work(ctx); return nil })
		},
		"Lease.Do": func(ctx context.Context, l *leasehold.Lock, work func(ctx context.Context)) error {
			lease, err := l.Acquire(ctx)
			return errors.Join(err, lease.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
				work(ctx)
				return nil
			}))
		},
		"Run": func(ctx context.Context, l *leasehold.Lock, work func(ctx context.Context)) error {
			e, err := leasehold.NewElector(l, leasehold.Callbacks{OnStartedLeading: func(ctx context.Context,
				_ *leasehold.Lease) {
				work(ctx)
			}})
			return errors.Join(err, e.Run(ctx))
		},
	} {
		for when, endsFirst := range map[string]bool{
			"ctx ends, then the function":         true,
			"the function returns, then ctx ends": false,
		} {
			if name == "Run" && !endsFirst {
				continue // its term goes on
			}
			bubble.Run(t, name+", "+when, func(t *testing.T) {
				store := newFaultStore(leasehold.NewMemStore())
				lock := newLock(t, store, aDay)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var over time.Time
				err := run(ctx, lock, func(ctx context.Context) {
					store.down.Store(true)
					if endsFirst {
						cancel()
						<-ctx.Done()
						time.Sleep(time.Hour)
						over = time.Now()
						return
					}
					over = time.Now().Add(time.Hour)
					time.AfterFunc(time.Hour, cancel)
				})
				require.ErrorContains(t, err, "releasing")
				require.GreaterOrEqual(t, time.Since(over), 30*time.Second, "it has tried")
				require.LessOrEqual(t, time.Since(over), 30*time.Second+anAttempt)
			})
		}
	}
}
