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
	// ErrAlreadyRan says that a job does not run here because another instance has already run this
	// slot.
	ErrAlreadyRan = errors.New("gocronlock: already ran")
	// ErrSameName says that a job does not run because another job of the same scheduler has the
	// same name.
	ErrSameName = errors.New("gocronlock: two jobs have the same name")
)

// Locker is a [gocron.Locker] on a store, with one lock object per job. A job runs under a lease,
// which is renewed while the job runs. When a run begins, the Locker commits the time of the run,
// by the instance's wall clock, to the lock object. The time remains there after the release, so a
// late instance does not repeat the run. gocron calls the locker at the time of the slot by the
// instance's own clock. So for one slot all instances read the same time, however much their clocks
// differ.
//
// So each slot of a job with fixed times, such as a cron job, runs at most once, and exactly once
// if nothing fails. Slots that come while the job still runs are skipped. If the instance that runs
// the job crashes, that run is not repeated, and slots are skipped until its lease has expired. The
// next slot starts up to a TTL late, because no instance can be certain of the crash before.
//
// Jobs that each instance times from its own start (DurationJob without WithStartAt) have no common
// slots. Between runs of such a job on different instances there is at least one spacing.
//
// A run that is started with RunNow of gocron's Job does not use up the next slot: the same
// instance runs that slot too. A RunNow less than a spacing after a run on another instance fails
// with [ErrAlreadyRan].
//
// gocron passes only the name of a job to a locker. Two jobs of one scheduler with the same name
// would share one lock object and take each other's slots, so the second job gets [ErrSameName] as
// long as the first job is scheduled. Give each scheduler a separate Locker, because for a shared
// Locker the same job of two schedulers looks like two jobs.
//
// A Locker is safe for concurrent use.
type Locker struct {
	newLock func(key string) (*leasehold.Lock, error)
	prefix  string
	spacing time.Duration
	clock   Clock

	mu   sync.Mutex // guards what follows; never held over I/O
	jobs map[string]*job
}

// Clock returns the time. The clock that you pass to [gocron.WithClock] is a Clock. A Clock must be
// safe for concurrent use.
type Clock interface{ Now() time.Time }

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

// job is what a locker knows about the jobs with one name.
type job struct {
	lock  *leasehold.Lock
	lease *leasehold.Lease // of the run on this instance; nil if there is none
	mine  []time.Time      // when the latest runs on this instance began
	done  <-chan struct{}  // closed when gocron stops, removes or replaces the job that called last
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a locker whose lock objects are below prefix, a path without a slash at its
// end.
//
// If the times of two runs of one job differ by less than spacing, the runs count as one. Use half
// the shortest interval between two slots of any job. spacing must be positive, and longer than the
// delay with which a slot may start. Clocks may differ by up to the interval. If they differ by
// more, slots run twice. If the intervals of jobs differ much, give each job its own locker with
// gocron.WithDistributedJobLocker.
//
// opts are options of [leasehold.NewLock], whose limits and errors apply. NewLocker sends no
// request.
func NewLocker(store leasehold.Store, prefix string, spacing time.Duration, opts ...leasehold.Option) (*Locker, error) {
	if spacing <= 0 {
		return nil, fmt.Errorf("gocronlock: spacing %v must be positive (use half the shortest interval between "+
			"two slots)", spacing)
	}
	opts = slices.Clone(opts)
	newLock := func(key string) (*leasehold.Lock, error) { return leasehold.NewLock(store, key, opts...) }
	l := &Locker{newLock: newLock, prefix: prefix, spacing: spacing, clock: wallClock{}, jobs: map[string]*job{}}
	if _, err := newLock(l.Key("job")); err != nil {
		return nil, err
	}
	return l, nil
}

// SetClock sets the clock by which the locker distinguishes slots. Pass the clock of
// [gocron.WithClock] that the scheduler has. The default is the wall clock. Leases are always timed
// by the real clocks. Call SetClock before the scheduler starts. It panics if c is nil.
func (l *Locker) SetClock(c Clock) {
	if c == nil {
		panic("gocronlock: the clock of SetClock is nil (pass the clock of gocron.WithClock, or leave SetClock out " +
			"for the wall clock)")
	}
	l.clock = c
}

// Key returns the key of a job's lock object: the prefix, a slash, and the job's name, which is
// escaped as in a URL path.
func (l *Locker) Key(job string) string {
	name := url.PathEscape(job)
	if name == "." || name == ".." { // some stores take these for directories
		name = "%2E" + name[1:]
	}
	return l.prefix + "/" + name
}

// Lock implements [gocron.Locker]. If another instance has the run, the error matches
// [ErrAlreadyRan] or [leasehold.ErrHeld]. If another job has the same name, it matches
// [ErrSameName]. Other errors come from the store. After an error, gocron skips the run and passes
// the error to the job's AfterLockError listener. Lock sends 1 or 2 reads, and 2 writes if this
// instance gets the run. Unlock adds 1 write.
//
// If the last holder seems to have crashed, Lock watches until the crash is certain, which takes
// the holder's TTL and some reads: see [leasehold.Lock.TryAcquire]. If that would take longer than
// the spacing, Lock returns an error that says so at once.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	began := l.clock.Now().Round(0) // the time of the slot, so it is read before any request
	j, err := l.job(ctx, name)
	if err != nil {
		return nil, err
	}
	lease, err := l.try(ctx, name, j, began)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	j.lease, j.mine = lease, latest(began, j.mine)
	return run{l, j, lease}, nil
}

