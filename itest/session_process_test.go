package itest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testserver"
	"github.com/leasehold-go/leasehold/itest"
)

// A process holds a thousand locks under one session until something happens to it, and two others want them all. Every process prints
// when it has got a lock and until when it could act under it, by the clock that all processes of the machine share.

const (
	workerLocks = 1000
	workerTTL   = 10 * time.Second
)

// mono reads CLOCK_MONOTONIC.
func mono() time.Duration {
	var ts unix.Timespec
	fatal(unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	return time.Duration(ts.Nano())
}

// guarded is a lease that a worker acts under.
type guarded struct {
	lock        int
	lease       *leasehold.Lease
	ctx         context.Context // under which it acts
	valid, live time.Duration   // just before the last look that found the lease valid, or its context not ended
}

// asSessionWorker is a worker in a separate process. It leads each lock until its lease ends, and then wants it again. When it reads a
// line, it ends its session and exits. It prints:
//
//	session <token>                    it holds its session
//	seen                               it has seen a leader of every lock
//	unknown <lock>                     a write may or may not have landed
//	led <lock> <token> <time>          it has begun to lead
//	over <lock> <token> <time> <time>  the lease was last valid, and its context had last not ended
//	end <error>                        its session has ended
func asSessionWorker() {
	server, name := serverFromEnv(), os.Getenv("SESSION_WORKER")
	key := "sessions/" + name
	var seen atomic.Int64
	session, err := leasehold.NewSession(leasehold.NewS3Store(server.Client(), os.Getenv("HOLDER_BUCKET")), key,
		leasehold.WithIdentity(name), leasehold.WithTTL(workerTTL), leasehold.WithLogger(nil), leasehold.WithObserver(func(e leasehold.Event) {
			switch {
			case e.Key != key && e.Kind == leasehold.EventRequest && e.Op != "get" && e.Err != nil && e.Outcome() != "precondition_failed":
				fmt.Println("unknown", strings.TrimPrefix(e.Key, "locks/"))
			case e.Key == key && e.Kind == leasehold.EventAcquired:
				fmt.Println("session", e.Token)
			case e.Key != key && e.Kind == leasehold.EventNewLeader && e.Token == 1 && seen.Add(1) == workerLocks:
				fmt.Println("seen")
			}
		}))
	fatal(err)
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // also at the end of the parent
		end()
	}()
	want, unwant := context.WithCancel(context.Background())
	begun := make(chan *guarded, workerLocks)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watchLeases(begun)
	}()
	var leading sync.WaitGroup
	for i := range workerLocks {
		lock, err := session.Lock(fmt.Sprint("locks/", i))
		fatal(err)
		leading.Go(func() {
			for want.Err() == nil {
				_ = lock.Do(want, func(ctx context.Context, lease *leasehold.Lease) error {
					fmt.Println("led", i, lease.Token(), int64(mono()))
					begun <- &guarded{lock: i, lease: lease, ctx: lease.Context()}
					<-ctx.Done()
					return nil
				})
			}
		})
	}
	err = session.Run(ctx)
	fmt.Println("end", err)
	unwant()
	leading.Wait()
	close(begun)
	<-watched
}

// watchLeases looks at each lease again and again until it is over.
func watchLeases(begun <-chan *guarded) {
	var all []*guarded
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for begun != nil || len(all) > 0 {
		select {
		case g, ok := <-begun:
			if !ok {
				begun = nil
				continue
			}
			all = append(all, g)
		case <-tick.C:
			all = slices.DeleteFunc(all, func(g *guarded) bool {
				now := mono() // before the looks, so that whoever leads at this time leads beside the others
				live, valid := g.ctx.Err() == nil, g.lease.Valid()
				if live {
					g.live = now
				}
				if valid {
					g.valid = now
				}
				if live || valid {
					return false
				}
				fmt.Println("over", g.lock, g.lease.Token(), int64(g.valid), int64(g.live))
				return true
			})
		}
	}
}

// workerTerm is a term of a lock, as its leader has printed it.
type workerTerm struct {
	worker           *sessionWorker
	token            uint64
	led, valid, live time.Duration
	over             bool // valid and live are known
}

// sessionWorkers is what the parent knows of its workers.
type sessionWorkers struct {
	t       *testing.T
	server  testserver.S3
	bucket  string
	reading sync.WaitGroup
	mu      sync.Mutex                // guards what follows, and the workers
	terms   [workerLocks][]workerTerm // by lock, in the order in which they were read
	unknown [workerLocks]int          // writes that may or may not have landed
}

type sessionWorker struct {
	name    string
	cmd     *exec.Cmd
	in      io.Writer
	session uint64 // token of its last term
	seen    bool   // a leader of every lock
	killed  bool
	stopped bool
}

