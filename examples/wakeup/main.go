// Command wakeup shows how bucket notifications shorten a hand-over: two candidates take turns with
// one lock, first by polling, then woken by a webhook, and then woken by each other because they
// share a store in one process.
//
//	go run ./examples/wakeup
//
// In memory, the program posts the notifications to its own webhook. A MinIO posts them itself;
// guide: docs/handover.md.
//
//	export WEBHOOK_TOKEN=…    # the auth_token of MinIO's webhook
//	go run ./examples/wakeup -listen 127.0.0.1:8090 -s3 http://127.0.0.1:9000 -bucket locks
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/stage"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

func main() { stage.Main("wakeup", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("wakeup", flag.ContinueOnError)
	where := storeflag.Add(flags, "Wakeup shows how fast a released lock changes hands: by polling, and woken by "+
		"bucket notifications.")
	ttl := flags.Duration("ttl", 2*time.Second, "time to live of a lease; a waiting candidate polls about five "+
		"times in it")
	turns := flags.Int("turns", 5, "how often the lock changes hands in each way")
	listen := flags.String("listen", "127.0.0.1:0", "`address` of the webhook, port 0 is any free port; with "+
		"-s3 also set WEBHOOK_TOKEN")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *turns < 1 {
		return errors.New("-turns is less than 1")
	}
	store, err := where.Open(ctx)
	if err != nil {
		return err
	}
	token := os.Getenv("WEBHOOK_TOKEN")
	if token == "" {
		if !where.InMemory() {
			return errors.New("set WEBHOOK_TOKEN to the auth_token of the server's webhook (see docs/handover.md)")
		}
		token = rand.Text()
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	d := &demo{store: store, out: out, ttl: *ttl, hold: *ttl / 5, turns: *turns}
	server := &http.Server{Handler: webhook(token, d.wake), ReadTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // until Close
	defer server.Close()
	hook := "http://" + listener.Addr().String()
	if where.InMemory() {
		d.post = func(key string) { post(ctx, hook, token, key) }
	}

	fmt.Fprintf(out, "Two candidates take turns with one lock %s. The webhook is at %s.\n", where.Place(), hook)
	fmt.Fprintf(out, "A lease lasts %v, and a waiting candidate polls about every %v. Each hand-over takes, from the "+
		"call of Release\n", *ttl, *ttl/5)
	fmt.Fprintf(out, "until the other candidate has the lock (%d times):\n\n%-40s %9s %9s\n", *turns,
		"", "median", "longest")
	if err := d.show(ctx); err != nil {
		return err
	}
	d.posts.Wait()
	fmt.Fprintf(out, "\nThe webhook has received %d notifications of that lock: one for each acquisition, renewal "+
		"and release.\n", d.woken.Load())
	if d.woken.Load() == 0 {
		return errors.New("no bucket notification has arrived (set up the server's webhook as docs/handover.md says)")
	}
	return nil
}

// demo has two candidates that hand a lock over to each other.
type demo struct {
	store leasehold.Store
	post  func(key string) // sends a notification, if the server does not
	out   io.Writer
	ttl   time.Duration
	hold  time.Duration // how long a candidate keeps the lock, or up to twice as long
	turns int

	locks atomic.Pointer[[2]*leasehold.Lock] // that notifications wake
	woken atomic.Int64
	posts sync.WaitGroup
}

const (
	polled   = "examples/wakeup/polled"
	notified = "examples/wakeup/notified"
	sharing  = "examples/wakeup/sharing"
)

// wake is what the webhook calls. A program with several locks has a map from keys to locks
// instead.
func (d *demo) wake(key string) {
	if locks := d.locks.Load(); locks != nil && key == notified {
		d.woken.Add(1)
		locks[0].Wake()
		locks[1].Wake()
	}
}

func (d *demo) show(ctx context.Context) error {
	for _, way := range []struct {
		name, key string
		oneStore  bool
	}{
		{"by polling", polled, false},
		{"woken by a notification to the webhook", notified, false},
		{"woken by the other, in one process", sharing, true},
	} {
		took, err := d.measure(ctx, way.key, way.oneStore)
		if err != nil {
			return err
		}
		slices.Sort(took)
		fmt.Fprintf(d.out, "%-40s %7.1fms %7.1fms\n", way.name, milliseconds(took[len(took)/2]),
			milliseconds(took[len(took)-1]))
	}
	return nil
}

// measure makes two candidates take turns with the lock of a key, and returns how long each
// hand-over took.
func (d *demo) measure(ctx context.Context, key string, oneStore bool) ([]time.Duration, error) {
	stores := [2]leasehold.Store{d.process(), d.process()}
	if oneStore {
		stores[1] = stores[0]
	}
	var locks [2]*leasehold.Lock
	for i, store := range stores {
		var err error
		if locks[i], err = leasehold.NewLock(store, key, leasehold.WithTTL(d.ttl)); err != nil {
			return nil, err
		}
	}
	d.locks.Store(&locks)
	return d.takeTurns(ctx, locks)
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

func (d *demo) takeTurns(ctx context.Context, locks [2]*leasehold.Lock) (took []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lease, err := locks[0].Acquire(ctx)
	if err != nil {
		return nil, err
	}
	for i := range d.turns {
		type result struct {
			lease *leasehold.Lease
			err   error
			at    time.Time
		}
		next := make(chan result, 1)
		go func() {
			lease, err := locks[(i+1)%2].Acquire(ctx)
			next <- result{lease, err, time.Now()}
		}()
		// the other candidate now waits, and the release may come at any point of its wait
		time.Sleep(d.hold + mathrand.N(d.hold))
		released := time.Now()
		if err := lease.Release(ctx); err != nil {
			return nil, err
		}
		r := <-next
		if r.err != nil {
			return nil, r.err
		}
		lease = r.lease
		took = append(took, r.at.Sub(released))
	}
	return took, lease.Release(ctx)
}

// process returns the store of a candidate. Candidates with a process each share no Store value, so
// they do not wake each other. In memory, it sends the notifications that a server would send.
func (d *demo) process() leasehold.Store {
	return teststore.New(d.store, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		o, err := r.Send(ctx)
		if r.Puts() && err == nil && d.post != nil {
			d.posts.Go(func() { d.post(r.Key) })
		}
		return o, err
	})
}

// post sends a notification as MinIO does. If it is lost, the candidates poll.
func post(ctx context.Context, hook, token, key string) {
	body := fmt.Sprintf(`{"Records": [{"s3": {"object": {"key": %q}}}]}`, url.QueryEscape(key))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook, strings.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
	}
}
