package leasehold_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// misconfigured is a store that says of itself that it cannot work.
type misconfigured struct{ leasehold.Store }

func (misconfigured) Validate() error { return errors.New("the bucket has no name") }

// The mistakes of a newcomer that NewLock can know of: each is told before any request, with its cause and its cure.
func TestMistakesThatAreToldAtOnce(t *testing.T) {
	mem := leasehold.NewMemStore()
	s3 := floor{mem}
	for says, mistake := range map[string]struct {
		store leasehold.Store
		opt   leasehold.Option
	}{
		"store is nil":            {nil, nil},
		"the bucket has no name":  {misconfigured{mem}, nil},
		"an Option is nil":        {mem, leasehold.Option(nil)},
		"TTL 0s is below 1s":      {s3, leasehold.WithTTL(0)},
		"TTL 0s is below 1ms":     {mem, leasehold.WithTTL(0)},
		"write 15*time.Second":    {s3, leasehold.WithTTL(15)},
		"TTL 16ns is below 1ms":   {mem, leasehold.WithTTL(16)},
		"TTL 17ns is below 1ms":   {&faultStore{Store: mem}, leasehold.WithTTL(17)}, // a store whose MinTTL is 0
		"TTL 876001h0m0s is over": {mem, leasehold.WithTTL(876_001 * time.Hour)},
		"renew interval 0s is below 333.333333ms, a third of the minimum TTL": {s3, leasehold.WithRenewInterval(0)},
		"renew interval 5ns":                      {s3, leasehold.WithRenewInterval(5)},
		"poll interval 0s is below 50ms":          {s3, leasehold.WithPollInterval(0)},
		"poll interval 3ns is below 50ms":         {s3, leasehold.WithPollInterval(3)},
		"write 4*time.Second":                     {s3, leasehold.WithPollInterval(4)},
		"poll interval 876001h0m0s is over":       {s3, leasehold.WithPollInterval(876_001 * time.Hour)},
		"safety margin 0s is below 10ms":          {s3, leasehold.WithSafetyMargin(0)},
		"safety margin -1s is below 10ms":         {s3, leasehold.WithSafetyMargin(-time.Second)},
		"safety margin 15s is not below the TTL":  {s3, leasehold.WithSafetyMargin(15 * time.Second)},
		"WithIdentity: the name is empty":         {s3, leasehold.WithIdentity("")},
		"WithReclaim needs WithIdentity":          {s3, leasehold.WithReclaim()},
		"metadata of 49172 bytes as JSON is over": {s3, leasehold.WithMetadata(map[string]string{"k": strings.Repeat("\x00", 8<<10)})},
	} {
		var opts []leasehold.Option
		if mistake.opt != nil || says == "an Option is nil" {
			opts = append(opts, mistake.opt)
		}
		_, err := leasehold.NewLock(mistake.store, key, opts...)
		require.ErrorContains(t, err, says)
		require.Regexp(t, `^leasehold: `, err.Error())
		require.Equal(t, 1, strings.Count(err.Error(), "leasehold: "), err.Error())
	}
}

// floor is a store with the least TTL of any that has no MinTTL.
type floor struct{ *leasehold.MemStore }

func (floor) MinTTL() time.Duration { return time.Second }

