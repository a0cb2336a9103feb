package leasehold_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// A late answer does not announce a term again.
func TestATermIsAnnouncedOnce(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		slow := newFaultStore(mem)
		var seen []uint64
		lock := newLock(t, slow, leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			if e.Kind == leasehold.EventNewLeader {
				seen = append(seen, e.Token)
			}
		}))
		one := acquire(t, newLock(t, mem))
		slow.next(fault{op: "get", apply: true, delay: time.Second})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = lock.Inspect(t.Context()) }) // overtaken
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, one.Release(t.Context()))
		acquire(t, newLock(t, mem))
		_, _ = lock.Inspect(t.Context())
		wg.Wait()
		_, _ = lock.Inspect(t.Context())
		require.Equal(t, []uint64{2}, seen)
	})
}

// announcing is an observer that counts the terms which are announced, and how to see their tokens.
func announcing() (observer leasehold.Option, tokens func() []uint64) {
	var mu sync.Mutex
	var seen []uint64
	return leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == leasehold.EventNewLeader {
				seen = append(seen, e.Token)
			}
		}), func() []uint64 {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(seen)
		}
}

// A read that a write of the same Lock overtakes shows a term that is over. Neither that term nor
// the new one is announced again, whether or not the old one has a token and an object id.
func TestAReadThatAWriteOvertakesAnnouncesNothing(t *testing.T) {
	for name, tokenless := range map[string]bool{"by a Lock": false, "by a foreign client": true} {
		bubble.Run(t, name, func(t *testing.T) {
			mem := leasehold.NewMemStore()
			store := newFaultStore(raced(mem, func() { time.Sleep(time.Second / 2) }))
			observer, seen := announcing()
			lock := newLock(t, store, observer)
			one := acquire(t, newLock(t, mem))
			one.Abandon()
			first := one.Token()
			if tokenless {
				damage(t, mem, `{"expires_at": 1, "holder": "foreign"}`)
				first = 0
			}
			_, err := lock.Inspect(t.Context())
			require.NoError(t, err)
			time.Sleep(2 * untilNow)
			store.next(fault{op: "get", apply: true}, fault{op: "get", apply: true, delay: 2 * time.Second})
			go func() {
				time.Sleep(100 * time.Millisecond) // while the write is under way
				_, _ = lock.Inspect(t.Context())
			}()
			lease := acquire(t, lock)
			require.Equal(t, first+1, lease.Token())
			time.Sleep(3 * time.Second)
			_, err = lock.Inspect(t.Context())
			require.NoError(t, err)
			require.Equal(t, []uint64{first, first + 1}, seen())
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}

// A version that somebody has restored announces no term. An object that was made anew does.
func TestARestoredVersionAnnouncesNothing(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		observer, seen := announcing()
		lock := newLock(t, mem, observer)
		look := func() {
			_, err := lock.Inspect(t.Context())
			require.NoError(t, err)
		}
		one := acquire(t, newLock(t, mem))
		old := stored(t, mem)
		look()
		require.NoError(t, one.Release(t.Context()))
		acquire(t, newLock(t, mem)).Abandon()
		look()
		overwrite(t, mem, old)
		look()
		require.Equal(t, []uint64{1, 2}, seen())
		remove(t, mem)
		acquire(t, newLock(t, mem)).Abandon()
		look()
		require.Equal(t, []uint64{1, 2, 1}, seen())
	})
}

// A term that another process resumes goes on: it has another holder, and no new term begins. Who
// routes by the record sees the new one.
func TestAResumedTermIsNoNewOne(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		named := func(name, address string) []leasehold.Option {
			at := map[string]string{"at": address}
			return []leasehold.Option{leasehold.WithHolder(name), leasehold.WithMetadata(at)}
		}
		first := acquire(t, newLock(t, mem, named("first", "a")...))
		first.Abandon()
		observer, seen := announcing()
		follower := newLock(t, mem, observer)
		var leaders []string
		e, err := leasehold.NewElector(follower, leasehold.Callbacks{
			OnNewLeader: func(r leasehold.Record) { leaders = append(leaders, r.Holder) },
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		var statuses []string
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for status, err := range newLock(t, mem).Watch(ctx) {
				if err == nil {
					statuses = append(statuses, status.Record.Holder+" at "+status.Record.Metadata["at"])
				}
			}
		}()
		time.Sleep(aPoll)
		handle := first.Handle()
		for _, next := range []struct{ name, at string }{
			{"second", "b"}, {"second", "c"}, {"third", "c"},
		} {
			resuming, resumed := announcing()
			lease := resume(t, newcomer(t, mem, append(named(next.name, next.at), resuming)...), handle)
			require.Equal(t, []uint64{1}, resumed())
			lease.Abandon()
			time.Sleep(aPoll)
			r, ok := e.Leader()
			require.True(t, ok)
			require.Equal(t, next.name, r.Holder)
			require.Equal(t, next.at, r.Metadata["at"])
		}
		cancel()
		<-watched
		require.NoError(t, <-ended)
		require.Equal(t, []string{"first at a", "second at b", "second at c", "third at c"}, statuses)
		require.Equal(t, []string{"first"}, leaders)
		require.Equal(t, []uint64{1}, seen())
	})
}

