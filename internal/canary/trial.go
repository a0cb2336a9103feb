package canary

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/internal/probe"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// ErrIgnored says that a store has carried out a write whose condition did not hold. No waiting
// fixes that, even if the store has worked.
var ErrIgnored = errors.New("it has carried out a write whose condition did not hold")

// The two writes that must be refused.
const (
	update = iota
	create
)

var writes = [2]struct{ over, what string }{
	{probe.NoVersion, "an update of a version that does not exist"}, {"", "a create over an object that exists"},
}

const (
	tries     = 3 // of a write that conflicts with another one, in one trial
	conflicts = 6 // creates that conflict in a row, until that is how this server refuses them
)

// Trial sends the two writes. They carry what the object has, and a Mark.
type Trial struct {
	// Write sends one write over the version of an ETag, or a create if that is empty.
	Write func(ctx context.Context, over string) error
	// Pause waits until a write that was under way has probably ended. It is nil if a write must
	// not be sent again, because another process writes the object.
	Pause func(ctx context.Context) error
	// ReadBack reads the object. same says that it is the version which was there before the
	// writes, carriedOut that it has the Mark.
	ReadBack func(ctx context.Context) (same, carriedOut bool, err error)
	// Suspect says that refusals do not suffice, so that ReadBack is called. The object may be
	// another's, or the store has refused a write and carried it out all the same. Servers and
	// proxies do so that check conditions only after they have written, and so does a retry behind
	// the back of this process.
	Suspect bool
}

// Run sends what has not been refused yet, both writes at once, until ctx ends at the latest. It
// returns an error that matches ErrIgnored if one was carried out. unknown is why nothing is known
// yet. If there is neither, the store enforces its conditions, as far as its answers show.
func (c *Canary) Run(ctx context.Context, t Trial) (unsafe, unknown error) {
	c.mu.Lock()
	refused, readBack := c.refused, c.doubted || t.Suspect && !c.readBack
	c.mu.Unlock()
	var ignored [2]bool
	failed := [2]error{errUnanswered, errUnanswered}
	send := func(i int) {
		if refused[i] && !readBack {
			failed[i] = nil
			return
		}
		ignored[i], failed[i] = c.write(ctx, t, i)
	}
	both(func() { send(update) }, func() { send(create) })
	for i, w := range writes {
		if ignored[i] {
			return unsafeFor("trying the store's conditions with " + w.what), nil
		}
	}
	if readBack {
		switch same, carriedOut, err := t.ReadBack(ctx); {
		case err != nil:
			return nil, fmt.Errorf("reading the object back: %w", err)
		case carriedOut:
			c.Doubt()
			return unsafeFor("trying the store's conditions with writes that it has answered with a refusal"), nil
		case !same:
			return nil, errors.New("another writer has changed the object")
		}
	}
	unknown = errors.Join(failed[:]...)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range writes {
		c.refused[i] = failed[i] == nil
	}
	if unknown == nil && readBack {
		c.readBack, c.doubted = true, false
	}
	return nil, unknown
}

var (
	errUnanswered = errors.New("no answer")
	errDeleted    = errors.New("another writer has deleted the object")
)

// write sends the write i, and again while it conflicts with another one.
func (c *Canary) write(ctx context.Context, t Trial, i int) (ignored bool, err error) {
	created := false
	for try := 1; ; try++ {
		err := t.Write(ctx, writes[i].over)
		switch {
		case err == nil && i == create && !created: // the object may have been deleted a moment ago, but not twice
			created = true
			continue
		case err == nil:
			return true, nil
		case errors.Is(err, storeapi.ErrPreconditionFailed) && created: // the object has the Mark rightly
			return false, errDeleted
		case errors.Is(err, storeapi.ErrPreconditionFailed):
			return false, nil
		case !errors.Is(err, storeapi.ErrConflict):
			return false, err
		case i == create && !created && c.conflicted():
			return false, nil
		}
		if try >= tries || t.Pause == nil || t.Pause(ctx) != nil {
			return false, err
		}
	}
}

// conflicted notes that a create was answered with a conflict. A conflict with another write
// passes. Some servers answer so to every create over an object.
func (c *Canary) conflicted() (always bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conflicts++
	return c.conflicts >= conflicts
}

// Doubt notes that the store has refused a write, and carried it out all the same. The next trial
// is read back, unless one was.
func (c *Canary) Doubt() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubted = !c.readBack
}

func unsafeFor(doing string) error {
	return &storeapi.Error{
		Doing: doing, Kind: storeapi.ErrUnsafeStore, Cause: ErrIgnored,
		Hint: "use a server that enforces conditional writes: see " +
			"https://github.com/leasehold-go/leasehold/blob/main/docs/stores.md",
	}
}

// MarkSize is the size of a Mark, in bytes.
const MarkSize = 32

// Mark returns white space to put behind a record, which means the same with it. It is not the same
// twice, so it shows which write an object is from, even if equal bodies have equal ETags.
func Mark() []byte {
	mark := make([]byte, MarkSize)
	_, _ = rand.Read(mark) // never fails
	for i, b := range mark {
		mark[i] = " \t\n\r"[b%4]
	}
	return mark
}

// both runs a and b at once, and panics if one of them does.
func both(a, b func()) {
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		b()
	}()
	defer func() {
		<-done
		if panicked != nil {
			panic(panicked)
		}
	}()
	a()
}
