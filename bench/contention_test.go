package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// contention is the result of many candidates for one lock. Each acquires it, releases it at once, and wants it again.
type contention struct {
	place, peer string
	candidates  int
	handovers   float64 // a second
	requests    float64 // per hand-over
	jain        float64 // fairness: 1 if all got the same number of turns, 1/n if one got them all
	worst       float64 // the longest wait, in seconds
}

const contendedPoll = 100 * time.Millisecond

func measureContention(t *testing.T, p *place, n size) (list []contention) {
	for _, candidates := range n.candidates {
		for _, peer := range shuffled(p.peers()) {
			list = append(list, contend(t, p, peer, candidates, n.contention))
		}
	}
	return list
}

func contend(t *testing.T, p *place, peer peer, candidates int, d time.Duration) contention {
	key := fmt.Sprintf("contention/%d/%s", candidates, peer.name)
	s := settings{ttl: 10 * time.Second, poll: contendedPoll}
	crowd := make([]candidate, candidates)
	for i := range crowd {
		crowd[i] = peer.open(t, p, key, fmt.Sprint("candidate-", i), s)
	}
	turns := make([]float64, candidates)
	var worst, total atomic.Int64
	var wg sync.WaitGroup
	before, start := p.requests.Load(), time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), d+time.Minute)
	defer cancel()
	time.AfterFunc(d, func() { // later, if the machine is so slow that nobody has had the lock
		for total.Load() == 0 && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	})
	for i, c := range crowd {
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				held, err := c.acquire(ctx)
				waited := int64(time.Since(began))
				for old := worst.Load(); waited > old && !worst.CompareAndSwap(old, waited); old = worst.Load() {
				}
				if err != nil {
					continue
				}
				turns[i]++
				total.Add(1)
				if err := held.release(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
					t.Logf("%s: release: %v", peer.name, err)
				}
			}
		})
	}
	wg.Wait()
	d = time.Since(start)
	c := contention{place: p.name, peer: peer.name, candidates: candidates, worst: time.Duration(worst.Load()).Seconds()}
	var sum, squares float64
	for _, x := range turns {
		sum += x
		squares += x * x
	}
	require.Positive(t, sum, "%s: nobody got the lock", peer.name)
	c.handovers, c.requests, c.jain = sum/d.Seconds(), float64(p.requests.Load()-before)/sum, sum*sum/(float64(candidates)*squares)
	return c
}

// takeover is how long nobody leads, in TTLs: from the last renewal of a leader that crashes, or from the call that releases.
type takeover struct {
	place, peer, after string
	trials             []float64
	poll               float64 // in TTLs
}

func measureTakeover(t *testing.T, p *place, n size) (list []takeover) {
	s := settings{ttl: 2 * time.Second, poll: 400 * time.Millisecond} // a fifth of the TTL, leasehold's default
	for _, after := range []string{"crash", "release"} {
		for _, peer := range p.peers() {
			v := takeover{place: p.name, peer: peer.name, after: after, poll: s.poll.Seconds() / s.ttl.Seconds()}
			v.trials = trials(t, n, s.ttl, func(i int) (time.Duration, error) {
				key := fmt.Sprintf("takeover/%s/%s/%d", after, peer.name, i)
				d, err := takeOver(t, p, peer, key, s, after == "crash", n.life)
				if err != nil {
					err = fmt.Errorf("%s: %w", peer.name, err)
				}
				return d, err
			})
			list = append(list, v)
		}
	}
	return append(list, takeover{
		place: p.name, peer: "leasehold", after: "resignation", poll: s.poll.Seconds() / s.ttl.Seconds(),
		trials: trials(t, n, s.ttl, func(i int) (time.Duration, error) {
			return resign(t, p, fmt.Sprintf("takeover/resignation/%d", i), s, n.life)
		}),
	})
}

func takeOver(t *testing.T, p *place, peer peer, key string, s settings, crash bool, lifetime time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	holder, heir := peer.open(t, p, key, "holder", s), peer.open(t, p, key, "heir", s)
	held, err := holder.acquire(ctx)
	if err != nil {
		return 0, err
	}
	type turn struct {
		at  time.Time
		err error
	}
	led := make(chan turn, 1)
	go func() {
		next, err := heir.acquire(ctx)
		at := time.Now()
		if err == nil {
			err = next.release(ctx)
		}
		led <- turn{at, err}
	}()
	self, renews := held.(interface{ written() time.Time })
	began := time.Now()
	// The leader lives for several renewals, and ends at a random point of the heir's poll interval.
	life := lifetime + s.poll/2 + time.Duration(rand.Int64N(int64(s.poll)))
	if !crash {
		life -= lifetime * 3 / 4
	}
	for end := began.Add(life); time.Now().Before(end); {
		if renews || peer.onEtcd {
			time.Sleep(time.Until(end))
			continue
		}
		time.Sleep(min(s.ttl/3, time.Until(end)))
		if began = time.Now(); err == nil {
			err = held.renew(ctx)
		}
	}
	switch {
	case !crash:
		began = time.Now()
		err = held.release(ctx)
	case renews:
		held.crash()
	case peer.onEtcd: // its keepalives are on a stream, so make the last one now
		began = time.Now()
		err = held.renew(ctx)
		held.crash()
	}
	next := <-led
	if crash && renews {
		began = self.written()
	}
	return next.at.Sub(began), errors.Join(err, next.err)
}

// trials runs n.trials trials, n.lanes at a time, and returns their durations in TTLs. In miniature a trial that fails, because the
// machine stood still for longer than a lease, is made again.
func trials(t *testing.T, n size, ttl time.Duration, trial func(i int) (time.Duration, error)) (list []float64) {
	var mu sync.Mutex
	for done := 0; done < n.trials; done += n.lanes {
		var wg sync.WaitGroup
		for lane := range n.lanes {
			wg.Go(func() {
				d, err := trial(done + lane)
				for again := 1; err != nil && again <= n.again; again++ {
					d, err = trial(done + lane + again*n.trials)
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				list = append(list, d.Seconds()/ttl.Seconds())
			})
		}
		wg.Wait()
	}
	return list
}

// resign returns how long nobody leads after one of two leasehold electors has resigned.
func resign(t *testing.T, p *place, key string, s settings, lifetime time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var electors [2]*leasehold.Elector
	var running sync.WaitGroup
	led := make(chan time.Time, 2)
	for i := range electors {
		lock, err := leasehold.NewLock(leasehold.NewS3Store(p.client, p.bucket), key, leasehold.WithTTL(s.ttl), leasehold.WithPollInterval(s.poll))
		if err == nil {
			electors[i], err = leasehold.NewElector(lock, leasehold.Callbacks{OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) {
				led <- time.Now()
				<-ctx.Done()
			}})
		}
		if err != nil {
			return 0, err
		}
		running.Go(func() { _ = electors[i].Run(ctx) })
		if i == 0 {
			<-led
		}
	}
	time.Sleep(lifetime/4 + s.poll/2 + time.Duration(rand.Int64N(int64(s.poll))))
	began := time.Now()
	err := electors[0].Resign(ctx)
	d := (<-led).Sub(began)
	cancel()
	running.Wait()
	return d, err
}
