package leasehold_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

func read(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(body)
}

// blocks returns the code blocks of a language.
func blocks(page, language string) (list []string) {
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(page, -1) {
		list = append(list, m[1])
	}
	return list
}

// flat is code without its indentation.
func flat(code string) string {
	return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(code, "")
}

// Each block of Go stands word for word in code that a test compiles and runs, except the elector
// of docs/start.md, which TestElectorOfThePage of itest takes from the page itself.
func TestReadmeCodeIsThatOfTheExamples(t *testing.T) {
	examples := flat(read(t, "examples/hello/main.go") + read(t, "example_test.go") + read(t, "readme_test.go") +
		read(t, "itest/quickstart_test.go") + read(t, "promlock/example_test.go"))
	first, code := blocks(read(t, "README.md"), "go"), blocks(read(t, "docs/start.md"), "go")
	service, more := blocks(read(t, "docs/production.md"), "go"), blocks(read(t, "docs/stores.md"), "go")
	require.Len(t, first, 1)
	require.Len(t, code, 4)
	require.Len(t, service, 1)
	require.Len(t, more, 2)
	require.True(t, strings.HasPrefix(code[0], "package main\n"))
	_, code[3], _ = strings.Cut(code[3], "\n)\n\n") // after the imports; TestQuickStart runs the whole file
	for _, block := range slices.Concat(first, code[1:], service, more) {
		require.True(t, strings.Contains(examples, flat(block)), "no test has this block:\n%s", block)
	}
}

// The code of docs/start.md, under "Testing your code".
func TestWorkStopsWhenTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock, err := leasehold.NewLock(leasehold.NewMemStore(), "locks/reports")
		if err != nil {
			t.Fatal(err)
		}
		err = lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
			if err := lock.Break(ctx, lease.Token()); err != nil {
				return err
			}
			work(ctx, lease)
			return nil
		})
		if !errors.Is(err, leasehold.ErrLost) {
			t.Error("the lease was not lost:", err)
		}
	})
}

func work(ctx context.Context, _ *leasehold.Lease) { <-ctx.Done() }

// The code of README.md.
func campaign(ctx context.Context, store leasehold.Store) error {
	lock, err := leasehold.NewLock(store, "leaders/reports")
	if err != nil {
		return err
	}
	elector, err := leasehold.NewElector(lock, leasehold.Callbacks{OnStartedLeading: lead})
	if err != nil {
		return err
	}
	return elector.Run(ctx) // campaigns, leads, campaigns again; releases the lock when ctx ends
}

// lead is the leader's work. It must return soon after ctx is done.
func lead(ctx context.Context, lease *leasehold.Lease) {
	log.Print("leading with token ", lease.Token())
	<-ctx.Done()
}

// The leader of the README leads, and releases the lock at the end of ctx. A process that starts
// after a crash leads as soon as the README says.
func TestReadmeElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		lock, err := leasehold.NewLock(store, "leaders/reports")
		require.NoError(t, err)
		restarted, err := leasehold.NewLock(struct{ leasehold.Store }{store}, "leaders/reports")
		require.NoError(t, err)
		holder := func() leasehold.Record {
			record, err := lock.Inspect(t.Context())
			require.NoError(t, err)
			return record
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- campaign(ctx, store) }()
		synctest.Wait()
		require.EqualValues(t, 1, holder().Token)
		require.False(t, holder().Released())
		stop()
		require.NoError(t, <-ended)
		require.True(t, holder().Released())

		crashed, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		crashed.Abandon()
		began := time.Now()
		lease, err := restarted.Acquire(t.Context())
		require.NoError(t, err)
		m := regexp.MustCompile(`only replica\*\*, the restarted process leads (\S+ s) after it has started`).
			FindStringSubmatch(read(t, "README.md"))
		require.NotNil(t, m)
		want, err := time.ParseDuration(strings.ReplaceAll(m[1], " ", ""))
		require.NoError(t, err)
		require.InDelta(t, want, time.Since(began), float64(100*time.Millisecond)) // candidates spread their tries
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A newcomer reads the README to its end, on any screen.
func TestReadmeIsShort(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(read(t, "README.md"), "\n"), "\n")
	require.LessOrEqual(t, len(lines), 120)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 140, line)
	}
}

// The commands of the pages name targets of the Makefile and programs that exist.
func TestReadmeCommands(t *testing.T) {
	makefile, page := read(t, "Makefile"), read(t, "README.md")
	version := required(t, "internal/tools/versitygw/go.mod", "github.com/versity/versitygw")
	require.Contains(t, page, "\ngo run github.com/versity/versitygw/cmd/versitygw@"+version+" ",
		"the version that the tests run on")
	for _, command := range []string{"go run ./examples/failover", "make test"} { // those that set the project up
		require.Equal(t, 1, strings.Count(page, "\n"+command+"   "), command)
	}
	for _, m := range regexp.MustCompile(`(?m)^make ([a-z-]+)`).FindAllStringSubmatch(page, -1) {
		require.True(t, strings.Contains(makefile, "\n"+m[1]+":"), "make %s", m[1])
	}
	for _, m := range regexp.MustCompile(`go run (\./\S+?)[\s`+"`"+`]`).FindAllStringSubmatch(page, -1) {
		require.FileExists(t, filepath.Join(m[1], "main.go"))
	}
}

