package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// newcomer is the lock of another process.
func newcomer(t *testing.T, s leasehold.Store, opts ...leasehold.Option) *leasehold.Lock {
	return newLock(t, s, append(opts, testopt.NewProcess())...)
}

func resume(t *testing.T, l *leasehold.Lock, handle string) *leasehold.Lease {
	t.Helper()
	lease, err := l.Resume(t.Context(), handle)
	require.NoError(t, err)
	return lease
}

func TestATermGoesOnInAnotherProcess(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		first := acquire(t, newLock(t, store))
		require.NoError(t, first.Commit(t.Context(), []byte("state")))
		was := first.Record()
		first.Abandon()
		next := newcomer(t, store, leasehold.WithHolder("next"), leasehold.WithTTL(9*time.Second),
			leasehold.WithMetadata(map[string]string{"addr": "b"}))
		store.next(fault{op: "get", apply: true}, fault{op: "put", apply: true, delay: time.Second})
		sent := time.Now()
		store.count()
		lease := resume(t, next, first.Handle())
		require.Equal(t, []string{"get", "put"}, store.count())
		require.Equal(t, sent.Add(9*time.Second-9*time.Second/5), lease.Deadline(),
			"counted from before the renewal was sent")
		now := lease.Record()
		require.Equal(t, was.Token, lease.Token())
		require.Equal(t, "next", now.Holder)
		require.Equal(t, 15*time.Second, now.TTL, "for others, the former lease may not be over")
		require.Equal(t, "b", now.Metadata["addr"])
		require.Equal(t, "state", string(now.Payload))
		require.Equal(t, was.TermID, now.TermID)
		require.True(t, was.AcquiredAt.Equal(now.AcquiredAt))
		require.Equal(t, first.Handle(), lease.Handle())
		require.NotContains(t, now.TermID, strings.Split(lease.Handle(), "-")[1])
		require.ErrorIs(t, first.Release(t.Context()), leasehold.ErrLost, "and it changes nothing")
		time.Sleep(time.Minute) // it renews itself
		require.True(t, lease.Valid())
		require.NoError(t, lease.Renew(t.Context()))
		require.Equal(t, 9*time.Second, lease.Record().TTL)
		require.NoError(t, lease.Release(t.Context()))
		require.EqualValues(t, was.Token+1, acquire(t, newLock(t, store)).Token())
	})
}

// A process that does not stop loses the lease at its next renewal, and is not told of an
// administrator.
func TestAProcessThatGoesOnLosesAResumedLease(t *testing.T) {
	for name, release := range map[string]bool{"held": false, "released": true} {
		bubble.Run(t, name, func(t *testing.T) {
			store := leasehold.NewMemStore()
			first := acquire(t, newLock(t, store))
			lease := resume(t, newcomer(t, store, leasehold.WithHolder("next")), first.Handle())
			if release {
				require.NoError(t, lease.Release(t.Context()))
			}
			began := time.Now()
			select {
			case <-first.Context().Done():
			case <-time.After(time.Minute): // of renewals by both in turn
			}
			require.LessOrEqual(t, time.Since(began), 5*time.Second)
			cause := context.Cause(first.Context())
			require.ErrorIs(t, cause, leasehold.ErrLost)
			require.Equal(t, "taken_over", leasehold.Outcome(cause))
			require.ErrorContains(t, cause, `by "next", which has resumed the term`)
			require.Equal(t, !release, lease.Valid())
		})
	}
}

// A process that does not stop may have its lease even after a later term has begun, because a
// resumed term that is released or reclaimed is not waited out.
func TestATermThatWasResumedIsReclaimed(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		first := acquire(t, newLock(t, store))
		resume(t, newcomer(t, store, pod...), first.Handle())
		next := acquire(t, newcomer(t, store, pod...))
		require.EqualValues(t, 2, next.Token())
		require.True(t, first.Valid(), "it has not renewed yet")
		<-first.Context().Done()
		require.ErrorIs(t, context.Cause(first.Context()), leasehold.ErrLost)
		require.True(t, next.Valid())
	})
}