// try acquires the lock for the run that begins at the time began, unless that run was already
// done, and notes it there.
func (l *Locker) try(ctx context.Context, name string, j *job, began time.Time) (*leasehold.Lease, error) {
	rec, err := j.lock.Inspect(ctx)
	if err == nil {
		_, err = l.due(name, j, rec, began)
	}
	if err != nil && !errors.Is(err, leasehold.ErrNotExist) {
		return nil, err
	}
	// A holder that seems gone is watched, but not for longer than the slot lasts.
	watching, cancel := context.WithTimeout(ctx, l.spacing)
	defer cancel()
	lease, err := j.lock.TryAcquire(watching)
	if err != nil {
		return nil, err
	}
	before, err := l.due(name, j, lease.Record(), began) // another instance may have run the slot since the first read
	if err == nil {
		err = lease.Commit(ctx, encode(began, before))
	}
	if err != nil {
		return nil, errors.Join(err, lease.Release(ctx))
	}
	return lease, nil
}

// Lease returns the lease under which a job runs on this instance, or nil if it does not run. Use
// it for the fencing token, and for its context, which ends when the job must stop. gocron does not
// stop a job that outlives its lease, as can happen if the store cannot be reached for a long time.
func (l *Locker) Lease(job string) *leasehold.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := l.jobs[job]; j != nil {
		return j.lease
	}
	return nil
}

// job returns the entry of a name. Two jobs with the same name are distinguished by their contexts,
// because gocron gives each job its own.
func (l *Locker) job(ctx context.Context, name string) (*job, error) {
	if name == "" {
		return nil, errors.New("gocronlock: the job has no name (set one with gocron.WithName)")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[name]
	if j == nil {
		lock, err := l.newLock(l.Key(name))
		if err != nil {
			return nil, err
		}
		j = &job{lock: lock}
		l.jobs[name] = j
	}
	// compare channels, because a wrapper of the job's context has the same one
	if j.done != ctx.Done() && j.done != nil {
		select {
		case <-j.done:
		default:
			return nil, fmt.Errorf("%w: %q (give each job its own name with gocron.WithName)", ErrSameName, name)
		}
	}
	j.done = ctx.Done()
	return j, nil
}

// due returns [ErrAlreadyRan] if rec shows that the run at the time now was already done. Otherwise
// it returns when the latest runs began.
func (l *Locker) due(name string, j *job, rec leasehold.Record, now time.Time) ([]time.Time, error) {
	if len(rec.Payload) == 0 {
		return nil, nil
	}
	runs, err := decode(rec.Payload)
	if err != nil {
		return nil, fmt.Errorf("gocronlock: the payload of lock object %q is not a record of job runs, so another "+
			"program uses this key (choose another prefix or job name): %w", l.Key(name), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, began := range runs {
		// A scheduler reaches each slot once, so a run on this instance was another slot, or no
		// slot at all.
		here := slices.ContainsFunc(j.mine, began.Equal)
		// a time far in the future comes from a wrong clock, and must not stop the job
		if !here && now.Sub(began).Abs() < l.spacing {
			return nil, fmt.Errorf("%w: job %q at %s; the last holder was %q", ErrAlreadyRan, name,
				began.Format(time.RFC3339Nano), rec.Holder)
		}
	}
	return runs, nil
}

// kept is how many runs the lock object records. With only the last one, a run outside a slot would
// hide the slot before it from a late instance.
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
	text, _ := json.Marshal(lastRuns{runs[0], runs[1:]}) // fails only for years that do not have four digits
	return text
}

func decode(payload []byte) ([]time.Time, error) {
	var runs lastRuns
	err := json.Unmarshal(payload, &runs)
	if err == nil && runs.Began.IsZero() {
		err = fmt.Errorf("%.80q has no time of a run", payload)
	}
	return append([]time.Time{runs.Began}, runs.Before...), err
}

// run is one run of a job.
type run struct {
	l     *Locker
	job   *job
	lease *leasehold.Lease
}

// Unlock implements [gocron.Lock]. gocron calls it after the job and ignores its error.
func (r run) Unlock(ctx context.Context) error {
	r.l.mu.Lock()
	if r.job.lease == r.lease { // not the lease of a run that began after this one had lost its own
		r.job.lease = nil
	}
	r.l.mu.Unlock()
	return r.lease.Release(ctx)
}
