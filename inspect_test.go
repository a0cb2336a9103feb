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
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// A Break whose term is renewed before each attempt does not say that it is another term.
func TestBreakThatLosesItsRacesIsOfTheSameTerm(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		lease := acquire(t, newLock(t, mem, leasehold.WithManualRenewal()))
		err := newLock(t, raced(mem, func() { _ = lease.Renew(t.Context()) })).Break(t.Context(), lease.Token())
		t.Log(err)
		require.NotErrorIs(t, err, leasehold.ErrPreconditionFailed, "it is that very term")
	})
}

// A watch of the same Lock does not make Run retry what cannot heal.
func TestRunBesideAWatchEndsOnAnUnsafeStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, unsafeStore(), leasehold.WithLogger(slog.New(slog.DiscardHandler)))
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
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
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
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		var holders []string
		go func() {
			for i, name := range []string{"alice", "bob", "bob"} { // whose second term has another time
				if i > 0 {
					o, _ := store.Get(context.Background(), key)
					_ = store.DeleteIfMatch(context.Background(), key, o.ETag)
				}
				acquire(t, newLock(t, store, leasehold.WithHolder(name), leasehold.WithManualRenewal()))
				time.Sleep(10 * time.Second)
			}
			for _, name := range []string{"carol", "dave"} { // foreign clients that write no time
				damage(t, store, fmt.Sprintf(`{"expires_at": %d, "token": 1, "holder": %q}`,
					time.Now().Add(time.Hour).Unix(), name))
				time.Sleep(10 * time.Second)
			}
		}()
		synctest.Wait()
		ctx := testctx.Within(t, time.Minute)
		for status, err := range newLock(t, store).Watch(ctx) {
			require.NoError(t, err)
			require.Equal(t, uint64(1), status.Record.Token)
			require.Equal(t, leasehold.StateHeld, status.State)
			holders = append(holders, status.Record.Holder)
		}
		require.Equal(t, []string{"alice", "bob", "bob", "carol", "dave"}, holders)
	})
}

// watching watches until the test ends. The function that it returns gives what was yielded since
// its last call, as "state token".
func watching(t *testing.T, l *leasehold.Lock) (told func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var statuses []string
	var done sync.WaitGroup
	done.Go(func() {
		for status, err := range l.Watch(ctx) {
			mu.Lock()
			if err != nil {
				statuses = append(statuses, err.Error())
			} else {
				statuses = append(statuses, fmt.Sprint(status.State, " ", status.Record.Token))
			}
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	synctest.Wait()
	return func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		defer func() { statuses = nil }()
		return statuses
	}
}

// remove deletes the lock object by hand.
func remove(t *testing.T, s leasehold.Store) {
	t.Helper()
	o, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, s.DeleteIfMatch(t.Context(), key, o.ETag))
}

const (
	aPoll    = 3300 * time.Millisecond  // at most, with the default TTL
	untilNow = 15300 * time.Millisecond // the default TTL and the allowance for drift
)

func TestWatchTellsEachStateOnce(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		told := watching(t, newLock(t, store))
		require.Equal(t, []string{"never_taken 0"}, told())
		acquire(t, newLock(t, store)).Abandon()
		time.Sleep(untilNow)
		require.Equal(t, []string{"held 1"}, told())
		time.Sleep(2 * aPoll) // until it has seen the record, and until it reads again after the TTL
		require.Equal(t, []string{"expired 1"}, told())
		time.Sleep(time.Hour)
		require.Empty(t, told(), "nothing is told twice")
		lease, err := newLock(t, store).Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Equal(t, []string{"held 2"}, told(), "renewals are not told")
		require.NoError(t, lease.Commit(t.Context(), []byte("payload")))
		time.Sleep(aPoll)
		require.Equal(t, []string{"held 2"}, told(), "a payload is")
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(aPoll)
		require.Equal(t, []string{"released 2"}, told())
		remove(t, store)
		time.Sleep(time.Hour)
		require.Equal(t, []string{"deleted 0"}, told())
		acquire(t, newLock(t, store)).Abandon() // by a process that knows nothing of the earlier terms
		time.Sleep(aPoll)
		require.Equal(t, []string{"held 1"}, told())
		time.Sleep(time.Hour)
		require.Equal(t, []string{"expired 1"}, told())
		damage(t, store, "no record")
		time.Sleep(time.Hour)
		last := told()
		require.Len(t, last, 1, "and it ends")
		require.Contains(t, last[0], "corrupt")
	})
}

