package exit

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// noneOfTheCommand are texts for Go programs that no use of the command leads to.
var noneOfTheCommand = []string{
	"an elector renews its lease itself",     // the command's is one
	"WithHolder: the name is empty",          // --holder refuses it
	"WithReclaim needs WithHolder",           // the command does not use it
	"WithMinTTL: ", "WithServerClock: slack", // nor sets these otherwise
	"bucket %q is a URL (give the bare name", "container %.200q is a URL", // a bucket comes from the host of a URL
	"was not made by NewLock", "NewFencedStore: ", "the S3Store is nil or empty",
	"client is nil (make one with",
	"no term has it (pass Lease.Token",                                        // --token is below the highest
	"leaderhttp: the lock was not made by", "WithAllowedHosts does not allow", // it does not use that
	"WithPreemption(", "WithPatience(", `set "public_url"`, // nor these
}

// What the library advises is in words of the command, wherever it comes from.
func TestHintsAreAboutTheCommand(t *testing.T) {
	api := regexp.MustCompile(`\b(Lock|Lease|Elector)\.[A-Z]|\bWith[A-Z]\w+|` +
		`\bNew(Lock|Elector|Client|\w+Store)\b|\bUsePathStyle\b|time\.Second|client's|its options|the client has`)
	found := 0
	for _, dir := range []string{
		".", "internal/storeapi", "internal/s3api", "internal/filestore", "internal/storecheck", "internal/wire",
		"internal/canary", "internal/lockerr", "gcsstore", "azblobstore",
		"leaderhttp",
	} {
		files, err := filepath.Glob(filepath.Join("../../../..", dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, dir)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			require.NoError(t, err)
			ast.Inspect(tree, func(n ast.Node) bool {
				expr, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				text, ok := stringOf(expr)
				if !ok {
					return true
				}
				if !api.MatchString(text) {
					return false
				}
				found++
				for _, other := range noneOfTheCommand {
					if strings.Contains(text, other) {
						return false
					}
				}
				text = strings.ReplaceAll(text, "%d*time", "1*time")
				assert.NotRegexp(t, api, Reword(text), "%s", file)
				return false
			})
		}
	}
	require.Greater(t, found, 8)
}

// A wait that ends is no store that does not answer.
func TestTheEndOfAWait(t *testing.T) {
	held := fmt.Errorf("table %q: waiting: %w: %w", "t", context.DeadlineExceeded, leasehold.ErrHeld)
	require.Equal(t, `table "t": lock is held (try again later)`, Message(held))
	require.Equal(t, `reading "t": no answer in time (is the server running? check the endpoint and the network)`,
		Message(fmt.Errorf("reading %q: %w", "t", context.DeadlineExceeded)))
}

// stringOf is the text of a literal, or of several that are added up: a long one has several lines.
func stringOf(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, ok := stringOf(e.X)
		right, too := stringOf(e.Y)
		return left + right, e.Op == token.ADD && ok && too
	}
	return "", false
}
