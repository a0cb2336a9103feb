package leaderhttp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/testlog"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/leaderhttp"
)

const (
	key     = "locks/a"
	ttl     = 15 * time.Second
	request = 10 * time.Millisecond // to the store and back
	message = 2 * time.Millisecond  // between two processes
)

// network carries requests between processes in virtual time. A host that was taken off it has
// closed its connections, as a process that was killed has; one that is silent answers nothing.
type network struct {
	message time.Duration
	lose    func(r *http.Request, res *http.Response) bool // whether an answer is lost; nil if none is
	mu      sync.Mutex
	hosts   map[string]*host
}

type host struct {
	http.Handler
	up       context.Context
	kill     context.CancelFunc
	silent   atomic.Bool
	requests atomic.Int64
}

func newNetwork() *network { return &network{message: message, hosts: make(map[string]*host)} }

func (n *network) serve(name string, h http.Handler) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	up, kill := context.WithCancel(context.Background())
	n.hosts[name] = &host{Handler: h, up: up, kill: kill}
	return n.hosts[name]
}

// set changes the network while it is used.
func (n *network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	h, message := n.hosts[r.URL.Host], n.message
	n.mu.Unlock()
	if h == nil || h.up.Err() != nil {
		time.Sleep(message)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	h.requests.Add(1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.up, cancel)()
	silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	time.Sleep(message / 2)
	var serve http.Handler = h
	if h.silent.Load() {
		serve = silent
	}
	res, err := fakes3.Transport{Handler: serve}.RoundTrip(r.WithContext(ctx))
	switch {
	case r.Context().Err() != nil:
		return nil, r.Context().Err()
	case h.silent.Load():
		<-ctx.Done()
		return nil, r.Context().Err()
	case h.up.Err() != nil:
		return nil, io.EOF
	}
	time.Sleep(message / 2)
	n.mu.Lock()
	lose := n.lose // as it is when the answer comes
	n.mu.Unlock()
	if lose != nil && err == nil && lose(r, res) {
		return nil, io.EOF
	}
	return res, err
}

// access is the way of one process to the store, which counts requests. It says nothing of the
// store below, so locks of different processes do not wake each other.
type access struct {
	*teststore.Store
	down  atomic.Bool
	slow  atomic.Int64 // by how much its answers to writes are late
	heavy atomic.Int64 // by how much its writes reach the store later than its reads
}

func newAccess(s leasehold.Store) *access {
	a := new(access)
	a.Store = teststore.New(s, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if a.down.Load() {
			<-ctx.Done()
			return leasehold.Object{}, ctx.Err()
		}
		time.Sleep(request / 2)
		defer time.Sleep(request / 2)
		if r.Op == teststore.Update {
			time.Sleep(time.Duration(a.heavy.Load()))
			defer func() { time.Sleep(time.Duration(a.slow.Load())) }()
		}
		return r.Send(ctx)
	})
	a.Info = leasehold.StoreInfo{MinTTL: time.Millisecond, Conditional: true}
	return a
}

// world is some processes that elect a leader.
type world struct {
	t     *testing.T
	store leasehold.Store
	net   *network
	led   chan *process // each that begins to lead
	all   []*process
}

func newWorld(t *testing.T) *world {
	return &world{t: t, store: leasehold.NewMemStore(), net: newNetwork(), led: make(chan *process, 100)}
}

// inWorld runs a test in virtual time, in a world of its own.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.end()
		f(t, w)
	})
}

type process struct {
	*leasehold.Elector
	name    string
	store   *access
	peer    *leaderhttp.Peer
	forward http.Handler // in front of an app that sends the body back
	runs    sync.Map     // of that app, by the path
	host    *host
	lease   atomic.Pointer[leasehold.Lease]
	seen    atomic.Uint64 // the last token
	stop    context.CancelFunc
	ended   chan error
}

// start starts a process whose URL is that of name. With polling, it has no peer.
func (w *world) start(name string, polling bool, opts ...leasehold.Option) *process {
	w.t.Helper()
	return w.startWith(name, polling, nil, opts...)
}

