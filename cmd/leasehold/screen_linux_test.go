package main_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// shownOn is what a command shows on a new terminal of a kind.
func shownOn(t *testing.T, cmd *exec.Cmd, env ...string) string {
	cmd.Env = append(cmd.Env, env...)
	term := onTerminal(t, cmd)
	_ = term.shell.Wait()
	select {
	case <-term.ended:
	case <-time.After(hangs):
		require.Fail(t, "a process has the terminal", term.shows())
	}
	return strings.ReplaceAll(term.shows(), "\r\n", "\n")
}

var codes = regexp.MustCompile("\x1b\\[[0-9;?]*[a-zA-Z]")

// A terminal that has colours shows them, and without them all else is the same. A pipe never has
// any.
func TestColoursOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	now := time.Now()
	old := now.Add(-20 * time.Minute)
	p.record("a", leasehold.Record{Token: 1, Holder: "alice", TTL: time.Hour, Nonce: "x", AcquiredAt: old,
		RenewedAt: now, ExpiresAt: now.Add(time.Hour)})
	p.record("b", leasehold.Record{Token: 2, Holder: "bob", TTL: time.Minute, Nonce: "x", AcquiredAt: old,
		RenewedAt: old, ExpiresAt: old.Add(time.Minute)})
	p.record("c", leasehold.Record{Token: 3, Holder: "carol", TTL: time.Minute, Nonce: "x", RenewedAt: old})
	p.put("d", []byte("x"))
	list := func() *exec.Cmd { return p.command("list", "file://"+p.dir+"/") }
	columns := regexp.MustCompile(`(?m)^(LOCK|a|b|c|d) +(\S+) +(\S+) +`)
	for name, c := range map[string]struct {
		env     []string
		colours bool
	}{
		"xterm":          {[]string{"TERM=xterm", "NO_COLOR="}, true},
		"NO_COLOR":       {[]string{"TERM=xterm", "NO_COLOR=1"}, false},
		"dumb":           {[]string{"TERM=dumb", "NO_COLOR="}, false},
		"no TERM at all": {[]string{"TERM=", "NO_COLOR="}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shown := shownOn(t, list(), c.env...)
			status := shownOn(t, p.command("status", p.url), c.env...)
			watch := p.command("watch", p.url)
			watch.Env = append(watch.Env, c.env...)
			term := onTerminal(t, watch)
			term.waitFor("held by alice since")
			require.NoError(t, watch.Process.Signal(syscall.SIGINT))
			_ = watch.Wait()
			if c.colours {
				for _, cell := range []string{
					"\x1b[32mheld\x1b[0m ", "\x1b[33mexpired\x1b[0m ", "\x1b[39mreleased\x1b[0m ",
					"\x1b[31mcorrupt\x1b[0m ",
				} {
					require.Contains(t, shown, cell)
				}
				require.Contains(t, status, "\x1b[32mheld\x1b[0m ")
				require.Regexp(t, "\x1b\\[32m20.* held by alice since .*\x1b\\[0m", term.shows())
			} else {
				require.NotContains(t, shown+status+term.shows(), "\x1b")
			}
			bare := codes.ReplaceAllString(shown, "")
			lines := strings.Split(strings.TrimSpace(bare), "\n")
			require.Len(t, lines, 5)
			for _, column := range []string{"STATE", "TOKEN", "HOLDER"} { // all begin at one place
				at := strings.Index(lines[0], column)
				for _, line := range lines {
					require.Regexp(t, "^  [^ ]", line[at-2:], "%s", bare)
				}
			}
			require.Len(t, columns.FindAllString(bare, -1), 5, "%s", bare)
		})
	}
	for _, args := range [][]string{{"list", "file://" + p.dir + "/"}, {"status", p.url}} {
		cmd := p.command(args...)
		cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=")
		r := finish(t, cmd)
		r.succeeds(t)
		require.NotContains(t, r.out, "\x1b")
	}
	require.NotContains(t, shownOn(t, p.command("status", "-o", "json", p.url), "TERM=xterm", "NO_COLOR="), "\x1b[3")
}

// The times of a lock: TTL, since when, until when with the zone, and the age, which in a directory
// is known.
func TestTimesOfALock(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	old := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p.record("a", leasehold.Record{Token: 1, Holder: "alice", TTL: 90 * time.Second, Nonce: "x", AcquiredAt: old,
		RenewedAt: old.Add(time.Minute), ExpiresAt: old.Add(150 * time.Second)})
	cmd := p.command("status", p.url)
	cmd.Env = append(cmd.Env, "TZ=Asia/Kolkata")
	r := finish(t, cmd)
	r.succeeds(t)
	require.Regexp(t, `^LOCK +STATE +TOKEN +HOLDER +TTL +SINCE +UNTIL +AGE\n`+
		`\S+ +expired +1 +alice +1m30s +2026-03-01 17:30:00 \+0530 +2026-03-01 17:32:30 \+0530 +[0-9hms]+\n$`, r.out)
}