// start starts a worker, which reaches the server by an endpoint.
func (w *sessionWorkers) start(name, endpoint string) *sessionWorker {
	w.t.Helper()
	server := w.server
	server.Endpoint = endpoint
	worker := &sessionWorker{name: name, cmd: exec.CommandContext(w.t.Context(), os.Args[0], "-test.run=^$")}
	worker.cmd.Env = append(holderEnv(server, w.bucket), "SESSION_WORKER="+name)
	worker.cmd.Stderr = os.Stderr
	in, err := worker.cmd.StdinPipe()
	require.NoError(w.t, err)
	out, err := worker.cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, worker.cmd.Start())
	worker.in = in
	w.reading.Go(func() { w.read(worker, out) })
	return worker
}

func (w *sessionWorkers) read(worker *sessionWorker, out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var lock int
		var token uint64
		var at, live time.Duration
		line := lines.Text()
		w.mu.Lock()
		switch what, _, _ := strings.Cut(line, " "); what {
		case "session":
			_, _ = fmt.Sscan(line, &what, &worker.session)
		case "seen":
			worker.seen = true
		case "unknown":
			_, err := fmt.Sscan(line, &what, &lock)
			if assertNoError(w.t, err) {
				w.unknown[lock]++
			}
		case "led":
			_, err := fmt.Sscan(line, &what, &lock, &token, &at)
			if assertNoError(w.t, err) {
				w.terms[lock] = append(w.terms[lock], workerTerm{worker: worker, token: token, led: at})
			}
		case "over":
			_, err := fmt.Sscan(line, &what, &lock, &token, &at, &live)
			if assertNoError(w.t, err) {
				i := slices.IndexFunc(w.terms[lock], func(term workerTerm) bool { return term.worker == worker && term.token == token })
				term := &w.terms[lock][i]
				term.valid, term.live, term.over = at, live, true
			}
		case "end":
			if line != "end <nil>" {
				w.t.Errorf("worker %s: %s", worker.name, line)
			}
		default:
			w.t.Errorf("worker %s: %s", worker.name, line)
		}
		w.mu.Unlock()
	}
}

// eventually waits for what the workers print.
func (w *sessionWorkers) eventually(what string, is func() bool) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return is()
	}, 2*time.Minute, 5*time.Millisecond, what)
}

// led waits until every lock was led by one of these workers, and returns when they began to lead, in order.
func (w *sessionWorkers) led(by ...*sessionWorker) (at []time.Duration) {
	w.t.Helper()
	w.eventually("each lock is led", func() bool {
		at = at[:0]
		for _, terms := range w.terms {
			i := slices.IndexFunc(terms, func(term workerTerm) bool { return slices.Contains(by, term.worker) })
			if i < 0 {
				return false
			}
			at = append(at, terms[i].led)
		}
		return true
	})
	slices.Sort(at)
	return at
}

// stop ends a worker's session and waits for its end.
func (w *sessionWorkers) stop(worker *sessionWorker) {
	w.t.Helper()
	worker.stopped = true
	_, err := io.WriteString(worker.in, "\n")
	require.NoError(w.t, err)
}

