package leasehold_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// tearing is a store whose next read is torn: it returns the body of one version with the ETag of another.
type tearing struct {
	leasehold.Store
	etag atomic.Pointer[string] // of the next read
}

func (s *tearing) Get(ctx context.Context, key string) (leasehold.Object, error) {
	obj, err := s.Store.Get(ctx, key)
	if etag := s.etag.Swap(nil); etag != nil {
		obj.ETag = *etag
	}
	return obj, err
}

// A lease that leans on a session is not lost because a look at its lock was torn.
func TestATornReadCostsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tearing{Store: leasehold.NewMemStore()}
		session, stop := runSession(t, store, "sessions/a")
		lock := leaningLock(t, session, "locks/a")
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		before, err := store.Get(t.Context(), "locks/a")
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		lease, err = lock.Acquire(t.Context())
		require.NoError(t, err)
		store.etag.Store(&before.ETag)
		require.NoError(t, lease.Renew(t.Context()))
		require.Nil(t, store.etag.Load())
		require.True(t, lease.Valid())
		require.NoError(t, lease.Commit(t.Context(), []byte("x")))
		require.NoError(t, lease.Release(t.Context()))
		stop()
	})
}

// A torn read shows an object that is unchanged as another version. A write over it that was given up may then still land.
func TestATornReadProvesNoChange(t *testing.T) {
	ghost := &fault{apply: true, later: 12 * time.Second, err: errReset}
	for what, faults := range map[string]struct{ puts, gets []*fault }{
		"after an acquisition":       {puts: []*fault{ghost}, gets: []*fault{nil}},
		"after a try to free a lock": {puts: []*fault{ghost, {err: leasehold.ErrPreconditionFailed}}, gets: []*fault{{err: errReset}, nil}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := leasehold.NewMemStore()
				other, stopOther := heldUnder(t, mem, sessionB)
				rival := leaningLock(t, other, lockX)
				lease, err := rival.Acquire(t.Context())
				require.NoError(t, err)
				before, err := mem.Get(t.Context(), lockX)
				require.NoError(t, err)
				require.NoError(t, lease.Release(t.Context()))

				torn := &tearing{Store: mem}
				conn := &keyFaults{Store: torn}
				session, stop := heldUnder(t, conn, sessionA)
				ctx, giveUp := context.WithCancel(t.Context())
				var mu sync.Mutex // a session works on several goroutines
				written := false
				conn.set(func(op, key string) (f *fault) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case key != lockX:
					case op == "put" && len(faults.puts) > 0:
						written = true
						giveUp()
						f, faults.puts = faults.puts[0], faults.puts[1:]
					case op == "get" && written && len(faults.gets) > 0:
						f, faults.gets = faults.gets[0], faults.gets[1:]
						if len(faults.gets) == 0 {
							torn.etag.Store(&before.ETag)
						}
					}
					return f
				})
				_, err = leaningLock(t, session, lockX).TryAcquire(ctx)
				require.Error(t, err)
				time.Sleep(2 * sessionTTL)
				mu.Lock()
				require.Empty(t, faults.gets)
				mu.Unlock()
				require.Nil(t, torn.etag.Load(), "the read was torn")
				require.True(t, session.Held())
				lease, err = rival.TryAcquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, lease.Release(t.Context()))
				stop()
				stopOther()
			})
		})
	}
}
