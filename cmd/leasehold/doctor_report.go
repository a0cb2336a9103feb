package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

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