// Watch knows no more than a candidate that begins when it does, and needs as long.
func TestWatchTellsExpiryByTheRuleForCandidates(t *testing.T) {
	const ttl = 15 * time.Second
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a bubble
	by := func(at time.Time, ttl time.Duration) leasehold.Record {
		return leasehold.Record{
			Token: 7, Holder: "gone", TTL: ttl, Nonce: "x", AcquiredAt: at, RenewedAt: at, ExpiresAt: at.Add(ttl),
		}
	}
	foreign := func(until time.Duration) leasehold.Record {
		return leasehold.Record{Token: 7, ExpiresAt: began.Add(until)}
	}
	for name, c := range map[string]struct {
		rec   leasehold.Record
		age   time.Duration // that a trusted store tells
		opts  []leasehold.Option
		after time.Duration // it may be told
	}{
		"just renewed":                  {rec: by(began, ttl), after: untilNow},
		"an hour ago, by wall clocks":   {rec: by(began.Add(-time.Hour), ttl), after: untilNow},
		"an hour ahead, by wall clocks": {rec: by(began.Add(time.Hour), ttl), after: untilNow},
		"an hour ago, by a trusted clock": {
			rec: by(began, ttl), age: time.Hour,
		},
		"5 s ago, by a trusted clock": {
			rec: by(began, ttl), age: 5 * time.Second, after: untilNow - 5*time.Second,
		},
		"the TTL of the record": {rec: by(began, time.Minute), after: 61200 * time.Millisecond},
		"the watcher's allowance for drift": {
			rec: by(began, ttl), opts: []leasehold.Option{leasehold.WithClockDrift(0.1)},
			after: 16500 * time.Millisecond,
		},
		"the watcher's own name": {
			rec: by(began, ttl), after: untilNow,
			opts: []leasehold.Option{leasehold.WithHolder("gone"), leasehold.WithReclaim()},
		},
		"a foreign client's, long ago": {rec: foreign(-time.Hour)},
		"a foreign client's, too soon": {rec: foreign(-4 * time.Second), after: time.Second},
		"a foreign client's, later":    {rec: foreign(time.Minute), after: 65 * time.Second},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := toldAge(leasehold.NewMemStore(), &c.age)
			body, err := c.rec.MarshalJSON()
			require.NoError(t, err)
			_, err = store.PutIfNoneMatch(t.Context(), key, body)
			require.NoError(t, err)
			told := watching(t, newLock(t, store, append(c.opts, leasehold.WithPollInterval(time.Second))...))
			if c.after > 0 {
				time.Sleep(c.after - 1)
				require.Equal(t, []string{"held 7"}, told())
				time.Sleep(1100 * time.Millisecond)
			}
			require.Equal(t, []string{"expired 7"}, told())
			time.Sleep(time.Hour)
			require.Empty(t, told())
		})
	}
}

// A read that is answered late shows how the lock was when it was sent. No conditional write
// follows, as a candidate's would, that finds out what has happened since.
func TestWatchCountsUntilTheReadWasSent(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		acquire(t, newLock(t, store.real)).Abandon()
		watcher := newLock(t, store, leasehold.WithPollInterval(time.Hour), leasehold.WithTTL(2*time.Hour))
		told := watching(t, watcher)
		require.Equal(t, []string{"held 1"}, told())
		time.Sleep(untilNow - 1)
		store.next(fault{op: "get", apply: true, delay: 2 * time.Second})
		watcher.Wake()
		time.Sleep(2 * time.Second)
		require.Empty(t, told())
		watcher.Wake()
		require.Equal(t, []string{"expired 1"}, told())
	})
}

// The holder's own Lock is watched like any other's.
func TestWatchOfTheHoldersOwnLock(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lock := newLock(t, store)
		lease := acquire(t, lock)
		told := watching(t, lock)
		time.Sleep(time.Hour)
		require.Equal(t, []string{"held 1"}, told())
		lease.Abandon()
		time.Sleep(untilNow - aPoll*2) // its last renewal is up to a third of the TTL old
		require.Empty(t, told(), "this Lock may take it at once, and nobody else")
		time.Sleep(aPoll * 3)
		require.Equal(t, []string{"expired 1"}, told())
		lease = acquire(t, lock)
		time.Sleep(aPoll)
		require.Equal(t, []string{"held 2"}, told())
		remove(t, store)
		time.Sleep(aPoll)
		require.Equal(t, []string{"deleted 0"}, told())
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
		require.Equal(t, []string{"deleted 0"}, watching(t, lock)(), "it has seen the object")
		require.Equal(t, []string{"never_taken 0"}, watching(t, newLock(t, store))(), "who has not seen it cannot know")
	})
}

// A read that a write of the same Lock overtakes shows no deletion, and no restored version.
func TestWatchBesideAWriteOfItsOwnLock(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store)
		late := fault{op: "get", apply: true, delay: 2 * time.Second}
		store.next(late)
		told := watching(t, lock)
		synctest.Wait()
		lease := acquire(t, lock)
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"never_taken 0"}, told())
		time.Sleep(aPoll)
		require.Equal(t, []string{"held 1"}, told())
		require.NoError(t, lease.Release(t.Context()))
		require.Equal(t, []string{"released 1"}, told())
		store.next(late)
		lock.Wake()
		synctest.Wait()
		lease = acquire(t, lock)
		time.Sleep(2 * time.Second)
		require.Empty(t, told(), "it is as it was")
		time.Sleep(aPoll)
		require.Equal(t, []string{"held 2"}, told())
		require.NoError(t, lease.Release(t.Context()))
	})
}

