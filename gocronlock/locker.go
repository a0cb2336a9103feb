package gocronlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold"
)

var (
	// ErrAlreadyRan says that a job is not run here because another instance has had its turn.
	ErrAlreadyRan = errors.New("gocronlock: already ran")
	// ErrSameName says that a job is not run because another job of the same scheduler has its name.
	ErrSameName = errors.New("gocronlock: two jobs have the same name")
)

// Locker is a [gocron.Locker] on a store: one lock object per job. A job runs under a lease, which is renewed while it
// runs; when it begins, the time that the instance's wall clock tells is committed to the lock object, and stays there after the
// release. That is what keeps an instance that comes late from doing the run again: gocron calls the locker at the time of
// the slot by the instance's own clock, so for one slot all clocks show the same, however far they are apart.
//
// So each slot of a job with fixed times, such as a cron job, runs once at most, and exactly once if nothing fails. If the
// instance that runs it crashes, that run is not repeated; slots until its lease has run out are skipped, and so are those that
// come while the job still runs. Jobs that each instance times from its own start (DurationJob without WithStartAt) have no
// slots in common: of them, runs of different instances are a spacing apart at least.
//
// A run by RunNow of gocron's Job does not take away the next slot: the instance that made it runs the slot, too. Less than a
// spacing after a run on another instance it is refused with [ErrAlreadyRan].
//
// gocron tells a locker no more of a job than its name. Two jobs of one scheduler that have the same name would share one lock
// object and take each other's slots, so the one that comes second is refused with [ErrSameName] for as long as the first is
// scheduled. Give each scheduler a Locker of its own: with one for two schedulers, the same job in both looks like two jobs.
//
// It is safe for concurrent use.
type Locker struct {
	store   leasehold.Store
	prefix  string
	spacing time.Duration
	opts    []leasehold.Option
	clock   Clock

	mu   sync.Mutex // guards what follows; never held over I/O
	jobs map[string]*job
}

// Clock tells the time. That of [gocron.WithClock] is one.
type Clock interface{ Now() time.Time }

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

