package main

import (
	"cmp"
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
		Short: "Check that a bucket or directory is safe for locks, and show how to fix it",
		Long: `Checks that a bucket or directory is safe for locks, and shows how to fix it: endpoint,
credentials, region, each permission, the conditions of writes, the clock, the latency and a suitable
TTL, and settings of the bucket. "leasehold help checks" lists the checks. A check is "ok",
"warning", "failed", or "not checked", which does no harm: these credentials may not read a setting,
or the server has no such request.

The exit code is 0 if no check has failed or warned. Otherwise it is the code of the first failed
check, or 78 if there are only warnings.

The lock's object is not changed. The doctor writes objects whose keys begin with the lock's key and
"-doctor", and removes them. Without the permission to delete, three of them stay, and are used
again. In a versioned bucket, their versions stay. It sends about 100 requests in about 2 seconds, or
15 on Cloud Storage, which accepts one write a second.

With --endpoint twice, it also writes and reads the bucket by both endpoints in turn: two sites, or
with a proxy and without. Both must show one bucket, and one order of its writes. This finds a cache
on the way.

With --policy, it prints a bucket policy for Amazon S3. Below the prefix of the lock, it denies each
PUT without If-Match and If-None-Match, and each DELETE without If-Match. Copies to there fail under
it. Add its statements to the policy of the bucket.`,
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
					return exit.Errorf(exit.Usage, "--endpoint is empty (give it a value, or leave it out)")
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
	cmd.Flags().StringArrayVar(&endpoints, "endpoint", nil, "`URL` of the server, instead of the endpoint in the "+
		"lock's URL; give it twice to check a bucket from two sides")
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
	return cmp.Or(table.close(), r.Verdict())
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
