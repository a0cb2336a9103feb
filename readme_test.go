package leasehold_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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

// Each block of Go stands word for word in code that a test compiles and runs, except the quick start, which TestQuickStart
// of itest takes from the page itself.
func TestReadmeCodeIsThatOfTheExamples(t *testing.T) {
	examples := flat(read(t, "example_test.go") + read(t, "readme_test.go") + read(t, "itest/quickstart_test.go"))
	code, more := blocks(read(t, "README.md"), "go"), blocks(read(t, "docs/servers.md"), "go")
	require.Len(t, code, 3)
	require.Len(t, more, 2)
	require.True(t, strings.HasPrefix(code[0], "package main\n"))
	for _, block := range append(code[1:], more...) {
		require.True(t, strings.Contains(examples, flat(block)), "no test has this block:\n%s", block)
	}
}

// The code of README.md, under "Testing your code".
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

// A newcomer reads the README to its end, on any screen.
func TestReadmeIsShort(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(read(t, "README.md"), "\n"), "\n")
	require.LessOrEqual(t, len(lines), 250)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 140, line)
	}
}

// The commands of the pages name targets of the Makefile and programs that exist.
func TestReadmeCommands(t *testing.T) {
	makefile, page := read(t, "Makefile"), read(t, "README.md")
	for _, command := range []string{"go run ./examples/failover", "make test"} { // those that set the project up
		require.Equal(t, 1, strings.Count(page, "\n"+command+" "), command)
	}
	for _, m := range regexp.MustCompile(`(?m)^make ([a-z-]+)`).FindAllStringSubmatch(page, -1) {
		require.True(t, strings.Contains(makefile, "\n"+m[1]+":"), "make %s", m[1])
	}
	for _, m := range regexp.MustCompile(`go run (\./\S+?)[\s`+"`"+`]`).FindAllStringSubmatch(page, -1) {
		require.FileExists(t, filepath.Join(m[1], "main.go"))
	}
}

// Links between the pages name files and headings that exist.
func TestReadmeLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
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
	page := read(t, "README.md")
	options := 0
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "With") {
			require.Contains(t, page, "\n| `"+f.Name.Name+"` | ", "the option table")
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
	page := read(t, "docs/servers.md")
	for _, ttl := range []float64{5, 15, 30, 60} {
		month := (730 * time.Hour).Seconds()
		puts, gets := month/(ttl/3), month/(ttl/6) // TestWaitingCandidateReadsTwicePerRenewal
		cost := func(candidates float64) float64 { return puts*put + (candidates-1)*gets*get }
		require.Contains(t, page, fmt.Sprintf("\n| %.0f s | %s | %s | $%.2f | $%.2f | $%.2f |\n",
			ttl, thousands(puts), thousands(gets), cost(1), cost(3), cost(10)))
		if ttl == 15 { // the default
			said := fmt.Sprintf("a leader costs $%.2f a month and each waiting candidate $%.2f ", cost(1), gets*get)
			require.True(t, strings.Contains(read(t, "README.md"), said), said)
		}
	}

	// Under a session: one heartbeat, the polls of the other's, and a look at each lock every 100 TTLs.
	const ttl = 15.0
	month := (730 * time.Hour).Seconds()
	heartbeat, polls := month/(ttl/3)*put, month/(ttl/6)*get
	for _, locks := range []float64{100, 1000, 10_000} {
		looks := locks * month / (100 * ttl) * get
		held, waiting := heartbeat+looks, heartbeat+polls+looks
		require.Contains(t, page, fmt.Sprintf("\n| %s | $%s | $%.2f | $%s | $%.2f |\n",
			thousands(locks), cents(locks*heartbeat), held, cents(locks*polls), waiting))
		if locks == 10_000 {
			said := fmt.Sprintf("for $%s a month. With a session it renews one, for $%.2f.", thousands(locks*heartbeat), held)
			require.True(t, strings.Contains(read(t, "README.md"), said), said)
		}
	}
	for locks := 1.0; locks <= 10; locks++ { // docs/integrations.md
		looks := locks * month / (100 * ttl) * get
		require.Equal(t, locks >= 2, heartbeat+looks < locks*heartbeat)
		require.Equal(t, locks >= 8, heartbeat+polls+looks < locks*polls)
	}
}

// cents is an amount of dollars with two decimals.
func cents(f float64) string {
	whole, rest, _ := strings.Cut(fmt.Sprintf("%.2f", f), ".")
	dollars, _ := strconv.ParseFloat(whole, 64)
	return thousands(dollars) + "." + rest
}

func thousands(f float64) string {
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func TestReadmeJSON(t *testing.T) {
	list := blocks(read(t, "docs/servers.md"), "json")
	require.Len(t, list, 3)
	for _, block := range list {
		require.True(t, json.Valid([]byte(block)), block)
	}
	for i, leans := range []bool{false, true} {
		var rec leasehold.Record
		require.NoError(t, json.Unmarshal([]byte(list[1+i]), &rec))
		require.Equal(t, leans, rec.Session != nil)
	}
	for _, permission := range regexp.MustCompile(`s3:[A-Z]\w+`).FindAllString(list[0], -1) {
		require.True(t, strings.Contains(read(t, "s3store.go"), permission), permission)
	}
}
