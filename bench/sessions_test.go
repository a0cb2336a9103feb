package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/testopt"
)

// manySize is how much of the section of sessions is measured.
type manySize struct {
	locks   int
	ttl     time.Duration // of processes on a server
	trials  int           // of each way in which such a process ends
	looks   int           // how often each lock is looked at while requests are counted, in virtual time
	losses  int           // sessions that are lost
	lossTTL time.Duration
}

func measureSessions(t *testing.T, n size, progress func(string)) *report.Sessions {
	began := time.Now()
	d := &report.Sessions{Run: describeRun(t, n), Load: load(), Locks: n.many.locks, InFlight: inFlight}
	progress("sessions: memory of a lease")
	d.Weights = weighLeases(t, n.many)
	progress("sessions: loss")
	d.Loss = measureLoss(t, n.many)
	progress("sessions: requests of a process that holds")
	d.Holding = []report.Requests{measureHolding(t, n.many, true), measureHolding(t, n.many, false)}
	progress("sessions: requests of a process that waits")
	for _, sessions := range []int{1, 3, 0} {
		d.Waiting = append(d.Waiting, measureWaiting(t, n.many, sessions))
	}
	d.Ends = measureEnds(t, n.many, progress)
	d.Minutes = time.Since(began).Round(time.Second).Minutes()
	return d
}

// load is the number of processes that wanted a core in the last minute.
func load() (f float64) {
	body, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(body), &f)
	return f
}

// traffic is what a process has sent, by HTTP method and object.
type traffic struct {
	ownPuts, otherPuts, sessionGets, lockGets int
}

func (a traffic) since(b traffic) traffic {
	return traffic{a.ownPuts - b.ownPuts, a.otherPuts - b.otherPuts, a.sessionGets - b.sessionGets, a.lockGets - b.lockGets}
}

func (a traffic) puts() int { return a.ownPuts + a.otherPuts }
func (a traffic) gets() int { return a.sessionGets + a.lockGets }

// network is that of one process. It counts requests and can be cut.
type network struct {
	base http.RoundTripper
	own  string        // key of the process's own session
	trip time.Duration // added to each request
	cut  atomic.Bool

	mu      sync.Mutex
	sent    traffic
	renewed time.Time // when the last write of the session was sent that has succeeded
}

var errCut = errors.New("the network is cut")

func (w *network) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.cut.Load() {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, errCut
	}
	began, put, own := time.Now(), r.Method == http.MethodPut, strings.HasSuffix(r.URL.Path, "/"+w.own)
	w.mu.Lock()
	switch {
	case put && own:
		w.sent.ownPuts++
	case put:
		w.sent.otherPuts++
	case strings.Contains(r.URL.Path, "/sessions/"):
		w.sent.sessionGets++
	default:
		w.sent.lockGets++
	}
	w.mu.Unlock()
	if w.trip > 0 {
		time.Sleep(w.trip / 2)
	}
	resp, err := w.base.RoundTrip(r)
	if w.trip > 0 {
		time.Sleep(w.trip / 2)
	}
	if err == nil && put && own && resp.StatusCode == http.StatusOK {
		w.mu.Lock()
		if began.After(w.renewed) {
			w.renewed = began
		}
		w.mu.Unlock()
	}
	return resp, err
}

func (w *network) traffic() traffic {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

func (w *network) lastRenewed() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.renewed
}

// startSession starts a session and waits until it is held.
func startSession(t *testing.T, store leasehold.Store, key string, opts ...leasehold.Option) (session *leasehold.Session, stop func()) {
	t.Helper()
	session, err := leasehold.NewSession(store, key, append(opts, leasehold.WithLogger(nil))...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = session.Run(ctx); close(done) }()
	for !session.Held() {
		time.Sleep(time.Millisecond)
	}
	return session, func() { cancel(); <-done }
}

