// Package k8slock lets Kubernetes' own leader election run on a bucket: client-go's leaderelection and the manager of
// controller-runtime elect one leader across clusters, or without any, through a [leasehold.Store].
//
//	lock, err := k8slock.New(store, "leaders/my-operator", k8slock.LeaseDuration)
//	leaderelection.RunOrDie(ctx, lock.Config(leaderelection.LeaderCallbacks{…}))
//
// client-go decides when to try; whether it may is decided by a [leasehold.Lock] below it. So every term has a fencing
// token, which client-go itself lacks, see [Lock.Token]; a write whose reply was lost is settled before client-go hears of
// it; and the lock object is leasehold's record like any other: its tools and locks can inspect, watch and break it, and
// exclude each other with client-go's candidates. No wall clock has to be right.
//
// Coordinated leader election (alpha in Kubernetes) is not supported: its candidates are objects of an API server.
package k8slock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasehold-go/leasehold"
)

// Intervals for a store that charges for every write. The leader sends 6 writes a minute, and a waiting candidate about
// 4 reads (client-go waits 1 to 2.2 times RetryPeriod): with 30 days to the month, 259,200 writes and 162,000 reads. At
// 0.005 USD for 1,000 writes and 0.0004 USD for 1,000 reads that is 1.30 USD and 0.07 USD a month. The defaults of
// controller-runtime, 15 s, 10 s and 2 s, cost five times as much.
//
// After a crash nobody leads for 73 s (median) or 92 s (p99), measured over 1,000 crashes by
//
//	go test -v -run TakeoverAfterACrash .
//
// That is LeaseDuration plus the time until client-go looks again, which it does every 10 to 22 s.
const (
	LeaseDuration = 60 * time.Second
	RenewDeadline = 40 * time.Second
	RetryPeriod   = 10 * time.Second
)

// Lock is a [resourcelock.Interface] on one object of a store. It belongs to one elector at a time, and takes its turns
// of leading from it; its methods are safe for concurrent use.
type Lock struct {
	lock     *leasehold.Lock
	store    *watchedStore
	duration time.Duration

	mu      sync.Mutex       // guards what follows; never held over I/O
	lease   *leasehold.Lease // of the term that client-go leads, lost or not; nil while it does not lead
	renewed time.Time        // when lease was acquired or renewed last
	failed  bool             // the last renewal failed, and not because its context was cancelled
	left    *leasehold.Lease // of the last term, if that was left to run out; nil if it was released or lost
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a lock at key. leaseDuration is that of the elector, in whole seconds as client-go counts them; an elector
// that has another one is refused when it tries. Options are those of [leasehold.NewLock], whose limits and errors apply;
// the TTL and manual renewal are set here. Of the others, [leasehold.WithIdentity], [leasehold.WithLogger],
// [leasehold.WithObserver], [leasehold.WithMetadata] and [leasehold.WithStoreCheck] are of use. The identity need not be
// unique: unlike client-go's own locks, two processes of one name exclude each other. New sends no request.
func New(store leasehold.Store, key string, leaseDuration time.Duration, opts ...leasehold.Option) (*Lock, error) {
	if store == nil {
		return nil, errors.New("k8slock: store is nil")
	}
	if leaseDuration < time.Second || leaseDuration%time.Second != 0 {
		return nil, fmt.Errorf("k8slock: lease duration %v: client-go counts in whole seconds, so give at least one, and no fractions", leaseDuration)
	}
	watched := &watchedStore{Store: store}
	opts = append(slices.Clone(opts), leasehold.WithTTL(leaseDuration), leasehold.WithManualRenewal())
	lock, err := leasehold.NewLock(watched, key, opts...)
	if err != nil {
		return nil, err
	}
	return &Lock{lock: lock, store: watched, duration: leaseDuration}, nil
}

// Config returns the configuration of an elector with this lock: its lease duration, two thirds of that as RenewDeadline,
// and a sixth as RetryPeriod, which for [LeaseDuration] are [RenewDeadline] and [RetryPeriod]. Its Name is the key.
// ReleaseOnCancel is left false: set it if all leading code has stopped when the elector's context ends.
func (l *Lock) Config(callbacks leaderelection.LeaderCallbacks) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock:          l,
		LeaseDuration: l.duration,
		RenewDeadline: l.duration * 2 / 3,
		RetryPeriod:   l.duration / 6,
		Callbacks:     callbacks,
		Name:          l.lock.Key(),
	}
}

