package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
)

func init() {
	if os.Getenv("LIFE_HEADLESS") != "" {
		runtime.LockOSThread() // main runs on the main thread, and can end it
	}
}

// endMainThread ends the main thread, and leaves the process to its others, as pthread_exit does.
func endMainThread() { _, _, _ = syscall.Syscall(unix.SYS_EXIT, 0, 0, 0) }

// A process whose main thread has ended is a zombie in /proc, and writes on. It is dead before the
// next holder leads, whatever happens to leasehold.
func TestAProcessWithoutItsMainThreadIsDeadInTime(t *testing.T) {
	const ttl = 4 * time.Second
	inBothWays(t, func(t *testing.T, way func(*exec.Cmd)) {
		for _, c := range []struct {
			escapes string
			sig     syscall.Signal
		}{{"", syscall.SIGKILL}, {"1", syscall.SIGKILL}, {"", syscall.SIGSTOP}, {"1", syscall.SIGSTOP}} {
			t.Run(fmt.Sprintf("%v escapes=%s", c.sig, c.escapes), func(t *testing.T) {
				t.Parallel()
				p, life := newPlace(t), newLiving(t)
				cmd := p.command("run", "--ttl", ttl.String(), p.url, "--", os.Args[0])
				cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_ESCAPES="+c.escapes,
					"LIFE_DEAF=1", "LIFE_HEADLESS=1")
				way(cmd)
				s := start(t, cmd)
				require.True(t, life.begun(t, s), "%s", &s.stderr)
				require.NoError(t, s.Process.Signal(c.sig))
				lease, err := p.lock(leasehold.WithTTL(ttl)).Acquire(soon(t))
				require.NoError(t, err)
				led := monotonic() - time.Since(lease.Record().AcquiredAt)
				time.Sleep(20 * signEvery)
				require.Less(t, life.last(t), led, "the command lived after the next holder led")
				_ = s.Process.Signal(syscall.SIGCONT)
				s.wait(t)
				require.NoError(t, lease.Release(t.Context()))
			})
		}
	})
}

// Such a process that the command has left in its group is ended with it, and so is the run.
func TestAProcessWithoutItsMainThreadIsLeft(t *testing.T) {
	inBothWays(t, func(t *testing.T, way func(*exec.Cmd)) {
		p, life := newPlace(t), newLiving(t)
		cmd := p.command("run", "--margin", "2s", p.url, "--", "sh", "-c",
			`"$0" & while [ "$(od -An -tu8 -j8 -N8 "$LIFE_FILE" | tr -d ' ')" = 0 ]; do sleep 0.05; done; exit 5`,
			os.Args[0])
		cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_DEAF=1", "LIFE_HEADLESS=1")
		way(cmd)
		s := start(t, cmd)
		require.Equal(t, 5, s.wait(t), "%s", &s.stderr)
		ended := monotonic()
		time.Sleep(20 * signEvery)
		require.Less(t, life.last(t), ended)
	})
}

// The number of the command's process group is nobody else's while something that it has left is
// ended: whoever gets the number must not get the signals.
func TestTheNumberOfACommandIsNotUsedAgain(t *testing.T) {
	p, life := newPlace(t), newLiving(t)
	cmd := p.command("run", "--margin", "6s", p.url, "--", "sh", "-c", `"$0" & echo $$ >pid
while [ "$(od -An -tu8 -j8 -N8 "$LIFE_FILE" | tr -d ' ')" = 0 ]; do sleep 0.05; done; kill -9 $!; exit 5`, os.Args[0])
	cmd.Dir = p.dir
	cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_ESCAPES=1", "LIFE_DEAF=1")
	s := start(t, cmd)
	number, err := strconv.Atoi(readLine(t, p.dir+"/pid"))
	require.NoError(t, err)
	zombie := func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", number))
		return err == nil && strings.Contains(string(stat), ") Z ")
	}
	require.Eventually(t, zombie, 10*time.Second, 10*time.Millisecond, "the command has not ended")
	require.Never(t, func() bool { return !zombie() }, time.Second, 10*time.Millisecond,
		"the number is free while what the command has left lives")
	require.Equal(t, 5, s.wait(t), "%s", &s.stderr)
}
