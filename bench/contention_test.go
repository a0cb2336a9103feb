package bench

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/bench/report"
)

var contended = settings{ttl: 10 * time.Second, poll: 100 * time.Millisecond}

func measureContention(t *testing.T, p *place, n size) (list []report.Crowd) {
	for _, candidates := range n.candidates {
		for _, peer := range shuffled(p.can(append(peers, together))) {
			list = append(list, contend(t, p, peer, candidates, contended, n.contention))
		}
	}
	return list
}

// turn is the time in which one candidate had the lock.
type turn struct {
	candidate          int
	acquired, released time.Duration // since the start
}

func contend(t *testing.T, p *place, peer peer, candidates int, s settings, d time.Duration) report.Crowd {
	// Of this place alone: an etcd candidate that was cut off may have left its key to its session.
	key := fmt.Sprintf("%scontention/%s/%d/%s", peer.prefix, p.bucket, candidates, peer.name)
	crowd := make([]candidate, candidates)
	for i := range crowd {
		crowd[i] = peer.open(t, p, key, fmt.Sprint("candidate-", i), s)
	}
	return compete(t, p, peer, crowd, d)
}

// compete has all candidates acquire and release, as fast as they can.
func compete(t *testing.T, p *place, peer peer, crowd []candidate, d time.Duration) report.Crowd {
	line := assemble(t, crowd)
	var mu sync.Mutex
	var list []turn     // in the order of their acquisition
	var waits []float64 // of acquisitions
	var failed error    // why the last one that failed did
	var start time.Time
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), d+2*time.Minute)
	defer cancel()
	mu.Lock()
	for i, c := range crowd {
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				held, err := c.acquire(ctx)
				mu.Lock()
				at := len(list)
				// also of one that the end has cut off
				waits = append(waits, min(time.Since(began), time.Since(start)).Seconds())
				if err == nil {
					list = append(list, turn{candidate: i, acquired: time.Since(start)})
				}
				failed = cmp.Or(err, failed)
				mu.Unlock()
				if err != nil {
					continue
				}
				if err := held.release(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
					t.Logf("%s: release: %v", peer.name, err)
				}
				mu.Lock()
				list[at].released = time.Since(start)
				mu.Unlock()
			}
		})
	}
	line.fill(t)
	before, work := p.requests.Load(), workOf(crowd)
	start = time.Now()
	mu.Unlock()
	line.open(t)
	time.AfterFunc(d, func() { // later, if the machine is so slow that nobody has had the lock
		for ctx.Err() == nil {
			mu.Lock()
			some := len(list) > 0
			mu.Unlock()
			if some {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	wg.Wait()
	require.NotEmpty(t, list, "%s, %d candidates: nobody had the lock: %v", peer.name, len(crowd), failed)
	d = time.Since(start)
	c := describe(list, len(crowd), d)
	c.Place, c.Peer, c.Wait = p.name, peer.name, report.NewSample(waits)
	if peer.on() == "" {
		c.Requests = float64(p.requests.Load()-before) / float64(len(list))
	}
	if work != nil {
		c.Work = workOf(crowd)
		c.Work.Add(*work, -1)
	}
	return c
}

// describe counts turns. A hand-over is one whose candidate did not have the turn before.
func describe(list []turn, candidates int, d time.Duration) report.Crowd {
	const slices = 20
	var cycles, handovers [slices]float64
	turns := make([]float64, candidates)
	var idle time.Duration
	for i, turn := range list {
		slice := min(int(turn.acquired*slices/d), slices-1)
		cycles[slice]++
		turns[turn.candidate]++
		switch {
		case i == 0:
			continue
		case list[i-1].candidate != turn.candidate:
			handovers[slice]++
		}
		idle += max(turn.acquired-list[i-1].released, 0)
	}
	c := report.Crowd{Candidates: candidates, Turns: len(list), Idle: idle.Seconds() / d.Seconds()}
	sum := func(list [slices]float64, drawn []int) (sum float64) {
		for _, i := range drawn {
			sum += list[i]
		}
		return sum
	}
	c.Cycles = report.Bootstrap(slices, func(drawn []int) float64 { return sum(cycles, drawn) / d.Seconds() })
	c.Handovers = report.Bootstrap(slices, func(drawn []int) float64 { return sum(handovers, drawn) / d.Seconds() })
	c.Share = report.Bootstrap(slices, func(drawn []int) float64 {
		return sum(handovers, drawn) / max(sum(cycles, drawn), 1)
	})
	var all, squares float64
	for _, x := range turns {
		all, squares = all+x, squares+x*x
	}
	c.Jain = all * all / (float64(candidates) * squares)
	return c
}

// Three turns of one candidate and two of another are two hand-overs.
func TestHandoverIsAChangeOfHolder(t *testing.T) {
	at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	c := describe([]turn{{0, at(0), at(100)}, {0, at(200), at(300)}, {1, at(300), at(400)}, {1, at(600), at(700)},
		{0, at(700), at(900)}}, 2, time.Second)
	require.InDelta(t, 5, c.Cycles.Value, 1e-9)
	require.InDelta(t, 2, c.Handovers.Value, 1e-9)
	require.InDelta(t, 0.4, c.Share.Value, 1e-9)
	require.InDelta(t, 0.3, c.Idle, 1e-9)
	require.InDelta(t, 25.0/26, c.Jain, 1e-9)
}
