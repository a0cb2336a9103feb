package leasehold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/handover"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
)

var (
	offer  = handover.Offer.(func(*leasehold.Lock, handover.Note) bool)
	heir   = handover.Heir.(func(*leasehold.Lock, handover.PassOn))
	noteOf = handover.Of.(func(*leasehold.Lease) (handover.Note, bool))
)

// waits returns a channel that gets the next lease of l, which stands in line.
func waits(t *testing.T, l *leasehold.Lock) <-chan *leasehold.Lease {
	t.Helper()
	got := make(chan *leasehold.Lease, 1)
	go func() {
		if lease, err := l.Acquire(t.Context()); err == nil {
			got <- lease
		}
	}()
	synctest.Wait()
	return got
}

// offered releases a lease and returns the note that its holder has signed. The lock is not passed
// on, and so it is released.
func offered(t *testing.T, l *leasehold.Lock, lease *leasehold.Lease) (n handover.Note) {
	t.Helper()
	heir(l, func(_ context.Context, token uint64, note handover.Note) (sent, taken bool) {
		require.Equal(t, lease.Token(), token)
		n = note
		return true, false
	})
	require.NoError(t, lease.Release(t.Context()))
	return n
}

// The candidate writes once, over the version of the holder, and the lock is never free. The
// holder's release takes no write.
func TestALockIsPassedOn(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		a, b := newLock(t, store), newcomer(t, store, leasehold.WithHolder("b"))
		lease := acquire(t, a)
		next := waits(t, b)
		require.NoError(t, lease.Commit(t.Context(), []byte("state")), "which b has not read")
		var heirs *leasehold.Lease
		heir(a, func(_ context.Context, token uint64, n handover.Note) (sent, taken bool) {
			require.Error(t, lease.Context().Err(), "nothing acts under the term any more")
			require.True(t, offer(b, n))
			heirs = <-next
			require.EqualValues(t, token+1, heirs.Token())
			rec, err := b.Inspect(t.Context())
			require.NoError(t, err)
			require.False(t, rec.Released())
			return true, true
		})
		store.count()
		require.NoError(t, lease.Release(t.Context()))
		require.Equal(t, []string{"put", "get"}, store.count(), "the get is that of this test")
		require.Equal(t, "state", string(heirs.Record().Payload))
		require.True(t, heirs.Valid())
		require.NoError(t, lease.Release(t.Context()), "again")
		time.Sleep(time.Minute)
		require.True(t, heirs.Valid())
	})
}

// A holder that does not hear that the lock was taken releases it as ever. That changes nothing,
// and is no loss.
func TestAReleaseAfterAnOfferThatWasTaken(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		a, b := newLock(t, store), newcomer(t, store)
		lease := acquire(t, a)
		next := waits(t, b)
		var heirs *leasehold.Lease
		heir(a, func(_ context.Context, _ uint64, n handover.Note) (sent, taken bool) {
			require.True(t, offer(b, n))
			heirs = <-next
			return true, false
		})
		require.NoError(t, lease.Release(t.Context()))
		require.True(t, heirs.Valid())
		require.NoError(t, heirs.Renew(t.Context()))
	})
}

// Whoever carries notes may hang. The release then has the time that it has without them, although
// the caller's ctx has ended.
func TestAReleaseHasItsTimeAfterAnOffer(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		a := newLock(t, store)
		lease := acquire(t, a)
		heir(a, func(ctx context.Context, _ uint64, _ handover.Note) (sent, taken bool) {
			<-ctx.Done()
			return true, false
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		store.next(fault{op: "put", apply: true, delay: 2 * time.Second})
		began := time.Now()
		require.NoError(t, lease.Release(ctx))
		require.Equal(t, handover.Patience(15*time.Second)+2*time.Second, time.Since(began))
		rec, err := a.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
	})
}

// A note says nothing while a write may still land that its holder has sent.
func TestNoOfferWhileAWriteIsUnknown(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		a := newLock(t, store)
		lease := acquire(t, a)
		heir(a, func(context.Context, uint64, handover.Note) (sent, taken bool) {
			t.Error("an offer")
			return false, false
		})
		store.next(fault{op: "put", apply: true, later: time.Second, err: context.DeadlineExceeded})
		ctx := testctx.Within(t, time.Millisecond)
		require.Error(t, lease.Renew(ctx))
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(time.Second) // until it has landed, or not
	})
}

