package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/shards"
)

// demo runs the workers, shows what they own, and checks it.
type demo struct {
	out      io.Writer
	terminal bool
	store    leasehold.Store
	prefix   string
	shards   int
	ttl      time.Duration
	began    time.Time
	failed   chan error // of workers that have given up

	mu       sync.Mutex // guards what follows, and out
	workers  []*worker
	owners   []ownership   // of each shard: the last one
	moves    int           // ownerships that have begun
	changed  time.Duration // since the last step: when a shard has last changed its owner
	steps    time.Time     // when the last step began
	wrong    []error       // two owners of a shard, and tokens that do not rise
	rows     int           // of the picture, on the terminal now
	messages []string
}

// ownership is one owner of one shard.
type ownership struct {
	worker *worker
	lease  *leasehold.Lease
}

// worker is one process; here it is a group.
type worker struct {
	name  string
	state string // what became of it; "" while it works
	link  *link
	stop  context.CancelFunc
	ended chan struct{}
}

func newDemo(out io.Writer, terminal bool, store leasehold.Store, prefix string, shards int, ttl time.Duration) *demo {
	return &demo{
		out: out, terminal: terminal, store: store, prefix: prefix, shards: shards, ttl: ttl, began: time.Now(), failed: make(chan error, 1),
		owners: make([]ownership, shards), steps: time.Now(),
	}
}

// start starts a worker. It is all that a service needs to get its share of the shards.
func (d *demo) start(ctx context.Context, name string) error {
	w := &worker{name: name, link: &link{Store: d.store}, ended: make(chan struct{})}
	group, err := shards.New(w.link, d.prefix, shards.Count(d.shards), func(ctx context.Context, s shards.Shard) error {
		d.begin(w, s)
		<-ctx.Done() // a service works here, and returns soon after ctx is done
		return nil
	}, shards.WithMember(name), shards.WithTTL(d.ttl),
		shards.WithLogger(nil)) // because the picture tells what happens; keep the log in a program of your own
	if err != nil {
		return err
	}
	ctx, w.stop = context.WithCancel(ctx)
	d.mu.Lock()
	d.workers = append(d.workers, w)
	d.mu.Unlock()
	go func() {
		defer close(w.ended)
		if err := group.Run(ctx); err != nil && !w.link.cut.Load() {
			select {
			case d.failed <- fmt.Errorf("%s: %w", name, err):
			default: // one is enough
			}
		}
	}()
	return nil
}

// kill ends a worker without a word to the store.
func (d *demo) kill(name string) {
	w := d.become(name, "killed")
	w.link.cut.Store(true)
	w.stop()
}

// leave ends a worker gracefully, and waits for that.
func (d *demo) leave(name string) {
	w := d.become(name, "left")
	w.stop()
	<-w.ended
}

// become notes what becomes of a worker.
func (d *demo) become(name, state string) *worker {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.workers, func(w *worker) bool { return w.name == name })
	d.workers[i].state = state
	return d.workers[i]
}

// stopAll stops all workers, and waits until they have ended.
func (d *demo) stopAll() {
	d.mu.Lock()
	workers := slices.Clone(d.workers)
	d.mu.Unlock()
	for _, w := range workers {
		w.stop()
	}
	for _, w := range workers {
		<-w.ended
	}
}

// begin notes that a worker owns a shard, and checks that nobody else does.
func (d *demo) begin(w *worker, s shards.Shard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last := d.owners[s.Number]; last.lease != nil {
		if last.lease.Valid() {
			d.wrong = append(d.wrong, fmt.Errorf("shard %d: %s owns it while the lease of %s goes on", s.Number, w.name, last.worker.name))
		}
		if s.Token() <= last.lease.Token() {
			d.wrong = append(d.wrong, fmt.Errorf("shard %d: token %d follows %d", s.Number, s.Token(), last.lease.Token()))
		}
	}
	d.owners[s.Number] = ownership{w, s.Lease()}
	d.moves++
	d.changed = time.Since(d.steps)
}

