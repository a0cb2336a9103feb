package k8slock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/k8slock"
)

var errUnplugged = errors.New("unplugged")

// ageless answers requests without ages.
func ageless(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
	o, err := r.Send(ctx)
	o.Age = 0
	return o, err
}

// asked is the record that client-go writes when it acquires or renews.
func asked(lock *k8slock.Lock, d time.Duration) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{
		HolderIdentity:       lock.Identity(),
		LeaseDurationSeconds: int(d / time.Second),
	}
}

var release = resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}

func TestNewRefusesBadInput(t *testing.T) {
	mem := leasehold.NewMemStore()
	slow := teststore.New(mem, nil)
	slow.Info.MinTTL = 6 * time.Second
	for _, c := range []struct {
		name string
		new  func() (*k8slock.Lock, error)
		want string
	}{
		{"no store", func() (*k8slock.Lock, error) { return k8slock.New(nil, key, time.Minute) }, "store is nil"},
		{"key", func() (*k8slock.Lock, error) { return k8slock.New(mem, "a//b", time.Minute) }, "empty path segment"},
		{
			"too short",
			func() (*k8slock.Lock, error) { return k8slock.New(mem, key, 999*time.Millisecond) },
			"whole seconds",
		},
		{
			"fraction",
			func() (*k8slock.Lock, error) { return k8slock.New(mem, key, 1500*time.Millisecond) },
			"whole seconds",
		},
		{
			"below the store's minimum",
			func() (*k8slock.Lock, error) { return k8slock.New(slow, key, 5*time.Second) },
			"below 6s",
		},
		{"option", func() (*k8slock.Lock, error) {
			return k8slock.New(mem, key, time.Minute, leasehold.WithSafetyMargin(time.Minute))
		}, "safety margin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lock, err := c.new()
			require.ErrorContains(t, err, c.want)
			require.Nil(t, lock)
		})
	}
}

func TestConfigIsWhatTheConstantsSay(t *testing.T) {
	cfg := newLock(t, leasehold.NewMemStore(), k8slock.LeaseDuration).Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}})
	require.Equal(t, k8slock.LeaseDuration, cfg.LeaseDuration)
	require.Equal(t, k8slock.RenewDeadline, cfg.RenewDeadline)
	require.Equal(t, k8slock.RetryPeriod, cfg.RetryPeriod)
	for d := time.Second; d < 100*time.Second; d += time.Second {
		cfg := newLock(t, leasehold.NewMemStore(), d).Config(cfg.Callbacks)
		_, err := leaderelection.NewLeaderElector(cfg)
		require.NoError(t, err, d)
	}
}

func TestRecordAsClientGoSeesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, mem := t.Context(), leasehold.NewMemStore()
		lock := newLock(t, mem, time.Minute, leasehold.WithHolder("pod-1"))
		other := newLock(t, mem, time.Minute, leasehold.WithHolder("pod-2"))
		require.Equal(t, "pod-1", lock.Identity())
		require.Equal(t, key, lock.Describe())

		_, _, err := lock.Get(ctx)
		require.True(t, apierrors.IsNotFound(err), "client-go creates what is not found: %v", err)
		require.ErrorIs(t, err, leasehold.ErrNotExist)

		require.NoError(t, lock.Create(ctx, asked(lock, time.Minute)))
		began := time.Now()
		require.EqualValues(t, 1, lock.Token())
		err = other.Create(ctx, asked(other, time.Minute))
		require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.ErrorContains(t, err, `"pod-1" with token 1`)
		require.Zero(t, other.Token())

		seen := map[string]bool{}
		for range 3 { // client-go's fast path: Update without a Get
			ler, raw, err := other.Get(ctx)
			require.NoError(t, err)
			require.Equal(t, "pod-1", ler.HolderIdentity)
			require.Equal(t, 60, ler.LeaseDurationSeconds)
			require.WithinDuration(t, began, ler.AcquireTime.Time, time.Millisecond)
			require.WithinDuration(t, time.Now(), ler.RenewTime.Time, time.Millisecond)
			require.Equal(t, 0, ler.LeaderTransitions)
			require.False(t, seen[string(raw)], "client-go detects a renewal by different bytes: %s", raw)
			seen[string(raw)] = true
			require.NoError(t, lock.Update(ctx, asked(lock, time.Minute)))
			require.EqualValues(t, 1, lock.Token(), "constant for the term")
		}
		require.ErrorIs(t, other.Update(ctx, asked(other, time.Minute)), leasehold.ErrHeld)

		require.NoError(t, lock.Update(ctx, release))
		require.Zero(t, lock.Token())
		require.ErrorIs(t, lock.Update(ctx, release), leasehold.ErrReleased)
		ler, _, err := other.Get(ctx)
		require.NoError(t, err)
		require.Empty(t, ler.HolderIdentity)
		require.NoError(t, other.Update(ctx, asked(other, time.Minute)))
		require.EqualValues(t, 2, other.Token(), "the token survives a release")
		ler, _, err = lock.Get(ctx)
		require.NoError(t, err)
		require.Equal(t, "pod-2", ler.HolderIdentity)
		require.Equal(t, 1, ler.LeaderTransitions)
	})
}

