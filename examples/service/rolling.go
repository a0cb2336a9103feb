package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// rollingRestart runs two replicas, and restarts one after the other while clients send 200
// requests a second. Then it prints what was answered.
func rollingRestart(ctx context.Context, store leasehold.Store, log *slog.Logger) error {
	balancer := &balancer{up: make(map[string]bool), answers: make(map[string]int)}
	var replicas []*replica
	defer func() {
		for _, r := range replicas {
			_ = r.end()
		}
	}()
	for range 2 {
		r, err := begin(ctx, store, "127.0.0.1:0", log)
		if err != nil {
			return err
		}
		replicas = append(replicas, r)
		balancer.set(r.url, true)
		if err := r.waitForALeader(ctx); err != nil {
			return err
		}
	}
	loaded, stop := context.WithCancel(ctx)
	defer stop()
	var load sync.WaitGroup
	load.Go(func() { balancer.send(loaded) })
	for i, r := range replicas {
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
		log.Info("rolling restart", "of", r.url)
		// A replica must answer until no client sends it requests any more: in Kubernetes, preStop
		// waits.
		balancer.set(r.url, false)
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		if err := r.end(); err != nil {
			return err
		}
		// A process takes longer to start than the lead to change hands. This replica would not.
		if err := replicas[1-i].waitForALeader(ctx); err != nil {
			return err
		}
		next, err := begin(ctx, store, strings.TrimPrefix(r.url, "http://"), log)
		if err != nil {
			return err
		}
		replicas[i] = next
		balancer.set(next.url, true)
		if err := next.waitForALeader(ctx); err != nil {
			return err
		}
	}
	err := sleep(ctx, 500*time.Millisecond)
	stop()
	load.Wait()
	for _, answer := range slices.Sorted(maps.Keys(balancer.answers)) {
		log.Info("answered", "with", answer, "requests", balancer.answers[answer])
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replica is one that runs in this process, where it stands for a process of its own.
type replica struct {
	url   string
	stop  context.CancelFunc
	ended chan error
}

// way is a replica's own way to the store. Locks of one process that share a Store value wake each
// other after a release. Those of different processes do not: they learn of it over HTTP.
type way struct{ leasehold.Store }

func begin(ctx context.Context, store leasehold.Store, addr string, log *slog.Logger) (*replica, error) {
	ctx, stop := context.WithCancel(ctx)
	r := &replica{stop: stop, ended: make(chan error, 1)}
	ready := make(chan string, 1)
	go func() {
		r.ended <- serve(ctx, &way{store}, addr, log, func(url string) { ready <- url })
	}()
	select {
	case r.url = <-ready:
		return r, nil
	case err := <-r.ended:
		stop()
		return nil, err
	}
}

// end ends a replica as SIGTERM does. The second time it does nothing.
func (r *replica) end() error {
	r.stop()
	err := <-r.ended
	r.ended <- nil
	return err
}

// waitForALeader waits until the replica knows a leader, which may be itself.
func (r *replica) waitForALeader(ctx context.Context) error {
	for {
		res, err := http.Get(r.url)
		if err != nil {
			return err
		}
		if err := res.Body.Close(); err != nil || res.StatusCode == http.StatusOK {
			return err
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// balancer sends requests to the replicas that are up, and counts the answers.
type balancer struct {
	mu      sync.Mutex
	up      map[string]bool
	answers map[string]int
}

func (b *balancer) set(url string, up bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.up[url] = up; !up {
		delete(b.up, url)
	}
}

// send sends 200 requests a second until ctx ends, and waits for their answers.
func (b *balancer) send(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var requests sync.WaitGroup
	defer requests.Wait()
	for {
		select {
		case <-tick.C:
			requests.Go(func() {
				b.mu.Lock()
				up := slices.Collect(maps.Keys(b.up))
				b.mu.Unlock()
				answer := b.ask(up[rand.IntN(len(up))])
				b.mu.Lock()
				defer b.mu.Unlock()
				b.answers[answer]++
			})
		case <-ctx.Done():
			return
		}
	}
}

// ask sends a request and says what was answered, as clients of a service see it.
func (b *balancer) ask(url string) string {
	res, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err.Error()
	case res.StatusCode == http.StatusOK:
		_, token, _ := strings.Cut(strings.TrimSpace(string(body)), ", with ")
		return "200, by the leader with " + token
	case res.Header.Get("Retry-After") != "":
		return fmt.Sprintf("%d, not carried out: try again after %s s", res.StatusCode, res.Header.Get("Retry-After"))
	default:
		return fmt.Sprint(res.StatusCode, ", ", strings.TrimSpace(string(body)))
	}
}
