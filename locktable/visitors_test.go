package locktable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/locktable"
)

// visit is one run of a process that asks once and is gone, such as a cron job.
func visit(
	ctx context.Context, t *testing.T, store leasehold.Store, lock func(*locktable.Table) *locktable.Lock,
	opts ...locktable.Option,
) error {
	t.Helper()
	m := start(t, store, opts...)
	lease, err := lock(m.Table).TryAcquire(ctx)
	if err == nil {
		require.NoError(t, lease.Release(ctx))
	}
	require.NoError(t, m.stop())
	return err
}

// Whoever only visits gets a lock again after its holder, or somebody in line to whom it was handed
// on, has crashed. It takes a TTL, and no memory of an earlier visit.
func TestAVisitorOutlastsTheDead(t *testing.T) {
	for _, waits := range []bool{false, true} {
		bubble.Run(t, fmt.Sprintf("another waits: %v", waits), func(t *testing.T) {
			store := newCounting()
			cable := newCable(store)
			a := start(t, cable)
			acquire(t, a.Semaphore("job", 1))
			if waits {
				b := start(t, cable)
				go func() { _, _ = b.Semaphore("job", 1).Acquire(t.Context()) }()
			}
			time.Sleep(ttl)
			cable.cut(true)
			job := func(m *locktable.Table) *locktable.Lock { return m.Semaphore("job", 1) }
			time.Sleep(time.Hour)
			began := time.Now()
			require.NoError(t, visit(soon(t), t, store, job))
			require.Less(t, time.Since(began), 2*ttl)
			began = time.Now()
			require.NoError(t, visit(soon(t), t, store, job))
			require.Less(t, time.Since(began), time.Second)
			cable.cut(false)
			time.Sleep(10 * ttl) // so that those that were cut off can end
		})
	}
}

// A visitor of a lock that is in use is told at once who holds it, writes nothing for it, and takes
// a look at each holder.
func TestAVisitorWaitsForNobodyWhoLives(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		b := start(t, store)
		acquire(t, b.Lock("warm"))
		time.Sleep(10 * ttl)
		a := start(t, store)
		acquire(t, a.Lock("x"))
		acquire(t, b.Lock("y"))            // so that b has read of a, and has not looked at it
		time.Sleep(100 * time.Millisecond) // its writes are not held back any more
		store.forget()
		began := time.Now()
		_, err := b.Lock("x").TryAcquire(soon(t))
		var held *locktable.HeldError
		require.ErrorAs(t, err, &held)
		require.Len(t, held.By, 1)
		require.Equal(t, a.MemberName(), held.By[0].Name)
		require.Less(t, time.Since(began), time.Second)
		require.Zero(t, store.count("put"))
		require.LessOrEqual(t, store.countOf("get", key+".members/"+a.MemberName()), 1)
		_, err = b.Lock("x").TryAcquire(soon(t))
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.LessOrEqual(t, store.countOf("get", key+".members/"+a.MemberName()), 1, "within a third of a TTL, once")
	})
}

// Processes that ask once and are gone remove the crashed among them when these have filled the
// table: the first one waits for a TTL, as for a crashed holder.
func TestVisitorsClearAFullTable(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		size := locktable.WithMaxSize(4 << 10)
		cable := newCable(store)
		var err error
		for i := 0; err == nil; i++ {
			m := start(t, cable, size)
			m.fails = true
			var lease *locktable.Lease
			lease, err = m.Lock(fmt.Sprint("job-", i)).TryAcquire(soon(t))
			t.Cleanup(func() { runtime.KeepAlive(lease) })
		}
		require.ErrorIs(t, err, locktable.ErrFull, "all of them run")
		cable.cut(true)
		time.Sleep(time.Hour)
		job := func(m *locktable.Table) *locktable.Lock { return m.Lock("another-job") }
		hurry := testctx.Within(t, ttl/2)
		err = visit(hurry, t, store, job, size)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, locktable.ErrFull)
		began := time.Now()
		require.NoError(t, visit(soon(t), t, store, job, size))
		require.Less(t, time.Since(began), 2*ttl)
		began = time.Now()
		require.NoError(t, visit(soon(t), t, store, job, size))
		require.Less(t, time.Since(began), time.Second)
		cable.cut(false)
		time.Sleep(10 * ttl)
	})
}

