package main_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestHandleFile(t *testing.T) {
	p := newPlace(t)
	file := filepath.Join(p.dir, "lock")
	require.NoError(t, os.WriteFile(file, nil, 0o644)) // as mktemp makes it
	r := offline(t, "acquire", "--handle-file", file, p.url)
	r.succeeds(t)
	require.Contains(t, r.out, ": acquired token 1 until ")
	body, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, r.out, strings.TrimSpace(string(body)))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "the handle is a secret")
	offline(t, "renew", "--handle-file", file).succeeds(t)
	offline(t, "run", "-n", p.url, "--", "true").complains(t, 75, "held by")

	other := filepath.Join(p.dir, "other")
	offline(t, "acquire", "-n", "--handle-file", other, p.url).complains(t, 75, "held by")
	offline(t, "release", "--handle-file", other).complains(t, 64, "acquire has not taken the lock")
	r = offline(t, "release", "--if-held", "--handle-file", other)
	r.succeeds(t)
	require.Empty(t, r.out)
	require.NoFileExists(t, other)

	// An acquire that fails has not touched the handle of the one that has succeeded.
	offline(t, "acquire", "-n", "--handle-file", file, p.url).complains(t, 75, "held by")
	offline(t, "acquire", "--handle-file", other, "file:///no/directory/x").complains(t, 78, "create the directory")
	still, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(body), string(still))
	left, err := filepath.Glob(filepath.Join(p.dir, ".leasehold-handle*"))
	require.NoError(t, err)
	require.Empty(t, left)
	offline(t, "run", "-n", p.url, "--", "true").complains(t, 75, "held by")

	offline(t, "release", "--if-held", "--handle-file", file).succeeds(t)
	offline(t, "run", "-n", p.url, "--", "true").succeeds(t)
	r = offline(t, "acquire", "-o", "json", "--handle-file", file, p.url)
	r.succeeds(t)
	require.NotContains(t, r.out, "handle\":\"file")
}

// A handle that may be all that can release another lock is not written over, nor is what is no
// handle. The lock is not taken then.
func TestHandleFileOfAnotherLock(t *testing.T) {
	p, next := newPlace(t), newPlace(t)
	file := filepath.Join(p.dir, "lock")
	offline(t, "acquire", "--handle-file", file, p.url).succeeds(t)
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	offline(t, "acquire", "--handle-file", file, next.url).complains(t, 64, "has the handle of another lock")
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	offline(t, "release", "--handle-file", file).succeeds(t)
	require.NoError(t, os.Remove(file))
	offline(t, "acquire", "--handle-file", file, next.url).succeeds(t)
	offline(t, "run", "-n", p.url, "--", "true").succeeds(t)
	offline(t, "run", "-n", next.url, "--", "true").complains(t, 75, "held by")

	require.NoError(t, os.WriteFile(file, []byte("the user's own"), 0o644))
	offline(t, "acquire", "--handle-file", file, p.url).complains(t, 64, "something else than a handle")
	after, err = os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "the user's own", string(after))
	offline(t, "run", "-n", p.url, "--", "sh", "-c", "exit $((LEASEHOLD_TOKEN - 3))").succeeds(t) // was not taken
}

// A handle that somebody else may have written is not read, whichever command is given its file,
// and no request is sent to the place that it names.
func TestHandleFileOfSomebodyElse(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	at := fmt.Sprintf("s3://bucket/lock?endpoint=%s&region=us-east-1", server.URL)
	handle := at + "#term=1-" + strings.Repeat("A", 26) + "\n"
	p := newPlace(t)
	plant := func(name string, mode os.FileMode) string {
		path := filepath.Join(p.dir, name)
		require.NoError(t, os.WriteFile(path, []byte(handle), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	files := map[string]string{
		plant("group", 0o660): "may be written by others (mode -rw-rw----)",
		plant("all", 0o606):   "may be written by others (mode -rw----rw-)",
	}
	if os.Getuid() == 0 {
		of := plant("of another", 0o644)
		require.NoError(t, os.Chown(of, 1234, 1234))
		files[of] = "belongs to another user (1234)"
		link := filepath.Join(p.dir, "link")
		require.NoError(t, os.Symlink(plant("own", 0o600), link))
		require.NoError(t, os.Lchown(link, 1234, 1234))
		files[link] = "belongs to another user (1234)"
	}
	for file, says := range files {
		for _, args := range [][]string{{"renew"}, {"release"}, {"release", "--if-held"}, {"hold", "--while", "1"}} {
			offline(t, append(args, "--handle-file", file)...).complains(t, 64, says)
		}
		if info, err := os.Lstat(file); err == nil && info.Mode().IsRegular() {
			offline(t, "acquire", "--handle-file", file, p.url).complains(t, 64, says)
		}
	}
	// Nor does acquire contact the place of a handle that is the user's own.
	mine := plant("mine", 0o600)
	offline(t, "acquire", "--handle-file", mine, p.url).complains(t, 64, "has the handle of another lock")
	require.Zero(t, requests)
	offline(t, "run", "-n", p.url, "--", "sh", "-c", "exit $((LEASEHOLD_TOKEN - 1))").succeeds(t) // was not taken
}

// What is not a regular file is left alone, and the lock is not taken.
func TestHandleFileThatIsNone(t *testing.T) {
	p := newPlace(t)
	target := filepath.Join(p.dir, "target")
	require.NoError(t, os.WriteFile(target, []byte("the user's own"), 0o600))
	for name, make := range map[string]func(path string) error{
		"pipe":          func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link":          func(path string) error { return os.Symlink(target, path) },
		"dangling link": func(path string) error { return os.Symlink(filepath.Join(p.dir, "none"), path) },
		"link to null":  func(path string) error { return os.Symlink(os.DevNull, path) },
		"device": func(path string) error {
			if os.Getuid() != 0 {
				return os.Symlink(os.DevNull, path)
			}
			return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) // a second /dev/null
		},
		"socket": func(path string) error {
			listener, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { listener.Close() })
			}
			return err
		},
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		path := filepath.Join(p.dir, name)
		require.NoError(t, make(path))
		before, err := os.Lstat(path)
		require.NoError(t, err)
		offline(t, "acquire", "--handle-file", path, p.url).complains(t, 64, "--handle-file ")
		after, err := os.Lstat(path)
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after), name)
		require.Equal(t, before.Mode(), after.Mode(), name)
	}
	body, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "the user's own", string(body))
	offline(t, "run", "-n", p.url, "--", "sh", "-c", "exit $LEASEHOLD_TOKEN") // was never taken

	offline(t, "release", "--handle-file", "/dev/zero").complains(t, 64, "is not a handle")
}

