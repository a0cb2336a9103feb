package leaderhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/handover"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/leaderhttp"
)

// The next term begins one message and one write after the call of Resign, and before its return.
func TestAHandOverIsOneWrite(t *testing.T) {
	for _, message := range []time.Duration{message, request} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.net.set(func() { w.net.message = message })
			defer w.end()
			for i := range 3 {
				w.start(fmt.Sprint("p", i), false, leasehold.WithTTL(time.Hour), leasehold.WithPollInterval(time.Hour))
			}
			leader := w.next()
			for range 20 {
				time.Sleep(3 * time.Hour)
				before, called := w.requests(), time.Now()
				returned := make(chan time.Time, 1)
				go func() {
					_ = leader.Resign(t.Context())
					returned <- time.Now()
				}()
				leader = w.next()
				led := time.Now()
				require.LessOrEqual(t, led.Sub(called), request*16/10)
				require.LessOrEqual(t, led.Sub(<-returned), time.Duration(0))
				time.Sleep(request)
				require.LessOrEqual(t, w.requests()-before, 3)
			}
		})
	}
}

// noted reports whether the answer res has a note, which it leaves as it is.
func noted(res *http.Response) bool {
	body, _ := io.ReadAll(res.Body)
	res.Body = io.NopCloser(bytes.NewReader(body))
	return bytes.Contains(body, []byte(`"note"`))
}

// If the offer is lost, or the chosen one dies, or it cannot write, another one leads a second
// later. The chosen one gets no other offer for five minutes.
func TestAnOfferThatIsLost(t *testing.T) {
	for _, how := range []string{"lost", "dies", "writes nothing"} {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.lead("a", quiet())
			for _, name := range []string{"b", "c"} {
				time.Sleep(time.Minute)
				w.start(name, false, quiet())
			}
			time.Sleep(time.Minute)
			c := w.all[2]
			var offers atomic.Int64
			lose := func(r *http.Request, res *http.Response) bool {
				if !strings.HasSuffix(r.URL.Path, "wait") || !noted(res) || offers.Add(1) > 1 {
					return false
				}
				require.Equal(t, "c", r.URL.Query().Get("holder"), "the youngest")
				switch how {
				case "dies":
					c.kill()
					c.stop()
				case "writes nothing":
					c.store.down.Store(true)
					return false
				}
				return true
			}
			w.net.set(func() { w.net.lose = lose })
			called := time.Now()
			require.NoError(t, a.Resign(t.Context()))
			released := time.Now()
			next := w.next()
			require.LessOrEqual(t, time.Since(called), 1150*time.Millisecond, how)
			// A poll that is under way ends first.
			require.Less(t, time.Since(released), message/2+2*request, "by a note of the release")
			require.EqualValues(t, 2, next.lease.Load().Token())
			if how != "lost" {
				require.Same(t, w.all[1], next)
			}
			c.store.down.Store(false)
		})
	}
}

// Whoever says taken, the store decides, and each of the answers about it may be lost.
func TestAnAnswerThatIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		b := w.follow("b")
		var told atomic.Int64
		w.net.set(func() {
			w.net.lose = func(r *http.Request, _ *http.Response) bool { return strings.HasSuffix(r.URL.Path, "taken") }
		})
		require.NoError(t, a.peer.HandOver(t.Context(), "b"), "the request has come")
		require.Same(t, b, w.next())
		time.Sleep(time.Minute)

		w.net.serve("b", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "taken") {
				told.Add(1)
				panic(http.ErrAbortHandler)
			}
			b.host.ServeHTTP(rw, r)
		}))
		time.Sleep(2 * time.Minute)
		began := time.Now()
		require.NoError(t, b.peer.HandOver(t.Context(), "a"), "as a read shows")
		require.Less(t, time.Since(began), 1100*time.Millisecond)
		require.EqualValues(t, 1, told.Load())
		require.Same(t, a, w.next())
		time.Sleep(5 * time.Minute)
		require.True(t, a.IsLeader())
	})
}

