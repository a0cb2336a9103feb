package itest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testserver"
	"github.com/leasehold-go/leasehold/itest"
	"github.com/leasehold-go/leasehold/shards"
)

// Five processes divide shards, and one after the other is killed, stopped, cut off or restarted. Each reaches the server through a
// proxy of its own. Each prints when a handler begins and until when it could act, by the clock that all processes share. And each
// handler writes to a resource that fences, so that two owners at once show there, too, whatever the clocks say.

const (
	memberCount  = 5
	memberShards = 256
	memberTTL    = 5 * time.Second // a request has a sixth of it, which a busy machine keeps
	memberPoll   = memberTTL / 5
	memberMoves  = 1000 // at least so many shards change their owner
)

// asShardMember is a member of a group in a separate process, until SIGTERM. It prints:
//
//	led <shard> <token> <time>                a handler has begun
//	over <shard> <token> <time> <time>        the lease was last valid, and the handler's context had last not ended
//	refused <shard> <token> <live> <lost>     the resource has refused a write; how the context and the lease were after that
//	lost <why>                                it has lost its session
//	end <error>                               it has left
func asShardMember() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the end of the parent
		os.Exit(1)
	}()
	resource := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: memberShards}}
	write := func(ctx context.Context, s shards.Shard) {
		resp, err := resource.Post(fmt.Sprintf("%s/%d/%d", os.Getenv("SHARD_RESOURCE"), s.Number, s.Token()), "", nil)
		fatal(err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			live, lease := ctx.Err() == nil, s.Lease()
			if !lease.Valid() {
				<-lease.Context().Done() // it ends now
			}
			fmt.Println("refused", s.Number, s.Token(), live, errors.Is(context.Cause(lease.Context()), leasehold.ErrLost))
		}
	}
	begun := make(chan *guarded, memberShards)
	handle := func(ctx context.Context, s shards.Shard) error {
		fmt.Println("led", s.Number, s.Token(), int64(mono()))
		begun <- &guarded{lock: s.Number, lease: s.Lease(), ctx: ctx}
		tick := time.NewTicker(memberTTL / 2)
		defer tick.Stop()
		for ctx.Err() == nil {
			write(ctx, s)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		if s.Number%16 == 0 { // it takes its time, and nobody else may own the shard meanwhile
			time.Sleep(memberPoll)
		}
		write(ctx, s)
		return nil
	}
	server, name := serverFromEnv(), os.Getenv("SHARD_MEMBER")
	group, err := shards.New(leasehold.NewS3Store(server.Client(), os.Getenv("HOLDER_BUCKET")), "g", shards.Count(memberShards), handle,
		shards.WithMember(name), shards.WithTTL(memberTTL), shards.WithPollInterval(memberPoll), shards.WithLogger(nil),
		shards.WithLockOptions(leasehold.WithObserver(func(e leasehold.Event) {
			if e.Kind == leasehold.EventLost && e.Key == "g/members/"+name {
				fmt.Println("lost", e.Outcome())
			}
		})))
	fatal(err)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watchLeases(begun)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err = group.Run(ctx)
	close(begun)
	<-watched
	fmt.Println("end", err)
}

// shardFleet is what the parent knows of the members.
type shardFleet struct {
	t        *testing.T
	server   testserver.S3
	bucket   string
	resource *httptest.Server
	writes   atomic.Int64 // to the resource
	refused  atomic.Int64 // of these
	seats    []*shardSeat

	mu       sync.Mutex                        // guards what follows, and the processes
	terms    [memberShards][]*shardTerm        // by token
	acquired [memberShards]map[uint64][]string // by token: the members whose acquisition has landed
	overlaps []string                          // what shows that two members could act at once
}

// shardSeat is a member, which may run in one process after another.
type shardSeat struct {
	name    string
	proxy   *httptest.Server
	cut     atomic.Bool // nothing gets through
	process *shardProcess
}

