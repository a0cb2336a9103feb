package leasehold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Inspect returns the record of the lock. It sends one Get to the store, and does not campaign for
// the lock. The error matches [ErrNotExist] if there is no object, and [ErrCorruptRecord] if the
// object is not a record. Unlike [Lock.Watch], Inspect does not wait if no request can be sent yet
// ([ErrUnsent]).
func (l *Lock) Inspect(ctx context.Context) (Record, error) {
	if err := l.made(); err != nil {
		return Record{}, err
	}
	v, err := l.read(ctx)
	if err == nil && !v.exists {
		err = fmt.Errorf("%w: it was never taken, or was deleted", ErrNotExist)
	}
	if err != nil {
		return Record{}, l.named(err)
	}
	return v.rec.clone(), nil
}

// Status is what [Lock.Watch] yields.
type Status struct {
	State State
	// Record is what the lock object holds. It has only a Key if there is no object.
	Record Record
}

// State is the state of a lock, the same for every candidate.
type State string

// The states of a lock.
const (
	StateNeverTaken State = "never_taken" // there is no object, and no record was seen
	// StateHeld: the term may not have ended. If an old version of the object was restored, a later
	// term may last for its TTL.
	StateHeld     State = "held"
	StateReleased State = "released" // by its holder or by [Lock.Break]
	StateExpired  State = "expired"  // the holder has not renewed for its TTL, and any candidate may take the lock
	StateDeleted  State = "deleted"  // there is no object any more
)

