package leasehold_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
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

func TestTheFirstAcquisitionTriesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		w := newWire(server)
		written := recordBodies(w)
		lock := newLock(t, w.store, leasehold.WithMetadata(map[string]string{"b": "2", "a": "1"}))
		lease := acquire(t, lock)
		require.Equal(t, []string{"GET", "PUT", "PUT", "PUT"}, w.Methods(0))
		requests := w.Requests()
		requireTries(t, w, 1, 1)
		for _, r := range requests {
			require.Equal(t, "/bucket/"+key, r.Path)
		}
		bodies := written()
		for _, body := range bodies[1:3] {
			require.NotEqual(t, bodies[0], body, "equal bytes may have equal ETags")
			require.Equal(t, bodies[0], bytes.TrimSpace(body), "nothing is lost if it is carried out")
			require.True(t, bytes.HasPrefix(body, bodies[0]))
			require.Equal(t, bodies[1], body)
		}
		require.NoError(t, lease.Release(t.Context()))

		require.NoError(t, acquire(t, lock).Release(t.Context()))
		require.NoError(t, acquire(t, newLock(t, w.store)).Release(t.Context()))
		server.Put("locks/other", []byte(released))
		same := leasehold.NewS3Store(fakes3.NewClient(w), fakes3.Bucket) // another client may reach another server
		other, err := leasehold.NewLock(same, "locks/other")
		require.NoError(t, err)
		requireTries(t, w, 1, 1, "once for a store")
		require.NoError(t, acquire(t, other).Release(t.Context()))
		requireTries(t, w, 2, 2)
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
			for call, take := range acquisitions {
				bubble.Run(t, fmt.Sprintf("%s/random=%v/%s", name, random, call), func(t *testing.T) {
					server := newServer()
					server.RandomETags = random
					w := newWire(ignoring(server, c.ignored...))
					began := time.Now()
					for round := range uint64(2) {
						lock := newLock(t, w.store, quiet)
						// a lease that is not given back must not hang the test
						ctx := testctx.Within(t, time.Minute)
						err := take(ctx, t, lock)
						require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
						require.ErrorContains(t, err, c.says)
						require.Equal(t, 1, strings.Count(err.Error(), "leasehold: "), err)
						rec := recordOf(t, server)
						require.True(t, rec.Released(), "it is given back")
						require.Equal(t, 8+round, rec.Token)
					}
					require.Less(t, time.Since(began), 2*time.Second)
				})
			}
		}
	}
}

// An elector whose lock was held by another until now ends too: this error does not pass. Late, the
// store answers the two writes only when the elector acquires the lock.
func TestAServerThatIgnoresConditionsEndsAWaitingElector(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := &fakes3.Server{}
			acquire(t, newLock(t, newWire(server).store)).Abandon()
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			unsafe, requests := ignoring(server, "If-Match", "If-None-Match"), new(atomic.Int64)
			w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) == 50 {
					cancel()
				}
				unsafe.ServeHTTP(w, r)
			}))
			w.Decide = func(r *http.Request) faultproxy.Fault {
				if late && isTrial(r) && time.Since(began) < 15*time.Second {
					return faultproxy.Fault{Kind: faultproxy.Answer, Status: 503}
				}
				return faultproxy.Fault{}
			}
			require.ErrorIs(t, acquisitions["Run"](ctx, t, newLock(t, w.store, quiet)), leasehold.ErrUnsafeStore)
			require.NoError(t, ctx.Err(), "it has gone on")
			require.Equal(t, late, time.Since(began) > 15*time.Second)
		})
	}
}

