package bench

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/leasehold-go/leasehold/internal/testserver"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(testserver.Main(m))
}

// size is how much is measured.
type size struct {
	rounds     int           // of latency
	contention time.Duration // of each contended run
	candidates []int
	trials     int           // of each kind of takeover
	lanes      int           // how many trials run at once
	again      int           // how often a trial that fails is made again
	life       time.Duration // of a leader before it crashes
	electors   []int
	watch      time.Duration // how long each crowd of electors is observed
}

var (
	small = size{10, 300 * time.Millisecond, []int{2, 8}, 8, 8, 5, 2 * time.Second, []int{1, 100}, time.Second}
	full  = size{300, 3 * time.Second, []int{2, 8, 32, 128}, 150, 50, 0, 12 * time.Second, []int{1, 100, 10_000}, 20 * time.Second}
)

// TestPerformance measures everything. If BENCH is "full" it writes docs/performance.md, otherwise it runs in miniature.
func TestPerformance(t *testing.T) {
	testserver.SkipIfShort(t)
	n, dir := small, t.TempDir()
	if os.Getenv("BENCH") == "full" {
		n, dir = full, "../docs"
	}
	servers := []testserver.S3{testserver.MinIO(t), testserver.VersityGW(t)}
	var r report
	progress := func(what string) {
		_, _ = fmt.Fprintf(os.Stderr, "bench: %s %s\n", time.Now().Format(time.TimeOnly), what)
	}
	progress("scale") // before etcd runs in this process
	r.scale = measureScale(t, n)
	progress("overhead")
	r.overhead = measureOverhead(t)
	r.hours = measureHours(t)
	etcd := startEtcd(t)
	for i, server := range servers {
		p := newPlace(t, server)
		if i == 0 { // measure etcd only once
			p.etcd = etcd
		}
		r.places = append(r.places, p.name)
		progress(p.name + ": latency")
		r.latency = append(r.latency, measureLatency(t, p, n))
		progress(p.name + ": contention")
		r.contention = append(r.contention, measureContention(t, p, n)...)
		progress(p.name + ": takeover")
		r.takeover = append(r.takeover, measureTakeover(t, p, n)...)
	}
	progress("done")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "img"), 0o755))
	require.NoError(t, r.plots(filepath.Join(dir, "img")))
	page := r.page()
	require.NotContains(t, page, "NaN")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "performance.md"), []byte(page), 0o644))
	t.Logf("\n%s", page)
}

// quantile returns the q-quantile of values, which it sorts.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

func median(values []float64) float64 { return quantile(slices.Clone(values), 0.5) }

// spread is a figure of the whole run, with the smallest and the largest one among parts of the run.
type spread struct{ value, least, most float64 }

// ratio compares two series taken in the same rounds, by the medians of the whole series and of ten parts.
func ratio(a, b []float64) spread {
	s := spread{median(a) / median(b), math.Inf(1), 0}
	const parts = 10
	for i := range parts {
		from, to := i*len(a)/parts, (i+1)*len(a)/parts
		part := median(a[from:to]) / median(b[from:to])
		s.least, s.most = min(s.least, part), max(s.most, part)
	}
	return s
}

func (s spread) String() string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s.value, s.least, s.most)
}

func shuffled[T any](list []T) []T {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
