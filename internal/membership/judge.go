package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/forecast"
)

// A Judge finds out whether one term of another member has ended. It remembers what it has seen for
// this term and for no other, and it is made after the group has named the term. So nothing that
// the object showed before counts. One goroutine at a time may use a Judge.
type Judge struct {
	g    *Group
	asks question
	lock *leasehold.Lock // takes the object of a member that is dead

	shows    shown // zero if the object is missing, or was never seen
	rec      leasehold.Record
	since    time.Duration // monotonic time when shows was seen first, after the answer
	looked   time.Duration // monotonic time of the last look, before the request
	held     time.Duration // monotonic time before which lock cannot be taken, as far as it knows
	renewals forecast.Renewals

	left  leasehold.Record // the released term that Evicted may remove; zero if there is none
	stale string           // a version before the end of that term: see Group.remove
}

// Judge returns a judge of a term with this TTL, which the group has named already.
func (g *Group) Judge(term Term, ttl time.Duration) (*Judge, error) {
	lock, err := g.lock(term.Key, leasehold.WithHolder(fmt.Sprintf("%.900s evicts", g.s.Holder)))
	if err != nil {
		return nil, err
	}
	now := g.s.Clock.Now().Mono
	return &Judge{g: g, asks: question{term, ttl, g.s.Drift}, lock: lock, looked: now, held: now}, nil
}

// Look reads the member's object once and says what that shows of the term. It makes an object that
// is missing, takes one that was not renewed for its TTL, and releases both at once, which takes a
// few requests more. With every error the state is Unknown, because an object that cannot be read
// proves nothing.
func (j *Judge) Look(ctx context.Context) (Verdict, error) {
	v, take, err := j.look(ctx)
	if err != nil || !take {
		return v, err
	}
	why := v.Reason
	// What is begun is finished, or a process that ends would leave its object behind.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*j.g.s.Attempt())
	defer cancel()
	lease, err := j.lock.TryAcquire(ctx)
	if held, ok := errors.AsType[*leasehold.HeldError](err); ok {
		j.held = j.g.s.Clock.Now().Mono + held.Wait
		return Verdict{Unknown, why}, nil
	}
	if err != nil {
		return Verdict{Unknown, why}, err
	}
	// This success proves nothing: the object may have been made a moment ago.
	v, _, err = j.look(ctx)
	j.free(ctx, lease)
	if err != nil || v.State != Over {
		return Verdict{Unknown, why}, err
	}
	return Verdict{Over, why}, nil
}

// look reads the object once.
func (j *Judge) look(ctx context.Context) (v Verdict, take bool, err error) {
	before := j.g.s.Clock.Now().Mono
	rec, err := j.lock.Inspect(ctx)
	after := j.g.s.Clock.Now().Mono
	switch {
	case errors.Is(err, leasehold.ErrNotExist):
		j.shows, j.looked = shown{}, before
		v, take = j.asks.answer(sight{})
		return v, take, nil
	case err == nil && rec.ObjectID == "":
		err = fmt.Errorf("%w: %q has a record without an object id, which no member writes",
			leasehold.ErrCorruptRecord, j.asks.term.Key)
		fallthrough
	case err != nil:
		return Verdict{Unknown, "its object cannot be read"}, false, err
	}
	if now := j.asks.shows(rec); now != j.shows {
		j.shows, j.since = now, after
	}
	if rec.Nonce != j.rec.Nonce {
		j.renewals.Saw(forecast.Write{
			Token: rec.Token, First: rec.RenewedAt.Equal(rec.AcquiredAt), Released: rec.Released(), At: rec.RenewedAt,
			Earliest: j.looked, Latest: after,
		})
	}
	j.rec, j.looked = rec, before
	// What an answer shows was there when it was asked for. It says nothing of the time after.
	v, take = j.asks.answer(sight{exists: true, rec: rec, stood: before - j.since})
	// Under another object id, it is what Break has written. No term that the group names has both.
	if v.State == Over && rec.Released() && rec.Token == j.asks.term.Token && rec.TermID == j.asks.term.TermID {
		j.left, j.stale = rec, "" // its holder removes it only once the group names the term no more
	}
	return v, take, nil
}

// free releases what this judge has taken or made. If that fails, it is free when the TTL has
// passed.
func (j *Judge) free(ctx context.Context, lease *leasehold.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*j.g.s.Attempt())
	defer cancel()
	stale := j.g.version(ctx, j.lock.Key())
	if err := lease.Release(ctx); err != nil {
		return
	}
	j.left, j.stale = lease.Record(), stale
}

// Next is how long to wait until another look is worth a request.
func (j *Judge) Next() time.Duration {
	c, poll := j.g.s.Clock, j.g.s.Poll
	now := c.Now().Mono
	wait := j.renewals.Wait(now, max(poll, j.g.s.renew()), c.Rand()) // one look for each renewal
	if wait == 0 {
		wait = clock.Jitter(c, poll)
	}
	if j.shows == (shown{}) {
		return wait
	}
	ttl := j.asks.ttl
	if j.shows.nonce != "" { // the term itself
		ttl = j.rec.TTL
	}
	ripe := max(j.since+j.asks.lasts(ttl), j.held) - now
	spread := time.Duration((1 + c.Rand()) * float64(poll) / 50) // of processes that watch the same member
	return min(wait, max(ripe, 0)+spread)
}

// Shows is what the last look has shown: the nonce of the record, which is another one after each
// renewal, and when the member renewed by its own wall clock. Both are zero if there was none. A
// wall clock proves nothing: it is a hint for whom to look at again.
func (j *Judge) Shows() (nonce string, renewed time.Time) { return j.rec.Nonce, j.rec.RenewedAt }

// Owes reports whether Evicted has something to do.
func (j *Judge) Owes() bool { return j.left.Token > 0 }

// Evicted is called once the group no longer names the term. It removes the object that this judge
// has taken or made, or has seen released, unless another term has begun in it.
func (j *Judge) Evicted(ctx context.Context) error {
	left := j.left
	j.left = leasehold.Record{}
	if left.Token == 0 {
		return nil
	}
	return j.g.remove(ctx, j.asks.term.Key, left, j.stale, false)
}
