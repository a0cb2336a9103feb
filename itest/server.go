package itest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/testcontainers/testcontainers-go"
)

const (
	accessKey = "leasehold"
	secretKey = "leasehold-secret"
	region    = "us-east-1"
)

type server struct {
	name          string
	args          []string
	env           map[string]string
	port, health  string
	deleteIfMatch bool
	tmpfs         int64
}

var (
	minio = server{
		name: "minio",
		args: []string{"server", "--quiet", "--address", ":9000", "/data"},
		env: map[string]string{
			"HOME":                "/tmp",
			"MINIO_ROOT_USER":     accessKey,
			"MINIO_ROOT_PASSWORD": secretKey,
			"MINIO_BROWSER":       "off",
			"MINIO_UPDATE":        "off",
		},
		port:   "9000/tcp",
		health: "/minio/health/cluster",
	}
	versitygw = server{
		name: "versitygw",
		args: []string{
			"--quiet",
			"--port",
			":9000",
			"--health",
			"/health",
			"--region",
			region,
			"posix",
			"/data",
		},
		env:           map[string]string{"ROOT_ACCESS_KEY_ID": accessKey, "ROOT_SECRET_ACCESS_KEY": secretKey},
		port:          "9000/tcp",
		health:        "/health",
		deleteIfMatch: true,
	}
)

// StartMinIO runs MinIO in a container for this test alone. Containers on network reach it at
// http://<alias>:9000; the returned endpoint is for this machine. A nil network means Docker's
// default.
func StartMinIO(tb testing.TB, network *testcontainers.DockerNetwork, alias string) (testserver.S3, *Container) {
	tb.Helper()
	return start(tb, minio, network, alias)
}

// StartMinIOOnTmpfs is [StartMinIO] with a disk of size bytes.
func StartMinIOOnTmpfs(tb testing.TB, size int64) testserver.S3 {
	tb.Helper()
	small := minio
	small.tmpfs = size
	server, _ := start(tb, small, nil, "")
	return server
}

// StartVersityGW is [StartMinIO] for VersityGW.
func StartVersityGW(tb testing.TB, network *testcontainers.DockerNetwork, alias string) (testserver.S3, *Container) {
	tb.Helper()
	return start(tb, versitygw, network, alias)
}

func start(tb testing.TB, s server, network *testcontainers.DockerNetwork, alias string) (testserver.S3, *Container) {
	tb.Helper()
	testserver.SkipIfShort(tb)
	api(tb)
	s3, c, err := startServer(tb.Context(), s, network, alias)
	if c != nil {
		tb.Cleanup(c.remove)
		c.logOnFailure(tb)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return s3, c
}

func startServer(ctx context.Context, s server, network *testcontainers.DockerNetwork,
	alias string) (testserver.S3, *Container, error) {
	program, err := testserver.Build(ctx, "linux", s.name)
	if err != nil {
		return testserver.S3{}, nil, err
	}
	// The name of the cached program identifies everything that went into it, so the image, too, is
	// built only once.
	tag := strings.TrimPrefix(filepath.Base(program), s.name+"-")
	image, err := imageOf(ctx, "leasehold-itest/"+s.name, tag, program)
	if err != nil {
		return testserver.S3{}, nil, err
	}
	c, err := run(ctx, "shared", Spec{
		Image: image, Args: s.args, Env: s.env, Network: network, Alias: alias, Port: s.port,
		Health: s.health, Tmpfs: s.tmpfs,
	})
	if err != nil {
		return testserver.S3{}, c, err
	}
	addr, err := c.Addr(ctx)
	if err != nil {
		return testserver.S3{}, c, fmt.Errorf("itest: %w", err)
	}
	return testserver.S3{
		Name: s.name + "-container", Endpoint: "http://" + addr, AccessKey: accessKey, SecretKey: secretKey,
		Region: region, DeleteIfMatch: s.deleteIfMatch,
	}, c, nil
}
