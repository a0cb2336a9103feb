package leasehold_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"slices"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

const key = "locks/test"

// newLock returns a lock on s with default options, changed by opts.
func newLock(t *testing.T, s leasehold.Store, opts ...leasehold.Option) *leasehold.Lock {
	t.Helper()
	exact := withClock(newBrokenClock()) // CLOCK_BOOTTIME is not virtual, so that of a bubble is that of the bubble
	l, err := leasehold.NewLock(s, key, append([]leasehold.Option{exact}, opts...)...)
	require.NoError(t, err)
	return l
}

// onEvent is an observer of some kinds of events.
func onEvent(f func(leasehold.Event), kinds ...leasehold.EventKind) leasehold.Option {
	return leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
		if slices.Contains(kinds, e.Kind) {
			f(e)
		}
	})
}

func acquire(t *testing.T, l *leasehold.Lock) *leasehold.Lease {
	t.Helper()
	lease, err := l.TryAcquire(t.Context())
	require.NoError(t, err)
	return lease
}

// crash ends a lease as a crash would: no more renewals, no release.
func crash(s *faultStore) { s.down.Store(true) }

func TestTokensGoUpAcrossReleases(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		for want := uint64(1); want <= 5; want++ {
			lease := acquire(t, newLock(t, store))
			require.Equal(t, want, lease.Token())
			require.True(t, lease.Valid())
			require.NoError(t, lease.Release(t.Context()))
			require.NoError(t, lease.Release(t.Context()), "releasing twice does no harm")
			require.False(t, lease.Valid())
			require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrReleased)
		}
		rec, err := newLock(t, store).Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
		require.Equal(t, uint64(5), rec.Token)
	})
}

func TestHeldLockIsRefusedWithTheHoldersName(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lease := acquire(t, newLock(t, store, leasehold.WithHolder("alice")))
		defer lease.Release(t.Context())
		time.Sleep(time.Second)

		_, err := newLock(t, store).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, "alice", held.Record.Holder)
		require.Equal(t, uint64(1), held.Record.Token)
		require.Equal(t, 15300*time.Millisecond, held.Wait, "the TTL with its drift allowance")
	})
}

func TestLeaseRenewsItselfForAsLongAsItIsHeld(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lease := acquire(t, newLock(t, store))
		time.Sleep(24 * time.Hour)
		require.True(t, lease.Valid())
		require.NoError(t, lease.Context().Err())
		require.NoError(t, lease.Release(t.Context()))
	})
}

type ctxKey struct{}

func TestEveryRequestHasTheValuesOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultStore(leasehold.NewMemStore())
		store.see = func(ctx context.Context) {
			if ctx.Value(ctxKey{}) != "kept" {
				t.Error("a request without the values of the caller's context")
			}
		}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "kept"))
		lease, err := newLock(t, store).Acquire(ctx)
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		require.NoError(t, lease.Release(ctx))
		require.GreaterOrEqual(t, len(store.count()), 2+6+1, "read, create; renewals; release")

		e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
		require.NoError(t, err)
		time.AfterFunc(30*time.Second, cancel)
		require.NoError(t, e.Run(ctx))
		require.GreaterOrEqual(t, len(store.count()), 2+6+1)
	})
}

func TestAcquireContextBoundsTheCallNotTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), ctxKey{}, "kept"), time.Second)
		lease, err := newLock(t, leasehold.NewMemStore()).Acquire(ctx)
		require.NoError(t, err)
		cancel()
		time.Sleep(time.Minute)
		require.NoError(t, lease.Context().Err())
		require.Equal(t, "kept", lease.Context().Value(ctxKey{}))
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestCrashedHolderIsReplacedWhenItsTTLHasPassed(t *testing.T) {
	for _, tells := range []bool{true, false} {
		bubble.Run(t, fmt.Sprintf("store tells age %v", tells), func(t *testing.T) {
			mem := leasehold.NewMemStore()
			if tells {
				mem = testopt.NewMemStore(false, true)
			}
			holder := newFaultStore(mem)
			lease := acquire(t, newLock(t, holder))
			crash(holder)
			crashed := time.Now()
			time.Sleep(time.Second)

			candidate := newFaultStore(mem)
			next, err := newLock(t, candidate).Acquire(t.Context())
			require.NoError(t, err)
			require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost, "the old context ended first")
			require.Equal(t, uint64(2), next.Token())
			took := time.Since(crashed)
			least := 15300 * time.Millisecond
			if !tells {
				least += time.Second // a newcomer counts from its first look
			}
			require.GreaterOrEqual(t, took, least)
			require.LessOrEqual(t, took, least+330*time.Millisecond, "and wakes when the lease can expire, not "+
				"at the next poll")
			require.NoError(t, next.Release(t.Context()))
			require.ErrorIs(t, lease.Release(t.Context()), leasehold.ErrLost)
		})
	}
}

func TestOneHolderAtATimeAmong32Candidates(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		var mu sync.Mutex
		var holders, most int
		var tokens []uint64
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				err := newLock(t, store).Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
					mu.Lock()
					holders++
					most = max(most, holders)
					tokens = append(tokens, lease.Token())
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					holders--
					mu.Unlock()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, most)
		require.Len(t, tokens, 32)
		for i, token := range tokens {
			require.Equal(t, uint64(i+1), token)
		}
	})
}

func TestAcquireGivesUpWithBothErrors(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lease := acquire(t, newLock(t, store))
		defer lease.Release(t.Context())
		ctx := testctx.Within(t, time.Minute)
		began := time.Now()
		_, err := newLock(t, store).Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(began))
	})
}

var errInjected = errors.New("injected")