type shardProcess struct {
	seat    *shardSeat
	cmd     *exec.Cmd
	killed  time.Duration // just before SIGKILL; 0 if there was none
	stopped time.Duration // just after the last SIGSTOP; 0 if there was none
	resumed time.Duration // just before the last SIGCONT
	exited  chan struct{}
	err     error // of its exit
}

// shardTerm is an ownership, as its owner has printed it.
type shardTerm struct {
	owner            *shardProcess
	token            uint64
	led, valid, live time.Duration
	over             bool // valid and live are known
	slept            bool // its context could not end in time, because the process did not run
}

// late reports whether the context of the term may live at a time that is too late: shortly after its process was stopped.
func (term *shardTerm) late(at time.Duration) bool {
	return term.slept && at < term.owner.resumed+memberTTL
}

func startShardFleet(t *testing.T) *shardFleet {
	t.Helper()
	f := &shardFleet{t: t, server: itest.Servers(t)[0]}
	f.bucket = f.server.Bucket(t)
	var fences [memberShards]fenced.Fence
	f.resource = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var shard int
		var token uint64
		_, err := fmt.Sscanf(r.URL.Path, "/%d/%d", &shard, &token)
		assertNoError(t, err)
		f.writes.Add(1)
		if fences[shard].Check(token) != nil {
			f.refused.Add(1)
			w.WriteHeader(http.StatusPreconditionFailed)
		}
	}))
	t.Cleanup(f.resource.Close)
	for i := range f.acquired {
		f.acquired[i] = make(map[uint64][]string)
	}
	target, err := url.Parse(f.server.Endpoint)
	require.NoError(t, err)
	// MinIO closes connections that were idle for 30 s, also while a request is on its way to it.
	base := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64, IdleConnTimeout: 10 * time.Second}
	t.Cleanup(base.CloseIdleConnections)
	for i := range memberCount {
		seat := &shardSeat{name: fmt.Sprint("m", i)}
		faults := &faultproxy.Transport{Base: &landings{f, base}, Decide: func(*http.Request) faultproxy.Fault {
			if seat.cut.Load() {
				return faultproxy.Fault{Kind: faultproxy.Refuse, Before: time.Minute}
			}
			return faultproxy.Fault{}
		}}
		seat.proxy = httptest.NewServer(faults.Handler(target))
		t.Cleanup(seat.proxy.Close)
		f.seats = append(f.seats, seat)
	}
	t.Cleanup(func() {
		for _, seat := range f.seats {
			if seat.process != nil {
				_ = seat.process.cmd.Process.Kill() // fails unless the test has failed
				<-seat.process.exited
			}
		}
		if t.Failed() && len(f.overlaps) > 0 {
			t.Logf("%d overlaps:\n%s", len(f.overlaps), strings.Join(f.overlaps[:min(len(f.overlaps), 20)], "\n"))
		}
	})
	for _, seat := range f.seats {
		f.start(seat)
	}
	return f
}

// landings notes each acquisition of a shard that the server has carried out, also if the member does not wait for the answer.
type landings struct {
	f    *shardFleet
	base http.RoundTripper
}

func (l *landings) RoundTrip(r *http.Request) (*http.Response, error) {
	_, id, found := strings.Cut(r.URL.Path, "/g/shards/")
	if r.Method != http.MethodPut || !found {
		return l.base.RoundTrip(r)
	}
	resp, err := l.base.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	if !assertNoError(l.f.t, err) || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	shard, err := strconv.Atoi(id)
	assertNoError(l.f.t, err)
	sent, err := r.GetBody()
	assertNoError(l.f.t, err)
	body, err := io.ReadAll(sent)
	assertNoError(l.f.t, err)
	var rec leasehold.Record
	if assertNoError(l.f.t, rec.UnmarshalJSON(body)) && !rec.Released() {
		l.f.mu.Lock()
		defer l.f.mu.Unlock()
		l.f.acquired[shard][rec.Token] = append(l.f.acquired[shard][rec.Token], rec.Holder)
	}
	return resp, nil
}