// What the holder of the term that was read last has not signed for this lock makes nobody write,
// and nobody read.
func TestNotesThatProveNothing(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		a, b := newLock(t, store), newcomer(t, store)
		former := offered(t, a, acquire(t, a))
		other := newLock(t, leasehold.NewMemStore())
		foreign := offered(t, other, acquire(t, other))
		leader := acquire(t, newcomer(t, store))
		next := waits(t, b)
		obj, err := store.Get(t.Context(), b.Key())
		require.NoError(t, err)
		secret := handle.NewSecret()
		signed := func(key, etag string, record []byte) handover.Note {
			_, own, _ := cutHandle(leader.Handle())
			return handover.Sign(key, handle.Handle{Secret: own}, etag, record)
		}
		good := signed(b.Key(), obj.ETag, obj.Body)
		changed := func(change func(n *handover.Note)) handover.Note {
			n := good
			change(&n)
			return n
		}
		store.count()
		for name, n := range map[string]handover.Note{
			"nothing":               {},
			"of the former term":    former,
			"of another lock":       foreign,
			"signed by a reader":    handover.Sign(b.Key(), handle.Handle{Secret: secret}, obj.ETag, obj.Body),
			"for another key":       signed("locks/other", obj.ETag, obj.Body),
			"without a signature":   changed(func(n *handover.Note) { n.Signature = nil }),
			"with another's key":    changed(func(n *handover.Note) { n.Key = former.Key }),
			"without a key":         changed(func(n *handover.Note) { n.Key = nil }),
			"of another version":    changed(func(n *handover.Note) { n.ETag = former.ETag }),
			"of another record":     changed(func(n *handover.Note) { n.Record = former.Record }),
			"without a version":     signed(b.Key(), "", obj.Body),
			"without a record":      signed(b.Key(), obj.ETag, []byte("{}")),
			"with a former record":  signed(b.Key(), obj.ETag, former.Record),
			"with a foreign record": signed(b.Key(), obj.ETag, foreign.Record),
		} {
			require.False(t, offer(b, n), name)
		}
		synctest.Wait()
		require.Empty(t, store.count())
		require.Empty(t, next)
		require.True(t, leader.Valid())
		require.False(t, offer(newcomer(t, store), good), "to a process that has read nothing")
		require.True(t, offer(b, good))
		require.EqualValues(t, leader.Token()+1, (<-next).Token(), "signed by the holder, who acts on")
	})
}

func cutHandle(text string) (token uint64, secret string, err error) {
	h, err := handle.Parse(text)
	return h.Token, h.Secret, err
}

// A note counts for its version alone, and once. After that the candidate reads, and waits as ever.
func TestALateNoteCostsOneWrite(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		a, b := newLock(t, store), newcomer(t, store)
		first := acquire(t, a)
		next := waits(t, b)
		h, secret, err := cutHandle(first.Handle())
		require.NoError(t, err)
		obj, err := store.Get(t.Context(), a.Key())
		require.NoError(t, err)
		late := handover.Sign(a.Key(), handle.Handle{Token: h, Secret: secret}, obj.ETag, obj.Body)
		require.NoError(t, first.Renew(t.Context()))
		store.count()
		require.True(t, offer(b, late))
		synctest.Wait()
		require.Equal(t, []string{"put", "get"}, store.count())
		require.Empty(t, next)
		require.True(t, first.Valid())
		b.Wake()
		synctest.Wait()
		require.Equal(t, []string{"get"}, store.count())
	})
}

// Nobody takes what is offered to a lock for which nobody stands in line, not even who watches it.
func TestAnOfferToNobody(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		a, b := newLock(t, store), newcomer(t, store)
		lease := acquire(t, a)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for range b.Watch(ctx) {
				continue
			}
		}()
		synctest.Wait()
		n := offered(t, a, lease)
		require.NotEmpty(t, n.ETag)
		require.False(t, offer(b, n))
		cancel()
		synctest.Wait()
	})
}

