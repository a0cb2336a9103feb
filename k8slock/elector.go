package k8slock

import (
	"context"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// elector distinguishes the elector that leads from others that use the same Lock. client-go does
// not say who calls, but all calls of one try have the same context. A renewal comes without a Get
// before it, unless the same try has just failed, and repeats the AcquireTime of the acquisition.
// The methods need Lock.mu.
type elector struct {
	acquired metav1.Time                         // the AcquireTime of the term
	retries  <-chan struct{}                     // Done of the try whose renewal has failed
	looked   map[<-chan struct{}]context.Context // the tries, by Done, that have begun with a Get and have not ended
}

// looks notes the Get of a try. It reports whether ctx can be distinguished from another elector's
// context, as client-go's can.
func (e *elector) looks(ctx context.Context) bool {
	done := ctx.Done()
	if done == nil || e.continues(ctx) {
		return false
	}
	maps.DeleteFunc(e.looked, func(_ <-chan struct{}, c context.Context) bool { return c.Err() != nil })
	if e.looked == nil {
		e.looked = map[<-chan struct{}]context.Context{}
	}
	e.looked[done] = ctx
	return true
}

// continues reports whether a call belongs to the try whose renewal has failed.
func (e *elector) continues(ctx context.Context) bool {
	return e.retries != nil && e.retries == ctx.Done()
}

// renews reports whether a write that acquires or renews comes from the elector that leads.
func (e *elector) renews(ctx context.Context, ler resourcelock.LeaderElectionRecord) bool {
	_, looked := e.looked[ctx.Done()]
	return e.continues(ctx) || !looked && ler.AcquireTime.Equal(&e.acquired)
}

// began notes the acquisition of a term.
func (e *elector) began(ctx context.Context, ler resourcelock.LeaderElectionRecord) {
	delete(e.looked, ctx.Done())
	e.acquired, e.retries = ler.AcquireTime, nil
}

// tried notes the outcome of a renewal.
func (e *elector) tried(ctx context.Context, err error) {
	e.retries = nil
	if err != nil {
		e.retries = ctx.Done()
	}
}
