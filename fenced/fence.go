package fenced

import (
	"errors"
	"fmt"
	"sync"
)

// ErrFenced says that a newer term has already acted on the resource: the caller is a former leader and must stop.
var ErrFenced = errors.New("fenced off by a newer token")

// Error is the error of a write whose token is too low. It matches [ErrFenced].
type Error struct {
	Key            string // of the object or resource; empty for a [Fence]
	Token, Highest uint64 // the writer's token, and the highest one seen
}

// Error names the object or resource, the writer's token, and the highest token seen.
func (e *Error) Error() string {
	of := ""
	if e.Key != "" {
		of = fmt.Sprintf(": %q", e.Key)
	}
	return fmt.Sprintf("%v%s: token %d, seen %d", ErrFenced, of, e.Token, e.Highest)
}

// Unwrap returns [ErrFenced].
func (e *Error) Unwrap() error { return ErrFenced }

// Fence is the check for a resource in memory: it keeps the highest token seen and refuses lower ones. The zero value is ready
// to use. A resource that outlives the process must store the token with its data instead. It is safe for concurrent use.
type Fence struct {
	mu      sync.Mutex
	highest uint64
}

// Check accepts the highest token seen so far and higher ones, which it remembers. For a lower token, and for 0, which no term
// has, it returns a [*Error], which matches [ErrFenced].
func (f *Fence) Check(token uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token < f.highest || token == 0 {
		return &Error{Token: token, Highest: f.highest}
	}
	f.highest = token
	return nil
}

// Token returns the highest token seen, or 0 if there was none.
func (f *Fence) Token() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}
