// Package testprocess runs a program as a process of a test, and reads what it prints.
package testprocess

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Process is a running program. It ends with the test at the latest.
type Process struct {
	*os.Process
	lines chan string // closed when the program has ended
	err   error       // of a program that has ended
}

// Start starts a program and reads its standard output, and its standard error if cmd has no other
// place for it.
func Start(t *testing.T, cmd *exec.Cmd) *Process {
	t.Helper()
	out, in := io.Pipe()
	cmd.Stdout = in
	if cmd.Stderr == nil {
		cmd.Stderr = in
	}
	require.NoError(t, cmd.Start())
	p := &Process{Process: cmd.Process, lines: make(chan string, 100)}
	go func() {
		p.err = cmd.Wait()
		_ = in.Close()
	}()
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.Kill()
		for range p.lines {
		}
	})
	return p
}

// Lines has the lines that nobody has read yet. It is closed when the program has ended.
func (p *Process) Lines() <-chan string { return p.lines }

// Says waits for the next line that matches a pattern, and returns it.
func (p *Process) Says(t *testing.T, pattern string) string {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case line, ok := <-p.lines:
			require.True(t, ok, "the program ended before it printed %q: %v", pattern, p.err)
			t.Log(line)
			if regexp.MustCompile(pattern).MatchString(line) {
				return line
			}
		case <-timeout:
			require.FailNow(t, "not printed within a minute", pattern)
		}
	}
}

// Ends waits until the program has ended, with exit status 0.
func (p *Process) Ends(t *testing.T) {
	t.Helper()
	for line := range p.lines {
		t.Log(line)
	}
	require.NoError(t, p.err)
}
