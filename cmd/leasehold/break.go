package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
)

func (a *app) breakLock() *cobra.Command {
	var token uint64
	var yes bool
	cmd := &cobra.Command{
		Use:   "break [flags] --token N URL",
		Short: "Release a term by force",
		Long: `Releases the lock by force if it is in exactly the term with this token, which "status" shows. A holder that lives notices at its next
renewal, and until then two may hold the lock. Prefer to end the holder. On a terminal, it asks first.

It also repairs a corrupt lock object. The next term then has the token N+1, so choose one no lower than any that there was.`,
		Example:           `  leasehold break --token 7 s3://bucket/locks/report`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			at, err := parseLock(args[0])
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("token") {
				return fail(exitUsage, "--token is missing: leasehold status shows it")
			}
			store, err := at.open(ctx)
			if err != nil {
				return err
			}
			defer store.close()
			lock, err := newLock(store, at.key, []leasehold.Option{leasehold.WithLogger(nil), leasehold.WithTTL(defaultTTL)})
			if err != nil {
				return err
			}
			view, err := a.inspect(ctx, store, at)
			if err != nil {
				return err
			}
			if view.State == "free" && view.Token == 0 {
				return fail(exitUsage, "%s was never taken", view.URL)
			}
			if !yes && isTerminal(os.Stdin) && view.State != "free" {
				what := fmt.Sprintf("held by %s, token %d, until %s", view.Holder, view.Token, stamp(view.ExpiresAt))
				if view.State == "corrupt" {
					what = "corrupt"
				}
				fmt.Fprintf(os.Stderr, "%s is %s.\nRelease token %d by force? [y/N] ", view.URL, what, token)
				answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
				if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
					return fail(exitUsage, "nothing was changed")
				}
			}
			err = lock.Break(ctx, token)
			if errors.Is(err, leasehold.ErrPreconditionFailed) {
				return fail(exitUsage, "%w (leasehold status shows the token)", err)
			}
			if err != nil {
				return err
			}
			after, err := a.inspect(ctx, store, at)
			if err != nil {
				return err
			}
			return a.print(after, fmt.Sprintf("%s: token %d is released", view.URL, token))
		}),
	}
	cmd.Flags().Uint64Var(&token, "token", 0, "token of the term to release")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}