// Watch yields the current status of the lock, and then each status with another state, term,
// holder, metadata or payload. [Lock.Resume] gives a term another holder and other metadata. Watch
// does not campaign for the lock. It reads once per poll interval, and once for each [Lock.Wake],
// or release in the same process, that ends a wait.
//
// Watch applies the candidates' rule of expiry: a lock has expired once reads have shown the same
// version for its TTL plus the allowance of [WithClockDrift], or a trusted store's clock reports
// such an age. So a watch that begins after a crash yields [StateHeld] first, and [StateExpired] up
// to one poll interval after the expiry. If another process then resumes the term, the lock is held
// again.
//
// Watch also yields temporary errors, without a status, and continues. It ends when ctx ends, and
// after an error that waiting cannot fix, which matches [ErrPermanent]. After [ErrUnsent] it
// continues for as long as [Lock.Acquire] does.
func (l *Lock) Watch(ctx context.Context) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := l.made(); err != nil {
			yield(Status{}, err)
			return
		}
		looks := l.wait(false)
		defer looks.Leave()
		var yielded Status
		for began, failures := l.clock.Now().Mono, 0; ctx.Err() == nil; {
			woken, before, existed := looks.Listen(), l.tokens.soFar(), l.existed.Load()
			v, err := l.read(ctx)
			wait := clock.Jitter(l.clock, l.poll)
			switch {
			case err == nil:
				failures = 0
				now := Status{l.state(v, before, existed), v.rec}
				now.Record.Key = l.key // if there is no object, too
				if now.differs(yielded) {
					yielded = now
					now.Record = now.Record.clone()
					if !yield(now, nil) {
						return
					}
				}
			case ctx.Err() != nil:
				return
			default:
				if !yield(Status{}, l.named(err)) || storeapi.Permanent(err) && !l.mayPass(ctx, began, err) {
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

// differs reports whether s differs from last in state, term, holder, metadata or payload.
func (s Status) differs(last Status) bool {
	now, was := s.Record, last.Record
	return s.State != last.State || !sameTerm(now, was) || now.Holder != was.Holder ||
		!maps.Equal(now.Metadata, was.Metadata) || !bytes.Equal(now.Payload, was.Payload)
}

// state returns the state of the lock after a read that has shown v. before is what was known of
// terms when the read was sent, and existed whether a record had been seen.
//
// A candidate decides when it has the reply, because its conditional write fails if the object has
// changed since the read. Here no write follows, so the age counts until the read was sent. And if
// another goroutine's write has overtaken the read, v is not a restored old version.
func (r *register) state(v *version, before terms, existed bool) State {
	o, took := r.observed(v), r.clock.Now().Mono-v.readBefore
	o.age, o.wall = o.age-took, o.wall.Add(-took)
	o.revived, o.later = before.revived(v.rec), before.latest
	o.writtenByUs, o.sameHolder = false, false // which would let this Lock alone take it
	verdict := r.decide(o)
	switch {
	case !v.exists && !existed:
		return StateNeverTaken
	case !v.exists:
		return StateDeleted
	case !verdict.free:
		return StateHeld
	case v.rec.Released():
		return StateReleased
	}
	return StateExpired
}

// Break releases the lock by force if its record has exactly this token. It is an administrator's
// tool. A running holder notices at its next renewal, so the resources that the lock guards must
// check tokens. If the record is of another term, Break changes nothing, and the error matches
// [ErrPreconditionFailed]. If the record is already released, Break changes nothing and returns
// nil.
//
// Break also repairs a damaged record. The lock is then released, and token is recorded as the last
// one issued, so pass a value no lower than any token ever issued. A candidate that has seen a
// higher token waits for a TTL, because a later term may not have ended. No token follows
// [MaxToken]. To repair a record that has MaxToken, pass MaxToken. Tokens then start again from 1,
// so reset the tokens that your resources remember. Break does not change an object that shows no
// sign of a record. It names the object in an error that matches [ErrCorruptRecord].
//
// If the lock belongs to a member of a table of package locktable, the locks that the member holds
// there are released once the broken record has been unchanged for the member's TTL. So they are
// never released while the member may still act.
func (l *Lock) Break(ctx context.Context, token uint64) error {
	if err := l.made(); err != nil {
		return err
	}
	if token > MaxToken {
		return l.named(fmt.Errorf("token %d exceeds 2^53-1, the highest token of a term", token))
	}
	settling, settled := outlast(ctx, l.attempt)
	defer settled()
	var err error
	for range maxWritesPerTry {
		var obj Object
		if obj, err = l.get(ctx); err != nil && (obj.Body == nil || !errors.Is(err, ErrCorruptRecord)) {
			return l.named(err)
		}
		rec, foreign := Record{}, wire.Misplaced(wire.Lock, obj.Body)
		corrupt := rec.UnmarshalJSON(obj.Body) != nil || err != nil
		switch {
		case foreign != nil:
			return l.named(foreign)
		case corrupt && token == MaxToken:
			return l.named(fmt.Errorf("after token %d there is none for the next term (pass a lower one)", token))
		case corrupt:
			rec = Record{Token: token, Holder: l.holder, ExpiresAt: l.clock.Now().Time()}
		case rec.Token != token:
			return l.named(fmt.Errorf("%w: it is in term %d of %q, not %d", ErrPreconditionFailed,
				rec.Token, rec.Holder, token))
		case !l.decide(observation{asks: breaker, rec: rec, handle: handle.Handle{Token: token}}).free:
			return nil
		}
		// A table counts a member as ended one TTL after the object id has changed, but at once
		// after a release by the member.
		if _, _, ok := storeapi.MemberAt(l.key); ok || rec.Token == MaxToken && rec.ObjectID != "" {
			rec.ObjectID = newID()
		}
		if rec.Token == MaxToken {
			rec.Token = 0
		}
		// After any error, the next round's read shows whether this write has landed: the record is
		// then released.
		if err = l.writeReleased(settling, &version{exists: true, etag: obj.ETag, rec: rec}); err == nil {
			l.log.WarnContext(ctx, "lock broken", "key", l.key, "token", token, "holder", rec.Holder)
			if token == MaxToken {
				l.log.WarnContext(ctx, "tokens start again from 1", "key", l.key,
					"hint", "reset the marks of fenced resources")
			}
			return nil
		}
		if storeapi.Permanent(err) {
			return l.named(err)
		}
	}
	if storeapi.Refused(err) {
		err = errors.New("the holder renewed it before every attempt (try again)")
	}
	return l.named(fmt.Errorf("breaking it: %w", err))
}
