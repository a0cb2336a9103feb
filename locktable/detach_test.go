package locktable_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/locktable"
)

// detach hands a member over.
func detach(t *testing.T, m *member) (handle string) {
	t.Helper()
	handle, err := m.Detach(soon(t))
	require.NoError(t, err)
	return handle
}

// resume runs a table that goes on with a handle.
func resume(t *testing.T, store leasehold.Store, handle string) *member {
	t.Helper()
	tab, err := locktable.Resume(store, handle, locktable.WithLogger(silent))
	require.NoError(t, err)
	return run(t, tab)
}

// resumed are the leases that a member goes on with.
func resumed(t *testing.T, m *member) []*locktable.Lease {
	t.Helper()
	leases, err := m.Leases(soon(t))
	require.NoError(t, err)
	t.Cleanup(func() { runtime.KeepAlive(leases) })
	return leases
}

// requireHeld fails unless the table has exactly these locks, with these tokens.
func requireHeld(t *testing.T, m *member, want map[string]uint64) {
	t.Helper()
	is := make(map[string]uint64)
	for _, row := range inspect(t, m).Held {
		is[strings.Join(row.Locks, "+")] = row.Token
	}
	require.Equal(t, want, is)
}

// All leases of a member go on in another process, with the same tokens and rows. Nobody gets their
// locks meanwhile, and each works like any other. Nothing is left when they are free.
func TestDetachAndResume(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, other := start(t, store,
			locktable.WithMemberName("pod"), locktable.WithMetadata(map[string]string{"a": "b"}),
			locktable.WithTTL(time.Minute)), start(t, store)
		x := acquire(t, a.Lock("x"))
		yz := acquire(t, a.All(a.Shared("y"), a.Semaphore("z", 5).Slots(2)))
		freed := acquire(t, a.Lock("freed"))
		_, err := other.Lock("x").TryAcquire(soon(t))
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.NoError(t, freed.Release(t.Context()))
		rows := map[string]uint64{"x": x.Token(), "y (shared)+z (2 of 5)": yz.Token()}
		before := inspect(t, other).Members

		handle := detach(t, a)
		require.Regexp(t, `^1-[A-Z2-7]{26}\.[-_A-Za-z0-9]+$`, handle)
		require.NoError(t, a.stop(), "Run has returned")
		for _, lease := range []*locktable.Lease{x, yz} {
			require.False(t, lease.Valid())
			require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrReleased)
			require.ErrorContains(t, lease.Release(t.Context()), "was detached")
			require.ErrorIs(t, lease.Do(t.Context(), nil), leasehold.ErrReleased)
		}
		_, err = a.Lock("new").TryAcquire(soon(t))
		require.ErrorIs(t, err, locktable.ErrNotRunning)
		requireHeld(t, other, rows)
		time.Sleep(50 * time.Second) // less than the TTL

		b := resume(t, store, handle)
		leases := resumed(t, b)
		require.Len(t, leases, 2)
		require.Equal(t, [][]string{{"x"}, {"y", "z"}}, [][]string{leases[0].Locks(), leases[1].Locks()})
		require.Equal(t, []uint64{x.Token(), yz.Token()}, []uint64{leases[0].Token(), leases[1].Token()})
		require.Equal(t, "pod", b.MemberName())
		after := inspect(t, other).Members
		before[1].Renewed, after[1].Renewed = time.Time{}, time.Time{}
		before[0].Renewed, after[0].Renewed = time.Time{}, time.Time{}
		require.Equal(t, before, after, "name, TTL and metadata are as they were")
		time.Sleep(10 * time.Minute) // rows that it did not know would go after two TTLs
		requireHeld(t, other, rows)
		require.True(t, leases[0].Valid())
		require.True(t, leases[1].Valid())
		none, err := b.Leases(soon(t))
		require.NoError(t, err)
		require.Empty(t, none, "they are returned once")
	})
}

