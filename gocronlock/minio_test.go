package gocronlock_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gocronlock"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

type withServers struct{ m *testing.M }

func (w withServers) Run() int { return testserver.Main(w.m) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(withServers{m}) }

// wrongClock is a clock that is ahead by a fixed time.
type wrongClock struct {
	clockwork.Clock
	by time.Duration
}

func (c wrongClock) Now() time.Time                  { return c.Clock.Now().Add(c.by) }
func (c wrongClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c wrongClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// behind returns a store with its own connection to the server, on which each request takes at
// least the delay.
func behind(t *testing.T, server testserver.S3, bucket string, delay time.Duration) leasehold.Store {
	t.Helper()
	proxy := faultproxy.Start(t, server.Endpoint, func(*http.Request) faultproxy.Fault {
		return faultproxy.Fault{Before: delay}
	})
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return leasehold.NewS3Store(server.Client(func(o *s3.Options) {
		o.BaseEndpoint = aws.String(proxy.URL())
		o.HTTPClient = &http.Client{Transport: base}
	}), bucket)
}

// tally counts the runs of each slot, by the clock of the instance that ran it.
type tally struct {
	mu      sync.Mutex
	every   time.Duration
	runs    map[time.Time]int
	running int
	overlap bool
	errs    []error
}

func (c *tally) begin(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[time.Time]int{}
	}
	c.runs[now.Round(c.every)]++
	c.running++
	c.overlap = c.overlap || c.running > 1
}

func (c *tally) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
}

func (c *tally) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// check requires that each slot between the first and the last ran exactly once, and returns the
// number of slots.
func (c *tally) check(t *testing.T) int {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NotEmpty(t, c.runs)
	var first, last time.Time
	for slot := range c.runs {
		if first.IsZero() || slot.Before(first) {
			first = slot
		}
		if slot.After(last) {
			last = slot
		}
	}
	n := 0
	for slot := first; !slot.After(last); slot = slot.Add(c.every) {
		require.Equal(t, 1, c.runs[slot], "runs of slot %v", slot)
		n++
	}
	return n
}

// instance is one scheduler with one job, which is due in every slot.
type instance struct {
	clockOff time.Duration
	delay    time.Duration // of each request
}

func TestEachSlotRunsOnce(t *testing.T) {
	const every = 3 * time.Second // and half of that is what a busy machine may be late
	same := []instance{{}, {}, {}, {}}
	for _, c := range []struct {
		name      string
		instances []instance
		takes     time.Duration
	}{
		{name: "short job", instances: same},
		{name: "long job", instances: same, takes: 1200 * time.Millisecond},
		{
			name: "clocks apart",
			instances: []instance{
				{},
				{clockOff: 400 * time.Millisecond},
				{clockOff: -400 * time.Millisecond},
				{clockOff: 1200 * time.Millisecond},
			},
		},
		{
			name:      "clocks apart, long job",
			instances: []instance{{}, {clockOff: 400 * time.Millisecond}, {clockOff: -400 * time.Millisecond}},
			takes:     800 * time.Millisecond,
		},
		{
			name: "slow connections",
			instances: []instance{
				{},
				{delay: 50 * time.Millisecond},
				{delay: 300 * time.Millisecond},
				{delay: 500 * time.Millisecond},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testserver.MinIO(t)
			bucket, count := server.Bucket(t), &tally{every: every}
			var schedulers []gocron.Scheduler
			for _, in := range c.instances {
				clock := wrongClock{clockwork.NewRealClock(), in.clockOff}
				locker, err := gocronlock.NewLocker(behind(t, server, bucket, in.delay), "jobs", every/2)
				require.NoError(t, err)
				locker.SetClock(clock)
				s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker), gocron.WithClock(clock),
					gocron.WithLocation(time.UTC))
				require.NoError(t, err)
				_, err = s.NewJob(gocron.CronJob("*/3 * * * * *", true), gocron.NewTask(func() {
					count.begin(clock.Now())
					defer count.end()
					time.Sleep(c.takes) // the job's work
				}), gocron.WithName("each slot/*"), gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID,
					_ string, err error) {
					// A slot may begin while the scheduler shuts down; its context then ends the
					// try.
					if !errors.Is(err, gocronlock.ErrAlreadyRan) && !errors.Is(err, leasehold.ErrHeld) &&
						!errors.Is(err, context.Canceled) {
						count.failed(err)
					}
				})))
				require.NoError(t, err)
				schedulers = append(schedulers, s)
			}
			for _, s := range schedulers {
				s.Start()
			}
			time.Sleep(5 * every) // the slots
			for _, s := range schedulers {
				require.NoError(t, s.Shutdown())
			}
			t.Logf("%d slots, %d schedulers", count.check(t), len(schedulers))
			require.GreaterOrEqual(t, count.check(t), 3)
			require.False(t, count.overlap)
			require.Empty(t, count.errs)
		})
	}
}