func TestForeignRecords(t *testing.T) {
	for body, want := range map[string]string{
		`{"expires_at": 4000000000}`:             "unknown",
		`{"expires_at": 4000000000, "token": 7}`: "unknown",
		`{"expires_at": 0, "token": 7}`:          "",
	} {
		ctx, mem := t.Context(), leasehold.NewMemStore()
		_, err := mem.PutIfNoneMatch(ctx, key, []byte(body))
		require.NoError(t, err)
		lock := newLock(t, mem, time.Minute)
		ler, _, err := lock.Get(ctx)
		require.NoError(t, err)
		require.Equal(t, want, ler.HolderIdentity, body)
		require.Equal(t, 60, ler.LeaseDurationSeconds)
		err = lock.Update(ctx, asked(lock, time.Minute))
		if want == "" {
			require.NoError(t, err)
			require.EqualValues(t, 8, lock.Token())
		} else {
			require.ErrorIs(t, err, leasehold.ErrHeld)
		}
	}
}

func TestErrorsReachClientGoAsTheyAre(t *testing.T) {
	ctx, mem := t.Context(), leasehold.NewMemStore()
	denied := fmt.Errorf("%w: they need s3:GetObject", leasehold.ErrPermanent)
	store := teststore.New(mem, nil)
	store.Fail(denied, teststore.Get)
	lock := newLock(t, store, time.Minute)
	_, _, err := lock.Get(ctx)
	require.False(t, apierrors.IsNotFound(err))
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, "s3:GetObject")
	err = lock.Create(ctx, asked(lock, time.Minute))
	require.False(t, apierrors.IsAlreadyExists(err))
	require.ErrorIs(t, err, leasehold.ErrPermanent)

	_, err = mem.PutIfNoneMatch(ctx, key, []byte("my diary"))
	require.NoError(t, err)
	_, _, err = newLock(t, mem, time.Minute).Get(ctx)
	require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
	require.False(t, apierrors.IsNotFound(err), "otherwise client-go would overwrite it")
}

func TestElectorThatDoesNotFitIsRefused(t *testing.T) {
	c := teststore.New(leasehold.NewMemStore(), nil)
	lock := newLock(t, c, time.Minute)
	err := lock.Create(t.Context(), asked(lock, 15*time.Second))
	require.ErrorContains(t, err, "LeaseDuration of 1m0s, but the elector has 15 s")
	err = lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "else", LeaseDurationSeconds: 60})
	require.ErrorContains(t, err, "use Lock.Identity")
	require.Zero(t, c.Sent(), "the refusals sent requests")
}

func TestTurnsOfLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref := leasehold.NewMemStore(), &referee{t: t}
		var all []*candidate
		for i := range 4 {
			all = append(all, stand(t, ref, fmt.Sprint("pod-", i), newLock(t, mem, k8slock.LeaseDuration)))
		}
		for want := range uint64(4) {
			began := time.Now()
			leader, token := next(t, 30*time.Second, all...)
			require.Equal(t, want+1, token)
			require.LessOrEqual(t, time.Since(began), 22*time.Second, "the wait between two polls of client-go")
			for _, c := range all {
				if c != leader {
					require.Zero(t, c.lock.Token())
				}
			}
			time.Sleep(10 * time.Minute)
			require.Equal(t, token, leader.lock.Token(), "still the same term")
			leader.stop()
			receive(t, leader.stopped, time.Minute, "the elector's end")
			cause := receive(t, leader.ended, time.Minute, "the end of leading")
			require.True(t, errors.Is(cause, context.Canceled) || errors.Is(cause, leasehold.ErrReleased),
				"client-go cancels and then releases: %v", cause)
			require.Zero(t, leader.lock.Token())
		}
		require.Len(t, ref.terms, 4)
	})
}

