package main

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold"
)

// waiting reports terms to the peer of a "run" with --listen, as an elector would.
type waiting struct {
	web   *web
	terms leasehold.Callbacks // of the peer
	begun chan struct{}       // gets a value when a term of another has begun
	retry time.Duration       // the pause after a read that has failed
}

// newWaiting makes what "run" needs to wait for its lock.
func (c *campaign) newWaiting() *waiting {
	return &waiting{web: &c.web, begun: make(chan struct{}, 1), retry: min(c.ttl/5, maxPoll)}
}

// saw takes an event of the lock whose holder, if it has the lock, is called name.
func (w *waiting) saw(e leasehold.Event, name string) {
	if e.Kind == leasehold.EventNewLeader && e.Holder != name {
		select {
		case w.begun <- struct{}{}:
		default:
		}
	}
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
				case <-time.After(w.retry):
				}
				rec, err = lock.Inspect(ctx)
			}
			if err == nil && ctx.Err() == nil && rec.Holder != lock.Holder() {
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