// On a terminal, what is logged looks like an error, and elsewhere it is for programs.
func TestMessagesOnATerminalHaveOneFormat(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	offline(t, "acquire", "--holder", "alice", p.url).succeeds(t)
	run := func() *exec.Cmd { return p.command("run", "--wait", "1s", p.url, "--", "true") }
	shown := shownOn(t, run(), "TERM=dumb")
	lines := strings.Split(strings.TrimSpace(shown), "\n")
	require.Len(t, lines, 2, "%s", shown)
	require.Equal(t, "leasehold: warning: the lock is held by another (key=a holder=alice token=1)", lines[0])
	require.Regexp(t, `^leasehold: gave up after 1s \(--wait\): held by "alice" with token 1, for `, lines[1])
	r := finish(t, run())
	require.Regexp(t, `^time=\S+ level=WARN msg="the lock is held by another" key=a holder=alice token=1\n`, r.stderr)
	shown = shownOn(t, p.command("run", "--wait", "1s", "-o", "json", p.url, "--", "true"), "TERM=xterm")
	require.Regexp(t, `^\{"time":`, shown)
	require.NotContains(t, shown, "\x1b")
}

// Who waits on a terminal sees the seconds pass until the lock can be free, and then nothing of it.
func TestAWaitOnATerminalCounts(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := offline(t, "acquire", "--holder", "alice\x1b[2J", p.url)
	r.succeeds(t)
	cmd := p.command("run", "--wait", "10m", p.url, "--", "echo", "got it")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	term := onTerminal(t, cmd)
	counts := regexp.MustCompile(`leasehold: waiting (\d+)s of 10m0s: held by alice\\x1b\[2J, token 1, ` +
		`for 59m(\d+)s unless renewed`)
	var seen []string
	require.Eventually(t, func() bool {
		seen = nil
		for _, m := range counts.FindAllStringSubmatch(term.shows(), -1) {
			seen = append(seen, m[1]+" "+m[2])
		}
		slices.Sort(seen)
		return len(slices.Compact(seen)) > 2
	}, hangs, 10*time.Millisecond)
	offline(t, "release", strings.TrimSpace(r.out)).succeeds(t)
	term.waitFor("got it")
	require.NoError(t, cmd.Wait(), "%s", term.shows())
	shown := term.shows()
	require.NotContains(t, shown, "\x1b[2J")
	last := strings.LastIndex(shown, "waiting ")
	require.Regexp(t, "unless renewed\x1b\\[\\?7h\r\x1b\\[K(.*\n)?got it\r\n$", shown[last:],
		"it is erased before the command begins")
	require.Equal(t, 1, strings.Count(shown, "\n")-strings.Count(shown[:last], "\n"), "%q", shown)

	offline(t, "acquire", "--holder", "bob", p.url).succeeds(t)
	for name, env := range map[string]string{"dumb": "TERM=dumb", "json": "TERM=xterm"} {
		args := []string{"acquire", "--wait", "3s", p.url}
		if name == "json" {
			args = append(args, "-o", "json")
		}
		require.NotContains(t, shownOn(t, p.command(args...), env), "waiting 1s", name)
	}
	var out bytes.Buffer
	piped := p.command("run", "--wait", "3s", p.url, "--", "true")
	piped.Stderr = &out
	_ = piped.Run()
	require.NotContains(t, out.String(), "waiting 1s")
}

// A read that shows the lock unchanged does not begin the countdown anew. There is one in 6 s.
func TestACountdownGoesOnOverReads(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	b.run("acquire", "--holder", "alice", b.url("locks/a")).succeeds(t)
	cmd := b.command("run", "--wait", "10m", b.url("locks/a"), "--", "true")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	term := onTerminal(t, cmd)
	counts := regexp.MustCompile(`waiting (\d+)s of 10m0s: held by alice, token 1, for 59m(\d+)s unless renewed`)
	for waited := 0; waited < 16; time.Sleep(10 * time.Millisecond) {
		for _, m := range counts.FindAllStringSubmatch(term.shows(), -1) {
			var left int
			_, err := fmt.Sscan(m[1]+" "+m[2], &waited, &left)
			require.NoError(t, err)
			require.LessOrEqual(t, waited+left, 61, term.shows())
		}
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}
