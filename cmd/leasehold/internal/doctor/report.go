// Package doctor checks that a bucket or directory is safe for locks, and says how to fix it. Each
// kind of store has a file, and a list of checks.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

const (
	resultOK         = "ok"
	resultWarning    = "warning"
	resultFailed     = "failed"
	resultNotChecked = "not checked"
)

// Check is one line of the report. Result is "ok", "warning", "failed" or "not checked".
type Check struct {
	Name   string `json:"check"`
	Result string `json:"result"`
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"`
	code   int    // exit code
}

// Report has all checks of one kind of store, in the order in which they are printed.
type Report []*Check

// newReport has the checks that are named, none of which has run.
func newReport(names ...string) (r Report) {
	for _, name := range names {
		r = append(r, &Check{Name: name, Result: resultNotChecked})
	}
	return r
}

// of is the check with a name. One that the kind of store does not have goes nowhere.
func (r Report) of(name string) *Check {
	if i := slices.IndexFunc(r, func(c *Check) bool { return c.Name == name }); i >= 0 {
		return r[i]
	}
	return &Check{Name: name}
}

func (r Report) ok(name, seen string, args ...any) {
	*r.of(name) = Check{Name: name, Result: resultOK, Seen: fmt.Sprintf(seen, args...)}
}

func (r Report) warn(name, advice, seen string, args ...any) {
	*r.of(name) = Check{name, resultWarning, fmt.Sprintf(seen, args...), advice, exit.Config}
}

func (r Report) fail(name string, code int, advice, seen string, args ...any) {
	*r.of(name) = Check{name, resultFailed, fmt.Sprintf(seen, args...), advice, code}
}

func (r Report) skip(name, advice, seen string, args ...any) {
	*r.of(name) = Check{name, resultNotChecked, fmt.Sprintf(seen, args...), advice, 0}
}

// broke is a check that an error ended. The advice is the store's, or else the one given.
func (r Report) broke(name string, err error, advice string) {
	if e, ok := errors.AsType[advised](err); ok && e.Advice() != "" {
		advice = exit.Reword(e.Advice())
	}
	r.fail(name, exit.Code(err), advice, "%s", brief(err))
}

// advised is an error of a store. Each module with a store has a separate type for it.
type advised interface {
	error
	Advice() string
}

// unimplemented reports whether one of the checks failed because the server does not implement
// conditional writes.
func (r Report) unimplemented(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return r.of(name).Result == resultFailed && strings.Contains(r.of(name).Seen, "HTTP 501")
	})
}

// finish says of each check that did not run why.
func (r Report) finish() {
	for _, c := range r {
		if c.Result != resultNotChecked || c.Seen != "" {
			continue
		}
		c.Seen = "another check must succeed first"
		if i := slices.IndexFunc(r, func(c *Check) bool { return c.Result == resultFailed }); i >= 0 {
			c.Seen = "needs: " + r[i].Name
		}
	}
}

// Verdict is nil if no check has failed or warned. Else it names those that have, and is of the
// exit code of the first failed one, or exit.Config for warnings alone.
func (r Report) Verdict() error {
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
	return exit.Errorf(code, "checks without success: %s", strings.Join(parts, "; "))
}

// Examine runs all checks of a bucket that is reached by each of the sides. There is always one. It
// writes and removes objects whose keys begin with the key of the first and "-doctor".
func Examine(ctx context.Context, sides []place.Location) Report {
	var r Report
	switch sides[0].Scheme {
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
