package leasehold_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/faultproxy"
)

// noVersion is the ETag of the update that must be refused.
const noVersion = `"0123456789abcdef0123456789abcdef"`

// tries returns how often the update and the create were sent that must be refused. A lock's own create carries other bytes, so the tests
// of this file take a lock that exists.
func tries(w *wire) (updates, creates int) {
	for _, r := range w.Requests() {
		switch {
		case r.IfMatch == noVersion:
			updates++
		case r.IfNoneMatch == "*":
			creates++
		}
	}
	return updates, creates
}

// released is a lock object that is free.
const released = `{"expires_at":0,"token":7,"ttl":15,"nonce":"x","holder":"before"}`

func newServer() *fakes3.Server {
	s := &fakes3.Server{}
	s.Put(key, []byte(released))
	return s
}

// ignoring is a server that ignores some conditions of writes.
func ignoring(s *fakes3.Server, conditions ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			for _, c := range conditions {
				r.Header.Del(c)
			}
		}
		s.ServeHTTP(w, r)
	})
}

func TestTheFirstAcquisitionTriesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		var bodies [][]byte
		w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				body, _ := io.ReadAll(r.Body)
				bodies = append(bodies, body)
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			server.ServeHTTP(w, r)
		}))
		lock := newLock(t, w.store, leasehold.WithMetadata(map[string]string{"b": "2", "a": "1"}))
		lease := acquire(t, lock)
		require.Equal(t, []string{"GET", "PUT", "PUT", "PUT"}, w.Methods(0))
		requests := w.Requests()
		require.Equal(t, noVersion, requests[2].IfMatch)
		require.Equal(t, "*", requests[3].IfNoneMatch)
		for _, r := range requests {
			require.Equal(t, "/bucket/"+key, r.Path)
		}
		require.Equal(t, bodies[0], bodies[1], "nothing is lost if it is carried out")
		require.Equal(t, bodies[0], bodies[2])
		require.NoError(t, lease.Release(t.Context()))

		require.NoError(t, acquire(t, lock).Release(t.Context()))
		require.NoError(t, acquire(t, newLock(t, w.store)).Release(t.Context()))
		server.Put("locks/other", []byte(released))
		same := leasehold.NewS3Store(fakes3.NewClient(w), fakes3.Bucket) // another client may reach another server
		other, err := leasehold.NewLock(same, "locks/other")
		require.NoError(t, err)
		updates, creates := tries(w)
		require.Equal(t, []int{1, 1}, []int{updates, creates}, "once for a store")
		require.NoError(t, acquire(t, other).Release(t.Context()))
		updates, creates = tries(w)
		require.Equal(t, []int{2, 2}, []int{updates, creates})
	})
}

func TestStoresOfOneClientAndBucketAreTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fakes3.NewWire(newServer())
		client := fakes3.NewClient(w)
		for range 3 {
			lock := newLock(t, leasehold.NewS3Store(client, fakes3.Bucket))
			require.NoError(t, acquire(t, lock).Release(t.Context()))
		}
		require.Equal(t, 3*2+2, w.Count("PUT"))
	})
}

func TestAServerThatIgnoresConditions(t *testing.T) {
	for name, c := range map[string]struct {
		ignored []string
		says    string
	}{
		"all":           {[]string{"If-Match", "If-None-Match"}, "an update of a version that does not exist"},
		"If-Match":      {[]string{"If-Match"}, "an update of a version that does not exist"},
		"If-None-Match": {[]string{"If-None-Match"}, "a create over an object that exists"},
	} {
		for _, random := range []bool{false, true} {
			for call, take := range map[string]func(ctx context.Context, l *leasehold.Lock) error{
				"TryAcquire": func(ctx context.Context, l *leasehold.Lock) error { _, err := l.TryAcquire(ctx); return err },
				"Acquire":    func(ctx context.Context, l *leasehold.Lock) error { _, err := l.Acquire(ctx); return err },
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
						server := newServer()
						server.RandomETags = random
						w := newWire(ignoring(server, c.ignored...))
						began := time.Now()
						for round := range uint64(2) {
							lock := newLock(t, w.store, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
							ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a lease that is not given back must not hang the test
							defer cancel()
							err := take(ctx, lock)
							require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
							require.ErrorContains(t, err, c.says)
							require.Equal(t, 1, strings.Count(err.Error(), "leasehold: "), err)
							var rec leasehold.Record
							require.NoError(t, rec.UnmarshalJSON(server.Body(key)))
							require.True(t, rec.Released(), "it is given back")
							require.Equal(t, 8+round, rec.Token)
						}
						require.Less(t, time.Since(began), 2*time.Second)
					})
				})
			}
		}
	}
}

