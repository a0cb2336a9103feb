package itest_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/locktable"
)

const (
	tableKey   = "tables/all"
	tableLocks = 1000
	// of which a request has a seventh, also on a machine that compiles meanwhile
	tableTTL = 6 * time.Second
)

func openTable(store leasehold.Store, member string) (*locktable.Table, error) {
	return locktable.New(store, tableKey, locktable.WithMemberName(member), locktable.WithTTL(tableTTL),
		locktable.WithPollInterval(tableTTL/10), locktable.WithLogger(slog.New(slog.DiscardHandler)))
}

// asTableMember is the test binary's main function when it runs as a separate member of a table. It
// wants all locks until it is told to end, and writes a log.
func asTableMember() {
	table, err := openTable(storeFromEnv(), os.Getenv("TABLE_MEMBER"))
	fatal(err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log, err := os.OpenFile(os.Getenv("TABLE_LOG"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	fatal(err)
	d := &diary{log: log, leases: make(map[string]*locktable.Lease)}
	go d.write()
	var wanting sync.WaitGroup
	for i := range tableLocks {
		lock := fmt.Sprintf("%03x", i) // short, so that 3,000 requests fit into the table
		wanting.Go(func() {
			for ctx.Err() == nil {
				err := table.Lock(lock).Do(ctx, func(ctx context.Context, lease *locktable.Lease) error {
					d.begin(lock, lease)
					<-ctx.Done()
					return nil
				})
				if err != nil && ctx.Err() == nil { // it was lost, and is wanted again
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	fatal(table.Run(ctx))
	wanting.Wait()
}

// diary is the log of a member. A line "begin lock token time" says that a lease was valid a moment
// before that time. A line "end lock token" says that it was over. A line "at time" says that all
// leases that have begun and not ended were valid a moment after that time. So a lease was valid
// from its own time until that of the last line "at" before its end, also in a process that was
// stopped between any two steps. All processes of a test use the wall clock of one machine.
type diary struct {
	mu     sync.Mutex
	log    *os.File
	leases map[string]*locktable.Lease
}

func (d *diary) begin(lock string, lease *locktable.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !lease.Valid() {
		return
	}
	line := fmt.Sprintln("begin", lock, lease.Token(), time.Now().UnixNano())
	if old := d.leases[lock]; old != nil {
		line = fmt.Sprintln("end", lock, old.Token()) + line
	}
	d.leases[lock] = lease
	d.append(line)
}

func (d *diary) write() {
	for ; ; time.Sleep(20 * time.Millisecond) {
		d.mu.Lock()
		now, lines := time.Now().UnixNano(), strings.Builder{}
		for lock, lease := range d.leases {
			if !lease.Valid() {
				fmt.Fprintln(&lines, "end", lock, lease.Token())
				delete(d.leases, lock)
			}
		}
		fmt.Fprintln(&lines, "at", now)
		d.append(lines.String())
		d.mu.Unlock()
	}
}

func (d *diary) append(lines string) {
	_, err := d.log.WriteString(lines)
	fatal(err)
}

// holding is one lease, as a log tells it.
type holding struct {
	member   string
	lock     string
	token    uint64
	from, to int64 // it was valid all this time; none if to is less
	goes     bool  // on
}

func readDiary(t *testing.T, member, file string) (list []*holding) {
	t.Helper()
	body, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	body = body[:bytes.LastIndexByte(body, '\n')+1] // a process may have been killed while it wrote
	open, at := make(map[string]*holding), int64(0)
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		h := &holding{member: member, goes: true}
		var n int
		switch what, rest, _ := strings.Cut(lines.Text(), " "); what {
		case "begin":
			n, err = fmt.Sscan(rest, &h.lock, &h.token, &h.from)
			require.Equal(t, 3, n, "%s: %v", lines.Text(), err)
			require.NotContains(t, open, h.lock, "%s: %s", member, lines.Text())
			open[h.lock] = h
			list = append(list, h)
		case "end":
			n, err = fmt.Sscan(rest, &h.lock, &h.token)
			require.Equal(t, 2, n, "%s: %v", lines.Text(), err)
			require.Contains(t, open, h.lock, "%s: %s", member, lines.Text())
			require.Equal(t, h.token, open[h.lock].token)
			open[h.lock].to, open[h.lock].goes = at, false
			delete(open, h.lock)
		case "at":
			_, err = fmt.Sscan(rest, &at)
			require.NoError(t, err)
		default:
			require.Fail(t, "no line of a log", lines.Text())
		}
	}
	for _, h := range open {
		h.to = at
	}
	return list
}

// crew is the processes that share a table, and their logs.
type crew struct {
	t       *testing.T
	dir     string
	members []string
	watcher *locktable.Table // which is no member
}

// memberProcess is one of them.
type memberProcess struct {
	*exec.Cmd
	name  string
	waits func() error // for its end
	says  bytes.Buffer // on standard error; to be read after its end
}

// start starts a member that reaches the server at the endpoint.
func (c *crew) start(name string, server testserver.S3, bucket, endpoint string) *memberProcess {
	c.t.Helper()
	server.Endpoint = endpoint
	cmd := exec.CommandContext(c.t.Context(), os.Args[0], "-test.run=^$")
	file := fmt.Sprintf("%s-%d", name, len(c.members))
	cmd.Env = append(holderEnv(server, bucket), "TABLE_MEMBER="+name, "TABLE_LOG="+filepath.Join(c.dir, file))
	p := &memberProcess{Cmd: cmd, name: name, waits: sync.OnceValue(cmd.Wait)}
	cmd.Stdout, cmd.Stderr = os.Stderr, &p.says
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = p.waits() // killed, if it had not ended
	})
	c.members = append(c.members, file)
	return p
}

// end ends a member gracefully.
func (c *crew) end(p *memberProcess) {
	c.t.Helper()
	require.NoError(c.t, p.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- p.waits() }()
	require.NoError(c.t, receive(c.t, ended, "member "+p.name+" ends"), "%s", &p.says)
}

func (c *crew) holdings() (all []*holding) {
	for _, file := range c.members {
		member, _, _ := strings.Cut(file, "-")
		all = append(all, readDiary(c.t, member, filepath.Join(c.dir, file))...)
	}
	return all
}

// poll waits until that is so.
func (c *crew) poll(what string, is func() bool) {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		require.True(c.t, time.Now().Before(end), "not within two minutes: %s", what)
	}
}

// awaitHolders waits until all locks have been led since a time by these members, and returns when
// the last of them began.
func (c *crew) awaitHolders(since time.Time, members ...string) (last time.Time) {
	c.t.Helper()
	c.poll(fmt.Sprintf("all locks are led by %q", members), func() bool {
		led := make(map[string]bool)
		last = since
		for _, h := range c.holdings() {
			from := time.Unix(0, h.from)
			if h.goes && slices.Contains(members, h.member) && from.After(since) && !led[h.lock] {
				led[h.lock] = true
				if from.After(last) {
					last = from
				}
			}
		}
		return len(led) == tableLocks
	})
	return last
}

// awaitWaiting waits until a member has a request in line for every lock.
func (c *crew) awaitWaiting(member string) {
	c.t.Helper()
	c.poll(member+" waits for all locks", func() bool {
		state, err := c.watcher.Inspect(c.t.Context())
		if err != nil {
			return false
		}
		n := 0
		for _, row := range state.Waiting {
			if row.Member == member {
				n++
			}
		}
		return n == tableLocks
	})
}

// check compares the logs: no two have held a lock at a time, and its tokens rise from one to the
// next.
func (c *crew) check() (leases int) {
	c.t.Helper()
	byLock := make(map[string][]*holding)
	for _, h := range c.holdings() {
		byLock[h.lock] = append(byLock[h.lock], h)
		leases++
	}
	require.Len(c.t, byLock, tableLocks)
	var wrong []string
	for _, lock := range slices.Sorted(maps.Keys(byLock)) {
		list := byLock[lock]
		slices.SortStableFunc(list, func(a, b *holding) int { return int(int64(a.token) - int64(b.token)) })
		for i, h := range list[1:] {
			before := list[i]
			if before.token == h.token || h.from <= before.to && h.to >= h.from {
				wrong = append(wrong, fmt.Sprintf("lock %s: %+v and %+v", lock, *before, *h))
			}
		}
	}
	require.Empty(c.t, wrong[:min(len(wrong), 10)], "%d times, two have held a lock", len(wrong))
	return leases
}

// network is the way of one member to the server. When it is cut, what the member sends is not
// answered any more, and its writes arrive late, when others may have taken over.
type network struct {
	*faultproxy.Proxy
	cut atomic.Bool
}

func newNetwork(t *testing.T, server testserver.S3) *network {
	n := &network{}
	n.Proxy = faultproxy.Start(t, server.Endpoint, func(r *http.Request) faultproxy.Fault {
		switch {
		case !n.cut.Load():
			return faultproxy.Fault{}
		case r.Method == http.MethodGet:
			return faultproxy.Fault{Kind: faultproxy.Refuse, Before: time.Minute}
		default:
			return faultproxy.Fault{Kind: faultproxy.Ghost, Before: tableTTL * 5 / 4}
		}
	})
	return n
}

// heals ends a fault.
type heals func() *memberProcess

// A process with 1,000 locks of one table is killed, stopped or cut off. Two others wait for all of
// them. Afterwards it comes back, and the others end, one after the other.
func TestTableOfAProcess(t *testing.T) {
	eachServer(t, tableOfAProcess)
}

func tableOfAProcess(t *testing.T, server testserver.S3) {
	// Each fault returns what ends it, and with it the first member as it goes on.
	faults := map[string]func(t *testing.T, a *memberProcess, n *network, restart func() *memberProcess) (heal heals){
		"SIGKILL": func(t *testing.T, a *memberProcess, _ *network, restart func() *memberProcess) heals {
			require.NoError(t, a.Process.Kill())
			return restart
		},
		"SIGSTOP": func(t *testing.T, a *memberProcess, _ *network, _ func() *memberProcess) heals {
			require.NoError(t, a.Process.Signal(syscall.SIGSTOP))
			return func() *memberProcess {
				require.NoError(t, a.Process.Signal(syscall.SIGCONT))
				return a
			}
		},
		"partition": func(_ *testing.T, a *memberProcess, n *network, _ func() *memberProcess) heals {
			n.cut.Store(true)
			return func() *memberProcess {
				n.cut.Store(false)
				return a
			}
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bucket := server.Bucket(t)
			store := leasehold.NewS3Store(server.Client(), bucket)
			watcher, err := openTable(store, "watcher")
			require.NoError(t, err)
			c := &crew{t: t, dir: t.TempDir(), watcher: watcher}
			n := newNetwork(t, server)
			startA := func() *memberProcess { return c.start("a", server, bucket, n.URL()) }
			a := startA()
			c.awaitHolders(time.Time{}, "a")
			b := c.start("b", server, bucket, server.Endpoint)
			cc := c.start("c", server, bucket, server.Endpoint)
			c.awaitWaiting("b")
			c.awaitWaiting("c")

			began := time.Now()
			heal := fault(t, a, n, startA)
			led := c.awaitHolders(began, "b", "c")
			t.Logf("%d locks are led again %.2f TTL after the fault", tableLocks,
				led.Sub(began).Seconds()/tableTTL.Seconds())
			a = heal()
			c.awaitWaiting("a")
			began = time.Now()
			c.end(b)
			c.awaitHolders(time.Time{}, "c")
			t.Logf("%d locks are led by one %v after the end of another began", tableLocks, time.Since(began))
			c.end(cc)
			c.awaitHolders(began, "a")
			c.end(a)
			leases := c.check()
			require.GreaterOrEqual(t, leases, 3*tableLocks)
			t.Logf("%d leases of %d locks: no two of one lock at a time, and tokens rise", leases, tableLocks)
			state, err := watcher.Inspect(t.Context())
			require.NoError(t, err)
			require.Empty(t, state.Members)
			require.Empty(t, state.Held)
			require.Empty(t, state.Waiting)
		})
	}
}

// heldBack is a connection whose DELETEs arrive only when the test lets them, and then nobody waits
// for them any more.
type heldBack struct {
	http.RoundTripper
	let    chan struct{}
	landed chan int // their status
}

func (h *heldBack) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodDelete {
		return h.RoundTripper.RoundTrip(r)
	}
	late := r.Clone(context.WithoutCancel(r.Context()))
	go func() {
		<-h.let
		resp, err := h.RoundTripper.RoundTrip(late)
		if err != nil {
			h.landed <- 0
			return
		}
		_ = resp.Body.Close()
		h.landed <- resp.StatusCode
	}()
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A process of a table leaves, and the DELETE of its member's object is held back in the network.
// It arrives when a second process of the same member name holds a lock. On a server that ignores
// the condition it removes the object of that living member, which must cost it its term at most:
// who waits for the lock gets it only when that lease is over.
func TestHeldBackDeleteOfAMember(t *testing.T) { eachServer(t, heldBackDelete) }

func heldBackDelete(t *testing.T, server testserver.S3) {
	bucket := server.Bucket(t)
	join := func(member string, options ...func(*s3.Options)) (*locktable.Table, func()) {
		table, err := openTable(leasehold.NewS3Store(server.Client(options...), bucket), member)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		ran := make(chan error, 1)
		go func() { ran <- table.Run(ctx) }()
		stop := sync.OnceFunc(func() {
			cancel()
			assertNoError(t, receive(t, ran, member+" ends"))
		})
		t.Cleanup(stop)
		return table, stop
	}
	acquire := func(table *locktable.Table) *locktable.Lease {
		lease, err := table.Lock("x").Acquire(minute(t))
		require.NoError(t, err)
		return lease
	}
	release := func(lease *locktable.Lease) {
		// Meanwhile the server may stand still for so long that the lease is lost.
		if err := lease.Release(minute(t)); !errors.Is(err, leasehold.ErrLost) {
			require.NoError(t, err)
		}
	}
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	held := &heldBack{base, make(chan struct{}), make(chan int, 8)}
	first, stop := join("pod", func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: held} })
	one := acquire(first)
	stop()
	require.False(t, one.Valid())

	second, _ := join("pod")
	two := acquire(second)
	require.Greater(t, two.Token(), one.Token())
	other, _ := join("other")
	next := make(chan *locktable.Lease, 1)
	go func() {
		lease, err := other.Lock("x").Acquire(minute(t))
		assertNoError(t, err)
		next <- lease
	}()
	require.Eventually(t, func() bool {
		state, err := other.Inspect(t.Context())
		return err == nil && len(state.Waiting) == 1
	}, time.Minute, 10*time.Millisecond)

	began := time.Now()
	close(held.let)
	status := receive(t, held.landed, "the DELETE lands")
	var three *locktable.Lease
	select {
	case three = <-next:
		require.False(t, two.Valid(), "two hold the lock")
		t.Logf("the DELETE was answered with %d; the member has lost its lease, and the next began after %.2f TTL",
			status, time.Since(began).Seconds()/tableTTL.Seconds())
	case <-time.After(3 * tableTTL):
		t.Logf("the DELETE was answered with %d; the member still has its lease: %v", status, two.Valid())
		release(two)
		three = receive(t, next, "the next has the lock")
	}
	require.NotNil(t, three)
	require.Greater(t, three.Token(), two.Token())
	release(three)
	four := acquire(second)
	require.Greater(t, four.Token(), three.Token())
	release(four)
	for _, table := range []*locktable.Table{second, other} { // the server may stand still for a while
		require.Eventually(t, func() bool { return table.Check(nil) == nil }, time.Minute, 10*time.Millisecond)
	}
}