// Token returns the fencing token of the term that this process leads: constant for the term, higher than that of every
// term before, whoever led it, and kept across releases. It is there before OnStartedLeading is called, and before a
// manager starts its runnables. It is 0, which no fence lets pass, if this process does not lead or its lease has run out.
func (l *Lock) Token() uint64 {
	if lease := l.Lease(); lease != nil && lease.Valid() {
		return lease.Token()
	}
	return 0
}

// Lease returns the lease of the term that client-go leads, or nil. It may be lost already: see [leasehold.Lease.Valid].
// It is client-go that renews and releases it; Commit, Context and Deadline are for everybody.
func (l *Lock) Lease() *leasehold.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease
}

// OnStartedLeading makes a callback for client-go of lead, which gets the lease and a context that ends with client-go's
// or with the lease, whichever is first. client-go's own context can outlive the right to lead: after it has seen another
// holder, it leads on for up to RenewDeadline. If the term is over before lead could be called, it is not.
func (l *Lock) OnStartedLeading(lead func(ctx context.Context, lease *leasehold.Lease)) func(context.Context) {
	return func(ctx context.Context) {
		lease := l.Lease()
		if lease == nil || ctx.Err() != nil { // the lease may be that of the next term
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		stop := context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })
		defer stop()
		lead(ctx, lease)
	}
}

// Get implements [resourcelock.Interface]. An object that does not exist is an error for which apierrors.IsNotFound is
// true. The bytes differ after every write, for client-go measures by them how long a record has stood.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	rec, err := l.lock.Inspect(ctx)
	if err != nil {
		if errors.Is(err, leasehold.ErrNotExist) {
			err = statusError{err, metav1.StatusReasonNotFound, http.StatusNotFound}
		}
		return nil, nil, err
	}
	raw, err := json.Marshal(rec)
	if err != nil {
		return nil, nil, err
	}
	ler := &resourcelock.LeaderElectionRecord{
		HolderIdentity:       cmp.Or(rec.Holder, "unknown"), // to client-go, none would be free
		LeaseDurationSeconds: int((cmp.Or(rec.TTL, l.duration) + time.Second - 1) / time.Second),
		AcquireTime:          metav1.NewTime(rec.AcquiredAt),
		RenewTime:            metav1.NewTime(rec.RenewedAt),
		LeaderTransitions:    int(max(rec.Token, 1) - 1),
	}
	// No holder means: try. Our name means to client-go that it leads already, so it is shown only if it does.
	expired := rec.TTL > 0 && l.store.lastAge() > rec.TTL
	if rec.Released() || l.Lease() == nil && (expired || rec.Holder == l.Identity()) {
		ler.HolderIdentity = ""
	}
	return ler, raw, nil
}

// Create implements [resourcelock.Interface]. If somebody else holds the lock by now, apierrors.IsAlreadyExists is true
// of the error, and it matches [leasehold.ErrHeld].
func (l *Lock) Create(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, ler, metav1.StatusReasonAlreadyExists)
}

// Update implements [resourcelock.Interface]: it acquires, renews or releases. An acquisition fails with
// [leasehold.ErrHeld], whatever client-go thinks, unless the lock is free by leasehold's rules; apierrors.IsConflict is then true
// of the error, also if another candidate was faster. A renewal is one request;
// what may pass is retried until ctx ends or the lease does. Once a term is lost, with [leasehold.ErrLost], it stays so
// until client-go has stopped leading: its next term has a new token.
func (l *Lock) Update(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, ler, metav1.StatusReasonConflict)
}