// An elector whose lock was held by another until now ends too: this error does not pass.
func TestAServerThatIgnoresConditionsEndsAWaitingElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{}
		acquire(t, newLock(t, newWire(server).store)).Abandon()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		unsafe, requests := ignoring(server, "If-Match", "If-None-Match"), 0
		w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests++; requests == 50 {
				cancel()
			}
			unsafe.ServeHTTP(w, r)
		}))
		e, err := leasehold.NewElector(newLock(t, w.store, leasehold.WithLogger(slog.New(slog.DiscardHandler))), leasehold.Callbacks{
			OnStartedLeading: func(context.Context, *leasehold.Lease) { t.Error("it leads") },
		})
		require.NoError(t, err)
		require.ErrorIs(t, e.Run(ctx), leasehold.ErrUnsafeStore)
		require.NoError(t, ctx.Err(), "it has gone on")
	})
}

// However many processes campaign on a server that ignores conditions, none leads.
func TestNobodyLeadsOnAServerThatIgnoresConditions(t *testing.T) {
	for seed := range 50 {
		synctest.Test(t, func(t *testing.T) {
			server := newServer()
			server.RandomETags = seed%2 == 0
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var group sync.WaitGroup
			for i := range 5 {
				w := newWire(ignoring(server, "If-Match", "If-None-Match"))
				w.Decide = func(*http.Request) faultproxy.Fault {
					return faultproxy.Fault{After: time.Duration((i*7+seed*13)%29) * 11 * time.Millisecond}
				}
				e, err := leasehold.NewElector(newLock(t, w.store, leasehold.WithLogger(slog.New(slog.DiscardHandler))), leasehold.Callbacks{
					OnStartedLeading: func(context.Context, *leasehold.Lease) { t.Error("it leads") },
				})
				require.NoError(t, err)
				group.Go(func() {
					time.Sleep(time.Duration((i*5+seed*3)%17) * 40 * time.Millisecond)
					assert.ErrorIs(t, e.Run(ctx), leasehold.ErrUnsafeStore)
				})
			}
			group.Wait()
		})
	}
}

// What says nothing about the conditions proves nothing: the lease is as good as any, and the next acquisition asks again.
func TestAnswersThatProveNothing(t *testing.T) {
	for name, f := range map[string]faultproxy.Fault{
		"429":                {Kind: faultproxy.Answer, Status: 429, Code: "TooManyRequests"},
		"503":                {Kind: faultproxy.Answer, Status: 503},
		"500":                {Kind: faultproxy.AnswerAfter, Status: 500},
		"403":                {Kind: faultproxy.Answer, Status: 403},
		"501":                {Kind: faultproxy.Answer, Status: 501},
		"connection refused": {Kind: faultproxy.Refuse},
		"lost reply":         {Kind: faultproxy.DropReply},
		"hang":               {After: time.Hour},
		"late":               {Kind: faultproxy.Ghost, Before: time.Minute},
	} {
		for _, unsafe := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/unsafe=%v", name, unsafe), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := newServer()
					server.RandomETags = true
					var w *wire
					if w = newWire(server); unsafe {
						w = newWire(ignoring(server, "If-Match", "If-None-Match"))
					}
					var failing atomic.Bool
					failing.Store(true)
					w.Decide = func(r *http.Request) faultproxy.Fault {
						if failing.Load() && (r.Header.Get("If-Match") == noVersion || r.Header.Get("If-None-Match") == "*") {
							return f
						}
						return faultproxy.Fault{}
					}
					lock := newLock(t, w.store, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
					for i := range 3 {
						began := time.Now()
						lease, err := lock.TryAcquire(t.Context())
						require.NoError(t, err)
						require.Less(t, time.Since(began), 3*time.Second, "for one attempt at most")
						if unsafe && f.Kind == faultproxy.Ghost { // it lands, over a renewal
							require.NoError(t, lease.Release(t.Context()))
							break
						}
						time.Sleep(time.Minute)
						require.True(t, lease.Valid(), "it is renewed, also if the object has another ETag now")
						require.NoError(t, lease.Release(t.Context()))
						updates, _ := tries(w)
						require.Equal(t, i+1, updates)
					}
					failing.Store(false)
					lease, err := lock.TryAcquire(t.Context())
					if unsafe {
						require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
					} else {
						require.NoError(t, err)
						require.NoError(t, lease.Release(t.Context()))
						sent := w.Count()
						require.NoError(t, acquire(t, lock).Release(t.Context()))
						require.Equal(t, sent+2, w.Count(), "now it is known")
					}
					w.Close()
				})
			})
		}
	}
}