// A resumed lease works like any other, and nothing is left when all are free.
func TestResumedLeases(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, other := start(t, store, locktable.WithMemberName("pod")), start(t, store)
		x := acquire(t, a.Lock("x"))
		acquire(t, a.All(a.Shared("y"), a.Semaphore("z", 5)))
		b := resume(t, store, detach(t, a))
		leases := resumed(t, b)
		require.NoError(t, leases[0].Do(t.Context(), func(ctx context.Context, lease *locktable.Lease) error {
			_, err := b.Lock("x").TryAcquire(ctx)
			require.ErrorIs(t, err, leasehold.ErrHeld)
			return nil
		}))
		more := acquire(t, b.Lock("more"))
		next := acquire(t, other.Lock("x"))
		require.Greater(t, next.Token(), x.Token())
		require.NoError(t, leases[1].Release(t.Context()))
		requireHeld(t, other, map[string]uint64{"x": next.Token(), "more": more.Token()})
		require.NoError(t, b.stop())
		requireHeld(t, other, map[string]uint64{"x": next.Token()})
		_, err := store.Store.Get(t.Context(), key+".members/pod")
		require.ErrorIs(t, err, leasehold.ErrNotExist)
	})
}

// A member may go on in one process after the other, with what each has asked for.
func TestDetachAgain(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		m := start(t, store)
		want := []uint64{acquire(t, m.Lock("x0")).Token()}
		for _, name := range []string{"x1", "x2", "x3"} {
			handle := detach(t, m)
			require.NoError(t, m.stop())
			m = resume(t, store, handle)
			leases := resumed(t, m)
			require.Len(t, leases, len(want))
			for i, lease := range leases {
				require.Equal(t, want[i], lease.Token())
				require.True(t, lease.Valid())
			}
			want = append(want, acquire(t, m.Lock(name)).Token())
		}
	})
}

// What cannot be handed over goes on here.
func TestWhatCannotBeDetached(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		synctest.Wait() // it acquires its own lock
		_, err := a.Detach(soon(t))
		require.ErrorIs(t, err, locktable.ErrNoTerm)
		time.Sleep(time.Second)
		_, err = a.Detach(soon(t))
		require.ErrorIs(t, err, locktable.ErrNotDetachable)
		require.ErrorContains(t, err, "holds nothing")

		x, y := acquire(t, a.Lock("x")), acquire(t, a.Lock("y"))
		require.NoError(t, x.Do(t.Context(), func(ctx context.Context, lease *locktable.Lease) error {
			_, err := a.Detach(soon(t))
			require.ErrorIs(t, err, locktable.ErrNotDetachable)
			require.ErrorContains(t, err, "1 functions run")
			require.True(t, lease.Valid())
			require.NoError(t, ctx.Err())
			return nil
		}))
		require.True(t, y.Valid())
		acquire(t, a.Lock("z"))
		require.NoError(t, a.stop())
		_, err = a.Detach(soon(t))
		require.ErrorIs(t, err, locktable.ErrNotRunning)
	})
}

// Those who wait are taken out of the table first. If that cannot be written, the leases go on here
// when the caller gives up.
func TestDetachBesideWaiters(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		own := alone(store)
		a, other := start(t, own), start(t, store)
		mine, theirs := acquire(t, a.Lock("mine")), acquire(t, other.Lock("theirs"))
		waits := func() chan error {
			failed := make(chan error, 1)
			go func() {
				_, err := a.Lock("theirs").Acquire(soon(t))
				failed <- err
			}()
			within(t, ttl, "it waits", func() bool { return len(inspect(t, other).Waiting) == 1 })
			return failed
		}
		failed := waits()
		own.set(on("put", errors.New("503")), nil)
		ctx := testctx.Within(t, ttl/5)
		_, err := a.Detach(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "503")
		require.ErrorIs(t, <-failed, locktable.ErrNotRunning)
		require.True(t, mine.Valid())
		own.set(nil, nil)
		within(t, ttl, "nobody waits", func() bool { return len(inspect(t, other).Waiting) == 0 })
		failed = waits()

		handle := detach(t, a)
		require.ErrorIs(t, <-failed, locktable.ErrNotRunning)
		require.Empty(t, inspect(t, other).Waiting)
		requireHeld(t, other, map[string]uint64{"mine": mine.Token(), "theirs": theirs.Token()})
		b := resume(t, store, handle)
		require.True(t, resumed(t, b)[0].Valid())
	})
}