// logged has f called while slog.Default writes to the result.
func logged(t *testing.T, f func()) string {
	t.Helper()
	var mu sync.Mutex
	var text bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(p)
	}), nil)))
	f()
	mu.Lock()
	defer mu.Unlock()
	return text.String()
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestFailuresAreTold(t *testing.T) {
	away := errors.New("connection refused")
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		var e *leasehold.Elector
		var errRun, errAcquire, errCheck error
		var checked sync.WaitGroup
		text := logged(t, func() {
			for range 1000 {
				store.next(fault{op: "get", err: away})
			}
			lock := newLock(t, store)
			var err error
			e, err = leasehold.NewElector(lock, leasehold.Callbacks{})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("the user's own cause"))
			defer cancel()
			checked.Go(func() {
				time.Sleep(31 * time.Second)
				errCheck = e.Check(nil)
			})
			errRun = e.Run(ctx)
			checked.Wait()
			waiting, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			_, errAcquire = lock.Acquire(waiting)
		})
		require.Contains(t, text, "acquiring the lock failed, will retry")
		require.Contains(t, text, "connection refused")
		require.ErrorIs(t, errCheck, away)
		require.ErrorIs(t, errRun, away, "the store never answered")
		require.ErrorIs(t, errRun, context.DeadlineExceeded)
		require.ErrorIs(t, errAcquire, away)
		require.Equal(t, `leasehold: lock "locks/test": waiting: context deadline exceeded: connection refused`, errAcquire.Error())

		require.Empty(t, logged(t, func() {
			store.next(fault{op: "get", err: away})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := newLock(t, store, leasehold.WithLogger(nil)).Acquire(ctx)
			require.Error(t, err)
		}), "a nil logger is silent")
		store.mu.Lock()
		store.plan = nil
		store.mu.Unlock()
		require.Empty(t, logged(t, func() {
			require.NoError(t, acquire(t, newLock(t, store)).Release(t.Context()))
		}), "nothing went wrong")
	})
}

func TestTheEndOfItsContextIsNoErrorOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, holder := range []bool{false, true} {
			store := leasehold.NewMemStore()
			if holder {
				acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
			}
			e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(5*time.Second, func() { cancel(errors.New("terminated signal received")) })
			require.NoError(t, e.Run(ctx))
		}
	})
}

func TestRunEndsOnACorruptRecordBeforeTheFirstGoodAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		etag, err := store.PutIfNoneMatch(t.Context(), key, []byte("<html>"))
		require.NoError(t, err)
		e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
		require.NoError(t, err)
		require.ErrorIs(t, e.Run(t.Context()), leasehold.ErrCorruptRecord)

		require.NoError(t, newLock(t, store).Break(t.Context(), 7))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(time.Minute)
		require.True(t, e.IsLeader())
		o, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		require.NotEqual(t, etag, o.ETag)
		_, err = store.PutIfMatch(t.Context(), key, []byte("<html>"), o.ETag)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.False(t, e.IsLeader())
		require.ErrorIs(t, e.Check(nil), leasehold.ErrCorruptRecord)
		select {
		case err := <-done:
			t.Fatalf("Run ended: %v", err)
		default:
		}
		cancel()
		<-done
	})
}

func TestRunReportsAReleaseOfACutOffAcquisitionThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		store.next(fault{op: "put", apply: true, delay: time.Second}, fault{op: "put", err: errInjected})
		time.AfterFunc(500*time.Millisecond, cancel)
		require.ErrorIs(t, e.Run(ctx), errInjected)
	})
}

func TestCheckIsHealthyWhileAnElectorRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore(), leasehold.WithPollInterval(30*time.Second)), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		synctest.Wait()
		for range 20 { // every other rest is longer than the two poll intervals after which silence is a fault
			require.NoError(t, e.Resign(t.Context()))
			for range 70 {
				time.Sleep(time.Second)
				require.NoError(t, e.Check(nil))
			}
		}
		cancel()
		require.NoError(t, <-done)
	})
}

func TestACallbackThatReleasesRestsAsAfterResign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore()), leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
				if terms++; terms > 100 {
					cancel() // it spins, and no time passes
				}
				_ = lease.Release(ctx)
			},
		})
		require.NoError(t, err)
		require.NoError(t, e.Run(ctx))
		require.InDelta(t, 10, terms, 2, "one term every two poll intervals")
	})
}

func TestNeverStoppedWithoutStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, stopped := 0, 0
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore()), leasehold.Callbacks{
			OnNewLeader:      func(leasehold.Record) { panic("boom") },
			OnStartedLeading: func(context.Context, *leasehold.Lease) { started++ },
			OnStoppedLeading: func(error) { stopped++ },
		})
		require.NoError(t, err)
		require.PanicsWithValue(t, "boom", func() { _ = e.Run(t.Context()) }, "the callback's own value")
		require.Zero(t, started)
		require.Zero(t, stopped)
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