// However many processes campaign on a server that ignores conditions, none leads.
func TestNobodyLeadsOnAServerThatIgnoresConditions(t *testing.T) {
	for seed := range 50 {
		synctest.Test(t, func(t *testing.T) {
			server := newServer()
			server.RandomETags = seed%2 == 0
			ctx := testctx.Within(t, time.Minute)
			var group sync.WaitGroup
			for i := range 5 {
				w := newWire(ignoring(server, "If-Match", "If-None-Match"))
				w.Decide = func(*http.Request) faultproxy.Fault {
					return faultproxy.Fault{After: time.Duration((i*7+seed*13)%29) * 11 * time.Millisecond}
				}
				lock := newLock(t, w.store, quiet)
				group.Go(func() {
					time.Sleep(time.Duration((i*5+seed*3)%17) * 40 * time.Millisecond)
					assert.ErrorIs(t, acquisitions["Run"](ctx, t, lock), leasehold.ErrUnsafeStore)
				})
			}
			group.Wait()
		})
	}
}

// What says nothing about the conditions proves nothing: the lease is as good as any, and the next
// acquisition asks again.
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
			bubble.Run(t, fmt.Sprintf("%s/unsafe=%v", name, unsafe), func(t *testing.T) {
				server := newServer()
				server.RandomETags = true
				var w *wire
				if w = newWire(server); unsafe {
					w = newWire(ignoring(server, "If-Match", "If-None-Match"))
				}
				var failing atomic.Bool
				failing.Store(true)
				w.Decide = func(r *http.Request) faultproxy.Fault {
					if failing.Load() && isTrial(r) {
						return f
					}
					return faultproxy.Fault{}
				}
				lock := newLock(t, w.store, quiet)
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
		}
	}
}

// A conflict says that another write was under way, so it is asked again. Only if it never ends, it
// is how the server refuses creates. An update must be refused with 412.
func TestConflictsOfTheTwoWrites(t *testing.T) {
	for name, c := range map[string]struct {
		updates, creates int // that are answered with a conflict
		ignores          string
		want             [][2]int // updates and creates of each acquisition
		unsafe           int      // the acquisition that finds the store unsafe
	}{
		"one of each":          {1, 1, "", [][2]int{{2, 2}, {0, 0}}, 0},
		"two of each":          {2, 2, "", [][2]int{{3, 3}, {0, 0}}, 0},
		"some":                 {4, 4, "", [][2]int{{3, 3}, {2, 2}, {0, 0}}, 0},
		"creates always":       {0, 99, "", [][2]int{{1, 3}, {0, 3}, {0, 0}}, 0},
		"updates always":       {99, 0, "", [][2]int{{3, 1}, {3, 0}, {3, 0}, {3, 0}}, 0},
		"ignored after one":    {0, 1, "If-None-Match", [][2]int{{1, 3}}, 1},
		"ignored after two":    {0, 2, "If-None-Match", [][2]int{{1, 4}}, 1},
		"ignored after five":   {0, 5, "If-None-Match", [][2]int{{1, 3}, {0, 4}}, 2},
		"an update is ignored": {2, 99, "If-Match", [][2]int{{3, 3}}, 1},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			w := newWire(ignoring(newServer(), c.ignores))
			failTrials(w, c.updates, c.creates, conflict)
			lock := newLock(t, w.store, quiet)
			for i, want := range c.want {
				beforeU, beforeC := tries(w)
				lease, err := lock.TryAcquire(t.Context())
				if c.unsafe == i+1 {
					require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
				} else {
					require.NoError(t, err)
					require.NoError(t, lease.Release(t.Context()))
				}
				u, c := tries(w)
				require.Equal(t, want, [2]int{u - beforeU, c - beforeC}, "acquisition %d", i)
			}
		})
	}
}

