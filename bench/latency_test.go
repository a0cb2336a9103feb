package bench

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// measureLatency lets every peer acquire, renew and release its own lock once per round, between
// bare requests of the SDK. The order is drawn anew each round.
func measureLatency(t *testing.T, p *place, n size) report.Place {
	type series struct {
		acquire, renew, release []float64
		requests                [3]int
		cycles                  time.Duration
		warm                    candidate
	}
	var get, put, both []float64
	of := map[string]*series{}
	ctx := t.Context()
	s := settings{ttl: 15 * time.Second, poll: time.Second}
	limit := newRaw(t, p, "latency/raw")
	timed := func(do func() error) (seconds float64, requests int) {
		before, began := p.requests.Load(), time.Now()
		require.NoError(t, do())
		return time.Since(began).Seconds(), int(p.requests.Load() - before)
	}
	var rivals []peer
	for _, peer := range p.can(peers) {
		if !peer.elects {
			rivals = append(rivals, peer)
			of[peer.name] = &series{warm: peer.open(t, p, "cycles/"+peer.name, "me", s)}
		}
	}
	const bare = "bare requests"
	for round := range n.rounds + 1 {
		for _, peer := range shuffled(append(rivals, peer{name: bare})) {
			if peer.name == bare {
				g, _ := timed(func() error { return limit.get(ctx) })
				w, _ := timed(func() error { return limit.put(ctx) })
				if round > 0 { // the first warms up
					get, put, both = append(get, g), append(put, w), append(both, g+w)
				}
				continue
			}
			// A process that knows nothing about the lock, and that its server enforces conditions.
			c := peer.open(t, p, "latency/"+peer.name, "me", s)
			if ours, ok := c.(ours); ok {
				require.NoError(t, ours.knows(ctx))
			}
			x := of[peer.name]
			var held term
			acquire, acquireReq := timed(func() (err error) { held, err = c.acquire(ctx); return err })
			renew, renewReq := timed(func() error { return held.renew(ctx) })
			release, releaseReq := timed(func() error { return held.release(ctx) })
			cycle, _ := timed(func() error { // of one that has held the lock before
				held, err := x.warm.acquire(ctx)
				if err != nil {
					return err
				}
				return held.release(ctx)
			})
			if round > 0 {
				x.acquire, x.renew, x.release = append(x.acquire, acquire), append(x.renew, renew),
					append(x.release, release)
				x.requests = [3]int{acquireReq, renewReq, releaseReq}
				x.cycles += time.Duration(cycle * float64(time.Second))
			}
		}
	}
	l := report.Place{Name: p.name, Get: report.NewSample(get), Put: report.NewSample(put)}
	for _, peer := range rivals {
		x := of[peer.name]
		o := report.Operation{
			Peer: peer.name, Etcd: peer.on() == report.OnEtcd, Requests: x.requests,
			Cycles:  float64(len(x.acquire)) / x.cycles.Seconds(),
			Acquire: report.NewSample(x.acquire), Renew: report.NewSample(x.renew),
			Release: report.NewSample(x.release),
		}
		if peer.on() == "" {
			o.AcquireRatio, o.RenewRatio, o.ReleaseRatio = report.Ratio(x.acquire, both), report.Ratio(x.renew, put),
				report.Ratio(x.release, put)
		}
		l.Peers = append(l.Peers, o)
	}
	return l
}

// measureOwn compares a renewal with a bare PUT of the SDK, on a server in this process that takes
// no time.
func measureOwn(t *testing.T) report.Own {
	p := &place{
		client: fakes3.NewClient(fakes3.Transport{Handler: &fakes3.Server{RandomETags: true}}),
		bucket: fakes3.Bucket,
	}
	store := leasehold.NewS3Store(p.client, p.bucket)
	lock, err := leasehold.NewLock(store, "ours", leasehold.WithManualRenewal(),
		leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	ctx := context.WithoutCancel(t.Context()) // as that of a renewal in the background
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
	var o report.Own
	var ours, raw []float64
	for range 4000 {
		began := time.Now()
		put()
		between := time.Now()
		renew()
		raw, ours = append(raw, between.Sub(began).Seconds()), append(ours, time.Since(between).Seconds())
	}
	o.Renew, o.Put = report.NewSample(ours), report.NewSample(raw)
	return o
}

// measureHours runs the libraries that have their own campaign loop, for ten hours of virtual time.
func measureHours(t *testing.T) (list []report.Hour) {
	const hours = 10
	run := func(name string, ttl time.Duration, elect func(ctx context.Context, s leasehold.Store, name string)) {
		synctest.Test(t, func(t *testing.T) {
			mem := leasehold.NewMemStore()
			leader, waiting := teststore.New(mem, nil), teststore.New(mem, nil)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{}, 2)
			start := func(s leasehold.Store, name string) {
				go func() { elect(ctx, s, name); done <- struct{}{} }()
				time.Sleep(time.Minute)
			}
			start(leader, "leader")
			start(waiting, "waiting")
			leader.Forget()
			waiting.Forget()
			time.Sleep(hours * time.Hour)
			list = append(list, report.Hour{
				Peer: name, TTL: ttl.Seconds(), LeadPut: float64(leader.Sent(teststore.Update)) / hours,
				LeadGet: float64(leader.Sent(teststore.Get)) / hours,
				WaitGet: float64(waiting.Sent(teststore.Get)) / hours,
			})
			cancel()
			<-done
			<-done
		})
	}
	run(us, 15*time.Second, func(ctx context.Context, s leasehold.Store, name string) {
		lock, err := leasehold.NewLock(s, "lock", leasehold.WithHolder(name))
		require.NoError(t, err)
		e, err := leasehold.NewElector(lock, leasehold.Callbacks{})
		require.NoError(t, err)
		require.NoError(t, e.Run(ctx))
	})
	run(report.ClientGo, 15*time.Second, func(ctx context.Context, s leasehold.Store, name string) {
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &bucketLock{
				store: newMortal(s),
				key:   "lock",
				name:  name,
			}, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {},
				OnStoppedLeading: func() {},
			},
		})
		require.NoError(t, err)
		e.Run(ctx)
	})
	return list
}
