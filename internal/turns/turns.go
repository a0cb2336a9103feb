// Package turns says when a process that takes a lock again and again has to let others pass.
package turns

import (
	"sync"
	"time"
)

// A candidate elsewhere reads once in one and a half of its poll intervals at most, so a rest of
// that length shows it the lock free. A row of terms is ten times as long, so a process without
// rivals loses less than a tenth.
const (
	row  = 15      // poll intervals after which others come first
	rest = 8.0 / 5 // poll intervals for which the lock is left free
)

// Turns is a row of terms that one process has had, with hardly a pause between them. It is safe
// for concurrent use. Times are monotonic.
type Turns struct {
	mu           sync.Mutex
	began, ended time.Duration
	free         bool // no term has begun since the last one ended
}

// Began notes that a term has begun, which belongs to the row if others had no time to come before.
func (t *Turns) Began(now, poll time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.free || now-t.ended >= resting(poll) {
		t.began = now
	}
	t.free = false
}

// Ended notes that a term was released.
func (t *Turns) Ended(now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.free = now, true
}

// Rest is how long the lock, which no other process has had since, is still to be left to others.
func (t *Turns) Rest(now, poll time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.free || now-t.began < row*poll {
		return 0
	}
	return max(t.ended+resting(poll)-now, 0)
}

func resting(poll time.Duration) time.Duration { return time.Duration(float64(poll) * rest) }
