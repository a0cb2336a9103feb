package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFileURLs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := "file://" + dir + "/report"
	r := offline(t, "run", url, "--", "sh", "-c", "echo $LEASEHOLD_KEY $LEASEHOLD_TOKEN; exit 3")
	require.Equal(t, 3, r.code, "%s", r.stderr)
	require.Equal(t, "report 1\n", r.out)
	r = offline(t, "acquire", "--holder", "ci", url)
	r.succeeds(t)
	handle := strings.TrimSpace(r.out)
	require.Regexp(t, "^"+url+"#term=2-[A-Z2-7]{26}$", handle)
	offline(t, "run", "-n", url, "--", "true").complains(t, 75, `held by "ci" with token 2`)
	offline(t, "renew", handle).succeeds(t)
	offline(t, "run", "file://"+dir+"/with%20space", "--", "true").succeeds(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other.object"), []byte("not one of leasehold's"), 0o600))
	r = offline(t, "list", "-o", "json", "file://"+dir+"/")
	r.succeeds(t)
	all := views(t, r.out)
	require.Len(t, all, 3)
	require.Equal(t, []any{"other", "corrupt"}, []any{all[0].Key, all[0].State})
	all = all[1:]
	require.Equal(t, []any{"report", "held", "ci", uint64(2), url},
		[]any{all[0].Key, all[0].State, all[0].Holder, all[0].Token, all[0].URL})
	require.Equal(t, []any{"with space", "free", "file://" + dir + "/with%20space"},
		[]any{all[1].Key, all[1].State, all[1].URL})
	r = offline(t, "list", "-o", "json", "file://"+dir+"/re")
	r.succeeds(t)
	require.Len(t, views(t, r.out), 1)
	offline(t, "release", handle).succeeds(t)

	offline(t, "run", "file:///no/such/directory/x", "--", "true").complains(t, 78, "create the directory")
	offline(t, "run", "file://"+dir+"/report.object/x", "--", "true").complains(t, 78, "is not a directory")
	limited := exec.CommandContext(t.Context(), "sh", "-c", `trap '' XFSZ; ulimit -f 0; exec "$0" "$@"`, program, "run",
		"-n", "file://"+dir+"/full", "--", "true")
	finish(t, limited).complains(t, 69, "file too large")
	if os.Getuid() != 0 { // who may do everything
		require.NoError(t, os.Chmod(dir, 0o500))
		offline(t, "run", "-n", "file://"+dir+"/denied", "--", "true").complains(t, 77, "permission denied")
		require.NoError(t, os.Chmod(dir, 0o700))
	}
	r = offline(t, "status", url)
	r.succeeds(t)
	require.Contains(t, r.out, "(ci)")
}

// JSON makes six bytes of one of these, so the line with the key is longer than a page of memory.
func TestListOfLongKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := "file://" + dir + "/" + strings.Repeat("%3C", 1024)
	r := offline(t, "run", url, "--", "true")
	r.succeeds(t)
	r = offline(t, "list", "-o", "json", "file://"+dir+"/")
	r.succeeds(t)
	all := views(t, r.out)
	require.Len(t, all, 1)
	require.Equal(t, strings.Repeat("<", 1024), all[0].Key)

	// A file without a line end is none of leasehold's, however long it is.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "page.object"), bytes.Repeat([]byte("x"), 1<<20), 0o600))
	r = offline(t, "list", "-o", "json", "file://"+dir+"/")
	r.succeeds(t)
	all = views(t, r.out)
	require.Len(t, all, 2)
	require.Equal(t, []any{"page", "corrupt"}, []any{all[1].Key, all[1].State})
}

// A machine's processes share a clock, so the next one takes over at once from one that was killed,
// as soon as the TTL has passed.
func TestFileTakeover(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir() + "/a"
	offline(t, "acquire", "--ttl", "5s", url).succeeds(t)
	offline(t, "run", "-n", url, "--", "true").complains(t, 75, "is held")
	time.Sleep(5100 * time.Millisecond)
	offline(t, "run", "-n", url, "--", "true").succeeds(t)
}
