package leasehold

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"

	"github.com/leasehold-go/leasehold/internal/canary"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/lockerr"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// The canary: some servers ignore the conditions of writes, and locks on them exclude no process.
// So a process tries each store, once, with two writes that must be refused. A candidate sends them
// while it waits for a lock, with what it has just read. Otherwise the first acquisition sends
// them, with the record that it has just written. So nothing is lost if they are carried out.

// canaryOf returns the canary of a store, or nil if the store is known to enforce its conditions.
// S3Stores of one client and bucket share one. A Store that is not a pointer has one for each Lock.
func canaryOf(s Store, info StoreInfo) *canary.Canary {
	if info.Conditional {
		return nil
	}
	if s3, ok := s.(*S3Store); ok && reflect.ValueOf(s3.objects.Client).Kind() == reflect.Pointer {
		return canary.Of(s3.objects.Client, s3.objects.Name)
	}
	return canary.Of(s, "")
}

// tryStore tries the store's conditions on written, which this Lock has just written, within the
// time of one attempt, whether ctx ends or not: a write that is cut off could be carried out over a
// later term. suspect says that the store has answered written with a refusal. An answer that
// proves nothing is as good as a refusal, and the next acquisition asks again.
func (r *register) tryStore(ctx context.Context, written *version, suspect bool) (unsafe error) {
	return r.canary.Try(suspect, func() error {
		record, err := written.rec.MarshalJSON()
		if err != nil {
			return nil // it has just been written
		}
		trial := r.trial(written, record)
		trial.Pause, trial.Suspect = r.letPass, suspect
		return r.runTrial(context.WithoutCancel(ctx), trial)
	}, func(answered <-chan struct{}) { _ = clock.Wait(ctx, r.clock, r.attempt, answered) })
}

// trial returns the trial of the store with a version and its body.
func (r *register) trial(v *version, body []byte) canary.Trial {
	mark := canary.Mark()
	marked := slices.Concat(body, mark)
	return canary.Trial{
		Write: func(ctx context.Context, over string) error {
			_, err := r.write(ctx, marked, over)
			return err
		},
		ReadBack: func(ctx context.Context) (same, carriedOut bool, err error) {
			now, body, err := r.look(ctx)
			if err != nil {
				return false, false, err
			}
			return now.same(v), bytes.HasSuffix(body, mark), nil
		},
	}
}

func (r *register) runTrial(ctx context.Context, trial canary.Trial) (unsafe error) {
	limited, cancel := context.WithTimeout(ctx, r.attempt)
	defer cancel()
	unsafe, unknown := r.canary.Run(limited, trial)
	if unknown != nil && ctx.Err() == nil {
		r.log.InfoContext(ctx, "the write probe has no result yet", "key", r.key, "err", unknown)
	}
	if unsafe != nil {
		r.log.ErrorContext(ctx, "the store is not safe for locks", "key", r.key, "err", unsafe)
	}
	return unsafe
}

// waiter is a candidate that waits for a lock. It tries the store while it waits, which delays
// nothing else.
type waiter struct {
	ctx   context.Context         // ends with the caller's, or if the store is unsafe
	end   context.CancelCauseFunc // ends ctx
	trial sync.WaitGroup
	panic any // of the Store
}

func newWaiter(ctx context.Context) *waiter {
	w := new(waiter)
	w.ctx, w.end = context.WithCancelCause(ctx)
	return w
}

// ended is the error of the wait once it has ended: ctx has, or the store is unsafe.
func (w *waiter) ended(ctx context.Context, last, err error) error {
	if unsafe := context.Cause(w.ctx); errors.Is(unsafe, canary.ErrIgnored) {
		return unsafe
	}
	return lockerr.WaitEnded(ctx, last, err)
}

// tryStore tries the store's conditions on v, of which body has just been read. The writes carry
// these very bytes. If they do not fit into an object, or v has been released, nothing is sent.
func (w *waiter) tryStore(r *register, v *version, body []byte) {
	if w == nil || !v.exists || v.rec.Released() || len(body)+canary.MarkSize > wire.MaxSize {
		return
	}
	try := r.canary.Aside()
	if try == nil {
		return
	}
	w.trial.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				w.panic = p
				w.end(nil)
			}
		}()
		trial := r.trial(v, body)
		trial.Suspect = true
		if unsafe := try(func() error { return r.runTrial(w.ctx, trial) }); unsafe != nil {
			w.end(unsafe)
		}
	})
}

// leave ends the wait.
func (w *waiter) leave() {
	w.end(nil)
	if w.trial.Wait(); w.panic != nil {
		panic(w.panic)
	}
}