// A negative age is none.
func TestAgesThatCannotBe(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		acquire(t, newLock(t, mem, leasehold.WithManualRenewal()))
		for _, age := range []time.Duration{math.MinInt64, -time.Hour, math.MaxInt64} {
			_, err := newLock(t, toldAge(mem, &age)).TryAcquire(t.Context())
			var held *leasehold.HeldError
			require.ErrorAs(t, err, &held)
			require.InDelta(t, 15300*time.Millisecond, held.Wait, 0, "as if no age were told")
		}
	})
}

// A lease is not lost because the read after a refused renewal was torn: it shows the record with
// the ETag of another version.
func TestATornReadCostsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var torn atomic.Pointer[string] // ETag of the next read
		store := newFaultStore(reading(leasehold.NewMemStore(), func(_ context.Context, o *leasehold.Object) {
			if etag := torn.Swap(nil); etag != nil {
				o.ETag = *etag
			}
		}))
		lock := newLock(t, store)
		require.NoError(t, acquire(t, lock).Release(t.Context()))
		before, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		lease := acquire(t, lock)
		store.next(fault{op: "put", err: leasehold.ErrPreconditionFailed})
		torn.Store(&before.ETag)
		require.NoError(t, lease.Renew(t.Context()))
		require.Nil(t, torn.Load(), "the read was torn")
		require.True(t, lease.Valid())
		require.NoError(t, lease.Commit(t.Context(), []byte("x")))
		require.NoError(t, lease.Release(t.Context()))
	})
}

// slow is a store whose answers take a while. It reports ages as S3 does, in whole seconds.
type slow struct {
	*teststore.Store
	wrote time.Time // when a write last landed
	dead  atomic.Bool
}

func newSlow(mem leasehold.Store) *slow {
	s := new(slow)
	s.Store = teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		update := r.Op == teststore.Update
		if update && s.dead.Load() {
			return leasehold.Object{}, context.DeadlineExceeded
		}
		time.Sleep(time.Duration(10+rand.IntN(30)) * time.Millisecond)
		if update {
			s.wrote = time.Now()
		}
		o, err := r.Send(ctx)
		o.Age = max(o.Age.Truncate(time.Second)-2*time.Second, 0)
		return o, err
	})
	return s
}

