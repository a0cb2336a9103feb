package main_test

import (
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// The only connection of leasehold run falls silent: it speaks HTTP/2. The lock is renewed over
// another one, with the clients that the command makes.
func TestTheConnectionOfRunFallsSilent(t *testing.T) {
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t)
		link := faultproxy.StartLinkTo(t, b.server.Endpoint)
		cmd := b.command("run", "--ttl", "3s", b.urlAt(link.URL(), "locks/a"), "--", "sleep", "60")
		cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+link.CertFile(t))
		outlivesSilence(t, link, cmd, b.lock("locks/a"))
	})
	t.Run("azblob", func(t *testing.T) {
		t.Parallel()
		server, client, command := newAzure(t)
		direct, err := leasehold.NewLock(azblobstore.New(client, azureContainer), "locks/a")
		require.NoError(t, err)
		link := faultproxy.StartLinkTo(t, strings.TrimSuffix(server.Endpoint, "/"+server.Account))
		server.Endpoint = link.URL() + "/" + server.Account
		cmd := command([]string{"AZURE_STORAGE_CONNECTION_STRING=" + server.ConnectionString(),
			"SSL_CERT_FILE=" + link.CertFile(t)},
			"run", "--ttl", "3s", "azblob://"+azureContainer+"/locks/a", "--", "sleep", "60")
		outlivesSilence(t, link, cmd, direct)
	})
}

func outlivesSilence(t *testing.T, link *faultproxy.Link, cmd *exec.Cmd, direct *leasehold.Lock) {
	const ttl = 3 * time.Second
	s := start(t, cmd)
	var before leasehold.Record
	require.Eventually(t, func() bool {
		now, err := direct.Inspect(t.Context())
		if err != nil || now.Nonce == before.Nonce {
			return false
		}
		before, now = now, before
		return now.Nonce != "" // it has been renewed once
	}, hangs, ttl/100)
	made := link.Made()
	require.NotZero(t, link.Silence())
	began := time.Now()
	require.Eventually(t, func() bool {
		now, err := direct.Inspect(t.Context())
		return err == nil && now.Nonce != before.Nonce
	}, 6*ttl, ttl/100, "not renewed") // for minutes, if the connection is not given up
	t.Logf("the next write came after %.2f TTL, over connection %d of %d",
		time.Since(began).Seconds()/ttl.Seconds(), made+1, link.Made())
	require.Greater(t, link.Made(), made)
	require.NoError(t, s.Process.Signal(syscall.SIGINT))
	s.wait(t)
}

// A proxy that writes its own Accept-Encoding does not spoil the signature of any request, also of
// those that are not the store's.
func TestCommandBehindAProxyThatWritesAcceptEncoding(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	proxy := testserver.StartNginx(t, b.server.Endpoint, `proxy_set_header Accept-Encoding "gzip, br";`)
	b.run("run", b.urlAt(proxy, "locks/a"), "--", "true").succeeds(t)
	r := b.run("list", "-o", "json", b.urlAt(proxy, "locks/"))
	r.succeeds(t)
	require.Len(t, views(t, r.out), 1)
	r = b.run("doctor", b.urlAt(proxy, "locks/a"))
	require.NotContains(t, r.out, "SignatureDoesNotMatch")
	require.NotContains(t, r.out, "fail")
}

// A policy of the bucket demands that each write names its encryption.
func TestWritesNameTheirEncryption(t *testing.T) {
	t.Parallel()
	server := testserver.StartMinIOWithKMS(t)
	b := bucket{t, server, server.Bucket(t)}
	var mu sync.Mutex
	want, writes := [2]string{}, 0
	var signed []string // requests that sign Accept-Encoding
	policy := b.behind(func(r *http.Request) *http.Response {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(r.Header.Get("Authorization"), "accept-encoding") {
			signed = append(signed, r.Method+" "+r.URL.RequestURI())
		}
		if r.Method != http.MethodPut {
			return nil
		}
		writes++
		if r.Header.Get("X-Amz-Server-Side-Encryption") != want[0] ||
			r.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id") != want[1] {
			return s3Error(http.StatusForbidden, "AccessDenied")
		}
		return nil
	}, nil)
	demand := func(sse, key string) {
		mu.Lock()
		defer mu.Unlock()
		want, writes = [2]string{sse, key}, 0
	}
	for name, c := range map[string]struct{ sse, key string }{
		"SSE-S3": {"AES256", ""}, "SSE-KMS": {"aws:kms", ""}, "SSE-KMS with a key": {"aws:kms", testserver.KMSKey},
	} {
		demand(c.sse, c.key)
		bare := b.urlAt(policy, "locks/"+strings.ReplaceAll(name, " ", "-"))
		b.run("run", bare, "--", "true").complains(t, 77, "names its encryption, as sse=AES256 or sse=aws:kms in the "+
			"URL does")
		url := bare + "&sse=" + c.sse
		if c.key != "" {
			url += "&sse-kms-key-id=" + c.key
		}
		b.run("run", url, "--", "true").succeeds(t)
		object, err := b.server.Client().HeadObject(t.Context(), &s3.HeadObjectInput{
			Bucket: &b.name, Key: aws.String("locks/" + strings.ReplaceAll(name, " ", "-")),
		})
		require.NoError(t, err)
		require.EqualValues(t, c.sse, object.ServerSideEncryption, name)
		if c.key == "" {
			continue // one kind is enough for what follows
		}
		r := b.run("acquire", url)
		r.succeeds(t)
		handle := strings.TrimSpace(r.out)
		require.Contains(t, handle, "sse=", "whoever renews names it too")
		b.run("renew", handle).succeeds(t)
		b.run("release", handle).succeeds(t)
		b.run("acquire", url).succeeds(t)
		require.Equal(t, 0, b.run("break", "--token", "3", "--yes", url).code)
		require.Equal(t, 0, b.run("bench", "--rounds", "2", "--ttl", benchTTL.String(), url).code)
		r = b.run("doctor", url)
		require.NotContains(t, r.out, "fail", name)
		r = b.run("list", "-o", "json", b.urlAt(policy, "locks/")+"&sse="+c.sse)
		r.succeeds(t)
		for _, v := range views(t, r.out) {
			require.Contains(t, v.URL, "sse=", "a listed URL can be written to")
		}
		r = b.run("doctor", bare)
		require.Contains(t, r.out, "if a policy demands encryption, add sse=AES256 or sse=aws:kms to the URL")
		require.Greater(t, writes, 20, name)
	}
	require.Empty(t, signed)
}
