package main_test

import (
	"encoding/json"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"github.com/leasehold-go/leasehold/gcsstore"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// A wrong URL says what is wrong with it, and nothing is sent.
func TestWrongURLs(t *testing.T) {
	for url, why := range map[string]string{
		"":                               "it is empty",
		"report":                         "it has no scheme: write s3://bucket/key",
		"/var/lock/report":               "write file:///var/lock/report",
		"bucket/key":                     "it has no scheme",
		"https://b.s3.amazonaws.com/key": "write s3://bucket/key?endpoint=https://b.s3.amazonaws.com",
		"s4://bucket/key":                `there is no store "s4"`,
		"s3:bucket/key":                  "write s3://bucket/key",
		"s3:/bucket/key":                 "two slashes are missing",
		"s3://":                          "it has no bucket",
		"s3:///key":                      "it has no bucket",
		"s3://bucket":                    "it has no key",
		"s3://bucket/":                   "it has no key",
		"s3://bucket/locks/":             "it ends with a slash",
		"s3://bucket//locks":             "has an empty path segment",
		"s3://bucket/a/../b":             `has a path segment "." or ".."`,
		"s3://bucket/a%0Ab":              "has a control character",
		"s3://bucket/%zz":                "invalid URL escape",
		"s3://bucket:9000/key":           "a bucket has no port",
		"s3://id:secret@bucket/key":      "credentials do not belong in it",
		"s3://bucket/key#1":              "write %23",
		"s3://bucket/key?color=red": `no parameter "color", only endpoint, region, ` +
			"path-style, profile, sse, sse-kms-key-id, createonly",
		"s3://bucket/key?region=a;b":               "its parameters cannot be read",
		"s3://bucket/key?region=":                  `the parameter "region" is empty`,
		"s3://bucket/key?region=a&region=b":        `the parameter "region" is there twice`,
		"s3://bucket/key?endpoint=localhost":       "is not a URL such as http://localhost:9000",
		"s3://bucket/key?path-style=maybe":         "not 1 or 0",
		"s3://bucket/key?createonly=maybe":         "not 1 or 0",
		"s3://bucket/key?sse=aes256":               `sse is "aes256", not AES256, aws:kms or aws:kms:dsse`,
		"s3://bucket/key?sse-kms-key-id=x":         "is of no use without sse=aws:kms",
		"s3://b/k?sse=AES256&sse-kms-key-id=x":     "is of no use without sse=aws:kms",
		"s3://b/k?sse=aws:kms&sse-kms-key-id=a+b":  "not the ID, ARN or alias of a key",
		"gs://bucket/key?sse=AES256":               `no parameter "sse", only endpoint`,
		"gs://bucket/key?region=x":                 `no parameter "region", only endpoint`,
		"azblob://container/key?region=x":          `no parameter "region", only account, endpoint`,
		"file://var/lock/report":                   "write file:///var/lock/report",
		"file:///":                                 "it has no key",
		"file:///var/lock/":                        "it has no key",
		"file:///var/lock/a?b=c":                   "a file URL has no parameters",
		"s3://bucket/" + strings.Repeat("k", 1025): "longer than 1024 bytes",
	} {
		for _, args := range [][]string{{"status", url}, {"run", url, "--", "true"}, {"acquire", url}} {
			r := offline(t, args...)
			r.complains(t, 64, why)
		}
	}
	for url, why := range map[string]string{
		"s3://bucket//x/": "has an empty path segment",
		"s3://":           "it has no bucket",
		"prefix/":         "it has no scheme",
	} {
		offline(t, "list", url).complains(t, 64, why)
	}
}

func TestWrongArguments(t *testing.T) {
	for text, args := range map[string][]string{
		"unknown command":           {"frob"},
		"unknown flag":              {"run", "--frob", "s3://b/k", "--", "true"},
		"two dashes are missing":    {"run", "s3://b/k", "true"},
		"one URL before":            {"run", "--", "true"},
		"no command after":          {"run", "s3://b/k", "--"},
		"invalid argument":          {"run", "--ttl", "soon", "s3://b/k", "--", "true"},
		"below 1s":                  {"run", "--ttl", "10ms", "s3://b/k?endpoint=http://127.0.0.1:9", "--", "true"},
		"safety margin":             {"run", "--margin", "30s", "s3://b/k?endpoint=http://127.0.0.1:9", "--", "true"},
		"is negative":               {"run", "--wait", "-1s", "s3://b/k", "--", "true"},
		"--crash-drain -1s":         {"elect", "--crash-drain", "-1s", "s3://b/k", "--", "true"},
		"not below the TTL 30s":     {"run", "--crash-drain", "30s", "s3://b/k", "--", "true"},
		"neither release nor keep":  {"run", "--on-crash", "restart", "s3://b/k", "--", "true"},
		"keep exclude each other":   {"run", "--on-crash", "keep", "--crash-drain", "2s", "s3://b/k", "--", "true"},
		"neither text nor json":     {"status", "-o", "xml", "s3://b/k"},
		"one URL or more":           {"status"},
		"takes one URL, not 2":      {"acquire", "s3://b/k", "s3://b/l"},
		"takes one URL of a prefix": {"list"},
		"accepts":                   {"man", "x"},
	} {
		if text == "accepts" {
			require.Equal(t, 64, offline(t, args...).code)
			continue
		}
		offline(t, args...).complains(t, 64, text)
	}
	r := offline(t, "frob", "-o", "json")
	require.Equal(t, 64, r.code)
	r = offline(t, "-o", "json", "status", "x")
	require.Equal(t, 64, r.code)
	var failed struct {
		Error string
		Code  int
	}
	require.NoError(t, json.Unmarshal([]byte(r.stderr), &failed), "%s", r.stderr)
	require.Equal(t, 64, failed.Code)
}

// What the store says leads to an exit code, and to one line.
func TestStoreErrors(t *testing.T) {
	b := newBucket(t)
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := "http://" + refused.Addr().String()
	require.NoError(t, refused.Close())
	missing := strings.Replace(b.url("locks/x"), "s3://", "s3://no-such-", 1)
	for _, c := range []struct {
		url, text string
		code      int
		env       []string
	}{
		{b.urlAt(nobody, "locks/x"), "cannot reach the store at " + nobody, 69, nil},
		{b.urlAt("http://no-such-host.invalid", "locks/x"), `the host "no-such-host.invalid" is unknown`, 69, nil},
		{missing, "create the bucket", 78, nil},
		{b.url("locks/x"), "wrong secret key", 77, []string{"AWS_SECRET_ACCESS_KEY=wrong"}},
		{b.url("locks/x"), "wrong access key", 77, []string{"AWS_ACCESS_KEY_ID=wrong"}},
		{b.url("locks/x"), "no credentials", 78, []string{"AWS_SECRET_ACCESS_KEY=", "AWS_ACCESS_KEY_ID="}},
		{"s3://" + b.name + "/locks/x", "set AWS_REGION", 78, nil},
		{b.url("locks/x") + "&profile=none", "reading the configuration of the AWS SDK", 78, nil},
	} {
		for _, args := range [][]string{{"run", "-n", c.url, "--", "true"}, {"status", c.url},
			{"acquire", "-n", c.url}} {
			cmd := b.command(args...)
			cmd.Env = append(cmd.Env, c.env...)
			finish(t, cmd).complains(t, c.code, c.text)
		}
	}
	// A wait is over at its end, and not before, as long as the error can pass.
	began := time.Now()
	r := b.run("run", "--wait", "2s", b.urlAt(nobody, "locks/x"), "--", "true")
	require.Equal(t, 69, r.code)
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	require.Contains(t, lines[len(lines)-1], "cannot reach the store at "+nobody)
}

// newGCS makes a bucket of this name on fake-gcs-server, and returns what runs the program there.
func newGCS(t *testing.T, name string) (endpoint string, gs func(args ...string) result) {
	endpoint = testserver.FakeGCS(t)
	client, err := gcsstore.NewClient(t.Context(), option.WithoutAuthentication(),
		option.WithEndpoint(endpoint+"/storage/v1/"))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.Bucket(name).Create(t.Context(), "project", &storage.BucketAttrs{}))
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

func TestGoogleCloudStorage(t *testing.T) {
	t.Parallel()
	name := "leasehold-cmd"
	endpoint, gs := newGCS(t, name)
	url := "gs://" + name + "/locks/a?endpoint=" + endpoint
	r := gs("run", url, "--", "sh", "-c", "echo $LEASEHOLD_TOKEN; exit 3")
	require.Equal(t, 3, r.code, "%s", r.stderr)
	require.Equal(t, "1\n", r.out)
	r = gs("acquire", url)
	r.succeeds(t)
	handle := strings.TrimSpace(r.out)
	gs("renew", handle).succeeds(t)
	r = gs("list", "-o", "json", "gs://"+name+"/locks/?endpoint="+endpoint)
	r.succeeds(t)
	all := views(t, r.out)
	require.Len(t, all, 1)
	require.Equal(t, []any{"locks/a", "held", uint64(2)}, []any{all[0].Key, all[0].State, all[0].Token})
	gs("release", handle).succeeds(t)
	gs("run", "--ttl", "3s", url, "--", "true").complains(t, 64, "--ttl 3s is below 6s")
	gs("run", strings.Replace(url, name, "no-such-bucket", 1), "--", "true").complains(t, 78, "bucket")
}

func TestManualHelpAndCompletion(t *testing.T) {
	r := offline(t, "man")
	r.succeeds(t)
	for _, part := range []string{".TH LEASEHOLD 1", `.SS "leasehold run [flags] URL`, `\-\-no\-wait`, ".SH EXIT CODES",
		".SH GUARANTEE", ".SH URLS", `.SS "leasehold break`} {
		require.Contains(t, r.out, part)
	}
	for line := range strings.Lines(r.out) {
		require.NotRegexp(t, `^\.([^A-Znf]|$)|^'`, line, "no text begins like a request")
	}
	r = offline(t, "help", "exit-codes")
	r.succeeds(t)
	require.Contains(t, r.out, "the lease was lost; the command is dead, or was not started")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		r := offline(t, "completion", shell)
		r.succeeds(t)
		require.Contains(t, r.out, "leasehold")
	}
	r = offline(t, "__complete", "run", "--no")
	require.Contains(t, r.out, "--no-wait")
}

// The command tells more than the flag, and begins as it does.
func TestVersion(t *testing.T) {
	flag := offline(t, "--version")
	flag.succeeds(t)
	r := offline(t, "version")
	r.succeeds(t)
	require.True(t, strings.HasPrefix(r.out, strings.TrimSpace(flag.out)+" "), "%s%s", flag.out, r.out)
	require.Contains(t, r.out, runtime.Version())
	r = offline(t, "version", "-o", "json")
	r.succeeds(t)
	var b struct{ Version, Revision, Go, Platform string }
	require.NoError(t, json.Unmarshal([]byte(r.out), &b), r.out)
	require.Equal(t, "leasehold "+b.Version, strings.TrimSpace(flag.out))
	require.Equal(t, []string{runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}, []string{b.Go, b.Platform})
	require.Contains(t, offline(t, "version").out, b.Revision)
	offline(t, "version", "x").complains(t, 64, "version")
}
