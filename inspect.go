package leasehold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Inspect reads the record without taking part. It returns [ErrNotExist] if the lock was never taken, and an error
// that matches [ErrCorruptRecord] if the object is not a record.
func (l *Lock) Inspect(ctx context.Context) (Record, error) {
	if err := l.made(); err != nil {
		return Record{}, err
	}
	v, err := l.read(ctx)
	if err == nil && !v.exists {
		err = fmt.Errorf("%w: it was never taken", ErrNotExist)
	}
	if err != nil {
		return Record{}, l.named(err)
	}
	return v.rec.clone(), nil
}

// Watch reads the lock once per poll interval, without being a candidate. It yields every record that begins or ends a term
// or has a new payload, the present one first. It yields errors that may pass too, and goes on. It ends after an error that
// waiting cannot fix, and when ctx ends.
func (l *Lock) Watch(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := l.made(); err != nil {
			yield(Record{}, err)
			return
		}
		var last Record
		failures := 0
		for seen := false; ctx.Err() == nil; {
			v, err := l.read(ctx)
			wait := clock.Jitter(l.clock, l.poll)
			switch {
			case err != nil && ctx.Err() != nil:
				return
			case err != nil:
				if !yield(Record{}, l.named(err)) || storeapi.Permanent(err) {
					return
				}
				wait = l.backoff(&failures)
			case v.exists && (!seen || worthYielding(last, v.rec)):
				seen, last, failures = true, v.rec, 0
				if !yield(v.rec.clone(), nil) {
					return
				}
			default:
				failures = 0
			}
			if l.clock.Sleep(ctx, wait) != nil {
				return
			}
		}
	}
}

// worthYielding reports whether b tells more than that the term of a goes on.
func worthYielding(a, b Record) bool {
	return !sameTerm(a, b) || a.Released() != b.Released() || !bytes.Equal(a.Payload, b.Payload)
}

// Break releases the lock by force if its record has exactly this token: an administrator's tool. The holder notices
// at its next renewal, so its guarded resources must check tokens. A record of another term is left alone, and the error
// matches [ErrPreconditionFailed]. One that is already released needs nothing.
//
// Break also repairs a corrupt record. The lock is then free, and token is recorded as the last one issued: pass a value no
// lower than any token ever issued. A record with token 2^53-1, after which there is none, is repaired by passing that token:
// tokens then start again from 1, so reset what your resources remember of them.
func (l *Lock) Break(ctx context.Context, token uint64) error {
	if err := l.made(); err != nil {
		return err
	}
	if token > storeapi.MaxToken {
		return l.named(fmt.Errorf("token %d is over 2^53-1, which no term has", token))
	}
	var err error
	for range maxWritesPerTry {
		var obj Object
		if obj, err = l.get(ctx); err != nil && (obj.ETag == "" || !errors.Is(err, ErrCorruptRecord)) {
			return l.named(err)
		}
		var rec Record
		corrupt := rec.UnmarshalJSON(obj.Body)
		switch {
		case corrupt != nil && token == storeapi.MaxToken:
			return l.named(fmt.Errorf("token %d leaves none for the next term: pass a lower one", token))
		case corrupt != nil:
			rec = Record{Token: token, Holder: l.identity}
		case rec.Token != token:
			return l.named(fmt.Errorf("%w: it is in term %d of %q, not %d", ErrPreconditionFailed, rec.Token, rec.Holder, token))
		case rec.Released() && token < storeapi.MaxToken:
			return nil
		}
		if rec.Token == storeapi.MaxToken {
			rec.Token = 0
		}
		// Any failure is looked into by the next round's read: a write of ours that landed shows as released.
		if err = l.writeReleased(ctx, &version{exists: true, etag: obj.ETag, rec: rec}); err == nil {
			l.log.WarnContext(ctx, "lock broken", "key", l.key, "token", token, "holder", rec.Holder)
			if token == storeapi.MaxToken {
				l.log.WarnContext(ctx, "tokens start again from 1: reset what fenced resources remember of them", "key", l.key)
			}
			return nil
		}
		if storeapi.Permanent(err) {
			return l.named(err)
		}
	}
	if storeapi.Refused(err) {
		err = errors.New("it was renewed again and again meanwhile: try again")
	}
	return l.named(fmt.Errorf("breaking it: %w", err))
}
