package place

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/createonly"
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

// list and handles print such URLs, which must lead to the same store.
func TestURLOfALockThatOnlyCreates(t *testing.T) {
	for url, want := range map[string]string{
		"s3://bucket/a?createonly=1":    "s3://bucket/a?createonly=1",
		"s3://bucket/a?createonly=true": "s3://bucket/a?createonly=1",
		"s3://bucket/a?createonly=0":    "s3://bucket/a",
	} {
		at, err := ParseLock(url)
		require.NoError(t, err)
		require.Equal(t, want, at.String())
		require.Equal(t, strings.Contains(want, "createonly"), at.CreateOnly)
	}
	_, err := ParseLock("s3://bucket/a?createonly=maybe")
	require.ErrorContains(t, err, `createonly is "maybe", not 1 or 0`)
}

// Of a lock that has many objects there is one, wherever its objects are in the list.
func TestListOfLocksThatOnlyCreate(t *testing.T) {
	const versions = "/.leasehold-versions/.leasehold-999999999999999"
	pages := map[string][]string{
		"":  {"a" + versions + "8", "b" + versions + "7", "foreign"},
		"2": {"a" + versions + "7", "a/.leasehold-versions/readme", "ab" + versions + "8", "b" + versions + "8"},
	}
	store := NewStore(nil, func(_ context.Context, prefix, token string) (objects []Object, next string, err error) {
		for _, name := range pages[token] {
			if strings.HasPrefix(name, prefix) {
				objects = append(objects, Object{Key: name})
			}
		}
		if token == "" {
			next = "2"
		}
		return objects, next, nil
	}, nil)
	store.keyOf = createonly.KeyOf
	for prefix, want := range map[string][]string{
		"":   {"a", "b", "foreign", "a/.leasehold-versions/readme", "ab"},
		"a":  {"a", "a/.leasehold-versions/readme", "ab"},
		"a/": {"a/.leasehold-versions/readme"},
	} {
		var got []string
		for o, err := range store.Objects(t.Context(), prefix) {
			require.NoError(t, err)
			got = append(got, o.Key)
		}
		require.Equal(t, want, got, prefix)
	}
}

// A server that says that there is more, and not where, must not hide locks in silence.
func TestAListThatIsCutOffIsNotTakenForAWholeOne(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<ListBucketResult><Name>b</Name><IsTruncated>true</IsTruncated>"+
			"<Contents><Key>a</Key></Contents></ListBucketResult>")
	}))
	defer server.Close()
	at, err := ParsePrefix("s3://b/?endpoint=" + server.URL)
	require.NoError(t, err)
	store, err := at.Open(t.Context())
	require.NoError(t, err)
	defer store.Close()
	for _, err = range store.Objects(t.Context(), "") {
	}
	require.ErrorContains(t, err, "cut off")
}
