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

// ErrAlreadyRan says that a job is not run here because another instance has had its turn.
var ErrAlreadyRan = errors.New("gocronlock: already ran")

// Locker is a [gocron.Locker] on a store: one lock object per job. A job runs under a lease, which is renewed while it
// runs; when it begins, the time that the instance's wall clock tells is committed to the lock object, and stays there after the
// release. That is what keeps an instance that comes late from doing the run again: gocron calls the locker at the time of
// the slot by the instance's own clock, so for one slot all clocks show the same, however far they are apart.
//
// So each slot of a job with fixed times, such as a cron job, runs once at most, and exactly once if nothing fails. If the
// instance that runs it crashes, that run is not repeated; slots until its lease has run out are skipped, and so are those that
// come while the job still runs. Jobs that each instance times from its own start (DurationJob without WithStartAt) have no
// slots in common: of them, runs are a spacing apart at least.
//
// It is safe for concurrent use.
type Locker struct {
	store   leasehold.Store
	prefix  string
	spacing time.Duration
	opts    []leasehold.Option
	now     func() time.Time

	mu    sync.Mutex // guards what follows; never held over I/O
	locks map[string]*leasehold.Lock
	runs  map[string]*leasehold.Lease // by job, those that run here
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
		store: store, prefix: prefix, spacing: spacing, opts: slices.Clone(opts), now: time.Now,
		locks: map[string]*leasehold.Lock{}, runs: map[string]*leasehold.Lease{},
	}
	if _, err := leasehold.NewLock(store, l.Key("job"), opts...); err != nil {
		return nil, fmt.Errorf("gocronlock: %w", err)
	}
	return l, nil
}

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
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	began := l.now().Round(0) // before any request: this is when the slot is
	lock, err := l.lock(job)
	if err != nil {
		return nil, err
	}
	rec, err := lock.Inspect(ctx)
	if err == nil {
		err = l.due(job, rec, began)
	}
	if err != nil && !errors.Is(err, leasehold.ErrNotExist) {
		return nil, err
	}
	lease, err := lock.TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	if err = l.due(job, lease.Record(), began); err == nil { // it may have run since
		err = lease.Commit(ctx, encode(began))
	}
	if err != nil {
		return nil, errors.Join(err, lease.Release(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[job] = lease
	return run{l, job, lease}, nil
}

// Lease returns the lease under which a job runs here, or nil: for its fencing token, and for its context, which ends when
// the job must. A job that outlives its lease, because the store was out of reach for long, is not stopped by gocron.
func (l *Locker) Lease(job string) *leasehold.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[job]
}

// lock returns the one lock of a job.
func (l *Locker) lock(job string) (*leasehold.Lock, error) {
	if job == "" {
		return nil, errors.New("gocronlock: the job has no name: give it one with gocron.WithName")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.locks[job]
	if lock == nil {
		var err error
		if lock, err = leasehold.NewLock(l.store, l.Key(job), l.opts...); err != nil {
			return nil, fmt.Errorf("gocronlock: job %q: %w", job, err)
		}
		l.locks[job] = lock
	}
	return lock, nil
}

// due returns nil if a run at the time now is not the one that rec tells of.
func (l *Locker) due(job string, rec leasehold.Record, now time.Time) error {
	if len(rec.Payload) == 0 {
		return nil
	}
	last, err := decode(rec.Payload)
	if err != nil {
		return fmt.Errorf("gocronlock: object %q holds something else than the last run of a job: %w", l.Key(job), err)
	}
	if now.Sub(last).Abs() < l.spacing { // a last run that is far ahead is of a broken clock, and must not stop the job
		return fmt.Errorf("%w: job %q at %s, by %q", ErrAlreadyRan, job, last.Format(time.RFC3339Nano), rec.Holder)
	}
	return nil
}

// lastRun is the payload of a job's lock object.
type lastRun struct {
	Began time.Time `json:"began"`
}

func encode(began time.Time) []byte {
	text, _ := json.Marshal(lastRun{began.UTC()}) // a time of a clock, which always has four digits to its year
	return text
}

func decode(payload []byte) (time.Time, error) {
	var run lastRun
	err := json.Unmarshal(payload, &run)
	if err == nil && run.Began.IsZero() {
		err = fmt.Errorf("no time in %.80q", payload)
	}
	return run.Began, err
}

// run is one run of a job.
type run struct {
	l     *Locker
	job   string
	lease *leasehold.Lease
}

// Unlock implements [gocron.Lock]. gocron calls it after the job, and drops its error.
func (r run) Unlock(ctx context.Context) error {
	r.l.mu.Lock()
	if r.l.runs[r.job] == r.lease { // and not that of a run which began after this one had lost its lease
		delete(r.l.runs, r.job)
	}
	r.l.mu.Unlock()
	return r.lease.Release(ctx)
}