func (w *world) startWith(name string, polling bool, of []leaderhttp.Option, opts ...leasehold.Option) *process {
	w.t.Helper()
	p := &process{name: name, store: newAccess(w.store), ended: make(chan error, 1)}
	lock, err := leasehold.NewLock(p.store, key, append([]leasehold.Option{
		leasehold.WithTTL(ttl), leasehold.WithHolder(name), testopt.NewProcess(),
		leasehold.WithMetadata(map[string]string{
			leaderhttp.URLKey: "http://" + name, leaderhttp.PublicURLKey: "https://example.org/" + name + "/",
		}),
	}, opts...)...)
	require.NoError(w.t, err)
	p.peer, err = leaderhttp.New(lock, append([]leaderhttp.Option{
		leaderhttp.WithClient(&http.Client{Transport: w.net}),
		leaderhttp.WithAllowedHosts(func(host string) bool { return !strings.HasPrefix(host, "169.254.") }),
	}, of...)...)
	require.NoError(w.t, err)
	callbacks := leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
			p.lease.Store(lease)
			w.led <- p
			<-ctx.Done()
		},
		OnNewLeader: func(r leasehold.Record) { p.seen.Store(r.Token) },
	}
	if !polling {
		callbacks = p.peer.Callbacks(callbacks)
	}
	p.Elector, err = leasehold.NewElector(lock, callbacks)
	require.NoError(w.t, err)
	mux := http.NewServeMux()
	mux.Handle(leaderhttp.Path, p.peer)
	p.forward = p.peer.Forward(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, again := p.runs.LoadOrStore(r.URL.Path, true); again {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.Copy(w, r.Body)
	}))
	mux.Handle("/", p.forward)
	p.host = w.net.serve(name, mux)
	ctx, cancel := context.WithCancel(w.t.Context())
	p.stop = cancel
	go func() { p.ended <- p.Run(ctx) }()
	w.all = append(w.all, p)
	return p
}

// lead starts a process while nobody else leads, and waits until it does.
func (w *world) lead(name string, opts ...leasehold.Option) *process {
	w.t.Helper()
	p := w.start(name, false, opts...)
	require.Same(w.t, p, w.next())
	return p
}

// follow starts a process while another leads. A minute later it is old enough to be chosen.
func (w *world) follow(name string, opts ...leasehold.Option) *process {
	w.t.Helper()
	p := w.start(name, false, opts...)
	time.Sleep(time.Minute)
	return p
}

// leave stops a process and waits until its elector has ended. Its peer goes on.
func (p *process) leave() {
	p.stop()
	<-p.ended
	p.ended <- nil
}

// kill ends a process as kill -9 does: its connections break, and it writes no more.
func (p *process) kill() {
	p.store.down.Store(true)
	p.host.kill()
}

// requests counts those of all processes to the store.
func (w *world) requests() (n int) {
	for _, p := range w.all {
		n += p.store.Sent()
	}
	return n
}

// end stops all.
func (w *world) end() {
	for _, p := range w.all {
		p.stop()
	}
	for _, p := range w.all {
		<-p.ended
		p.peer.Close()
	}
}

// next waits for the next leader.
func (w *world) next() *process {
	w.t.Helper()
	select {
	case p := <-w.led:
		return p
	case <-time.After(10 * ttl):
		require.FailNow(w.t, "nobody leads")
		return nil
	}
}

func quiet() leasehold.Option { return leasehold.WithLogger(slog.New(slog.DiscardHandler)) }

// The next term begins before a resignation returns, and without a peer after a poll.
func TestAHandOverTakesNoPoll(t *testing.T) {
	for _, polling := range []bool{false, true} {
		inWorld(t, func(t *testing.T, w *world) {
			for _, name := range []string{"a", "b", "c"} {
				w.start(name, polling)
			}
			leader := w.next()
			var took []time.Duration
			for range testsize.Pick(30, 300) {
				time.Sleep(2*ttl + time.Duration(len(took))*77*time.Millisecond)
				require.NoError(t, leader.Resign(t.Context()))
				released := time.Now()
				leader = w.next()
				took = append(took, time.Since(released))
			}
			slices.Sort(took)
			t.Logf("polling %v: median %v, longest %v", polling, took[len(took)/2], took[len(took)-1])
			if polling {
				require.Greater(t, took[len(took)/2], 300*time.Millisecond)
			} else {
				require.Zero(t, took[len(took)-1])
			}
		})
	}
}