// What is no handle costs no request. What names no term that goes on costs one, and writes
// nothing.
func TestBadHandles(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		old := acquire(t, newLock(t, store))
		require.NoError(t, old.Release(t.Context()))
		current := acquire(t, newLock(t, store))
		good := current.Handle()
		secret := strings.TrimPrefix(good, "2-")
		wrong := "B" + secret[1:]
		if wrong == secret {
			wrong = "C" + secret[1:]
		}
		for name, c := range map[string]struct {
			handle, says string
			reads        bool
		}{
			"empty":            {"", "cut short or changed", false},
			"no secret":        {"2", "cut short or changed", false},
			"cut short":        {good[:len(good)-1], "cut short or changed", false},
			"cut at the front": {good[1:], "cut short or changed", false},
			"too long":         {good + "A", "cut short or changed", false},
			"token 0":          {"0-" + secret, "cut short or changed", false},
			"token with zeros": {"02-" + secret, "cut short or changed", false},
			"token too high":   {"9007199254740992-" + secret, "cut short or changed", false},
			"lower case":       {strings.ToLower(good), "cut short or changed", false},
			"hash as secret":   {"2-" + current.Record().TermID, "cut short or changed", false},
			"older term":       {old.Handle(), "taken over by", true},
			"later term":       {"3-" + secret, "of another lock", true},
			"wrong secret":     {"2-" + wrong, "does not have the secret", true},
		} {
			before := current.Record()
			store.count()
			lease, err := newcomer(t, store).Resume(t.Context(), c.handle)
			require.Nil(t, lease, name)
			require.ErrorContains(t, err, c.says, name)
			require.NotContains(t, err.Error(), secret, name)
			require.Equal(t, c.reads, errors.Is(err, leasehold.ErrLost), name)
			require.Equal(t, !c.reads, errors.Is(err, leasehold.ErrPermanent), name)
			var want []string
			if c.reads {
				want = []string{"get"}
			}
			require.Equal(t, want, store.count(), name)
			require.Equal(t, before, current.Record(), name)
		}
		require.NoError(t, current.Release(t.Context()))
		store.count()
		_, err := newcomer(t, store).Resume(t.Context(), good)
		require.ErrorIs(t, err, leasehold.ErrReleased)
		require.Equal(t, []string{"get"}, store.count())
		_, err = newLock(t, leasehold.NewMemStore()).Resume(t.Context(), good)
		require.ErrorIs(t, err, leasehold.ErrLost)
		require.ErrorContains(t, err, "deleted, or the handle is of another lock")
	})
}

// A copy of the object under another key is another lock, although all of the record is the same.
func TestAHandleIsOfOneKey(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		first := acquire(t, newLock(t, store))
		first.Abandon()
		o, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		for _, other := range []string{"copy", "other/" + key, key + "2", key[1:]} {
			etag, err := store.PutIfNoneMatch(t.Context(), other, o.Body)
			require.NoError(t, err)
			lock, err := leasehold.NewLock(store, other)
			require.NoError(t, err)
			_, err = lock.Resume(t.Context(), first.Handle())
			require.ErrorIs(t, err, leasehold.ErrLost, other)
			require.ErrorContains(t, err, "of another lock", other)
			now, err := store.Get(t.Context(), other)
			require.NoError(t, err)
			require.Equal(t, etag, now.ETag, "nothing was written")
		}
		require.NoError(t, resume(t, newcomer(t, store), first.Handle()).Release(t.Context()))
	})
}

// A term of a foreign client, or of an older version, cannot be resumed.
func TestATermWithoutAHashIsNotResumed(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		handle := acquire(t, newLock(t, store)).Handle()
		for _, id := range []string{"", "Q6ZB3NDY7HEO2LCF"} {
			foreign := leasehold.NewMemStore()
			body, err := leasehold.Record{Token: 1, TermID: id, ExpiresAt: time.Now().Add(time.Hour)}.MarshalJSON()
			require.NoError(t, err)
			_, err = foreign.PutIfNoneMatch(t.Context(), newLock(t, foreign).Key(), body)
			require.NoError(t, err)
			_, err = newLock(t, foreign).Resume(t.Context(), handle)
			require.ErrorIs(t, err, leasehold.ErrLost)
			require.ErrorContains(t, err, "no secret")
			o, err := foreign.Get(t.Context(), newLock(t, foreign).Key())
			require.NoError(t, err)
			require.Equal(t, string(body), string(o.Body))
		}
	})
}

// A Lock that has a term does not resume it, nor another one.
func TestALockThatHoldsResumesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore())
		lease := acquire(t, lock)
		_, err := lock.Resume(t.Context(), lease.Handle())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		lease.Abandon()
		_, err = lock.Resume(t.Context(), lease.Handle())
		require.ErrorIs(t, err, leasehold.ErrHeld, "what the term started may go on")
		require.Error(t, lease.Renew(t.Context()))
		time.Sleep(20 * time.Second)
		again := resume(t, lock, lease.Handle())
		require.Equal(t, lease.Token(), again.Token())
	})
}