func TestCrash(t *testing.T) {
	for name, do := range map[string]teststore.Do{"with ages": nil, "without ages": ageless} {
		bubble.Run(t, name, func(t *testing.T) {
			mem, ref := leasehold.NewMemStore(), &referee{t: t}
			plug := teststore.New(mem, do)
			first := stand(t, ref, "first", newLock(t, plug, k8slock.LeaseDuration))
			_, token := next(t, time.Second, first)
			second := stand(t, ref, "second", newLock(t, teststore.New(mem, do), k8slock.LeaseDuration))
			time.Sleep(10*time.Minute + time.Second)
			require.Empty(t, second.started)

			plug.Fail(errUnplugged)
			cut := time.Now()
			cause := receive(t, first.ended, 2*k8slock.LeaseDuration, "the end of leading")
			require.Less(t, time.Since(cut), k8slock.LeaseDuration)
			require.True(t, errors.Is(cause, leasehold.ErrLost) || errors.Is(cause, context.Canceled), "%v", cause)
			_, successor := next(t, 2*time.Minute, second)
			require.Greater(t, successor, token)
			require.Greater(t, time.Since(cut), k8slock.LeaseDuration-k8slock.RetryPeriod)
			require.Less(t, time.Since(cut), 100*time.Second)
			receive(t, first.stopped, time.Minute, "the elector's end")
		})
	}
}

func TestNewcomerNeedNotWaitIfTheStoreReportsAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref := testopt.NewMemStore(false, true), &referee{t: t}
		first := newLock(t, mem, time.Minute)
		require.NoError(t, first.Create(t.Context(), asked(first, time.Minute)))
		time.Sleep(62 * time.Second) // it has crashed
		began := time.Now()
		_, token := next(t, time.Minute, stand(t, ref, "newcomer", newLock(t, mem, time.Minute)))
		require.EqualValues(t, 2, token)
		require.Less(t, time.Since(began), time.Second, "client-go alone would wait a lease duration")
	})
}

func TestLostTermIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref := leasehold.NewMemStore(), &referee{t: t}
		lock := newLock(t, mem, k8slock.LeaseDuration)
		c := stand(t, ref, "pod", lock)
		_, token := next(t, time.Second, c)
		require.EqualValues(t, 1, token)
		lease := lock.Lease()
		admin, err := leasehold.NewLock(mem, key)
		require.NoError(t, err)
		require.NoError(t, admin.Break(t.Context(), token))

		broken := time.Now()
		require.ErrorIs(t, receive(t, c.ended, k8slock.LeaseDuration, "the end of leading"), leasehold.ErrLost)
		require.LessOrEqual(t, time.Since(broken), k8slock.RetryPeriod+time.Second,
			"the context ends at the next renewal, not a renew deadline later")
		require.Zero(t, lock.Token())
		require.False(t, lease.Valid())
		receive(t, c.stopped, k8slock.LeaseDuration, "the elector's end")
		require.LessOrEqual(t, time.Since(broken), k8slock.RetryPeriod+k8slock.RenewDeadline+time.Second)
		rec, err := admin.Inspect(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, rec.Token, "client-go tried to continue the lost term and must not succeed")

		again := stand(t, ref, "pod", lock)
		_, token = next(t, time.Second, again)
		require.EqualValues(t, 2, token)
	})
}

func TestLeaseRunsOutBelowAStuckElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore(), time.Minute)
		require.NoError(t, lock.Create(t.Context(), asked(lock, time.Minute)))
		lock.RecordEvent("became leader")
		time.Sleep(49 * time.Second) // client-go did not renew
		require.Zero(t, lock.Token())
		require.ErrorIs(t, lock.Update(t.Context(), asked(lock, time.Minute)), leasehold.ErrLost)
		require.ErrorIs(t, lock.Update(t.Context(), release), leasehold.ErrLost)
		require.False(t, apierrors.IsConflict(lock.Update(t.Context(), release)),
			"client-go would repeat a conflict without a pause")
		ler, _, err := lock.Get(t.Context())
		require.NoError(t, err)
		require.Equal(t, lock.Identity(), ler.HolderIdentity)
		lock.RecordEvent("stopped leading")
		ler, _, err = lock.Get(t.Context())
		require.NoError(t, err)
		require.Empty(t, ler.HolderIdentity, "its own leftover looks free to client-go")
		require.True(t, apierrors.IsConflict(lock.Update(t.Context(), asked(lock, time.Minute))),
			"but it cannot be acquired before the safety margin is over")
		time.Sleep(11 * time.Second)
		require.NoError(t, lock.Update(t.Context(), asked(lock, time.Minute)))
		require.EqualValues(t, 2, lock.Token())
	})
}

func TestTwoProcessesOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref := leasehold.NewMemStore(), &referee{t: t}
		name := leasehold.WithHolder("operator")
		first := stand(t, ref, "first", newLock(t, mem, time.Minute, name))
		next(t, time.Second, first)
		second := stand(t, ref, "second", newLock(t, mem, time.Minute, name))
		time.Sleep(10 * time.Minute)
		require.Empty(t, second.started, "with client-go's own locks both would lead")
		require.NotZero(t, first.lock.Token())
		require.Zero(t, second.lock.Token())
		first.stop()
		next(t, 30*time.Second, second)
	})
}

func TestLeaseholdsOwnLockIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref := leasehold.NewMemStore(), &referee{t: t}
		plain, err := leasehold.NewLock(mem, key)
		require.NoError(t, err)
		lease, err := plain.TryAcquire(t.Context())
		require.NoError(t, err)
		c := stand(t, ref, "pod", newLock(t, mem, time.Minute))
		time.Sleep(10 * time.Minute)
		require.Empty(t, c.started)
		require.NoError(t, lease.Release(t.Context()))
		_, token := next(t, 30*time.Second, c)
		require.EqualValues(t, 2, token)
		_, err = plain.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		rec, err := plain.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.lock.Identity(), rec.Holder)
	})
}

func TestRequestsPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref := leasehold.NewMemStore(), &referee{t: t}
		leading, waiting := teststore.New(mem, nil), teststore.New(mem, nil)
		next(t, time.Second, stand(t, ref, "leader", newLock(t, leading, k8slock.LeaseDuration)))
		stand(t, ref, "waiting", newLock(t, waiting, k8slock.LeaseDuration))
		leading.Forget()
		const hours = 10
		time.Sleep(hours * time.Hour)
		writes := float64(leading.Sent(teststore.Puts...)) / hours / 60
		reads := float64(waiting.Sent(teststore.Get)) / hours / 60
		t.Logf("a minute: leader %.2f writes; candidate %.2f reads", writes, reads)
		require.InDelta(t, 6, writes, 0.1)
		require.Zero(t, leading.Sent(teststore.Get))
		require.InDelta(t, 3.75, reads, 0.3)
		require.Zero(t, waiting.Sent(teststore.Puts...))
	})
}

func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plug, ref := teststore.New(leasehold.NewMemStore(), nil), &referee{t: t}
		lock := newLock(t, plug, time.Minute)
		require.NoError(t, lock.Check(nil))
		time.Sleep(time.Hour)
		require.NoError(t, lock.Check(nil), "no request was sent yet")
		plug.Fail(errUnplugged)
		c := stand(t, ref, "pod", lock)
		time.Sleep(119 * time.Second)
		require.NoError(t, lock.Check(nil))
		time.Sleep(time.Minute)
		require.ErrorContains(t, lock.Check(nil), "no answer from the store")
		require.ErrorIs(t, lock.Check(nil), errUnplugged)
		plug.Fail(nil)
		next(t, time.Minute, c)
		require.NoError(t, lock.Check(nil))
		c.stop()
		receive(t, c.stopped, k8slock.LeaseDuration, "the elector's end")
		time.Sleep(time.Hour)
		require.NoError(t, lock.Check(nil), "nobody sends requests any more")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := lock.Get(ctx)
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(time.Hour)
		require.NoError(t, lock.Check(nil), "a cancelled request says nothing about the store")
	})
}