// write is Create and Update, which differ in what client-go is told of a lock that somebody else holds.
func (l *Lock) write(ctx context.Context, ler resourcelock.LeaderElectionRecord, held metav1.StatusReason) error {
	lease := l.Lease()
	switch {
	case ler.HolderIdentity == "" && lease == nil:
		return fmt.Errorf("k8slock: %w: lock %q: nothing to release", leasehold.ErrReleased, l.lock.Key())
	case ler.HolderIdentity == "":
		if err := lease.Release(ctx); err != nil {
			return err
		}
		l.setLease(nil)
		return nil
	case ler.HolderIdentity != l.Identity():
		return fmt.Errorf("k8slock: lock %q is %q's, not %q's: give all parts of the elector the Identity of this lock",
			l.lock.Key(), l.Identity(), ler.HolderIdentity)
	case ler.LeaseDurationSeconds != int(l.duration/time.Second):
		return fmt.Errorf("k8slock: lock %q was made for a LeaseDuration of %v, the elector has %d s: set both alike (in a manager's Options, too)",
			l.lock.Key(), l.duration, ler.LeaseDurationSeconds)
	case lease != nil:
		err := lease.Renew(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failed = err != nil && !errors.Is(err, context.Canceled)
		if err == nil {
			l.renewed = time.Now()
		}
		return err
	}
	err := l.leftover()
	if err == nil {
		lease, err = l.lock.TryAcquire(ctx)
	}
	if errors.Is(err, leasehold.ErrHeld) {
		return statusError{err, held, http.StatusConflict}
	}
	if err != nil {
		return err
	}
	l.setLease(lease)
	return nil
}

// leftover returns an error while work of this Lock's own last term may still be running.
func (l *Lock) leftover() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := time.Until(l.renewed.Add(l.duration)); l.left != nil && wait > 0 {
		return &leasehold.HeldError{Key: l.lock.Key(), Record: l.left.Record(), Wait: wait}
	}
	return nil
}

// RecordEvent implements [resourcelock.Interface]. It is how client-go says that it has stopped leading. There is no
// Kubernetes object to record an event on; acquisition, loss and release go to the logger of [leasehold.WithLogger].
//
// After a stop without ReleaseOnCancel the term is over for this process, and reported as released, but its lease stands in the
// store until it has run out, because work of the term may still be running.
func (l *Lock) RecordEvent(event string) {
	if event != "stopped leading" {
		return
	}
	l.mu.Lock()
	lease, gaveUp := l.lease, l.failed
	l.lease, l.left = nil, nil
	if lease != nil && lease.Context().Err() == nil {
		l.left = lease
	}
	l.mu.Unlock()
	if lease != nil && !gaveUp { // else it is about to be lost
		lease.Abandon()
	}
}

// Identity implements [resourcelock.Interface]: the name in the record.
func (l *Lock) Identity() string { return l.lock.Identity() }

// Describe implements [resourcelock.Interface]: the key.
func (l *Lock) Describe() string { return l.lock.Key() }

// Check is a healthz.Checker: it fails if the store has not answered for two lease durations. client-go itself goes on
// trying for ever, whatever the error.
func (l *Lock) Check(*http.Request) error {
	silent, err := l.store.silence()
	if err != nil && silent > 2*l.duration {
		return fmt.Errorf("k8slock: lock %q: no answer from the store for %v: %w", l.lock.Key(), silent.Round(time.Second), err)
	}
	return nil
}

func (l *Lock) setLease(lease *leasehold.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease, l.left, l.failed, l.renewed = lease, nil, false, time.Now()
}

// statusError is an error that package apierrors understands.
type statusError struct {
	error
	reason metav1.StatusReason
	code   int32
}

func (e statusError) Unwrap() error { return e.error }

// Status implements apierrors.APIStatus.
func (e statusError) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Message: e.Error(), Reason: e.reason, Code: e.code}
}

var _ apierrors.APIStatus = statusError{}