// Two processes that resume one term at once: the last one has it, and the other one loses it.
func TestTwoResumesAtOnce(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		first := acquire(t, newLock(t, store))
		first.Abandon()
		store.next(fault{op: "put", apply: true, delay: time.Second}, fault{op: "put", apply: true, delay: time.Second})
		leases := make(chan *leasehold.Lease, 2)
		for range 2 {
			lock := newcomer(t, store)
			go func() {
				lease, err := lock.Resume(t.Context(), first.Handle())
				if err == nil {
					leases <- lease
				}
			}()
		}
		time.Sleep(30 * time.Second)
		valid := 0
		for range len(leases) {
			if lease := <-leases; lease.Valid() {
				valid++
			}
		}
		require.Equal(t, 1, valid)
	})
}

// The holder's renewal is under way while another process resumes: the term goes on there all the
// same.
func TestARenewalUnderWayDoesNotStopAResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBetween()
		first := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		store.f.Store(func() { require.NoError(t, first.Renew(t.Context())) })
		lease := resume(t, newcomer(t, store), first.Handle())
		require.True(t, lease.Valid())
		require.ErrorIs(t, first.Renew(t.Context()), leasehold.ErrLost)
	})
}

// The same with a takeover, or a release: nothing is resumed.
func TestATermThatEndsMeanwhileIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBetween()
		first := acquire(t, newLock(t, store))
		store.f.Store(func() { require.NoError(t, first.Release(t.Context())) })
		_, err := newcomer(t, store).Resume(t.Context(), first.Handle())
		require.ErrorIs(t, err, leasehold.ErrReleased)
		second := acquire(t, newLock(t, store))
		store.f.Store(func() {
			require.NoError(t, second.Release(t.Context()))
			acquire(t, newLock(t, store))
		})
		_, err = newcomer(t, store).Resume(t.Context(), second.Handle())
		require.ErrorIs(t, err, leasehold.ErrLost)
	})
}

// between calls f once, before the next update.
type between struct {
	*teststore.Store
	f atomic.Value
}

func newBetween() *between {
	s, mem := new(between), leasehold.NewMemStore()
	s.Store = teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if r.Op == teststore.Update {
			if f, _ := s.f.Swap((func())(nil)).(func()); f != nil {
				f()
			}
		}
		return r.Send(ctx)
	})
	return s
}

// A renewal of a failed Resume that has landed is nothing that its own Lock may take over at once:
// the process that had the term may still act under it.
func TestTheGhostOfAFailedResumeIsWaitedOut(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		first := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		next := newcomer(t, store)
		store.next(fault{op: "get", apply: true}, fault{op: "put", apply: true, err: errors.New("reset")},
			fault{op: "get", err: errors.New("reset")})
		_, err := next.Resume(t.Context(), first.Handle())
		require.ErrorContains(t, err, "reset")
		_, err = next.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.True(t, first.Valid())
		lease := resume(t, next, first.Handle())
		require.Equal(t, first.Token(), lease.Token())
	})
}

// The answer is lost, and the nonce tells.
func TestAResumeWithoutAReplyIsOurs(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		first := acquire(t, newLock(t, store))
		first.Abandon()
		store.next(fault{op: "get", apply: true}, fault{op: "put", apply: true, err: errors.New("reset")})
		require.True(t, resume(t, newcomer(t, store), first.Handle()).Valid())
	})
}

// Who resumes has the record under its own name, so a namesake of the former holder reclaims
// nothing.
func TestANamesakeOfTheFormerHolderReclaimsNothing(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		first := acquire(t, newLock(t, store, pod...))
		first.Abandon()
		lease := resume(t, newcomer(t, store), first.Handle())
		_, err := newcomer(t, store, pod...).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.True(t, lease.Valid())
	})
}

// A term that has run out goes on, unless somebody has taken the lock since.
func TestATermThatHasRunOutIsResumed(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		first := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		time.Sleep(time.Hour)
		require.False(t, first.Valid())
		require.True(t, resume(t, newcomer(t, store), first.Handle()).Valid())
		time.Sleep(time.Second)
	})
}

// An old version from a backup is not the term that goes on, to a Lock that has seen a later one.
func TestARestoredTermIsNotResumed(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		first := acquire(t, newLock(t, store))
		backup, err := store.Get(t.Context(), newLock(t, store).Key())
		require.NoError(t, err)
		require.NoError(t, first.Release(t.Context()))
		acquire(t, newLock(t, store)).Abandon()
		next := newcomer(t, store)
		_, err = next.Inspect(t.Context())
		require.NoError(t, err)
		o, err := store.Get(t.Context(), next.Key())
		require.NoError(t, err)
		_, err = store.PutIfMatch(t.Context(), next.Key(), backup.Body, o.ETag)
		require.NoError(t, err)
		_, err = next.Resume(t.Context(), first.Handle())
		require.ErrorIs(t, err, leasehold.ErrLost)
		require.ErrorContains(t, err, "old version")
	})
}

