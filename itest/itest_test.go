package itest_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/itest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("ZOMBIE_GUARD") != "":
		asZombie()
		return
	case os.Getenv("MIGRATOR") != "":
		asMigrator()
		return
	case os.Getenv("CANDIDATE_FILE") != "":
		asCandidate()
		return
	case os.Getenv("TABLE_MEMBER") != "":
		asTableMember()
		return
	case os.Getenv("HOLDER_BUCKET") != "":
		asHolder()
		return
	}
	setParallel()
	os.Exit(itest.Main(m))
}

// Most tests wait for TTLs nearly all the time, so many of them run at once, whatever the number of
// processors. At full size some have thousands of requests under way, and time is of no matter.
var parallel = testsize.Pick("16", "4")

// setParallel runs so many tests at once, unless go test was told how many.
func setParallel() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		fatal(flag.Set("test.parallel", parallel))
	}
}

var processors = make(chan struct{}, 1)

// busy lets one test at a time keep the processors busy, because the others need them to renew in
// time.
func busy(t *testing.T) {
	queued := time.Now()
	processors <- struct{}{}
	began := time.Now()
	t.Cleanup(func() {
		t.Logf("kept the processors busy for %.1f s, after %.1f s of waiting for its turn", time.Since(began).Seconds(),
			began.Sub(queued).Seconds())
		<-processors
	})
}

// minute is the context of a call that succeeds sooner. It only ends a hang.
func minute(t *testing.T) context.Context { return testctx.Within(t, time.Minute) }

// receive receives from a channel, and fails the test if nothing comes within a minute.
func receive[T any](t *testing.T, c <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-c:
	case <-time.After(time.Minute):
		t.Fatalf("not within a minute: %s", what)
	}
	return value
}

// Every server that tests may use refuses to create an object twice.
func TestServersEnforcePreconditions(t *testing.T) {
	t.Parallel()
	for _, server := range itest.Servers(t) {
		t.Run(server.Name, func(t *testing.T) { createTwice(t, server) })
	}
}

func TestVersityGWContainer(t *testing.T) {
	t.Parallel()
	itest.NeedDocker(t)
	server, _ := itest.StartVersityGW(t, nil, "")
	createTwice(t, server)
}

func createTwice(t *testing.T, server testserver.S3) {
	client, bucket, key, star := server.Client(), server.Bucket(t), "locks/smoke", "*"
	put := func() error {
		_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: &bucket, Key: &key, IfNoneMatch: &star, Body: strings.NewReader("x"),
		})
		return err
	}
	require.NoError(t, put())
	err := put()
	answer, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, 412, answer.HTTPStatusCode())
	api, ok := errors.AsType[smithy.APIError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "PreconditionFailed", api.ErrorCode())
}

// TestCluster checks the tools of cluster tests: a program in a container notices when its server
// is paused, partitioned or killed, and when it is back.
func TestCluster(t *testing.T) {
	t.Parallel()
	itest.NeedDocker(t)
	ctx := t.Context()
	network := itest.NewNetwork(t)
	_, server := itest.StartVersityGW(t, network, "store")
	probe := itest.Run(t, itest.Spec{
		Image:   itest.BuildImage(t, "./testdata/probe"),
		Env:     map[string]string{"URL": "http://store:9000/health"},
		Network: network,
		Alias:   "probe",
	})
	sees := func(what string) {
		t.Helper()
		before := count(t, ctx, probe, what)
		require.Eventually(t, func() bool {
			return count(t, ctx, probe, what) > before
		}, time.Minute, 50*time.Millisecond)
	}
	sees("ok 200")
	for _, fault := range []struct{ begin, end func(context.Context) error }{
		{server.Pause, server.Unpause},
		{server.Disconnect, server.Connect},
		{probe.Disconnect, probe.Connect},
		{func(ctx context.Context) error { return server.Signal(ctx, "SIGKILL") }, server.Start},
	} {
		require.NoError(t, fault.begin(ctx))
		sees("error")
		require.NoError(t, fault.end(ctx))
		sees("ok 200")
	}
	require.NoError(t, probe.Signal(ctx, "SIGKILL"))
	status, err := probe.Wait(minute(t))
	require.NoError(t, err)
	require.EqualValues(t, 137, status)
}

func count(t *testing.T, ctx context.Context, c *itest.Container, what string) int {
	log, err := c.Logs(ctx)
	require.NoError(t, err)
	return strings.Count(log, what)
}

// Where Docker is missing, a test that needs it is named in the file that make shows, and fails in
// CI.
func TestNeedDocker(t *testing.T) {
	t.Parallel()
	if os.Getenv("LEASEHOLD_TEST_CHILD") != "" {
		itest.NeedDocker(t)
		return
	}
	skipped := filepath.Join(t.TempDir(), "skipped")
	child := func(env ...string) error {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNeedDocker$")
		cmd.Env = append(append(os.Environ(), "LEASEHOLD_TEST_CHILD=1", "LEASEHOLD_WITHOUT=docker",
			"LEASEHOLD_SKIPPED="+skipped), env...)
		return cmd.Run()
	}
	require.NoError(t, child("LEASEHOLD_NEEDS="))
	list, err := os.ReadFile(skipped)
	require.NoError(t, err)
	require.Equal(t, "TestNeedDocker\n", string(list))
	require.Error(t, child("LEASEHOLD_NEEDS=docker"))
}