// Of 32 candidates, few read because of a hand-over, and all of them know the next leader after a
// poll interval and a half.
func TestAHandOverAmongManyCandidates(t *testing.T) {
	for _, poll := range []time.Duration{ttl / 5, ttl} {
		extra := make(map[bool]float64)
		for _, polling := range []bool{true, false} {
			inWorld(t, func(t *testing.T, w *world) {
				for i := range 33 {
					w.start(fmt.Sprint("p", i), polling, leasehold.WithPollInterval(poll))
				}
				leader := w.next()
				time.Sleep(4 * ttl)
				count := func() (n int) {
					for _, p := range w.all {
						n += p.store.Sent(teststore.Get)
					}
					return n
				}
				const handOvers = 40
				began, before := time.Now(), count()
				for i := range handOvers {
					// The former leader rests for two poll intervals.
					time.Sleep(4*poll + time.Duration(i)*77*time.Millisecond)
					for _, p := range w.all {
						require.Equal(t, leader.lease.Load().Token(), p.seen.Load())
					}
					require.NoError(t, leader.Resign(t.Context()))
					released := time.Now()
					leader = w.next()
					if !polling {
						require.Zero(t, time.Since(released))
					}
				}
				rate := float64(count()-before) / time.Since(began).Seconds()
				extra[polling] = rate * time.Since(began).Seconds() / handOvers
				t.Logf("poll %v, polling only %v: %.1f reads in a hand-over and the time before it", poll, polling,
					extra[polling])
			})
		}
		// The winner's own read is one of the two requests that a hand-over takes.
		require.LessOrEqual(t, extra[false]-extra[true], 6+1.)
	}
}

// With polls out of the way, what a hand-over costs is counted exactly.
func TestTheReadsOfAHandOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 33 {
			w.start(fmt.Sprint("p", i), false, leasehold.WithTTL(24*time.Hour),
				leasehold.WithPollInterval(24*time.Hour))
		}
		leader := w.next()
		time.Sleep(time.Minute) // all follow
		before := w.requests()
		go func() { _ = leader.Resign(t.Context()) }()
		w.next()
		time.Sleep(3 * time.Second) // the default poll interval
		n := w.requests() - before
		t.Logf("%d requests", n)
		require.LessOrEqual(t, n, 2+4, "a write, the former leader's read, and those in line")
		require.GreaterOrEqual(t, n, 2+3)
	})
}

// Who follows may poll once a TTL: it reads little, and learns of a crash at once.
func TestFollowersMayPollOnceATTL(t *testing.T) {
	for _, silent := range []bool{false, true} {
		inWorld(t, func(t *testing.T, w *world) {
			poll := leasehold.WithPollInterval(ttl)
			leader := w.start("p0", false, poll, quiet())
			var took, reads []float64
			for i := range testsize.Pick(40, 400) {
				require.Same(t, leader, w.next())
				candidate := w.start(fmt.Sprint("p", i+1), false, poll, quiet())
				time.Sleep(4 * ttl)
				before, began := candidate.store.Sent(teststore.Get), time.Now()
				time.Sleep(10*time.Minute + time.Duration(i)*777*time.Millisecond)
				reads = append(reads, float64(candidate.store.Sent(teststore.Get)-before)/time.Since(began).Minutes())
				renewed := leader.lease.Load().Record().RenewedAt
				leader.store.down.Store(true)
				if silent {
					leader.host.silent.Store(true)
				} else {
					leader.kill()
				}
				leader.stop()
				leader = candidate
				for !leader.IsLeader() {
					time.Sleep(10 * time.Millisecond)
				}
				took = append(took, time.Since(renewed).Seconds()/ttl.Seconds())
			}
			slices.Sort(took)
			slices.Sort(reads)
			require.LessOrEqual(t, reads[len(reads)/2], 4.5, "reads a minute")
			p99 := took[len(took)*99/100]
			t.Logf("silent %v: %.2f TTL, %.2f at 99 %%, longest %.2f; reads a minute %.2f", silent,
				took[len(took)/2], p99, took[len(took)-1], reads[len(reads)/2])
			if silent {
				// A poll that has just missed the last renewal, the next one with its jitter, and
				// from there a TTL with its drift and the spread of the last read.
				require.LessOrEqual(t, took[len(took)-1], 1.1+1.02+1./50+0.01)
				require.Greater(t, p99, 1.4)
			} else {
				// A renew interval, a TTL and its drift, and the spreads of two reads.
				require.LessOrEqual(t, took[len(took)-1], 1./3+1.02+1./150+1./50+0.01)
			}
		})
	}
}

// logged is a logger that keeps its lines. It becomes slog.Default.
func logged(t *testing.T) func() string {
	lines := new(testlog.Buffer)
	testlog.Default(t, lines)
	return lines.Take
}
