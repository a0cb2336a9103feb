// Package ctxmutex is a mutex whose Lock ends with a context.
package ctxmutex

import "context"

// Mutex is made by New.
type Mutex chan struct{}

// New returns an unlocked Mutex.
func New() Mutex { return make(Mutex, 1) }

// Lock waits for the mutex. If ctx ends first, or has ended, Lock returns ctx's error and the mutex
// is not locked.
func (m Mutex) Lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		if ctx.Err() == nil {
			return nil
		}
		m.Unlock()
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Unlock unlocks a locked mutex.
func (m Mutex) Unlock() { <-m }
