package fenced_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/fencedtest"
)

// cuttable is a store of locks that can be cut off.
type cuttable struct {
	leasehold.Store
	cut atomic.Bool
}

func (c *cuttable) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if c.cut.Load() {
		return leasehold.Object{}, errors.New("cut off")
	}
	return c.Store.Get(ctx, key)
}

func (c *cuttable) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if c.cut.Load() {
		return "", errors.New("cut off")
	}
	return c.Store.PutIfMatch(ctx, key, body, etag)
}

// TestTokensOfALockUnderSessions moves a lock between the sessions of two processes: by a crash, and by a graceful end.
func TestTokensOfALockUnderSessions(t *testing.T) {
	onBoth(t, func(t *testing.T, f *s3Store) {
		mem := leasehold.NewMemStore()
		process := func(store leasehold.Store, name string) (lock *leasehold.Lock, end func()) {
			s, err := leasehold.NewSession(store, "sessions/"+name, leasehold.WithLogger(nil))
			require.NoError(t, err)
			lock, err = s.Lock("leader")
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			over := make(chan struct{})
			go func() {
				defer close(over)
				assert.NoError(t, s.Run(ctx))
			}()
			end = func() {
				cancel()
				<-over
			}
			t.Cleanup(end)
			return lock, end
		}
		lead := func(lock *leasehold.Lock) *leasehold.Lease {
			lease, err := lock.Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, f.Seal(lease.Context(), lease.Token(), object))
			return lease
		}
		put := func(ctx context.Context, lease *leasehold.Lease, body string) error {
			return f.Put(ctx, lease.Token(), object, strings.NewReader(body))
		}
		connection := &cuttable{Store: mem}
		a, _ := process(connection, "a")
		b, endB := process(mem, "b")
		first := lead(a)
		require.NoError(t, put(first.Context(), first, "of a"))

		connection.cut.Store(true)
		second := lead(b)
		require.Greater(t, second.Token(), first.Token())
		require.ErrorIs(t, put(first.Context(), first, "late"), context.Canceled, "the lease has ended with its session")
		require.ErrorIs(t, put(t.Context(), first, "late"), fenced.ErrFenced)
		require.NoError(t, put(second.Context(), second, "of b"))

		connection.cut.Store(false)
		time.Sleep(time.Minute) // the session of a heals
		endB()
		third := lead(a)
		require.Greater(t, third.Token(), second.Token())
		require.ErrorIs(t, put(t.Context(), second, "late"), fenced.ErrFenced)
		body, _ := fencedtest.Read(t, f.Store, object)
		require.Equal(t, "of b", body)
		require.NoError(t, third.Release(t.Context()))
	})
}