func TestForeignClientThatKnowsOnlyExpiresAtTakesPart(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		body := fmt.Appendf(nil, `{"expires_at": %d.206179}`, time.Now().Add(time.Minute).Unix())
		_, err := store.PutIfNoneMatch(t.Context(), key, body)
		require.NoError(t, err)
		began := time.Now()
		lease, err := newLock(t, store).Acquire(t.Context())
		require.NoError(t, err)
		require.InDelta(t, 65*time.Second, time.Since(began), float64(time.Second),
			"its time, and 5 s for the clocks to differ")
		require.Equal(t, uint64(1), lease.Token())
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestForeignClientsTokenIsContinued(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		_, err := store.PutIfNoneMatch(t.Context(), key,
			[]byte(`{"expires_at": 0, "token": 41, "unknown": {"a": [1]}}`))
		require.NoError(t, err)
		lease := acquire(t, newLock(t, store))
		require.Equal(t, uint64(42), lease.Token())
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestTokenNeverGoesBackForWhoHasSeenIt(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lock := newLock(t, store)
		for range 7 {
			require.NoError(t, acquire(t, lock).Release(t.Context()))
		}
		o, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, store.DeleteIfMatch(t.Context(), key, o.ETag))
		lease := acquire(t, lock)
		require.Equal(t, uint64(8), lease.Token(), "though the object with the token was deleted")
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestCorruptRecordIsNeverOverwrittenUntilBreak(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		etag, err := store.PutIfNoneMatch(t.Context(), key, []byte(`{"expires_at": -1}`))
		require.NoError(t, err)
		lock := newLock(t, store)
		_, err = lock.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
		require.ErrorContains(t, err, key)
		_, err = lock.Acquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord, "at once: no waiting heals it")
		o, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, etag, o.ETag)

		require.NoError(t, lock.Break(t.Context(), 9))
		lease := acquire(t, lock)
		require.Equal(t, uint64(10), lease.Token())
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestBreakEndsExactlyTheTermItNames(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		admin := newLock(t, store)
		require.ErrorIs(t, admin.Break(t.Context(), 1), leasehold.ErrNotExist)
		lease := acquire(t, newLock(t, store))
		require.ErrorIs(t, admin.Break(t.Context(), 2), leasehold.ErrPreconditionFailed)
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, admin.Break(t.Context(), 1))
		require.NoError(t, admin.Break(t.Context(), 1), "again")
		next := acquire(t, newLock(t, store))
		require.Equal(t, uint64(2), next.Token())
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestBreakWhoseReplyIsLostHasBroken(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		store.next(fault{op: "get", apply: true}, fault{op: "put", apply: true, err: errInjected})
		require.NoError(t, newLock(t, store).Break(t.Context(), 1))
	})
}

func TestReclaimTakesItsOwnUnexpiredLockBack(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		former := newFaultStore(store)
		before := acquire(t, newLock(t, former, leasehold.WithHolder("pod-0"), testopt.NewProcess()))
		crash(former)

		_, err := newLock(t, store, leasehold.WithHolder("pod-0")).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld, "a shared name is not enough")
		lease := acquire(t, newLock(t, store, leasehold.WithHolder("pod-0"), leasehold.WithReclaim()))
		require.Equal(t, before.Token()+1, lease.Token())
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(time.Minute) // the former life's renewals end
	})
}

// The log names both reasons for a holder with this candidate's name.
func TestAHolderOfTheSameNameIsLogged(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		pod := leasehold.WithHolder("pod-0")
		lease := acquire(t, newLock(t, store, pod, testopt.NewProcess()))
		var log bytes.Buffer
		logger := leasehold.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
		_, err := newLock(t, store, pod, logger).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Contains(t, log.String(), `msg="another holder has this candidate's name"`)
		require.Contains(t, log.String(), `hint="give each candidate a unique name, unless this one has restarted"`)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A foreign client that knows only expires_at and token may keep the other members, and with them
// the name of the former holder.
func TestReclaimLeavesAForeignClientsTermAlone(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lock := newLock(t, store, leasehold.WithHolder("pod-0"), testopt.NewProcess())
		require.NoError(t, acquire(t, lock).Release(t.Context()))
		obj, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		var members map[string]any
		require.NoError(t, json.Unmarshal(obj.Body, &members))
		members["expires_at"], members["token"] = time.Now().Add(10*time.Second).Unix(), 2
		body, err := json.Marshal(members)
		require.NoError(t, err)
		_, err = store.PutIfMatch(t.Context(), key, body, obj.ETag)
		require.NoError(t, err)

		_, err = newLock(t, store, leasehold.WithHolder("pod-0"), leasehold.WithReclaim()).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
	})
}

func TestDoReportsALeaseLostOnTheWay(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		ran := false
		err := newLock(t, store).Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
			ran = true
			crash(store)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), leasehold.ErrLost)
			return nil
		})
		require.True(t, ran)
		require.ErrorIs(t, err, leasehold.ErrLost, "though the function saw no error")
	})
}

func TestDoReturnsTheFunctionsErrorAndReleases(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lock := newLock(t, store)
		require.Equal(t, errInjected.Error(), lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error {
			return errInjected
		}).Error())
		require.NoError(t, lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
			return lease.Release(ctx)
		}), "releasing early is fine")
		rec, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
		require.Equal(t, uint64(2), rec.Token)
	})
}

func TestPanicUnderDoReleasesTheLockAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore())
		require.PanicsWithValue(t, "boom", func() {
			_ = lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { panic("boom") })
		})
		rec, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
	})
}

func TestDoEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testctx.Within(t, time.Minute)
		err := newLock(t, leasehold.NewMemStore()).Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			<-ctx.Done()
			require.True(t, lease.Valid(), "still held while the function winds down")
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, leasehold.ErrLost)
	})
}

func TestDoThatDoesNotReturnLosesTheLockAfterATTL(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		err := newLock(t, mem).Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			time.Sleep(time.Hour)
			require.True(t, lease.Valid(), "for as long as its context lasts")
			cancel()
			time.Sleep(15 * time.Second)
			require.True(t, lease.Valid(), "while it winds down")
			patience, giveUp := context.WithTimeout(t.Context(), 20*time.Second)
			defer giveUp()
			next, err := newLock(t, mem).Acquire(patience)
			require.NoError(t, err)
			require.False(t, lease.Valid())
			return next.Release(t.Context())
		})
		require.ErrorIs(t, err, leasehold.ErrLost)
	})
}

func TestWatchYieldsEveryChangeOfTerm(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		var seen []string
		go func() {
			lock := newLock(t, store)
			for range 2 {
				lease, _ := lock.TryAcquire(t.Context())
				time.Sleep(time.Minute)
				_ = lease.Release(t.Context())
				time.Sleep(time.Minute)
			}
		}()
		ctx := testctx.Within(t, time.Hour)
		watcher := newFaultStore(store)
		watcher.next(fault{op: "get", err: errInjected})
		for status, err := range newLock(t, watcher).Watch(ctx) {
			if err != nil {
				seen = append(seen, "error")
				continue
			}
			seen = append(seen, fmt.Sprint(status.Record.Token, " ", status.State))
		}
		require.Equal(t, []string{"error", "1 held", "1 released", "2 held", "2 released"}, seen)
	})
}

func TestWaitingCandidateReadsTwicePerRenewal(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		lease := acquire(t, newLock(t, mem))
		store := newFaultStore(mem)
		ctx := testctx.Within(t, time.Hour)
		_, err := newLock(t, store).Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		requests := store.count()
		require.NotContains(t, requests, "put")
		require.InDelta(t, 2*3600/(5*0.975), len(requests), 40, "an hour of renewals every 5 s, less a fortieth")
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestAcquireBacksOffWhileTheStoreFails(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		for range 1000 {
			store.next(fault{op: "get", err: errInjected})
		}
		ctx := testctx.Within(t, time.Hour)
		_, err := newLock(t, store).Acquire(ctx)
		require.ErrorIs(t, err, errInjected)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.InDelta(t, 245, len(store.count()), 15, "one request per TTL, after the first few")
	})
}

