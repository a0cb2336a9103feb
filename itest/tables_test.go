package itest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

func openTable(store leasehold.Store, member string, log slog.Handler) (*locktable.Table, error) {
	return locktable.New(store, tableKey, locktable.WithMemberName(member), locktable.WithTTL(tableTTL),
		locktable.WithPollInterval(tableTTL/10), locktable.WithLogger(slog.New(log)))
}

// asTableMember is the test binary's main function when it runs as a separate member of a table. It
// wants all locks until it is told to end, and writes a diary. What it prints is for people, when
// the test has failed.
func asTableMember() {
	table, err := openTable(storeFromEnv(), os.Getenv("TABLE_MEMBER"), slog.NewTextHandler(os.Stdout, nil))
	fatal(err)
	go func() {
		for said := "<nil>"; ; time.Sleep(tableTTL / 4) {
			if says := fmt.Sprint(table.Check(nil)); says != said {
				slog.Info("Check", "says", says)
				said = says
			}
		}
	}()
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

// reader reads a diary as it grows, each line once: the machine has enough to do.
type reader struct {
	member, file string
	read         int64               // bytes
	open         map[string]*holding // by lock
	at           int64
	all          []*holding
}

func (r *reader) follow(t *testing.T) {
	t.Helper()
	f, err := os.Open(r.file)
	if os.IsNotExist(err) {
		return
	}
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Seek(r.read, io.SeekStart)
	require.NoError(t, err)
	body, err := io.ReadAll(f)
	require.NoError(t, err)
	body = body[:bytes.LastIndexByte(body, '\n')+1] // the last line may still be written, or never be
	r.read += int64(len(body))
	for line := range strings.Lines(string(body)) {
		require.NoError(t, r.take(line), "%s: %s", r.member, line)
	}
	for _, h := range r.open {
		h.to = r.at
	}
}

func (r *reader) take(line string) (err error) {
	h := &holding{member: r.member, goes: true}
	what, rest, _ := strings.Cut(line, " ")
	switch what {
	case "begin":
		_, err = fmt.Sscan(rest, &h.lock, &h.token, &h.from)
		if r.open[h.lock] != nil {
			return errors.New("it has that lock already")
		}
		r.open[h.lock] = h
		r.all = append(r.all, h)
	case "end":
		_, err = fmt.Sscan(rest, &h.lock, &h.token)
		was := r.open[h.lock]
		if was == nil || was.token != h.token {
			return fmt.Errorf("it has another lease: %+v", was)
		}
		was.to, was.goes = r.at, false
		delete(r.open, h.lock)
	case "at":
		_, err = fmt.Sscan(rest, &r.at)
	default:
		return errors.New("this is no line of a diary")
	}
	return err
}

// crew is the processes that share a table.
type crew struct {
	t       *testing.T
	server  testserver.S3
	bucket  string
	dir     string
	watcher *locktable.Table // which is no member
	started []*memberProcess
	stayed  []string // members that could not leave
}

// memberProcess is one of them.
type memberProcess struct {
	*exec.Cmd
	name    string
	network *network
	diary   *reader
	output  string       // the name of a file
	waits   func() error // for its end
}

func (c *crew) start(name string) *memberProcess {
	c.t.Helper()
	file := filepath.Join(c.dir, fmt.Sprintf("%s-%d", name, len(c.started)))
	p := &memberProcess{
		Cmd: exec.CommandContext(c.t.Context(), os.Args[0], "-test.run=^$"), name: name,
		network: newNetwork(c.t, c.server), output: file + ".out",
		diary: &reader{member: name, file: file, open: make(map[string]*holding)},
	}
	p.waits = sync.OnceValue(p.Wait)
	server := c.server
	server.Endpoint = p.network.URL()
	p.Env = append(holderEnv(server, c.bucket), "TABLE_MEMBER="+name, "TABLE_LOG="+file)
	output, err := os.Create(p.output)
	require.NoError(c.t, err)
	defer output.Close()
	p.Stdout, p.Stderr = output, output
	require.NoError(c.t, p.Start())
	c.t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.waits() // killed, if it had not ended
	})
	c.started = append(c.started, p)
	return p
}

