package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Processes of one machine that wait for a lock in a directory start when their turn comes: eight
// take less than one poll interval between them, which is 6 s at a TTL of 30 s or more.
func TestEightRunsOneAfterTheOther(t *testing.T) {
	for name, flags := range map[string][]string{"of a lock": nil, "in a table": {"--slots", "1"}} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			gate := p.dir + "/gate"
			run := func(command ...string) *exec.Cmd {
				args := append(append([]string{"run", "--ttl", "1m"}, flags...), p.url, "--")
				return p.command(append(args, command...)...)
			}
			first, _ := ready(t, run("sh", "-c", fmt.Sprintf("echo ready; while [ ! -e %s ]; do sleep 0.02; done",
				gate)))
			runs := []*started{first}
			for range 7 {
				runs = append(runs, start(t, run("true")))
			}
			for _, s := range runs[1:] { // they all wait
				require.Eventually(t, func() bool {
					return strings.Contains(s.stderr.String(), "the lock is held by another")
				}, time.Minute, 10*time.Millisecond)
			}
			began := time.Now()
			require.NoError(t, os.WriteFile(gate, nil, 0o600))
			for _, s := range runs {
				require.Equal(t, 0, s.wait(t), "%s", &s.stderr)
			}
			took := time.Since(began)
			t.Logf("eight runs took %v", took)
			require.Less(t, took, 6*time.Second)
		})
	}
}