// A store that answers, if only that the lock is held, ends the back-off. The next failure begins a
// new one.
func TestAHeldLockEndsTheBackOff(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		lease := acquire(t, newLock(t, mem))
		store := newFaultStore(mem)
		const failures = 10
		for range failures {
			store.next(fault{op: "get", err: errInjected})
		}
		store.next(fault{op: "get", apply: true}, fault{op: "get", err: errInjected})
		var sent []time.Time
		store.see = func(context.Context) { sent = append(sent, time.Now()) }
		ctx := testctx.Within(t, 5*time.Minute)
		_, err := newLock(t, store).Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Greater(t, sent[failures].Sub(sent[failures-1]), 10*time.Second, "the back-off has grown")
		require.Less(t, sent[failures+2].Sub(sent[failures+1]), 2*time.Second, "a new one")
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestSameLockIsHeldByItself(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store)
		var wg sync.WaitGroup
		got := make(chan *leasehold.Lease, 8)
		for range 8 {
			wg.Go(func() {
				if lease, err := lock.TryAcquire(t.Context()); err == nil {
					got <- lease
				} else if !errors.Is(err, leasehold.ErrHeld) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Len(t, got, 1)
		require.NoError(t, (<-got).Release(t.Context()))
	})
}

func TestBadInputIsRefusedBeforeAnyRequest(t *testing.T) {
	store := leasehold.NewMemStore()
	s3 := teststore.New(store, nil)
	for _, tc := range []struct {
		store leasehold.Store
		key   string
		opt   leasehold.Option
		says  string
	}{
		{store, "", nil, "empty"},
		{store, "a//b", nil, "empty path segment"},
		{store, "/a", nil, "empty path segment"},
		{store, "a/", nil, "empty path segment"},
		{store, "a/../b", nil, "path segment"},
		{store, "a\nb", nil, "control character"},
		{store, "a\ufffeb", nil, "U+FFFE"},
		{store, "a\uffffb", nil, "U+FFFF"},
		{store, "a\\b", nil, "backslash"},
		{store, "\xff", nil, "UTF-8"},
		{s3, key, leasehold.WithTTL(999 * time.Millisecond), "below 1s"},
		{store, key, leasehold.WithTTL(-time.Second), "TTL"},
		{s3, key, leasehold.WithRenewInterval(time.Millisecond), "renew interval"},
		{store, key, leasehold.WithRenewInterval(11 * time.Second), "second try"},
		{store, key, leasehold.WithPollInterval(-1), "poll interval"},
		{store, key, leasehold.WithClockDrift(2), "drift"},
		{store, key, leasehold.WithSkewAllowance(-1), "skew"},
		{store, key, leasehold.WithHolder("\xff"), "holder"},
		{store, key, leasehold.WithMetadata(map[string]string{"k": string(make([]byte, 9<<10))}), "metadata"},
	} {
		var opts []leasehold.Option
		if tc.opt != nil {
			opts = append(opts, tc.opt)
		}
		_, err := leasehold.NewLock(tc.store, tc.key, opts...)
		require.ErrorContains(t, err, tc.says)
	}
	manual := newLock(t, store, leasehold.WithManualRenewal())
	_, err := leasehold.NewElector(manual, leasehold.Callbacks{})
	require.ErrorContains(t, err, "WithManualRenewal")
	_, err = leasehold.NewElector(nil, leasehold.Callbacks{})
	require.ErrorContains(t, err, "nil")
}

func TestObserverSeesTheWholeStory(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		var story []string
		var mu sync.Mutex
		lock := newLock(t, store, leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			mu.Lock()
			defer mu.Unlock()
			line := string(e.Kind)
			if e.Kind == leasehold.EventRequest {
				line = e.Op + " " + leasehold.Outcome(e.Err)
			}
			story = append(story, line)
			require.Equal(t, key, e.Key)
		}))
		lease := acquire(t, lock)
		store.next(fault{op: "put", err: errInjected})
		time.Sleep(6 * time.Second)
		crash(store)
		<-lease.Context().Done()
		runtime.KeepAlive(lease)
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"get not_exist", "create ok", "new_leader", "acquired",
			"update error", "renew_failed", "update ok", "renewed",
			"update timeout", "renew_failed", "update timeout", "renew_failed", "lost", "update timeout"}, story)
	})
}

func TestEventsCarryTheContextOfTheirCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := map[string][]any{}
		lock := newLock(t, leasehold.NewMemStore(), leasehold.WithObserver(func(ctx context.Context,
			e leasehold.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen[string(e.Kind)] = append(seen[string(e.Kind)], ctx.Value(ctxKey{}))
		}))
		as := func(name string) context.Context { return context.WithValue(t.Context(), ctxKey{}, name) }
		lease, err := lock.TryAcquire(as("acquire"))
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		require.NoError(t, lease.Renew(as("renew")))
		require.NoError(t, lease.Release(as("release")))
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, map[string][]any{
			"request": {
				"acquire",
				"acquire",
				nil,
				"renew",
				"release",
			}, "new_leader": {"acquire"}, "acquired": {"acquire"},
			"renewed": {nil, "renew"}, "released": {"release"},
		}, seen)
	})
}

func TestDefaultHolder(t *testing.T) {
	first, second := newLock(t, leasehold.NewMemStore()), newLock(t, leasehold.NewMemStore())
	require.Regexp(t, fmt.Sprintf(`^[^/]+/%d/\w{8}$`, os.Getpid()), first.Holder())
	require.NotEqual(t, first.Holder(), second.Holder())
}

func TestWatchOfALockThatWasNotMade(t *testing.T) {
	var errs []error
	require.Empty(t, new(leasehold.Lock).Key()+new(leasehold.Lock).Holder())
	for _, err := range new(leasehold.Lock).Watch(t.Context()) {
		errs = append(errs, err)
	}
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "NewLock")
}

// Watch backs off while the store fails, and each time anew.
func TestWatchBacksOffWhileTheStoreFails(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		ctx := testctx.Within(t, time.Hour)
		for range 1000 {
			store.next(fault{op: "get", err: errInjected}, fault{op: "get", err: errInjected},
				fault{op: "get", apply: true})
		}
		var failed []time.Time
		for status, err := range newLock(t, store).Watch(ctx) {
			if err == nil {
				require.Len(t, failed, 2, "%s: the status is told once, and not again after each failure", status.State)
				continue
			}
			require.ErrorIs(t, err, errInjected)
			failed = append(failed, time.Now())
		}
		for i := 1; i < len(failed); i++ {
			pause := failed[i].Sub(failed[i-1])
			if i%2 == 1 { // after the first failure in a row
				require.InDelta(t, 750*time.Millisecond, pause, float64(75*time.Millisecond))
			} else { // after the second, a read and a poll interval
				require.InDelta(t, 4500*time.Millisecond, pause, float64(450*time.Millisecond))
			}
		}
		require.Greater(t, len(failed), 100)
	})
}