// Whoever leads next has what was committed last, although it has not read it.
func TestAHandOverKeepsThePayload(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		b := w.follow("b", leasehold.WithPollInterval(time.Hour))
		reads := b.store.Sent(teststore.Get)
		state := bytes.Repeat([]byte("state"), 6000) // near the limit
		require.NoError(t, a.lease.Load().Commit(t.Context(), state))
		go func() { _ = a.Resign(t.Context()) }()
		require.Same(t, b, w.next())
		require.Equal(t, state, b.lease.Load().Record().Payload)
		require.Equal(t, reads, b.store.Sent(teststore.Get))
	})
}

// liar leads the lock with a term whose holder answers what the test says.
type liar struct {
	lock  *leasehold.Lock
	lease *leasehold.Lease
	note  handover.Note // of the version before its release
}

func (w *world) lie(key string) *liar {
	w.t.Helper()
	l := &liar{}
	var err error
	l.lock, err = leasehold.NewLock(newAccess(w.store), key, leasehold.WithTTL(24*time.Hour), testopt.NewProcess(),
		quiet(), leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: "http://liar"}))
	require.NoError(w.t, err)
	handover.Heir.(func(*leasehold.Lock, handover.PassOn))(l.lock,
		func(_ context.Context, _ uint64, n handover.Note) (sent, taken bool) {
			l.note = n
			return true, false
		})
	l.take(w)
	return l
}

// sign returns the note of the object as it is.
func (l *liar) sign(w *world) handover.Note {
	w.t.Helper()
	h, err := handle.Parse(l.lease.Handle())
	require.NoError(w.t, err)
	obj, err := w.store.Get(w.t.Context(), key)
	require.NoError(w.t, err)
	return handover.Sign(key, h, obj.ETag, obj.Body)
}

func (l *liar) take(w *world) {
	w.t.Helper()
	var err error
	l.lease, err = l.lock.Acquire(w.t.Context())
	require.NoError(w.t, err)
}

// A note that was forged, changed or kept costs a read or a refused write, and ends no term.
func TestBadNotes(t *testing.T) {
	type notes struct{ good, stale, former, foreign handover.Note }
	for name, bad := range map[string]func(n notes) handover.Note{
		"empty":              func(notes) handover.Note { return handover.Note{} },
		"of another lock":    func(n notes) handover.Note { return n.foreign },
		"of a former term":   func(n notes) handover.Note { return n.former },
		"of a former write":  func(n notes) handover.Note { return n.stale },
		"without signature":  func(n notes) handover.Note { n.good.Signature = nil; return n.good },
		"with another ETag":  func(n notes) handover.Note { n.stale.ETag = n.good.ETag; return n.stale },
		"of another's key":   func(n notes) handover.Note { n.good.Key = n.foreign.Key; return n.good },
		"of another's":       func(n notes) handover.Note { n.foreign.ETag = n.good.ETag; return n.foreign },
		"of another payload": func(n notes) handover.Note { n.good.Record = n.stale.Record; return n.good },
	} {
		inWorld(t, func(t *testing.T, w *world) {
			foreign, l := w.lie("locks/b"), w.lie(key)
			require.NoError(t, foreign.lease.Release(t.Context()))
			require.NoError(t, l.lease.Release(t.Context()))
			n := notes{former: l.note, foreign: foreign.note}
			l.take(w)
			n.stale = l.sign(w)
			require.NoError(t, l.lease.Commit(t.Context(), []byte("payload")))
			n.good = l.sign(w)
			note := bad(n)
			asked := w.net.serve("liar", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = json.NewEncoder(w).Encode(map[string]any{"over": true, "place": 0, "note": note})
			}))
			c := w.start("c", false, rare()...)
			time.Sleep(time.Hour)
			require.EqualValues(t, 1, asked.requests.Load(), name)
			require.LessOrEqual(t, c.store.Sent(), 1+4, name)
			require.False(t, c.IsLeader(), name)
			require.NoError(t, l.lease.Renew(t.Context()), name)

			note = l.sign(w) // good, which shows that the others had a chance
			d := w.start("d", false, rare()...)
			require.Same(t, d, w.next(), name)
			require.Error(t, l.lease.Renew(t.Context()), name)
		})
	}
}