// A refusal of a write that was carried out is no proof. Where ETags are hashes, the white space
// behind the record shows it.
func TestRefusalsOfWritesThatWereCarriedOut(t *testing.T) {
	for _, random := range []bool{false, true} {
		for _, exists := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				server := &fakes3.Server{RandomETags: random}
				if exists {
					server.Put(key, []byte(released))
				}
				w := newWire(afterwards(server, false))
				lock := newLock(t, w.store, quiet)
				for range 3 {
					_, err := lock.TryAcquire(t.Context())
					require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
					require.ErrorContains(t, err, "answered with a refusal")
					require.True(t, recordOf(t, server).Released(), "it is given back")
				}
			})
			synctest.Test(t, func(t *testing.T) { // the acquisition's own write is answered rightly
				server := &fakes3.Server{RandomETags: random}
				if exists {
					server.Put(key, []byte(released))
				}
				w := newWire(afterwards(server, true))
				lock := newLock(t, w.store, quiet)
				lease := acquire(t, lock)
				err := lease.Renew(t.Context())
				require.ErrorIs(t, err, leasehold.ErrLost, "the first renewal is not")
				require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
				require.Equal(t, "unsafe_store", leasehold.Outcome(err))
				time.Sleep(time.Minute)
				_, err = lock.TryAcquire(t.Context())
				require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
			})
		}
	}
}

// A retry behind the back of the process is refused although the write has landed. That costs a
// trial with a read, once.
func TestARefusalOfAWriteThatHasLandedIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(newServer())
		lock := newLock(t, w.store)
		lease := acquire(t, lock)
		sent := w.Count()
		twice := faultproxy.Fault{Kind: faultproxy.AnswerAfter, Status: 412, Code: "PreconditionFailed"}
		w.Fail("PUT", twice)
		require.NoError(t, lease.Renew(t.Context()))
		require.Equal(t, []string{"PUT", "GET", "PUT", "PUT", "GET"}, w.Methods(sent))
		sent = w.Count()
		for range 3 {
			w.Fail("PUT", twice)
			require.NoError(t, lease.Renew(t.Context()))
		}
		require.Equal(t, 3*2, w.Count()-sent)
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, acquire(t, lock).Release(t.Context()))
		require.Equal(t, 3*2+3, w.Count()-sent)
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
		require.True(t, recordOf(t, server).Released())
		w.Wait()
	})
}

// The end of ctx does not cut off a write that may be carried out: it would lie over the released
// record.
func TestTheEndOfCtxCutsOffNoneOfTheTwoWrites(t *testing.T) {
	for _, ignored := range []string{"If-Match", "If-None-Match"} {
		synctest.Test(t, func(t *testing.T) {
			server := newServer()
			server.RandomETags = true
			w := newWire(ignoring(server, "If-Match", "If-None-Match"))
			ctx, cancel := context.WithCancel(t.Context())
			w.Decide = func(r *http.Request) faultproxy.Fault {
				switch unfit := isTrial(r); {
				case unfit && r.Header.Get(ignored) != "":
					time.AfterFunc(time.Second, cancel)
					return faultproxy.Fault{Kind: faultproxy.Ghost, Before: 1500 * time.Millisecond}
				case unfit:
					return faultproxy.Fault{Kind: faultproxy.Answer, Status: 412}
				}
				return faultproxy.Fault{}
			}
			_, err := newLock(t, w.store, quiet).TryAcquire(ctx)
			require.Error(t, err)
			time.Sleep(time.Minute)
			require.True(t, recordOf(t, server).Released(), "the write was carried out after the release")
			w.Wait()
		})
	}
}

// A machine that sleeps while it tries the store has no lease when it wakes. The acquisition is
// tried again.
func TestASleepWhileTheStoreIsTried(t *testing.T) {
	for _, ignored := range []string{"", "If-None-Match"} {
		synctest.Test(t, func(t *testing.T) {
			server := newServer()
			w := newWire(ignoring(server, ignored))
			c := newBrokenClock()
			var slept atomic.Bool
			w.Decide = func(r *http.Request) faultproxy.Fault {
				if r.Header.Get("If-Match") == noVersion && slept.CompareAndSwap(false, true) {
					c.suspend(13 * time.Second)
				}
				return faultproxy.Fault{}
			}
			var ends []leasehold.EventKind
			lock := newLock(t, w.store, withClock(c), quiet,
				leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
					if e.Kind != leasehold.EventRequest && e.Kind != leasehold.EventNewLeader {
						ends = append(ends, e.Kind)
					}
				}))
			ran := false
			err := lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { ran = true; return nil })
			if ignored != "" {
				require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
				return
			}
			require.NoError(t, err)
			require.True(t, ran)
			require.Equal(t, []leasehold.EventKind{leasehold.EventAcquired, leasehold.EventReleased}, ends)
		})
	}
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
				lock, err := leasehold.NewLock(w.store, fmt.Sprintf("locks/%d", i), quiet)
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
			require.Equal(t, map[bool]int{false: 1, true: 2}[unsafe], creates)
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