// A crashed holder of a semaphore does not keep its name from being a lock.
func TestAVisitorOutlastsTheDeadOfAnotherKind(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		acquire(t, start(t, cable).Semaphore("job", 2))
		cable.cut(true)
		time.Sleep(time.Hour)
		job := func(m *locktable.Table) *locktable.Lock { return m.Lock("job") }
		began := time.Now()
		require.NoError(t, visit(soon(t), t, store, job))
		require.Less(t, time.Since(began), 2*ttl)
		cable.cut(false)
		time.Sleep(10 * ttl)
	})
}

// smallTableWithADeadMember lets a member with a TTL of an hour crash in a table of 4 KiB.
func smallTableWithADeadMember(t *testing.T, store leasehold.Store) (size locktable.Option) {
	t.Helper()
	size = locktable.WithMaxSize(4 << 10)
	cable := newCable(store)
	acquire(t, start(t, cable, size, locktable.WithTTL(time.Hour)).Lock("x"))
	cable.cut(true)
	t.Cleanup(func() {
		cable.cut(false)
		time.Sleep(3 * time.Hour) // so that it can end
	})
	time.Sleep(2 * time.Hour)
	return size
}

// A request that a table with a dead member has no room for fails nevertheless, if the dead one is
// not the reason, or cannot be judged in time.
func TestAFullTableRefusesInTheEnd(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		size := smallTableWithADeadMember(t, store)
		m := start(t, store, size)
		began := time.Now()
		fill(t, m, 200)
		require.Less(t, time.Since(began), 3*ttl)
		require.NoError(t, m.Check(nil))
	})
}

// The error of a wait says why the newest version does not grant the request.
func TestRoomThatCannotBeUsed(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		size := smallTableWithADeadMember(t, store)
		m, cable := start(t, store, size), newCable(store)
		large := acquire(t, m.Lock(strings.Repeat("l", 500)))
		for i := range 5 {
			acquire(t, m.Lock(fmt.Sprint(i, strings.Repeat("l", 500))))
		}
		waits := start(t, cable, size)
		time.AfterFunc(ttl/2, func() {
			cable.set(func(op, of string) error {
				if op == "put" && of == key {
					return errCut
				}
				return nil
			}, nil)
			assert.NoError(t, large.Release(t.Context()))
		})
		_, err := waits.Lock(strings.Repeat("v", 500)).Acquire(testctx.Within(t, 3*ttl/2))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errCut)
		require.NotErrorIs(t, err, locktable.ErrFull)
		cable.cut(false)
	})
}

// An outage of a process does not decide about its request, and what the table has refused in a
// former term is decided anew, after another look at the members.
func TestARefusalOfAFormerTerm(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		size := smallTableWithADeadMember(t, store)
		m, cable := start(t, store, size), newCable(store)
		for i := range 6 {
			acquire(t, m.Lock(fmt.Sprint(i, strings.Repeat("l", 500))))
		}
		time.AfterFunc(ttl/2, func() { cable.cut(true) })
		time.AfterFunc(4*ttl, func() { cable.cut(false) })
		began := time.Now()
		_, err := start(t, cable, size).Lock(strings.Repeat("v", 500)).Acquire(soon(t))
		require.ErrorIs(t, err, locktable.ErrFull)
		require.Greater(t, time.Since(began), 5*ttl)
	})
}

