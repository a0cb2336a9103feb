package leasehold_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// seconds is for how long to go on: STRESS, or half a second.
func seconds(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("STRESS"), "500ms"))
	require.NoError(t, err)
	return d
}

// Lease.Do begun at the moment of Release: it must be refused, or keep the next term of the Lock out.
func TestStressDoAgainstRelease(t *testing.T) {
	end := time.Now().Add(seconds(t))
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), key, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	var s section
	rounds, ran := 0, atomic.Int64{}
	for ; time.Now().Before(end); rounds++ {
		lease, err := lock.TryAcquire(context.Background())
		if err != nil {
			runtime.Gosched()
			continue
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_ = lease.Do(context.Background(), func(context.Context, *leasehold.Lease) error {
					s.enter()
					defer s.leave()
					ran.Add(1)
					time.Sleep(20 * time.Microsecond)
					return nil
				})
			})
		}
		_ = lease.Release(context.Background())
		next, err := lock.TryAcquire(context.Background())
		if err == nil {
			s.enter()
			time.Sleep(20 * time.Microsecond)
			s.leave()
			_ = next.Release(context.Background())
		}
		wg.Wait()
	}
	t.Log(rounds, "rounds", ran.Load(), "functions")
	require.Zero(t, s.overlaps.Load())
}

// shaky fails, loses replies and delays at random.
type shaky struct{ leasehold.Store }

func (s shaky) Describe() leasehold.StoreInfo { return leasehold.StoreInfo{MinTTL: time.Millisecond} }

var errShaky = errors.New("shaky")

func shake[T any](ctx context.Context, f func() (T, error)) (T, error) {
	var none T
	if rand.IntN(20) == 0 {
		return none, errShaky
	}
	if rand.IntN(60) == 0 { // hangs
		if rand.IntN(2) == 0 {
			_, _ = f()
		}
		<-ctx.Done()
		return none, ctx.Err()
	}
	time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	got, err := f()
	if rand.IntN(20) == 0 {
		return none, errShaky
	}
	return got, err
}

func (s shaky) Get(ctx context.Context, k string) (leasehold.Object, error) {
	return shake(ctx, func() (leasehold.Object, error) { return s.Store.Get(context.Background(), k) })
}
func (s shaky) PutIfNoneMatch(ctx context.Context, k string, b []byte) (string, error) {
	return shake(ctx, func() (string, error) { return s.Store.PutIfNoneMatch(context.Background(), k, b) })
}
func (s shaky) PutIfMatch(ctx context.Context, k string, b []byte, e string) (string, error) {
	return shake(ctx, func() (string, error) { return s.Store.PutIfMatch(context.Background(), k, b, e) })
}

// Everything at once, for the race detector: three Locks, each with electors and goroutines of every kind.
func TestStressEverything(t *testing.T) {
	everything(t, seconds(t), true)
}

// The same in virtual time, which makes many more terms.
func TestStressEverythingVirtually(t *testing.T) {
	virtual := 10 * seconds(t)
	synctest.Test(t, func(t *testing.T) { everything(t, virtual, false) })
}

