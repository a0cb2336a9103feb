package leasehold_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// A Break whose term is renewed before each attempt does not say that it is another term.
func TestBreakThatLosesItsRacesIsOfTheSameTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		lease := acquire(t, newLock(t, mem, leasehold.WithManualRenewal()))
		err := newLock(t, &raced{mem, func() { _ = lease.Renew(t.Context()) }}).Break(t.Context(), lease.Token())
		t.Log(err)
		require.NotErrorIs(t, err, leasehold.ErrPreconditionFailed, "it is that very term")
	})
}

// A watch of the same Lock does not make Run retry what cannot heal.
func TestRunBesideAWatchEndsOnAnUnsafeStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, unsafeStore{leasehold.NewMemStore()}, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		e, err := leasehold.NewElector(lock, leasehold.Callbacks{})
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range lock.Watch(ctx) {
			}
		})
		synctest.Wait()
		began := time.Now()
		err = e.Run(ctx)
		took := time.Since(began)
		cancel()
		wg.Wait()
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore, "after %v", took)
	})
}

func TestTheLastTokenIsRepairedByBreak(t *testing.T) {
	const last = 1<<53 - 1
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		live := newLock(t, store)
		require.NoError(t, acquire(t, live).Release(t.Context()))
		damage(t, store, fmt.Sprintf(`{"expires_at": 0, "token": %d}`, last))
		_, err := live.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
		require.ErrorContains(t, err, "Lock.Break")
		admin := newLock(t, store)
		require.Error(t, admin.Break(t.Context(), last+1))
		require.ErrorIs(t, admin.Break(t.Context(), 1), leasehold.ErrPreconditionFailed)
		text := logged(t, func() { require.NoError(t, admin.Break(t.Context(), last)) })
		require.Contains(t, text, "tokens start again from 1")
		lease := acquire(t, live)
		require.Equal(t, uint64(1), lease.Token())
		require.NoError(t, lease.Release(t.Context()))

		damage(t, store, fmt.Sprintf(`{"expires_at": 0, "token": %d}`, last-1))
		_, err = live.Inspect(t.Context())
		require.NoError(t, err)
		damage(t, store, `{"expires_at": 0, "token": 40}`) // repaired by hand
		require.Equal(t, uint64(41), acquire(t, live).Token())
	})
}

// damage overwrites the lock object by hand.
func damage(t *testing.T, s leasehold.Store, body string) {
	t.Helper()
	o, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	_, err = s.PutIfMatch(t.Context(), key, []byte(body), o.ETag)
	require.NoError(t, err)
}

func TestWatchTellsANewHolderWithAnOldToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		var holders []string
		go func() {
			for i, name := range []string{"alice", "bob", "bob"} { // whose second term has another time
				if i > 0 {
					o, _ := store.Get(context.Background(), key)
					_ = store.DeleteIfMatch(context.Background(), key, o.ETag)
				}
				acquire(t, newLock(t, store, leasehold.WithIdentity(name), leasehold.WithManualRenewal()))
				time.Sleep(10 * time.Second)
			}
			for _, name := range []string{"carol", "dave"} { // foreign clients that write no time
				damage(t, store, fmt.Sprintf(`{"expires_at": %d, "token": 1, "holder": %q}`,
					time.Now().Add(time.Hour).Unix(), name))
				time.Sleep(10 * time.Second)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for rec, err := range newLock(t, store).Watch(ctx) {
			require.NoError(t, err)
			require.Equal(t, uint64(1), rec.Token)
			holders = append(holders, rec.Holder)
		}
		require.Equal(t, []string{"alice", "bob", "bob", "carol", "dave"}, holders)
	})
}
