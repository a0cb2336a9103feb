package main_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/storage"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/createonly"
	"github.com/leasehold-go/leasehold/gcsstore"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// oddKeys are keys that a Go program's lock can have, and that the path of a URL would read
// otherwise.
var oddKeys = []string{
	"nightly", "jobs/nightly", "jobs%2Fnightly", "jobs%2fnightly", "Jobs/Nightly", "a b", "a+b", "a%20b", "what?",
	"100%", "#1", "a&b=c;d",
	"é", "e\u0301", "日本/語", "...", "a..b/c.", "~", "a~b", "x:y@z", "[1]", "%", "%%",
	"jobs/%2e%2e/x", "nightly.object", "jobs/" + strings.Repeat("ü/", 200) + "x",
}

// namesThemselves holds all keys at once, and checks that the URL that list prints of each names
// that lock, and no other: status of the URL shows the same holder, and run finds it held.
func namesThemselves(t *testing.T, store leasehold.Store, prefix string, command func(args ...string) result) {
	t.Helper()
	holders := make(map[string]string)
	for i, key := range oddKeys {
		lock, err := leasehold.NewLock(store, key, leasehold.WithHolder(fmt.Sprintf("holder-%d", i)),
			leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		lease, err := lock.Acquire(t.Context())
		if strings.Contains(key+"/", "./") && errors.Is(err, leasehold.ErrPermanent) { // Azure has no such names
			continue
		}
		require.NoError(t, err, "%q", key)
		t.Cleanup(func() { _ = lease.Release(context.WithoutCancel(t.Context())) })
		holders[key] = lock.Holder()
	}
	r := command("list", "-o", "json", prefix)
	r.succeeds(t)
	listed := views(t, r.out)
	require.Len(t, listed, len(holders))
	require.GreaterOrEqual(t, len(holders), len(oddKeys)-2)
	status := []string{"status", "-o", "json"}
	for _, v := range listed {
		require.Equal(t, holders[v.Key], v.Holder, "%q", v.Key)
		status = append(status, v.URL)
	}
	r = command(status...)
	r.succeeds(t)
	for i, v := range views(t, r.out) {
		require.Equal(t, listed[i].Key, v.Key, "%s", listed[i].URL)
		require.Equal(t, listed[i].Holder, v.Holder, "%s", listed[i].URL)
		require.Equal(t, listed[i].URL, v.URL)
	}
	for _, v := range listed {
		if v.Key == "jobs/nightly" || v.Key == "jobs%2Fnightly" {
			command("run", "-n", v.URL, "--", "true").complains(t, 75, "is held")
		}
	}
}

func TestAListedURLNamesItsLock(t *testing.T) {
	t.Run("a directory", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "a dir#100%?é")
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "jobs"), 0o755)) // where another lock "nightly" could be
		escaped := strings.NewReplacer("%", "%25", " ", "%20", "#", "%23", "?", "%3F").Replace(dir)
		namesThemselves(t, leasehold.NewFileStore(dir), "file://"+escaped+"/", func(args ...string) result {
			return offline(t, args...)
		})
		r := offline(t, "list", "-o", "json", "file://"+escaped+"/jobs%2Fn")
		r.succeeds(t)
		require.Len(t, views(t, r.out), 1, "%s", r.out)
	})
	t.Run("S3", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t)
		namesThemselves(t, leasehold.NewS3Store(b.server.Client(), b.name), b.url(""), func(args ...string) result {
			return b.run(args...)
		})
	})
	t.Run("S3 that only creates", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t)
		store := createonly.New(createonly.NewS3(b.server.Client(), b.name))
		namesThemselves(t, store, b.url("")+"&createonly=1", func(args ...string) result { return b.run(args...) })
	})
	t.Run("Cloud Storage", func(t *testing.T) {
		t.Parallel()
		endpoint, gs := newGCS(t, "listed")
		client, err := gcsstore.NewClient(t.Context(), option.WithoutAuthentication(),
			option.WithEndpoint(endpoint+"/storage/v1/"))
		require.NoError(t, err)
		defer client.Close()
		namesThemselves(t, gcsstore.New(client, "listed"), "gs://listed/?endpoint="+endpoint, gs)
	})
	t.Run("Azure", func(t *testing.T) {
		t.Parallel()
		server, client, command := newAzure(t)
		env := []string{"AZURE_STORAGE_CONNECTION_STRING=" + server.ConnectionString()}
		namesThemselves(t, azblobstore.New(client, azureContainer), "azblob://"+azureContainer+"/",
			func(args ...string) result {
				return finish(t, command(env, args...))
			})
	})
}

// newGCSBucket makes a bucket of this name on fake-gcs-server.
func newGCSBucket(t testing.TB, name string) (endpoint string) {
	endpoint = testserver.FakeGCS(t)
	client, err := gcsstore.NewClient(t.Context(), option.WithoutAuthentication(),
		option.WithEndpoint(endpoint+"/storage/v1/"))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.Bucket(name).Create(t.Context(), "project", &storage.BucketAttrs{}))
	return endpoint
}

// newGCS makes a bucket of this name, and returns what runs the program there.
func newGCS(t *testing.T, name string) (endpoint string, gs func(args ...string) result) {
	endpoint = newGCSBucket(t, name)
	return endpoint, func(args ...string) result {
		cmd := bucket{t: t}.command(args...)
		cmd.Env = plainEnviron()
		for i, v := range cmd.Env {
			if strings.HasPrefix(v, "STORAGE_EMULATOR_HOST=") {
				cmd.Env[i] = "IGNORED="
			}
		}
		return finish(t, cmd)
	}
}
