package leasehold

import (
	"bytes"
	"context"
	"reflect"

	"github.com/leasehold-go/leasehold/internal/canary"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// The canary: some servers ignore the conditions of writes, and locks on them do not exclude anybody.
// So the first acquisition of a store in a process sends two writes that must be refused. They carry the
// record that the acquisition has just written, so nothing is lost if they are carried out.

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

// tryStore tries the store's conditions on written, which this Lock has just written, within the time of
// one attempt, whether ctx ends or not: a write that is cut off could be carried out over a later term.
// suspect says that the store has answered written with a refusal. An answer that proves nothing is as good
// as a refusal, and the next acquisition asks again.
func (r *register) tryStore(ctx context.Context, written *version, suspect bool) (unsafe error) {
	return r.canary.Try(suspect, func() error {
		record, err := written.rec.MarshalJSON()
		if err != nil {
			return nil // it has just been written
		}
		mark := canary.Mark()
		body := append(record, mark...)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.attempt)
		defer cancel()
		unsafe, unknown := r.canary.Run(limited, canary.Trial{
			Suspect: suspect,
			Write: func(ctx context.Context, over string) error {
				_, err := r.write(ctx, body, over)
				return err
			},
			Pause: r.letPass,
			ReadBack: func(ctx context.Context) (same, carriedOut bool, err error) {
				obj, err := r.get(ctx)
				return obj.ETag == written.etag, bytes.HasSuffix(obj.Body, mark), err
			},
		})
		if unknown != nil {
			r.log.InfoContext(ctx, "the store's conditions could not be tried: the next acquisition asks again",
				"key", r.key, "err", unknown)
		}
		if unsafe != nil {
			r.log.ErrorContext(ctx, "the store is not safe for locks", "key", r.key, "token", written.rec.Token, "err", unsafe)
		}
		return unsafe
	}, func(answered <-chan struct{}) { _ = clock.Wait(ctx, r.clock, r.attempt, answered) })
}
