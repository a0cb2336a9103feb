package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv("RUN_EXAMPLE") != "" {
		main()
		return
	}
	os.Exit(testserver.Main(m))
}

// process is the example, run as a separate process.
type process struct {
	*exec.Cmd
	lines chan string
}

func start(t *testing.T, server testserver.S3, bucket string) process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-bucket", bucket, "-endpoint", server.Endpoint, "-lease", "5s")
	cmd.Env = append(os.Environ(), "RUN_EXAMPLE=1", "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+
		server.SecretKey, "AWS_REGION="+server.Region)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	p := process{cmd, make(chan string, 100)}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p
}

// says waits for a line with this prefix.
func (p process) says(t *testing.T, prefix string, within time.Duration) {
	t.Helper()
	timeout := time.After(within)
	for {
		select {
		case line, ok := <-p.lines:
			require.True(t, ok, "the process ended before it printed %q", prefix)
			if strings.HasPrefix(line, prefix) {
				return
			}
		case <-timeout:
			t.Fatalf("the process did not print %q within %v", prefix, within)
		}
	}
}

func TestExample(t *testing.T) {
	server := testserver.MinIO(t)
	bucket := server.Bucket(t)
	first := start(t, server, bucket)
	first.says(t, "leading with token 1", 20*time.Second)
	second := start(t, server, bucket)
	second.says(t, "leader: ", 20*time.Second)
	require.NoError(t, first.Process.Kill()) // a real crash
	second.says(t, "leading with token 2", 40*time.Second)
	third := start(t, server, bucket)
	third.says(t, "leader: ", 20*time.Second)
	require.NoError(t, second.Process.Signal(os.Interrupt))
	second.says(t, "stopped", 10*time.Second)
	third.says(t, "leading with token 3", 20*time.Second)
}
