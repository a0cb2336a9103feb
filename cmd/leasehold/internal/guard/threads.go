package guard

import (
	"runtime"
	"sync"
)

// How many threads the guard and leasehold may need at the same time, besides the runtime's: one
// for each system call that waits, and two that run.
const (
	guardThreads = 8
	OwnThreads   = 16 // leasehold's
)

// ReserveThreads makes threads before a command starts, which may use up all processes that a user
// or a container may have. The runtime needs a thread at times, and ends the process if it gets
// none. It keeps those that it once had.
func ReserveThreads(n int) {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2)) // each one more may need a thread
	var made, ended sync.WaitGroup
	end := make(chan struct{})
	made.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread()
			made.Done()
			<-end
			runtime.UnlockOSThread() // or the thread would end with the goroutine
		})
	}
	made.Wait()
	close(end)
	ended.Wait()
}