// A conflict is how some servers refuse a create. On an update it says that another write was under way.
func TestConflictsOfTheTwoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(newServer())
		w.Decide = func(r *http.Request) faultproxy.Fault {
			if r.Header.Get("If-None-Match") == "*" || r.Header.Get("If-Match") == noVersion && w.Count() < 4 {
				return faultproxy.Fault{Kind: faultproxy.Answer, Status: 409}
			}
			return faultproxy.Fault{}
		}
		lock := newLock(t, w.store)
		for _, want := range [][2]int{{1, 0}, {2, 1}, {2, 1}} {
			require.NoError(t, acquire(t, lock).Release(t.Context()))
			updates, creates := tries(w)
			require.Equal(t, want, [2]int{updates, creates})
		}
	})
}

// An object that is deleted between the acquisition and the create makes no store unsafe.
func TestTheObjectIsDeletedWhileTheStoreIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		var gone atomic.Bool
		w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") == "*" && gone.CompareAndSwap(false, true) {
				del, _ := http.NewRequestWithContext(r.Context(), http.MethodDelete, r.URL.String(), nil)
				server.ServeHTTP(&discard{}, del)
			}
			server.ServeHTTP(w, r)
		}))
		lease := acquire(t, newLock(t, w.store))
		require.True(t, gone.Load())
		time.Sleep(time.Minute)
		require.True(t, lease.Valid())
		require.NoError(t, lease.Release(t.Context()))
	})
}

type discard struct{ h http.Header }

func (d *discard) Header() http.Header {
	if d.h == nil {
		d.h = http.Header{}
	}
	return d.h
}
func (*discard) Write(p []byte) (int, error) { return len(p), nil }
func (*discard) WriteHeader(int)             {}

// If ctx ends while the store is tried, nobody waits for the lease: it is given back.
func TestCtxEndsWhileTheStoreIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		w := newWire(server)
		ctx, cancel := context.WithCancel(t.Context())
		w.Decide = func(r *http.Request) faultproxy.Fault {
			if r.Header.Get("If-Match") == noVersion {
				time.AfterFunc(time.Second, cancel)
				return faultproxy.Fault{After: 1500 * time.Millisecond}
			}
			return faultproxy.Fault{}
		}
		_, err := newLock(t, w.store).TryAcquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		var rec leasehold.Record
		require.NoError(t, rec.UnmarshalJSON(server.Body(key)))
		require.True(t, rec.Released())
		_, creates := tries(w)
		require.Zero(t, creates)
		w.Wait()
	})
}

// Locks that are taken together ask together.
func TestManyLocksTryTheStoreOnce(t *testing.T) {
	const n = 100
	for _, unsafe := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := &fakes3.Server{}
			for i := range n {
				server.Put(fmt.Sprintf("locks/%d", i), []byte(released))
			}
			w := newWire(server)
			if unsafe {
				w = newWire(ignoring(server, "If-Match", "If-None-Match"))
			}
			w.Decide = func(*http.Request) faultproxy.Fault { return faultproxy.Fault{After: 50 * time.Millisecond} }
			var group sync.WaitGroup
			for i := range n {
				lock, err := leasehold.NewLock(w.store, fmt.Sprintf("locks/%d", i), leasehold.WithLogger(slog.New(slog.DiscardHandler)))
				require.NoError(t, err)
				group.Go(func() {
					lease, err := lock.TryAcquire(t.Context())
					if unsafe {
						assert.ErrorIs(t, err, leasehold.ErrUnsafeStore)
						assert.Nil(t, lease)
					} else if assert.NoError(t, err) {
						assert.NoError(t, lease.Release(t.Context()))
					}
				})
			}
			group.Wait()
			updates, creates := tries(w)
			require.Equal(t, 1, updates)
			require.Equal(t, map[bool]int{false: 1, true: 0}[unsafe], creates)
			w.Wait()
		})
	}
}

