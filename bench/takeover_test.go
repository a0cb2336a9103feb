package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

// trip is the round trip in virtual time.
const trip = 10 * time.Millisecond

// newVirtualPlace is an S3 in this process for a synctest bubble. decide injects faults.
func newVirtualPlace(decide func(*http.Request) faultproxy.Fault) (p *place, end func()) {
	p = &place{name: report.Virtual, bucket: fakes3.Bucket, requests: new(atomic.Int64)}
	var mu sync.Mutex
	written := map[string]time.Time{}
	server := &fakes3.Server{OnWrite: func(key string, _ http.Header, _ []byte) {
		mu.Lock()
		defer mu.Unlock()
		written[key] = time.Now()
	}}
	p.written = func(key string) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return written[key]
	}
	faults := &faultproxy.Transport{Base: fakes3.Transport{Handler: server},
		Decide: func(r *http.Request) faultproxy.Fault {
			var f faultproxy.Fault
			if decide != nil {
				f = decide(r)
			}
			f.Before, f.After = trip/2, trip/2
			return f
		}}
	p.client = fakes3.NewClient(faults)
	p.shared = leasehold.NewS3Store(p.client, p.bucket)
	return p, faults.Wait
}

// crash is one kind of trial: a leader crashes, and somebody else takes over.
type crash struct {
	report.Takeover
	peer     peer
	settings settings
	led      time.Duration // by the leader before its heirs start
	heirs    int
	late     bool    // they start at some time in the TTL after the crash
	outage   bool    // the store answers 503 for a third of the TTL, at some time in the TTL after the crash
	failing  float64 // share of the requests that fail
}

// Requests that fail in one of three ways, or nil.
func (c crash) decide(outage *atomic.Bool) func(*http.Request) faultproxy.Fault {
	return func(*http.Request) faultproxy.Fault {
		switch r := rand.Float64(); {
		case outage.Load():
			return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusServiceUnavailable}
		case r < c.failing/3:
			return faultproxy.Fault{Kind: faultproxy.Refuse}
		case r < c.failing*2/3:
			return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusInternalServerError}
		case r < c.failing:
			return faultproxy.Fault{Kind: faultproxy.DropReply}
		}
		return faultproxy.Fault{}
	}
}

// measureVirtualTakeover uses the default TTL.
func measureVirtualTakeover(t *testing.T, n size) (list []report.Takeover) {
	s := settings{ttl: 15 * time.Second, poll: 3 * time.Second}
	var cases []crash
	add := func(name string, peer peer, change func(*crash)) {
		c := crash{
			Takeover: report.Takeover{
				Where:   report.Virtual,
				Peer:    peer.name,
				Case:    name,
				TTL:     s.ttl.Seconds(),
				Watched: 2,
			},
			peer: peer, settings: s, led: s.ttl, heirs: 1,
		}
		change(&c)
		cases = append(cases, c)
	}
	onS3 := (&place{}).can(peers)
	for _, peer := range onS3 {
		add(report.Crash, peer, func(*crash) {})
	}
	add(report.Crash, peers[0], func(c *crash) { c.Watched = 6 })
	for _, peer := range onS3 {
		add(report.ThreeHeirs, peer, func(c *crash) { c.heirs = 3 })
	}
	for _, peer := range append(onS3, clocked) {
		add(report.Newcomer, peer, func(c *crash) { c.late, c.Watched = true, 0 })
	}
	for _, peer := range onS3 {
		add(report.Failing, peer, func(c *crash) { c.failing = 0.01 })
	}
	for _, peer := range onS3 {
		add(report.Outage, peer, func(c *crash) { c.outage = true })
	}
	for _, c := range cases {
		trials := n.virtual
		if c.peer.name != us {
			trials /= 2
		}
		list = append(list, c.virtual(t, trials))
	}
	return list
}

// virtual makes trials in virtual time. Each has an S3 of its own.
func (c crash) virtual(t *testing.T, trials int) report.Takeover {
	var found []float64
	for range trials {
		synctest.Test(t, func(t *testing.T) {
			var outage atomic.Bool
			p, end := newVirtualPlace(c.decide(&outage))
			d, err := c.run(t, p, "lock", &outage)
			end()
			switch {
			case errors.Is(err, errLost):
				c.Lost++
			default:
				require.NoError(t, err, "%s: %s", c.Peer, c.Case)
				found = append(found, d.Seconds()/c.settings.ttl.Seconds())
			}
		})
	}
	c.Time = report.NewSample(found)
	return c.Takeover
}

// measureTakeover makes trials on real servers. The loops on the bucket were measured with the
// default TTL in virtual time, so they are not among the trials with it here, which take minutes.
func measureTakeover(t *testing.T, p *place, n size) (list []report.Takeover) {
	var cases []*crash
	var all []*series
	add := func(peer peer, s settings, trials int) {
		c := &crash{
			Takeover: report.Takeover{
				Where:   p.name,
				Peer:    peer.name,
				Case:    report.Crash,
				TTL:     s.ttl.Seconds(),
				Watched: 2,
			},
			peer: peer, settings: s, led: s.ttl / 2, heirs: 1,
		}
		cases = append(cases, c)
		all = append(all, &series{count: trials, trial: func(i int) ([]float64, error) {
			d, err := c.run(t, p, fmt.Sprintf("takeover/%v/%s/%d", s.ttl, peer.name, i), nil)
			return []float64{d.Seconds() / s.ttl.Seconds()}, err
		}})
	}
	rivals := p.can(slices.Concat(peers, others))
	for _, peer := range rivals {
		// A fifth of the TTL is leasehold's default poll interval.
		add(peer, settings{ttl: 2 * time.Second, poll: 400 * time.Millisecond}, n.trials)
	}
	for _, peer := range rivals {
		expires := peer.name == us || peer.on() == report.OnEtcd || peer.on() == report.OnRedis
		if expires && p.etcd != nil && n.slow > 0 { // where all of them are
			add(peer, settings{ttl: 15 * time.Second, poll: 3 * time.Second}, n.slow)
		}
	}
	runTrials(t, n, n.lanes, all)
	for i, c := range cases {
		c.Time = report.NewSample(all[i].found[0])
		list = append(list, c.Takeover)
	}
	return list
}

