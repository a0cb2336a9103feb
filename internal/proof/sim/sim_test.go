package sim_test

import (
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/proof/sim"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// A panic shows the stacks of all goroutines, and their labels. Those of its bubble have the seed.
func init() {
	_ = os.Setenv("GODEBUG", os.Getenv("GODEBUG")+",tracebacklabels=1")
	debug.SetTraceback("all")
}

func env(t *testing.T, name string, value uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return value
	}
	n, err := strconv.ParseUint(s, 10, 64)
	require.NoError(t, err, name)
	return n
}

// eachSeed runs n worlds on all cores, starting at seed SEED (default 1). It stops at the first
// world that returns a report.
func eachSeed(t *testing.T, n uint64, run func(t *testing.T, seed uint64) (report string)) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // a world lives for milliseconds
	first := env(t, "SEED", 1)
	var next atomic.Uint64
	t.Run("worlds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < n && !t.Failed(); i = next.Add(1) - 1 {
					if report := run(t, first+i); report != "" {
						next.Store(n)
						t.Errorf("after %d worlds, %s", i+1, report)
						return
					}
				}
			})
		}
	})
}

// forced adds what FORCE names, with commas between, to a world.
func forced(t *testing.T, cfg *sim.Config) *sim.Config {
	t.Helper()
	if force := os.Getenv("FORCE"); force != "" {
		for name := range strings.SplitSeq(force, ",") {
			require.NoError(t, cfg.Force(name))
		}
	}
	return cfg
}

// TestSeeds runs SEEDS worlds (default 100, or 500 at full size), starting at seed SEED (default
// 1), and reports the first that fails. FORCE="SlowCreates,forged wake-ups" makes each of them such
// a world.
func TestSeeds(t *testing.T) {
	total := worlds(t, env(t, "SEEDS", testsize.Pick[uint64](100, 500)), "locks",
		func(seed uint64) sim.Scenario { return forced(t, sim.NewConfig(seed)) })
	checkFollowed(t, total)
}

// TestCreateOnlySeeds is TestSeeds on stores on which objects can only be created, with CREATEONLY
// worlds (default 20, or 200).
func TestCreateOnlySeeds(t *testing.T) {
	worlds(t, env(t, "CREATEONLY", testsize.Pick[uint64](20, 200)), "create-only stores",
		func(seed uint64) sim.Scenario { return forced(t, sim.NewCreateOnlyConfig(seed)) })
}

// TestTableSeeds runs TABLES worlds (default 60, or 1,000 at full size) in which members share a
// table of locks, starting at seed SEED (default 1), and reports the first that fails.
func TestTableSeeds(t *testing.T) {
	worlds(t, env(t, "TABLES", testsize.Pick[uint64](60, 1000)), "tables",
		func(seed uint64) sim.Scenario { return sim.NewTableConfig(seed) })
}

// worlds runs n worlds of a kind, and wants that they reach its situations, unless one has failed:
// then few have run.
func worlds(t *testing.T, n uint64, kind string, draw func(seed uint64) sim.Scenario) (total sim.Stats) {
	t.Helper()
	var mu sync.Mutex
	began, told := time.Now(), time.Now()
	eachSeed(t, n, func(t *testing.T, seed uint64) (report string) {
		cfg := draw(seed)
		out := cfg.Run(t, false)
		if len(out.Violations) > 0 {
			return sim.Report(t, cfg, out)
		}
		mu.Lock()
		defer mu.Unlock()
		total.Add(out.Stats)
		if time.Since(told) > time.Minute {
			told = time.Now()
			t.Logf("%d worlds in %v", total.Runs, time.Since(began).Round(time.Second))
		}
		return ""
	})
	t.Logf("%d worlds, %.0f virtual hours, in %v: %d requests, %d terms, %d writes, %d of them fenced off", total.Runs,
		total.Virtual.Hours(),
		time.Since(began).Round(time.Millisecond), total.Requests, total.Terms, total.Writes, total.Fenced)
	for _, event := range slices.Sorted(maps.Keys(total.Events)) {
		t.Logf("%10d  %s", total.Events[event], event)
	}
	if t.Failed() {
		return total
	}
	table := sim.SituationsOf[kind]
	t.Logf("of %d worlds, so many reached:\n%s", total.Runs, strings.Join(table.Lines(total.Situations), "\n"))
	for _, missing := range table.Missing(total.Runs, total.Situations) {
		t.Errorf("no longer reached often enough: %s", missing)
	}
	return total
}

// checkFollowed wants that the proven state machine follows most worlds, and that they take each of
// its actions. The object of a lock is never removed; those of members are, in worlds of their own.
func checkFollowed(t *testing.T, total sim.Stats) {
	t.Helper()
	if t.Failed() {
		return
	}
	t.Logf("%d of %d worlds were followed to their end by the machine of lease.spec, in these steps:", total.Followed,
		total.Runs)
	for _, action := range sim.LeaseSpec.Actions() {
		t.Logf("%10d  %s", total.Steps[action], action)
		if total.Runs >= 5000 && action != "remove" && os.Getenv("FORCE") == "" {
			require.NotZero(t, total.Steps[action], "no world has taken the step %s", action)
		}
	}
	t.Logf("leases and worlds that have left the contract:")
	for _, why := range slices.Sorted(maps.Keys(total.Excused)) {
		t.Logf("%10d  %s", total.Excused[why], why)
	}
	if total.Runs >= 100 && os.Getenv("FORCE") == "" {
		require.Greater(t, total.Followed, total.Runs*85/100, "the machine follows too few worlds")
	}
}

func TestOneSeedIsOneRunByteForByte(t *testing.T) {
	for seed := uint64(1); seed <= testsize.Pick[uint64](20, 60); seed++ {
		if cfg := sim.NewConfig(seed); cfg.Siblings || cfg.Tried {
			continue // requests that goroutines of one Lock send at the same instant come in any order
		}
		first := sim.NewConfig(seed).Run(t, true)
		again := sim.NewConfig(seed).Run(t, true)
		require.Equal(t, first.Trace, again.Trace, "seed %d", seed)
		require.NotEmpty(t, first.Trace)
	}
}
