package leasehold_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// Who waits tries the store meanwhile, once in a process. So the hand-over is as fast as on a known
// store.
func TestWhoWaitsTriesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		_, holder := held(t, server)
		w := farWire(server)
		written := recordBodies(w)
		was := server.Body(key)
		lock := newLock(t, w.store)
		var leases sync.WaitGroup
		leases.Go(func() {
			lease, err := lock.Acquire(t.Context())
			if assert.NoError(t, err) {
				assert.Equal(t, uint64(9), lease.Token())
				assert.NoError(t, lease.Release(t.Context()))
			}
		})
		time.Sleep(time.Second)
		requireTries(t, w, 1, 1)
		require.Equal(t, "GET", w.Methods(0)[0])
		require.ElementsMatch(t, []string{"PUT", "PUT"}, w.Methods(0)[1:3])
		for _, body := range written() {
			require.True(t, bytes.HasPrefix(body, was), "the very bytes that it has read")
			require.Empty(t, bytes.TrimSpace(body[len(was):]))
			require.Greater(t, len(body), len(was))
		}
		require.Equal(t, was, server.Body(key))

		time.Sleep(time.Minute)
		for sent := w.Count(); w.Count() == sent; { // until a poll, of which none is on its way at the release
			time.Sleep(far)
		}
		time.Sleep(far)
		sent := w.Count()
		require.NoError(t, holder.Release(t.Context()))
		released := time.Now()
		lock.Wake()
		leases.Wait()
		require.Equal(t, 3*far, time.Since(released), "a read, an acquisition, and its release")
		require.Equal(t, []string{"GET", "PUT", "PUT"}, w.Methods(sent))
		require.NoError(t, acquire(t, newLock(t, w.store)).Release(t.Context()))
		requireTries(t, w, 1, 1, "once in a process")
	})
}

// Only who finds the lock free in a process that has never tried the store pays for it: one round
// trip.
func TestTheFirstOfAProcessPaysOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := farWire(newServer())
		lock := newLock(t, w.store)
		began := time.Now()
		lease := acquire(t, lock)
		require.Equal(t, 3*far, time.Since(began))
		require.NoError(t, lease.Release(t.Context()))
	})
}

// Nobody leads whose server ignores conditions, or evaluates them too late, though another leads on
// one that enforces them. That one keeps its lease, and what it has committed.
func TestWhoWaitsOnAServerThatIgnoresConditions(t *testing.T) {
	for name, front := range map[string]func(*fakes3.Server) http.Handler{
		"all":                func(s *fakes3.Server) http.Handler { return ignoring(s, "If-Match", "If-None-Match") },
		"If-Match":           func(s *fakes3.Server) http.Handler { return ignoring(s, "If-Match") },
		"If-None-Match":      func(s *fakes3.Server) http.Handler { return ignoring(s, "If-None-Match") },
		"evaluated too late": func(s *fakes3.Server) http.Handler { return afterwards(s, false) },
		"not obeyed":         func(s *fakes3.Server) http.Handler { return afterwards(s, true) },
	} {
		for _, random := range []bool{false, true} {
			for call, wait := range acquisitions {
				if call == "TryAcquire" { // which does not wait
					continue
				}
				bubble.Run(t, fmt.Sprintf("%s/random=%v/%s", name, random, call), func(t *testing.T) {
					server := newServer()
					server.RandomETags = random
					_, holder := held(t, server, quiet)
					for i := range 20 {
						w := farWire(front(server))
						var renewed atomic.Bool
						committed := make(chan error, 1)
						late := time.Duration(i) * 7 * time.Millisecond
						w.Decide = func(r *http.Request) faultproxy.Fault { // the holder renews meanwhile
							if r.Method == http.MethodPut && !renewed.Swap(true) {
								time.AfterFunc(late, func() {
									committed <- holder.Commit(context.Background(), fmt.Appendf(nil, "%d", i))
								})
							}
							return faultproxy.Fault{Before: far, After: far}
						}
						began := time.Now()
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						err := wait(ctx, t, newLock(t, w.store, quiet))
						cancel()
						require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
						require.Equal(t, 1, strings.Count(err.Error(), "leasehold: "), err)
						require.Less(t, time.Since(began), 14*time.Second, "four trials at most")
						require.NoError(t, <-committed)
						require.True(t, holder.Valid())
						require.NoError(t, holder.Renew(t.Context()), "its next write takes its term up again")
						rec := recordOf(t, server)
						require.Equal(t, fmt.Sprint(i), string(rec.Payload), "what was committed is there again")
						require.Equal(t, holder.Token(), rec.Token)
					}
					require.NoError(t, holder.Release(t.Context()))
					require.True(t, recordOf(t, server).Released())
				})
			}
		}
	}
}

// A trial that takes its time delays no read.
func TestATrialDelaysNoWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		_, holder := held(t, server)
		w := newWire(server)
		w.Decide = func(r *http.Request) faultproxy.Fault {
			if r.Method == http.MethodPut {
				return faultproxy.Fault{After: time.Second}
			}
			return faultproxy.Fault{}
		}
		lock := newLock(t, w.store)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { _, err := lock.Acquire(ctx); assert.ErrorIs(t, err, context.Canceled) })
		synctest.Wait()
		require.Equal(t, 1, w.Count("GET"))
		time.Sleep(100 * time.Millisecond)
		lock.Wake()
		synctest.Wait()
		require.Equal(t, 2, w.Count("GET"))
		began := time.Now()
		cancel()
		waiting.Wait()
		require.Zero(t, time.Since(began), "nor the end of ctx")
		require.NoError(t, holder.Release(t.Context()))
		w.Close()
	})
}