// errLost says that a leader lost its lease before the trial had it crash.
var errLost = errors.New("lost the lease before the crash")

// run returns how long nobody leads after a crash.
func (c crash) run(t *testing.T, p *place, key string, outage *atomic.Bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*c.settings.ttl)
	defer cancel()
	s := c.settings
	holder := c.peer.open(t, p, key, "holder", s)
	held, err := holder.acquire(ctx)
	if err != nil {
		return 0, err
	}
	turns := make(chan turnOrError, c.heirs)
	start := func(offset time.Duration, i int) {
		heir := c.peer.open(t, p, key, fmt.Sprint("heir-", i), s)
		go func() {
			_ = wait(ctx, offset)
			next, err := heir.acquire(ctx)
			at := time.Now()
			if err == nil {
				_ = next.release(context.WithoutCancel(ctx)) // requests may fail
			}
			turns <- turnOrError{at, err}
		}()
	}
	// The crash comes at any point of the renewals and polls.
	random := func(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(d))) }
	led := c.led + random(s.ttl)
	life := led + time.Duration(c.Watched*float64(s.ttl)) + random(s.ttl/3)
	if !c.late {
		for i := range c.heirs {
			start(led+time.Duration(i)*random(s.poll), i)
		}
	}
	began, err := lead(ctx, c.peer, held, s, life)
	if err != nil {
		cancel()
		for range c.heirs {
			if !c.late {
				<-turns
			}
		}
		return 0, err
	}
	if c.late {
		for i := range c.heirs {
			start(random(s.ttl), i)
		}
	}
	if c.outage {
		time.AfterFunc(random(s.ttl), func() {
			outage.Store(true)
			time.AfterFunc(s.ttl/3, func() { outage.Store(false) })
		})
	}
	if p.written != nil { // the server knows best; a write of the leader may have been under way
		time.Sleep(s.ttl / 10)
		if began = p.written(key); began.IsZero() {
			began = p.written(key + "/lock.json") // Litestream's
		}
	}
	next := <-turns
	if self, ok := held.(selfRenewing); ok && p.written == nil {
		began = self.written()
	}
	cancel()
	for range c.heirs - 1 {
		<-turns
	}
	return next.at.Sub(began), next.err
}

// lead renews until life is over and then crashes. It returns when the last renewal was sent.
func lead(ctx context.Context, peer peer, held term, s settings, life time.Duration) (last time.Time, err error) {
	began := time.Now()
	end, last := began.Add(life), began
	self, renews := held.(selfRenewing)
	switch {
	case renews:
		time.Sleep(life)
		if self.lost() {
			return last, errLost
		}
		held.crash()
		return self.written(), nil
	case peer.on() == report.OnPostgres: // whose locks are not renewed
		time.Sleep(life)
		last = time.Now()
		held.crash()
		return last, nil
	case peer.on() == report.OnEtcd: // its keepalives are on a stream, so make the last one now
		time.Sleep(life)
		last = time.Now()
		err = held.renew(ctx)
		held.crash()
		return last, err
	}
	// A loop that a caller has to write. A renewal that fails is tried again.
	for next := s.ttl / 3; ; {
		time.Sleep(min(next, time.Until(end)))
		sent := time.Now()
		if !sent.Before(end) {
			return last, nil
		}
		switch err := held.renew(ctx); {
		case err == nil:
			last, next = sent, s.ttl/3
		case refused(err) || time.Since(last) > s.ttl:
			return last, fmt.Errorf("%w: %w", errLost, err)
		default:
			next = s.ttl / 30
		}
	}
}

// series is trials of one kind.
type series struct {
	trial func(i int) ([]float64, error)
	count int
	found [][]float64 // of each figure of a trial
}

// runTrials runs the trials of all series in a random order, so many at a time. In miniature a
// trial that fails, because the machine stood still for longer than a lease, is made again.
func runTrials(t *testing.T, n size, lanes int, all []*series) {
	type job struct {
		*series
		i int
	}
	var jobs []job
	for _, s := range all {
		for i := range s.count {
			jobs = append(jobs, job{s, i})
		}
	}
	next := make(chan job)
	go func() {
		defer close(next)
		for _, j := range shuffled(jobs) {
			next <- j
		}
	}()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range lanes {
		wg.Go(func() {
			for j := range next {
				found, err := j.trial(j.i)
				for again := 1; err != nil && again <= n.again; again++ {
					found, err = j.trial(j.i + again*j.count)
				}
				if err != nil {
					t.Error(err)
					continue
				}
				mu.Lock()
				if j.found == nil {
					j.found = make([][]float64, len(found))
				}
				for i, f := range found {
					j.found[i] = append(j.found[i], f)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, s := range all {
		require.NotEmpty(t, s.found)
	}
}