// client-go tries for ever, whatever the error is, so only Check says that nobody can lead.
func TestCheckWhileNobodyCanLead(t *testing.T) {
	denied := fmt.Errorf("%w: they need s3:PutObject", leasehold.ErrPermanent)
	synctest.Test(t, func(t *testing.T) {
		ref, mem := &referee{t: t}, leasehold.NewMemStore()
		store := teststore.New(mem, nil)
		store.Fail(denied, teststore.Puts...) // as with credentials that may only read
		lock := newLock(t, store, k8slock.LeaseDuration)
		c := stand(t, ref, "pod", lock)
		time.Sleep(time.Minute)
		require.NoError(t, lock.Check(nil))
		time.Sleep(2 * time.Minute)
		require.ErrorIs(t, lock.Check(nil), leasehold.ErrPermanent)
		require.ErrorContains(t, lock.Check(nil), "they need s3:PutObject")

		other := stand(t, ref, "other", newLock(t, mem, k8slock.LeaseDuration))
		next(t, time.Minute, other)
		time.Sleep(time.Minute)
		require.NoError(t, lock.Check(nil), "another leads, so there is nothing to acquire")
		other.stop()
		receive(t, other.stopped, k8slock.LeaseDuration, "the elector's end")
		time.Sleep(3 * time.Minute)
		require.ErrorIs(t, lock.Check(nil), leasehold.ErrPermanent)

		store.Fail(nil)
		next(t, time.Minute, c)
		require.NoError(t, lock.Check(nil))
	})
	// A crashed holder has left its record, which client-go gets before each of its tries.
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		crashes, err := leasehold.NewLock(mem, key)
		require.NoError(t, err)
		lease, err := crashes.TryAcquire(t.Context())
		require.NoError(t, err)
		lease.Abandon()
		store := teststore.New(mem, nil)
		store.Fail(denied, teststore.Puts...)
		lock := newLock(t, store, k8slock.LeaseDuration)
		c := stand(t, &referee{t: t}, "pod", lock)
		time.Sleep(4 * time.Minute)
		require.ErrorIs(t, lock.Check(nil), leasehold.ErrPermanent)
		store.Fail(nil)
		next(t, time.Minute, c)
		require.NoError(t, lock.Check(nil))
	})
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		_, err := mem.PutIfNoneMatch(t.Context(), key, []byte("my diary"))
		require.NoError(t, err)
		lock := newLock(t, mem, k8slock.LeaseDuration)
		c := stand(t, &referee{t: t}, "pod", lock)
		time.Sleep(3 * time.Minute)
		require.ErrorIs(t, lock.Check(nil), leasehold.ErrCorruptRecord)
		c.stop()
		receive(t, c.stopped, k8slock.LeaseDuration, "the elector's end")
	})
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore(), time.Minute)
		c := stand(t, &referee{t: t}, "pod", lock, func(cfg *leaderelection.LeaderElectionConfig) {
			cfg.LeaseDuration = 2 * time.Minute // which the lock was not made for
		})
		time.Sleep(4 * time.Minute)
		require.ErrorContains(t, lock.Check(nil), "was made for a LeaseDuration of 1m0s")
		c.stop()
		receive(t, c.stopped, k8slock.LeaseDuration, "the elector's end")
	})
}

func TestCheckDuringARequestThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hears, mem := make(chan struct{}), leasehold.NewMemStore()
		store := teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Op == teststore.Get {
				<-hears // and does not honour ctx
			}
			return r.Send(ctx)
		})
		lock := newLock(t, store, k8slock.LeaseDuration)
		c := stand(t, &referee{t: t}, "pod", lock)
		time.Sleep(time.Minute)
		require.NoError(t, lock.Check(nil))
		time.Sleep(2 * time.Minute)
		require.ErrorContains(t, lock.Check(nil), "no answer from the store")
		require.ErrorContains(t, lock.Check(nil), "the request is still under way")
		close(hears)
		next(t, time.Minute, c)
		require.NoError(t, lock.Check(nil))
	})
}

func TestOnStartedLeadingOfATermThatIsOver(t *testing.T) {
	lock := newLock(t, leasehold.NewMemStore(), time.Minute)
	callback := lock.OnStartedLeading(func(context.Context, *leasehold.Lease) { t.Error("called") })
	callback(t.Context())
	require.NoError(t, lock.Create(t.Context(), asked(lock, time.Minute))) // the next term
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	callback(ctx)
}

func TestNamesOfOptionsInErrors(t *testing.T) {
	_, err := k8slock.New(leasehold.NewMemStore(), key, time.Minute, leasehold.WithHolder(strings.Repeat("x", 2000)))
	require.ErrorContains(t, err, "holder")
}

func TestNilArgumentsAreRefused(t *testing.T) {
	_, err := k8slock.New(leasehold.NewMemStore(), key, time.Minute, nil)
	require.ErrorContains(t, err, "Option is nil")
	lock := newLock(t, leasehold.NewMemStore(), time.Minute)
	_, err = leaderelection.NewLeaderElector(lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: lock.OnStartedLeading(nil),
		OnStoppedLeading: func() {},
	}))
	require.ErrorContains(t, err, "OnStartedLeading callback must not be nil")
}