// A client of two members reads the record, raises token and expiry, and keeps whatever else stands there.
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
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		lock := newLock(t, store)
		require.NoError(t, acquire(t, lock).Release(t.Context()))
		foreignTake(t, store)
		_, err := newLock(t, store).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		_, err = lock.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
	})
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		foreignTake(t, store)
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
		rec, err := newLock(t, store).Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, uint64(2), rec.Token)
		require.False(t, rec.Released())
	})
	synctest.Test(t, func(t *testing.T) { // while a renewal without an answer is under way
		store := &faultStore{Store: leasehold.NewMemStore()}
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		store.next(fault{op: "put", apply: true, err: errInjected})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, lease.Renew(ctx), errInjected)
		foreignTake(t, store.Store)
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
	})
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
				damage(t, store, fmt.Sprintf(`{"expires_at": %d, "token": 1, "holder": %q}`, time.Now().Add(time.Hour).Unix(), name))
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

func TestRecordsBelongToTheirCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		metadata := map[string]string{"addr": "10.0.0.7"}
		lock := newLock(t, store, leasehold.WithMetadata(metadata))
		metadata["addr"] = "changed"
		lease := acquire(t, lock)
		require.NoError(t, lease.Commit(t.Context(), []byte("payload")))
		spoil := func(r leasehold.Record) {
			r.Metadata["addr"] = "spoilt"
			r.Payload[0] = 'X'
		}
		spoil(lease.Record())
		rec, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		spoil(rec)
		other := newLock(t, store)
		_, err = other.TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		spoil(held.Record)
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Release(t.Context()))
		rec, err = other.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]string{"addr": "10.0.0.7"}, rec.Metadata)
		next := acquire(t, other)
		rec = next.Record()
		require.Equal(t, "payload", string(rec.Payload))
		for rec, err := range lock.Watch(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, "payload", string(rec.Payload))
			break
		}
	})
}

func TestTheLargestMetadataFitsBesideTheLargestPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore(), leasehold.WithIdentity(strings.Repeat("<", 1024)),
			leasehold.WithMetadata(map[string]string{"k": strings.Repeat("&", 8000)}))
		lease := acquire(t, lock)
		require.NoError(t, lease.Commit(t.Context(), make([]byte, 32<<10)))
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, acquire(t, lock).Release(t.Context()))
	})
}

// The text of an error begins with the package's name, once, and says the cause before the cure.
func TestErrorTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		lock := newLock(t, store, leasehold.WithIdentity("alice"), leasehold.WithManualRenewal())
		_, err := lock.Inspect(t.Context())
		require.EqualError(t, err, `leasehold: lock "locks/test": no such object: it was never taken`)
		lease := acquire(t, lock)
		_, err = newLock(t, store).TryAcquire(t.Context())
		require.EqualError(t, err, `leasehold: lock "locks/test": lock is held by "alice" with token 1, for 15.3s unless renewed`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = newLock(t, store).Acquire(ctx)
		require.EqualError(t, err, `leasehold: lock "locks/test": waiting: context deadline exceeded: lock is held by "alice" with token 1, for 15.3s unless renewed`)
		err = newLock(t, store).Break(t.Context(), 7)
		require.EqualError(t, err, `leasehold: lock "locks/test": precondition failed: it is in term 1 of "alice", not 7`)
		damage(t, store, `{}`)
		require.EqualError(t, lease.Renew(t.Context()), `leasehold: lock "locks/test": lease lost (token 1): overwritten: corrupt lock record: no expires_at (inspect the object, then repair it with Lock.Break)`)
		require.EqualError(t, lease.Release(t.Context()), lease.Renew(t.Context()).Error())
		crash(store)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = lock.Inspect(ctx)
		require.EqualError(t, err, `leasehold: lock "locks/test": context deadline exceeded`)
	})
}