// A Store that panics has released nothing, and nobody is told that it has.
func TestAPanicDuringAReleaseIsNoRelease(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		broken := false
		store := teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if broken {
				panic("store")
			}
			return r.Send(ctx)
		})
		var told []error
		lease := acquire(t, newLock(t, store,
			onEvent(func(e leasehold.Event) { told = append(told, e.Err) }, leasehold.EventReleased)))
		broken = true
		require.Panics(t, func() { _ = lease.Release(t.Context()) })
		require.Len(t, told, 1)
		require.Error(t, told[0])
	})
}

func TestWatchEndsWithItsLoopAndOnFinalErrors(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		l := newLock(t, store)
		store.next(fault{op: "get", err: errInjected})
		for _, err := range l.Watch(t.Context()) {
			require.ErrorIs(t, err, errInjected)
			break // the loop must not be entered again
		}
		store.next(fault{op: "get", err: fmt.Errorf("%w: access denied", leasehold.ErrPermanent)})
		yielded := 0
		for _, err := range l.Watch(t.Context()) {
			require.ErrorIs(t, err, leasehold.ErrPermanent)
			yielded++
		}
		require.Equal(t, 1, yielded)
	})
}

// A store that refuses a write, although the object has not changed, may still carry it out. That
// is no lost race.
func TestARefusalWithoutAChangeIsNoLostRace(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		require.NoError(t, acquire(t, newLock(t, store.real)).Release(t.Context()))
		store.next(fault{op: "put", err: leasehold.ErrPreconditionFailed})
		_, err := newLock(t, store).TryAcquire(t.Context())
		require.ErrorContains(t, err, "refused a write although the object had not changed")
		require.NotErrorIs(t, err, leasehold.ErrPreconditionFailed)
		require.NotErrorIs(t, err, leasehold.ErrHeld)
	})
}

// tryAtOnce is the error of a try that has no time to watch anybody.
func tryAtOnce(t *testing.T, l *leasehold.Lock) error {
	ctx := testctx.Within(t, time.Nanosecond)
	_, err := l.TryAcquire(ctx)
	return err
}

// creating is a store in which somebody's create has begun and not ended: other creates are
// refused, and reads say that nothing is there.
func creating() *teststore.Store {
	s := teststore.New(leasehold.NewMemStore(), nil)
	s.Info.Conditional = true
	s.Fail(leasehold.ErrPreconditionFailed, teststore.Create)
	return s
}

func TestACreateBesideOneThatHasNotEndedIsALostRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, poll = 15 * time.Second, 3 * time.Second
		store := creating()
		l := newLock(t, store)
		for range 4 { // within a TTL
			err := tryAtOnce(t, l)
			held, ok := errors.AsType[*leasehold.HeldError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, poll, held.Wait)
			require.Equal(t, leasehold.Record{Key: key}, held.Record)
			require.ErrorContains(t, err, "another candidate is creating it")
			time.Sleep(ttl / 4)
		}
		time.Sleep(time.Second)
		err := tryAtOnce(t, l)
		require.NotErrorIs(t, err, leasehold.ErrHeld, "no create takes so long")
		require.ErrorContains(t, err, "refused a write although the object had not changed")
		time.Sleep(3 * ttl)
		err = tryAtOnce(t, l)
		require.ErrorIs(t, err, leasehold.ErrHeld, "who has not tried for long knows nothing of a create that has "+
			"begun since")

		store.Forget()
		ctx := testctx.Within(t, ttl*9/10)
		_, err = newLock(t, store).Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.InDelta(t, 5, store.Sent(teststore.Create), 1, "it goes on at the poll's pace")

		for name, end := range map[string]func(s *teststore.Store){
			"broken off": func(*teststore.Store) {},
			"landed": func(s *teststore.Store) {
				require.NoError(t, acquire(t, newLock(t, s.Store)).Release(t.Context()))
			},
		} {
			store := creating()
			time.AfterFunc(2*poll, func() { end(store); store.Fail(nil) })
			began := time.Now()
			lease, err := newLock(t, store).Acquire(t.Context())
			require.NoError(t, err, name)
			require.NoError(t, lease.Release(t.Context()), name)
			require.InDelta(t, 2.5*float64(poll), time.Since(began), float64(poll), name)
		}
	})
}

// A create that is refused costs three requests, and a wake-up is to cost one.
func TestAWakeUpBesideACreateCostsARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := creating()
		l := newLock(t, store)
		ctx := testctx.Within(t, 2*time.Second)
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(100 * time.Millisecond):
					l.Wake()
				}
			}
		}()
		_, err := l.Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Equal(t, 1, store.Sent(teststore.Create))
		require.Greater(t, store.Sent(teststore.Get), 10)
	})
}

// Also after a TTL, when the store counts as broken, a wake-up costs a read.
func TestAWakeUpBesideEndlessCreatesCostsARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := creating()
		l := newLock(t, store, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		ctx := testctx.Within(t, time.Minute)
		var waking sync.WaitGroup
		waking.Go(func() {
			for ctx.Err() == nil {
				l.Wake()
				time.Sleep(15 * time.Millisecond)
			}
		})
		_, err := l.Acquire(ctx)
		require.ErrorContains(t, err, "refused a write although the object had not changed")
		waking.Wait()
		reads, creates := store.Sent(teststore.Get), store.Sent(teststore.Create)
		require.LessOrEqual(t, creates, 23, "one in nine tenths of a poll interval")
		require.LessOrEqual(t, reads-creates, 10+10*60/3+20, "those of the wake-ups, and its own")
	})
}

// For a TTL, a refusal may be a race. Whoever waits longer backs off, and is told of it.
func TestAStoreThatRefusesEveryCreateIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := creating()
		l := newLock(t, store, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		elector, err := leasehold.NewElector(l, leasehold.Callbacks{OnNewLeader: func(r leasehold.Record) {
			t.Errorf("nobody leads: %v", r)
		}})
		require.NoError(t, err)
		ctx := testctx.Within(t, 5*time.Minute)
		require.NoError(t, elector.Run(ctx))
		_, known := elector.Leader()
		require.False(t, known)
		require.Less(t, store.Sent(teststore.Create), 40, "five in the first TTL, and then about one in a TTL")
		_, err = l.TryAcquire(t.Context())
		require.ErrorContains(t, err, "refused a write although the object had not changed")
	})
}