// await waits until the workers own all shards, each its share.
func (d *demo) await(ctx context.Context) error {
	limit := 30*time.Second + 10*d.ttl
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the shards are not balanced within %v", limit))
	defer cancel()
	tick := time.NewTicker(d.ttl / 100)
	defer tick.Stop()
	for !d.balanced() {
		select {
		case <-tick.C:
		case err := <-d.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	d.mu.Lock()
	what := fmt.Sprintf("balanced after %.2f TTL: %d shards have got another owner", d.changed.Seconds()/d.ttl.Seconds(), d.moves)
	d.mu.Unlock()
	d.say(what)
	return nil
}

func (d *demo) balanced() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	total, fewest, most := 0, d.shards, 0
	for _, w := range d.workers {
		if w.state != "" {
			continue
		}
		n := 0
		for i := range d.owners {
			if d.owns(w, i) {
				n++
			}
		}
		total, fewest, most = total+n, min(fewest, n), max(most, n)
	}
	return total == d.shards && most-fewest <= 1
}

// owns reports whether a worker owns shard i. The caller holds d.mu.
func (d *demo) owns(w *worker, i int) bool {
	return d.owners[i].worker == w && d.owners[i].lease.Valid()
}

// say begins a step of the timeline.
func (d *demo) say(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := fmt.Sprintf("%7.3fs  %s", time.Since(d.began).Seconds(), what)
	d.steps, d.moves = time.Now(), 0
	if d.terminal {
		d.messages = append(d.messages, line)
		d.draw()
		return
	}
	fmt.Fprintln(d.out, line)
	if strings.HasPrefix(what, "balanced") {
		fmt.Fprint(d.out, d.picture())
	}
}

// watch draws the picture again and again on a terminal, until the result is called.
func (d *demo) watch() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(d.ttl / 50)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				if d.terminal {
					d.mu.Lock()
					d.draw()
					d.mu.Unlock()
				}
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-ended
	})
}

// picture has a row for each worker. The caller holds d.mu.
func (d *demo) picture() string {
	var b strings.Builder
	for _, w := range d.workers {
		n := 0
		fmt.Fprintf(&b, "%9s ", w.name)
		for i := range d.owners {
			if d.owns(w, i) {
				n++
				b.WriteRune('■')
			} else {
				b.WriteRune('·')
			}
		}
		fmt.Fprintf(&b, " %3d %s\n", n, w.state)
	}
	return b.String()
}

// draw draws the picture and the timeline over the last ones. The caller holds d.mu.
func (d *demo) draw() {
	if d.rows > 0 {
		fmt.Fprintf(d.out, "\x1b[%dA\x1b[J", d.rows)
	}
	text := d.picture() + "\n" + strings.Join(d.messages, "\n") + "\n"
	d.rows = strings.Count(text, "\n")
	fmt.Fprint(d.out, text)
}

// report prints the totals. It returns an error if a shard ever had two owners.
func (d *demo) report() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	tokens := uint64(0)
	for _, o := range d.owners {
		tokens = max(tokens, o.lease.Token())
	}
	fmt.Fprintf(d.out, "\nThe highest fencing token of a shard is %d. Two owners of one shard, or a token that did not rise: %d times.\n",
		tokens, len(d.wrong))
	return errors.Join(d.wrong[:min(len(d.wrong), 10)]...)
}

// link is a worker's way to the store. It can be cut: then requests hang until their deadlines, as when packets are dropped.
type link struct {
	leasehold.Store
	cut atomic.Bool
}

func (l *link) wait(ctx context.Context) error {
	if l.cut.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (l *link) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := l.wait(ctx); err != nil {
		return leasehold.Object{}, err
	}
	return l.Store.Get(ctx, key)
}

func (l *link) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if err := l.wait(ctx); err != nil {
		return "", err
	}
	return l.Store.PutIfNoneMatch(ctx, key, body)
}

func (l *link) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := l.wait(ctx); err != nil {
		return "", err
	}
	return l.Store.PutIfMatch(ctx, key, body, etag)
}