func TestATrialDoesNotOutliveTheCall(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		holder, err := newLock(t, mem).Acquire(t.Context())
		require.NoError(t, err)
		var writes, underWay atomic.Int32
		stuck := func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Puts() {
				writes.Add(1)
				underWay.Add(1)
				defer underWay.Add(-1)
				<-ctx.Done()
				time.Sleep(time.Millisecond) // so that a call that does not wait for it returns first
				return leasehold.Object{}, ctx.Err()
			}
			return r.Send(ctx)
		}
		ctx := testctx.Within(t, time.Second)
		_, err = newLock(t, teststore.New(mem, stuck)).Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, int32(2), writes.Swap(0))
		require.Zero(t, underWay.Load())

		ctx = testctx.Within(t, time.Hour)
		_, err = newLock(t, teststore.New(mem, stuck)).Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Equal(t, int32(4*2), writes.Load(), "an attempt each, and a few of them")

		require.NoError(t, holder.Release(t.Context()))
	})
}

// What cannot be written back with white space, or is nobody's living record, is left alone.
func TestWhatIsNotTriedOn(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		tries int
	}{
		"a foreign client's": {fmt.Sprintf(`{"token": 7, "expires_at": 32503680000.5, "more": %q}`, "\u00e4"), 1},
		"near the limit of size": {
			fmt.Sprintf(`{"token": 7, "expires_at": 32503680000, "more": %q}`, strings.Repeat("x", 65480)),
			0,
		},
		"not a record":            {`{"token": 7`, 0},
		"a record and more of it": {`{"token": 7, "expires_at": 32503680000} x`, 0},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			server := &fakes3.Server{}
			server.Put(key, []byte(c.body))
			w := newWire(server)
			written := recordBodies(w)
			ctx := testctx.Within(t, time.Minute)
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			_, err := newLock(t, w.store, leasehold.WithLogger(logger)).Acquire(ctx)
			require.Error(t, err)
			requireTries(t, w, c.tries, c.tries)
			require.NotContains(t, log.String(), "write probe has no result", "not even by a read")
			for _, body := range written() {
				rest, ok := strings.CutPrefix(string(body), c.body)
				require.True(t, ok)
				require.Empty(t, strings.TrimSpace(rest))
			}
			require.Equal(t, c.body, string(server.Body(key)))
		})
	}
}

// The read after the two writes counts as any other: a term that only it has shown is not taken
// for a free one when an older version comes back.
func TestWhatATrialHasReadIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		var bodies [][]byte
		for range 3 {
			lease := acquire(t, newLock(t, newWire(server).store))
			bodies = append(bodies, bytes.Clone(server.Body(key)))
			require.NoError(t, lease.Release(t.Context()))
		}
		server.Put(key, bodies[0])
		w := newWire(server)
		var sent atomic.Int32
		w.Decide = func(*http.Request) faultproxy.Fault {
			switch sent.Add(1) {
			case 2: // the first of the two writes
				server.Put(key, bodies[2])
			case 5: // after the read that follows them
				server.Put(key, bodies[0])
			}
			return faultproxy.Fault{}
		}
		lease, err := newLock(t, w.store).Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"GET", "PUT", "PUT", "GET"}, w.Methods(0)[:4])
		require.Equal(t, uint64(11), lease.Token(), "after 8, 9 and 10")
		require.NoError(t, lease.Release(t.Context()))
	})
}

// An answer that proves nothing is asked again by the acquisition, if those who wait have not got
// another, also if their trial ends only when the lock is already taken.
func TestAnAcquisitionAsksAfterATrialThatProvedNothing(t *testing.T) {
	for ignored, c := range map[string]struct {
		free             time.Duration
		updates, creates int
		fails            faultproxy.Fault
		failing          [2]int // as many updates and creates
	}{
		"If-None-Match": {time.Minute, 4, 4 + 2, conflict, [2]int{0, 4}},
		"If-Match": {500 * time.Millisecond, 2, 2,
			faultproxy.Fault{Kind: faultproxy.Answer, Before: time.Second, Status: 503}, [2]int{1, 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newServer()
			_, holder := held(t, server)
			w := newWire(ignoring(server, ignored))
			failTrials(w, c.failing[0], c.failing[1], c.fails)
			lock := newLock(t, w.store, quiet)
			time.AfterFunc(c.free, func() {
				_ = holder.Release(context.Background())
				lock.Wake()
			})
			_, err := lock.Acquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
			requireTries(t, w, c.updates, c.creates)
		})
	}
}

// A term whose earlier version has come back goes on with its last record.
func TestAnEarlierVersionOfTheTermComesBack(t *testing.T) {
	for name, write := range map[string]func(*leasehold.Lease) error{
		"renew":   func(l *leasehold.Lease) error { return l.Renew(context.Background()) },
		"release": func(l *leasehold.Lease) error { return l.Release(context.Background()) },
	} {
		bubble.Run(t, name, func(t *testing.T) {
			server := newServer()
			_, lease := held(t, server, quiet,
				leasehold.WithManualRenewal())
			require.NoError(t, lease.Commit(t.Context(), []byte("first")))
			earlier := server.Body(key)
			require.NoError(t, lease.Commit(t.Context(), []byte("last")))
			server.Put(key, earlier)
			time.Sleep(time.Second)
			require.NoError(t, write(lease))
			rec := recordOf(t, server)
			require.Equal(t, "last", string(rec.Payload))
			require.Equal(t, name == "release", rec.Released())
			if name == "release" {
				return
			}
			released := bytes.Replace(earlier, []byte(`{"expires_at":`), []byte(`{"expires_at":0,"was":`), 1)
			server.Put(key, released)
			require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost, "but not if it was broken")
		})
	}
}