// Refusals of the past do not count against a store in which the object has been seen since.
func TestACreateIsRefusedAgainAfterTheObjectWasThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := creating()
		l := newLock(t, store)
		err := tryAtOnce(t, l)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		store.Fail(nil)
		time.Sleep(3 * time.Second)
		require.NoError(t, acquire(t, l).Release(t.Context()))
		o, err := store.Get(t.Context(), l.Key())
		require.NoError(t, err)
		require.NoError(t, store.DeleteIfMatch(t.Context(), l.Key(), o.ETag))
		time.Sleep(time.Hour)
		store.Fail(leasehold.ErrPreconditionFailed, teststore.Create)
		err = tryAtOnce(t, l) // writes over its own version, which is gone
		require.ErrorIs(t, err, leasehold.ErrHeld)
	})
}

func TestAReleaseThatIsForbiddenEndsAtOnce(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lease := acquire(t, newLock(t, store))
		store.next(fault{op: "put", err: fmt.Errorf("%w: access denied", leasehold.ErrPermanent)})
		began := time.Now()
		require.ErrorIs(t, lease.Release(t.Context()), leasehold.ErrPermanent)
		require.Equal(t, began, time.Now())
	})
}

func TestRenewalsTellHowLongTheLeaseLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var remaining []time.Duration
		lease := acquire(t, newLock(t, leasehold.NewMemStore(),
			onEvent(func(e leasehold.Event) { remaining = append(remaining, e.Remaining) }, leasehold.EventRenewed)))
		require.NoError(t, lease.Renew(t.Context()))
		require.Equal(t, []time.Duration{12 * time.Second}, remaining, "the TTL minus the safety margin")
		require.NoError(t, lease.Release(t.Context()))
	})
}

// No timer has noticed yet that the lease has run out.
func TestDoUnderALeaseThatHasJustRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBrokenClock()
		lease := acquire(t, newLock(t, leasehold.NewMemStore(), withClock(c)))
		c.move(clock.Reading{Wall: time.Hour})
		err := lease.Do(t.Context(), func(context.Context, *leasehold.Lease) error {
			t.Error("the function runs")
			return nil
		})
		require.ErrorIs(t, err, leasehold.ErrLost)
	})
}

func TestMetadataThatIsNoText(t *testing.T) {
	for _, m := range []map[string]string{{"\xff": "value"}, {"key": "\xff"}} {
		_, err := leasehold.NewLock(leasehold.NewMemStore(), key, leasehold.WithMetadata(m))
		require.ErrorContains(t, err, "not valid UTF-8")
	}
}

func TestAReleasedRecordIsNoNewLeader(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		require.NoError(t, acquire(t, newLock(t, mem)).Release(t.Context()))
		l := newLock(t, mem, leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			require.NotEqual(t, leasehold.EventNewLeader, e.Kind)
		}))
		rec, err := l.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
	})
}

// What stands in the way is the lock's own function, and no other candidate.
func TestHeldErrorAfterAReleaseInsideDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore(), leasehold.WithHolder("alice"))
		require.NoError(t, lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
			require.NoError(t, lease.Release(ctx))
			_, err := lock.TryAcquire(context.Background())
			require.ErrorIs(t, err, leasehold.ErrHeld)
			require.NotContains(t, err.Error(), "other candidates were faster")
			return nil
		}))
	})
}

// raced lets others act just before each conditional write.
func raced(s leasehold.Store, before func()) leasehold.Store {
	return teststore.New(s, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if r.Op == teststore.Update {
			before()
		}
		return r.Send(ctx)
	})
}

// Wait is how long the lease of the last winner lasts.
func TestHeldErrorWaitAfterFourLostRaces(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		require.NoError(t, acquire(t, newLock(t, mem)).Release(t.Context()))
		rival := newLock(t, mem, leasehold.WithHolder("rival"))
		n := 0
		store := raced(mem, func() {
			n++
			lease, err := rival.TryAcquire(t.Context())
			if err == nil && n < 4 {
				_ = lease.Release(t.Context())
			}
		})
		_, err := newLock(t, store).TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		t.Log(err)
		require.False(t, held.Record.Released())
		require.Greater(t, held.Wait, 15*time.Second, "the rival holds it")
	})
}

// The error of a TryAcquire that was cut off and could not release says that the lock stays taken
// for a TTL.
func TestACutOffTryAcquireTellsOfAStrayLock(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		var kinds []string
		var err error
		text := logged(t, func() {
			lock := newLock(t, store, leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
				kinds = append(kinds, string(e.Kind))
			}))
			ctx, cancel := context.WithCancel(t.Context())
			store.next(fault{op: "put", apply: true, delay: time.Second}, fault{op: "put", err: errInjected})
			time.AfterFunc(500*time.Millisecond, cancel)
			_, err = lock.TryAcquire(ctx)
		})
		rec, _ := newLock(t, store).Inspect(t.Context())
		t.Logf("error %q, log %q, events %v, released %v", err, text, kinds, rec.Released())
		require.True(t, errors.Is(err, errInjected) || text != "" || rec.Released())
	})
}

// TryAcquire says its ctx's cause, as Acquire does.
func TestTryAcquireTellsTheCauseOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := errors.New("mine")
		store := newFaultStore(leasehold.NewMemStore())
		ctx, cancel := context.WithCancelCause(t.Context())
		store.next(fault{op: "put", apply: true, delay: time.Second})
		time.AfterFunc(500*time.Millisecond, func() { cancel(mine) })
		_, err := newLock(t, store).TryAcquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, mine)
	})
}

// Acquire with the ended context of a lost lease has that context's error.
func TestAcquireWithTheEndedContextOfALostLease(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		_ = lock.Do(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
			crash(store)
			<-ctx.Done()
			_, err := lock.Acquire(ctx)
			require.ErrorIs(t, err, context.Canceled)
			return nil
		})
	})
}

// Whoever hears of a release has heard of the acquisition.
func TestEventsOfACutOffAcquisition(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		n := map[leasehold.EventKind]int{}
		lock := newLock(t, store, leasehold.WithObserver(func(_ context.Context, e leasehold.Event) { n[e.Kind]++ }))
		ctx, cancel := context.WithCancel(t.Context())
		store.next(fault{op: "put", apply: true, delay: time.Second})
		time.AfterFunc(500*time.Millisecond, cancel)
		_, err := lock.TryAcquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, n[leasehold.EventAcquired], n[leasehold.EventReleased]+n[leasehold.EventLost])
	})
}

// An acquisition that took too long is released also if its ctx has ended.
func TestTooLateAndCutOffLeavesNoStrayLock(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		c := newBrokenClock()
		ctx, cancel := context.WithCancel(t.Context())
		store := sleepy(mem, func() { c.suspend(13 * time.Second); cancel() })
		_, err := newLock(t, store, withClock(c)).TryAcquire(ctx)
		rec, _ := newLock(t, mem).Inspect(t.Context())
		t.Log(err)
		require.True(t, rec.Released(), "so that it leaves no stray lock")
	})
}

