package leasehold

import (
	"fmt"
	"sync"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// ErrFenced says that a newer term has acted on the resource already: the caller is a former leader and must stop.
var ErrFenced = storeapi.ErrFenced

// FencedError is the error of a write whose token is too low. It matches [ErrFenced].
type FencedError struct {
	Key            string // what was to be written; empty for a [Fence]
	Token, Highest uint64 // the writer's, and what is there
}

func (e *FencedError) Error() string {
	of := ""
	if e.Key != "" {
		of = fmt.Sprintf(": %q", e.Key)
	}
	return fmt.Sprintf("%v%s: token %d, seen %d", ErrFenced, of, e.Token, e.Highest)
}

// Unwrap returns [ErrFenced].
func (e *FencedError) Unwrap() error { return ErrFenced }

// Fence is what a resource keeps to turn former leaders away: the highest token it has seen. The zero value is ready.
// It lives in memory: a resource that restarts must keep the token with its data. It is safe for concurrent use.
type Fence struct {
	mu      sync.Mutex
	highest uint64
}

// Check lets the highest token seen so far pass, and higher ones, which it remembers. A lower one, or 0, which no term
// ever has, is a [*FencedError], which matches [ErrFenced].
func (f *Fence) Check(token uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token < f.highest || token == 0 {
		return &FencedError{Token: token, Highest: f.highest}
	}
	f.highest = token
	return nil
}

// Token returns the highest token seen, 0 if none.
func (f *Fence) Token() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}
