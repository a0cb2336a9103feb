package main

import (
	"context"
	"os"
	"syscall"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

// job is the command of run or elect, and what all of its terms have in common.
type job struct {
	app        *app
	campaign   *campaign
	url        string
	at         place.Location // of the URL
	store      *place.Store   // which the caller of prepare closes
	supervisor *guard.Supervisor
}

// prepare finds the command in args, which begin with the URL, and opens the store. The flags are
// checked before.
func (a *app) prepare(ctx context.Context, c *campaign, args []string) (*job, error) {
	at, err := place.ParseLock(args[0])
	if err != nil {
		return nil, err
	}
	program, err := guard.FindProgram(args[1:])
	if err != nil {
		return nil, err
	}
	if c.metadata, err = c.web.listen(ctx, c.metadata); err != nil {
		return nil, err
	}
	store, err := at.Open(ctx)
	if err != nil {
		return nil, err
	}
	guard.ReapOrphans()
	guard.ReserveThreads(guard.OwnThreads)
	return &job{a, c, args[0], at, store, &guard.Supervisor{Program: program, Margin: c.margin, Log: a.log}}, nil
}

// lock makes the lock at the URL. The supervisor hears of each renewal.
func (j *job) lock() (*leasehold.Lock, error) {
	renewed := make(chan struct{}, 1)
	j.supervisor.Renewed = renewed
	return j.campaign.lock(j.app, j.store, j.at.Key, renewed, leasehold.WithSafetyMargin(j.campaign.margin))
}

// grant is a lease as the command and the guard have it. Its source is a lock, or a table.
type grant struct {
	lease guard.Lease
	env   []string // of the command
	note  []byte   // for the guard, if this process is killed
}

// ofLock is the grant of a lease of the lock at the URL.
func (j *job) ofLock(lease *leasehold.Lease) grant {
	return grant{lease, environment(j.at.Key, lease.Record()), j.campaign.orphan(j.app, j.url, lease)}
}

// run runs the command for one term, whose context is ctx.
func (j *job) run(ctx context.Context, g grant) (guard.Outcome, error) {
	return j.supervisor.Run(ctx, g.lease, g.env, g.note)
}

// tenure runs the command under the only lease that it gets, releases the lease, and returns what
// the command has come to. Signals go to the command, and after its end they end the tries to
// release. begin is called when the term begins, with its context.
func tenure[L any](ctx context.Context, j *job, signals chan os.Signal, lease interface {
	Do(ctx context.Context, fn func(ctx context.Context, lease L) error) error
}, begin func(ctx context.Context, lease L) grant) error {
	guard.Catch(signals, []os.Signal{syscall.SIGTSTP})
	j.supervisor.Signals = signals
	releasing, giveUp := context.WithCancel(ctx)
	defer giveUp()
	outcome := guard.Outcome{Lost: true} // if the lease has ended before the command begins
	var failed error
	err := lease.Do(releasing, func(ctx context.Context, lease L) error {
		outcome, failed = j.run(ctx, begin(ctx, lease))
		signalled, _ := untilSignal(releasing, signals) // which no command gets any more
		context.AfterFunc(signalled, giveUp)
		return nil
	})
	switch {
	case failed != nil: // the command has not run, or the guard was killed
		return failed
	case outcome.Lost && err == nil:
		return exit.Errorf(exit.Lost, "the command was ended or not started: its lease had ended by the clock of "+
			"the guard process (see leasehold help guarantee)")
	case outcome.Lost:
		return exit.Errorf(exit.Lost, "the command was ended or not started: %w (see leasehold help guarantee)", err)
	case err != nil: // the command itself is done
		j.app.log.Warn("releasing failed after the command had ended", "err", err, "free_after", j.campaign.ttl)
	}
	if outcome.Signal != 0 {
		return childSignal(outcome.Signal)
	}
	if outcome.Code != 0 {
		return childCode(outcome.Code)
	}
	return nil
}
