package promlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/promlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "locks/reports"

// watched is a process with its own collector and way to the store.
type watched struct {
	leasehold.Store
	*promlock.Collector
	t        *testing.T
	registry *prometheus.Registry
	fail     atomic.Pointer[error] // what every request is answered, if set
}

func watch(t *testing.T, s leasehold.Store) *watched {
	t.Helper()
	w := &watched{Store: s, Collector: promlock.New(), t: t, registry: prometheus.NewPedanticRegistry()}
	require.NoError(t, w.registry.Register(w.Collector))
	return w
}

func (w *watched) lock(key, name string, opts ...leasehold.Option) *leasehold.Lock {
	w.t.Helper()
	l, err := leasehold.NewLock(w, key, append(opts, leasehold.WithObserver(w.Observe), leasehold.WithIdentity(name))...)
	require.NoError(w.t, err)
	return l
}

// elect runs an elector until stop is called.
func (w *watched) elect(name string) (stop func()) {
	w.t.Helper()
	e, err := leasehold.NewElector(w.lock(key, name), leasehold.Callbacks{})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	synctest.Wait()
	return func() {
		w.t.Helper()
		cancel()
		require.NoError(w.t, <-ended)
	}
}

func (w *watched) cut(err error) { w.fail.Store(&err) }
func (w *watched) mend()         { w.fail.Store(nil) }

func (w *watched) failure() error {
	if err := w.fail.Load(); err != nil {
		return *err
	}
	return nil
}

func (w *watched) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := w.failure(); err != nil {
		return leasehold.Object{}, err
	}
	time.Sleep(20 * time.Millisecond)
	return w.Store.Get(ctx, key)
}

func (w *watched) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := w.failure(); err != nil {
		return "", err
	}
	time.Sleep(50 * time.Millisecond)
	return w.Store.PutIfMatch(ctx, key, body, etag)
}

// metrics returns one line for each series, a histogram as its count and sum, without counts that are 0.
func (w *watched) metrics() (lines []string) {
	w.t.Helper()
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			line := strings.TrimPrefix(f.GetName(), "leasehold_")
			for _, l := range m.Label {
				if l.GetValue() != key {
					line += " " + l.GetValue()
				}
			}
			switch {
			case m.Histogram != nil && m.Histogram.GetSampleCount() > 0:
				lines = append(lines, fmt.Sprintf("%s: %d in %.2f", line, m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum()))
			case m.Counter != nil && m.Counter.GetValue() > 0:
				lines = append(lines, fmt.Sprintf("%s: %v", line, m.Counter.GetValue()))
			case m.Gauge != nil:
				lines = append(lines, fmt.Sprintf("%s: %v", line, m.Gauge.GetValue()))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// zero returns the counts that are 0.
func (w *watched) zero() (names []string) {
	w.t.Helper()
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			if m.Counter != nil && m.Counter.GetValue() == 0 || m.Histogram != nil && m.Histogram.GetSampleCount() == 0 {
				line := f.GetName()
				for _, l := range m.Label {
					if l.GetName() != "key" {
						line += " " + l.GetValue()
					}
				}
				names = append(names, line)
			}
		}
	}
	return names
}

func TestATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		stop := alice.elect("alice")
		time.Sleep(30 * time.Millisecond) // reading takes 20
		require.Equal(t, []string{
			"leasehold_lost_total broken", "leasehold_lost_total corrupt", "leasehold_lost_total deleted",
			"leasehold_lost_total expired", "leasehold_lost_total taken_over",
			"leasehold_overruns_total",
			"leasehold_renewal_duration_seconds error", "leasehold_renewal_duration_seconds ok", "leasehold_renewal_duration_seconds timeout",
		}, alice.zero(), "what begins at 1 shows no increase")
		time.Sleep(time.Minute)
		require.Subset(t, alice.metrics(), []string{"leader: 1", "token: 1", "transitions_total: 1"})
		stop()

		var renewals int
		for _, line := range alice.metrics() {
			_, _ = fmt.Sscanf(line, "renewal_duration_seconds ok: %d", &renewals)
		}
		require.InDelta(t, 12, renewals, 1, "every 5 s")
		require.Equal(t, []string{
			"acquisition_duration_seconds: 1 in 0.02",
			"leader: 0",
			fmt.Sprintf("renewal_duration_seconds ok: %d in %.2f", renewals, float64(renewals)*0.05),
			fmt.Sprintf("renewal_remaining_seconds ok: %d in %.2f", renewals, float64(renewals)*11.95),
			"request_duration_seconds create ok: 1 in 0.00",
			"request_duration_seconds get not_exist: 1 in 0.02",
			fmt.Sprintf("request_duration_seconds update ok: %d in %.2f", renewals+1, float64(renewals+1)*0.05),
			"token: 1",
			"transitions_total: 1",
		}, alice.metrics())
	})
}

func TestAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		alice, bob := watch(t, mem), watch(t, mem)
		require.Empty(t, bob.metrics())
		stopAlice := alice.elect("alice")
		time.Sleep(time.Second)
		stopBob := bob.elect("bob")
		time.Sleep(time.Second)
		require.Subset(t, bob.metrics(), []string{"leader: 0", "token: 1", "transitions_total: 1"})

		stopAlice()
		time.Sleep(5 * time.Second)
		require.Subset(t, bob.metrics(), []string{"leader: 1", "token: 2", "transitions_total: 2"})
		require.Subset(t, alice.metrics(), []string{"leader: 0", "token: 1", "transitions_total: 1"})
		stopBob()
	})
}

func TestFailingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		alice.cut(fmt.Errorf("%w: access denied", leasehold.ErrPermanent))
		_, err := alice.lock(key, "alice").TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.Equal(t, []string{"leader: 0", "request_duration_seconds get permanent: 1 in 0.00"},
			alice.metrics(), "a token that is not known is not 0")

		alice.mend()
		lease, err := alice.lock(key, "alice").TryAcquire(t.Context())
		require.NoError(t, err)
		alice.cut(errors.New("connection reset"))
		time.Sleep(6 * time.Second)
		alice.mend()
		time.Sleep(time.Minute)
		metrics := strings.Join(alice.metrics(), "\n")
		found := regexp.MustCompile(`renewal_duration_seconds error: (\d+) in 0.00`).FindStringSubmatch(metrics)
		require.NotNil(t, found, metrics)
		require.NotEqual(t, "1", found[1])
		require.Contains(t, metrics, "\nrenewal_remaining_seconds error: "+found[1]+" in ")
		require.Contains(t, metrics, "\nrequest_duration_seconds update error: "+found[1]+" in 0.00\n")
		require.Contains(t, metrics, "\nleader: 1\n", "the lease was never lost")
		require.NotContains(t, metrics, "lost")
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestLost(t *testing.T) {
	for cause, harm := range map[string]func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string){
		"expired": func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string) {
			alice.cut(errors.New("taken over by a flood")) // stands in the error as well
		},
		"deleted": func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string) {
			o, err := mem.Get(t.Context(), key)
			require.NoError(t, err)
			require.NoError(t, mem.DeleteIfMatch(t.Context(), key, o.ETag))
		},
		"corrupt": func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string) {
			o, err := mem.Get(t.Context(), key)
			require.NoError(t, err)
			_, err = mem.PutIfMatch(t.Context(), key, []byte("not a record"), o.ETag)
			require.NoError(t, err)
		},
		"broken": func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string) {
			l, err := leasehold.NewLock(mem, key)
			require.NoError(t, err)
			require.NoError(t, l.Break(t.Context(), 1))
		},
		"taken_over": func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string) {
			l, err := leasehold.NewLock(mem, key, leasehold.WithManualRenewal(), leasehold.WithIdentity("the lock object was deleted"))
			require.NoError(t, err)
			require.NoError(t, l.Break(t.Context(), 1))
			_, err = l.TryAcquire(t.Context())
			require.NoError(t, err)
		},
	} {
		for _, key := range []string{"locks/reports", "not renewed in time", "taken over by/broken by an administrator"} {
			t.Run(cause+" "+key, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mem := leasehold.NewMemStore()
					alice := watch(t, mem)
					lease, err := alice.lock(key, "alice").TryAcquire(t.Context())
					require.NoError(t, err)
					require.Contains(t, alice.metrics(), strings.Replace("leader "+key+": 1", " "+"locks/reports", "", 1))
					harm(t, alice, mem, key)
					<-lease.Context().Done()
					synctest.Wait()
					metrics := strings.ReplaceAll(strings.Join(alice.metrics(), "\n"), " "+key, "")
					require.Contains(t, metrics, "\nlost_total "+cause+": 1\n")
					require.Equal(t, 1, strings.Count(metrics, "\nlost_total "))
					require.Contains(t, metrics, "\nleader: 0\n")
				})
			})
		}
	}
}

func TestOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		err := alice.lock(key, "alice").Do(t.Context(), func(context.Context, *leasehold.Lease) error {
			alice.cut(errors.New("connection reset"))
			time.Sleep(time.Minute) // does not look at its context
			return nil
		})
		require.ErrorIs(t, err, leasehold.ErrLost)
		require.Subset(t, alice.metrics(), []string{"overruns_total: 1", "lost_total expired: 1", "leader: 0"})
	})
}