func sessionLock(t *testing.T, session *leasehold.Session, key string) *leasehold.Lock {
	t.Helper()
	lock, err := session.Lock(key)
	require.NoError(t, err)
	return lock
}

func manyKey(i int) string { return fmt.Sprint("locks/", i) }

// virtually runs f with a network of each process to one S3 in virtual time.
func virtually(t *testing.T, f func(t *testing.T, connect func(own string) (leasehold.Store, *network))) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{}
		f(t, func(own string) (leasehold.Store, *network) {
			w := &network{base: fakes3.Transport{Handler: server}, own: own, trip: trip}
			return leasehold.NewS3Store(fakes3.NewClient(w), fakes3.Bucket), w
		})
	})
}

// virtualClock has no CLOCK_BOOTTIME. In a bubble that is real, and virtual time falls behind it if there is much to do.
type virtualClock struct{ clock.Clock }

func (virtualClock) Now() clock.Reading {
	r := clock.System.Now()
	r.Boot = r.Mono
	return r
}

var inVirtualTime = testopt.WithClock(virtualClock{clock.System})

// The defaults.
const (
	defaultTTL   = 15 * time.Second
	defaultRenew = defaultTTL / 3
	defaultPoll  = defaultTTL / 5
)

// intervals counts requests in so many intervals, each of them so many times.
func intervals(w *network, interval time.Duration, count, times int) report.Requests {
	var all traffic
	var puts, sessionGets, lockGets []float64
	for range count {
		before := w.traffic()
		time.Sleep(interval)
		sent := w.traffic().since(before)
		sent = traffic{sent.ownPuts * times, sent.otherPuts * times, sent.sessionGets * times, sent.lockGets * times}
		puts = append(puts, float64(sent.puts()))
		sessionGets, lockGets = append(sessionGets, float64(sent.sessionGets)), append(lockGets, float64(sent.lockGets))
		all.ownPuts, all.otherPuts = all.ownPuts+sent.ownPuts, all.otherPuts+sent.otherPuts
		all.sessionGets, all.lockGets = all.sessionGets+sent.sessionGets, all.lockGets+sent.lockGets
	}
	hours := (time.Duration(count) * interval).Hours()
	return report.Requests{
		Interval: interval.Seconds(), Intervals: count, OtherPuts: all.otherPuts,
		Puts: report.NewSample(puts), SessionGets: report.NewSample(sessionGets), LockGets: report.NewSample(lockGets),
		LockGetHour: float64(all.lockGets) / hours, PutHour: float64(all.puts()) / hours, GetHour: float64(all.gets()) / hours,
	}
}

// Of locks without a session, which send much, a share is observed for some intervals, and counted as often as it stands for.
const (
	plainShare     = 10
	plainIntervals = 6
)

// measureHolding counts what a process sends that holds locks, with default settings.
func measureHolding(t *testing.T, n manySize, leaning bool) (r report.Requests) {
	virtually(t, func(t *testing.T, connect func(string) (leasehold.Store, *network)) {
		store, w := connect("sessions/a")
		if !leaning {
			end := holdPlain(t, n.locks/plainShare, store)
			time.Sleep(defaultTTL)
			r = intervals(w, defaultRenew, plainIntervals, plainShare)
			end()
			return
		}
		session, stop := startSession(t, store, "sessions/a", inVirtualTime)
		leases := holdAll(t, n.locks, func(i int) *leasehold.Lock { return sessionLock(t, session, manyKey(i)) })
		time.Sleep(100 * defaultTTL)
		r = intervals(w, defaultRenew, 100*n.looks*int(defaultTTL/defaultRenew), 1)
		r.Sessions = 1
		stop()
		runtime.KeepAlive(leases)
	})
	return r
}

// holdAll acquires locks, as many at a time as a session does.
func holdAll(t *testing.T, count int, lock func(i int) *leasehold.Lock) []*leasehold.Lease {
	leases := make([]*leasehold.Lease, count)
	atOnce(inFlight, count, func(i int) {
		lease, err := lock(i).Acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		leases[i] = lease
	})
	return leases
}

