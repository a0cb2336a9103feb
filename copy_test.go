package leasehold

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/ctxmutex"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
)

// copied is l in a copy of its machine: all that it remembers, and nothing that one of the two
// learns later.
func copied(l *Lock) *Lock {
	r := newRegister(l.store, l.key, l.options, l.canary)
	r.tokens.seen = l.tokens.soFar()
	m := &l.memory
	r.memory.last, r.memory.refused, r.memory.sent = m.last, m.refused, slices.Clone(m.sent)
	c := &Lock{register: r, acquiring: ctxmutex.New()}
	if held := l.term.Load(); held != nil && held.valid() {
		t := &term{
			lock: r, token: held.token, writing: ctxmutex.New(), stored: held.stored, sent: held.sent,
			unconfirmed: slices.Clone(held.unconfirmed), forgotten: held.forgotten,
		}
		t.start(context.Background())
		c.term.Store(t)
	}
	return c
}

// mute is a store that gives no answer while it is on, and carries out writes.
type mute struct {
	Store
	on bool
}

var errMute = errors.New("no answer")

func (s *mute) Get(ctx context.Context, key string) (Object, error) {
	if s.on {
		return Object{}, errMute
	}
	return s.Store.Get(ctx, key)
}

func (s *mute) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	etag, err := s.Store.PutIfMatch(ctx, key, body, etag)
	if s.on {
		return "", errMute
	}
	return etag, err
}

// A snapshot of a machine is started twice, at any time but while it holds the lock. The two copies
// are two candidates as any others, although both remember the same writes and may count alike.
func TestTwoCopiesOfAMachineDoNotBothLead(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *Lock, *mute){
		"after NewLock": func(*testing.T, *Lock, *mute) {},
		"after a term": func(t *testing.T, l *Lock, _ *mute) {
			lease, err := l.TryAcquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		},
		"after an acquisition without an answer, which has landed": func(t *testing.T, l *Lock, s *mute) {
			lease, err := l.TryAcquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
			s.on = true
			_, err = l.TryAcquire(t.Context())
			require.ErrorIs(t, err, errMute)
			s.on = false
		},
	} {
		for _, reclaim := range []bool{false, true} {
			bubble.Run(t, name, func(t *testing.T) {
				store := &mute{Store: NewMemStore()}
				opts := []Option{WithLogger(slog.New(slog.DiscardHandler)), WithHolder("vm")}
				if reclaim {
					opts = append(opts, WithReclaim())
				}
				one, err := NewLock(store, "k", opts...)
				require.NoError(t, err)
				before(t, one, store)
				other := copied(one)
				for range 3 {
					one, other = other, one
					lease, err := one.TryAcquire(t.Context())
					require.NoError(t, err)
					for range 20 { // renewals
						_, err = other.TryAcquire(t.Context())
						require.ErrorIs(t, err, ErrHeld)
						time.Sleep(4 * time.Second)
						require.True(t, lease.Valid())
					}
					require.NoError(t, lease.Release(t.Context()))
				}
			})
		}
	}
}

// Two copies of a holder both have its lease until one of them has renewed it. The next write of
// the other ends its own.
func TestOfTwoCopiesOfAHolderOneLosesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLock(NewMemStore(), "k", WithLogger(slog.New(slog.DiscardHandler)), WithManualRenewal())
		require.NoError(t, err)
		lease, err := l.TryAcquire(t.Context())
		require.NoError(t, err)
		other := copied(l)
		time.Sleep(time.Second)
		require.NoError(t, lease.Renew(t.Context()))
		copy := newLease(t.Context(), other.term.Load())
		require.ErrorIs(t, copy.Renew(t.Context()), ErrLost)
		_, err = other.TryAcquire(t.Context())
		require.ErrorIs(t, err, ErrHeld)
		require.NoError(t, lease.Renew(t.Context()))
		time.Sleep(3 * time.Second) // the safety margin of the term that was lost
		_, err = other.TryAcquire(t.Context())
		require.ErrorIs(t, err, ErrHeld)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A Lock remembers what it has sent since its last write that is known to have landed: no more at
// rest, and in a long outage the first of them and the last. What it has forgotten is waited out.
func TestWhatALockRemembersOfItsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLock(NewMemStore(), "k", WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		lease, err := l.TryAcquire(t.Context())
		require.NoError(t, err)
		for range 100 {
			require.NoError(t, lease.Renew(t.Context()))
			require.Len(t, l.memory.sent, 1)
		}
		require.NoError(t, lease.Release(t.Context()))
		require.Len(t, l.memory.sent, 1)

		var all []Record
		for i := range 1000 {
			rec := Record{Token: uint64(i + 2), ExpiresAt: time.Now()}
			l.sign(&rec)
			all = append(all, rec)
			require.LessOrEqual(t, len(l.memory.sent), maxSent)
		}
		require.True(t, l.memory.owns(*lease.t.record()), "the last that has landed")
		require.True(t, l.memory.owns(all[0]), "the first after it")
		require.True(t, l.memory.owns(all[len(all)-maxSent/2]))
		require.False(t, l.memory.owns(all[len(all)-2*maxSent]))
		raised := all[0]
		raised.Token++
		require.False(t, l.memory.owns(raised), "a foreign client may keep the nonce")
	})
}