func (p *memberProcess) says() string {
	text, err := os.ReadFile(p.output)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-8<<10):])
}

// end ends a member gracefully. If the server does not answer in time, the member cannot leave, and
// says so. The others get its locks all the same.
func (c *crew) end(p *memberProcess) {
	c.t.Helper()
	require.NoError(c.t, p.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- p.waits() }()
	select {
	case err := <-ended:
		if err != nil {
			require.Regexp(c.t, "\nerror .*(is still in the table|releasing:)", "\n"+p.says())
			c.t.Logf("member %s could not leave: %s", p.name, p.says())
			c.stayed = append(c.stayed, p.name)
		}
	case <-time.After(patience):
		c.t.Fatalf("member %s does not end%s", p.name, c.report())
	}
}

// A machine that is busy gets more time as long as something happens, up to a limit that leaves the
// report time to be written.
const (
	patience = 20 * tableTTL
	limit    = 50 * tableTTL
)

// await waits until that is so. It fails if for a long time what is seen stays as it is.
func (c *crew) await(what string, look func() (is bool, seen string)) {
	c.t.Helper()
	began, before := time.Now(), ""
	for changed := began; ; time.Sleep(100 * time.Millisecond) {
		is, seen := look()
		if is {
			return
		}
		if seen != before {
			changed, before = time.Now(), seen
		}
		if time.Since(changed) > patience || time.Since(began) > limit {
			c.t.Fatalf("not within %v, and %v after the last change: %s: %s%s", time.Since(began).Round(time.Second),
				time.Since(changed).Round(time.Second), what, seen, c.report())
		}
	}
}

// report is what the table and each member say.
func (c *crew) report() string {
	var b strings.Builder
	state, err := c.watcher.Inspect(c.t.Context())
	fmt.Fprintf(&b, "\nThe table at %v: error %v, revision %d, %d bytes, rows %v\n",
		time.Now().Format(time.RFC3339Nano), err, state.Revision, state.Size, rowsOf(state))
	for _, m := range state.Members {
		fmt.Fprintf(&b, "member %s, token %d, renewed at %v: %v\n", m.Name, m.Token, m.Renewed, m.Err)
	}
	for _, p := range c.started {
		fmt.Fprintf(&b, "%s leads %d locks, has had %d leases, and says:\n%s\n", filepath.Base(p.diary.file),
			len(p.diary.open), len(p.diary.all), p.says())
	}
	return b.String()
}

// rowsOf is how many requests each member has in the table, held or waiting.
func rowsOf(state locktable.State) map[string]int {
	rows := make(map[string]int)
	for _, row := range slices.Concat(state.Held, state.Waiting) {
		rows[row.Member]++
	}
	return rows
}

// awaitLed waits until all locks are led by these members, and returns when the last of them began.
// Which of them leads is open, because a member that could not renew in time asks anew, behind the
// others.
func (c *crew) awaitLed(members ...*memberProcess) (last time.Time) {
	c.t.Helper()
	c.await(fmt.Sprintf("all locks are led by %s", namesOf(members)), func() (bool, string) {
		led, leases, began := make(map[string]bool), 0, int64(0)
		for _, p := range members {
			p.diary.follow(c.t)
			leases += len(p.diary.all)
			for lock, h := range p.diary.open {
				led[lock], began = true, max(began, h.from)
			}
		}
		last = time.Unix(0, began)
		return len(led) == tableLocks, fmt.Sprintf("%d are led, after %d leases", len(led), leases)
	})
	return last
}

// awaitRows waits until each of these members has a request in the table for every lock.
func (c *crew) awaitRows(members ...*memberProcess) {
	c.t.Helper()
	c.await(fmt.Sprintf("%s ask for all locks", namesOf(members)), func() (bool, string) {
		state, err := c.watcher.Inspect(c.t.Context())
		if err != nil {
			return false, err.Error()
		}
		rows := rowsOf(state)
		missing := slices.ContainsFunc(members, func(p *memberProcess) bool { return rows[p.name] != tableLocks })
		return !missing, fmt.Sprintf("revision %d has rows %v", state.Revision, rows)
	})
}

