package guard

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ReapOrphans reaps from now on what has become a child of this process because its own parent has
// ended: below a reaper, and as process 1 of a container. Each child that this process has started
// has a goroutine that waits for it and reaps it at once, so a dead one that is there for a second
// is an orphan.
func ReapOrphans() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for seen := make(map[int]bool); ; {
			if len(seen) == 0 {
				<-ended
			}
			again := make(map[int]bool)
			for _, p := range processes(true) {
				switch {
				case p.parent != os.Getpid():
				case seen[p.pid]:
					_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
				default:
					again[p.pid] = true
				}
			}
			if seen = again; len(seen) > 0 {
				time.Sleep(time.Second)
			}
		}
	}()
}