// The time from the last renewal before a crash to the takeover, with the default options.
func TestTakeoverTime(t *testing.T) {
	const ttl = 15 * time.Second
	var times []time.Duration
	for range 300 {
		onMemStore(t, func(t *testing.T, mem leasehold.Store) {
			alice := newSlow(mem)
			e, err := leasehold.NewElector(newLock(t, alice), leasehold.Callbacks{})
			require.NoError(t, err)
			stop := running(t, e)
			time.Sleep(time.Minute)
			led := make(chan time.Time)
			go func() {
				lease, err := newLock(t, newSlow(mem)).Acquire(t.Context())
				require.NoError(t, err)
				at := time.Now()
				require.NoError(t, lease.Release(t.Context()))
				led <- at
			}()
			time.Sleep(time.Minute + time.Duration(rand.Int64N(int64(ttl))))
			alice.dead.Store(true)
			at := <-led
			times = append(times, at.Sub(alice.wrote))
			_ = stop()
		})
	}
	slices.Sort(times)
	t.Logf("median %v, p99 %v, maximum %v", times[len(times)/2], times[len(times)*99/100], times[len(times)-1])
	require.LessOrEqual(t, times[len(times)/2], ttl*105/100)
	require.LessOrEqual(t, times[len(times)*99/100], ttl+ttl/5)
	require.GreaterOrEqual(t, times[0], ttl*102/100, "never early")
}

// reading lets a test change what reads show.
func reading(s leasehold.Store, after func(ctx context.Context, o *leasehold.Object)) leasehold.Store {
	return teststore.New(s, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		o, err := r.Send(ctx)
		if r.Op == teststore.Get {
			after(ctx, &o)
		}
		return o, err
	})
}

// toldAge is a store whose clock is trusted. It reports any age that the test sets.
func toldAge(s leasehold.Store, age *time.Duration) leasehold.Store {
	return reading(s, func(_ context.Context, o *leasehold.Object) { o.Age = *age })
}

func TestAnAgeToldLaterDecidesNothing(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		lease := acquire(t, newLock(t, mem))
		var told time.Duration
		candidate := newLock(t, toldAge(mem, &told))
		_, err := candidate.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		time.Sleep(2 * time.Second)
		told = time.Hour // the store's clock was stepped
		_, err = candidate.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.True(t, lease.Valid())
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestNoAgeExceedsWhatTheCandidateSawItself(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		lease := acquire(t, newLock(t, mem, leasehold.WithManualRenewal()))
		var told time.Duration
		candidate := newLock(t, toldAge(mem, &told))
		_, err := candidate.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		time.Sleep(2 * time.Second)
		require.NoError(t, lease.Renew(t.Context()))
		told = time.Hour // in the first reply with the new version, which cannot be older than 2 s
		_, err = candidate.TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, 13_300*time.Millisecond, held.Wait)
		require.True(t, lease.Valid())
	})
}

func TestALateAnswerDoesNotRaiseTheBoundOfAnAge(t *testing.T) {
	type inspecting struct{}
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		lease := acquire(t, newLock(t, mem, leasehold.WithManualRenewal()))
		var told time.Duration
		candidate := newLock(t, reading(mem, func(ctx context.Context, o *leasehold.Object) {
			o.Age = told
			if ctx.Value(inspecting{}) != nil {
				time.Sleep(2 * time.Second)
			}
		}))
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := candidate.Inspect(context.WithValue(t.Context(), inspecting{}, true))
			require.NoError(t, err)
		})
		time.Sleep(1900 * time.Millisecond)
		_, err := candidate.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		wg.Wait() // the answer to the first read comes last
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, lease.Renew(t.Context()))
		told = time.Hour
		time.Sleep(500 * time.Millisecond)
		_, err = candidate.TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, 14_200*time.Millisecond, held.Wait, "another version was there 1.1 s ago")
	})
}

func TestANewcomerUsesTheAgeThatATrustedStoreTells(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		holder := newFaultStore(mem)
		acquire(t, newLock(t, holder))
		crash(holder)
		told := 15 * time.Second
		store := toldAge(mem, &told)
		_, err := newLock(t, store).TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, 300*time.Millisecond, held.Wait)
		told = 15_300 * time.Millisecond
		acquire(t, newLock(t, store))
	})
}