func namesOf(members []*memberProcess) string {
	var names []string
	for _, p := range members {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// leader is the one of these members that leads most locks, and the others.
func (c *crew) leader(members []*memberProcess) (first *memberProcess, others []*memberProcess) {
	c.t.Helper()
	for _, p := range members {
		p.diary.follow(c.t)
	}
	first = slices.MaxFunc(members, func(a, b *memberProcess) int { return len(a.diary.open) - len(b.diary.open) })
	return first, slices.DeleteFunc(slices.Clone(members), func(p *memberProcess) bool { return p == first })
}

// check compares the diaries: no two have held a lock at a time, and its tokens rise from one to
// the next.
func (c *crew) check() (leases int) {
	c.t.Helper()
	byLock := make(map[string][]*holding)
	for _, p := range c.started {
		p.diary.follow(c.t)
		leases += len(p.diary.all)
		for _, h := range p.diary.all {
			byLock[h.lock] = append(byLock[h.lock], h)
		}
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

// heals ends a fault, and returns the process that goes on.
type heals func() *memberProcess

// A process with 1,000 locks of one table is killed, stopped or cut off. Two others wait for all of
// them. Afterwards it comes back, and they end, one after the other: whoever leads first.
func TestTableOfAProcess(t *testing.T) {
	eachServer(t, tableOfAProcess)
}

func tableOfAProcess(t *testing.T, server testserver.S3) {
	for name, fault := range map[string]func(t *testing.T, c *crew, p *memberProcess) heals{
		"SIGKILL": func(t *testing.T, c *crew, p *memberProcess) heals {
			require.NoError(t, p.Process.Kill())
			return func() *memberProcess { return c.start(p.name) }
		},
		"SIGSTOP": func(t *testing.T, _ *crew, p *memberProcess) heals {
			require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
			return func() *memberProcess {
				require.NoError(t, p.Process.Signal(syscall.SIGCONT))
				return p
			}
		},
		"partition": func(_ *testing.T, _ *crew, p *memberProcess) heals {
			p.network.cut.Store(true)
			return func() *memberProcess {
				p.network.cut.Store(false)
				return p
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &crew{t: t, server: server, bucket: server.Bucket(t), dir: t.TempDir()}
			var err error
			c.watcher, err = openTable(leasehold.NewS3Store(server.Client(), c.bucket), "watcher", slog.DiscardHandler)
			require.NoError(t, err)
			members := []*memberProcess{c.start("a")}
			c.awaitLed(members...)
			members = append(members, c.start("b"), c.start("c"))
			c.awaitRows(members...)

			first, others := c.leader(members)
			began := time.Now()
			heal := fault(t, c, first)
			t.Logf("%d locks are led again %.2f TTL after the fault of %s", tableLocks,
				c.awaitLed(others...).Sub(began).Seconds()/tableTTL.Seconds(), first.name)
			members = append(others, heal())
			c.awaitRows(members...)
			for len(members) > 1 {
				first, members = c.leader(members)
				began = time.Now()
				c.end(first)
				t.Logf("%d locks are led by others %v after the end of %s began", tableLocks,
					c.awaitLed(members...).Sub(began), first.name)
			}
			c.end(members[0])
			leases := c.check()
			require.GreaterOrEqual(t, leases, 3*tableLocks)
			t.Logf("%d leases of %d locks: no two of one lock at a time, and tokens rise", leases, tableLocks)
			var state locktable.State
			require.Eventually(t, func() bool { // a request has half a second, and the machine may be busy
				var err error
				state, err = c.watcher.Inspect(t.Context())
				return err == nil
			}, 20*tableTTL, tableTTL/10)
			for _, m := range state.Members {
				require.Contains(t, c.stayed, m.Name)
			}
			for member := range rowsOf(state) {
				require.Contains(t, c.stayed, member)
			}
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
		table, err := openTable(leasehold.NewS3Store(server.Client(options...), bucket), member,
			slog.DiscardHandler)
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
