// Package gocronlock lets several schedulers of gocron share their jobs through a bucket: with [NewElector] one instance
// runs all jobs, with a [Locker] each run of a job goes to whichever instance is first.
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

// ErrNotLeader says that a job is not run here because this instance does not lead.
var ErrNotLeader = errors.New("gocronlock: not the leader")

// NewElector returns e as gocron's Elector: jobs start only while e leads. It sends no request and never blocks. It
// neither runs e, see [leasehold.Elector.Run], nor stops a job that runs when the lease ends: bind what must not go on
// to the context of OnStartedLeading. For nil it returns nil, which gocron refuses.
//
// While leadership changes hands nobody leads, so that a run can be skipped; it is done twice only if the clock of the next
// leader is behind by more than the change took.
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
		return fmt.Errorf("%w: the last one seen is %q with token %d", ErrNotLeader, r.Holder, r.Token)
	}
	return fmt.Errorf("%w: none has been seen yet", ErrNotLeader)
}
