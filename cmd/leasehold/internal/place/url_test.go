package place

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
		for _, at := range []Location{
			{Scheme: "file", Bucket: "/" + strings.Trim(dir, "/")},
			{Scheme: "s3", Bucket: "b", Endpoint: "http://localhost:9000", region: dir, pathStyle: &on},
			{Scheme: "gs", Bucket: "b.example"},
			{Scheme: "azblob", Bucket: "c", account: "a"},
		} {
			at.Key = key
			back, err := ParseLock(at.String())
			require.NoError(t, err)
			require.Equal(t, at, back, "%s", at)
			at.Key += "/"
			back, err = ParsePrefix(at.String())
			require.NoError(t, err)
			require.Equal(t, at, back, "%s", at)
		}
	})
}
