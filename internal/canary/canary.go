// Package canary tries whether a store refuses the writes that it must refuse, and keeps what this
// process knows of each store.
package canary

import (
	"reflect"
	"runtime"
	"sync"
	"weak"
)

// Canary is what this process knows of the conditions of one store. It is safe for concurrent use.
// A nil Canary is for a store whose conditions are known.
type Canary struct {
	mu        sync.Mutex
	refused   [2]bool // which of the two writes are known to be refused
	conflicts int     // creates in a row that were answered with a conflict
	readBack  bool    // the object was read after a trial, and neither write had been carried out
	doubted   bool    // the next trial must be read back
	asides    int     // trials by waiting candidates
	asking    *asking // nil unless a trial is under way
}

// asking is a trial by an acquisition or by a waiting candidate. Acquisitions that need a trial at
// the same time share its result.
type asking struct {
	done   chan struct{}
	err    error // may be read when done is closed
	asided bool  // by a waiting candidate
}

// maxAsides bounds the trials by waiting candidates until one has an answer. Then acquisitions ask.
const maxAsides = 4

// key names a store without keeping it alive.
type key struct {
	store  weak.Pointer[byte]
	kind   reflect.Type
	bucket string
}

var all = struct {
	mu sync.Mutex
	of map[key]*Canary
}{of: make(map[key]*Canary)}

// Of returns the one canary of a client and bucket. A store without a client is passed as one. A
// value that is not a pointer cannot be recognised, so each call returns a new canary for it.
func Of(client any, bucket string) *Canary {
	v := reflect.ValueOf(client)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return new(Canary)
	}
	p := (*byte)(v.UnsafePointer())
	k := key{weak.Make(p), v.Type(), bucket}
	all.mu.Lock()
	defer all.mu.Unlock()
	c := all.of[k]
	if c == nil {
		c = new(Canary)
		all.of[k] = c
		runtime.AddCleanup(p, func(k key) {
			all.mu.Lock()
			defer all.mu.Unlock()
			delete(all.of, k)
		}, k)
	}
	return c
}

// Proven notes that the store enforces its conditions.
func (c *Canary) Proven() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused, c.readBack, c.doubted = [2]bool{true, true}, true, false
}

// Try returns the result of ask, or of another caller's ask that is under way, for which wait
// waits. It is nil if there is nothing to ask, or if wait returns before that ask has ended.
// suspect is Trial.Suspect.
func (c *Canary) Try(suspect bool, ask func() error, wait func(answered <-chan struct{})) error {
	for {
		a, mine := c.join(suspect)
		switch {
		case a == nil:
			return nil
		case mine:
			defer c.answered(a) // even if the Store panics
			a.err = ask()
			return a.err
		}
		wait(a.done)
		select {
		case <-a.done:
			if a.err != nil || !a.asided {
				return a.err
			} // else it may have proved nothing
		default:
			return nil
		}
	}
}

// join returns the trial under way, and whether it is the caller's; nil if there is nothing to ask.
func (c *Canary) join(suspect bool) (a *asking, mine bool) {
	if c == nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.known() && (c.readBack || !suspect):
		return nil, false
	case c.asking != nil:
		return c.asking, false
	}
	c.asking = &asking{done: make(chan struct{})}
	return c.asking, true
}

// Aside is for a candidate that waits for a lock. It returns nil if there is nothing to ask, or
// else a function that asks, which must be called.
func (c *Canary) Aside() (try func(ask func() error) error) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known() || c.asking != nil || c.asides >= maxAsides {
		return nil
	}
	c.asides++
	a := &asking{done: make(chan struct{}), asided: true}
	c.asking = a
	return func(ask func() error) error {
		defer c.answered(a) // even if the Store panics
		a.err = ask()
		return a.err
	}
}

// Known reports whether the store is known to enforce its conditions.
func (c *Canary) Known() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known()
}

// known is Known. The caller holds c.mu.
func (c *Canary) known() bool { return c.refused == [2]bool{true, true} && !c.doubted }

// answered ends a.
func (c *Canary) answered(a *asking) {
	c.mu.Lock()
	c.asking = nil
	c.mu.Unlock()
	close(a.done)
}
