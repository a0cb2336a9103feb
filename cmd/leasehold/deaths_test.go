package main_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// monotonic is the time of a clock that all processes share.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

const signEvery = 5 * time.Millisecond

// asLiving is a command that writes the time to its place in a file for as long as it lives. If it
// is the first, it starts a second one. It ends when the file is removed, so that a test that fails
// leaves nothing running.
func asLiving() {
	if os.Getenv("LIFE_DEAF") != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	if os.Getenv("LIFE_IMMUNE") != "" { // of a setuid program: its user may not kill it
		if err := syscall.Setuid(0); err != nil {
			panic(err)
		}
	}
	place := int64(0)
	if os.Getenv("LIFE_SECOND") != "" {
		place = 8
	} else {
		second := exec.Command(os.Args[0])
		second.Env = append(os.Environ(), "LIFE_SECOND=1")
		if os.Getenv("LIFE_ESCAPES") != "" {
			second.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		}
		if err := second.Start(); err != nil {
			panic(err)
		}
	}
	if os.Getenv("LIFE_HEADLESS") != "" {
		go func() {
			giveSigns(place)
			os.Exit(0)
		}()
		endMainThread()
	}
	giveSigns(place)
}

func giveSigns(place int64) {
	file, err := os.OpenFile(os.Getenv("LIFE_FILE"), os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	// a mistake of the program does not leave it for ever
	for began := monotonic(); monotonic()-began < 10*time.Minute; time.Sleep(signEvery) {
		sign := binary.LittleEndian.AppendUint64(nil, uint64(monotonic()))
		if _, err := file.WriteAt(sign, place); err != nil {
			panic(err)
		}
		if _, err := os.Stat(file.Name()); err != nil {
			return
		}
	}
}

// living is the file to which a command and its child write.
type living struct{ path string }

func newLiving(t testing.TB) living {
	l := living{filepath.Join(t.TempDir(), "life")}
	require.NoError(t, os.WriteFile(l.path, make([]byte, 16), 0o600))
	return l
}

// environ makes the test binary such a command.
func (l living) environ() []string {
	return []string{"LEASEHOLD_TEST_ROLE=living", "LIFE_FILE=" + l.path}
}

// signs are the last signs of life of the command and of its child; 0 before the first.
func (l living) signs(t testing.TB) (first, second time.Duration) {
	body, err := os.ReadFile(l.path)
	require.NoError(t, err)
	return time.Duration(binary.LittleEndian.Uint64(body)), time.Duration(binary.LittleEndian.Uint64(body[8:]))
}

func (l living) last(t testing.TB) time.Duration {
	first, second := l.signs(t)
	return max(first, second)
}

// begun waits until both live. It returns false if the supervisor has ended before that, or if they
// never do.
func (l living) begun(t testing.TB, supervisor *started) bool {
	for ctx := soon(t); ; {
		if first, second := l.signs(t); first > 0 && second > 0 {
			return true
		}
		select {
		case <-supervisor.ended:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// deaths are the ways in which a lease is lost, or its supervisor.
var deaths = []struct {
	name  string
	fault faultproxy.Fault // of the supervisor's requests, from then on
	to    syscall.Signal   // to the supervisor
}{
	{"partition: requests are refused", faultproxy.Fault{Kind: faultproxy.Refuse}, 0},
	{"SIGSTOP of the supervisor", faultproxy.Fault{}, syscall.SIGSTOP},
	{"SIGKILL of the supervisor", faultproxy.Fault{}, syscall.SIGKILL},
	{"partition: requests are never answered", faultproxy.Fault{Kind: faultproxy.Refuse, Before: time.Hour}, 0},
	{"SIGSTOP of the supervisor", faultproxy.Fault{}, syscall.SIGSTOP},
	{"SIGKILL of the supervisor", faultproxy.Fault{}, syscall.SIGKILL},
}

// The command, and what it has started, are dead before anyone else can lead: the last sign of life
// of each is earlier than the time before the next holder sent its request. Half of the commands
// ignore SIGTERM, in half of them the child has left for a session of its own, and half of them end
// their main threads. Every second round of deaths is without a control group. If leasehold is
// killed, its guard releases the lock, so the next holder does not wait for the TTL. DEATHS is
// the number of trials, with the TTL of the figures in docs/evidence/faults.md. Without it, a short
// run has fewer, with a TTL that leaves twice the time for a machine that is busy.
func TestTheCommandIsDeadBeforeTheLeaseIs(t *testing.T) {
	t.Parallel()
	trials, deathTTL := testsize.Pick(12, 30), testsize.Pick(6*time.Second, 3*time.Second)
	if s := os.Getenv("DEATHS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		trials, deathTTL = n, 3*time.Second
	}
	d := &dying{
		ttl:    deathTTL,
		bucket: newBucket(t),
		cut:    make(map[string]faultproxy.Fault),
		least:  make(map[string]time.Duration),
		most:   make(map[string]time.Duration),
		count:  make(map[string]int),
		watch:  startWatchdog(t, deathTTL/12),
	}
	d.proxy = faultproxy.Start(t, d.server.Endpoint, func(r *http.Request) faultproxy.Fault {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.cut[r.URL.Path]
	})
	t.Run("trials", func(t *testing.T) {
		for i := range trials {
			t.Run(fmt.Sprintf("%d %s", i, deaths[i%len(deaths)].name), func(t *testing.T) {
				t.Parallel()
				for try := 0; !d.trial(t, i, try); try++ {
					require.Less(t, try, 10, "this machine is too slow to keep a lease of %v", deathTTL)
				}
			})
		}
	})
	total := 0
	for _, name := range slices.Sorted(maps.Keys(d.count)) {
		total += d.count[name]
		t.Logf("%s: dead before the next holder led in %d trials, by %v at least; %v at most from the death to that",
			name, d.count[name], d.least[name].Round(time.Millisecond), d.most[name].Round(time.Millisecond))
	}
	t.Logf("the TTL was %v, and %v for SIGKILL", deathTTL, crashTTL)
	t.Logf("leases that were lost before their trial began: %d", d.early)
	for _, s := range d.spoilt {
		t.Log("spoilt, and repeated: ", s)
	}
	require.Equal(t, trials, total)
}

// dying has what the trials share.
type dying struct {
	bucket
	ttl   time.Duration
	proxy *faultproxy.Proxy

	watch *watchdog

	mu     sync.Mutex
	cut    map[string]faultproxy.Fault // by path
	least  map[string]time.Duration    // by name of the death
	most   map[string]time.Duration    // from the death to the next holder, likewise
	count  map[string]int
	early  int
	spoilt []string
}

func (d *dying) wasEarly() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.early++
	return false
}

// wasSpoilt is about a trial in which processes that were ready did not run.
func (d *dying) wasSpoilt(name string, late, distance, took time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spoilt = append(d.spoilt, fmt.Sprintf("%s: the command was dead %v before the next holder led, which was after "+
		"%v, but this process did not run for %v", name, distance, took, late))
	return false
}

// The times of a leasehold that is killed.
const (
	crashTTL   = 30 * time.Second // nobody takes the lock for so long, unless the guard releases it
	crashDrain = time.Second      // the default
	nextPolls  = 200 * time.Millisecond
	// for requests, for a machine that is busy, and for the system, which takes up to seconds to
	// reap a process whose main thread ended before, while many others look at /proc (in
	// shrink_dcache_parent)
	crashSlack = 10 * time.Second
)

// watchdog measures for how long this process does not run although it is ready: it wakes every 10
// ms.
type watchdog struct {
	mu   sync.Mutex
	late map[time.Duration]time.Duration // when it woke, by monotonic, and by how much too late
}

// startWatchdog starts a watchdog. spoils is how late it must have been, at any moment of a trial,
// for a trial to be spoilt: half of the time that is left between SIGKILL and the next holder. A
// trial is only spoilt if it has failed, and is then repeated.
func startWatchdog(t *testing.T, spoils time.Duration) *watchdog {
	const every = 10 * time.Millisecond
	w := &watchdog{late: make(map[time.Duration]time.Duration)}
	go func() {
		last := monotonic()
		for t.Context().Err() == nil {
			time.Sleep(every)
			now := monotonic()
			if late := now - last - every; late > spoils {
				w.mu.Lock()
				w.late[now] = late
				w.mu.Unlock()
			}
			last = now
		}
	}()
	return w
}

// worst is the longest time since then; 0 if it spoils nothing.
func (w *watchdog) worst(since time.Duration) (worst time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, late := range w.late {
		if at >= since {
			worst = max(worst, late)
		}
	}
	return worst
}

// trial is one trial. It returns false if the lease was lost before its time, or if the trial was
// spoilt, as happens on a machine that has too much to do.
func (d *dying) trial(t *testing.T, i, try int) bool {
	death, key, life := deaths[i%len(deaths)], fmt.Sprintf("locks/%d-%d", i, try), newLiving(t)
	ttl := d.ttl
	if death.to == syscall.SIGKILL {
		ttl = crashTTL
	}
	cmd := d.command("run", "--ttl", ttl.String(), d.urlAt(d.proxy.URL(), key), "--", os.Args[0])
	cmd.Env = append(cmd.Env, life.environ()...)
	if i/2%2 == 0 {
		cmd.Env = append(cmd.Env, "LIFE_DEAF=1")
	}
	if i/4%2 == 0 {
		cmd.Env = append(cmd.Env, "LIFE_ESCAPES=1")
	}
	headless := i/8%2 == 1
	if headless {
		cmd.Env = append(cmd.Env, "LIFE_HEADLESS=1")
	}
	name := death.name // in a control group
	if i/len(deaths)%2 == 1 {
		withoutCgroup(cmd)
		name += ", without a control group"
	}
	supervisor := start(t, cmd)
	if !life.begun(t, supervisor) {
		require.Equal(t, 79, supervisor.wait(t), "%s", &supervisor.stderr)
		return d.wasEarly()
	}
	next := d.lock(key, leasehold.WithTTL(ttl), leasehold.WithPollInterval(nextPolls))
	type acquired struct {
		lease *leasehold.Lease
		err   error
	}
	leads := make(chan acquired, 1)
	go func() {
		lease, err := next.Acquire(soon(t))
		leads <- acquired{lease, err}
	}()
	var got acquired
	early, began, died := false, monotonic(), time.Duration(0)
	select {
	case got = <-leads:
		early = true
	case <-time.After(time.Duration(rand.Int64N(int64(d.ttl)))): // at any time between two renewals
		if died = monotonic(); death.to != 0 {
			ended, err := signalUnlessEnded(supervisor.Process, death.to)
			require.NoError(t, err)
			if ended { // its lease was lost before, so the trial has not begun
				require.Equal(t, 79, supervisor.wait(t), "%s", &supervisor.stderr)
				got = <-leads
				require.NoError(t, got.err)
				require.NoError(t, got.lease.Release(t.Context()))
				return d.wasEarly()
			}
		} else {
			d.mu.Lock()
			d.cut["/"+d.name+"/"+key] = death.fault
			d.mu.Unlock()
		}
		early = monotonic()-life.last(t) > d.ttl/3 // it was dead
		got = <-leads
	}
	require.NoError(t, got.err)
	led := monotonic() - time.Since(got.lease.Record().AcquiredAt) // AcquiredAt is before the request is sent
	time.Sleep(20 * signEvery)                                     // what still lives gives a sign meanwhile
	distance, took := led-life.last(t), led-died
	late := d.watch.worst(began)
	tooLate := death.to == syscall.SIGKILL && !early && took > crashDrain+nextPolls+crashSlack
	spoilt := (distance <= 0 || tooLate) && late > 0
	if !spoilt {
		require.Positive(t, distance, "the command lived after the next holder led")
	}
	require.NoError(t, got.lease.Release(t.Context()))
	if death.to == syscall.SIGSTOP {
		_, err := signalUnlessEnded(supervisor.Process, syscall.SIGCONT)
		require.NoError(t, err)
	}
	code := supervisor.wait(t)
	switch {
	case tooLate && !spoilt:
		require.Fail(t, "the guard has not released the lock", "free only after %v: %s", took, &supervisor.stderr)
	case spoilt:
		return d.wasSpoilt(name, late, distance, took)
	case early:
		return d.wasEarly()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if headless && death.to == syscall.SIGKILL {
		name += ", without main threads"
	}
	if death.to != syscall.SIGKILL {
		require.Equal(t, 79, code, "%s", supervisor.stderr.String())
	}
	if d.count[name]++; d.count[name] == 1 || distance < d.least[name] {
		d.least[name] = distance
	}
	d.most[name] = max(d.most[name], took)
	return true
}

// actAs is the main function of the test binary as a command.
func actAs(role string) {
	switch role {
	case "living":
		asLiving()
	default:
		panic("no role " + strings.ToUpper(role))
	}
}

// signalUnlessEnded sends a signal to a process, unless that has ended.
func signalUnlessEnded(p *os.Process, sig os.Signal) (ended bool, err error) {
	err = p.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return true, nil
	}
	return false, err
}

// A trial whose process has ended before is one that has not begun.
func TestASignalToAProcessThatHasEnded(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended, err := signalUnlessEnded(cmd.Process, syscall.SIGCONT)
	require.NoError(t, err)
	require.False(t, ended)
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	ended, err = signalUnlessEnded(cmd.Process, syscall.SIGSTOP)
	require.NoError(t, err)
	require.True(t, ended)
}