// A write that is still under way when the member is handed over could ask for something beside the
// next process. So there is no handle before another write has made it void.
func TestDetachAfterAWriteOfUnknownOutcome(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		own := alone(store)
		a := start(t, own)
		acquire(t, a.Lock("x"))
		before, err := store.Store.Get(t.Context(), key)
		require.NoError(t, err)
		lost := false
		own.set(func(op, of string) error {
			if op == "put" && of == key && !lost {
				lost = true // it may land later
				return errLost
			}
			return nil
		}, nil)
		failed := make(chan error)
		go func() {
			_, err := a.Lock("y").Acquire(soon(t))
			failed <- err
		}()
		within(t, ttl, "its write has failed", func() bool { return own.count("put") == 2 })
		handle := detach(t, a)
		require.ErrorIs(t, <-failed, locktable.ErrNotRunning)
		after, err := store.Store.Get(t.Context(), key)
		require.NoError(t, err)
		require.NotEqual(t, before.ETag, after.ETag)
		b := resume(t, store, handle)
		require.Len(t, resumed(t, b), 1)
	})
}

// A context that ends while the observer hears of the end of the leases does not lose the handle.
func TestDetachBesideASlowObserver(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store, locktable.WithObserver(func(_ context.Context, e locktable.Event) {
			if e.Kind == locktable.EventReleased {
				time.Sleep(2 * time.Second)
			}
		}))
		x := acquire(t, a.Lock("x"))
		handle, err := a.Detach(testctx.Within(t, time.Second))
		require.NoError(t, err)
		require.Equal(t, x.Token(), resumed(t, resume(t, store, handle))[0].Token())
	})
}

// Who was killed while it gave a member's leases back may have a write under way that frees them.
// The next who resumes writes first, so that it lands nowhere.
func TestALateWriteOfAProcessBefore(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		x := acquire(t, a.Lock("x"))
		handle := detach(t, a)
		before, err := store.Store.Get(t.Context(), key)
		require.NoError(t, err)
		b := resume(t, store, handle)
		lease := resumed(t, b)[0]
		tab, err := tables.Decode(before.Body)
		require.NoError(t, err)
		for n := range tab.Members() {
			tab.Leave(n)
		}
		tab.Finish("late", 0)
		_, err = store.Store.PutIfMatch(t.Context(), key, tab.Encode(), before.ETag)
		require.ErrorIs(t, err, leasehold.ErrPreconditionFailed)
		time.Sleep(10 * ttl)
		require.True(t, lease.Valid())
		requireHeld(t, b, map[string]uint64{"x": x.Token()})
	})
}

// A member goes on after its TTL, unless somebody has evicted it. Then, and after a Break, a
// release or the removal of its object, Run and Leases say so, and nothing is written.
func TestResumeOfATermThatIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, store *counting, other *member, member, handle string)
		want error // nil: it goes on
	}{
		"after its TTL": {func(*testing.T, *counting, *member, string, string) { time.Sleep(10 * ttl) }, nil},
		"evicted": {func(t *testing.T, _ *counting, other *member, _, _ string) {
			acquire(t, other.Lock("x"))
		}, leasehold.ErrLost},
		"broken": {func(t *testing.T, _ *counting, other *member, member, _ string) {
			require.NoError(t, other.Break(t.Context(), member, 1))
		}, leasehold.ErrReleased},
		"freed": {func(t *testing.T, store *counting, _ *member, _, handle string) {
			between := resume(t, store, handle)
			resumed(t, between)
			require.NoError(t, between.stop())
		}, leasehold.ErrLost},
		"its object is gone": {func(t *testing.T, store *counting, _ *member, member, _ string) {
			obj, err := store.Store.Get(t.Context(), key+".members/"+member)
			require.NoError(t, err)
			require.NoError(t, store.Store.DeleteIfMatch(t.Context(), key+".members/"+member, obj.ETag))
		}, leasehold.ErrLost},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newCounting()
			a, other := start(t, store), start(t, store)
			x := acquire(t, a.Lock("x"))
			if c.want == nil {
				require.NoError(t, other.stop()) // nobody looks
			}
			handle := detach(t, a)
			c.end(t, store, other, a.MemberName(), handle)
			store.forget()
			b := resume(t, store, handle)
			b.fails = c.want != nil
			leases, err := b.Leases(soon(t))
			if c.want == nil {
				require.NoError(t, err)
				require.True(t, leases[0].Valid())
				require.Equal(t, x.Token(), leases[0].Token())
				return
			}
			require.ErrorIs(t, err, c.want)
			require.Empty(t, leases)
			require.ErrorIs(t, b.stop(), c.want)
			require.Zero(t, store.countOf("put", key+".members/"+a.MemberName()))
			_, err = b.Leases(soon(t))
			require.ErrorIs(t, err, c.want)
		})
	}
}

