package bench

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(testserver.Main(m))
}

// size is how much is measured.
type size struct {
	name       string
	rounds     int           // of latency
	contention time.Duration // of each contended run
	candidates []int
	virtual    int // trials of each kind of takeover in virtual time
	trials     int // and on a server
	slow       int // the same with the default TTL, so minutes
	handovers  int // trials of each way of a hand-over
	endings    int // trials with the command
	roundTrips []time.Duration
	lanes      int           // how many trials run at once
	again      int           // how often a trial that fails is made again
	endurance  time.Duration // for which leaders lead while requests fail, in virtual time
	electors   []int
	watch      time.Duration // how long each crowd of electors is observed
	rest       time.Duration // before the memory of a crowd is measured
	weighings  int           // of each small crowd

	tableLocks  int // of one process
	tableTTL    time.Duration
	tableTrials int   // of each way that it ends
	tableCrowds []int // candidates for one lock of a table
	tableEach   []int // members with a lock each

	tableCompetition time.Duration // of each of those runs
}

var (
	small = size{
		"small", 10, 300 * time.Millisecond, []int{8}, 10, 3, 0, 2, 1, []time.Duration{
			time.Millisecond,
			20 * time.Millisecond,
		}, 32, 5,
		30 * time.Minute, []int{100}, 3 * time.Second, time.Second, 1,
		100, 2 * time.Second, 1, []int{8}, []int{8}, 300 * time.Millisecond,
	}
	full = size{
		"full", 300, 3 * time.Second, []int{
			2,
			8,
			32,
			128,
		}, 2000, 150, 50, 60, 10, []time.Duration{
			time.Millisecond,
			20 * time.Millisecond,
			100 * time.Millisecond,
		}, 50, 0,
		4 * time.Hour, []int{100, 10_000}, 15 * time.Second, 7 * time.Second, 3,
		tableLocks, 15 * time.Second, 3, []int{8, 32, 128}, []int{8, 64}, 9 * time.Second,
	}
)

// TestPerformance measures everything. If BENCH is "full" it writes docs/performance.json and
// renders the page, otherwise it runs in miniature at full test size, and renders into a directory
// of its own. BENCH_DOCS is another directory to write to, for a look at a run in miniature. If
// BENCH_ONLY names a section, "electors", "takeover", "handover", "tables", "command" or "counts",
// it measures this one and keeps the others of docs/performance.json. BENCH_BUSY=1 measures on a
// busy machine, and the page says so.
func TestPerformance(t *testing.T) {
	testserver.SkipIfShort(t)
	if !testsize.Full() && os.Getenv("BENCH")+os.Getenv("BENCH_DOCS")+os.Getenv("BENCH_ONLY") == "" {
		t.Skip("the measurement in miniature takes a minute: set LEASEHOLD_SIZE=full to run it")
	}
	n, docs := small, t.TempDir()
	if os.Getenv("BENCH") == "full" {
		n, docs = full, "../docs"
	}
	if dir := os.Getenv("BENCH_DOCS"); dir != "" {
		docs = dir
	}
	progress := logProgress()
	section := os.Getenv("BENCH_ONLY")
	busy := os.Getenv("BENCH_BUSY") != ""
	if n.name == "full" && section != report.AloneCounts && !busy {
		awaitQuiet(t, progress)
	}
	if section != "" {
		measureAlone(t, section, n, docs, busy, progress)
		return
	}
	began := time.Now()
	d := describeRun(t, n)
	d.CrowdPoll = contended.poll.Seconds()
	say, unfinished := progress, filepath.Join(os.TempDir(), "leasehold-performance.json")
	t.Logf("%s has what was measured until a failure", unfinished)
	progress = func(what string) { // a failure near the end must not lose all that was measured
		say(what)
		require.NoError(t, d.Write(unfinished))
	}
	progress("many electors") // before etcd runs in this process
	d.Electors, d.Memory = measureScale(t, n)
	progress("leasehold's own share, and an hour's requests")
	d.Own, d.Counts, d.Hours = measureOwn(t), count(t), measureHours(t)
	progress("takeover in virtual time")
	d.Takeovers = measureVirtualTakeover(t, n)
	d.Endurance = measureEndurance(t, n)

	o := startOthers(t)
	o.noteVersions(d)
	hub := newHub(t)
	minio, _ := testserver.StartMinIOWithWebhooks(t, "token", hub.URL)
	for _, server := range []testserver.S3{minio, testserver.VersityGW(t)} {
		p := newPlace(t, server)
		if len(server.Queues) > 0 { // measure etcd and the adapters only once
			o.reach(t, p, func(addr string) string { return addr })
			server.Notify(t, p.bucket, pushPrefix)
			p.pushed = hub.add
			progress("adapters")
			d.Adapters = measureAdapters(t, p, n)
		}
		progress(p.name + ": operations")
		d.Places = append(d.Places, measureLatency(t, p, n))
		progress(p.name + ": many candidates for one lock")
		d.Crowds = append(d.Crowds, measureContention(t, p, n)...)
		progress(p.name + ": takeover")
		d.Takeovers = append(d.Takeovers, measureTakeover(t, p, n)...)
	}
	progress("hand-over")
	d.Handovers = measureHandover(t, minio, hub, o, n)
	d.Tables = measureTables(t, minio, hub, o, n, progress)
	progress("the command")
	d.Endings = measureCommand(t, minio, n)
	d.Minutes = time.Since(began).Round(time.Second).Minutes()
	progress("done")
	require.False(t, t.Failed())
	writeReport(t, d, docs)
}

