package filestore

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileNamesAreReadable(t *testing.T) {
	for key, name := range map[string]string{
		"report":                 "report.object",
		"locks/my-service_2.v1":  "locks%2fmy-service_2.v1.object",
		"Report":                 "%52eport.object",
		"é":                      "%c3%a9.object",
		"%2f":                    "%252f.object",
		"..":                     "...object",
		".leasehold-x.tmp":       ".leasehold-x.tmp.object",
		strings.Repeat("n", 133): strings.Repeat("n", 133) + ".object",
		"locks/" + strings.Repeat("n", 126): "locks%2f" + strings.Repeat("n", 60) +
			"~660015e14c05b570b23f1eba0f4fe82b80714bd0ffd358e787c73e7babcc7d99.object",
	} {
		require.Equal(t, name, FileName(key))
	}
}

var (
	short = regexp.MustCompile(`^([a-z0-9._-]|%[0-9a-f]{2})*\.object$`)
	long  = regexp.MustCompile(`^[a-z0-9._%-]{68}~[0-9a-f]{64}\.object$`)
)

// Two keys never share a file, on a file system that ignores case either, and no key leads out of
// the directory or to a temporary file.
func FuzzFileName(f *testing.F) {
	for _, pair := range [][2]string{
		{
			"k",
			"K",
		}, {
			"a/b",
			"a%2fb",
		}, {
			"a",
			"a/b",
		}, {"..", "../x"}, {"/etc/passwd", "etc/passwd"}, {"e\u0301", "\u00e9"}, {"", "."}, {"a\x00b", "a"},
		{
			strings.Repeat("n", 200),
			strings.Repeat("n", 201),
		}, {strings.Repeat("N", 50), strings.Repeat("%4e", 50)}, {"\xff", "\ufffd"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, key := range []string{a, b} {
			name := FileName(key)
			require.LessOrEqual(t, len(name), maxName)
			require.True(t, short.MatchString(name) || long.MatchString(name), name)
			require.True(t, filepath.IsLocal(name), name)
			require.Equal(t, name, filepath.Base(name))
			require.False(t, strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix), name)
		}
		for _, key := range []string{a, b} {
			if back := KeyOf(FileName(key)); back != "" || !strings.Contains(FileName(key), "~") {
				require.Equal(t, key, back)
			}
		}
		if name := a + suffix; KeyOf(name) != "" {
			require.Equal(t, name, FileName(KeyOf(name)))
		}
		require.Equal(t, a == b, strings.EqualFold(FileName(a), FileName(b)), "%q %q", a, b)
	})
}