func TestAReleaseThatDoesNotGetThrough(t *testing.T) {
	for _, renewed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			mem := &leasehold.MemStore{ServerClock: true}
			alice, bob := watch(t, mem), watch(t, mem)
			lock := alice.lock(key, "alice")
			lease, err := lock.TryAcquire(t.Context())
			require.NoError(t, err)
			if renewed {
				require.NoError(t, lease.Renew(t.Context()))
			}
			alice.cut(errors.New("connection reset"))
			require.Error(t, lease.Release(t.Context()))
			alice.mend()
			time.Sleep(time.Minute)
			if renewed {
				require.Contains(t, alice.metrics(), "leader: 0", "the lease has run out by itself")
			}
			stopBob := bob.elect("bob")
			time.Sleep(time.Second)
			_, err = lock.TryAcquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrHeld)
			require.Subset(t, alice.metrics(), []string{"leader: 0", "token: 2", "transitions_total: 2"})
			stopBob()
		})
	}
}

func TestTwoLocksOfAKeyCountAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		stop := alice.elect("alice")
		time.Sleep(time.Second)
		stopTwin := alice.elect("twin")
		time.Sleep(time.Minute)
		require.Subset(t, alice.metrics(), []string{"leader: 1", "token: 1", "transitions_total: 1"})
		stop()
		time.Sleep(time.Minute)
		require.Subset(t, alice.metrics(), []string{"leader: 1", "token: 2", "transitions_total: 2"})
		stopTwin()
		require.Contains(t, alice.metrics(), "leader: 0")
	})
}

func TestOneCollectorForManyLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, leasehold.NewMemStore())
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				err := w.lock(fmt.Sprint("locks/", i), "alice").Do(t.Context(), func(context.Context, *leasehold.Lease) error {
					time.Sleep(time.Minute)
					_ = w.metrics()
					return nil
				})
				require.NoError(t, err)
			})
		}
		wg.Wait()
		for i := range 8 {
			require.Subset(t, w.metrics(), []string{fmt.Sprintf("leader locks/%d: 0", i), fmt.Sprintf("transitions_total locks/%d: 1", i)})
		}
	})
}

// everything is a process that has seen all there is to see.
func everything(t *testing.T) (w *watched) {
	synctest.Test(t, func(t *testing.T) {
		w = watch(t, leasehold.NewMemStore())
		require.Error(t, w.lock(key, "alice").Do(t.Context(), func(context.Context, *leasehold.Lease) error {
			w.cut(errors.New("connection reset"))
			time.Sleep(time.Minute)
			return nil
		}))
	})
	return w
}

func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(everything(t).registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	for name := range exported(t) { // others may have a leader_election_master_status in the same registry
		require.True(t, strings.HasPrefix(name, "leasehold_"), name)
	}
}

// exported returns kind and labels of each metric.
func exported(t *testing.T) map[string]string {
	t.Helper()
	families, err := everything(t).registry.Gather()
	require.NoError(t, err)
	all := map[string]string{}
	for _, f := range families {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		slices.Sort(labels)
		all[f.GetName()] = strings.ToLower(f.GetType().String()) + " | " + strings.Join(labels, ", ")
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(body)
}

// Package rulestest takes the names from the table that this test checks.
func TestReadmeTable(t *testing.T) {
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+ \\| [^|]*) \\|").FindAllStringSubmatch(read(t, "README.md"), -1) {
		listed[m[1]] = m[2]
	}
	require.Equal(t, exported(t), listed)
}

func TestReadmeAlerts(t *testing.T) {
	page := read(t, "README.md")
	alerts := regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(read(t, "alerts.yml"), -1)
	require.NotEmpty(t, alerts)
	for _, m := range alerts {
		require.Contains(t, page, "\n| `"+m[1]+"` | ")
	}
	require.Equal(t, len(alerts), strings.Count(page, "\n| `Leasehold"))
}

// The expressions themselves are parsed, and the alerts run, by package rulestest, which is a module of its own.
func TestDashboardAndAlertsUseWhatIsExported(t *testing.T) {
	require.True(t, json.Valid([]byte(read(t, "dashboard.json"))))
	all := exported(t)
	used := map[string]bool{}
	for _, name := range []string{"dashboard.json", "alerts.yml"} {
		for _, m := range regexp.MustCompile(`\bleasehold_\w+`).FindAllString(read(t, name), -1) {
			metric := regexp.MustCompile(`_(count|sum|bucket)$`).ReplaceAllString(m, "")
			require.Contains(t, all, metric, name)
			used[metric] = true
		}
	}
	for metric := range all {
		require.True(t, used[metric], "%s is of no use to anybody", metric)
	}
}
