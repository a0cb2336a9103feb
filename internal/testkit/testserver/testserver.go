// Package testserver runs real servers for tests: MinIO, VersityGW and fake-gcs-server, built from
// their Go modules and started as processes on loopback. If a server cannot be built or started,
// the test fails. Only "go test -short" skips it.
package testserver

import (
	"context"
	"encoding/base64"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// buildWithin bounds a build with an empty cache.
const buildWithin = 20 * time.Minute

const (
	accessKey = "leasehold"
	secretKey = "leasehold-secret"
	region    = "us-east-1"
)

// kind describes how to run one of the servers, and holds the process that the tests of this binary
// share.
type kind struct {
	name          string
	health        string
	env           []string
	args          func(addr, data string) []string
	deleteIfMatch bool

	once   sync.Once
	shared *Process
	err    error
}

var (
	minio = &kind{
		name:   "minio",
		health: "/minio/health/cluster", // because "live" answers before a bucket can be created
		env: []string{
			"MINIO_ROOT_USER=" + accessKey,
			"MINIO_ROOT_PASSWORD=" + secretKey,
			"MINIO_BROWSER=off",
			"MINIO_UPDATE=off",
		},
		args: func(addr, data string) []string {
			return []string{"server", "--quiet", "--address", addr, data}
		},
	}
	versitygw = &kind{
		name:   "versitygw",
		health: "/health",
		args: func(addr, data string) []string {
			return []string{"--quiet", "--port", addr, "--health", "/health", "--region", region,
				"--access", accessKey, "--secret", secretKey, "posix", data}
		},
		deleteIfMatch: true,
	}
	fakeGCS = &kind{
		name:   "fake-gcs-server",
		health: "/_internal/healthcheck",
		args: func(addr, data string) []string {
			host, port, _ := strings.Cut(addr, ":")
			return []string{"-scheme", "http", "-host", host, "-port", port, "-public-host", addr,
				"-external-url", "http://" + addr, "-backend", "memory", "-log-level", "warn"}
		},
	}
)

var inMain atomic.Bool

// Main runs the tests of a binary that uses [MinIO], [VersityGW] or [FakeGCS], and stops these
// servers after the last test:
//
//	func TestMain(m *testing.M) { os.Exit(testserver.Main(m)) }
//
// A package that also checks for leaked goroutines gives goleak an m whose Run calls Main.
func Main(m *testing.M) int {
	inMain.Store(true)
	defer func() {
		for _, k := range []*kind{minio, versitygw, fakeGCS} {
			if k.shared != nil {
				k.shared.close()
			}
		}
	}()
	return m.Run()
}

// MinIO returns the MinIO process that all tests of this binary share. Its DELETE ignores If-Match.
func MinIO(tb testing.TB) S3 { return minio.s3(minio.share(tb)) }

// VersityGW returns the VersityGW process that all tests of this binary share.
func VersityGW(tb testing.TB) S3 { return versitygw.s3(versitygw.share(tb)) }

// FakeGCS returns the URL, such as http://127.0.0.1:4443, of the fake-gcs-server process that all
// tests of this binary share. The JSON API is at endpoint + "/storage/v1/", and
// STORAGE_EMULATOR_HOST accepts the URL. Its DELETE ignores preconditions.
func FakeGCS(tb testing.TB) (endpoint string) { return "http://" + fakeGCS.share(tb).Addr }

// StartMinIO starts a MinIO for this test only, which the test may kill and restart.
func StartMinIO(tb testing.TB) (S3, *Process) {
	p := minio.start(tb)
	return minio.s3(p), p
}

// StartMinIOWithWebhooks starts a MinIO for this test only, which the test may kill and restart.
// [S3.Notify] makes it post bucket notifications to each of the URLs, with the header
// "Authorization: Bearer" and the token. A receiver may be down at any time.
func StartMinIOWithWebhooks(tb testing.TB, token string, urls ...string) (S3, *Process) {
	var env, queues []string
	for i, url := range urls {
		id := strconv.Itoa(i + 1)
		env = append(env, "MINIO_NOTIFY_WEBHOOK_ENABLE_"+id+"=on", "MINIO_NOTIFY_WEBHOOK_ENDPOINT_"+id+"="+url,
			"MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN_"+id+"="+token)
		queues = append(queues, "arn:minio:sqs::"+id+":webhook")
	}
	p := minio.start(tb, env...)
	s := minio.s3(p)
	s.Queues = queues
	return s, p
}

// KMSKey is the key of a MinIO with KMS.
const KMSKey = "leasehold"

// StartMinIOWithKMS starts a MinIO for this test only, which can encrypt objects: by SSE-S3, and
// with [KMSKey] by SSE-KMS.
func StartMinIOWithKMS(tb testing.TB) S3 {
	secret := base64.StdEncoding.EncodeToString([]byte("leasehold-leasehold-leasehold-12")) // 32 bytes
	return minio.s3(minio.start(tb, "MINIO_KMS_SECRET_KEY="+KMSKey+":"+secret))
}

// StartVersityGW starts a VersityGW for this test only, which the test may kill and restart.
func StartVersityGW(tb testing.TB) (S3, *Process) {
	p := versitygw.start(tb)
	return versitygw.s3(p), p
}

// Program returns the path of a server program for this machine, and builds it if necessary.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), buildWithin)
	defer cancel()
	path, err := Build(ctx, runtime.GOOS, name)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

func (k *kind) s3(p *Process) S3 {
	return S3{
		Name:          k.name,
		Endpoint:      "http://" + p.Addr,
		AccessKey:     accessKey,
		SecretKey:     secretKey,
		Region:        region,
		DeleteIfMatch: k.deleteIfMatch,
	}
}

// start runs a server for one test, with more environment variables than its kind has.
func (k *kind) start(tb testing.TB, env ...string) *Process {
	tb.Helper()
	SkipIfShort(tb)
	p, err := launch(k, Program(tb, k.name), env...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.close)
	p.logOnFailure(tb) // runs before close
	return p
}

// share returns the server for the whole binary, and starts it for the first test that needs it.
func (k *kind) share(tb testing.TB) *Process {
	tb.Helper()
	SkipIfShort(tb)
	if !inMain.Load() {
		tb.Fatal("testserver: nothing would stop the shared server: add func TestMain(m *testing.M) { " +
			"os.Exit(testserver.Main(m)) } to this package")
	}
	k.once.Do(func() {
		var path string
		ctx, cancel := context.WithTimeout(context.Background(), buildWithin)
		defer cancel()
		if path, k.err = Build(ctx, runtime.GOOS, k.name); k.err == nil {
			k.shared, k.err = launch(k, path)
		}
	})
	if k.err != nil {
		tb.Fatal(k.err)
	}
	k.shared.logOnFailure(tb)
	return k.shared
}

// SkipIfShort skips a test that needs a server if "go test -short" runs it. There is no other way
// to skip such a test.
func SkipIfShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a server: run without -short")
	}
}