func (f *shardFleet) start(seat *shardSeat) {
	f.t.Helper()
	server := f.server
	server.Endpoint = seat.proxy.URL
	p := &shardProcess{seat: seat, cmd: exec.CommandContext(f.t.Context(), os.Args[0], "-test.run=^$"), exited: make(chan struct{})}
	p.cmd.Env = append(holderEnv(server, f.bucket), "SHARD_MEMBER="+seat.name, "SHARD_RESOURCE="+f.resource.URL)
	p.cmd.Stderr = os.Stderr
	_, err := p.cmd.StdinPipe() // so that it ends with this process
	require.NoError(f.t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, p.cmd.Start())
	seat.process = p
	go func() {
		defer close(p.exited)
		f.read(p, out)
		p.err = p.cmd.Wait()
	}()
}

// read reads what a member prints until it is gone.
func (f *shardFleet) read(p *shardProcess, out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		var what string
		var shard int
		var token uint64
		var at, live time.Duration
		var isLive, isLost bool
		var err error
		f.mu.Lock()
		switch what, _, _ = strings.Cut(line, " "); what {
		case "led":
			_, err = fmt.Sscan(line, &what, &shard, &token, &at)
			i, _ := slices.BinarySearchFunc(f.terms[shard], token, func(term *shardTerm, token uint64) int { return int(term.token) - int(token) })
			f.terms[shard] = slices.Insert(f.terms[shard], i, &shardTerm{owner: p, token: token, led: at, slept: at < p.stopped})
		case "over":
			_, err = fmt.Sscan(line, &what, &shard, &token, &at, &live)
			term := f.term(p, shard, token)
			term.valid, term.live, term.over = at, live, true
		case "refused":
			_, err = fmt.Sscan(line, &what, &shard, &token, &isLive, &isLost)
			if !isLost || isLive && !f.term(p, shard, token).late(mono()) {
				f.overlaps = append(f.overlaps, fmt.Sprintf("shard %d: %s wrote with token %d after its successor (context live: %v, lease lost: %v)",
					shard, p.seat.name, token, isLive, isLost))
			}
		case "lost":
			f.t.Logf("%s has lost its session:%s", p.seat.name, strings.TrimPrefix(line, what))
		default:
			if line != "end <nil>" {
				f.t.Errorf("%s: %s", p.seat.name, line)
			}
		}
		assertNoError(f.t, err)
		f.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.killed > 0 {
		for term := range f.termsOf(p) {
			term.valid, term.live, term.over = p.killed, p.killed, true
		}
	}
}

// term returns a term that its owner has printed.
func (f *shardFleet) term(p *shardProcess, shard int, token uint64) *shardTerm {
	for _, term := range f.terms[shard] {
		if term.owner == p && term.token == token {
			return term
		}
	}
	f.t.Errorf("%s has not owned shard %d with token %d", p.seat.name, shard, token)
	return &shardTerm{}
}

// termsOf yields the terms of a process that are not over.
func (f *shardFleet) termsOf(p *shardProcess) iter.Seq[*shardTerm] {
	return func(yield func(*shardTerm) bool) {
		for _, terms := range f.terms {
			for _, term := range terms {
				if term.owner == p && !term.over && !yield(term) {
					return
				}
			}
		}
	}
}

func (f *shardFleet) kill(seat *shardSeat) {
	p := seat.process
	f.mu.Lock()
	p.killed = mono()
	f.mu.Unlock()
	require.NoError(f.t, p.cmd.Process.Kill())
	<-p.exited
}