// Who has seen a record knows that it was deleted, also if it had no token. Another body proves
// nothing: it may be a page that a proxy has sent.
func TestAnObjectThatWasSeenIsDeleted(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"a record without a token": {`{"expires_at": 0}`, "deleted 0"},
		"another body":             {"no record", "never_taken 0"},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := leasehold.NewMemStore()
			lock := newLock(t, store)
			_, err := store.PutIfNoneMatch(t.Context(), key, []byte(c.body))
			require.NoError(t, err)
			_, _ = lock.Inspect(t.Context())
			remove(t, store)
			_, err = lock.Inspect(t.Context())
			require.ErrorContains(t, err, "or was deleted")
			require.Equal(t, []string{c.want}, watching(t, lock)())
		})
	}
}

// Watch waits for a client that cannot send yet, as Acquire does, and tells why it has no status.
// Inspect is one request, and waits no more than TryAcquire.
func TestWatchWaitsForAClientThatCannotSendYet(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		store := teststore.New(mem, nil)
		store.Fail(fmt.Errorf("%w: no such host", leasehold.ErrUnsent))
		lock := newLock(t, store)
		began := time.Now()
		_, err := lock.Inspect(t.Context())
		require.ErrorIs(t, err, leasehold.ErrUnsent)
		require.Zero(t, time.Since(began))
		failures := 0
		for _, err := range lock.Watch(t.Context()) {
			require.ErrorIs(t, err, leasehold.ErrUnsent)
			failures++
		}
		require.GreaterOrEqual(t, time.Since(began), 15*time.Second, "a TTL, without a limit of one's own")
		require.Less(t, time.Since(began), time.Minute)
		require.Greater(t, failures, 1)
		ctx := testctx.Within(t, time.Hour)
		time.AfterFunc(10*time.Minute, func() { store.Fail(nil) })
		for status, err := range lock.Watch(ctx) {
			if err == nil {
				require.Equal(t, leasehold.StateNeverTaken, status.State)
				break
			}
			require.ErrorIs(t, err, leasehold.ErrUnsent)
		}
		require.NoError(t, ctx.Err())
	})
}

// A term that goes on after it has run out is told as held again.
func TestWatchOfATermThatIsResumed(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		told := watching(t, newLock(t, store))
		lease := acquire(t, newLock(t, store))
		lease.Abandon()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"never_taken 0", "held 1", "expired 1"}, told())
		lease, err := newLock(t, store, leasehold.WithTTL(time.Minute)).Resume(t.Context(), lease.Handle())
		require.NoError(t, err)
		lease.Abandon()
		time.Sleep(61200 * time.Millisecond)
		require.Equal(t, []string{"held 1"}, told(), "for the TTL that the record has now")
		time.Sleep(2 * aPoll)
		require.Equal(t, []string{"expired 1"}, told())
	})
}

// While a later term may go on, an old version that somebody has restored is no release.
func TestWatchOfARestoredVersion(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		require.NoError(t, acquire(t, newLock(t, store)).Release(t.Context()))
		backup := stored(t, store)
		acquire(t, newLock(t, store)).Abandon()
		told := watching(t, newLock(t, store))
		require.Equal(t, []string{"held 2"}, told())
		overwrite(t, store, backup)
		time.Sleep(untilNow)
		require.Equal(t, []string{"held 1"}, told())
		time.Sleep(2 * aPoll)
		require.Equal(t, []string{"released 1"}, told())
		time.Sleep(time.Hour)
		require.Empty(t, told())
	})
}

// Watch sends a read for each poll interval and each wake-up, whatever it tells.
func TestWatchReadsOncePerPollInterval(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		store := newFaultStore(mem)
		var reads []time.Time
		store.see = func(context.Context) { reads = append(reads, time.Now()) }
		told := watching(t, newLock(t, store))
		acquire(t, newLock(t, mem)).Abandon()
		time.Sleep(time.Hour)
		require.Equal(t, []string{"never_taken 0", "held 1", "expired 1"}, told())
		remove(t, mem)
		time.Sleep(time.Hour)
		require.Equal(t, []string{"deleted 0"}, told())
		require.InDelta(t, 2400, len(reads), 24, "two hours of polls every 3 s")
		for i := range reads[1:] {
			require.InDelta(t, 3*time.Second, reads[i+1].Sub(reads[i]), float64(300*time.Millisecond))
		}
	})
}
