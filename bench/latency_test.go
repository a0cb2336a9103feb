package bench

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/fakes3"
)

// latency is how long each operation takes on one server, by peer. get and put are the bare requests.
type latency struct {
	place                            string
	get, put                         []float64 // seconds, one per round
	acquire, renew, release          map[string][]float64
	acquireReq, renewReq, releaseReq map[string]float64 // requests
	cycles                           map[string]float64 // uncontended, a second
}

// measureLatency lets every peer acquire, renew and release its own lock once per round, between bare requests of the SDK. The
// order is drawn anew each round.
func measureLatency(t *testing.T, p *place, n size) latency {
	l := latency{
		place: p.name, acquire: map[string][]float64{}, renew: map[string][]float64{}, release: map[string][]float64{},
		acquireReq: map[string]float64{}, renewReq: map[string]float64{}, releaseReq: map[string]float64{}, cycles: map[string]float64{},
	}
	ctx := t.Context()
	s := settings{ttl: 15 * time.Second, poll: time.Second}
	limit := newRaw(t, p, "latency/raw")
	timed := func(do func() error) (seconds, requests float64) {
		before, began := p.requests.Load(), time.Now()
		require.NoError(t, do())
		return time.Since(began).Seconds(), float64(p.requests.Load() - before)
	}
	for round := range n.rounds + 1 {
		for _, peer := range shuffled(append(p.peers(), peer{name: "raw"})) {
			if peer.name == "raw" {
				get, _ := timed(func() error { return limit.get(ctx) })
				put, _ := timed(func() error { return limit.put(ctx) })
				if round > 0 { // the first warms up
					l.get, l.put = append(l.get, get), append(l.put, put)
				}
				continue
			}
			if peer.elects {
				continue
			}
			// A process that has just started, and so knows nothing about the lock.
			c := peer.open(t, p, "latency/"+peer.name, "me", s)
			var held term
			acquire, acquireReq := timed(func() (err error) { held, err = c.acquire(ctx); return err })
			renew, renewReq := timed(func() error { return held.renew(ctx) })
			release, releaseReq := timed(func() error { return held.release(ctx) })
			if round > 0 {
				l.acquire[peer.name] = append(l.acquire[peer.name], acquire)
				l.renew[peer.name] = append(l.renew[peer.name], renew)
				l.release[peer.name] = append(l.release[peer.name], release)
				l.acquireReq[peer.name] = acquireReq
				l.renewReq[peer.name] = renewReq
				l.releaseReq[peer.name] = releaseReq
			}
		}
	}
	open := map[string]candidate{}
	spent, count := map[string]time.Duration{}, map[string]int{}
	for range n.rounds {
		for _, peer := range shuffled(p.peers()) {
			if peer.elects {
				continue
			}
			if open[peer.name] == nil {
				open[peer.name] = peer.open(t, p, "cycles/"+peer.name, "me", s)
			}
			began := time.Now()
			held, err := open[peer.name].acquire(ctx)
			require.NoError(t, err)
			require.NoError(t, held.release(ctx))
			spent[peer.name] += time.Since(began)
			count[peer.name]++
		}
	}
	for name, d := range spent {
		l.cycles[name] = float64(count[name]) / d.Seconds()
	}
	return l
}

// overhead compares a renewal with a bare PUT of the SDK, on a server in this process that takes no time.
type overhead struct {
	renew, raw   float64 // seconds
	allocs, base float64
}

func measureOverhead(t *testing.T) overhead {
	p := &place{client: fakes3.NewClient(fakes3.Transport{Handler: &fakes3.Server{RandomETags: true}}), bucket: fakes3.Bucket}
	store := leasehold.NewS3Store(p.client, p.bucket)
	lock, err := leasehold.NewLock(store, "ours", leasehold.WithManualRenewal())
	require.NoError(t, err)
	ctx := t.Context()
	lease, err := lock.TryAcquire(ctx)
	require.NoError(t, err)
	body := make([]byte, 250)
	etag, err := store.PutIfNoneMatch(ctx, "raw", body)
	require.NoError(t, err)
	renew := func() { require.NoError(t, lease.Renew(ctx)) }
	put := func() {
		etag, err = store.PutIfMatch(ctx, "raw", body, etag)
		require.NoError(t, err)
	}
	var o overhead
	o.allocs, o.base = testing.AllocsPerRun(500, renew), testing.AllocsPerRun(500, put)
	var ours, raw []float64
	for range 4000 {
		began := time.Now()
		put()
		between := time.Now()
		renew()
		raw, ours = append(raw, between.Sub(began).Seconds()), append(ours, time.Since(between).Seconds())
	}
	o.renew, o.raw = median(ours), median(raw)
	return o
}

// hour is the number of requests in an hour of leading and in an hour of waiting, with a library's default settings.
type hour struct {
	name    string
	ttl     time.Duration
	leadPut float64
	leadGet float64
	waitGet float64
}

// counting is a store that counts requests by kind.
type counting struct {
	leasehold.Store
	gets, puts atomic.Int64
}

func (c *counting) Get(ctx context.Context, key string) (leasehold.Object, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *counting) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	c.puts.Add(1)
	return c.Store.PutIfMatch(ctx, key, body, etag)
}

// measureHours runs the libraries that have their own campaign loop, for ten hours of virtual time.
func measureHours(t *testing.T) (list []hour) {
	const hours = 10
	run := func(name string, ttl time.Duration, elect func(ctx context.Context, s leasehold.Store, name string)) {
		synctest.Test(t, func(t *testing.T) {
			mem := leasehold.NewMemStore()
			leader, waiting := &counting{Store: mem}, &counting{Store: mem}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{}, 2)
			start := func(s *counting, name string) {
				go func() { elect(ctx, s, name); done <- struct{}{} }()
				time.Sleep(time.Minute)
			}
			start(leader, "leader")
			start(waiting, "waiting")
			for _, n := range []*atomic.Int64{&leader.gets, &leader.puts, &waiting.gets} {
				n.Store(0)
			}
			time.Sleep(hours * time.Hour)
			list = append(list, hour{
				name: name, ttl: ttl, leadPut: float64(leader.puts.Load()) / hours, leadGet: float64(leader.gets.Load()) / hours, waitGet: float64(waiting.gets.Load()) / hours,
			})
			cancel()
			<-done
			<-done
		})
	}
	run("leasehold", 15*time.Second, func(ctx context.Context, s leasehold.Store, name string) {
		lock, err := leasehold.NewLock(s, "lock", leasehold.WithIdentity(name))
		require.NoError(t, err)
		e, err := leasehold.NewElector(lock, leasehold.Callbacks{})
		require.NoError(t, err)
		require.NoError(t, e.Run(ctx))
	})
	run("client-go on S3", 15*time.Second, func(ctx context.Context, s leasehold.Store, name string) {
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &bucketLock{store: &mortal{Store: s}, key: "lock", name: name}, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
		})
		require.NoError(t, err)
		e.Run(ctx)
	})
	return list
}

// dollars returns the cost of a month of 730 hours, by S3's list prices of November 2026.
func (h hour) dollars(waiting int) float64 {
	return 730 * (h.leadPut*0.005 + (h.leadGet+float64(waiting)*h.waitGet)*0.0004) / 1000
}
