package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHandleFile(t *testing.T) {
	p := newPlace(t)
	file := filepath.Join(p.dir, "lock")
	require.NoError(t, os.WriteFile(file, []byte("an old one"), 0o644))
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
	offline(t, "run", "-n", p.url, "--", "true").complains(t, 75, "held by")

	offline(t, "release", "--if-held", "--handle-file", file).succeeds(t)
	offline(t, "run", "-n", p.url, "--", "true").succeeds(t)
	r = offline(t, "acquire", "-o", "json", "--handle-file", file, p.url)
	r.succeeds(t)
	require.NotContains(t, r.out, "handle\":\"file")
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
		"no handle":                 {[]string{"--if-held"}, 0, ""},
		"an empty one":              {[]string{"--if-held", ""}, 0, ""},
		"no file":                   {[]string{"--if-held", "--handle-file", p.dir + "/none"}, 0, ""},
		"another's term":            {[]string{"--if-held", forged}, 0, ""},
		"a deleted lock":            {[]string{"--if-held", strings.Replace(handle, "/a#", "/b#", 1)}, 0, ""},
		"no directory":              {[]string{"--if-held", strings.Replace(handle, "/a#", "/none/a#", 1)}, 78, "create the directory"},
		"no handle at all":          {[]string{"--if-held", "x"}, 64, "is not a handle"},
		"a directory as file":       {[]string{"--if-held", "--handle-file", p.dir}, 64, "cannot be read"},
		"two handles":               {[]string{"--if-held", "--handle-file", p.dir, handle}, 64, "takes one handle"},
		"another's term, otherwise": {[]string{forged}, 79, "has it with token 1"},
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