// A request that waits for room, because a crashed member may be the reason, has the room that
// another member makes, at the next poll or at once after Wake.
func TestRoomThatAnotherMemberMakes(t *testing.T) {
	for _, wakes := range []bool{false, true} {
		bubble.Run(t, fmt.Sprintf("wakes: %v", wakes), func(t *testing.T) {
			store := newCounting()
			size := smallTableWithADeadMember(t, store)
			m := start(t, store, size)
			large := acquire(t, m.Lock(strings.Repeat("l", 500)))
			for i := range 5 {
				acquire(t, m.Lock(fmt.Sprint(i, strings.Repeat("l", 500))))
			}
			poll := ttl / 5
			if wakes {
				poll = 4 * ttl // the first one comes later than the room
			}
			began, waits := time.Now(), start(t, store, size, locktable.WithPollInterval(poll))
			time.AfterFunc(ttl, func() {
				assert.NoError(t, large.Release(t.Context()))
				if wakes {
					waits.Wake()
				}
			})
			lease, err := waits.Lock(strings.Repeat("v", 500)).TryAcquire(soon(t))
			require.NoError(t, err)
			if took := time.Since(began) - ttl; wakes {
				require.Less(t, took, time.Second)
			} else {
				require.InDelta(t, 0, took.Seconds(), ttl.Seconds()/4)
			}
			runtime.KeepAlive(lease)
		})
	}
}

// A visitor in a hurry does not outlast anybody.
func TestAVisitorInAHurry(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		a := start(t, cable)
		acquire(t, a.Lock("x"))
		cable.cut(true)
		time.Sleep(time.Hour)
		ctx := testctx.Within(t, 2*time.Second)
		err := visit(ctx, t, store, func(m *locktable.Table) *locktable.Lock { return m.Lock("x") })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		cable.cut(false)
		time.Sleep(10 * ttl)
	})
}

// TryAcquire right after Run has begun waits for the first term.
func TestTryAcquireInTheFirstTerm(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store, locktable.WithMemberName("pod-1"))
		lease, err := a.Lock("x").TryAcquire(soon(t))
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		second := start(t, store, locktable.WithMemberName("pod-1")) // the name is taken
		began := time.Now()
		_, err = second.Lock("y").TryAcquire(soon(t))
		require.ErrorIs(t, err, locktable.ErrNoTerm)
		require.LessOrEqual(t, time.Since(began), ttl)
		require.NoError(t, a.stop())
		require.NoError(t, second.stop())
	})
}

// A holder and the line behind it die at once. Who waits behind them has the lock about a TTL
// later, however long the line is.
func TestADeadLine(t *testing.T) {
	for _, n := range []int{1, 8, testsize.Pick(16, 32)} {
		bubble.Run(t, fmt.Sprint(n), func(t *testing.T) {
			store := newCounting()
			cable := newCable(store)
			acquire(t, start(t, cable).Lock("x"))
			for i := range n {
				m := start(t, cable)
				go func() { _, _ = m.Lock("x").Acquire(t.Context()) }()
				within(t, 10*ttl, "it stands in line", func() bool {
					return len(inspect(t, m).Waiting) == i+1
				})
			}
			last := start(t, store)
			got := make(chan time.Time, 1)
			go func() {
				acquire(t, last.Lock("x"))
				got <- time.Now()
			}()
			time.Sleep(5 * ttl)
			cable.cut(true)
			died := time.Now()
			took := (<-got).Sub(died)
			t.Logf("%d dead in line: %.2f TTL", n, took.Seconds()/ttl.Seconds())
			require.Less(t, took, ttl*3/2)
			cable.cut(false)
			time.Sleep(10 * ttl)
		})
	}
}

// The dead who block nobody are found by those who stay for two TTLs, and by one member that stays.
func TestDeadReaders(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		one := start(t, store)
		acquire(t, one.Lock("x"))
		for range 20 {
			acquire(t, start(t, cable).Shared("config"))
		}
		time.Sleep(10 * ttl)
		cable.cut(true)
		began := time.Now()
		for len(inspect(t, one).Members) > 1 && time.Since(began) < 60*ttl {
			time.Sleep(ttl)
		}
		took := time.Since(began)
		cable.cut(false)
		time.Sleep(10 * ttl)
		t.Logf("20 dead readers are gone after %.1f TTLs", took.Seconds()/ttl.Seconds())
		require.Less(t, took, 60*ttl)
	})
}

