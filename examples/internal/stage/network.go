package stage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// Network is a process' way to the store. It can be cut, and it counts requests. Its methods are
// safe for concurrent use.
type Network struct {
	leasehold.Store
	Takes  time.Duration // a request, besides what the store needs
	Object string        // key of an object whose PUTs are counted apart, too

	mu    sync.Mutex // guards what follows
	isCut bool
	sent  Requests
}

// Requests are numbers of requests.
type Requests struct {
	Puts, Gets, Deletes int
	ObjectPuts          int // those of [Network.Object]
	Unanswered          int // because the network was cut
}

// String names the requests by their methods.
func (r Requests) String() string {
	if r.Deletes > 0 {
		return fmt.Sprintf("%d PUT, %d GET and %d DELETE", r.Puts, r.Gets, r.Deletes)
	}
	return fmt.Sprintf("%d PUT and %d GET", r.Puts, r.Gets)
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
	return n.sent
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

// Describe returns what the store says of itself.
func (n *Network) Describe() leasehold.StoreInfo { return leasehold.Describe(n.Store) }

// send counts a request. On a cut network it waits, as a request does when its packets are dropped.
func (n *Network) send(ctx context.Context, counts ...*int) error {
	n.mu.Lock()
	cut := n.isCut
	if cut {
		counts = append(counts, &n.sent.Unanswered)
	}
	for _, count := range counts {
		*count++
	}
	n.mu.Unlock()
	if cut {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(n.Takes)
	return nil
}

// Get reads an object.
func (n *Network) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := n.send(ctx, &n.sent.Gets); err != nil {
		return leasehold.Object{}, err
	}
	return n.Store.Get(ctx, key)
}

func (n *Network) put(ctx context.Context, key string) error {
	counts := []*int{&n.sent.Puts}
	if key == n.Object {
		counts = append(counts, &n.sent.ObjectPuts)
	}
	return n.send(ctx, counts...)
}

// PutIfNoneMatch creates an object.
func (n *Network) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if err := n.put(ctx, key); err != nil {
		return "", err
	}
	return n.Store.PutIfNoneMatch(ctx, key, body)
}

// PutIfMatch replaces a version of an object.
func (n *Network) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := n.put(ctx, key); err != nil {
		return "", err
	}
	return n.Store.PutIfMatch(ctx, key, body, etag)
}

// DeleteIfMatch removes a version of an object.
func (n *Network) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if err := n.send(ctx, &n.sent.Deletes); err != nil {
		return err
	}
	return n.Store.DeleteIfMatch(ctx, key, etag)
}