// scripted answers each write as the next step says, and each write after the last step as it is.
type scripted struct {
	*teststore.Store
	clock  *brokenClock
	cancel context.CancelFunc
	mu     sync.Mutex // because the two writes that try a store are sent side by side
	steps  []string
	reads  error // of the read after the step that sets it
}

func newScripted(s leasehold.Store, steps ...string) *scripted {
	scripted := &scripted{steps: steps}
	scripted.Store = teststore.New(s, scripted.do)
	return scripted
}

func (s *scripted) next(op teststore.Op) (step string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op == teststore.Get {
		err, s.reads = s.reads, nil
		return "", err
	}
	if len(s.steps) > 0 {
		step, s.steps = s.steps[0], s.steps[1:]
	}
	return step, nil
}

func (s *scripted) do(ctx context.Context, r teststore.Request) (o leasehold.Object, err error) {
	step, err := s.next(r.Op)
	switch {
	case err != nil:
	case step == "":
		return r.Send(ctx)
	case step == "late":
		defer s.clock.suspend(13 * time.Second)
		return r.Send(ctx)
	case step == "landed, unanswered, and unreadable":
		_, _ = r.Send(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reads, err = errInjected, errInjected
	case step == "conflict, and the end of ctx":
		s.cancel()
		err = leasehold.ErrConflict
	case step == "conflict":
		err = leasehold.ErrConflict
	case step == "refused":
		err = leasehold.ErrPreconditionFailed
	default:
		err = errInjected
	}
	return o, err
}

// An acquisition came too late. Whatever follows, it is released, or the error says that it was
// left.
func TestWhatComesTooLateIsGivenBack(t *testing.T) {
	for _, steps := range [][]string{
		{"late", "failure"},
		{"late", "conflict", "failure"},
		{"late", "conflict", "conflict, and the end of ctx"},
		{"late", "conflict, and the end of ctx"},
		{"late", "conflict", "conflict", "conflict"},
		{"late", "conflict", "late", "conflict"},
		{"late", "refused"},
		{"late", "late", "late", "late"},
		{"late", "conflict", "failure", "conflict", "refused"}, // which meet the release
		{"late", "landed, unanswered, and unreadable"},
	} {
		for _, left := range []bool{false, true} {
			steps := slices.Clone(steps)
			if left {
				steps = append(steps, "failure", "failure", "failure", "failure")
			}
			bubble.Run(t, fmt.Sprint(steps), func(t *testing.T) {
				mem, c := leasehold.NewMemStore(), newBrokenClock()
				ctx, cancel := context.WithCancel(t.Context())
				store := newScripted(mem, steps...)
				store.clock, store.cancel = c, cancel
				l := newLock(t, store, withClock(c), leasehold.WithLogger(slog.New(slog.DiscardHandler)))
				_, err := l.TryAcquire(ctx)
				t.Log(err)
				require.Error(t, err)
				require.NotErrorIs(t, err, leasehold.ErrHeld, "nobody else has it")
				require.Equal(t, !left, stored(t, mem).Released())
				if left {
					require.ErrorContains(t, err, "it could not be released")
				}
				if ctx.Err() != nil {
					require.ErrorIs(t, err, context.Canceled)
				}
			})
		}
	}
}

// What another has replaced is not given back.
func TestWhatCameTooLateAndWasReplacedIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, c := leasehold.NewMemStore(), newBrokenClock()
		store := newScripted(mem, "late")
		store.clock = c
		rival := newLock(t, mem)
		var theirs *leasehold.Lease
		l := newLock(t, sleepy(store, func() {
			require.NoError(t, newLock(t, mem).Break(t.Context(), 1))
			theirs = acquire(t, rival)
		}), withClock(c))
		_, err := l.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.NoError(t, theirs.Renew(t.Context()))
		require.Equal(t, 2, store.Sent(teststore.Puts...))
		require.NoError(t, theirs.Release(t.Context()))
	})
}

// A store that answers each write with a conflict, or with a refusal, while the object stays as it
// is: a candidate backs off, says so, and is not healthy.
func TestAStoreThatRefusesToReplaceAFreeLock(t *testing.T) {
	for err, text := range map[error]string{
		leasehold.ErrConflict:           "conflicting write",
		leasehold.ErrPreconditionFailed: "refused a write",
		errInjected:                     errInjected.Error(),
	} {
		bubble.Run(t, text, func(t *testing.T) {
			mem := leasehold.NewMemStore()
			require.NoError(t, acquire(t, newLock(t, mem)).Release(t.Context()))
			store := teststore.New(mem, nil)
			store.Fail(err, teststore.Puts...)
			ctx := testctx.Within(t, 5*time.Minute)
			said := logged(t, func() {
				elector, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
				require.NoError(t, err)
				time.AfterFunc(29*time.Second, func() { require.NoError(t, elector.Check(nil)) })
				time.AfterFunc(31*time.Second, func() { require.ErrorContains(t, elector.Check(nil), text) })
				require.NoError(t, elector.Run(ctx))
			})
			require.Contains(t, said, "acquiring the lock failed")
			require.Contains(t, said, text)
			require.Less(t, store.Sent(teststore.Puts...), 4*30, "about one try in a TTL, after the first ones")
		})
	}
}

// sleepy answers the create of an object, which ctx does not end, after sleep.
func sleepy(s leasehold.Store, sleep func()) leasehold.Store {
	return teststore.New(s, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if r.Op != teststore.Create {
			return r.Send(ctx)
		}
		defer sleep()
		return r.Send(context.WithoutCancel(ctx))
	})
}

// A client of two members reads the record, raises token and expiry, and keeps whatever else stands
// there.
func TestARecordWithOurNonceIsNotOursIfAnotherRaisedIt(t *testing.T) {
	foreignTake := func(t *testing.T, s leasehold.Store) {
		t.Helper()
		o, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		rec := map[string]any{}
		require.NoError(t, json.Unmarshal(o.Body, &rec))
		rec["token"] = rec["token"].(float64) + 1
		rec["expires_at"] = float64(time.Now().Add(time.Hour).Unix())
		body, err := json.Marshal(rec)
		require.NoError(t, err)
		damage(t, s, string(body))
	}
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lock := newLock(t, store)
		require.NoError(t, acquire(t, lock).Release(t.Context()))
		foreignTake(t, store)
		_, err := newLock(t, store).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		_, err = lock.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
	})
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		foreignTake(t, store)
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
		rec, err := newLock(t, store).Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, uint64(2), rec.Token)
		require.False(t, rec.Released())
	})
	synctest.Test(t, func(t *testing.T) { // while a renewal without an answer is under way
		store := newFaultStore(leasehold.NewMemStore())
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		store.next(fault{op: "put", apply: true, err: errInjected})
		ctx := testctx.Within(t, time.Millisecond)
		require.ErrorIs(t, lease.Renew(ctx), errInjected)
		foreignTake(t, store.real)
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
	})
}

