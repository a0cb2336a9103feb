package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gocronlock"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// process is a gocron scheduler with its own locker.
type process struct {
	gocron.Scheduler
	locker *gocronlock.Locker
	mu     sync.Mutex
	runs   []string // job and second
	errs   []error  // from the locker
}

// begin makes a process whose clock is ahead by off. Call it in a synctest bubble.
func begin(t *testing.T, store leasehold.Store, off time.Duration) *process {
	t.Helper()
	return beginWith(t, newLocker(t, store), off)
}

func beginWith(t *testing.T, locker *gocronlock.Locker, off time.Duration) *process {
	t.Helper()
	p := &process{locker: locker}
	clock := wrongClock{clockwork.NewRealClock(), off}
	p.locker.SetClock(clock)
	var err error
	p.Scheduler, err = gocron.NewScheduler(gocron.WithDistributedLocker(p.locker), gocron.WithClock(clock),
		gocron.WithLocation(time.UTC))
	require.NoError(t, err)
	t.Cleanup(func() { p.Shutdown() })
	return p
}

// everyMinute adds a job with that name. The list of runs calls it what.
func (p *process) everyMinute(t *testing.T, name, what string) gocron.Job {
	t.Helper()
	job, err := p.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.runs = append(p.runs, fmt.Sprint(what, " ", time.Now().UTC().Format("04:05")))
	}), gocron.WithName(name), gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.errs = append(p.errs, err)
	})))
	require.NoError(t, err)
	return job
}

// seen returns the runs so far.
func (p *process) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.runs)
}

// failures returns the locker's errors so far.
func (p *process) failures() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.errs)
}

// to sleeps until the clock next shows this second of a minute. A bubble begins at midnight.
func to(second int) {
	time.Sleep(time.Duration((second-time.Now().Second()+59)%60+1) * time.Second)
	synctest.Wait()
}

func TestRunNowDoesNotConsumeASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		a, b := begin(t, mem, 0), begin(t, mem, 0)
		job := a.everyMinute(t, "job", "a")
		b.everyMinute(t, "job", "b")
		a.Start()
		b.Start()
		to(40)
		require.NoError(t, job.RunNow())
		to(10)
		require.Equal(t, []string{"a 00:40", "a 01:00"}, a.seen(), "a runs the slot, too")
		require.Empty(t, b.seen(), "the slot runs only once")
		to(20)
		require.NoError(t, job.RunNow())
		to(25)
		require.NoError(t, job.RunNow())
		for range 10 {
			to(10)
		}
		require.NoError(t, a.Shutdown())
		require.NoError(t, b.Shutdown())
		require.Len(t, append(a.seen(), b.seen()...), 2+2+10, "%v %v", a.seen(), b.seen())
	})
}

// In TestRunNowDoesNotHideASlot an instance whose clock is 45 s behind reaches a slot after another
// has run it and has then run the job once more with RunNow.
func TestRunNowDoesNotHideASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		a, late := begin(t, mem, 0), begin(t, mem, -45*time.Second)
		job := a.everyMinute(t, "job", "a")
		late.everyMinute(t, "job", "late")
		a.Start()
		late.Start()
		to(40)
		to(35)
		require.NoError(t, job.RunNow())
		to(50)
		require.Equal(t, []string{"a 01:00", "a 01:35"}, a.seen()[len(a.seen())-2:])
		require.NotContains(t, late.seen(), "late 01:45", "its 01:00, which was already run")
	})
}

func TestTwoJobsOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, leasehold.NewMemStore(), 0)
		first := p.everyMinute(t, "job", "first")
		p.Start()
		to(10)
		second := p.everyMinute(t, "job", "second")
		to(10)
		require.Len(t, p.seen(), 1)
		owner, _, _ := strings.Cut(p.seen()[0], " ") // whichever job was first
		for range 5 {
			to(10)
		}
		require.Len(t, p.failures(), 6)
		for _, err := range p.failures() {
			require.ErrorIs(t, err, gocronlock.ErrSameName)
			require.NotErrorIs(t, err, gocronlock.ErrAlreadyRan)
			require.ErrorContains(t, err, "gocron.WithName")
		}
		require.Len(t, p.seen(), 6)
		for _, run := range p.seen() {
			require.Contains(t, run, owner)
		}

		require.NoError(t, p.RemoveJob(first.ID()))
		require.NoError(t, p.RemoveJob(second.ID()))
		p.everyMinute(t, "job", "third")
		to(10)
		require.Contains(t, p.seen()[len(p.seen())-1], "third", "the name is free again")
	})
}

func TestTheSameJobWithAnotherValueInItsContext(t *testing.T) {
	type tag struct{}
	l := newLocker(t, leasehold.NewMemStore())
	for i := range 3 { // a wrapper around the locker might pass such contexts
		lock, err := l.Lock(context.WithValue(t.Context(), tag{}, i), "job")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

func TestLostRaceIsHeld(t *testing.T) {
	_, err := newLocker(t, teststore.Overtaken(leasehold.NewMemStore())).Lock(t.Context(), "job")
	require.ErrorIs(t, err, leasehold.ErrHeld)
	require.NotContains(t, err.Error(), "precondition")
}

// crash leaves the lock of a job as an instance does that crashed a moment ago.
func crash(t *testing.T, store leasehold.Store, key string, opts ...leasehold.Option) {
	t.Helper()
	lock, err := leasehold.NewLock(store, key, opts...)
	require.NoError(t, err)
	lease, err := lock.TryAcquire(t.Context())
	require.NoError(t, err)
	lease.Abandon()
}

func TestTheFirstSlotAfterACrashRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		processes := []*process{begin(t, mem, 0), begin(t, mem, 0), begin(t, mem, 10*time.Second)}
		crash(t, mem, processes[0].locker.Key("job"))
		for _, p := range processes {
			p.everyMinute(t, "job", "job")
			p.Start()
		}
		to(40) // the lease has expired 25 s ago, and nobody has looked at it
		for range 3 {
			to(40)
		}
		var runs []string
		for _, p := range processes {
			runs = append(runs, p.seen()...)
			for _, err := range p.failures() {
				if !errors.Is(err, gocronlock.ErrAlreadyRan) && !errors.Is(err, leasehold.ErrHeld) {
					t.Error(err)
				}
			}
		}
		require.Len(t, runs, 3, "%v: a run for each minute", runs)
	})
}

func TestShutdownEndsTheWaitAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		p := begin(t, mem, 0)
		crash(t, mem, p.locker.Key("job"))
		p.everyMinute(t, "job", "job")
		p.Start()
		to(40)
		to(2)
		require.Empty(t, p.failures(), "it waits")
		began := time.Now()
		require.NoError(t, p.Shutdown())
		require.Less(t, time.Since(began), time.Second)
		require.Empty(t, p.seen())
		for _, err := range p.failures() {
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, leasehold.ErrHeld)
		}
	})
}