// A lease whose row was edited away meanwhile is lost, also if the table is an older one, or gone.
// The others go on, and tokens do not fall.
func TestResumeInATableThatHasChanged(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		acquire(t, a.Lock("x"))
		old, err := store.Store.Get(t.Context(), key)
		require.NoError(t, err)
		for _, name := range []string{"1", "2", "3", "4"} {
			require.NoError(t, acquire(t, a.Lock(name)).Release(t.Context()))
		}
		y := acquire(t, a.Lock("y"))
		handle := detach(t, a)
		overwrite(t, store, old.Body)
		var d diary
		tab, err := locktable.Resume(store, handle, locktable.WithLogger(silent), locktable.WithObserver(d.note))
		require.NoError(t, err)
		b := run(t, tab)
		leases := resumed(t, b)
		require.Equal(t, []string{"acquired x", "acquired y", "lost y"}, d.all(), "each end has its beginning")
		require.Len(t, leases, 2)
		require.True(t, leases[0].Valid())
		require.False(t, leases[1].Valid())
		require.ErrorIs(t, context.Cause(leases[1].Context()), leasehold.ErrLost)
		require.ErrorIs(t, leases[1].Release(t.Context()), leasehold.ErrLost)
		require.Greater(t, acquire(t, b.Lock("y")).Token(), y.Token())
	})
}

// Of two processes that have the handle, the last one has the leases. The other notices at its next
// renewal, and frees nothing then.
func TestAHandleThatIsUsedTwice(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		x := acquire(t, a.Lock("x"))
		handle := detach(t, a)
		b := resume(t, store, handle)
		first := resumed(t, b)[0]
		c := resume(t, store, handle)
		second := resumed(t, c)[0]
		within(t, ttl/3+time.Second, "the first is lost", func() bool { return !first.Valid() })
		require.ErrorIs(t, context.Cause(first.Context()), leasehold.ErrLost)
		require.ErrorIs(t, first.Release(t.Context()), leasehold.ErrLost)
		b.stop()
		time.Sleep(10 * ttl)
		require.True(t, second.Valid())
		requireHeld(t, c, map[string]uint64{"x": x.Token()})
	})
}

// A resumed term that is lost ends as any other, and the member takes a new one.
func TestAResumedTermIsLost(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, other := start(t, store), start(t, store)
		acquire(t, a.Lock("x"))
		b := resume(t, store, detach(t, a))
		lease := resumed(t, b)[0]
		err := lease.Do(t.Context(), func(ctx context.Context, _ *locktable.Lease) error {
			require.NoError(t, b.Check(nil))
			require.NoError(t, other.Break(t.Context(), a.MemberName(), 1))
			<-ctx.Done()
			require.ErrorContains(t, b.Check(nil), "still runs")
			return nil
		})
		require.ErrorIs(t, err, leasehold.ErrLost)
		require.True(t, acquire(t, b.Lock("y")).Valid())
		terms := make(map[string]uint64)
		for _, m := range inspect(t, other).Members {
			terms[m.Name] = max(terms[m.Name], m.Token)
		}
		require.Equal(t, map[string]uint64{a.MemberName(): 2, other.MemberName(): 1}, terms)
	})
}