// A client that knows only expires_at and token may keep the other members, those of a term that it
// has taken over among them. While its time runs, the term is not the handle's.
func TestResumeLeavesAForeignClientsTermAlone(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lease := acquire(t, newLock(t, store))
		lease.Abandon()
		time.Sleep(time.Hour)
		rec := stored(t, store)
		rec.ExpiresAt = time.Now().Add(time.Minute)
		overwrite(t, store, rec)
		store.count()
		_, err := newcomer(t, store).Resume(t.Context(), lease.Handle())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Equal(t, []string{"get"}, store.count())
		time.Sleep(time.Minute + 6*time.Second)
		require.NoError(t, resume(t, newcomer(t, store), lease.Handle()).Release(t.Context()))
	})
}

// An heir with a shorter TTL does not shorten for others what the lease that it replaces may last,
// and one with a longer TTL is waited for.
func TestHeirsWithOtherTTLs(t *testing.T) {
	for _, ttls := range [][]time.Duration{
		{15 * time.Second, time.Second}, {2 * time.Second, time.Minute}, {2 * time.Second, time.Minute, time.Second},
		{time.Minute, time.Second, 2 * time.Second, time.Second},
	} {
		for _, dies := range []bool{true, false} {
			bubble.Run(t, fmt.Sprint(ttls, dies), func(t *testing.T) {
				store := leasehold.NewMemStore()
				options := func(ttl time.Duration) []leasehold.Option {
					return []leasehold.Option{leasehold.WithTTL(ttl), leasehold.WithManualRenewal()}
				}
				former := []*leasehold.Lease{acquire(t, newcomer(t, store, options(ttls[0])...))}
				handle := former[0].Handle()
				for _, ttl := range ttls[1:] {
					former = append(former, resume(t, newcomer(t, store, options(ttl)...), handle))
				}
				if !dies { // it renews until the others are over, and then its own TTL counts
					last := former[len(former)-1]
					for range 130 {
						time.Sleep(500 * time.Millisecond)
						require.NoError(t, last.Renew(t.Context()))
					}
					require.Equal(t, ttls[len(ttls)-1], stored(t, store).TTL)
				}
				next, err := newcomer(t, store).Acquire(t.Context())
				require.NoError(t, err)
				for i, lease := range former {
					require.False(t, lease.Valid(), "%d", i)
				}
				require.NoError(t, next.Release(t.Context()))
			})
		}
	}
}

// The renewal has landed, its answer is lost, and then somebody breaks the lock. That the term was
// released is not all that there is to say.
func TestResumeThatLandedDoesNotSayThatNothingWasWritten(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lease := acquire(t, newLock(t, store.real))
		lease.Abandon()
		store.next(fault{op: "put", apply: true, delay: time.Second, err: errors.New("lost")})
		time.AfterFunc(500*time.Millisecond, func() {
			require.NoError(t, newcomer(t, store.real).Break(t.Context(), lease.Token()))
		})
		heir := newcomer(t, store)
		_, err := heir.Resume(t.Context(), lease.Handle())
		require.NotErrorIs(t, err, leasehold.ErrReleased)
		require.ErrorContains(t, err, "lost; then: lease released")
		_, err = heir.Resume(t.Context(), lease.Handle())
		require.ErrorIs(t, err, leasehold.ErrReleased)
	})
}

// An heir of the same name that has released the term is no administrator.
func TestAnHeirOfTheSameNameReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, name := leasehold.NewMemStore(), leasehold.WithHolder("pod-0")
		for range 2 {
			lease := acquire(t, newLock(t, store, name, leasehold.WithManualRenewal()))
			time.Sleep(time.Second)
			heir := resume(t, newcomer(t, store, name), lease.Handle())
			time.Sleep(time.Second)
			require.NoError(t, heir.Release(t.Context()))
			time.Sleep(time.Second)
			err := lease.Renew(t.Context())
			require.ErrorIs(t, err, leasehold.ErrLost)
			require.Equal(t, "taken_over", leasehold.Outcome(err))
			require.ErrorContains(t, err, "resumed the term")
		}
		lease := acquire(t, newLock(t, store, name, leasehold.WithManualRenewal()))
		time.Sleep(time.Second)
		require.NoError(t, newcomer(t, store, name).Break(t.Context(), lease.Token()))
		require.Equal(t, "broken", leasehold.Outcome(lease.Renew(t.Context())))
	})
}