// measureAlone measures one section, and keeps the others.
func measureAlone(t *testing.T, section string, n size, docs string, busy bool, progress func(string)) {
	d, err := report.Read("../docs/performance.json")
	require.NoError(t, err)
	now := describeRun(t, n)
	since := report.Since{Date: now.Date, Commit: now.Commit}
	if busy {
		since.Remark = fmt.Sprintf(", while other processes kept the machine busy (load %.1f)", load())
	}
	switch section {
	case report.AloneElectors:
		d.Electors, d.Memory = measureScale(t, n)
	case report.AloneHandovers:
		o, hub := startOthers(t), newHub(t)
		o.noteVersions(d)
		minio, _ := testserver.StartMinIOWithWebhooks(t, "token", hub.URL)
		d.Handovers = measureHandover(t, minio, hub, o, n)
	case report.AloneTables:
		o, hub := startOthers(t), newHub(t)
		o.noteVersions(d)
		minio, _ := testserver.StartMinIOWithWebhooks(t, "token", hub.URL)
		d.Tables = measureTables(t, minio, hub, o, n, progress)
	case report.AloneCommand:
		d.Endings = measureCommand(t, testserver.MinIO(t), n)
	case report.AloneTakeovers: // those on real servers
		o := startOthers(t)
		o.noteVersions(d)
		d.Takeovers = slices.DeleteFunc(d.Takeovers, func(v report.Takeover) bool { return v.Where != report.Virtual })
		for i, server := range []testserver.S3{testserver.MinIO(t), testserver.VersityGW(t)} {
			p := newPlace(t, server)
			if i == 0 {
				o.reach(t, p, func(addr string) string { return addr })
			}
			d.Takeovers = append(d.Takeovers, measureTakeover(t, p, n)...)
		}
	case report.AloneCounts:
		d.Counts = count(t)
	default:
		require.Fail(t, "BENCH_ONLY: there is no such section", section)
	}
	if section != report.AloneCounts { // which a test counts again
		if d.Alone == nil {
			d.Alone = make(map[string]report.Since)
		}
		d.Alone[section] = since
	}
	require.False(t, t.Failed())
	writeReport(t, d, docs)
}

// awaitQuiet waits until nothing else keeps the machine busy, and fails if that takes longer than
// ten minutes.
func awaitQuiet(t *testing.T, progress func(string)) {
	t.Helper()
	const most = 0.5
	for end := time.Now().Add(10 * time.Minute); load() > most; time.Sleep(10 * time.Second) {
		require.True(t, time.Now().Before(end), "%.1f processes want a core: measure on a quiet machine", load())
		progress(fmt.Sprintf("waiting until the machine is quiet: load %.2f", load()))
	}
}

// load is the number of processes that wanted a core in the last minute.
func load() (f float64) {
	body, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(body), &f)
	return f
}

// logProgress returns a function that says what is measured now.
func logProgress() func(what string) {
	began := time.Now()
	return func(what string) {
		_, _ = fmt.Fprintf(os.Stderr, "bench: %s %4.0f s  %s\n", time.Now().Format(time.TimeOnly),
			time.Since(began).Seconds(), what)
	}
}

// writeReport writes the data, and what is rendered from it.
func writeReport(t *testing.T, d *report.Data, docs string) {
	require.NoError(t, os.MkdirAll(docs, 0o755))
	data := filepath.Join(docs, "performance.json")
	require.NoError(t, d.Write(data))
	written, err := report.Read(data)
	require.NoError(t, err)
	for name, content := range written.Render() {
		name = filepath.Join(docs, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
	}
}

// describeRun says what is measured, when and where.
func describeRun(t *testing.T, n size) *report.Data {
	file := func(name, pattern string) string {
		body, _ := os.ReadFile(name)
		found := regexp.MustCompile(pattern).FindSubmatch(body)
		if found == nil {
			return ""
		}
		return string(found[1])
	}
	git := func(args ...string) string {
		out, _ := exec.Command("git", args...).Output()
		return strings.TrimSpace(string(out))
	}
	kib, _ := strconv.ParseFloat(file("/proc/meminfo", `MemTotal:\s+(\d+)`), 64)
	d := &report.Data{
		Size: n.name, Date: time.Now().UTC().Format(time.DateOnly), Commit: git("rev-parse", "--short=7", "HEAD"),
		Dirty: git("status", "--porcelain", "--untracked-files=no") != "",
		Machine: report.Machine{
			CPU: file("/proc/cpuinfo", `model name\s*: (.*)`), Cores: runtime.NumCPU(), GiB: kib / (1 << 20),
			Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH,
			Kernel: file("/proc/sys/kernel/osrelease", `^(\S+)`),
		},
	}
	for _, name := range testserver.Programs() {
		version, err := testserver.Version(name)
		require.NoError(t, err)
		d.Versions = append(d.Versions, report.Version{Name: name, Version: version})
	}
	for _, path := range []string{
		"go.etcd.io/etcd/server/v3", "k8s.io/client-go", "github.com/benbjohnson/litestream",
		"github.com/aws/aws-sdk-go-v2/service/s3",
	} {
		d.Versions = append(d.Versions, report.Version{Name: path, Version: moduleVersion(t, path)})
	}
	return d
}

func moduleVersion(t *testing.T, path string) string {
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", path).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(version))
}

func shuffled[T any](list []T) []T {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
