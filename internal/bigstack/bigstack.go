// Package bigstack runs functions that take a deep stack for goroutines that live long.
package bigstack

import (
	"runtime"
	"runtime/debug"
)

// Run runs f on another goroutine and waits for it. The stack that f needs ends with that goroutine, so a caller that waits most
// of the time keeps the smallest one that Go gives, 2 KiB.
//
// If f panics, Run calls panicked with the stack where that began, and panics with the same value. If f ends its goroutine by
// runtime.Goexit, so does Run.
func Run(f func(), panicked func(value any, stack []byte)) {
	returned := false
	var value any
	var stack []byte
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if !returned {
				if value = recover(); value != nil {
					stack = debug.Stack()
				}
			}
		}()
		f()
		returned = true
	}()
	<-done
	switch {
	case returned:
	case value == nil:
		runtime.Goexit()
	default:
		panicked(value, stack)
		panic(value)
	}
}