func everything(t *testing.T, length time.Duration, real bool) {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	mem := leasehold.NewMemStore()
	var leases sync.Map // *Lease -> Lock number
	var valid, terms, starts, stops atomic.Int64
	took := func(lease *leasehold.Lease) {
		terms.Add(1)
		if !lease.Valid() {
			return
		}
		leases.Range(func(k, _ any) bool {
			if other := k.(*leasehold.Lease); other != lease && other.Valid() && lease.Valid() {
				valid.Add(1)
			}
			return true
		})
		leases.Store(lease, true)
	}
	over := func(lease *leasehold.Lease) { leases.Delete(lease) }
	var wg sync.WaitGroup
	sections := make([]section, 3)
	for i := range 3 {
		lock, err := leasehold.NewLock(shaky{mem}, key, withClock(newBrokenClock()), leasehold.WithLogger(slog.New(slog.DiscardHandler)), leasehold.WithTTL(60*time.Millisecond), leasehold.WithPollInterval(5*time.Millisecond),
			leasehold.WithIdentity(fmt.Sprint("l", i)), leasehold.WithObserver(func(_ context.Context, _ leasehold.Event) {}))
		require.NoError(t, err)
		s := &sections[i]
		work := func(ctx context.Context, lease *leasehold.Lease) error {
			took(lease)
			defer over(lease)
			s.enter()
			defer s.leave()
			switch rand.IntN(6) {
			case 0:
				_ = lease.Commit(ctx, []byte("x"))
			case 1:
				_ = lease.Renew(ctx)
			case 2:
				_ = lease.Release(ctx)
				time.Sleep(time.Millisecond)
			case 3:
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
				time.Sleep(5 * time.Millisecond)
			case 4:
				_ = lease.Do(ctx, nil)
				_ = lease.Record()
				_ = lease.Deadline()
			}
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			return nil
		}
		for range 2 {
			var e *leasehold.Elector
			e, err = leasehold.NewElector(lock, leasehold.Callbacks{
				OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
					starts.Add(1)
					_ = work(ctx, lease)
					leases.Store(lease, true) // it leads on, for a while
					wg.Go(func() {
						time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
						over(lease)
						_ = e.Resign(ctx)
					})
				},
				OnStoppedLeading: func(error) { stops.Add(1) },
				OnNewLeader:      func(leasehold.Record) {},
			})
			require.NoError(t, err)
			wg.Go(func() {
				if err := e.Run(ctx); err != nil && !errors.Is(err, errShaky) && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = e.Leader()
					_ = e.IsLeader()
					_ = e.Check(nil)
					_, err := lock.Inspect(ctx)
					if err != nil && !errors.Is(err, errShaky) && !errors.Is(err, leasehold.ErrNotExist) && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				some, stop := context.WithTimeout(ctx, time.Duration(rand.IntN(100))*time.Millisecond)
				err := lock.Do(some, work)
				stop()
				if err != nil && (errors.Is(err, leasehold.ErrPreconditionFailed) || errors.Is(err, leasehold.ErrPermanent)) {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := lock.TryAcquire(ctx)
				if err != nil {
					if errors.Is(err, leasehold.ErrPreconditionFailed) {
						t.Error(err)
					}
					time.Sleep(2 * time.Millisecond)
					continue
				}
				switch rand.IntN(3) {
				case 0:
					_ = lease.Do(ctx, work)
				case 1:
					took(lease)
					time.Sleep(2 * time.Millisecond)
					over(lease)
					_ = lease.Release(ctx)
				case 2: // dropped, or lost
					took(lease)
					over(lease)
					if !real {
						_ = lease.Release(ctx)
					}
				}
			}
		})
		wg.Go(func() {
			for range lock.Watch(ctx) {
			}
		})
	}
	stop := make(chan struct{})
	go func() {
		for real {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				runtime.GC()
			}
		}
	}()
	wg.Wait()
	close(stop)
	t.Log(terms.Load(), "terms,", starts.Load(), "starts")
	require.Equal(t, starts.Load(), stops.Load())
	require.Zero(t, valid.Load(), "valid leases at once")
	for i := range sections {
		require.Zero(t, sections[i].overlaps.Load(), "functions of one Lock at once")
	}
}

// Locks acquired at the same moment are not renewed at the same moment, because servers refuse storms of requests.
func TestLocksTakenTogetherAreNotRenewedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locks = 500
		mem, began := leasehold.NewMemStore(), time.Now()
		var mu sync.Mutex
		renewals := map[time.Duration]int{}
		var leases []*leasehold.Lease
		for i := range locks {
			l, err := leasehold.NewLock(mem, fmt.Sprint("locks/", i), leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
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
