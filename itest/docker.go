package itest

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/network"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// label marks everything that this package creates in Docker.
const label = "com.github.leasehold-go.itest"

// stale is longer than any test run. Anything older with the label was left behind by a test binary
// that was killed.
const stale = 3 * time.Hour

// engine connects to Docker, once. If LEASEHOLD_WITHOUT is docker, it does not.
var engine = sync.OnceValues(func() (*testcontainers.DockerProvider, error) {
	if os.Getenv("LEASEHOLD_WITHOUT") == "docker" {
		return nil, errors.New("LEASEHOLD_WITHOUT is docker")
	}
	// The reaper's image would have to be pulled. This package cleans up after itself instead.
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return nil, err
	}
	// A local engine publishes ports on loopback. Testcontainers would guess another host if it
	// takes this machine for a container. If this machine really is a container and uses the outer
	// engine, the user sets the variable.
	if os.Getenv("TESTCONTAINERS_HOST_OVERRIDE") == "" && !strings.HasPrefix(os.Getenv("DOCKER_HOST"), "tcp:") {
		if err := os.Setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1"); err != nil {
			return nil, err
		}
	}
	log.SetDefault(log.NewNoopLogger())                         // otherwise it prints a banner and a line for each step
	generic, err := testcontainers.ProviderDocker.GetProvider() // NewDockerProvider does not know the default network
	if err != nil {
		return nil, err
	}
	provider, ok := generic.(*testcontainers.DockerProvider)
	if !ok {
		return nil, fmt.Errorf("itest: unexpected provider %T", generic)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := provider.Client().Ping(ctx, client.PingOptions{}); err != nil {
		return nil, err
	}
	sweep(ctx, provider.Client())
	return provider, nil
})

// Docker returns the reason why no Docker engine can be used, or nil if one can.
func Docker(context.Context) error {
	_, err := engine()
	return err
}

// NeedDocker skips a test if no Docker engine answers. It adds the test to the file
// LEASEHOLD_SKIPPED, whose content is the last thing that make test says. If LEASEHOLD_NEEDS has
// the word docker, as in CI, the test fails instead.
func NeedDocker(tb testing.TB) {
	tb.Helper()
	testserver.SkipIfShort(tb)
	err := Docker(tb.Context())
	if err == nil {
		return // without a look at variables that keep go test from using its cache
	}
	testserver.Missing(tb, "docker", fmt.Errorf("needs Docker (CI runs without it if LEASEHOLD_WITHOUT is docker): %w",
		err))
}

// api returns the Docker client, and fails the test if there is no Docker engine.
func api(tb testing.TB) client.APIClient {
	tb.Helper()
	provider, err := engine()
	if err != nil {
		tb.Fatalf("itest: this test needs a Docker engine, and none answers: %v", err)
	}
	return provider.Client()
}

// sweep removes what killed test binaries have left behind.
func sweep(ctx context.Context, docker client.APIClient) {
	mine := client.Filters{}.Add("label", label)
	containers, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: mine})
	if err != nil {
		return // the next run tries again
	}
	for _, c := range containers.Items {
		if time.Since(time.Unix(c.Created, 0)) > stale {
			_, _ = docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
	}
	networks, err := docker.NetworkList(ctx, client.NetworkListOptions{Filters: mine})
	if err != nil {
		return
	}
	for _, n := range networks.Items {
		if time.Since(n.Created) > stale {
			_, _ = docker.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
		}
	}
}

// NewNetwork creates a Docker network for the containers of one test.
func NewNetwork(tb testing.TB) *testcontainers.DockerNetwork {
	tb.Helper()
	api(tb)
	n, err := network.New(tb.Context(), network.WithLabels(map[string]string{label: tb.Name()}))
	testcontainers.CleanupNetwork(tb, n)
	if err != nil {
		tb.Fatalf("itest: creating a network: %v", err)
	}
	return n
}

// BuildImage builds the main package pkg, an import path or a directory, into its own image, with
// the program as entry point. The image is removed at the end of the test.
func BuildImage(tb testing.TB, pkg string) (image string) {
	tb.Helper()
	docker := api(tb)
	program := filepath.Join(tb.TempDir(), "program")
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-o", program, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("itest: building %s: %v\n%s", pkg, err, out)
	}
	repo, tag := "leasehold-itest/"+strings.ToLower(filepath.Base(pkg)), strings.ToLower(rand.Text())
	image, err := imageOf(tb.Context(), repo, tag, program)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx := context.WithoutCancel(tb.Context())
		if _, err := docker.ImageRemove(ctx, image, client.ImageRemoveOptions{Force: true,
			PruneChildren: true}); err != nil {
			tb.Logf("itest: image %s could not be removed: %v", image, err)
		}
	})
	return image
}

// dockerfile makes an image with only one program in it. WORKDIR and VOLUME create the directories
// that a server needs.
const dockerfile = `FROM scratch
COPY program /program
WORKDIR /tmp
VOLUME /data
ENTRYPOINT ["/program"]
`

// imageOf returns the image repo:tag with the program in it, and builds the image unless it exists.
func imageOf(ctx context.Context, repo, tag, program string) (string, error) {
	provider, err := engine()
	if err != nil {
		return "", err
	}
	image := repo + ":" + tag
	if _, err := provider.Client().ImageInspect(ctx, image); err == nil {
		return image, nil
	}
	archive, err := os.CreateTemp("", "leasehold-image-*.tar")
	if err != nil {
		return "", err
	}
	defer os.Remove(archive.Name())
	defer archive.Close()
	if err := writeContext(archive, program); err != nil {
		return "", fmt.Errorf("itest: %w", err)
	}
	image, err = provider.BuildImage(
		ctx, &testcontainers.ContainerRequest{FromDockerfile: testcontainers.FromDockerfile{
			ContextArchive: archive, Repo: repo, Tag: tag, KeepImage: true,
		}})
	if err != nil {
		return "", fmt.Errorf("itest: building image %s: %w", repo+":"+tag, err)
	}
	return image, nil
}

// writeContext writes the build context into archive and rewinds it.
func writeContext(archive *os.File, program string) error {
	f, err := os.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w := tar.NewWriter(archive)
	if err := w.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(dockerfile))}); err != nil {
		return err
	}
	if _, err := io.WriteString(w, dockerfile); err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: "program", Mode: 0o755, Size: info.Size()}); err != nil {
		return err
	}
	if _, err := io.Copy(w, f); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err = archive.Seek(0, io.SeekStart)
	return err
}