// holdPlain acquires locks without a session.
func holdPlain(t *testing.T, count int, store leasehold.Store) (end func()) {
	leases := holdAll(t, count, func(i int) *leasehold.Lock {
		lock, err := leasehold.NewLock(store, manyKey(i), leasehold.WithLogger(nil), inVirtualTime)
		require.NoError(t, err)
		return lock
	})
	return func() {
		atOnce(inFlight, count, func(i int) { _ = leases[i].Release(t.Context()) })
	}
}

// atOnce calls f for each number below count, so many at a time.
func atOnce(limit, count int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range limit {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// measureWaiting counts what a process sends that waits for the locks of so many sessions, with default settings. If there are none,
// it waits for plain locks.
func measureWaiting(t *testing.T, n manySize, sessions int) (r report.Requests) {
	virtually(t, func(t *testing.T, connect func(string) (leasehold.Store, *network)) {
		var stops []func()
		var leases [][]*leasehold.Lease
		for s := range sessions {
			key := fmt.Sprint("sessions/", s)
			store, _ := connect(key)
			session, stop := startSession(t, store, key, inVirtualTime)
			stops = append(stops, stop)
			leases = append(leases, holdAll(t, (n.locks-s+sessions-1)/sessions, func(i int) *leasehold.Lock {
				return sessionLock(t, session, manyKey(i*sessions+s))
			}))
		}
		locks := n.locks
		if sessions == 0 {
			locks /= plainShare
			store, _ := connect("")
			stops = append(stops, holdPlain(t, locks, store))
		}
		store, w := connect("sessions/waiting")
		lock := func(i int) *leasehold.Lock {
			lock, err := leasehold.NewLock(store, manyKey(i), leasehold.WithLogger(nil), inVirtualTime)
			require.NoError(t, err)
			return lock
		}
		if sessions > 0 {
			session, stop := startSession(t, store, "sessions/waiting", inVirtualTime)
			defer stop()
			lock = func(i int) *leasehold.Lock { return sessionLock(t, session, manyKey(i)) }
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for i := range locks {
			lock := lock(i)
			waiting.Go(func() {
				if _, err := lock.Acquire(ctx); ctx.Err() == nil {
					t.Error("it did not wait: ", err)
				}
			})
		}
		if sessions > 0 {
			time.Sleep(50 * defaultTTL) // the looks come about every 100 TTLs from now on, so count between them
			r = intervals(w, defaultPoll, 100*n.looks*int(defaultTTL/defaultPoll), 1)
			r.Sessions = sessions
		} else {
			time.Sleep(defaultTTL)
			r = intervals(w, defaultPoll, plainIntervals, plainShare)
		}
		cancel()
		waiting.Wait()
		for _, stop := range stops {
			stop()
		}
		runtime.KeepAlive(leases)
	})
	return r
}

// forgetful is an S3 that keeps only sessions: each other object is missing until it is written, and after that too. So what it holds
// does not count as a lock's memory.
type forgetful struct{ fakes3.Server }

func (s *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "/sessions/") || r.Method != http.MethodPut {
		s.Server.ServeHTTP(w, r)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%032x"`, rand.Uint64()))
	w.WriteHeader(http.StatusOK)
}

// weighLeases weighs locks of a session, the leases that they then hold, and what is left of them after the release.
func weighLeases(t *testing.T, n manySize) (list []report.Memory) {
	store := leasehold.NewS3Store(fakes3.NewClient(fakes3.Transport{Handler: &forgetful{}}), fakes3.Bucket)
	session, stop := startSession(t, store, "sessions/a")
	defer stop()
	keys := make([]string, n.locks)
	for i := range keys {
		keys[i] = manyKey(i)
	}
	locks, leases := make([]*leasehold.Lock, n.locks), make([]*leasehold.Lease, n.locks)
	warm := holdAll(t, inFlight, func(i int) *leasehold.Lock { return sessionLock(t, session, fmt.Sprint("warm/", i)) })
	runtime.KeepAlive(warm)
	add := func(before scales, state string) {
		time.Sleep(20 * time.Millisecond) // what requests have left behind ends
		list = append(list, weigh().since(before, report.OnSDK, state, n.locks))
	}
	empty := weigh()
	for i, key := range keys {
		locks[i] = sessionLock(t, session, key)
	}
	add(empty, report.LockAlone)
	made := weigh()
	atOnce(inFlight, n.locks, func(i int) {
		lease, err := locks[i].Acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		leases[i] = lease
	})
	add(made, report.LeaseHeld)
	if name := os.Getenv("BENCH_HEAP"); name != "" { // where it goes, and what the server and the SDK keep
		f, err := os.Create(name)
		require.NoError(t, err)
		require.NoError(t, pprof.Lookup("heap").WriteTo(f, 0))
		require.NoError(t, f.Close())
	}
	stop() // which releases all
	for _, lease := range leases {
		require.False(t, lease.Valid())
	}
	leases = nil
	add(made, report.LeaseReleased)
	runtime.KeepAlive(locks)
	runtime.KeepAlive(leases)
	return list
}

// severed is a store that can be cut, and tells when it is about to replace an object.
type severed struct {
	leasehold.Store
	cut      atomic.Bool
	replaces func(key string)
}

func (s *severed) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if s.cut.Load() {
		return "", errCut
	}
	s.replaces(key)
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

// measureLoss cuts a process off that holds many locks under one session, while another waits for one of them.
func measureLoss(t *testing.T, n manySize) report.Loss {
	var last, spread, ahead []float64
	late := 0
	for range n.losses {
		mem := leasehold.NewMemStore()
		mine := &severed{Store: mem, replaces: func(string) {}}
		ttl := leasehold.WithTTL(n.lossTTL)
		session, stop := startSession(t, mine, "sessions/a", ttl)
		leases := holdAll(t, n.locks, func(i int) *leasehold.Lock { return sessionLock(t, session, manyKey(i)) })
		ends := make([]time.Time, n.locks)
		var ending sync.WaitGroup
		ending.Add(n.locks)
		for i, lease := range leases {
			context.AfterFunc(lease.Context(), func() { ends[i] = time.Now(); ending.Done() })
		}
		sealed := make(chan time.Time, 1)
		others := &severed{Store: mem, replaces: func(key string) {
			if key == "sessions/a" {
				select {
				case sealed <- time.Now():
				default:
				}
			}
		}}
		other, stopOther := startSession(t, others, "sessions/b", ttl)
		taken := make(chan error, 1)
		go func() {
			_, err := sessionLock(t, other, manyKey(0)).Acquire(t.Context())
			taken <- err
		}()
		time.Sleep(n.lossTTL + time.Duration(rand.Int64N(int64(n.lossTTL/3))))
		mine.cut.Store(true)
		time.Sleep(n.lossTTL / 10) // a renewal may have been under way
		deadline := leases[0].Deadline()
		ending.Wait()
		first, end := ends[0], ends[0]
		for _, e := range ends {
			if e.Before(first) {
				first = e
			}
			if e.After(end) {
				end = e
			}
		}
		require.NoError(t, <-taken)
		seal := <-sealed
		for _, e := range ends {
			if !e.Before(seal) {
				late++
			}
		}
		last, spread, ahead = append(last, end.Sub(deadline).Seconds()), append(spread, end.Sub(first).Seconds()), append(ahead, seal.Sub(end).Seconds())
		stopOther()
		stop()
		runtime.KeepAlive(leases)
	}
	return report.Loss{
		TTL: n.lossTTL.Seconds(), Last: report.NewSample(last), Spread: report.NewSample(spread), Ahead: report.NewSample(ahead), Late: late,
	}
}
