package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// breaking has the flags of break.
type breaking struct {
	token uint64
	yes   bool
}

func (a *app) breakLock() *cobra.Command {
	var b breaking
	cmd := &cobra.Command{
		Use:   "break [flags] --token N URL",
		Short: "Release a term by force",
		Long: `Releases the lock by force if it is in the term with this token, which "status" shows. A
running holder notices at its next renewal, and until then two may hold the lock. If you can, end
the holder instead. On a terminal, it asks first.

A table of locks cannot be broken. Break the term of one of its members by the URL of that member's
lock. The member's locks in the table pass on after its TTL, when it cannot act under them any more.

It also repairs a damaged lock object: truncated, empty or edited. The next term then has the token
N+1, so choose N no lower than any token so far. An object without any sign of a lock is left
unchanged.`,
		Example:           `  leasehold break --token 7 s3://bucket/locks/report`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: keys,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			at, err := place.ParseLock(args[0])
			if err != nil {
				return err
			}
			switch {
			case !cmd.Flags().Changed("token"):
				return exit.Errorf(exit.Usage, "--token is missing (leasehold status shows it)")
			case b.token > storeapi.MaxToken:
				return exit.Errorf(exit.Usage, "--token %d exceeds 2^53-1, the highest token of a term", b.token)
			}
			store, err := at.Open(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			return a.breakTerm(ctx, store, at, b)
		}),
	}
	cmd.Flags().Uint64Var(&b.token, "token", 0, "token of the term to release")
	cmd.Flags().BoolVarP(&b.yes, "yes", "y", false, "do not ask")
	return cmd
}

// ask asks a person at a terminal.
func (b breaking) ask(format string, args ...any) error {
	if b.yes || !isTerminal(os.Stdin) {
		return nil
	}
	fmt.Fprintf(os.Stderr, format+" [y/N] ", args...)
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return exit.Errorf(exit.Usage, "nothing was changed")
	}
	return nil
}

// breakTerm releases a lock, or repairs its object.
func (a *app) breakTerm(ctx context.Context, store *place.Store, at place.Location, b breaking) error {
	lock, err := newLock(store, at.Key, []leasehold.Option{leasehold.WithLogger(slog.New(slog.DiscardHandler)),
		leasehold.WithTTL(defaultTTL)})
	if err != nil {
		return err
	}
	view, err := a.inspect(ctx, store, at)
	switch {
	case err != nil:
		return err
	case view.State == stateNeverTaken:
		return exit.Errorf(exit.Usage, "%s was never taken", view.URL)
	case view.Table != nil: // breaking it would replace it by a lock
		return exit.Errorf(exit.Usage, "%s is a table of locks, not a lock, and was not changed (%s)", view.URL,
			view.Table.howToBreak(at))
	}
	whose, released := "", "is released"
	if _, _, ok := storeapi.MemberAt(at.Key); ok {
		whose = ", a member of a table of locks: what it holds there passes on when its TTL has passed"
		released = "has ended: what it holds in the table passes on when its TTL has passed"
	}
	if view.State != stateReleased {
		what := fmt.Sprintf("held by %s, token %d, until %s", exit.Printable(view.Holder), view.Token,
			stamp(view.ExpiresAt))
		switch view.State {
		case stateCorrupt:
			what = "corrupt"
		case stateExpired:
			what = fmt.Sprintf("expired: %s, token %d, has not renewed it, and its lease ended at %s",
				exit.Printable(view.Holder), view.Token, stamp(view.ExpiresAt))
		}
		if err := b.ask("%s is %s%s.\nRelease token %d by force?", view.URL, what, whose, b.token); err != nil {
			return err
		}
	}
	err = lock.Break(ctx, b.token)
	if errors.Is(err, leasehold.ErrPreconditionFailed) {
		return exit.Errorf(exit.Usage, "%w (leasehold status shows the token)", err)
	}
	if err != nil {
		return err
	}
	after, err := a.inspect(ctx, store, at)
	if err != nil {
		return err
	}
	return a.print(after, fmt.Sprintf("%v: token %d %s", at, b.token, released))
}
