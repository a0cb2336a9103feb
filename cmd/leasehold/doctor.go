package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

func (a *app) doctor() *cobra.Command {
	var endpoints []string
	var policy bool
	cmd := &cobra.Command{
		Use:   "doctor [flags] URL",
		Short: "Check whether a bucket or directory is fit for locks, and say how to mend it",
		Long: `Checks whether a bucket or directory is fit for locks, and says how to mend what is not: whether it answers, credentials, region,
each permission, whether the server enforces the conditions of writes, its clock, its latency and the TTL that suits, and settings of the
bucket that would hurt. A check is "ok", "warning", "failed", or "not checked", which harms nothing.

The exit code is 0 if no check has failed or warned. Else it is that of the first failed check, and 78 if there are only warnings.

The lock's object is not changed. The check writes objects whose keys begin with the lock's key and "-doctor", and removes them. Without
the permission to delete, three of them stay, and are used again. It sends about 100 requests, and takes some seconds.

With --endpoint twice, it also writes and reads the bucket by both endpoints in turn: two sites, or with a proxy and without. Both must
show one bucket, and one order of its writes.`,
		Example: `  leasehold doctor s3://bucket/locks/report
  leasehold doctor --endpoint http://10.0.0.1:9000 --endpoint http://10.0.1.1:9000 s3://bucket/locks/report
  leasehold doctor --policy s3://bucket/locks/report >policy.json`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			at, err := parseLock(args[0])
			if err != nil {
				return err
			}
			if policy {
				return a.printPolicy(at)
			}
			sides := []location{at}
			for i, endpoint := range endpoints {
				side := at
				side.endpoint = endpoint
				if endpoint == "" {
					return fail(exitUsage, "--endpoint is empty: give it a value, or leave it out")
				}
				if err := checkEndpoint(endpoint); err != nil {
					return fail(exitUsage, "--endpoint: %w", err)
				}
				if side, err = parseLock(side.String()); err != nil {
					return fail(exitUsage, "--endpoint: %w", err)
				}
				sides = append(sides[:i], side)
			}
			return a.printReport(examine(ctx, sides))
		}),
	}
	cmd.Flags().StringArrayVar(&endpoints, "endpoint", nil, "`URL` of the server, in place of the one in the lock's "+
		"URL; give it twice to check a bucket from two sides")
	cmd.Flags().BoolVar(&policy, "policy", false, "print a bucket policy for Amazon S3 that refuses writes without "+
		"conditions, and check nothing")
	return cmd
}

const (
	resultOK         = "ok"
	resultWarning    = "warning"
	resultFailed     = "failed"
	resultNotChecked = "not checked"
)

// check is one line of the report.
type check struct {
	Name   string `json:"check"`
	Result string `json:"result"`
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"`
	code   int    // exit code
}

// report has all checks of one kind of store, in the order in which they are printed.
type report []*check

// newReport has the checks that are named, none of which has run.
func newReport(names ...string) (r report) {
	for _, name := range names {
		r = append(r, &check{Name: name, Result: resultNotChecked})
	}
	return r
}

// of is the check with a name. One that the kind of store does not have goes nowhere.
func (r report) of(name string) *check {
	if i := slices.IndexFunc(r, func(c *check) bool { return c.Name == name }); i >= 0 {
		return r[i]
	}
	return &check{Name: name}
}

func (r report) ok(name, seen string, args ...any) {
	*r.of(name) = check{Name: name, Result: resultOK, Seen: fmt.Sprintf(seen, args...)}
}

func (r report) warn(name, advice, seen string, args ...any) {
	*r.of(name) = check{name, resultWarning, fmt.Sprintf(seen, args...), advice, exitConfig}
}

func (r report) fail(name string, code int, advice, seen string, args ...any) {
	*r.of(name) = check{name, resultFailed, fmt.Sprintf(seen, args...), advice, code}
}

func (r report) skip(name, advice, seen string, args ...any) {
	*r.of(name) = check{name, resultNotChecked, fmt.Sprintf(seen, args...), advice, 0}
}

// broke is a check that an error ended. The advice is the store's, or else the one given.
func (r report) broke(name string, err error, advice string) {
	if e, ok := errors.AsType[*storeapi.Error](err); ok && e.Hint != "" {
		advice = inItsWords(e.Hint)
	}
	r.fail(name, exitCode(err), advice, "%s", brief(err))
}

// finish says of each check that did not run why.
func (r report) finish() {
	for _, c := range r {
		if c.Result != resultNotChecked || c.Seen != "" {
			continue
		}
		c.Seen = "another check must succeed first"
		if i := slices.IndexFunc(r, func(c *check) bool { return c.Result == resultFailed }); i >= 0 {
			c.Seen = "needs: " + r[i].Name
		}
	}
}

// verdict is nil if all is well.
func (r report) verdict() error {
	var parts []string
	code := 0
	for _, result := range []string{resultFailed, resultWarning} {
		var names []string
		for _, c := range r {
			if c.Result == result {
				names = append(names, c.Name)
				if code == 0 {
					code = c.code
				}
			}
		}
		if names != nil {
			parts = append(parts, result+": "+strings.Join(names, ", "))
		}
	}
	if parts == nil {
		return nil
	}
	return fail(code, "not all is well: %s", strings.Join(parts, "; "))
}

func (a *app) printReport(r report) error {
	table := a.table("CHECK\tRESULT\tSEEN, AND WHAT TO DO")
	for _, c := range r {
		table.add(c, c.Name, c.Result, c.Seen)
		if c.Advice != "" {
			table.more("", "", "-> "+c.Advice)
		}
	}
	return firstOf(table.close(), r.verdict())
}

// examine runs all checks of a bucket that is reached by each of the sides. There is always one.
func examine(ctx context.Context, sides []location) report {
	var r report
	switch sides[0].scheme {
	case "s3":
		r = examineS3(ctx, sides[0], len(sides) > 1)
	case "gs":
		r = examineGS(ctx, sides[0], len(sides) > 1)
	case "azblob":
		r = examineAzure(ctx, sides[0], len(sides) > 1)
	default:
		r = examineFile(ctx, sides[0])
	}
	if len(sides) > 1 && r.of("conditions").Result == resultOK {
		compareSides(ctx, r, sides)
	}
	r.finish()
	return r
}