// A version that has come back, older than what was seen, is nobody's to give.
func TestANoteOfAnOldVersion(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		a, b := newLock(t, store), newcomer(t, store)
		lease := acquire(t, a)
		old, err := store.Get(t.Context(), a.Key())
		require.NoError(t, err)
		h, secret, _ := cutHandle(lease.Handle())
		require.NoError(t, lease.Release(t.Context()))
		current := acquire(t, newcomer(t, store))
		next := waits(t, b)
		now, err := store.Get(t.Context(), a.Key())
		require.NoError(t, err)
		etag, err := store.PutIfMatch(t.Context(), a.Key(), old.Body, now.ETag)
		require.NoError(t, err)
		b.Wake()
		synctest.Wait()
		store.count()
		n := handover.Sign(a.Key(), handle.Handle{Token: h, Secret: secret}, etag, old.Body)
		offer(b, n)
		synctest.Wait()
		require.NotContains(t, store.count(), "put")
		require.Empty(t, next)
		require.True(t, current.Valid())
	})
}

// The note of a lease that was released saves the candidate its read.
func TestTheNoteOfAReleasedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := leasehold.NewMemStore()
		store := newFaultStore(shared) // another value, so that the release wakes nobody here
		a, b := newLock(t, shared), newcomer(t, store)
		lease := acquire(t, a)
		next := waits(t, b)
		_, ok := noteOf(lease)
		require.False(t, ok, "it is held")
		require.NoError(t, lease.Release(t.Context()))
		n, ok := noteOf(lease)
		require.True(t, ok)
		store.count()
		require.True(t, offer(b, n))
		require.EqualValues(t, 2, (<-next).Token())
		require.Equal(t, []string{"put"}, store.count())
		_, ok = noteOf(acquire(t, newLock(t, leasehold.NewMemStore())))
		require.False(t, ok)
	})
}

// A store that is busy carries the candidate's write out a moment later: the offer is not used up.
func TestABusyStoreKeepsTheOffer(t *testing.T) {
	for name, answers := range map[string][]error{
		"a conflict":  {leasehold.ErrConflict},
		"slow down":   {errors.New("503 SlowDown")},
		"no answer":   {context.DeadlineExceeded},
		"one of each": {leasehold.ErrConflict, errors.New("503 SlowDown")},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			a, b := newLock(t, store), newcomer(t, store)
			lease := acquire(t, a)
			next := waits(t, b)
			heir(a, func(ctx context.Context, token uint64, n handover.Note) (sent, taken bool) {
				for _, err := range answers {
					store.next(fault{op: "put", err: err})
				}
				require.True(t, offer(b, n))
				select {
				case heirs := <-next:
					require.EqualValues(t, token+1, heirs.Token())
					return true, true
				case <-ctx.Done():
					return true, false
				}
			})
			began := time.Now()
			require.NoError(t, lease.Release(t.Context()))
			require.Less(t, time.Since(began), handover.Patience(15*time.Second))
		})
	}
}

// An offer excuses no loss but one to a later term. Without an offer nothing does.
func TestALossAfterAnOffer(t *testing.T) {
	for _, sent := range []bool{false, true} {
		onMemStore(t, func(t *testing.T, store leasehold.Store) {
			a, admin := newLock(t, store), newcomer(t, store)
			lease := acquire(t, a)
			heir(a, func(ctx context.Context, token uint64, _ handover.Note) (bool, bool) {
				require.NoError(t, admin.Break(ctx, token))
				return sent, false
			})
			require.ErrorIs(t, lease.Release(t.Context()), leasehold.ErrLost, "broken")

			lease = acquire(t, a)
			heir(a, func(ctx context.Context, token uint64, _ handover.Note) (bool, bool) {
				require.NoError(t, admin.Break(ctx, token))
				_, err := admin.TryAcquire(ctx)
				require.NoError(t, err)
				return sent, false
			})
			err := lease.Release(t.Context())
			if sent {
				require.NoError(t, err, "whoever leads may have the offer")
			} else {
				require.ErrorIs(t, err, leasehold.ErrLost, "nobody has an offer")
			}
		})
	}
}