func TestReadsThatFailForgetNothing(t *testing.T) {
	type inspecting struct{}
	for name, fails := range map[string]func() func(ctx context.Context) bool{
		"every fifth read": func() func(context.Context) bool {
			var n atomic.Int64
			return func(context.Context) bool { return n.Add(1)%5 == 0 }
		},
		"Inspect on the same Lock": func() func(context.Context) bool {
			return func(ctx context.Context) bool { return ctx.Value(inspecting{}) != nil }
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			mem := leasehold.NewMemStore()
			former := newFaultStore(mem)
			acquire(t, newLock(t, former))
			crash(former)
			fails := fails()
			store := teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				if r.Op == teststore.Get && fails(ctx) {
					return leasehold.Object{}, errInjected
				}
				return r.Send(ctx)
			})
			candidate := newLock(t, store, quiet)
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			if name != "every fifth read" {
				wg.Go(func() {
					for ctx.Err() == nil {
						_, _ = candidate.Inspect(context.WithValue(ctx, inspecting{}, true))
						time.Sleep(time.Second)
					}
				})
			}
			lease, err := candidate.Acquire(ctx)
			cancel()
			wg.Wait()
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}

// Creates that were refused count for a store that refuses all of them only until the object is
// seen.
func TestRefusedCreatesAreForgottenWhenTheObjectIsSeen(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		store := newFaultStore(mem)
		lock := newLock(t, store)
		beside := func() {
			store.next(fault{op: "put", err: leasehold.ErrPreconditionFailed})
			require.ErrorIs(t, tryAtOnce(t, lock), leasehold.ErrHeld)
			time.Sleep(8 * time.Second)
		}
		beside()
		beside()
		require.NoError(t, acquire(t, newLock(t, mem)).Release(t.Context()))
		_, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		obj, err := mem.Get(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, mem.DeleteIfMatch(t.Context(), key, obj.ETag))
		beside() // 16 s after the first
	})
}

// Somebody restores an object as it was in an earlier term, while another holds the lock. To the
// holder the lock is lost at its next renewal. Until then nobody may take it who can know better,
// also not whose term that was.
func TestARestoredVersionIsWaitedOut(t *testing.T) {
	for name, c := range map[string]struct {
		opts     []leasehold.Option
		ownWrite bool          // the version is of a term of that Lock itself, not of an earlier life of it
		looks    bool          // it has seen the other's term
		released bool          // the version is the release
		noTTL    bool          // a foreign client wrote it
		left     bool          // its term ran out
		ttl      time.Duration // of the other's term
	}{
		"released before":                           {nil, true, false, false, false, false, 15 * time.Second},
		"another's term was seen":                   {nil, true, true, false, false, false, 15 * time.Second},
		"of an earlier life, reclaimed":             {pod, false, true, false, false, false, 15 * time.Second},
		"another's longer term was seen":            {nil, true, true, false, false, false, time.Minute},
		"its release, another's term was seen":      {nil, true, true, true, false, false, 15 * time.Second},
		"another's release":                         {nil, false, true, true, false, false, 15 * time.Second},
		"another's release, a longer term was seen": {nil, false, true, true, false, false, time.Minute},
		"a foreign client's release":                {nil, false, true, true, true, false, 15 * time.Second},
		"left, another's term was seen":             {nil, true, true, false, false, true, 15 * time.Second},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			mem := leasehold.NewMemStore()
			store := newFaultStore(mem)
			lock := newLock(t, store, c.opts...)
			former := lock
			if !c.ownWrite {
				former = newLock(t, mem, append(c.opts, testopt.NewProcess())...)
			}
			lease := acquire(t, former)
			old := stored(t, mem)
			if c.left {
				lease.Abandon()
				time.Sleep(time.Minute)
			} else {
				require.NoError(t, lease.Release(t.Context()))
			}
			if c.released {
				old = stored(t, mem)
			}
			if c.noTTL {
				old = leasehold.Record{Token: old.Token}
			}

			holder, err := newLock(t, mem, leasehold.WithTTL(c.ttl)).Acquire(t.Context())
			require.NoError(t, err)
			if c.looks {
				_, err := lock.TryAcquire(t.Context())
				require.ErrorIs(t, err, leasehold.ErrHeld)
			}
			overwrite(t, mem, old)
			for range 3 {
				store.count()
				err := tryAtOnce(t, lock)
				require.ErrorIs(t, err, leasehold.ErrHeld)
				if c.released {
					require.ErrorContains(t, err, "has come back, as from a backup")
				}
				require.True(t, holder.Valid())
				require.Contains(t, store.count(), "get", "the restored version is not known by heart")
			}
			began := time.Now()
			next, err := lock.Acquire(t.Context())
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(began), c.ttl, "a TTL")
			require.Less(t, time.Since(began), 2*c.ttl)
			require.False(t, holder.Valid())
			require.ErrorContains(t, context.Cause(holder.Context()), "taken over")
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// After one restore two terms may have the same token. Who has seen one of them does not take a
// release of the other, which a second restore has brought back, for its release.
func TestTheReleaseOfAnotherTermOfTheSameTokenIsWaitedOut(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		process := func() *leasehold.Lock { return newLock(t, mem, testopt.NewProcess()) }
		release := func(lock *leasehold.Lock) leasehold.Record {
			require.NoError(t, acquire(t, lock).Release(t.Context()))
			return stored(t, mem)
		}
		first := release(process())
		second := release(process())
		overwrite(t, mem, first)
		holder := acquire(t, process())
		require.Equal(t, second.Token, holder.Token())
		lock := process()
		require.ErrorIs(t, tryAtOnce(t, lock), leasehold.ErrHeld)
		overwrite(t, mem, second)
		require.ErrorIs(t, tryAtOnce(t, lock), leasehold.ErrHeld)
		require.True(t, holder.Valid())
		next := acquire(t, lock)
		require.False(t, holder.Valid())
		require.Equal(t, holder.Token()+1, next.Token())
	})
}

