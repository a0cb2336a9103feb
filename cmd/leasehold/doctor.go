package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/doctor"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

func (a *app) doctor() *cobra.Command {
	var endpoints []string
	var policy bool
	cmd := &cobra.Command{
		Use:   "doctor [flags] URL",
		Short: "Check whether a bucket or directory is fit for locks, and say how to mend it",
		Long: `Checks whether a bucket or directory is fit for locks, and says how to mend what is
not: whether it answers, credentials, region, each permission, whether the server enforces the
conditions of writes, its clock, its latency and the TTL that suits, and settings of the bucket that
would hurt. A check is "ok", "warning", "failed", or "not checked", which harms nothing.

The exit code is 0 if no check has failed or warned. Else it is that of the first failed check, and
78 if there are only warnings.

The lock's object is not changed. The check writes objects whose keys begin with the lock's key and
"-doctor", and removes them. Without the permission to delete, three of them stay, and are used
again. It sends about 100 requests, and takes some seconds.

With --endpoint twice, it also writes and reads the bucket by both endpoints in turn: two sites, or
with a proxy and without. Both must show one bucket, and one order of its writes.`,
		Example: `  leasehold doctor s3://bucket/locks/report
  leasehold doctor --endpoint http://10.0.0.1:9000 --endpoint http://10.0.1.1:9000 s3://bucket/locks/report
  leasehold doctor --policy s3://bucket/locks/report >policy.json`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: keys,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			at, err := place.ParseLock(args[0])
			if err != nil {
				return err
			}
			if policy {
				return printPolicy(at)
			}
			sides := []place.Location{at}
			for i, endpoint := range endpoints {
				side := at
				side.Endpoint = endpoint
				if endpoint == "" {
					return exit.Errorf(exit.Usage, "--endpoint is empty: give it a value, or leave it out")
				}
				if err := place.CheckEndpoint(endpoint); err != nil {
					return exit.Errorf(exit.Usage, "--endpoint: %w", err)
				}
				if side, err = place.ParseLock(side.String()); err != nil {
					return exit.Errorf(exit.Usage, "--endpoint: %w", err)
				}
				sides = append(sides[:i], side)
			}
			return a.printReport(doctor.Examine(ctx, sides))
		}),
	}
	cmd.Flags().StringArrayVar(&endpoints, "endpoint", nil, "`URL` of the server, in place of the one in the lock's "+
		"URL; give it twice to check a bucket from two sides")
	cmd.Flags().BoolVar(&policy, "policy", false, "print a bucket policy for Amazon S3 that refuses writes without "+
		"conditions, and check nothing")
	return cmd
}

func (a *app) printReport(r doctor.Report) error {
	table := a.table("CHECK\tRESULT\tSEEN, AND WHAT TO DO")
	for _, c := range r {
		table.add(c, c.Name, c.Result, c.Seen)
		if c.Advice != "" {
			table.more("", "", "-> "+c.Advice)
		}
	}
	return firstOf(table.close(), r.Verdict())
}

// printPolicy prints the bucket policy by which Amazon S3 refuses writes without conditions.
func printPolicy(at place.Location) error {
	text, err := doctor.Policy(at)
	if err == nil {
		if _, err = os.Stdout.Write(append(text, '\n')); err != nil {
			err = exit.Errorf(exit.Output, "the policy cannot be written: %w", err)
		}
	}
	return err
}
