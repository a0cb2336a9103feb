// Package itest gives integration tests real servers. Where a Docker engine answers, it runs
// servers and clusters of programs in containers. It never pulls an image: each is built from
// scratch around one Go program.
package itest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

var inMain atomic.Bool

// Main runs the tests of a binary that uses this package or testserver, and then stops the shared
// servers:
//
//	func TestMain(m *testing.M) { os.Exit(itest.Main(m)) }
func Main(m *testing.M) int {
	inMain.Store(true)
	defer shared.stop()
	return testserver.Main(m)
}

// Servers returns the S3 servers that a test should range over. If LEASEHOLD_TEST_S3_ENDPOINT is
// set, that is the only one. Otherwise they are MinIO, in a container if a Docker engine answers
// and as a process if not, and VersityGW as a process.
func Servers(tb testing.TB) []testserver.S3 {
	tb.Helper()
	testserver.SkipIfShort(tb)
	if s, ok := testserver.FromEnv(); ok {
		return []testserver.S3{s}
	}
	if err := Docker(tb.Context()); err != nil {
		tb.Logf("no Docker engine answers, so MinIO runs as a process: %v", err)
		return []testserver.S3{testserver.MinIO(tb), testserver.VersityGW(tb)}
	}
	return []testserver.S3{shared.minio(tb), testserver.VersityGW(tb)}
}

// shared is the MinIO container that all tests of this binary use.
var shared sharedMinIO

type sharedMinIO struct {
	once      sync.Once
	server    testserver.S3
	container *Container
	err       error
}

func (s *sharedMinIO) minio(tb testing.TB) testserver.S3 {
	tb.Helper()
	if !inMain.Load() {
		tb.Fatal("itest: the shared server would not be stopped: add func TestMain(m *testing.M) { " +
			"os.Exit(itest.Main(m)) } to this package")
	}
	s.once.Do(func() { s.server, s.container, s.err = startServer(context.Background(), minio, nil, "") })
	if s.err != nil {
		tb.Fatal(s.err)
	}
	s.container.logOnFailure(tb)
	return s.server
}

func (s *sharedMinIO) stop() {
	if s.container != nil {
		s.container.remove()
	}
}