// After a restore a term may begin that has a lower token than one that was seen, and a longer TTL.
// A later restore hides it, and it is waited out all the same.
func TestALongerTermAfterARestoreIsWaitedOut(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		process := func(opts ...leasehold.Option) *leasehold.Lock {
			return newLock(t, mem, append(opts, testopt.NewProcess())...)
		}
		release := func(lock *leasehold.Lock) leasehold.Record {
			require.NoError(t, acquire(t, lock).Release(t.Context()))
			return stored(t, mem)
		}
		first := release(process())
		release(process())
		release(process())
		lock := process()
		_, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		overwrite(t, mem, first)
		holder := acquire(t, process(leasehold.WithTTL(time.Minute)))
		require.EqualValues(t, 2, holder.Token())
		require.ErrorIs(t, tryAtOnce(t, lock), leasehold.ErrHeld)
		overwrite(t, mem, first)
		began := time.Now()
		next := acquire(t, lock)
		require.GreaterOrEqual(t, time.Since(began), time.Minute)
		require.False(t, holder.Valid())
		require.EqualValues(t, 4, next.Token())
	})
}

// Foreign clients that know no token write none. Their release frees the lock at once, whatever
// tokens were seen before.
func TestAReleaseWithoutATokenIsFree(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		lock := newLock(t, mem)
		require.NoError(t, acquire(t, lock).Release(t.Context()))
		overwrite(t, mem, leasehold.Record{})
		began := time.Now()
		lease := acquire(t, lock)
		require.Zero(t, time.Since(began))
		require.EqualValues(t, 2, lease.Token())
		require.NoError(t, lease.Release(t.Context()))
	})
}

// The age that a store tells of a restored version is that of the version, which may have come back
// just now.
func TestTheAgeOfARestoredVersionIsNotTold(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		former := acquire(t, newLock(t, mem))
		old := stored(t, mem)
		require.NoError(t, former.Release(t.Context()))
		holder := acquire(t, newLock(t, mem, leasehold.WithManualRenewal()))
		hour := time.Hour
		lock := newLock(t, toldAge(mem, &hour), leasehold.WithPollInterval(time.Minute))
		_, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		require.NoError(t, holder.Renew(t.Context()))
		overwrite(t, mem, old)
		for holder.Valid() {
			require.ErrorIs(t, tryAtOnce(t, lock), leasehold.ErrHeld)
			time.Sleep(time.Second)
		}
	})
}