// Nobody but the store says that an offer was taken.
func TestForgedTaken(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		b := w.follow("b", quiet())
		taken := strings.Replace(waitFor(a.lease.Load().Record()), "wait", "taken", 1)
		require.Equal(t, 409, ask(b.peer, "POST", taken, nil).Code)
		require.Equal(t, 409, ask(a.peer, "POST", "/.leasehold/taken?key=locks/a&token=1", nil).Code)
		require.Equal(t, 405, ask(a.peer, "GET", taken, nil).Code)
		b.store.down.Store(true) // it hears of the offer, and cannot take it
		stop := make(chan struct{})
		var flood sync.WaitGroup
		flood.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					require.GreaterOrEqual(t, i, 2000)
					return
				case <-time.After(500 * time.Microsecond):
				}
				ask(a.peer, "POST", taken, nil)
			}
		})
		time.Sleep(time.Second)
		reads := a.store.Sent(teststore.Get)
		require.NoError(t, a.Resign(t.Context()))
		require.LessOrEqual(t, a.store.Sent(teststore.Get)-reads, 3)
		rec, err := leaderOf(w)
		require.NoError(t, err)
		require.True(t, rec.Released(), "in spite of the lies")
		close(stop)
		flood.Wait()
		b.store.down.Store(false)

		// A flood hides no offer that was taken.
		require.Same(t, b, w.next())
		w.net.set(func() { w.net.message = 100 * time.Millisecond })
		time.Sleep(time.Minute)
		taken = strings.Replace(waitFor(b.lease.Load().Record()), "wait", "taken", 1)
		for range 10 {
			ask(b.peer, "POST", taken, nil)
		}
		go func() {
			for range 100 {
				time.Sleep(time.Millisecond)
				ask(b.peer, "POST", taken, nil)
			}
		}()
		writes := func() int { return b.store.Sent(teststore.Puts...) }
		before := writes()
		require.NoError(t, b.peer.HandOver(t.Context(), "a"))
		require.Equal(t, before, writes(), "nothing to release")
		require.Same(t, a, w.next())
	})
}

// The candidate that is named leads next, or the one with the highest priority, or the youngest.
func TestWhoLeadsNext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		b := w.follow("b")
		d := w.startWith("d", false, []leaderhttp.Option{leaderhttp.WithPriority(1)})
		time.Sleep(time.Minute)
		c := w.follow("c")
		require.ErrorIs(t, b.peer.HandOver(t.Context(), "c"), leaderhttp.ErrNotLeading)
		require.ErrorIs(t, a.peer.HandOver(t.Context(), "x"), leaderhttp.ErrNotWaiting)
		soon := testctx.Within(t, time.Millisecond)
		require.ErrorIs(t, a.peer.HandOver(soon, "x"), context.DeadlineExceeded)
		require.True(t, a.IsLeader())
		require.NoError(t, a.peer.HandOver(t.Context(), "b"))
		require.Same(t, b, w.next())
		require.ErrorIs(t, a.peer.HandOver(t.Context(), "b"), leaderhttp.ErrNotLeading)
		time.Sleep(time.Minute)
		require.NoError(t, b.peer.HandOver(t.Context(), ""))
		require.Same(t, d, w.next(), "by its priority, although c is the youngest")
		time.Sleep(time.Minute)
		require.NoError(t, d.Resign(t.Context()))
		require.Same(t, c, w.next(), "the youngest")
		time.Sleep(time.Minute)
		require.ErrorIs(t, c.peer.HandOver(c.lease.Load().Context(), "b"), context.Canceled)
		require.Same(t, b, w.next())
	})
}

// A process that has only just come may be one that crashes again and again.
func TestTheYoungestMayBeTooYoung(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		b := w.follow("b")
		c := w.start("c", false)
		time.Sleep(900 * time.Millisecond) // it follows already
		require.NoError(t, a.Resign(t.Context()))
		require.Same(t, b, w.next())
		time.Sleep(time.Minute)
		require.NoError(t, b.Resign(t.Context()))
		require.Same(t, c, w.next())
	})
}

