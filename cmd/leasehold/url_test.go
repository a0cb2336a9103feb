package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// The URL that is printed of a lock names the same key in the same place, whatever key and
// directory are.
func FuzzURLOfALock(f *testing.F) {
	for _, key := range []string{"a", "jobs/nightly", "jobs%2Fnightly", "a b%2fc", "é?#&;+ ", "%", `"<>`, "..a/...",
		"x//y", "/", "a/../b", "\x00", "\xff"} {
		f.Add("/var/lib", key)
		f.Add("/"+key, key)
		f.Add("/a/"+key+"/b//c/..", key+"/"+key)
	}
	f.Add("/", "a")
	f.Add("//", "a/b")
	f.Fuzz(func(t *testing.T, dir, key string) {
		if storeapi.BadKey(key) != "" {
			return
		}
		on := true
		for _, at := range []location{
			{scheme: "file", bucket: "/" + strings.Trim(dir, "/")},
			{scheme: "s3", bucket: "b", endpoint: "http://localhost:9000", region: dir, pathStyle: &on},
			{scheme: "gs", bucket: "b.example"},
			{scheme: "azblob", bucket: "c", account: "a"},
		} {
			at.key = key
			back, err := parseLock(at.String())
			require.NoError(t, err)
			require.Equal(t, at, back, "%s", at)
			at.key += "/"
			back, err = parsePrefix(at.String())
			require.NoError(t, err)
			require.Equal(t, at, back, "%s", at)
		}
	})
}
