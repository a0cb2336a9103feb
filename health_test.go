package leasehold_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// A Lock for which somebody waits is healthy when an elector that waits is: not if the store
// answers, and yet lets nobody have the lock.
func TestCheckOfALockWhileNobodyCanLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		require.NoError(t, acquire(t, newLock(t, mem)).Release(t.Context()))
		ours, theirs := teststore.New(mem, nil), teststore.New(mem, nil)
		ours.Fail(leasehold.ErrConflict, teststore.Puts...)
		theirs.Fail(leasehold.ErrConflict, teststore.Puts...)
		lock := newLock(t, ours)
		elector, err := leasehold.NewElector(newLock(t, theirs), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wait := func(ctx context.Context) (ended chan error) {
			ended = make(chan error, 1)
			go func() {
				lease, err := lock.Acquire(ctx)
				if err == nil {
					err = lease.Release(context.WithoutCancel(ctx))
				}
				ended <- err
			}()
			return ended
		}
		short, stop := context.WithCancel(ctx)
		first, run := wait(short), make(chan error, 1)
		go func() { run <- elector.Run(ctx) }()
		healthy := func(want bool) {
			t.Helper()
			synctest.Wait()
			if want {
				require.NoError(t, elector.Check(nil))
				require.NoError(t, lock.Check(nil))
				return
			}
			require.Error(t, elector.Check(nil))
			require.ErrorContains(t, lock.Check(nil), "conflicting write")
		}
		time.Sleep(29 * time.Second)
		healthy(true)
		time.Sleep(2 * time.Second)
		healthy(false)

		stop()
		require.ErrorIs(t, <-first, context.Canceled)
		require.NoError(t, lock.Check(nil), "nobody waits")
		time.Sleep(10 * time.Minute)
		second := wait(ctx)
		time.Sleep(29 * time.Second)
		require.NoError(t, lock.Check(nil), "what failed before does not count")
		time.Sleep(2 * time.Second)
		healthy(false)

		other := newLock(t, mem, leasehold.WithTTL(time.Minute))
		lease := acquire(t, other)
		time.Sleep(time.Minute)
		healthy(true)
		lease.Abandon()
		time.Sleep(4 * time.Minute)
		healthy(false)
		mine, err := other.Resume(ctx, lease.Handle()) // the same term goes on, so no other has begun
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		healthy(true)

		ours.Fail(nil)
		theirs.Fail(nil)
		require.NoError(t, mine.Release(ctx))
		time.Sleep(10 * time.Minute)
		healthy(true)
		cancel()
		require.NoError(t, <-run)
		if err := <-second; err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}