func (f *shardFleet) pause(seat *shardSeat) {
	p := seat.process
	require.NoError(f.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	_, err := syscall.Wait4(p.cmd.Process.Pid, nil, syscall.WUNTRACED, nil) // on a busy machine it runs on for a while
	require.NoError(f.t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	p.stopped = mono()
	for term := range f.termsOf(p) {
		term.slept = true
	}
}

func (f *shardFleet) resume(seat *shardSeat) {
	p := seat.process
	f.mu.Lock()
	p.resumed = mono()
	f.mu.Unlock()
	require.NoError(f.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// leave ends members gracefully.
func (f *shardFleet) leave(seats ...*shardSeat) {
	f.t.Helper()
	for _, seat := range seats {
		require.NoError(f.t, seat.process.cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, seat := range seats {
		select {
		case <-seat.process.exited:
			require.NoError(f.t, seat.process.err, seat.name)
		case <-time.After(2 * time.Minute):
			f.t.Fatalf("%s does not leave", seat.name)
		}
	}
}

// planner returns the member that is the planner.
func (f *shardFleet) planner() *shardSeat {
	f.t.Helper()
	obj, err := leasehold.NewS3Store(f.server.Client(), f.bucket).Get(f.t.Context(), "g/planner")
	require.NoError(f.t, err)
	var rec leasehold.Record
	require.NoError(f.t, rec.UnmarshalJSON(obj.Body))
	i := slices.IndexFunc(f.seats, func(seat *shardSeat) bool { return seat.name == rec.Holder })
	require.GreaterOrEqual(f.t, i, 0, rec.Holder)
	return f.seats[i]
}

func (f *shardFleet) allBut(seat *shardSeat) []*shardSeat {
	return slices.DeleteFunc(slices.Clone(f.seats), func(other *shardSeat) bool { return other == seat })
}

// balanced waits until these members own all shards, and their numbers differ by one at most. It returns when the last of the shards
// was taken, in TTLs since then.
func (f *shardFleet) balanced(since time.Duration, seats ...*shardSeat) (ttls float64) {
	f.t.Helper()
	var counts map[string]int
	var last time.Duration
	look := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		counts, last = make(map[string]int), since
		for _, seat := range seats {
			counts[seat.name] = 0
		}
		for _, terms := range f.terms {
			if len(terms) == 0 {
				continue
			}
			term := terms[len(terms)-1]
			if _, found := counts[term.owner.seat.name]; found && !term.over && term.owner == term.owner.seat.process {
				counts[term.owner.seat.name]++
				last = max(last, term.led)
			}
		}
		total, numbers := 0, slices.Collect(maps.Values(counts))
		for _, n := range numbers {
			total += n
		}
		return total == memberShards && slices.Max(numbers)-slices.Min(numbers) <= 1
	}
	if !assert.Eventually(f.t, look, 2*time.Minute, 20*time.Millisecond) {
		f.t.Fatalf("%d shards are not balanced: %v", memberShards, counts)
	}
	return (last - since).Seconds() / memberTTL.Seconds()
}

// moves returns how often another process has come to own a shard.
func (f *shardFleet) moves() (total int, each [memberShards]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, terms := range f.terms {
		for n := 1; n < len(terms); n++ {
			if terms[n].owner != terms[n-1].owner {
				total++
				each[i]++
			}
		}
	}
	return total, each
}

// rollingRestart restarts all members, one by one.
func (f *shardFleet) rollingRestart() {
	f.t.Helper()
	total, each := f.moves()
	began := mono()
	for _, seat := range f.seats {
		f.leave(seat)
		f.balanced(began, f.allBut(seat)...)
		f.start(seat)
		f.balanced(began, f.seats...)
	}
	after, eachAfter := f.moves()
	most := 0
	for i, n := range eachAfter {
		most = max(most, n-each[i])
	}
	var gaps []float64 // without an owner, in poll intervals
	f.mu.Lock()
	for _, terms := range f.terms {
		for n := 1; n < len(terms); n++ {
			if terms[n].led > began {
				gaps = append(gaps, (terms[n].led-max(terms[n-1].led, terms[n-1].valid)).Seconds()/memberPoll.Seconds())
			}
		}
	}
	f.mu.Unlock()
	slices.Sort(gaps)
	f.t.Logf("rolling restart in %.0f s: %d moves, %d of one shard at most; a shard without an owner for %.2f poll intervals at the median, "+
		"%.2f at most", (mono() - began).Seconds(), after-total, most, gaps[len(gaps)/2], gaps[len(gaps)-1])
}

func TestShardsOfProcesses(t *testing.T) {
	began := mono()
	f := startShardFleet(t)
	t.Logf("%d shards, %d processes: owned %.2f TTL after the start", memberShards, memberCount, f.balanced(began, f.seats...))
	faults := []struct {
		name         string
		strike, heal func(*shardSeat)
	}{
		{"SIGKILL", f.kill, f.start},
		{"SIGSTOP", f.pause, f.resume},
		{"partition", func(seat *shardSeat) { seat.cut.Store(true) }, func(seat *shardSeat) { seat.cut.Store(false) }},
	}
	total := 0
	for round := 0; total < memberMoves; round++ {
		for i, c := range faults {
			for _, who := range []string{"a member", "the planner"} {
				victim := f.planner()
				if who == "a member" {
					others := f.allBut(victim)
					victim = others[(round+i)%len(others)]
				}
				before, _ := f.moves()
				struck := mono()
				c.strike(victim)
				owned := f.balanced(struck, f.allBut(victim)...)
				healed := mono()
				c.heal(victim)
				back := f.balanced(healed, f.seats...)
				total, _ = f.moves()
				t.Logf("%s of %s: all owned by the others after %.2f TTL, balanced %.2f TTL after its return, %d moves",
					c.name, who, owned, back, total-before)
			}
		}
		f.rollingRestart()
		total, _ = f.moves()
	}
	f.leave(f.seats...)
	for _, seat := range f.seats {
		seat.proxy.Close() // after the last answer
	}
	f.check()
	require.NotZero(t, f.refused.Load(), "no former owner has written, so the resource proves nothing")
	t.Logf("%d moves, %d overlaps, %.0f s; %d writes to the resource, %d of former owners refused",
		total, len(f.overlaps), (mono() - began).Seconds(), f.writes.Load(), f.refused.Load())
}

// check requires that no shard ever had two owners. By what has landed in the store, the tokens of each shard are 1 to n, and each was
// acquired once. An acquisition may have no handler, because the process was killed or the shard moved on before it could begin.
func (f *shardFleet) check() {
	f.t.Helper()
	session, err := leasehold.NewSession(leasehold.NewS3Store(f.server.Client(), f.bucket), "check")
	require.NoError(f.t, err)
	idle, acquisitions := 0, 0
	for i, terms := range f.terms {
		last := &shardTerm{}
		for _, term := range terms {
			overlap := ""
			switch {
			case term.token <= last.token:
				overlap = "has had two owners"
			case term.led <= last.valid:
				overlap = fmt.Sprintf("had its owner %v before the last lease was over", last.valid-term.led)
			case term.led <= last.live && !last.late(last.live):
				overlap = fmt.Sprintf("had its owner %v before the last context ended", last.live-term.led)
			}
			if overlap != "" {
				f.overlaps = append(f.overlaps, fmt.Sprintf("shard %d: token %d %s", i, term.token, overlap))
			}
			require.Equal(f.t, []string{term.owner.seat.name}, f.acquired[i][term.token], "shard %d, token %d", i, term.token)
			require.True(f.t, term.over, "shard %d, token %d", i, term.token)
			last = term
		}
		lock, err := session.Lock(fmt.Sprint("g/shards/", i))
		require.NoError(f.t, err)
		rec, err := lock.Inspect(f.t.Context())
		require.NoError(f.t, err)
		require.True(f.t, rec.Released(), "shard %d", i)
		require.Len(f.t, f.acquired[i], int(rec.Token), "shard %d", i)
		for token := range rec.Token {
			require.Len(f.t, f.acquired[i][token+1], 1, "shard %d, token %d", i, token+1)
		}
		acquisitions += int(rec.Token)
		idle += int(rec.Token) - len(terms)
	}
	f.t.Logf("%d acquisitions, %d of them without a handler", acquisitions, idle)
	require.Zero(f.t, len(f.overlaps), "overlaps")
}