// HandOver says who has not taken the lock, and whether it is free.
func TestAHandOverThatFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		b := w.follow("b", quiet())
		b.store.down.Store(true)
		began := time.Now()
		err := a.peer.HandOver(t.Context(), "b")
		require.ErrorIs(t, err, leaderhttp.ErrNotTaken)
		require.ErrorContains(t, err, "it is released for all candidates")
		require.Less(t, time.Since(began), 1100*time.Millisecond)
		b.store.down.Store(false)
		w.next()
	})
}

// Requests that wait at the next leader read the record while it takes the lock. It says that it
// has it all the same, so the former leader does not wait.
func TestAHandOverUnderLoad(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.start("a", false)
		leader := w.next()
		time.Sleep(time.Minute)
		w.follow("b")
		for i := range 6 {
			other := w.all[(slices.Index(w.all, leader)+1)%2]
			other.store.heavy.Store(int64(request))
			stop, cancel := context.WithCancel(t.Context())
			var load sync.WaitGroup
			load.Go(func() {
				for n := 0; stop.Err() == nil; n++ {
					load.Go(func() { post(other.forward, fmt.Sprintf("/%d/%d", i, n), "x") })
					time.Sleep(2 * time.Millisecond)
				}
			})
			time.Sleep(time.Second)
			called := time.Now()
			require.NoError(t, leader.peer.HandOver(t.Context(), other.name), i)
			require.Less(t, time.Since(called), 10*request, i)
			cancel()
			load.Wait()
			leader = w.next()
			require.Same(t, other, leader)
			time.Sleep(time.Minute)
		}
	})
}

// Whoever has not taken an offer gets no other from that process for five minutes.
func TestWhoTakesNoOfferGetsNoOther(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		time.Sleep(time.Minute)
		b := w.follow("b")
		c := w.follow("c", quiet())
		for _, want := range []*process{b, b, c} { // c is the youngest
			c.store.down.Store(want == b && a.lease.Load().Token() == 1)
			require.NoError(t, a.Resign(t.Context()))
			require.Same(t, want, w.next())
			c.store.down.Store(false)
			time.Sleep(time.Minute)
			require.NoError(t, want.peer.HandOver(t.Context(), "a"))
			require.Same(t, a, w.next())
			time.Sleep(100 * time.Second)
		}
	})
}

// A candidate that is slow to take the lock is not held to be one that takes no offer.
func TestASlowCandidateIsForgiven(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		b := w.follow("b", quiet())
		b.store.slow.Store(int64(3 * time.Second / 2)) // its write lands in time, and its answer does not
		_ = a.peer.HandOver(t.Context(), "b")
		require.Same(t, b, w.next())
		b.store.slow.Store(0)
		time.Sleep(time.Minute)
		require.NoError(t, b.peer.HandOver(t.Context(), ""))
		require.Same(t, a, w.next())
		time.Sleep(time.Minute)
		require.NoError(t, a.peer.HandOver(t.Context(), ""), "b gets offers")
		require.Same(t, b, w.next())
	})
}

// Where no offer can be made, the candidate leads by a note of the released version. HandOver waits
// for its write.
func TestHandOverWithoutAnOffer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a", quiet())
		b := w.follow("b")
		a.store.down.Store(true)
		ctx := testctx.Within(t, request)
		require.Error(t, a.lease.Load().Commit(ctx, []byte("of unknown outcome")))
		time.AfterFunc(request, func() { a.store.down.Store(false) })
		require.NoError(t, a.peer.HandOver(t.Context(), "b"))
		require.Same(t, b, w.next())
	})
}

// The errors of HandOver say how things are.
func TestHandOverSaysWhatItKnows(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a", quiet())
		err := a.peer.HandOver(t.Context(), "")
		require.ErrorIs(t, err, leaderhttp.ErrNotWaiting)
		require.ErrorContains(t, err, "there is none, or each one has failed to take an offer in the last 5m0s")
		b := w.follow("b", quiet())
		err = a.peer.HandOver(t.Context(), "c")
		require.ErrorIs(t, err, leaderhttp.ErrNotWaiting)
		require.ErrorContains(t, err, "check that it runs, has this name")
		a.store.down.Store(true)
		b.store.down.Store(true)
		err = a.peer.HandOver(t.Context(), "b")
		require.ErrorIs(t, err, leaderhttp.ErrNotTaken)
		require.ErrorContains(t, err, "reading the lock failed")
		a.store.down.Store(false)
		b.store.down.Store(false)
		w.next()
	})
}

