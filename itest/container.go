package itest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	dockercontainer "github.com/moby/moby/api/types/container"
	dockernet "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Spec describes a container.
type Spec struct {
	Image   string
	Args    []string
	Env     map[string]string
	Network *testcontainers.DockerNetwork // nil: Docker's default
	Alias   string                        // host name within Network
	Port    string                        // such as "9000/tcp": mapped to a free port of this machine
	Health  string                        // HTTP path on Port that answers 200 once the program is ready
	Tmpfs   int64                         // if positive, /data is a tmpfs of so many bytes, lost when the program ends
}

// Container is a running container. It is removed, with its data, at the end of the test.
type Container struct {
	docker    client.APIClient
	container *testcontainers.DockerContainer
	spec      Spec
}

// Run starts a container and, if Spec has a Health path, waits until it is ready. Its log is
// printed if the test fails.
func Run(tb testing.TB, spec Spec) *Container {
	tb.Helper()
	api(tb)
	c, err := run(tb.Context(), tb.Name(), spec)
	if c != nil {
		tb.Cleanup(c.remove)
		c.logOnFailure(tb)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func run(ctx context.Context, owner string, spec Spec) (*Container, error) {
	provider, err := engine()
	if err != nil {
		return nil, err
	}
	req := testcontainers.ContainerRequest{
		Image:  spec.Image,
		Cmd:    spec.Args,
		Env:    spec.Env,
		Labels: map[string]string{label: owner},
	}
	if spec.Network != nil {
		req.Networks = []string{spec.Network.Name}
		req.NetworkAliases = map[string][]string{spec.Network.Name: {spec.Alias}}
	}
	if spec.Port != "" {
		port, err := dockernet.ParsePort(spec.Port)
		if err != nil {
			return nil, err
		}
		host, err := provider.DaemonHost(ctx)
		if err != nil {
			return nil, err
		}
		var ip netip.Addr // zero: a remote engine publishes on all its addresses; a local one uses loopback only
		if host == "127.0.0.1" {
			ip = netip.MustParseAddr(host)
		}
		req.ExposedPorts = []string{spec.Port}
		req.HostConfigModifier = func(h *dockercontainer.HostConfig) {
			h.PortBindings = dockernet.PortMap{port: {{HostIP: ip}}}
			if spec.Tmpfs > 0 {
				h.Tmpfs = map[string]string{"/data": fmt.Sprintf("size=%d", spec.Tmpfs)}
			}
		}
	}
	if spec.Health != "" {
		req.WaitingFor = wait.ForHTTP(spec.Health).WithPort(spec.Port).
			WithPollInterval(20 * time.Millisecond).WithStartupTimeout(time.Minute)
	}
	created, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		ContainerRequest: req,
		Started:          true,
	})
	var c *Container
	if d, ok := created.(*testcontainers.DockerContainer); ok && d != nil {
		c = &Container{docker: provider.Client(), container: d, spec: spec}
	}
	if err != nil {
		return c, fmt.Errorf("itest: starting %s (if published ports are not on 127.0.0.1, set "+
			"TESTCONTAINERS_HOST_OVERRIDE): %w", spec.Image, err)
	}
	return c, nil
}

// Addr returns the address of Port on this machine. It may change when the container is started
// again.
func (c *Container) Addr(ctx context.Context) (string, error) {
	host, err := c.container.Host(ctx)
	if err != nil {
		return "", err
	}
	port, err := c.container.MappedPort(ctx, c.spec.Port)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port.Port()), nil
}

// Pause freezes every process of the container, as a long garbage collection or a suspended machine
// would.
func (c *Container) Pause(ctx context.Context) error {
	_, err := c.docker.ContainerPause(ctx, c.id(), client.ContainerPauseOptions{})
	return err
}

// Unpause undoes Pause.
func (c *Container) Unpause(ctx context.Context) error {
	_, err := c.docker.ContainerUnpause(ctx, c.id(), client.ContainerUnpauseOptions{})
	return err
}

// Signal sends a signal, such as "SIGKILL" or "SIGTERM", to the program.
func (c *Container) Signal(ctx context.Context, signal string) error {
	_, err := c.docker.ContainerKill(ctx, c.id(), client.ContainerKillOptions{Signal: signal})
	return err
}

// Wait waits until the program has ended and returns its exit status.
func (c *Container) Wait(ctx context.Context) (status int64, err error) {
	w := c.docker.ContainerWait(
		ctx, c.id(), client.ContainerWaitOptions{Condition: dockercontainer.WaitConditionNotRunning})
	select {
	case r := <-w.Result:
		return r.StatusCode, nil
	case err := <-w.Error:
		return 0, err
	}
}

// Start starts the program again after it has ended, with the same data.
func (c *Container) Start(ctx context.Context) error {
	_, err := c.docker.ContainerStart(ctx, c.id(), client.ContainerStartOptions{})
	return err
}

// Disconnect takes the container off its network: connections hang, as in a partition.
func (c *Container) Disconnect(ctx context.Context) error {
	_, err := c.docker.NetworkDisconnect(ctx, c.spec.Network.ID, client.NetworkDisconnectOptions{Container: c.id()})
	return err
}

// Connect undoes Disconnect.
func (c *Container) Connect(ctx context.Context) error {
	_, err := c.docker.NetworkConnect(ctx, c.spec.Network.ID, client.NetworkConnectOptions{
		Container:      c.id(),
		EndpointConfig: &dockernet.EndpointSettings{Aliases: []string{c.spec.Alias}},
	})
	return err
}

// Logs returns what the program has written to its standard output and error so far.
func (c *Container) Logs(ctx context.Context) (string, error) {
	r, err := c.container.Logs(ctx)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func (c *Container) id() string { return c.container.GetContainerID() }

func (c *Container) logOnFailure(tb testing.TB) {
	tb.Cleanup(func() {
		if !tb.Failed() {
			return
		}
		log, err := c.Logs(context.WithoutCancel(tb.Context()))
		tb.Logf("log of %s %s (%v):\n%s", c.spec.Image, c.spec.Alias, err, log)
	})
}

// remove removes the container and its data, whatever its state.
func (c *Container) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = c.Unpause(ctx) // old engines do not remove a paused container
	_, err := c.docker.ContainerRemove(ctx, c.id(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		fmt.Printf("itest: container %s could not be removed: %v\n", c.id(), err)
	}
}