// The text of an error begins with the package's name, once, and says the cause before the cure.
func TestErrorTexts(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store, leasehold.WithHolder("alice"), leasehold.WithManualRenewal())
		_, err := lock.Inspect(t.Context())
		require.EqualError(t, err, `leasehold: lock "locks/test": no such object: it was never taken, or was deleted`)
		lease := acquire(t, lock)
		_, err = newLock(t, store).TryAcquire(t.Context())
		require.EqualError(t, err,
			`leasehold: lock "locks/test": lock is held by "alice" with token 1, for 15.3s unless renewed`)
		ctx := testctx.Within(t, time.Second)
		_, err = newLock(t, store).Acquire(ctx)
		require.EqualError(t, err, `leasehold: lock "locks/test": waiting: context deadline exceeded: `+
			`lock is held by "alice" with token 1, for 15.3s unless renewed`)
		err = newLock(t, store).Break(t.Context(), 7)
		require.EqualError(t, err,
			`leasehold: lock "locks/test": precondition failed: it is in term 1 of "alice", not 7`)
		damage(t, store, `{}`)
		require.EqualError(t, lease.Renew(t.Context()),
			`leasehold: lock "locks/test": lease lost (token 1): overwritten: corrupt lock record: `+
				`no expires_at (inspect the object, then repair it with Lock.Break)`)
		require.EqualError(t, lease.Release(t.Context()), lease.Renew(t.Context()).Error())
		crash(store)
		ctx = testctx.Within(t, time.Second)
		_, err = lock.Inspect(ctx)
		require.EqualError(t, err, `leasehold: lock "locks/test": context deadline exceeded`)
	})
}

// section is a critical section that knows if two are ever in it.
type section struct {
	inside   atomic.Int32
	overlaps atomic.Int32
}

func (s *section) enter() {
	if s.inside.Add(1) > 1 {
		s.overlaps.Add(1)
	}
}

func (s *section) leave() { s.inside.Add(-1) }

func TestALostTermKeepsItsLockUntilTheFunctionHasReturned(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, l *leasehold.Lock, work func(context.Context)) error{
		"Do": func(ctx context.Context, l *leasehold.Lock, work func(context.Context)) error {
			for ctx.Err() == nil {
				_ = l.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
					work(ctx)
					return nil
				})
			}
			return nil
		},
		"Lease.Do": func(ctx context.Context, l *leasehold.Lock, work func(context.Context)) error {
			for ctx.Err() == nil {
				if lease, err := l.Acquire(ctx); err == nil {
					_ = lease.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
						work(ctx)
						return nil
					})
				}
			}
			return nil
		},
		"Elector": func(ctx context.Context, l *leasehold.Lock, work func(context.Context)) error {
			e, err := leasehold.NewElector(l, leasehold.Callbacks{OnStartedLeading: func(ctx context.Context,
				_ *leasehold.Lease) {
				work(ctx)
			}})
			if err != nil {
				return err
			}
			return e.Run(ctx)
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			lock := newLock(t, store)
			ctx, cancel := context.WithCancel(t.Context())
			var s section
			terms := 0
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if err := run(ctx, lock, func(ctx context.Context) {
						s.enter()
						defer s.leave()
						terms++
						// within the safety margin, and beyond it
						windDown := []time.Duration{2900 * time.Millisecond, 10 * time.Second}[terms%2]
						<-ctx.Done()
						time.Sleep(windDown)
					}); err != nil {
						t.Error(err)
					}
				})
			}
			for range 20 { // outages that end a lease, and end just after it
				time.Sleep(30 * time.Second)
				store.down.Store(true)
				time.Sleep(13 * time.Second)
				store.down.Store(false)
			}
			cancel()
			wg.Wait()
			require.Zero(t, s.overlaps.Load())
			require.Greater(t, terms, 10)
		})
	}
}

func TestALostLeaseWithoutAFunctionKeepsItsLockForTheSafetyMargin(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store)
		lease := acquire(t, lock)
		store.down.Store(true)
		<-lease.Context().Done()
		runtime.KeepAlive(lease)
		store.down.Store(false)
		_, err := lock.TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, 3*time.Second, held.Wait)
		time.Sleep(held.Wait - 1)
		_, err = lock.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		time.Sleep(time.Nanosecond)
		require.NoError(t, acquire(t, lock).Release(t.Context()))
	})
}

// A callback that returns early may have left goroutines behind, which have the safety margin to
// stop.
func TestATermWhoseCallbackReturnedEarlyKeepsTheMargin(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		var mu sync.Mutex
		var ended time.Time
		var began []time.Time
		e, err := leasehold.NewElector(newLock(t, store, leasehold.WithPollInterval(100*time.Millisecond)),
			leasehold.Callbacks{
				OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) {
					mu.Lock()
					defer mu.Unlock()
					began = append(began, time.Now())
					context.AfterFunc(ctx, func() {
						mu.Lock()
						defer mu.Unlock()
						ended = time.Now()
					})
				},
			})
		require.NoError(t, err)
		stop := running(t, e)
		time.Sleep(time.Second)
		require.NoError(t, newLock(t, store).Break(t.Context(), 1))
		time.Sleep(10 * time.Second)
		mu.Lock()
		times, lost := slices.Clone(began), ended
		mu.Unlock()
		require.NoError(t, stop())
		require.Len(t, times, 2)
		require.InDelta(t, 3*time.Second, times[1].Sub(lost), float64(200*time.Millisecond))
	})
}

func TestALostTermWhoseFunctionHasReturnedKeepsNobodyOut(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lock := newLock(t, store)
		require.ErrorIs(t, lock.Do(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
			require.NoError(t, newLock(t, store).Break(t.Context(), 1))
			<-ctx.Done()
			return nil
		}), leasehold.ErrLost)
		require.NoError(t, acquire(t, lock).Release(t.Context()))
	})
}

func TestAReleaseUnderWayIsHeldForSiblings(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store)
		done := make(chan error)
		go func() {
			done <- lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error {
				store.next(fault{
					op:    "put",
					apply: true,
					later: 500 * time.Millisecond,
					delay: time.Second,
					err:   errInjected,
				})
				return nil
			})
		}()
		time.Sleep(200 * time.Millisecond)
		_, err := lock.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld, "the release is under way")
		require.NoError(t, <-done)
		require.NoError(t, acquire(t, lock).Release(t.Context()))
	})
}