// An elector that sees the release of an old term come back sees no new leader in it, and leads in
// the end.
func TestAnElectorAndARestoredRelease(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		require.NoError(t, acquire(t, newLock(t, mem, leasehold.WithHolder("old"))).Release(t.Context()))
		old := stored(t, mem)
		holder := acquire(t, newLock(t, mem, leasehold.WithHolder("holder"), leasehold.WithManualRenewal()))
		var leaders []string
		led := make(chan struct{})
		e, err := leasehold.NewElector(newLock(t, mem, leasehold.WithHolder("new")), leasehold.Callbacks{
			OnNewLeader:      func(r leasehold.Record) { leaders = append(leaders, r.Holder) },
			OnStartedLeading: func(context.Context, *leasehold.Lease) { close(led) },
		})
		require.NoError(t, err)
		stop := running(t, e)
		time.Sleep(time.Second)
		overwrite(t, mem, old)
		<-led
		require.False(t, holder.Valid())
		require.NoError(t, stop())
		require.Equal(t, []string{"holder", "new"}, leaders)
	})
}

// An object whose history was replaced may show the token of a running term. Its term is another.
func TestATermWithAnotherIDIsAnother(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*leasehold.Record)
		want string
	}{
		"held": {func(r *leasehold.Record) { r.TermID = "another" }, "taken over"},
		"released": {
			func(r *leasehold.Record) { r.TermID, r.ExpiresAt = "another", time.Time{} },
			"taken over",
		},
		"the same, released":      {func(r *leasehold.Record) { r.ExpiresAt = time.Time{} }, "broken"},
		"released by an old tool": {func(r *leasehold.Record) { r.TermID, r.ExpiresAt = "", time.Time{} }, "broken"},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := leasehold.NewMemStore()
			lease := acquire(t, newLock(t, store))
			rec := stored(t, store)
			rec.Nonce = "x"
			c.edit(&rec)
			overwrite(t, store, rec)
			require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
			require.ErrorContains(t, context.Cause(lease.Context()), c.want)
		})
	}
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		acquire(t, newLock(t, store)).Abandon()
		rec := stored(t, store)
		leaders := 0
		lock := newLock(t, store, leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			if e.Kind == leasehold.EventNewLeader {
				leaders++
			}
		}))
		show := func(id string) {
			rec.TermID, rec.Nonce = id, "of "+id
			overwrite(t, store, rec)
		}
		ctx := testctx.Within(t, time.Hour)
		seen := 0
		for status, err := range lock.Watch(ctx) {
			require.NoError(t, err)
			if seen++; seen == 2 {
				require.Equal(t, "another", status.Record.TermID)
				break
			}
			show("")
			_, err := lock.Inspect(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, leaders, "it may be the same")
			show("another")
		}
		require.Equal(t, 2, seen)
		require.Equal(t, 2, leaders)
	})
}

// unread is a log at level Warn that nobody reads until it is closed.
type unread chan struct{}

func (u unread) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (u unread) Handle(context.Context, slog.Record) error {
	<-u
	return nil
}

func (u unread) WithAttrs([]slog.Attr) slog.Handler { return u }
func (u unread) WithGroup(string) slog.Handler      { return u }

// A logger that blocks stops renewals, and nothing else: the lease ends at its deadline, and others
// get the lock.
func TestALogThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := newFaultStore(leasehold.NewMemStore()), make(unread)
		lease := acquire(t, newLock(t, store, leasehold.WithLogger(slog.New(log))))
		store.next(fault{op: "put", err: errors.New("503")})
		deadline := lease.Deadline()
		<-lease.Context().Done()
		require.False(t, time.Now().After(deadline))
		require.False(t, lease.Valid())
		require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
		next, err := newcomer(t, store).Acquire(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, next.Token())
		close(log)
	})
}
