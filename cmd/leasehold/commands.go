package main

import (
	"errors"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
)

// commands are all commands. Each is in a separate file.
func (a *app) commands() []*cobra.Command {
	return append([]*cobra.Command{
		a.run(), a.elect(), a.acquire(), a.renew(), a.hold(), a.release(), a.status(), a.list(),
		a.watch(), a.breakLock(),
		a.doctor(), a.bench(), a.man(), a.version(),
	}, helpTopics()...)
}

// newLock makes a lock. It refuses flags, and a store that cannot work now.
func newLock(store leasehold.Store, key string, opts []leasehold.Option) (*leasehold.Lock, error) {
	lock, err := leasehold.NewLock(store, key, opts...)
	if err != nil && !errors.Is(err, leasehold.ErrPermanent) && !errors.As(err, new(syscall.Errno)) {
		return nil, exit.Errorf(exit.Usage, "%w", err)
	}
	return lock, err
}

// oneArg wants one argument, which what describes.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return exit.Errorf(exit.Usage, "%s takes %s, not %d arguments (see leasehold help %[1]s)",
				cmd.Name(), what, len(args))
		}
		return nil
	}
}

// someArgs wants at least one.
func someArgs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return exit.Errorf(exit.Usage, "%s takes %s (see leasehold help %[1]s)", cmd.Name(), what)
		}
		return nil
	}
}
