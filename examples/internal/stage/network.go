package stage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// Network is a process' way to the store. It can be cut, and it counts requests. Its methods are
// safe for concurrent use.
type Network struct {
	*teststore.Store

	mu         sync.Mutex // guards what follows
	isCut      bool
	objectPuts int
	unanswered int
}

// Requests are numbers of requests.
type Requests struct {
	Puts, Gets, Deletes int
	ObjectPuts          int // those of one object
	Unanswered          int // because the network was cut
}

// String names the requests by their methods.
func (r Requests) String() string {
	if r.Deletes > 0 {
		return fmt.Sprintf("%d PUT, %d GET and %d DELETE", r.Puts, r.Gets, r.Deletes)
	}
	return fmt.Sprintf("%d PUT and %d GET", r.Puts, r.Gets)
}

// NewNetwork returns a way to the store on which a request takes a while, besides what the store
// needs. The PUTs of the object with that key are counted apart, too.
func NewNetwork(store leasehold.Store, takes time.Duration, object string) *Network {
	n := new(Network)
	n.Store = teststore.Known(store, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if n.cuts(r.Puts() && r.Key == object) { // it waits, as a request does when its packets are dropped
			<-ctx.Done()
			return leasehold.Object{}, ctx.Err()
		}
		time.Sleep(takes)
		return r.Send(ctx)
	})
	return n
}

// cuts counts a request, and reports whether it gets no answer.
func (n *Network) cuts(objectPut bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if objectPut {
		n.objectPuts++
	}
	if n.isCut {
		n.unanswered++
	}
	return n.isCut
}

// Cut cuts the process off from the store, or connects it again.
func (n *Network) Cut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = cut
}

// Requests returns all requests of the process until now.
func (n *Network) Requests() Requests {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Requests{n.Sent(teststore.Puts...), n.Sent(teststore.Get), n.Sent(teststore.Delete),
		n.objectPuts, n.unanswered}
}

// Counted begins to count. The result returns the requests since then.
func (n *Network) Counted() func() Requests {
	was := n.Requests()
	return func() Requests {
		is := n.Requests()
		return Requests{is.Puts - was.Puts, is.Gets - was.Gets, is.Deletes - was.Deletes,
			is.ObjectPuts - was.ObjectPuts, is.Unanswered - was.Unanswered}
	}
}
