package docs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// nightly stands word for word in integrations.md.
func nightly(ctx context.Context, store leasehold.Store, job func(context.Context) error) error {
	lock, err := leasehold.NewLock(store, "jobs/nightly")
	if err != nil {
		return err
	}
	today := time.Now().UTC().Format(time.DateOnly)
	return lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		if string(lease.Record().Payload) == today {
			return nil // another cluster has done it
		}
		if err := job(ctx); err != nil {
			return err
		}
		return lease.Commit(ctx, []byte(today))
	})
}

func TestNightly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, runs := leasehold.NewMemStore(), 0
		fail := errors.New("the job failed")
		require.ErrorIs(t, nightly(t.Context(), mem, func(context.Context) error { return fail }), fail)
		for day := range 3 {
			done := make(chan error)
			for range 4 { // clusters
				go func() {
					done <- nightly(t.Context(), mem, func(context.Context) error {
						runs++
						time.Sleep(time.Hour)
						return nil
					})
				}()
			}
			for range 4 {
				require.NoError(t, <-done)
			}
			require.Equal(t, day+1, runs)
			time.Sleep(24 * time.Hour)
		}
	})
}

var (
	goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")
	pages   = []string{
		"integrations.md", "migrate.md", "fencing.md", "handover.md", "tables.md", "../k8slock/README.md",
		"../gocronlock/README.md", "../gcsstore/README.md",
		"../azblobstore/README.md", "../otellock/README.md", "../promlock/README.md",
	}
	link = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
)

// flush takes the indentation off: a block may be a part of a function.
func flush(source []byte) string {
	lines := strings.Split(string(source), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t")
	}
	return strings.Join(lines, "\n")
}

// TestSnippetsCompile wants every block of Go on the pages to stand as it is in a file that the
// tests of its module compile.
func TestSnippetsCompile(t *testing.T) {
	var compiled strings.Builder
	for _, pattern := range []string{"*_test.go", "../*/example_test.go", "../*/examples/*/main.go",
		"../examples/wakeup/*_test.go", "../itest/migrations_test.go"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, paths, pattern)
		for _, path := range paths {
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			compiled.WriteString(flush(source))
		}
	}
	blocks := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, block := range goBlock.FindAllSubmatch(text, -1) {
			blocks++
			if snippet := "\n" + flush(block[1]); !strings.Contains(compiled.String(), snippet) {
				t.Errorf("%s: no test and no example has this block, so nothing compiles it:%s", page, snippet)
			}
		}
		require.Len(t, goBlock.FindAll(text, -1), strings.Count(string(text), "```go"))
	}
	require.GreaterOrEqual(t, blocks, 10)
}

func TestLinks(t *testing.T) {
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		links := link.FindAllSubmatch(text, -1)
		require.NotEmpty(t, links)
		for _, l := range links {
			if to := string(l[1]); !strings.Contains(to, "://") {
				_, err := os.Stat(filepath.Join(filepath.Dir(page), to))
				require.NoError(t, err, "%s: a link to nowhere", page)
			}
		}
	}
}
