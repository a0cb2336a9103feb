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

// Inspect reads the record without being a candidate. The error matches [ErrNotExist] if the lock
// was never taken, and [ErrCorruptRecord] if the object is not a record.
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

// Watch reads the lock once per poll interval, and after [Lock.Wake], without being a candidate. It
// yields the current record, and then each record that begins or ends a term or has a new payload.
// It also yields temporary errors, and goes on. It ends when ctx ends, and after an error that
// waiting cannot fix: one that matches [ErrPermanent].
func (l *Lock) Watch(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := l.made(); err != nil {
			yield(Record{}, err)
			return
		}
		looks := l.wait(false)
		defer looks.Leave()
		var last *Record
		for failures := 0; ctx.Err() == nil; {
			woken := looks.Listen()
			v, err := l.read(ctx)
			wait := clock.Jitter(l.clock, l.poll)
			switch {
			case err == nil:
				failures = 0
				if v.exists && (last == nil || worthYielding(*last, v.rec)) {
					last = &v.rec
					if !yield(v.rec.clone(), nil) {
						return
					}
				}
			case ctx.Err() != nil:
				return
			default:
				if !yield(Record{}, l.named(err)) || storeapi.Permanent(err) {
					return
				}
				wait = l.backoff(&failures)
			}
			if clock.Wait(ctx, l.clock, wait, woken) != nil {
				return
			}
		}
	}
}

// worthYielding reports whether b says more than that the term of a goes on.
func worthYielding(a, b Record) bool {
	return !sameTerm(a, b) || a.Released() != b.Released() || !bytes.Equal(a.Payload, b.Payload)
}

// Break releases the lock by force if its record has exactly this token. It is an administrator's
// tool. The holder notices at its next renewal, so the resources that the lock guards must check
// tokens. A record of another term is left alone, and the error matches [ErrPreconditionFailed]. A
// record that is already released stays as it is, without an error.
//
// Break also repairs a corrupt record. The lock is then free, and token is recorded as the last one
// issued, so pass a value no lower than any token ever issued: a candidate that has seen a higher
// one waits for a TTL, because a later term may go on. After [MaxToken] there is none. Pass that
// token to repair a record that has it: tokens then start again from 1, so reset what your
// resources remember of them.
func (l *Lock) Break(ctx context.Context, token uint64) error {
	if err := l.made(); err != nil {
		return err
	}
	if token > MaxToken {
		return l.named(fmt.Errorf("token %d is over 2^53-1, the highest that a term can have", token))
	}
	settling, settled := outlast(ctx, l.attempt)
	defer settled()
	var err error
	for range maxWritesPerTry {
		var obj Object
		if obj, err = l.get(ctx); err != nil && (obj.ETag == "" || !errors.Is(err, ErrCorruptRecord)) {
			return l.named(err)
		}
		var rec Record
		corrupt := rec.UnmarshalJSON(obj.Body)
		switch {
		case corrupt != nil && token == MaxToken:
			return l.named(fmt.Errorf("after token %d there is none for the next term: pass a lower one", token))
		case corrupt != nil:
			rec = Record{Token: token, Holder: l.identity}
		case rec.Token != token:
			return l.named(fmt.Errorf("%w: it is in term %d of %q, not %d", ErrPreconditionFailed,
				rec.Token, rec.Holder, token))
		case rec.Released() && token < MaxToken:
			return nil
		}
		if rec.Token == MaxToken {
			rec.Token = 0
			if rec.ObjectID != "" { // with the token, it names a term for ever
				rec.ObjectID = newID()
			}
		}
		// After any error, the next round's read tells: if this write has landed, the record is
		// released.
		if err = l.writeReleased(settling, &version{exists: true, etag: obj.ETag, rec: rec}); err == nil {
			l.log.WarnContext(ctx, "lock broken", "key", l.key, "token", token, "holder", rec.Holder)
			if token == MaxToken {
				l.log.WarnContext(ctx, "tokens start again from 1: reset what fenced resources remember of them",
					"key", l.key)
			}
			return nil
		}
		if storeapi.Permanent(err) {
			return l.named(err)
		}
	}
	if storeapi.Refused(err) {
		err = errors.New("the holder renewed it before every attempt: try again")
	}
	return l.named(fmt.Errorf("breaking it: %w", err))
}