// What was cut short, or is of an earlier version, is refused in a file as it is in an argument.
func TestHandleFileThatWasChanged(t *testing.T) {
	p := newPlace(t)
	file := filepath.Join(p.dir, "handle")
	offline(t, "acquire", "--handle-file", file, p.url).succeeds(t)
	body, err := os.ReadFile(file)
	require.NoError(t, err)
	whole := strings.TrimSpace(string(body))
	at, term, _ := strings.Cut(whole, "#term=")
	for text, says := range map[string]string{
		"":                        "the file is empty",
		whole[:len(whole)-1]:      "pass what acquire has printed",
		whole[:len(at)]:           "pass what acquire has printed",
		whole + "\n" + whole:      "pass what acquire has printed",
		at + "#" + term:           "of an earlier version of leasehold",
		strings.ToLower(whole):    "pass what acquire has printed",
		strings.Repeat("a", 99e3): "is not a handle",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		for _, command := range []string{"renew", "hold", "release"} {
			offline(t, command, "--handle-file", file).complains(t, 64, says)
		}
	}
	for _, command := range []string{"renew", "hold", "release"} {
		offline(t, command, "--handle-file", p.dir).complains(t, 64, "is a directory")
	}
	offline(t, "run", "-n", p.url, "--", "true").complains(t, 75, "held by")
	offline(t, "release", whole).succeeds(t)
}

// An unlock that is always run is silent where there is nothing to release, and only there.
func TestReleaseIfHeld(t *testing.T) {
	p := newPlace(t)
	r := offline(t, "acquire", p.url)
	r.succeeds(t)
	handle := strings.TrimSpace(r.out)
	forged := handle[:len(handle)-26] + strings.Repeat("A", 26)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no handle":      {[]string{"--if-held"}, 0, ""},
		"an empty one":   {[]string{"--if-held", ""}, 0, ""},
		"no file":        {[]string{"--if-held", "--handle-file", p.dir + "/none"}, 0, ""},
		"another's term": {[]string{"--if-held", forged}, 0, ""},
		"a deleted lock": {[]string{"--if-held", strings.Replace(handle, "/a#", "/b#", 1)}, 0, ""},
		"no directory": {
			[]string{"--if-held", strings.Replace(handle, "/a#", "/none/a#", 1)},
			78,
			"create the directory",
		},
		"no handle at all":          {[]string{"--if-held", "x"}, 64, "is not a handle"},
		"a directory as file":       {[]string{"--if-held", "--handle-file", p.dir}, 64, "cannot be read"},
		"two handles":               {[]string{"--if-held", "--handle-file", p.dir, handle}, 64, "takes one handle"},
		"another's term, otherwise": {[]string{forged}, 79, "does not have the secret of this term"},
		"no file, otherwise":        {[]string{"--handle-file", p.dir + "/none"}, 64, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			r := offline(t, append([]string{"release"}, c.args...)...)
			require.Empty(t, r.out)
			if c.code == 0 {
				r.succeeds(t)
				return
			}
			r.complains(t, c.code, c.says)
		})
	}
	record, err := p.lock().Inspect(t.Context())
	require.NoError(t, err)
	require.False(t, record.Released())
	offline(t, "acquire", "--handle-file", p.dir+"/none/x", "file://"+p.dir+"/c").complains(t, 74, "--handle-file")
	offline(t, "run", "-n", "file://"+p.dir+"/c", "--", "sh", "-c", "exit $LEASEHOLD_TOKEN") // was never taken
	offline(t, "release", "--if-held", handle).succeeds(t)
}