func TestProcessWithAThousandLocks(t *testing.T) {
	const (
		up = iota
		cut
		deaf // requests arrive, but no replies
	)
	for _, c := range []struct {
		name  string
		do    func(t *testing.T, w *sessionWorkers, victim *sessionWorker, network *atomic.Int32)
		heal  func(t *testing.T, victim *sessionWorker, network *atomic.Int32) // nil: it is gone
		sleep bool                                                             // contexts cannot end in time, because the process does not run
	}{
		{name: "SIGKILL", do: func(t *testing.T, _ *sessionWorkers, victim *sessionWorker, _ *atomic.Int32) {
			victim.killed = true
			require.NoError(t, victim.cmd.Process.Kill())
		}},
		{name: "SIGSTOP", sleep: true, do: func(t *testing.T, _ *sessionWorkers, victim *sessionWorker, _ *atomic.Int32) {
			require.NoError(t, victim.cmd.Process.Signal(syscall.SIGSTOP))
			_, err := syscall.Wait4(victim.cmd.Process.Pid, nil, syscall.WUNTRACED, nil) // on a busy machine it runs on for a while
			require.NoError(t, err)
		}, heal: func(t *testing.T, victim *sessionWorker, _ *atomic.Int32) {
			require.NoError(t, victim.cmd.Process.Signal(syscall.SIGCONT))
		}},
		{name: "partition", do: func(_ *testing.T, _ *sessionWorkers, _ *sessionWorker, network *atomic.Int32) { network.Store(cut) },
			heal: func(_ *testing.T, _ *sessionWorker, network *atomic.Int32) { network.Store(up) }},
		{name: "replies lost", do: func(_ *testing.T, _ *sessionWorkers, _ *sessionWorker, network *atomic.Int32) { network.Store(deaf) },
			heal: func(_ *testing.T, _ *sessionWorker, network *atomic.Int32) { network.Store(up) }},
		{name: "graceful end", do: func(_ *testing.T, w *sessionWorkers, victim *sessionWorker, _ *atomic.Int32) { w.stop(victim) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := itest.Servers(t)[0]
			var network atomic.Int32
			proxy := faultproxy.Start(t, server.Endpoint, func(*http.Request) faultproxy.Fault {
				switch network.Load() {
				case cut:
					return faultproxy.Fault{Kind: faultproxy.Refuse, Before: time.Minute}
				case deaf:
					return faultproxy.Fault{Kind: faultproxy.DropReply, After: time.Minute}
				}
				return faultproxy.Fault{}
			})
			w := &sessionWorkers{t: t, server: server, bucket: server.Bucket(t)}
			victim := w.start("victim", proxy.URL())
			first := w.led(victim)
			survivors := []*sessionWorker{w.start("survivor-1", server.Endpoint), w.start("survivor-2", server.Endpoint)}
			w.eventually("both survivors wait", func() bool { return survivors[0].seen && survivors[1].seen })
			time.Sleep(workerTTL / 2) // until they know when renewals come

			puts := proxy.Count("PUT")
			struck := mono()
			c.do(t, w, victim, &network)
			took := w.led(survivors...)
			since := func(i int) float64 { return (took[i] - struck).Seconds() / workerTTL.Seconds() }
			if c.heal != nil {
				c.heal(t, victim, &network)
				w.eventually("the victim knows that it has lost all locks", func() bool {
					return !slices.ContainsFunc(w.terms[:], func(terms []workerTerm) bool { return !terms[0].over })
				})
				w.eventually("the victim holds its session again", func() bool { return victim.session > 1 })
			}
			count := proxy.Count("PUT") - puts
			w.finish(append(survivors, victim))
			second := w.check(struck, c.sleep)
			t.Logf("%d locks, taken within %.2f TTL; led again %.2f TTL after the fault at first, %.2f at the median and %.2f at last; second leaders: %v; "+
				"%d PUTs of the first", workerLocks, (first[workerLocks-1]-first[0]).Seconds()/workerTTL.Seconds(), since(0), since(workerLocks/2),
				since(workerLocks-1), second, count)
		})
	}
}

// finish ends all workers that still run.
func (w *sessionWorkers) finish(workers []*sessionWorker) {
	w.t.Helper()
	for _, worker := range workers {
		if !worker.killed && !worker.stopped {
			w.stop(worker)
		}
	}
	w.reading.Wait()
	for _, worker := range workers {
		if err := worker.cmd.Wait(); !worker.killed {
			require.NoError(w.t, err, worker.name)
		}
	}
}

// check requires that the terms of each lock have the tokens 1 to n, one after the other, and that the lock is free now. A token
// may be missing if the outcome of a write was unknown. It returns how many locks each worker was the second to lead.
func (w *sessionWorkers) check(struck time.Duration, sleep bool) (second map[string]int) {
	w.t.Helper()
	second = make(map[string]int)
	session, err := leasehold.NewSession(leasehold.NewS3Store(w.server.Client(), w.bucket), "sessions/check")
	require.NoError(w.t, err)
	for i, terms := range w.terms {
		slices.SortFunc(terms, func(a, b workerTerm) int { return int(a.token) - int(b.token) })
		last := workerTerm{}
		for n, term := range terms {
			require.Greater(w.t, term.token, last.token, "lock %d: %+v", i, terms)
			require.LessOrEqual(w.t, int(term.token), n+1+w.unknown[i], "lock %d: %+v", i, terms)
			require.Greater(w.t, term.led, last.valid, "lock %d: two leaders: %+v", i, terms)
			if !sleep || n != 1 {
				require.Greater(w.t, term.led, last.live, "lock %d: a context ended too late: %+v", i, terms)
			}
			if !term.over {
				require.True(w.t, term.worker.killed)
				term.valid, term.live = struck, struck
			}
			last = term
		}
		second[terms[1].worker.name]++
		lock, err := session.Lock(fmt.Sprint("locks/", i))
		require.NoError(w.t, err)
		rec, err := lock.Inspect(w.t.Context())
		require.NoError(w.t, err)
		require.GreaterOrEqual(w.t, rec.Token, last.token, "lock %d", i)
		require.LessOrEqual(w.t, int(rec.Token), len(terms)+w.unknown[i], "lock %d", i)
		require.True(w.t, rec.Released(), "lock %d", i)
	}
	return second
}