// A store that fails is tried again, until Run is to end. The handle is as good as before then.
func TestResumeWhileTheStoreFails(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		acquire(t, a.Lock("x"))
		handle := detach(t, a)
		own := alone(store)
		own.set(func(string, string) error { return errors.New("503") }, nil)
		b := resume(t, own, handle)
		time.Sleep(ttl / 2)
		ctx := testctx.Within(t, time.Second)
		_, err := b.Leases(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		c := resume(t, own, handle)
		require.NoError(t, c.stop())
		_, err = c.Leases(soon(t))
		require.ErrorIs(t, err, locktable.ErrNotRunning)
		own.set(nil, nil)
		require.True(t, resumed(t, b)[0].Valid())
	})
}

// A Run that the store has refused for good leaves the handle as good as before. The next Run goes
// on with it, and with its leases.
func TestResumeAfterARunThatWasRefused(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		x := acquire(t, a.Lock("x"))
		own := alone(store)
		own.set(func(string, string) error { return errDenied }, nil)
		b := resume(t, own, detach(t, a))
		b.fails = true
		_, err := b.Leases(soon(t))
		require.ErrorIs(t, err, errDenied)
		require.ErrorIs(t, b.stop(), errDenied)
		_, err = b.Leases(soon(t))
		require.ErrorIs(t, err, errDenied)
		own.set(nil, nil)
		b = run(t, b.Table)
		synctest.Wait()
		lease := resumed(t, b)[0]
		require.Equal(t, x.Token(), lease.Token())
		time.Sleep(10 * ttl)
		require.True(t, lease.Valid())
	})
}

// Check and Leases tell why a term cannot be resumed. Check does not take the outage for a second
// process of the name.
func TestCheckWhileATermCannotBeResumed(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, own, err503 := start(t, store), alone(store), errors.New("503")
		acquire(t, a.Lock("x"))
		own.set(func(string, string) error { return err503 }, nil)
		b := resume(t, own, detach(t, a))
		time.Sleep(2*ttl - time.Second)
		require.NoError(t, b.Check(nil))
		time.Sleep(2 * ttl)
		require.ErrorIs(t, b.Check(nil), err503)
		_, err := b.Leases(testctx.Within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, err503)
		own.set(nil, nil)
		resumed(t, b)
		require.NoError(t, b.Check(nil))
	})
}

// A handle is checked before a request is sent. No error has the secret.
func TestWhatIsNoHandleOfATable(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		acquire(t, a.Lock("x"))
		handle := detach(t, a)
		lock, err := leasehold.NewLock(store, "lock")
		require.NoError(t, err)
		lease, err := lock.TryAcquire(t.Context())
		require.NoError(t, err)
		store.forget()
		for text, says := range map[string]string{
			"":                           "cut short or changed",
			handle[:len(handle)-1]:       "cut short or changed",
			handle + "A":                 "cut short or changed",
			strings.ToLower(handle):      "cut short or changed",
			"2" + handle[1:]:             "cut short or changed",
			handle[:29]:                  "cut short or changed",
			handle[:27] + "." + "AAAA":   "cut short or changed",
			lease.Handle():               "use Lock.Resume",
			lease.Handle() + handle[28:]: "cut short or changed",
		} {
			_, err := locktable.Resume(store, text)
			require.ErrorIs(t, err, leasehold.ErrPermanent, text)
			require.ErrorContains(t, err, says, text)
			require.NotContains(t, err.Error(), handle[5:20])
		}
		_, err = lock.Resume(t.Context(), handle)
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "locktable.Resume")
		require.Empty(t, store.requests)
		require.NoError(t, lease.Release(t.Context()))
		b := resume(t, store, handle)
		resumed(t, b)
		leases, err := start(t, store).Leases(t.Context())
		require.NoError(t, err)
		require.Empty(t, leases)
		time.Sleep(time.Second) // until the store has answered Run
	})
}
