package docs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// seeded is the clock of the machine with random numbers that are the same in each run.
type seeded struct {
	clock.Clock
	mu   sync.Mutex
	rand *rand.Rand
}

func (s *seeded) Rand() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.Float64()
}

func withSeed(seed, purpose uint64) leasehold.Option {
	return testopt.WithClock(&seeded{Clock: clock.System, rand: rand.New(rand.NewPCG(seed, purpose))})
}

// waited is what a candidate does in virtual time while another process leads for some minutes and
// then crashes or releases the lock.
func waited(t *testing.T, seed uint64, ttl, poll time.Duration, push, crash bool) (reads float64, free time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		objects := leasehold.NewMemStore()
		ours := teststore.New(objects, nil)
		candidate, err := leasehold.NewLock(ours, "locks/a", leasehold.WithTTL(ttl), leasehold.WithPollInterval(poll),
			withSeed(seed, 1), leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		var crashed atomic.Bool
		theirs := teststore.New(objects, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Op == teststore.Update && crashed.Load() {
				<-ctx.Done()
				return leasehold.Object{}, ctx.Err()
			}
			if r.Puts() && push {
				defer candidate.Wake()
			}
			return r.Send(ctx)
		})
		holder, err := leasehold.NewLock(theirs, "locks/a", leasehold.WithTTL(ttl), withSeed(seed, 2),
			leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		lease, err := holder.Acquire(t.Context())
		require.NoError(t, err)
		acquired := make(chan error)
		go func() {
			next, err := candidate.Acquire(t.Context())
			if err == nil {
				err = next.Release(t.Context())
			}
			acquired <- err
		}()
		time.Sleep(time.Minute)
		before := ours.Sent(teststore.Get)
		time.Sleep(10 * time.Minute)
		reads = float64(ours.Sent(teststore.Get)-before) / 10
		time.Sleep(time.Duration(rand.New(rand.NewPCG(seed, 3)).Int64N(int64(poll))))
		since := time.Now()
		if crash {
			crashed.Store(true)
			since = lease.Record().RenewedAt
		} else {
			require.NoError(t, lease.Release(t.Context()))
		}
		require.NoError(t, <-acquired)
		free = time.Since(since)
	})
	return reads, free
}

// TestWakeupsTable measures every row of the page's table again. With RENDER set it writes them.
func TestWakeupsTable(t *testing.T) {
	const ttl, trials = 15 * time.Second, 50
	page, err := os.ReadFile("handover.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (([\d.]+) s[^|]*) \| (yes|no) \| (.*)$`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 7)
	for _, row := range rows {
		poll, err := time.ParseDuration(row[2] + "s")
		require.NoError(t, err)
		var reads, released, crashed []float64
		for seed := range uint64(trials) {
			n, free := waited(t, seed, ttl, poll, row[3] == "yes", false)
			released = append(released, free.Seconds())
			reads = append(reads, n)
			_, free = waited(t, seed, ttl, poll, row[3] == "yes", true)
			crashed = append(crashed, free.Seconds()/ttl.Seconds())
		}
		const form = "%.1f | %.1f s | %.2f TTL (%.2f TTL) |"
		is := []any{median(reads), slices.Max(released), median(crashed), slices.Max(crashed)}
		if os.Getenv("RENDER") != "" {
			rendered := strings.TrimSuffix(row[0], row[4]) + fmt.Sprintf(form, is...)
			page = bytes.Replace(page, []byte(row[0]), []byte(rendered), 1)
			continue
		}
		var says [4]float64
		_, err = fmt.Sscanf(row[4], "%f | %f s | %f TTL (%f TTL) |", &says[0], &says[1], &says[2], &says[3])
		require.NoError(t, err)
		for i, tolerance := range []float64{1, 0.5, 0.03, 0.1} {
			require.InDelta(t, says[i], is[i], tolerance, "%s is %s", row[0], fmt.Sprintf(form, is...))
		}
	}
	if os.Getenv("RENDER") != "" {
		require.NoError(t, os.WriteFile("handover.md", page, 0o600))
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// The JSON of the page is valid.
func TestWakeupsJSON(t *testing.T) {
	page, err := os.ReadFile("handover.md")
	require.NoError(t, err)
	list := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(page, -1)
	require.Len(t, list, 2)
	for _, block := range list {
		require.True(t, json.Valid(block[1]), "%s", block[1])
	}
}
