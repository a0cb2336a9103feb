package leasehold_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// slow is a store whose answers take a while, and which tells ages as S3 does, by dates of whole seconds.
type slow struct {
	leasehold.Store
	wrote time.Time // when a write last landed
	dead  atomic.Bool
}

func (s *slow) pause() { time.Sleep(time.Duration(10+rand.IntN(30)) * time.Millisecond) }

func (s *slow) Get(ctx context.Context, key string) (leasehold.Object, error) {
	s.pause()
	o, err := s.Store.Get(ctx, key)
	o.Age = max(o.Age.Truncate(time.Second)-2*time.Second, 0)
	return o, err
}

func (s *slow) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if s.dead.Load() {
		return "", context.DeadlineExceeded
	}
	s.pause()
	s.wrote = time.Now()
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

// How long nobody leads after a crash, from the last renewal on, at the defaults and with wall clocks an hour apart.
func TestTakeoverTime(t *testing.T) {
	const ttl = 15 * time.Second
	var times []time.Duration
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			mem := leasehold.NewMemStore()
			alice := &slow{Store: mem}
			e, err := leasehold.NewElector(newLock(t, alice), leasehold.Callbacks{})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- e.Run(ctx) }()
			time.Sleep(time.Minute)
			led := make(chan time.Time)
			go func() {
				lease, err := newLock(t, &slow{Store: mem}).Acquire(t.Context())
				require.NoError(t, err)
				at := time.Now()
				require.NoError(t, lease.Release(t.Context()))
				led <- at
			}()
			time.Sleep(time.Minute + time.Duration(rand.Int64N(int64(ttl))))
			alice.dead.Store(true)
			at := <-led
			times = append(times, at.Sub(alice.wrote))
			cancel()
			<-ended
		})
	}
	slices.Sort(times)
	t.Logf("median %v, 99 %% %v, most %v", times[len(times)/2], times[len(times)*99/100], times[len(times)-1])
	require.LessOrEqual(t, times[len(times)/2], ttl*105/100)
	require.LessOrEqual(t, times[len(times)*99/100], ttl+ttl/5)
	require.GreaterOrEqual(t, times[0], ttl*102/100, "never before its time")
}

// Locks that were taken at one moment are not renewed at one moment: servers refuse storms.
func TestLocksTakenTogetherAreNotRenewedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locks = 500
		mem, began := leasehold.NewMemStore(), time.Now()
		var mu sync.Mutex
		renewals := map[time.Duration]int{}
		var leases []*leasehold.Lease
		for i := range locks {
			l, err := leasehold.NewLock(mem, fmt.Sprint("locks/", i), leasehold.WithObserver(func(e leasehold.Event) {
				if e.Kind == leasehold.EventRenewed {
					mu.Lock()
					defer mu.Unlock()
					renewals[time.Since(began).Truncate(100*time.Millisecond)]++
				}
			}))
			require.NoError(t, err)
			leases = append(leases, acquire(t, l))
		}
		time.Sleep(time.Minute)
		most := 0
		mu.Lock()
		for _, n := range renewals {
			most = max(most, n)
		}
		mu.Unlock()
		t.Logf("%d renewals in the busiest tenth of a second, %d on average", most, locks/50)
		require.LessOrEqual(t, most, locks/10)
		for _, lease := range leases {
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}