// An elector that has ended takes no lock, so its Peer, which still follows, says nothing that
// would get it an offer.
func TestWhoCannotTakeTheLockGetsNoOffer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		b := w.follow("b")
		b.leave()
		time.Sleep(time.Minute) // its request has ended meanwhile
		called := time.Now()
		require.NoError(t, a.Resign(t.Context()))
		require.Less(t, time.Since(called), 10*request)
		require.Same(t, a, w.next())
	})
}

// Nobody who polls comes between a leader and the candidate that it names.
func TestANamedHandOverBesidePollers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		pair := []*process{w.start("a", false)}
		w.next()
		time.Sleep(time.Minute)
		pair = append(pair, w.start("b", false))
		for i := range 3 {
			w.start(fmt.Sprint("poller", i), true, leasehold.WithPollInterval(10*time.Millisecond), quiet())
		}
		for i := range testsize.Pick(40, 1000) {
			time.Sleep(10*time.Second + time.Duration(i)*777*time.Microsecond)
			require.NoError(t, pair[i%2].peer.HandOver(t.Context(), pair[1-i%2].name), i)
			require.Same(t, pair[1-i%2], w.next(), i)
		}
	})
}

// A liar about its priority who never takes the lock costs a second, once in five minutes.
func TestALiarAboutItsPriority(t *testing.T) {
	for _, renames := range []bool{false, true} {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.startWith("a", false, []leaderhttp.Option{leaderhttp.WithPreemption(time.Second)})
			w.next()
			began := time.Now()
			stop, cancel := context.WithCancel(t.Context())
			var liars sync.WaitGroup
			var notes atomic.Int64
			liars.Go(func() {
				for i := 0; stop.Err() == nil; i++ {
					time.Sleep(10 * time.Millisecond)
					name := "liar"
					if renames {
						name += fmt.Sprint(i)
					}
					lease := a.lease.Load()
					r := httptest.NewRequestWithContext(stop, "GET", waitFor(lease.Record())+"&"+url.Values{
						"holder": {name}, "priority": {"9223372036854775807"}, "up": {"5"},
					}.Encode(), nil)
					res := httptest.NewRecorder()
					a.peer.ServeHTTP(res, r)
					if strings.Contains(res.Body.String(), "note") {
						notes.Add(1)
					}
				}
			})
			terms, gap := 0, time.Duration(0)
			for time.Since(began) < 5*time.Minute {
				time.Sleep(10 * time.Millisecond)
				if !a.IsLeader() {
					gap += 10 * time.Millisecond
				}
				if len(w.led) > 0 {
					<-w.led
					terms++
				}
			}
			cancel()
			liars.Wait()
			require.Equal(t, 1, terms, "stepped down once")
			require.LessOrEqual(t, notes.Load(), int64(2), "an offer, and the released version")
			require.LessOrEqual(t, gap, 8*time.Second, "a second, and the rest of the elector")
		})
	}
}

// A liar about its priority who hangs up as soon as the leader steps down makes it do so once in
// five minutes.
func TestALiarWhoHangsUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.startWith("a", false, []leaderhttp.Option{leaderhttp.WithPreemption(time.Second)})
		w.next()
		stop, cancel := context.WithCancel(t.Context())
		var liar sync.WaitGroup
		liar.Go(func() {
			for stop.Err() == nil {
				time.Sleep(10 * time.Millisecond)
				lease := a.lease.Load()
				r := httptest.NewRequestWithContext(lease.Context(), "GET", waitFor(lease.Record())+"&"+url.Values{
					"holder": {"liar"}, "priority": {"1"}, "up": {"5"},
				}.Encode(), nil)
				a.peer.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
		terms := 0
		for range 5 * 60 {
			time.Sleep(time.Second)
			for ; len(w.led) > 0; terms++ {
				<-w.led
			}
		}
		cancel()
		a.stop()
		liar.Wait()
		require.Equal(t, 1, terms)
	})
}