func TestJobLongerThanItsIntervalDoesNotOverlap(t *testing.T) {
	t.Parallel()
	server := testserver.MinIO(t)
	bucket, count := server.Bucket(t), &tally{every: time.Second}
	for range 3 {
		locker, err := gocronlock.NewLocker(behind(t, server, bucket, 0), "jobs", 500*time.Millisecond)
		require.NoError(t, err)
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		require.NoError(t, err)
		_, err = s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() {
			count.begin(time.Now())
			defer count.end()
			time.Sleep(2500 * time.Millisecond) // the job's work
		}), gocron.WithName("long"))
		require.NoError(t, err)
		s.Start()
		t.Cleanup(func() { s.Shutdown() })
	}
	time.Sleep(8 * time.Second) // the slots
	count.mu.Lock()
	defer count.mu.Unlock()
	require.False(t, count.overlap)
	require.GreaterOrEqual(t, len(count.runs), 2)
	for slot, n := range count.runs {
		require.Equal(t, 1, n, slot)
	}
}

func TestElectedSchedulers(t *testing.T) {
	t.Parallel()
	const every = time.Second
	server := testserver.MinIO(t)
	bucket, count := server.Bucket(t), &tally{every: every}
	type member struct {
		elector *leasehold.Elector
		resign  context.CancelFunc
		runs    *tally
	}
	var members []member
	for range 3 {
		lock, err := leasehold.NewLock(behind(t, server, bucket, 0), "leader", leasehold.WithTTL(5*time.Second))
		require.NoError(t, err)
		e, err := leasehold.NewElector(lock, leasehold.Callbacks{})
		require.NoError(t, err)
		s, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronlock.NewElector(e)))
		require.NoError(t, err)
		m := member{elector: e, runs: &tally{every: every}}
		_, err = s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() {
			count.begin(time.Now())
			defer count.end()
			m.runs.begin(time.Now())
		}))
		require.NoError(t, err)
		s.Start()
		t.Cleanup(func() { s.Shutdown() })
		ctx, cancel := context.WithCancel(context.Background())
		m.resign = cancel
		stopped := make(chan struct{})
		go func() { defer close(stopped); e.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-stopped })
		members = append(members, m)
	}
	leader := func() member {
		var found member
		require.Eventually(t, func() bool {
			for _, m := range members {
				if m.elector.IsLeader() {
					found = m
					return true
				}
			}
			return false
		}, 20*time.Second, 10*time.Millisecond)
		return found
	}
	for range 3 {
		m := leader()
		require.Eventually(t, func() bool {
			m.runs.mu.Lock()
			defer m.runs.mu.Unlock()
			return len(m.runs.runs) >= 3
		}, 20*time.Second, 10*time.Millisecond, "the leader runs the job")
		m.resign()
	}
	count.mu.Lock()
	defer count.mu.Unlock()
	require.GreaterOrEqual(t, len(count.runs), 9)
	for slot, n := range count.runs {
		require.Equal(t, 1, n, slot)
	}
}
