package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// waiting is what "run" with --listen does beside its lock, as an elector would: it tells the peer
// of terms, and knows whether the store answers.
type waiting struct {
	web   *web
	terms leasehold.Callbacks // of the peer
	begun chan struct{}       // gets a value when a term of another has begun
	limit time.Duration       // after which a store that does not answer is a failure

	mu     sync.Mutex // guards what follows
	last   time.Time  // when the store has last answered
	failed error      // of the last request, if it has failed
	vain   vain
}

// vain are writes in a row that have not been carried out, while nobody has begun a term.
type vain struct {
	first, last time.Time
	err         error // of the last one
}

// newWaiting makes what "run" needs to wait for its lock.
func (c *campaign) newWaiting() *waiting {
	return &waiting{web: &c.web, begun: make(chan struct{}, 1), limit: 2 * c.ttl, last: time.Now()}
}

// saw takes an event of the lock whose holder, if it has the lock, is called identity.
func (w *waiting) saw(e leasehold.Event, identity string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.Kind == leasehold.EventNewLeader && e.Holder != identity:
		w.vain = vain{}
		select {
		case w.begun <- struct{}{}:
		default:
		}
	case e.Kind == leasehold.EventRequest:
		if w.failed = e.Err; e.Err == nil || errors.Is(e.Err, leasehold.ErrNotExist) ||
			errors.Is(e.Err, leasehold.ErrPreconditionFailed) || errors.Is(e.Err, leasehold.ErrConflict) {
			w.last, w.failed = time.Now(), nil
		}
		if e.Op != "get" {
			w.wrote(e.Err)
		}
	}
}

// wrote takes the outcome of a write. The caller holds w.mu.
func (w *waiting) wrote(err error) {
	now := time.Now()
	switch {
	case err == nil:
		w.vain = vain{}
	case now.Sub(w.vain.last) > w.limit: // another has led meanwhile
		w.vain = vain{now, now, err}
	default:
		w.vain.last, w.vain.err = now, err
	}
}

// healthy is what [leasehold.Elector.Check] is to elect.
func (w *waiting) healthy(*http.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lasted := w.vain.last.Sub(w.vain.first); lasted > w.limit && time.Since(w.vain.last) <= w.limit {
		return fmt.Errorf("each acquisition has failed for %v: %w", lasted.Round(time.Second), w.vain.err)
	}
	silent := time.Since(w.last)
	if silent <= w.limit {
		return nil
	}
	failed := w.failed
	if failed == nil {
		failed = errors.New("the request is still under way")
	}
	return fmt.Errorf("no answer from the store for %v: %w", silent.Round(time.Second), failed)
}

// follow reads the record of each term of another that begins, and gives it to the peer, until
// stop. An event does not have the URL.
func (w *waiting) follow(ctx context.Context, lock *leasehold.Lock) (stop func()) {
	if w.web.peer == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.begun:
			}
			rec, err := lock.Inspect(ctx)
			for err != nil && ctx.Err() == nil { // the candidate logs it, too
				select {
				case <-ctx.Done():
				case <-time.After(min(w.limit/10, maxPoll)):
				}
				rec, err = lock.Inspect(ctx)
			}
			if err == nil && ctx.Err() == nil && rec.Holder != lock.Identity() {
				w.terms.OnNewLeader(rec)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (w *waiting) started(ctx context.Context, lease *leasehold.Lease) {
	if w.web.peer != nil {
		w.terms.OnStartedLeading(ctx, lease)
	}
}

// stopped is called when the release has landed, or has failed.
func (w *waiting) stopped() {
	if w.web.peer != nil {
		w.terms.OnStoppedLeading(nil)
	}
}