// A leader steps down for a candidate with a higher priority that has waited for some time, once.
func TestPreemption(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		after := leaderhttp.WithPreemption(20 * time.Second)
		w.startWith("a", false, []leaderhttp.Option{after})
		w.next()
		time.Sleep(time.Minute)
		w.startWith("equal", false, []leaderhttp.Option{after})
		time.Sleep(10 * time.Minute)
		require.Empty(t, w.led, "not for an equal priority")
		b := w.startWith("b", false, []leaderhttp.Option{leaderhttp.WithPriority(1), after})
		began := time.Now()
		require.Same(t, b, w.next())
		require.InDelta(t, 20, time.Since(began).Seconds(), 1)
		time.Sleep(time.Hour)
		require.True(t, b.IsLeader())
		require.Empty(t, w.led, "once")
		w.startWith("c", false, []leaderhttp.Option{leaderhttp.WithPriority(9)})
		c := w.next()
		require.Equal(t, "c", c.name)
		w.startWith("d", false, []leaderhttp.Option{leaderhttp.WithPriority(10)})
		time.Sleep(time.Hour)
		require.True(t, c.IsLeader(), "without WithPreemption")
	})
}

// Candidates of an earlier version are told of the end of a term as they were, and get no offer.
func TestEarlierVersionsAmongTheCandidates(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		time.Sleep(time.Second)
		answers := make(chan string, 3)
		for _, asks := range []string{"", "&up=x&holder=old", "&up=-1&holder=old"} {
			go func() {
				answers <- ask(a.peer, "GET", waitFor(a.lease.Load().Record())+asks, nil).Body.String()
			}()
			synctest.Wait()
		}
		began := time.Now()
		require.NoError(t, a.Resign(t.Context()))
		require.Equal(t, request, time.Since(began), "no offer")
		var got []string
		for range 3 {
			got = append(got, strings.TrimSpace(<-answers))
		}
		slices.Sort(got)
		require.Equal(t, []string{
			`{"over":true,"place":0}`, `{"over":true,"place":1}`, `{"over":true,"place":2}`,
		}, got)
	})
}

// In a rolling restart the leader changes once, or twice if it goes first and nothing new was
// started before.
func TestRollingRestart(t *testing.T) {
	lines := logged(t)
	defer func() { require.NotContains(t, lines(), "EOF") }()
	for _, surge := range []bool{false, true} {
		for _, n := range []int{3, 5} {
			for leads := range n { // its place in the order of restarts
				for seed := range testsize.Pick(2, 6) {
					synctest.Test(t, func(t *testing.T) {
						changes, longest := rollingRestart(t, n, leads, seed, surge)
						most := 1
						if leads == 0 && !surge {
							most = 2
						}
						require.LessOrEqual(t, changes, most, "%d replicas, leader %d, surge %v", n, leads, surge)
						require.LessOrEqual(t, longest, 20*time.Millisecond)
					})
				}
			}
		}
	}
}

func rollingRestart(t *testing.T, n, leads, seed int, surge bool) (changes int, longest time.Duration) {
	w := newWorld(t)
	defer w.end()
	leader := w.lead("leader")
	var old []*process
	for i := range n - 1 {
		time.Sleep(time.Duration(seed*777+1500) * time.Millisecond)
		old = append(old, w.start(fmt.Sprint("old", i), false))
	}
	time.Sleep(time.Minute)
	for i, p := range slices.Insert(old, leads, leader) {
		fresh := fmt.Sprint("new", i)
		if surge {
			w.start(fresh, false)
			time.Sleep(5 * time.Second)
		}
		led, began := p.IsLeader(), time.Now()
		p.stop()
		if led {
			w.next()
			changes++
			longest = max(longest, time.Since(began))
		}
		require.NoError(t, <-p.ended)
		p.ended <- nil
		time.Sleep(message) // for its last answers, as a server's Shutdown does
		p.host.kill()
		time.Sleep(2 * time.Second)
		if !surge {
			w.start(fresh, false)
			time.Sleep(5 * time.Second)
		}
	}
	require.Empty(t, w.led)
	return changes, longest
}
