package main

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
)

// newLeaderHooks runs a command at every change of the leader, one at a time. Of the changes that
// come while it runs, only the last one counts.
type newLeaderHooks struct {
	app     *app
	command string
	key     string
	mu      sync.Mutex // guards what follows
	next    *leasehold.Record
	running bool
	over    bool // no command is started any more
	pid     int  // of the one that runs, and of its process group; 0 if there is none
	done    sync.WaitGroup
}

// hookGrace is how long a command has after SIGTERM.
const hookGrace = 5 * time.Second

func (h *newLeaderHooks) run(r leasehold.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.command == "" || h.over {
		return
	}
	h.next = &r
	if !h.running {
		h.running = true
		h.done.Go(h.work)
	}
}

// end ends the command that runs. It returns when that is done, or has been tried.
func (h *newLeaderHooks) end() {
	h.mu.Lock()
	h.over, h.next = true, nil
	h.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		h.done.Wait()
		close(ended)
	}()
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		h.mu.Lock()
		if h.pid != 0 {
			_ = unix.Kill(-h.pid, s)
		}
		h.mu.Unlock()
		select {
		case <-ended:
			return
		case <-time.After(hookGrace):
		}
	}
}

func (h *newLeaderHooks) work() {
	for {
		cmd, err := h.start()
		if cmd == nil {
			return
		}
		if err == nil {
			err = cmd.Wait()
		}
		h.mu.Lock()
		h.pid = 0
		if err != nil && !h.over {
			h.app.log.Warn("the command of --on-new-leader has failed", "err", err)
		}
		h.mu.Unlock()
	}
}

// start starts the command for the last change; cmd is nil if there is none.
func (h *newLeaderHooks) start() (cmd *exec.Cmd, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.next
	h.next = nil
	if r == nil {
		h.running = false
		return nil, nil
	}
	cmd = exec.Command("/bin/sh", "-c", h.command)
	cmd.Env = append(os.Environ(), environment(h.key, *r)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that end reaches all that it has started
	if err = guard.Start(cmd); err == nil {
		h.pid = cmd.Process.Pid
	}
	return cmd, err
}
