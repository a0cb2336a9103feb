package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/gcsstore"
	"github.com/leasehold-go/leasehold/gocronlock"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/k8slock"
)

// meter collects what one kind of operation takes.
type meter struct {
	requests *atomic.Int64
	sent     int64
	times    []float64
}

func (m *meter) measure(do func() error) error {
	before, began := m.requests.Load(), time.Now()
	err := do()
	m.times = append(m.times, time.Since(began).Seconds())
	m.sent += m.requests.Load() - before
	return err
}

func (m *meter) result(adapter, on, operation string) report.Adapter {
	return report.Adapter{
		Adapter:   adapter,
		On:        on,
		Operation: operation,
		Time:      report.NewSample(m.times),
		Requests:  float64(m.sent) / float64(len(m.times)),
	}
}

func measureAdapters(t *testing.T, p *place, n size) (list []report.Adapter) {
	list = append(list, measureGCS(t, n)...)
	list = append(list, measureK8s(t, p, n)...)
	return append(list, measureGocron(t, p, n)...)
}

func measureGCS(t *testing.T, n size) (list []report.Adapter) {
	requests := new(atomic.Int64)
	base := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(base.CloseIdleConnections)
	client, err := gcsstore.NewClient(t.Context(), option.WithHTTPClient(&http.Client{Transport: counted{base,
		requests}}),
		option.WithEndpoint(testserver.FakeGCS(t)+"/storage/v1/"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	bucket := strings.ToLower(rand.Text())
	require.NoError(t, client.Bucket(bucket).Create(t.Context(), "project", nil))
	acquire, renew, release := &meter{requests: requests}, &meter{requests: requests}, &meter{requests: requests}
	for range n.rounds {
		lock, err := leasehold.NewLock(gcsstore.New(client, bucket), "lock", leasehold.WithManualRenewal())
		require.NoError(t, err)
		var lease *leasehold.Lease
		require.NoError(t, acquire.measure(func() (err error) {
			lease, err = lock.TryAcquire(t.Context())
			return err
		}))
		require.NoError(t, renew.measure(func() error { return lease.Renew(t.Context()) }))
		require.NoError(t, release.measure(func() error { return lease.Release(t.Context()) }))
	}
	const on = "fake-gcs-server"
	return []report.Adapter{
		acquire.result("gcsstore", on, "acquire, cold"), renew.result("gcsstore", on, "renew"),
		release.result("gcsstore", on, "release"),
	}
}

// measuredLock measures the calls of client-go's elector.
type measuredLock struct {
	resourcelock.Interface
	leads atomic.Bool
	mu    sync.Mutex
	renew *meter
}

func (l *measuredLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if !l.leads.Load() || r.HolderIdentity == "" {
		return l.Interface.Update(ctx, r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renew.measure(func() error { return l.Interface.Update(ctx, r) })
}

// measureK8s runs client-go's elector on k8slock. It renews every retry period, so there are fewer
// renewals than rounds.
func measureK8s(t *testing.T, p *place, n size) []report.Adapter {
	acquire, renew, release := &meter{requests: p.requests}, &meter{requests: p.requests}, &meter{requests: p.requests}
	for range max(n.rounds/10, 2) {
		lock, err := k8slock.New(leasehold.NewS3Store(p.client, p.bucket), "k8slock", 6*time.Second)
		require.NoError(t, err)
		measured := &measuredLock{Interface: lock, renew: renew}
		led := make(chan struct{})
		config := lock.Config(leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(led) },
			OnStoppedLeading: func() {},
		})
		config.Lock, config.ReleaseOnCancel, config.RetryPeriod = measured, true, 50*time.Millisecond
		e, err := leaderelection.NewLeaderElector(config)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		require.NoError(t, acquire.measure(func() error {
			go func() { defer close(ended); e.Run(ctx) }()
			<-led
			return nil
		}))
		measured.leads.Store(true)
		time.Sleep(275 * time.Millisecond) // about five renewals
		require.NoError(t, release.measure(func() error { cancel(); <-ended; return nil }))
	}
	return []report.Adapter{
		acquire.result("k8slock", p.name, "client-go's elector: acquire, cold"),
		renew.result("k8slock", p.name, "client-go's elector: renew"),
		release.result("k8slock", p.name, "client-go's elector: stop with ReleaseOnCancel"),
	}
}

// slots is a clock that shows a new slot whenever it is asked.
type slots struct {
	mu  sync.Mutex
	now time.Time
}

func (s *slots) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(time.Minute)
	return s.now
}

func measureGocron(t *testing.T, p *place, n size) []report.Adapter {
	locker := func() *gocronlock.Locker {
		l, err := gocronlock.NewLocker(leasehold.NewS3Store(p.client, p.bucket), "gocronlock", 30*time.Second)
		require.NoError(t, err)
		return l
	}
	gets, clock := locker(), &slots{now: time.Now()}
	gets.SetClock(clock)
	lock, unlock, skip := &meter{requests: p.requests}, &meter{requests: p.requests}, &meter{requests: p.requests}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range n.rounds {
		job := fmt.Sprint("job-", i%10)
		var run interface{ Unlock(context.Context) error }
		require.NoError(t, lock.measure(func() (err error) { run, err = gets.Lock(ctx, job); return err }))
		late := locker() // of an instance that comes to the same slot
		late.SetClock(fixed(clock.now))
		require.Error(t, skip.measure(func() error { _, err := late.Lock(ctx, job); return err }))
		require.NoError(t, unlock.measure(func() error { return run.Unlock(ctx) }))
	}
	return []report.Adapter{
		lock.result("gocronlock", p.name, "a run: Lock"), unlock.result("gocronlock", p.name, "a run: Unlock"),
		skip.result("gocronlock", p.name, "a run that another instance has"),
	}
}

type fixed time.Time

func (f fixed) Now() time.Time { return time.Time(f) }
