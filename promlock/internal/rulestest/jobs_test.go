package rulestest

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
	"github.com/leasehold-go/leasehold/promlock"
)

// pod is a process with a collector and a connection to the store of its own.
type pod struct {
	*cable
	collector *promlock.Collector
}

func (p pod) lock(t *testing.T) *leasehold.Lock {
	lock, err := leasehold.NewLock(p, "k", leasehold.WithObserver(p.collector.Observe), leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	return lock
}

// observe runs a program in each of three pods, with the pod's number, for half an hour with a scrape every 30 s, and returns the series.
// From the outage on, which is 0 if there is none, the store answers no one.
func observe(t *testing.T, outage time.Duration, program func(ctx context.Context, t *testing.T, n int, p pod)) string {
	t.Helper()
	series := history{}
	synctest.Test(t, func(t *testing.T) {
		mem, instances := leasehold.NewMemStore(), map[string]*prometheus.Registry{}
		ctx, cancel := context.WithCancel(t.Context())
		var cables []*cable
		var wg sync.WaitGroup
		for n := range 3 {
			p := pod{&cable{Store: mem}, promlock.New()}
			cables = append(cables, p.cable)
			registry := prometheus.NewRegistry()
			require.NoError(t, registry.Register(p.collector))
			instances[fmt.Sprint(n)] = registry
			wg.Go(func() { program(ctx, t, n, p) })
		}
		for n := range 61 {
			if outage > 0 && time.Duration(n)*30*time.Second == outage {
				for _, c := range cables {
					c.cut.Store(true)
				}
			}
			time.Sleep(30 * time.Second)
			series.scrape(t, n, instances)
		}
		cancel()
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
func job(interval, takes time.Duration) func(context.Context, *testing.T, int, pod) {
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

// locker is a job of gocron, whose slot one of the pods gets. Their clocks differ.
func locker(interval, takes, apart time.Duration) func(context.Context, *testing.T, int, pod) {
	return func(ctx context.Context, t *testing.T, n int, p pod) {
		l, err := gocronlock.NewLocker(p, "jobs", interval/2, leasehold.WithObserver(p.collector.Observe), leasehold.WithLogger(slog.New(slog.DiscardHandler)))
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
	if err != nil && !errors.Is(err, context.Canceled) && !p.cut.Load() {
		t.Error(err)
	}
}

func TestNoAlertForHealthyJobs(t *testing.T) {
	for name, program := range map[string]func(context.Context, *testing.T, int, pod){
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
			story := observe(t, 0, program)
			require.Regexp(t, `leasehold_transitions_total\{.*\} .*[1-9]`, story, "it has run")
			for alert, rule := range alerts(t) {
				require.Empty(t, run(t, rule, story), alert)
			}
		})
	}
}

// From the tenth minute on the store answers nobody.
func TestOutageOfTheStoreIsAlerted(t *testing.T) {
	for name, program := range map[string]func(context.Context, *testing.T, int, pod){
		"electors":                          elector,
		"a job that waits for its next run": job(5*time.Minute, time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEmpty(t, run(t, alerts(t)["LeaseholdNoLeader"], observe(t, 10*time.Minute, program)))
		})
	}
}
