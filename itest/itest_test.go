package itest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/leasehold-go/leasehold/internal/testserver"
	"github.com/leasehold-go/leasehold/itest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("ZOMBIE_GUARD") != "":
		asZombie()
		return
	case os.Getenv("SESSION_WORKER") != "":
		asSessionWorker()
		return
	case os.Getenv("SHARD_MEMBER") != "":
		asShardMember()
		return
	case os.Getenv("MIGRATOR") != "":
		asMigrator()
		return
	case os.Getenv("HOLDER_BUCKET") != "":
		asHolder()
		return
	}
	os.Exit(itest.Main(m))
}

// Every server that tests may use refuses to create an object twice.
func TestServersEnforcePreconditions(t *testing.T) {
	for _, server := range itest.Servers(t) {
		t.Run(server.Name, func(t *testing.T) { createTwice(t, server) })
	}
}

func TestVersityGWContainer(t *testing.T) {
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

// TestCluster checks the tools of cluster tests: a program in a container notices when its server is paused, partitioned or
// killed, and when it is back.
func TestCluster(t *testing.T) {
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
		require.Eventually(t, func() bool { return count(t, ctx, probe, what) > before }, 20*time.Second, 50*time.Millisecond)
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
	status, err := probe.Wait(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 137, status)
}

func count(t *testing.T, ctx context.Context, c *itest.Container, what string) int {
	log, err := c.Logs(ctx)
	require.NoError(t, err)
	return strings.Count(log, what)
}

// Where Docker is missing, a test that needs it is named in the file that make shows, and fails in CI.
func TestNeedDocker(t *testing.T) {
	if os.Getenv("LEASEHOLD_TEST_CHILD") != "" {
		itest.NeedDocker(t)
		return
	}
	skipped := filepath.Join(t.TempDir(), "skipped")
	child := func(env ...string) error {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNeedDocker$")
		cmd.Env = append(append(os.Environ(), "LEASEHOLD_TEST_CHILD=1", "LEASEHOLD_WITHOUT=docker", "LEASEHOLD_SKIPPED="+skipped), env...)
		return cmd.Run()
	}
	require.NoError(t, child("LEASEHOLD_NEEDS="))
	list, err := os.ReadFile(skipped)
	require.NoError(t, err)
	require.Equal(t, "TestNeedDocker\n", string(list))
	require.Error(t, child("LEASEHOLD_NEEDS=docker"))
}