// At rest, a member takes half a look a TTL, whatever the number of members.
func TestLooksAtRest(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		members := testsize.Pick(10, 32)
		for i := range members {
			m := start(t, store)
			acquire(t, m.Lock(fmt.Sprint(i)))
		}
		time.Sleep(20 * ttl)
		store.forget()
		const ttls = 100
		time.Sleep(ttls * ttl)
		each := float64(store.looks()) / float64(members) / ttls
		t.Logf("%d members: %.2f looks a TTL and member", members, each)
		require.Less(t, each, 0.6)
	})
}

// Inspect says when each member has renewed, and who seems dead.
func TestInspectTellsWhoIsDead(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		a, b := start(t, cable), start(t, store)
		acquire(t, a.Lock("x"))
		acquire(t, b.Lock("y"))
		for _, m := range inspect(t, b).Members {
			require.NoError(t, m.Err)
			require.WithinDuration(t, time.Now(), m.Renewed, ttl)
		}
		cable.cut(true)
		died := time.Now()
		time.Sleep(ttl * 5 / 4)
		for _, m := range inspect(t, b).Members {
			if m.Name == b.MemberName() {
				require.NoError(t, m.Err)
				continue
			}
			require.ErrorContains(t, m.Err, "ago by its own clock")
			require.WithinDuration(t, died, m.Renewed, ttl/2)
		}
		cable.cut(false)
		time.Sleep(10 * ttl)
	})
}

// What another member writes into the object of a dead one, to find out whether it is dead, is no
// sign of life.
func TestAVisitorTakesNoEvictorForTheDead(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		a := start(t, cable)
		acquire(t, a.Lock("x"))
		time.Sleep(ttl)
		cable.cut(true)
		time.Sleep(time.Hour)
		object := key + ".members/" + a.MemberName()
		time.AfterFunc(time.Second, func() { // one has evicted it, and another had read the table before
			obj, err := store.Get(t.Context(), object)
			assert.NoError(t, err)
			assert.NoError(t, store.DeleteIfMatch(t.Context(), object, obj.ETag))
			lock, err := leasehold.NewLock(store, object)
			assert.NoError(t, err)
			lease, err := lock.TryAcquire(t.Context())
			assert.NoError(t, err)
			assert.NoError(t, lease.Release(t.Context()))
		})
		began := time.Now()
		require.NoError(t, visit(soon(t), t, store, func(m *locktable.Table) *locktable.Lock { return m.Lock("x") }))
		require.Less(t, time.Since(began), 2*ttl)
		cable.cut(false)
		time.Sleep(10 * ttl)
	})
}

// Calls of TryAcquire that are refused, some during each read, keep no write waiting.
func TestTriesKeepNoWriteWaiting(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		acquire(t, b.Lock("held"))
		lease := acquire(t, a.Lock("x"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 100 {
			go func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for ctx.Err() == nil {
					time.Sleep(time.Duration(r.IntN(50_000)) * time.Microsecond)
					_, _ = a.Lock("held").TryAcquire(ctx)
				}
			}()
		}
		time.Sleep(time.Second)
		require.NoError(t, lease.Release(testctx.Within(t, time.Second)))
		_, err := a.Lock("y").Acquire(testctx.Within(t, time.Second))
		require.NoError(t, err)
	})
}

// A visitor of a semaphore that so many hold that the looks at all of them take long is told so.
func TestAVisitorOfASemaphoreThatManyHold(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		const n = 30
		for range n {
			acquire(t, start(t, store, locktable.WithTTL(2*time.Second)).Semaphore("s", n))
		}
		far := alone(store)
		far.set(func(string, string) error {
			time.Sleep(200 * time.Millisecond)
			return nil
		}, nil)
		b := start(t, far, locktable.WithTTL(time.Minute))
		_, err := b.Semaphore("s", n).TryAcquire(testctx.Within(t, ttl))
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}
