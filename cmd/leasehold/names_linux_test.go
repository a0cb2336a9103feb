package main_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// plain checks that text has so many lines, and nothing that a terminal obeys or that moves what
// stands beside it.
func plain(t testing.TB, text string, lines int) {
	t.Helper()
	require.Equal(t, lines, strings.Count(text, "\n"), "%q", text)
	require.True(t, utf8.ValidString(text), "%q", text)
	require.Equal(t, -1, strings.IndexFunc(text, func(r rune) bool {
		return r != '\n' && !unicode.IsPrint(r)
	}), "%q", text)
}

// hostile are names that rewrite or forge what a terminal shows.
var hostile = map[string]string{
	"a line":             "eve\na  held  9  alice",
	"an escape sequence": "eve\x1b[2K\x1b[1A",
	"C1":                 "eve\u009b2K",
	"a title":            "\x1b]0;title\x07",
	"backspaces":         "eve\b\b\b\r\x7f",
	"a tab":              "eve\tfree",
	"a direction":        "eve\u202egnp.exe\u2066",
	"a Unicode line":     "eve\u2028eve\u2029\u0085",
	"no width":           "e\u200bv\ufeffe\u00ad",
	"a form feed":        "eve\f\v",
}

func TestNamesAreNoCommandsForTheTerminal(t *testing.T) {
	for name, holder := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			now := time.Now()
			p.record("a", leasehold.Record{
				Token:      7,
				Holder:     holder,
				TTL:        time.Hour,
				Nonce:      "x",
				AcquiredAt: now,
				RenewedAt:  now,
				ExpiresAt:  now.Add(time.Hour),
				Metadata:   map[string]string{holder: holder},
			})
			p.record("b", leasehold.Record{Token: 7, Holder: holder, Nonce: "x"})
			for _, c := range []struct {
				args          []string
				code          int
				lines, errors int
			}{
				{[]string{"status", p.url, strings.TrimSuffix(p.url, "a") + "b"}, 0, 3, 0},
				{[]string{"list", "file://" + p.dir + "/"}, 0, 3, 0},
				{[]string{"run", "-n", p.url, "--", "true"}, 75, 0, 1},
				{[]string{"run", "-v", "--wait", "1s", p.url, "--", "true"}, 75, 0, 2},
				{[]string{"acquire", "-n", p.url}, 75, 0, 1},
				{[]string{"break", "--token", "8", p.url}, 64, 0, 1},
				{[]string{"release", p.url + "#term=7-ABCDEFGHIJKLMNOPQRSTUVWXYZ"}, 79, 0, 1},
				{
					[]string{"status", "s3://b/" + strings.ReplaceAll(url.QueryEscape(holder), "+", "%20") + "/"},
					64,
					0,
					1,
				},
				{[]string{"status", "s3://" + holder}, 64, 0, 1},
				{[]string{"status", "s3://b/\xff\xfe" + holder}, 64, 0, 1},
				{[]string{"status", "--" + holder, "\xff"}, 64, 0, 1},
				{[]string{"help", holder}, 64, 0, 1},
			} {
				r := offline(t, c.args...)
				require.Equal(t, c.code, r.code, "%q: %s", c.args, r.stderr)
				plain(t, r.out, c.lines)
				plain(t, r.stderr, c.errors)
			}

			s := start(t, p.command("watch", p.url))
			line, err := bufio.NewReader(s.out).ReadString('\n')
			require.NoError(t, err)
			plain(t, line, 1)

			r := offline(t, "status", "-o", "json", p.url)
			r.succeeds(t)
			require.Equal(t, holder, views(t, r.out)[0].Holder, "JSON has the very name")
			r = offline(t, "run", "-n", "-o", "json", p.url, "--", "true")
			require.True(t, json.Valid([]byte(r.stderr)), "%q", r.stderr)
		})
	}
}

// What cannot be read is there all the same.
func TestListShowsWhatCannotBeRead(t *testing.T) {
	onlyMe := asNobody(t)
	long := strings.Repeat("L", 200)
	for name, c := range map[string]struct {
		harm   func(path string) error
		state  string
		code   int
		stderr string
	}{
		"nothing": {func(string) error { return nil }, "released", 0, ""},
		"no permission": {
			func(path string) error { return os.Chmod(path, 0) },
			"denied",
			77,
			"not all locks may be read",
		},
		"cut off": {func(path string) error { return os.Truncate(path, 40) }, "corrupt", 0, ""},
		"empty":   {func(path string) error { return os.Truncate(path, 0) }, "corrupt", 0, ""},
		"of another name": {
			func(path string) error { return os.Rename(path, strings.Replace(path, ".object", "x.object", 1)) },
			"corrupt",
			0,
			"",
		},
		"a directory": {
			func(path string) error { return cmp.Or(os.Remove(path), os.Mkdir(path, 0o755)) },
			"corrupt",
			0,
			"",
		},
		"a link": {
			func(path string) error { return cmp.Or(os.Rename(path, path+"1"), os.Symlink(path+"1", path)) },
			"corrupt",
			0,
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "leasehold-list-") // below which others may look, unlike t.TempDir
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			require.NoError(t, os.Chmod(dir, 0o777))
			p := place{t, dir, "file://" + dir + "/a"}
			for _, key := range []string{"a", "bad", "c", long} {
				p.record(key, leasehold.Record{Token: 1, Holder: "alice", Nonce: "x"})
			}
			files, err := filepath.Glob(p.dir + "/*.object")
			require.NoError(t, err)
			for _, file := range files {
				require.NoError(t, os.Chmod(file, 0o644))
				if base := filepath.Base(file); base == "bad.object" || strings.Contains(base, "~") &&
					name != "of another name" {
					require.NoError(t, c.harm(file))
				}
			}
			cmd := p.command("list", "-o", "json", "file://"+p.dir+"/")
			onlyMe(cmd)
			r := finish(t, cmd)
			require.Equal(t, c.code, r.code, "%s", r.stderr)
			require.Contains(t, r.stderr, c.stderr)
			all := views(t, r.out)
			require.Len(t, all, 4, "%s", r.out)
			states := make(map[string]int)
			for _, v := range all {
				states[v.State]++
				require.Equal(t, v.State == "released", v.Error == "", "%v", v)
			}
			if name == "nothing" {
				require.Equal(t, 4, states["released"])
				return
			}
			require.Equal(t, c.state, all[slices.IndexFunc(all, func(v view) bool {
				return strings.HasPrefix(v.Key, "bad")
			})].State)
			if name != "of another name" {
				require.Equal(t, map[string]int{"released": 2, c.state: 2}, states, "%s", r.out)
			}
		})
	}
}