// A store that was checked is not tried.
func TestACheckedStoreIsNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(newServer())
		_, err := leasehold.CheckStore(t.Context(), w.store, "check")
		require.NoError(t, err)
		sent := w.Count()
		require.NoError(t, acquire(t, newLock(t, w.store)).Release(t.Context()))
		require.Equal(t, sent+3, w.Count())
	})
}

// recorder is a store of unknown conditions, unless it embeds a known one.
type recorder struct {
	leasehold.Store
	puts *[]string
}

func (s recorder) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	*s.puts = append(*s.puts, "update")
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

func (s recorder) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	*s.puts = append(*s.puts, "create")
	return s.Store.PutIfNoneMatch(ctx, key, body)
}

type knownRecorder struct{ recorder }

func (knownRecorder) Describe() leasehold.StoreInfo { return leasehold.StoreInfo{Conditional: true} }

func TestKnownStoresAreNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var puts []string
		r := recorder{leasehold.NewMemStore(), &puts}
		for _, c := range []struct {
			store leasehold.Store
			want  []string
		}{
			{knownRecorder{r}, []string{"create", "update"}},
			{&r, []string{"update", "update", "create", "update"}},
			{&r, []string{"update", "update"}},                    // the same store
			{r, []string{"update", "update", "create", "update"}}, // each Lock tries a Store that is not a pointer
			{r, []string{"update", "update", "create", "update"}},
		} {
			puts = nil
			require.NoError(t, acquire(t, newLock(t, c.store)).Release(t.Context()))
			require.Equal(t, c.want, puts)
		}
	})
}

// panicking is a store that panics while it is tried.
type panicking struct{ leasehold.Store }

func (s *panicking) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if etag == noVersion {
		panic("a bug")
	}
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

func TestAPanicWhileTheStoreIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &panicking{leasehold.NewMemStore()}
		require.Panics(t, func() { _, _ = newLock(t, s).TryAcquire(t.Context()) })
		time.Sleep(time.Minute)
		require.Panics(t, func() { _, _ = newLock(t, s).Acquire(t.Context()) }, "nobody waits for the one that has panicked")
	})
}

// What a process knows of a store does not keep the store alive.
func TestATriedStoreIsCollected(t *testing.T) {
	var collected atomic.Int32
	func() {
		w := newWire(newServer())
		runtime.AddCleanup(w.Wire, func(int) { collected.Add(1) }, 0)
		require.NoError(t, acquire(t, newLock(t, w.store)).Release(t.Context()))
	}()
	require.Eventually(t, func() bool { runtime.GC(); return collected.Load() == 1 }, 30*time.Second, 10*time.Millisecond)
}

// Break, Inspect and Watch are no acquisitions.
func TestOnlyAcquisitionsTryTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		holder := acquire(t, newLock(t, newWire(server).store))
		w := newWire(server)
		lock := newLock(t, w.store)
		_, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		require.NoError(t, lock.Break(t.Context(), holder.Token()))
		updates, creates := tries(w)
		require.Zero(t, updates+creates)
		_ = holder.Release(t.Context())
	})
}

// A lock that an administrator breaks while the store is tried is lost as at any other time.
func TestBreakWhileTheStoreIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		admin := newLock(t, newWire(server).store)
		w := newWire(server)
		w.Decide = func(r *http.Request) faultproxy.Fault {
			if r.Header.Get("If-Match") == noVersion {
				require.NoError(t, admin.Break(t.Context(), 8))
			}
			return faultproxy.Fault{}
		}
		lease := acquire(t, newLock(t, w.store, leasehold.WithLogger(slog.New(slog.DiscardHandler))))
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
	})
}

// Event observers see the two writes like any others.
func TestObserversSeeTheTwoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		lock := newLock(t, newWire(newServer()).store, leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			if e.Kind == leasehold.EventRequest {
				seen = append(seen, e.Op+" "+leasehold.Outcome(e.Err))
			}
		}))
		require.NoError(t, acquire(t, lock).Release(t.Context()))
		require.Equal(t, []string{"get ok", "update ok", "update precondition_failed", "create precondition_failed", "update ok"}, seen)
	})
}
