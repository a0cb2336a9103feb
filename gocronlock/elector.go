// Package gocronlock lets several gocron schedulers share their jobs through a bucket. With
// [NewElector] one instance runs all jobs. With a [Locker] the first instance that asks for a run
// of a job gets the run.
//
//	gocron.NewScheduler(gocron.WithDistributedElector(gocronlock.NewElector(elector)))
//	gocron.NewScheduler(gocron.WithDistributedLocker(locker))
package gocronlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold"
)

// ErrNotLeader says that a job does not run here because this instance does not lead.
var ErrNotLeader = errors.New("gocronlock: not the leader")

// NewElector returns e as gocron's Elector: jobs start only while e leads. The result sends no
// request, never blocks, and is safe for concurrent use. Its errors match [ErrNotLeader]. If e is
// nil, NewElector returns nil, which gocron refuses.
//
// You must run e yourself: see [leasehold.Elector.Run]. A job that still runs when the lease ends
// is not stopped. If the job must stop then, bind it to the context of OnStartedLeading.
//
// While leadership moves to another instance there is no leader, so a run may be skipped. A run is
// repeated only if the next leader's clock is behind by more than the time that the change took.
func NewElector(e *leasehold.Elector) gocron.Elector {
	if e == nil {
		return nil
	}
	return elector{e}
}

type elector struct{ *leasehold.Elector }

// IsLeader implements [gocron.Elector].
func (e elector) IsLeader(context.Context) error {
	if e.Elector.IsLeader() {
		return nil
	}
	if r, ok := e.Leader(); ok {
		return fmt.Errorf("%w: the last leader seen is %q with token %d", ErrNotLeader, r.Holder, r.Token)
	}
	return fmt.Errorf("%w: no leader has been seen yet", ErrNotLeader)
}