func TestKnownStoresAreNotTried(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		var mu sync.Mutex
		var puts []string
		recorded := func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Puts() {
				mu.Lock()
				puts = append(puts, string(r.Op))
				mu.Unlock()
			}
			return r.Send(ctx)
		}
		known, unknown := teststore.New(mem, recorded), teststore.New(mem, recorded)
		known.Info.Conditional = true
		value := struct{ leasehold.Store }{unknown}
		for _, c := range []struct {
			store leasehold.Store
			want  []string
		}{
			{known, []string{"create", "update"}},
			{unknown, []string{"update", "create", "update", "update"}},
			{unknown, []string{"update", "update"}},                   // the same store
			{value, []string{"update", "create", "update", "update"}}, // each Lock tries a Store that is not a pointer
			{value, []string{"update", "create", "update", "update"}},
		} {
			puts = nil
			require.NoError(t, acquire(t, newLock(t, c.store)).Release(t.Context()))
			slices.Sort(puts[1 : len(puts)-1])
			require.Equal(t, c.want, puts)
		}
	})
}

// The panic is the caller's, whether it acquires the lock or waits for it. Nobody waits for a trial
// that has panicked.
func TestAPanicWhileTheStoreIsTried(t *testing.T) {
	for _, waits := range []bool{false, true} {
		onMemStore(t, func(t *testing.T, mem leasehold.Store) {
			if waits {
				defer acquire(t, newLock(t, mem)).Abandon()
			}
			s := teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				if r.ETag == noVersion { // while it is tried
					panic("a bug")
				}
				return r.Send(ctx)
			})
			acquires := func() { _, _ = newLock(t, s).Acquire(t.Context()) }
			require.PanicsWithValue(t, "a bug", acquires)
			time.Sleep(time.Minute)
			require.PanicsWithValue(t, "a bug", acquires)
		})
	}
}

// What a process knows of a store does not keep the store alive.
func TestATriedStoreIsCollected(t *testing.T) {
	var collected atomic.Int32
	func() {
		w := newWire(newServer())
		runtime.AddCleanup(w.Wire, func(int) { collected.Add(1) }, 0)
		require.NoError(t, acquire(t, newLock(t, w.store)).Release(t.Context()))
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return collected.Load() == 1
	}, 30*time.Second, 10*time.Millisecond)
}

// Break and Inspect are no acquisitions, and TryAcquire does not wait: none tries anything on
// another's record.
func TestOnlyAcquisitionsTryTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		_, holder := held(t, server)
		w := newWire(server)
		lock := newLock(t, w.store)
		_, err := lock.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Equal(t, []string{"GET"}, w.Methods(0))
		_, err = lock.Inspect(t.Context())
		require.NoError(t, err)
		require.NoError(t, lock.Break(t.Context(), holder.Token()))
		requireTries(t, w, 0, 0)
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
		lease := acquire(t, newLock(t, w.store, quiet))
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
	})
}

// Event observers see the two writes like any others.
func TestObserversSeeTheTwoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		lock := newLock(t, newWire(newServer()).store, leasehold.WithObserver(func(_ context.Context,
			e leasehold.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == leasehold.EventRequest {
				seen = append(seen, e.Op+" "+leasehold.Outcome(e.Err))
			}
		}))
		require.NoError(t, acquire(t, lock).Release(t.Context()))
		require.ElementsMatch(t, []string{"get ok", "update ok", "update precondition_failed",
			"create precondition_failed", "update ok"}, seen)
		require.Equal(t, []string{"get ok", "update ok"}, seen[:2])
	})
}