func TestAFailedReleaseFreesTheLockForSiblings(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store)
		lease := acquire(t, lock)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		store.next(fault{op: "put", err: errInjected})
		require.ErrorIs(t, lease.Release(ctx), errInjected)
		next := acquire(t, lock)
		require.Equal(t, uint64(2), next.Token())
		require.NoError(t, lease.Release(t.Context()), "for all that is known the first attempt has landed")
		require.True(t, next.Valid())
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestALostRaceIsAlwaysErrHeld(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		var tries, won atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			lock := newLock(t, hesitant(mem))
			wg.Go(func() {
				for tries.Add(1) <= 5000 {
					lease, err := lock.TryAcquire(t.Context())
					switch {
					case err == nil:
						won.Add(1)
						if err := lease.Release(t.Context()); err != nil {
							t.Error(err)
						}
					case !errors.Is(err, leasehold.ErrHeld), errors.Is(err, leasehold.ErrPreconditionFailed):
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d tries, %d successes", tries.Load()-16, won.Load())
		require.Greater(t, won.Load(), int64(100))
	})
}

func TestWaitingForOneselfIsAnErrorAtOnce(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lock := newLock(t, store)
		other, err := leasehold.NewLock(store, "locks/other", leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		nothing := func(context.Context, *leasehold.Lease) error { return nil }
		began := time.Now()
		var after context.Context
		require.NoError(t, lock.Do(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
			after = context.WithoutCancel(ctx)
			require.ErrorContains(t, lock.Do(ctx, nothing), "wait for itself")
			_, err := lock.Acquire(ctx)
			require.ErrorContains(t, err, "wait for itself")
			e, err := leasehold.NewElector(lock, leasehold.Callbacks{})
			require.NoError(t, err)
			require.ErrorContains(t, e.Run(ctx), "wait for itself")
			_, err = lock.TryAcquire(ctx)
			require.ErrorIs(t, err, leasehold.ErrHeld)
			return other.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
				require.ErrorContains(t, lock.Do(ctx, nothing), "wait for itself", "below another lock's lease, too")
				return nil
			})
		}))
		require.Zero(t, time.Since(began))
		require.NoError(t, lock.Do(after, nothing), "the lease is over")
	})
}

func TestLocksThatWereNotMadeAreRefused(t *testing.T) {
	for name, lock := range map[string]*leasehold.Lock{"not made by NewLock": {}, "lock is nil": nil} {
		_, err := lock.TryAcquire(t.Context())
		require.ErrorContains(t, err, name)
		_, err = lock.Acquire(t.Context())
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, lock.Do(t.Context(), nil), name)
		_, err = lock.Inspect(t.Context())
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, lock.Break(t.Context(), 1), name)
		for _, err := range lock.Watch(t.Context()) {
			require.ErrorContains(t, err, name)
		}
		_, err = leasehold.NewElector(lock, leasehold.Callbacks{})
		require.ErrorContains(t, err, name)
	}
}

// Wait counts the margin after a sibling's lease.
func TestHeldErrorWaitOfASibling(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store, leasehold.WithManualRenewal())
		acquire(t, lock)
		_, err := lock.TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		time.Sleep(held.Wait)
		_, err = lock.TryAcquire(t.Context())
		require.NoError(t, err, "after Wait = %v", held.Wait)
	})
}

// faultStore is the connection of one client to a store. It can be cut, and each request can have a
// fault of its own.
type faultStore struct {
	*teststore.Store
	real leasehold.Store
	see  func(context.Context) // if set, receives the context of every request
	down atomic.Bool           // no request reaches the store, and each hangs until its context ends

	mu       sync.Mutex
	plan     []fault
	requests []string
}

// newFaultStore says that the store is a known one, so that no requests but the planned ones are
// sent, and allows any TTL.
func newFaultStore(s leasehold.Store) *faultStore {
	f := &faultStore{real: s}
	f.Store = teststore.New(s, f.do)
	f.Info = leasehold.StoreInfo{MinTTL: time.Millisecond, Conditional: true}
	return f
}

// onMemStore runs a test in virtual time, on a store of its own.
func onMemStore(t *testing.T, f func(t *testing.T, store leasehold.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, leasehold.NewMemStore()) })
}

// onFaultStore runs a test in virtual time, on such a connection to a store of its own.
func onFaultStore(t *testing.T, f func(t *testing.T, store *faultStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newFaultStore(leasehold.NewMemStore())) })
}

// fault is what happens to one request.
type fault struct {
	// "get", "put" or "delete": the fault waits for such a request, and the faults planned after it
	// wait too
	op    string
	apply bool // the request reaches the store
	// if set, the request reaches the store that long after it was sent, and the client gets no
	// result of it
	later time.Duration
	delay time.Duration // until the client is answered
	err   error         // the answer, if not the store's own
}

// next plans faults for the next requests.
func (s *faultStore) next(faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = append(s.plan, faults...)
}

// count returns the kinds of all requests since its last call.
func (s *faultStore) count() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests
	s.requests = nil
	return r
}

func (s *faultStore) do(ctx context.Context, r teststore.Request) (got leasehold.Object, err error) {
	if s.see != nil {
		s.see(ctx)
	}
	op := string(r.Op)
	if r.Puts() {
		op = "put"
	}
	s.mu.Lock()
	s.requests = append(s.requests, op)
	f := fault{apply: true}
	if len(s.plan) > 0 && s.plan[0].op == op {
		f, s.plan = s.plan[0], s.plan[1:]
	}
	s.mu.Unlock()
	var none leasehold.Object
	if s.down.Load() {
		<-ctx.Done()
		return none, ctx.Err()
	}
	switch {
	case f.apply && f.later > 0:
		go func() {
			time.Sleep(f.later)
			_, _ = r.Send(context.WithoutCancel(ctx))
		}()
	case f.apply:
		got, err = r.Send(context.WithoutCancel(ctx))
	}
	// A timer of no time in a select crashed the runtime of Go 1.26, about once in fifty runs.
	if f.delay > 0 {
		if err := clock.System.Sleep(ctx, f.delay); err != nil {
			return none, err
		}
	}
	if f.err != nil {
		return none, f.err
	}
	return got, err
}

// brokenClock is the bubble's clock with an offset for each kind of clock, as on a machine whose
// clocks are wrong.
type brokenClock struct {
	clock.Clock
	mu     sync.Mutex
	offset clock.Reading
}

func newBrokenClock() *brokenClock { return &brokenClock{Clock: clock.System} }

func (c *brokenClock) Now() clock.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	now.Boot = now.Mono // because CLOCK_BOOTTIME is not virtual
	now.Mono += c.offset.Mono
	now.Wall += c.offset.Wall
	now.Boot += c.offset.Boot
	return now
}

// move adds to the clock's offsets.
func (c *brokenClock) move(by clock.Reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset.Mono += by.Mono
	c.offset.Wall += by.Wall
	c.offset.Boot += by.Boot
}

// suspend makes the clocks read as after a suspend of d: all but the monotonic clock have advanced.
func (c *brokenClock) suspend(d time.Duration) {
	time.Sleep(d)
	c.move(clock.Reading{Mono: -d})
}

func withClock(c clock.Clock) leasehold.Option { return testopt.WithClock(c) }