// required is the version of a module that a go.mod requires.
func required(t *testing.T, file, module string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^(?:require )?\s*` + regexp.QuoteMeta(module) +
		` (v\S+)`).FindStringSubmatch(read(t, file))
	require.NotNil(t, m, "%s in %s", module, file)
	return m[1]
}

// docs/README.md has every page.
func TestReadmeIndex(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	index := read(t, "docs/README.md")
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" {
			require.Contains(t, index, "]("+name+")")
		}
	}
}

// Links between the pages name files and headings that exist.
func TestReadmeLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md") {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]*)(?:#([^):]*))?\)`).FindAllStringSubmatch(read(t, page), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			require.FileExists(t, target, "link in %s", page)
			if m[2] != "" {
				require.Contains(t, anchors(read(t, target)), m[2], "link in %s to %s", page, target)
			}
		}
	}
}

// anchors are the names by which GitHub links to the headings of a page.
func anchors(page string) (list []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(name, " ", "-"))
	}
	return list
}

func TestReadmeOptions(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "options.go", nil, 0)
	require.NoError(t, err)
	page := read(t, "docs/production.md")
	options := 0
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "With") {
			require.Contains(t, page, "\n| `"+f.Name.Name+"` | ", "the table of options")
			options++
		}
	}
	require.Len(t, regexp.MustCompile("(?m)^\\| `With").FindAllString(page, -1), options)
	for name, def := range map[string]string{ // as newOptions sets them
		"WithTTL": "15 s", "WithRenewInterval": "TTL/3", "WithPollInterval": "TTL/5", "WithSafetyMargin": "TTL/5",
		"WithClockDrift": "0.02", "WithSkewAllowance": "5 s",
	} {
		require.Contains(t, page, "\n| `"+name+"` | "+def+" |")
	}
}

func TestReadmeCosts(t *testing.T) {
	const put, get = 0.005 / 1000, 0.0004 / 1000 // dollars
	page := read(t, "docs/stores.md")
	month := (730 * time.Hour).Seconds()
	require.Contains(t, page, fmt.Sprintf(" **(%.1f + %.1f × waiting candidates) ÷ TTL in seconds**",
		3*month*put, 6*month*get))
	for _, ttl := range []float64{5, 15, 30, 60} {
		puts, gets := month/(ttl/3), month/(ttl/6) // TestWaitingCandidateReadsTwicePerRenewal
		cost := func(candidates float64) float64 { return puts*put + (candidates-1)*gets*get }
		require.Contains(t, page, fmt.Sprintf("\n| %.0f s | %s | %s | $%.2f | $%.2f | $%.2f |\n",
			ttl, thousands(puts), thousands(gets), cost(1), cost(3), cost(10)))
		if ttl == 15 { // the default
			require.Contains(t, read(t, "README.md"), fmt.Sprintf("A leader costs $%.2f a month and each waiting "+
				"candidate $%.2f*", cost(1), gets*get))
			require.Contains(t, read(t, "docs/choose.md"),
				fmt.Sprintf(" $%.2f, and $%.2f for each that waits ", cost(1), gets*get))
		}
	}
}

func thousands(f float64) string {
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func TestReadmeJSON(t *testing.T) {
	policy, object := blocks(read(t, "docs/stores.md"), "json"), blocks(read(t, "docs/protocol.md"), "json")
	require.Len(t, policy, 1)
	require.Len(t, object, 2) // the second is a table
	require.True(t, json.Valid([]byte(policy[0])))
	var rec leasehold.Record
	require.NoError(t, json.Unmarshal([]byte(object[0]), &rec))
	require.Equal(t, rec.RenewedAt.Add(rec.TTL), rec.ExpiresAt)
	for _, permission := range regexp.MustCompile(`s3:[A-Z]\w+`).FindAllString(policy[0], -1) {
		require.True(t, strings.Contains(read(t, "s3store.go"), permission), permission)
	}
}

// Pages are for users, who cannot name an internal package.
func TestPagesNameNoInternalPackage(t *testing.T) {
	dirs, err := filepath.Glob("internal/*")
	require.NoError(t, err)
	var names []string
	for _, dir := range dirs {
		names = append(names, filepath.Base(dir))
	}
	require.Contains(t, names, "storeapi")
	internal := regexp.MustCompile(`\b(` + strings.Join(names, "|") + `)\.[A-Z]\w*`)
	for _, pattern := range []string{"*.md", "docs/*.md", "*/README.md"} {
		pages, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, pages)
		for _, page := range pages {
			require.Empty(t, internal.FindAllString(read(t, page), -1), page)
		}
	}
}
