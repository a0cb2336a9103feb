package rules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gocronlock"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/promlock"
)

var errReset = errors.New("connection reset")

// remote is a store whose reads take 20 ms, and updates 50.
func remote(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
	switch r.Op {
	case teststore.Get:
		time.Sleep(20 * time.Millisecond)
	case teststore.Update:
		time.Sleep(50 * time.Millisecond)
	}
	return r.Send(ctx)
}

// pod is a process with a collector and a connection to the store of its own.
type pod struct {
	*teststore.Store
	collector *promlock.Collector
}

func (p pod) lock(t *testing.T) *leasehold.Lock {
	lock, err := leasehold.NewLock(p, "k", leasehold.WithObserver(p.collector.Observe),
		leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	return lock
}

type program = func(ctx context.Context, t *testing.T, n int, p pod)

// life is the life of a pod, in scrapes, of which there are 61, one every 30 s.
type life struct {
	instance string
	program  program
	from, to int // to is 0 if it lives on
	killed   bool
	deleted  bool // the lock object was deleted before it began
}

// three are pods that live for half an hour.
func three(f program) []life {
	return []life{{instance: "0", program: f}, {instance: "1", program: f}, {instance: "2", program: f}}
}

// world is what happens to the pods.
type world struct {
	lives    []life
	outage   int  // from this scrape on the store answers nobody; 0 if there is none
	unmarked bool // nothing marks the series of a pod that has gone as stale, as behind a federation
}

// observe lets the pods live, and returns the series.
func observe(t *testing.T, w world) string {
	t.Helper()
	series := history{}
	synctest.Test(t, func(t *testing.T) {
		stores := map[bool]leasehold.Store{false: leasehold.NewMemStore(), true: leasehold.NewMemStore()}
		instances := map[string]*prometheus.Registry{}
		cables := make([]*teststore.Store, len(w.lives))
		stops := make([]context.CancelFunc, len(w.lives))
		var wg sync.WaitGroup
		for n := range 61 {
			for i, l := range w.lives {
				switch {
				case l.to == n && n > 0:
					if l.killed {
						cables[i].Fail(errReset)
					}
					stops[i]()
					delete(instances, l.instance)
					if !w.unmarked {
						series.vanish(n, l.instance)
					}
				case l.from == n:
					p := pod{teststore.New(stores[l.deleted], remote), promlock.New()}
					cables[i] = p.Store
					registry := prometheus.NewRegistry()
					require.NoError(t, registry.Register(p.collector))
					instances[l.instance] = registry
					ctx, cancel := context.WithCancel(t.Context())
					stops[i] = cancel
					wg.Go(func() { l.program(ctx, t, i, p) })
				}
			}
			if w.outage == n && n > 0 {
				for _, c := range cables {
					c.Fail(errReset)
				}
			}
			time.Sleep(30 * time.Second)
			series.scrape(t, n, instances)
		}
		for _, stop := range stops {
			stop()
		}
		wg.Wait()
	})
	return series.story(t)
}

// every runs f at each multiple of an interval, later by what the pod's clock is behind.
func every(ctx context.Context, interval, behind time.Duration, f func()) {
	for first := true; ; first = false {
		wait := interval
		if first {
			wait += behind
		}
		select {
		case <-time.After(wait):
			f()
		case <-ctx.Done():
			return
		}
	}
}

// job takes the lock for each run, and waits for it if another pod runs.
func job(interval, takes time.Duration) program {
	return func(ctx context.Context, t *testing.T, n int, p pod) {
		lock := p.lock(t)
		next := time.Now()
		for {
			next = next.Add(interval)
			select {
			case <-time.After(time.Until(next)):
			case <-ctx.Done():
				return
			}
			run, stop := context.WithTimeout(ctx, interval)
			_ = lock.Do(run, func(ctx context.Context, _ *leasehold.Lease) error {
				select {
				case <-time.After(takes):
				case <-ctx.Done():
				}
				return nil
			})
			stop()
		}
	}
}

// inTurn takes the lock in pod 2, then in pod 1, and then in pod 0. In the 20 minutes until the
// next turn nobody reads the lock.
func inTurn(ctx context.Context, t *testing.T, n int, p pod) {
	lock := p.lock(t)
	for wait := time.Duration(3-n%3) * time.Minute; ; wait = 20 * time.Minute {
		select {
		case <-time.After(wait):
			_ = lock.Do(ctx, func(context.Context, *leasehold.Lease) error { return nil })
		case <-ctx.Done():
			return
		}
	}
}

// locker is a job of gocron, whose slot one of the pods gets. Their clocks differ.
func locker(interval, takes, apart time.Duration) program {
	return func(ctx context.Context, t *testing.T, n int, p pod) {
		l, err := gocronlock.NewLocker(p, "jobs", interval/2, leasehold.WithObserver(p.collector.Observe),
			leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		behind := time.Duration(n) * apart
		l.SetClock(clockBehind(behind))
		every(ctx, interval, behind, func() {
			lock, err := l.Lock(ctx, "report")
			if err != nil {
				return
			}
			select {
			case <-time.After(takes):
			case <-ctx.Done():
			}
			_ = lock.Unlock(context.WithoutCancel(ctx))
		})
	}
}

type clockBehind time.Duration

func (c clockBehind) Now() time.Time { return time.Now().Add(-time.Duration(c)) }

func elector(ctx context.Context, t *testing.T, _ int, p pod) {
	e, err := leasehold.NewElector(p.lock(t), leasehold.Callbacks{})
	if err == nil {
		err = e.Run(ctx)
	}
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errReset) {
		t.Error(err)
	}
}

func TestNoAlertForHealthyJobs(t *testing.T) {
	for name, f := range map[string]program{
		"a job every five minutes":             job(5*time.Minute, time.Second),
		"a job every five minutes, and long":   job(5*time.Minute, time.Minute),
		"a job every two minutes":              job(2*time.Minute, 5*time.Second),
		"a job every ten minutes":              job(10*time.Minute, 20*time.Second),
		"gocron every minute":                  locker(time.Minute, 10*time.Second, time.Second),
		"gocron every two minutes":             locker(2*time.Minute, time.Second, 0),
		"gocron every five minutes":            locker(5*time.Minute, time.Second, 10*time.Second),
		"gocron every ten minutes":             locker(10*time.Minute, 2*time.Minute, time.Minute),
		"gocron every five minutes, far apart": locker(5*time.Minute, time.Second, time.Minute),
		"an elector":                           elector,
	} {
		t.Run(name, func(t *testing.T) {
			requireQuiet(t, observe(t, world{lives: three(f)}))
		})
	}
}

func requireQuiet(t *testing.T, story string) {
	t.Helper()
	require.Regexp(t, `leasehold_transitions_total\{.*\} .*[1-9]`, story, "it has run")
	for alert, rule := range alerts(t) {
		require.Empty(t, run(t, rule, story), alert)
	}
}

func TestNoAlertWhenPodsComeAndGo(t *testing.T) {
	for name, f := range map[string]program{
		"an elector":                elector,
		"a job every five minutes":  job(5*time.Minute, 20*time.Second),
		"gocron every minute":       locker(time.Minute, 10*time.Second, time.Second),
		"gocron every five minutes": locker(5*time.Minute, time.Second, time.Second),
		"gocron every ten minutes":  locker(10*time.Minute, time.Second, 10*time.Second),
		"a job of each pod":         inTurn,
	} {
		if !testsize.Full() && name != "an elector" && name != "a job of each pod" {
			continue
		}
		for what, lives := range map[string][]life{
			"one is scaled away": {{instance: "0", program: f, to: 15}, {instance: "1", program: f},
				{instance: "2", program: f}},
			"one is killed": {{instance: "0", program: f, to: 15, killed: true}, {instance: "1", program: f},
				{instance: "2", program: f}},
			"a rolling deployment": {{instance: "0", program: f, to: 24}, {instance: "1", program: f, to: 26},
				{instance: "2", program: f, to: 28}, {instance: "3", program: f, from: 23},
				{instance: "4", program: f, from: 25}, {instance: "5", program: f, from: 27}},
			"restarts": {{instance: "0", program: f, to: 22, killed: true},
				{instance: "1", program: f, to: 26}, {instance: "2", program: f, to: 30, killed: true},
				{instance: "0", program: f, from: 23}, {instance: "1", program: f, from: 27},
				{instance: "2", program: f, from: 31}},
			"scaled to zero and back": {{instance: "0", program: f, to: 22},
				{instance: "1", program: f, to: 22}, {instance: "2", program: f, to: 22},
				{instance: "3", program: f, from: 40}, {instance: "4", program: f, from: 40}},
		} {
			for _, unmarked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/unmarked=%v", name, what, unmarked), func(t *testing.T) {
					requireQuiet(t, observe(t, world{lives: lives, unmarked: unmarked}))
				})
			}
		}
	}
}

// The lock object is deleted, and none of the pods that come after has seen its token.
func TestALostTokenIsAlerted(t *testing.T) {
	for name, f := range map[string]program{
		"electors":                 elector,
		"a job every five minutes": job(5*time.Minute, 20*time.Second),
		"gocron every minute":      locker(time.Minute, 10*time.Second, time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			var lives []life
			for n := range 6 { // terms, so that the token rises
				lives = append(lives, life{instance: fmt.Sprint(n), program: f, from: 3 * n, to: 3*n + 16})
			}
			lives = append(lives, life{instance: "a", program: f, from: 32, deleted: true},
				life{instance: "b", program: f, from: 32, deleted: true})
			require.NotEmpty(t, run(t, alerts(t)["LeaseholdTokenWentBack"], observe(t, world{lives: lives})))
		})
	}
}

// From the tenth minute on the store answers nobody.
func TestOutageOfTheStoreIsAlerted(t *testing.T) {
	for name, f := range map[string]program{
		"electors":                          elector,
		"a job that waits for its next run": job(5*time.Minute, time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEmpty(t, run(t, alerts(t)["LeaseholdNoLeader"], observe(t, world{lives: three(f), outage: 20})))
		})
	}
}
