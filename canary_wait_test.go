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
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

// far is a round trip of all tests of this file that have one.
const far = 50 * time.Millisecond

func farWire(server http.Handler) *wire {
	w := newWire(server)
	w.Decide = func(*http.Request) faultproxy.Fault { return faultproxy.Fault{Before: far / 2, After: far / 2} }
	return w
}

// held is a server with a lock that is held for the test, by a process that knows the store.
func held(t *testing.T, server *fakes3.Server, opts ...leasehold.Option) (*leasehold.Lock, *leasehold.Lease) {
	lock := newLock(t, newWire(server).store, opts...)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	return lock, lease
}

// Who waits tries the store meanwhile, once in a process. So the hand-over is as fast as on a known
// store.
func TestWhoWaitsTriesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		_, holder := held(t, server)
		var mu sync.Mutex
		var bodies [][]byte
		w := farWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				body := bodyOf(r)
				mu.Lock()
				bodies = append(bodies, body)
				mu.Unlock()
			}
			server.ServeHTTP(w, r)
		}))
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
		updates, creates := tries(w)
		require.Equal(t, []int{1, 1}, []int{updates, creates})
		require.Equal(t, "GET", w.Methods(0)[0])
		require.ElementsMatch(t, []string{"PUT", "PUT"}, w.Methods(0)[1:3])
		for _, body := range bodies {
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
		updates, creates = tries(w)
		require.Equal(t, []int{1, 1}, []int{updates, creates}, "once in a process")
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
			for call, wait := range map[string]func(ctx context.Context, l *leasehold.Lock) error{
				"Acquire": func(ctx context.Context, l *leasehold.Lock) error { _, err := l.Acquire(ctx); return err },
				"Do": func(ctx context.Context, l *leasehold.Lock) error {
					return l.Do(ctx, func(context.Context, *leasehold.Lease) error { t.Error("it runs"); return nil })
				},
				"Run": func(ctx context.Context, l *leasehold.Lock) error {
					e, err := leasehold.NewElector(l, leasehold.Callbacks{
						OnStartedLeading: func(context.Context, *leasehold.Lease) { t.Error("it leads") },
					})
					require.NoError(t, err)
					return e.Run(ctx)
				},
			} {
				t.Run(fmt.Sprintf("%s/random=%v/%s", name, random, call), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						quiet := leasehold.WithLogger(slog.New(slog.DiscardHandler))
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
							err := wait(ctx, newLock(t, w.store, quiet))
							cancel()
							require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
							require.Equal(t, 1, strings.Count(err.Error(), "leasehold: "), err)
							require.Less(t, time.Since(began), 14*time.Second, "four trials at most")
							require.NoError(t, <-committed)
							require.True(t, holder.Valid())
							require.NoError(t, holder.Renew(t.Context()), "its next write takes its term up again")
							var rec leasehold.Record
							require.NoError(t, rec.UnmarshalJSON(server.Body(key)))
							require.Equal(t, fmt.Sprint(i), string(rec.Payload), "what was committed is there again")
							require.Equal(t, holder.Token(), rec.Token)
						}
						require.NoError(t, holder.Release(t.Context()))
						var rec leasehold.Record
						require.NoError(t, rec.UnmarshalJSON(server.Body(key)))
						require.True(t, rec.Released())
					})
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

// stuck is a store whose writes take until ctx ends.
type stuck struct {
	leasehold.Store
	writes, underWay atomic.Int32
	panics           bool
}

func (s *stuck) wait(ctx context.Context) (string, error) {
	s.writes.Add(1)
	s.underWay.Add(1)
	defer s.underWay.Add(-1)
	if s.panics {
		panic("a bug")
	}
	<-ctx.Done()
	return "", ctx.Err()
}

func (s *stuck) PutIfMatch(ctx context.Context, _ string, _ []byte, _ string) (string, error) {
	return s.wait(ctx)
}

func (s *stuck) PutIfNoneMatch(ctx context.Context, _ string, _ []byte) (string, error) {
	return s.wait(ctx)
}

func TestATrialDoesNotOutliveTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		holder, err := newLock(t, mem).Acquire(t.Context())
		require.NoError(t, err)
		s := &stuck{Store: mem}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = newLock(t, s).Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, int32(2), s.writes.Load())
		require.Zero(t, s.underWay.Load())

		s = &stuck{Store: mem}
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = newLock(t, s).Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Equal(t, int32(4*2), s.writes.Load(), "an attempt each, and a few of them")

		require.PanicsWithValue(t, "a bug", func() {
			_, _ = newLock(t, &stuck{Store: mem, panics: true}).Acquire(t.Context())
		})
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &fakes3.Server{}
				server.Put(key, []byte(c.body))
				w := newWire(server)
				var bodies sync.Map
				w.Decide = func(r *http.Request) faultproxy.Fault {
					if r.Method == http.MethodPut {
						bodies.Store(string(bodyOf(r)), true)
					}
					return faultproxy.Fault{}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var log bytes.Buffer
				logger := slog.New(slog.NewTextHandler(&log, nil))
				_, err := newLock(t, w.store, leasehold.WithLogger(logger)).Acquire(ctx)
				require.Error(t, err)
				updates, creates := tries(w)
				require.Equal(t, []int{c.tries, c.tries}, []int{updates, creates})
				require.NotContains(t, log.String(), "could not be tried", "not even by a read")
				bodies.Range(func(body, _ any) bool {
					rest, ok := strings.CutPrefix(body.(string), c.body)
					require.True(t, ok)
					require.Empty(t, strings.TrimSpace(rest))
					return true
				})
				require.Equal(t, c.body, string(server.Body(key)))
			})
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

// TryAcquire does not wait, so it tries nothing on another's record.
func TestTryAcquireTriesNothingOnAnothersRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		_, holder := held(t, server)
		w := newWire(server)
		_, err := newLock(t, w.store).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Equal(t, []string{"GET"}, w.Methods(0))
		require.NoError(t, holder.Release(t.Context()))
	})
}

// An answer that proves nothing is asked again by the acquisition, if those who wait have not got
// another.
func TestAnAcquisitionAsksAfterAWaitThatProvedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		_, holder := held(t, server)
		w := newWire(ignoring(server, "If-None-Match"))
		w.Decide = func(r *http.Request) faultproxy.Fault {
			if creates := r.Header.Get("If-None-Match") == "*"; creates && w.Count("PUT") < 8 {
				return faultproxy.Fault{Kind: faultproxy.Answer, Status: 409, Code: "ConditionalRequestConflict"}
			}
			return faultproxy.Fault{}
		}
		lock := newLock(t, w.store, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		time.AfterFunc(time.Minute, func() { _ = holder.Release(context.Background()) })
		_, err := lock.Acquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
		_, creates := tries(w)
		require.Equal(t, 4+2, creates)
	})
}

// A trial that ends without a proof when the lock is already taken is not the last one.
func TestAnAcquisitionAsksAfterATrialThatProvedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		_, holder := held(t, server)
		w := newWire(ignoring(server, "If-Match"))
		var first, second atomic.Bool
		w.Decide = func(r *http.Request) faultproxy.Fault {
			if r.Header.Get("If-None-Match") == "*" && !first.Swap(true) ||
				r.Header.Get("If-Match") == noVersion && !second.Swap(true) {
				return faultproxy.Fault{Kind: faultproxy.Answer, Before: time.Second, Status: 503}
			}
			return faultproxy.Fault{}
		}
		lock := newLock(t, w.store, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		time.AfterFunc(500*time.Millisecond, func() {
			_ = holder.Release(context.Background())
			lock.Wake()
		})
		_, err := lock.Acquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
		updates, creates := tries(w)
		require.Equal(t, []int{2, 2}, []int{updates, creates})
	})
}

// A term whose earlier version has come back goes on with its last record.
func TestAnEarlierVersionOfTheTermComesBack(t *testing.T) {
	for name, write := range map[string]func(*leasehold.Lease) error{
		"renew":   func(l *leasehold.Lease) error { return l.Renew(context.Background()) },
		"release": func(l *leasehold.Lease) error { return l.Release(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer()
				_, lease := held(t, server, leasehold.WithLogger(slog.New(slog.DiscardHandler)),
					leasehold.WithManualRenewal())
				require.NoError(t, lease.Commit(t.Context(), []byte("first")))
				earlier := server.Body(key)
				require.NoError(t, lease.Commit(t.Context(), []byte("last")))
				server.Put(key, earlier)
				time.Sleep(time.Second)
				require.NoError(t, write(lease))
				var rec leasehold.Record
				require.NoError(t, rec.UnmarshalJSON(server.Body(key)))
				require.Equal(t, "last", string(rec.Payload))
				require.Equal(t, name == "release", rec.Released())
				if name == "release" {
					return
				}
				released := bytes.Replace(earlier, []byte(`{"expires_at":`), []byte(`{"expires_at":0,"was":`), 1)
				server.Put(key, released)
				require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost, "but not if it was broken")
			})
		})
	}
}
