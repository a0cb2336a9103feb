package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// hub receives a server's notifications of writes and wakes those who wait for the object.
type hub struct {
	*httptest.Server
	delay atomic.Int64 // half a round trip, because a notification has to travel too
	mu    sync.Mutex
	wakes map[string][]func()
}

// pushPrefix begins the keys of the objects whose writes are notified.
const pushPrefix = "pushed/"

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{wakes: map[string][]func(){}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var event struct {
			Records []struct {
				S3 struct{ Object struct{ Key string } }
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&event) // MinIO also asks whether the receiver is there
		for _, record := range event.Records {
			if key, err := url.QueryUnescape(record.S3.Object.Key); err == nil {
				time.AfterFunc(time.Duration(h.delay.Load()), func() { h.wake(key) })
			}
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hub) wake(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, wake := range h.wakes[key] {
		wake()
	}
}

func (h *hub) add(key string, wake func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakes[key] = append(h.wakes[key], wake)
}

// farPlace is a place on a server, and the others, behind proxies that delay.
func farPlace(t *testing.T, server testserver.S3, h *hub, o otherServers, roundTrip time.Duration) *place {
	slow := server
	addr, err := url.Parse(server.Endpoint)
	require.NoError(t, err)
	slow.Endpoint = "http://" + slowProxy(t, addr.Host, roundTrip)
	p := newPlace(t, slow)
	slow.Notify(t, p.bucket, pushPrefix)
	o.reach(t, p, func(addr string) string { return slowProxy(t, addr, roundTrip) })
	p.pushed, p.apart = h.add, roundTrip
	h.delay.Store(int64(roundTrip / 2))
	return p
}

// measureHandover measures how long nobody leads after a release, on one server and the others
// behind proxies that delay.
func measureHandover(t *testing.T, server testserver.S3, h *hub, o otherServers, n size) (list []report.Handover) {
	s := settings{ttl: 5 * time.Second, poll: time.Second}
	for _, roundTrip := range n.roundTrips {
		p := farPlace(t, server, h, o, roundTrip)
		list = append(list, releases(t, p, n, s, p.can(slices.Concat(peers, []peer{pushed, pushNew, together}, others)),
			report.Resignation, report.Stop)...)
	}
	return list
}

// releases measures the hand-overs of peers by a release, and those of leasehold's electors by
// other ways.
func releases(t *testing.T, p *place, n size, s settings, peers []peer, ways ...string) (list []report.Handover) {
	var all []*series
	add := func(peer, way string, trial func(key string) (called, returned, led time.Time, err error)) {
		list = append(list, report.Handover{RoundTrip: p.apart.Seconds(), Peer: peer, Way: way})
		all = append(all, &series{count: n.handovers, trial: func(i int) ([]float64, error) {
			key := fmt.Sprintf("%shandover/%v/%s/%s/%d", pushPrefix, p.apart, peer, way, i)
			called, returned, led, err := trial(key)
			return []float64{led.Sub(called).Seconds(), led.Sub(returned).Seconds()}, err
		}})
	}
	for _, peer := range peers {
		add(peer.name, report.Release, func(key string) (called, returned, led time.Time, err error) {
			return handOver(t, p, peer, key, s)
		})
	}
	for _, way := range ways {
		for _, peer := range []peer{unaided, pushed, followed} {
			add(peer.name, way, func(key string) (called, returned, led time.Time, err error) {
				return stepDown(t, p, peer, key, s, way)
			})
		}
	}
	var bare map[string]report.Sample
	ctx, stop := context.WithCancel(t.Context())
	var measuring sync.WaitGroup
	measuring.Go(func() { bare = bareTrips(ctx, t, p) })
	runTrials(t, n, n.lanes/2, all)
	stop()
	measuring.Wait()
	for i := range list {
		h := &list[i]
		h.Trip = bare[report.Server(h.Peer)]
		h.FromCall, h.FromReturn = report.NewSample(all[i].found[0]), report.NewSample(all[i].found[1])
	}
	return list
}

// bareTrips is what a round trip to each server takes, until ctx ends: while the trials run. It is
// half of two bare requests.
func bareTrips(ctx context.Context, t *testing.T, p *place) map[string]report.Sample {
	r := newRaw(t, p, "trip")
	two := map[string]func() error{"": func() error { return errors.Join(r.get(ctx), r.put(ctx)) }}
	if p.etcd != nil {
		two[report.OnEtcd] = func() error {
			_, getErr := p.etcd.Get(ctx, "trip")
			_, putErr := p.etcd.Put(ctx, "trip", "x")
			return errors.Join(getErr, putErr)
		}
	}
	if p.redis != nil {
		two[report.OnRedis] = func() error {
			return errors.Join(p.redis.Set(ctx, "trip", "x", 0).Err(), p.redis.Get(ctx, "trip").Err())
		}
	}
	if p.postgres != "" {
		c, err := p.connectPostgres(ctx)
		if err != nil {
			t.Error(err)
			return nil
		}
		defer c.Close(context.WithoutCancel(ctx))
		two[report.OnPostgres] = func() error { return errors.Join(c.Ping(ctx), c.Ping(ctx)) }
	}
	found := map[string][]float64{}
	for ctx.Err() == nil {
		for server, send := range two {
			began := time.Now()
			err := send()
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				t.Errorf("%s: %v", server, err)
			}
			found[server] = append(found[server], time.Since(began).Seconds()/2)
		}
		_ = wait(ctx, 20*time.Millisecond)
	}
	samples := map[string]report.Sample{}
	for server, trips := range found {
		samples[server] = report.NewSample(trips[1:]) // the first opens connections
	}
	return samples
}

// settle waits until the heir waits, and then to a random point of its poll interval.
func settle(s settings) { time.Sleep(s.poll + time.Duration(rand.Int64N(int64(s.poll)))) }

func handOver(t *testing.T, p *place, peer peer, key string, s settings) (called, returned, led time.Time, err error) {
	ctx := testctx.Within(t, time.Minute)
	holder, heir := peer.open(t, p, key, "holder", s), peer.open(t, p, key, "heir", s)
	for _, c := range []candidate{holder, heir} {
		if m, ok := c.(*member); ok {
			defer m.end()
		}
	}
	held, err := holder.acquire(ctx)
	if err != nil {
		return
	}
	next := make(chan turnOrError, 1)
	go func() {
		held, err := heir.acquire(ctx)
		at := time.Now()
		if err == nil {
			err = held.release(ctx)
		}
		next <- turnOrError{at, err}
	}()
	settle(s)
	called = time.Now()
	err = held.release(ctx)
	returned = time.Now()
	n := <-next
	return called, returned, n.at, errors.Join(err, n.err)
}

type turnOrError struct {
	at  time.Time
	err error
}

// stepDown has one of two electors resign, or ends its Run.
func stepDown(t *testing.T, p *place, peer peer, key string, s settings,
	way string) (called, returned, led time.Time, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	leads := make(chan time.Time, 2)
	elect := func(ctx context.Context, name string) (*leasehold.Elector, chan error) {
		c := peer.open(t, p, key, name, s).(ours)
		e, err := c.elector(leasehold.Callbacks{OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) {
			leads <- time.Now()
			<-ctx.Done()
		}})
		require.NoError(t, err)
		ended := make(chan error, 1)
		running.Go(func() {
			ended <- e.Run(ctx)
			c.end()
		})
		return e, ended
	}
	first, stop := context.WithCancel(ctx)
	defer stop()
	holder, ended := elect(first, "holder")
	<-leads
	elect(ctx, "heir")
	settle(s)
	called = time.Now()
	if way == report.Stop {
		stop()
		err = <-ended
	} else {
		err = holder.Resign(ctx)
	}
	returned = time.Now()
	select {
	case led = <-leads:
	case <-time.After(time.Minute):
		err = errors.New("nobody leads")
	}
	return called, returned, led, err
}