// job is what a locker knows of the jobs of one name.
type job struct {
	lock  *leasehold.Lock
	lease *leasehold.Lease // under which it runs here; nil if it does not
	mine  []time.Time      // when the latest runs here began
	done  <-chan struct{}  // is closed when gocron stops, removes or replaces the job that came last
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a locker whose objects stand below prefix, a path without a slash at its end. Two runs of one job whose
// times are less than spacing apart count as one: half the shortest interval between two slots of any job is right. It must
// be more than what the start of a slot may be late by. Clocks may be apart by up to the interval; beyond that, slots run twice.
// For jobs that differ much, give each a locker with gocron.WithDistributedJobLocker.
// Options, limits and errors are those of [leasehold.NewLock]. NewLocker sends no request.
func NewLocker(store leasehold.Store, prefix string, spacing time.Duration, opts ...leasehold.Option) (*Locker, error) {
	if spacing <= 0 {
		return nil, fmt.Errorf("gocronlock: spacing %v is not positive: use half the shortest interval between two slots", spacing)
	}
	l := &Locker{
		store: store, prefix: prefix, spacing: spacing, opts: slices.Clone(opts), clock: wallClock{}, jobs: map[string]*job{},
	}
	if _, err := leasehold.NewLock(store, l.Key("job"), opts...); err != nil {
		return nil, err
	}
	return l, nil
}

// SetClock gives the locker the clock that the scheduler has by [gocron.WithClock]. Without it, slots are told apart by the wall
// clock. Leases are always timed by the real clocks. Call it before the scheduler starts.
func (l *Locker) SetClock(c Clock) { l.clock = c }

// Key returns the key of a job's lock object: the prefix, a slash, and the job's name, escaped as in a URL path.
func (l *Locker) Key(job string) string {
	name := url.PathEscape(job)
	if name == "." || name == ".." { // which stores take for directories
		name = "%2E" + name[1:]
	}
	return l.prefix + "/" + name
}

// Lock implements [gocron.Locker]. Its error matches [ErrAlreadyRan] or [leasehold.ErrHeld] if the run is another's, or is
// the store's; gocron skips the run and hands the error to a job's AfterLockError listener. It sends 1 or 2 reads for a run
// that is another's, and 1 or 2 reads and 2 writes for one's own; Unlock adds 1 write.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	began := l.clock.Now().Round(0) // before any request: this is when the slot is
	j, err := l.job(ctx, name)
	if err != nil {
		return nil, err
	}
	rec, err := j.lock.Inspect(ctx)
	if err == nil {
		_, err = l.due(name, j, rec, began)
	}
	if err != nil && !errors.Is(err, leasehold.ErrNotExist) {
		return nil, err
	}
	lease, err := j.lock.TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	before, err := l.due(name, j, lease.Record(), began) // it may have run since
	if err == nil {
		err = lease.Commit(ctx, encode(began, before))
	}
	if err != nil {
		return nil, errors.Join(err, lease.Release(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	j.lease, j.mine = lease, latest(began, j.mine)
	return run{l, j, lease}, nil
}

// Lease returns the lease under which a job runs here, or nil: for its fencing token, and for its context, which ends when
// the job must. A job that outlives its lease, because the store was out of reach for long, is not stopped by gocron.
func (l *Locker) Lease(job string) *leasehold.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := l.jobs[job]; j != nil {
		return j.lease
	}
	return nil
}

// job returns the one entry of a name. gocron gives each job a context of its own, by which two jobs of one name are told apart.
func (l *Locker) job(ctx context.Context, name string) (*job, error) {
	if name == "" {
		return nil, errors.New("gocronlock: the job has no name: give it one with gocron.WithName")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[name]
	if j == nil {
		lock, err := leasehold.NewLock(l.store, l.Key(name), l.opts...)
		if err != nil {
			return nil, err
		}
		j = &job{lock: lock}
		l.jobs[name] = j
	}
	if j.done != ctx.Done() && j.done != nil { // a context with another value, say, has the same channel
		select {
		case <-j.done:
		default:
			return nil, fmt.Errorf("%w: %q: give each its own with gocron.WithName", ErrSameName, name)
		}
	}
	j.done = ctx.Done()
	return j, nil
}

// due returns an error if a run at the time now is one that rec tells of, else when the latest runs began.
func (l *Locker) due(name string, j *job, rec leasehold.Record, now time.Time) ([]time.Time, error) {
	if len(rec.Payload) == 0 {
		return nil, nil
	}
	runs, err := decode(rec.Payload)
	if err != nil {
		return nil, fmt.Errorf("gocronlock: object %q holds something else than the last run of a job: %w", l.Key(name), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, began := range runs {
		// A scheduler comes to each slot once, so what ran here was another slot, or no slot at all.
		here := slices.ContainsFunc(j.mine, began.Equal)
		if !here && now.Sub(began).Abs() < l.spacing { // one that is far ahead is of a broken clock, and must not stop the job
			return nil, fmt.Errorf("%w: job %q at %s; last by %q", ErrAlreadyRan, name, began.Format(time.RFC3339Nano), rec.Holder)
		}
	}
	return runs, nil
}

// kept is how many runs are remembered: a run outside a slot must not hide the slot before it from an instance that comes late.
const kept = 8

func latest(began time.Time, before []time.Time) []time.Time {
	all := append([]time.Time{began}, before...)
	return all[:min(len(all), kept)]
}

// lastRuns is the payload of a job's lock object.
type lastRuns struct {
	Began  time.Time   `json:"began"`
	Before []time.Time `json:"before,omitempty"` // the latest first
}

func encode(began time.Time, before []time.Time) []byte {
	runs := latest(began.UTC(), before)
	text, _ := json.Marshal(lastRuns{runs[0], runs[1:]}) // times of a clock, which always have four digits to their year
	return text
}

func decode(payload []byte) ([]time.Time, error) {
	var runs lastRuns
	err := json.Unmarshal(payload, &runs)
	if err == nil && runs.Began.IsZero() {
		err = fmt.Errorf("no time in %.80q", payload)
	}
	return append([]time.Time{runs.Began}, runs.Before...), err
}

// run is one run of a job.
type run struct {
	l     *Locker
	job   *job
	lease *leasehold.Lease
}

// Unlock implements [gocron.Lock]. gocron calls it after the job, and drops its error.
func (r run) Unlock(ctx context.Context) error {
	r.l.mu.Lock()
	if r.job.lease == r.lease { // and not that of a run which began after this one had lost its lease
		r.job.lease = nil
	}
	r.l.mu.Unlock()
	return r.lease.Release(ctx)
}
