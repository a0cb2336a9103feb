package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
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

// start runs the example as a separate process and sends its output lines to the channel.
func start(t *testing.T, server testserver.S3, bucket string, lines chan<- string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-bucket", bucket, "-endpoint", server.Endpoint, "-every", "2")
	cmd.Env = append(os.Environ(), "RUN_EXAMPLE=1", "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+
		server.SecretKey, "AWS_REGION="+server.Region)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return cmd
}

func TestExample(t *testing.T) {
	server := testserver.MinIO(t)
	bucket, lines := server.Bucket(t), make(chan string, 100)
	first := start(t, server, bucket, lines)
	start(t, server, bucket, lines)
	slots, last := map[string]bool{}, 0
	for want := 1; want <= 5; want++ {
		select {
		case line := <-lines:
			var slot string
			var token int
			_, err := fmt.Sscanf(line, "run %s with token %d", &slot, &token)
			require.NoError(t, err, line)
			require.Greater(t, token, last)
			last = token
			require.False(t, slots[slot], "slot %s ran twice", slot)
			slots[slot] = true
		case <-time.After(45 * time.Second): // a killed process may hold the lock for its TTL
			t.Fatal("no slot ran within 45 s")
		}
		if want == 2 { // killed between two runs; the other process continues
			require.NoError(t, first.Process.Kill())
		}
	}
}
