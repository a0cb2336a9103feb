package leasehold_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// stored is the record in the store.
func stored(t *testing.T, s leasehold.Store) leasehold.Record {
	t.Helper()
	var rec leasehold.Record
	obj, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, rec.UnmarshalJSON(obj.Body))
	return rec
}

// overwrite puts a record in the place of the one in the store, as an administrator does who restores an old version.
func overwrite(t *testing.T, s leasehold.Store, rec leasehold.Record) {
	t.Helper()
	body, err := json.Marshal(rec)
	require.NoError(t, err)
	obj, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	_, err = s.PutIfMatch(t.Context(), key, body, obj.ETag)
	require.NoError(t, err)
}

func TestIDsOfObjectsAndTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		lock := newLock(t, store)
		lease := acquire(t, lock)
		first := stored(t, store)
		require.Len(t, first.ObjectID, 16)
		require.Len(t, first.TermID, 16)
		require.NotEqual(t, first.ObjectID, first.TermID)
		kept := func(what string, ids leasehold.Record) {
			rec := stored(t, store)
			require.Equal(t, [2]string{ids.ObjectID, ids.TermID}, [2]string{rec.ObjectID, rec.TermID}, what)
		}
		require.NoError(t, lease.Renew(t.Context()))
		kept("renewal", first)
		require.NoError(t, lease.Commit(t.Context(), []byte("state")))
		kept("commit", first)
		require.NoError(t, lease.Release(t.Context()))
		kept("release", first)

		acquire(t, lock)
		second := stored(t, store)
		require.Equal(t, first.ObjectID, second.ObjectID)
		require.NotEqual(t, first.TermID, second.TermID, "each term has its own, also of the same Lock")
		require.NoError(t, newLock(t, store).Break(t.Context(), 2))
		kept("break", second)
		time.Sleep(time.Minute)

		lease = acquire(t, newLock(t, store))
		require.Equal(t, first.ObjectID, stored(t, store).ObjectID, "another Lock keeps it")
		require.NoError(t, lease.Release(t.Context()))

		foreign := stored(t, store)
		foreign.ObjectID, foreign.TermID = "", "" // a client that knows only two members
		overwrite(t, store, foreign)
		lease = acquire(t, newLock(t, store))
		require.NotEmpty(t, stored(t, store).ObjectID)
		require.NotEqual(t, first.ObjectID, stored(t, store).ObjectID)
		require.NoError(t, lease.Release(t.Context()))

		obj, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, store.DeleteIfMatch(t.Context(), key, obj.ETag))
		before := obj.Body
		acquire(t, newLock(t, store))
		var rec leasehold.Record
		require.NoError(t, rec.UnmarshalJSON(before))
		require.NotEqual(t, rec.ObjectID, stored(t, store).ObjectID, "another object")
	})
}

// Somebody restores an object as it was in an earlier term, while another holds the lock. To the holder the lock is lost at its next
// renewal. Until then nobody may take it, also not whose term that was.
func TestARestoredVersionIsWaitedOut(t *testing.T) {
	for name, c := range map[string]struct {
		opts     []leasehold.Option
		ownWrite bool // the version is of a term of that Lock itself, not of an earlier life of it
		looks    bool // it has seen the other's term
	}{
		"released before":               {nil, true, false},
		"another's term was seen":       {nil, true, true},
		"of an earlier life, reclaimed": {pod, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := leasehold.NewMemStore()
				store := &faultStore{Store: mem}
				lock := newLock(t, store, c.opts...)
				former := lock
				if !c.ownWrite {
					former = newLock(t, mem, c.opts...)
				}
				lease := acquire(t, former)
				old := stored(t, mem)
				require.NoError(t, lease.Release(t.Context()))

				holder := acquire(t, newLock(t, mem))
				if c.looks {
					_, err := lock.TryAcquire(t.Context())
					require.ErrorIs(t, err, leasehold.ErrHeld)
				}
				overwrite(t, mem, old)
				for range 3 {
					store.count()
					_, err := lock.TryAcquire(t.Context())
					require.ErrorIs(t, err, leasehold.ErrHeld)
					require.True(t, holder.Valid())
					require.Contains(t, store.count(), "get", "the restored version is not known by heart")
				}
				began := time.Now()
				next, err := lock.Acquire(t.Context())
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(began), 15*time.Second, "a TTL")
				require.False(t, holder.Valid())
				require.ErrorContains(t, context.Cause(holder.Context()), "taken over")
				require.NoError(t, next.Release(t.Context()))
			})
		})
	}
}

// An object whose history was replaced may show the token of a running term. Its term is another.
func TestATermWithAnotherIDIsAnother(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*leasehold.Record)
		want string
	}{
		"held":                    {func(r *leasehold.Record) { r.TermID = "another" }, "taken over"},
		"released":                {func(r *leasehold.Record) { r.TermID, r.ExpiresAt = "another", time.Time{} }, "taken over"},
		"the same, released":      {func(r *leasehold.Record) { r.ExpiresAt = time.Time{} }, "broken"},
		"released by an old tool": {func(r *leasehold.Record) { r.TermID, r.ExpiresAt = "", time.Time{} }, "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := leasehold.NewMemStore()
				lease := acquire(t, newLock(t, store))
				rec := stored(t, store)
				rec.Nonce = "x"
				c.edit(&rec)
				overwrite(t, store, rec)
				require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
				require.ErrorContains(t, context.Cause(lease.Context()), c.want)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		seen := 0
		for r, err := range lock.Watch(ctx) {
			require.NoError(t, err)
			if seen++; seen == 2 {
				require.Equal(t, "another", r.TermID)
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
