package leasehold

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/wire"
)

func TestWhoMayTakeTheLock(t *testing.T) {
	const ttl = 10 * time.Second
	now := time.Date(2026, 10, 6, 12, 0, 0, 0, time.UTC)
	renewed := func(at time.Time) Record {
		return Record{RenewedAt: at, ExpiresAt: at.Add(ttl), Token: 7, Holder: "bob", TTL: ttl}
	}
	live, stale, far := renewed(now), renewed(now.Add(-time.Hour)), renewed(now.Add(24*time.Hour))
	kept := live // by a client that has changed what it knows
	kept.ExpiresAt, kept.Token = now.Add(time.Minute), 8
	foreign := func(after time.Duration) Record { return Record{ExpiresAt: now.Add(after)} }
	for name, c := range map[string]struct {
		opts []Option
		s    observation
		free bool
		wait time.Duration
	}{
		"no object": {s: observation{}, free: true},
		"released": {
			s:    observation{exists: true, rec: Record{Token: 7, TTL: ttl}},
			free: true,
		},
		"released by a client without a TTL": {
			s:    observation{exists: true, rec: Record{Token: 7}},
			free: true,
		},
		"just seen": {
			s:    observation{exists: true, rec: live},
			wait: 10_200 * time.Millisecond,
		},
		"its TTL old": {
			s:    observation{exists: true, rec: live, age: ttl},
			wait: 200 * time.Millisecond,
		},
		"just before its TTL and the drift": {
			s:    observation{exists: true, rec: live, age: 10_200*time.Millisecond - 1},
			wait: 1,
		},
		"its TTL and the drift old": {
			s:    observation{exists: true, rec: live, age: 10_200 * time.Millisecond},
			free: true,
		},
		"expires_at passed long ago, but just seen": {
			s:    observation{exists: true, rec: stale},
			wait: 10_200 * time.Millisecond,
		},
		"expires_at far ahead, but old enough": {
			s:    observation{exists: true, rec: far, age: 11 * time.Second},
			free: true,
		},
		"a clock said to drift by half": {
			opts: []Option{WithClockDrift(0.5)},
			s:    observation{exists: true, rec: live, age: 11 * time.Second},
			wait: 4 * time.Second,
		},
		"a clock said not to drift": {
			opts: []Option{WithClockDrift(0)},
			s:    observation{exists: true, rec: live, age: ttl},
			free: true,
		},
		"the holder's own TTL counts, not ours": {
			opts: []Option{WithTTL(time.Hour)},
			s:    observation{exists: true, rec: live, age: 11 * time.Second},
			free: true,
		},
		"a tiny TTL": {
			s:    observation{exists: true, rec: Record{RenewedAt: now, ExpiresAt: now.Add(1), TTL: 1}, age: 1},
			free: true,
		},
		"the longest TTL does not overflow": {
			opts: []Option{WithClockDrift(1)},
			s:    observation{exists: true, rec: Record{ExpiresAt: now, TTL: wire.MaxTTL}},
			wait: 2 * wire.MaxTTL,
		},
		"handed over": {s: observation{exists: true, rec: live, handedOver: true}, free: true},
		"an old release, and a later term": {
			s:    observation{exists: true, rec: Record{Token: 6, TTL: ttl}, revived: true, later: live},
			wait: 10_200 * time.Millisecond,
		},
		"an old release, and a later term that is over": {
			s: observation{
				exists:  true,
				rec:     Record{Token: 6, TTL: ttl},
				revived: true,
				later:   live,
				age:     10_200 * time.Millisecond,
			},
			free: true,
		},
		"an old term, and a later one with a longer TTL": {
			s:    observation{exists: true, rec: live, revived: true, later: Record{Token: 8, TTL: 3 * ttl}, age: ttl},
			wait: 20_600 * time.Millisecond,
		},
		"an old release, and a later one": {
			s: observation{
				exists:  true,
				rec:     Record{Token: 6, TTL: ttl},
				revived: true,
				later:   Record{Token: 8, TTL: ttl},
			},
			wait: 10_200 * time.Millisecond,
		},
		"an old release, and a later term without a TTL": {
			s: observation{
				exists:  true,
				rec:     Record{Token: 6, TTL: ttl},
				revived: true,
				later:   foreign(time.Minute),
				age:     time.Hour,
			},
			wait: time.Minute + 5*time.Second + 1,
		},
		"an old release and a later one without a TTL": {
			opts: []Option{WithTTL(ttl)},
			s:    observation{exists: true, rec: Record{Token: 6}, revived: true, later: Record{Token: 8}},
			wait: 10_200 * time.Millisecond,
		},
		"our own left over": {
			s:    observation{exists: true, rec: live, writtenByUs: true},
			free: true,
		},
		"our name": {
			s:    observation{exists: true, rec: live, sameHolder: true},
			wait: 10_200 * time.Millisecond,
		},
		"our name, which is ours alone": {
			opts: []Option{WithHolder("bob"), WithReclaim()},
			s:    observation{exists: true, rec: live, sameHolder: true},
			free: true,
		},
		"another's name, though ours is ours alone": {
			opts: []Option{WithHolder("eve"), WithReclaim()},
			s:    observation{exists: true, rec: live},
			wait: 10_200 * time.Millisecond,
		},
		"another's, who kept the TTL": {
			s:    observation{exists: true, rec: kept, age: time.Hour},
			wait: time.Minute + 5*time.Second + 1,
		},
		"another's, who kept the TTL, just seen": {
			s:    observation{exists: true, rec: kept},
			wait: time.Minute + 5*time.Second + 1,
		},
		"no TTL, not expired": {
			s:    observation{exists: true, rec: foreign(time.Second)},
			wait: 6*time.Second + 1,
		},
		"no TTL, expired but within the allowance": {
			s:    observation{exists: true, rec: foreign(-4 * time.Second)},
			wait: time.Second + 1,
		},
		"no TTL, at the very end of the allowance": {
			s:    observation{exists: true, rec: foreign(-5 * time.Second)},
			wait: 1,
		},
		"no TTL, expired": {
			s:    observation{exists: true, rec: foreign(-5*time.Second - 1)},
			free: true,
		},
		"no TTL, expired, no allowance": {
			opts: []Option{WithSkewAllowance(0)},
			s:    observation{exists: true, rec: foreign(-1)},
			free: true,
		},
		"no TTL, a larger allowance": {
			opts: []Option{WithSkewAllowance(time.Hour)},
			s:    observation{exists: true, rec: foreign(-time.Minute)},
			wait: 59*time.Minute + 1,
		},
		"no TTL, not expired, however long it was there": {
			s:    observation{exists: true, rec: foreign(time.Second), age: 24 * time.Hour},
			wait: 6*time.Second + 1,
		},
		"no TTL, until the year 9999": {
			s:    observation{exists: true, rec: Record{ExpiresAt: time.Unix(wire.MaxSeconds-1, 0)}},
			wait: wire.MaxTTL + 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := newOptions(time.Millisecond, c.opts)
			require.NoError(t, err)
			c.s.wall = now
			v := o.decide(c.s)
			require.Equal(t, c.free, v.free, v.reason)
			require.Equal(t, c.wait, v.wait)
			require.NotEmpty(t, v.reason)
		})
	}
}

// Who is no candidate is let in by the version alone, and its age plays no part.
func TestWhoAsks(t *testing.T) {
	const ttl = 10 * time.Second
	now := time.Date(2026, 10, 6, 12, 0, 0, 0, time.UTC)
	const secret = "the secret of this term"
	live := Record{
		Key: "locks/a", Token: 7, Holder: "bob", TTL: ttl, RenewedAt: now, ExpiresAt: now.Add(ttl),
		TermID: handle.TermID("locks/a", secret),
	}
	with := func(change func(*Record)) observation {
		rec := live
		change(&rec)
		return observation{exists: true, rec: rec, handle: handle.Handle{Token: 7, Secret: secret}}
	}
	is := func(who asker, s observation) observation { s.asks = who; return s }
	as := func(*Record) {}
	released := func(r *Record) { r.ExpiresAt = time.Time{} }
	later := func(r *Record) { r.Token = 8 }
	ours, again, back := with(as), with(released), with(as)
	ours.writtenByUs, again.writtenByUs, back.revived = true, true, true
	bare := with(func(r *Record) { r.TermID = "" })
	another := with(func(r *Record) { r.TermID = handle.TermID("locks/b", secret) })
	foreign := with(func(r *Record) { r.ExpiresAt = now.Add(time.Minute) }) // by who keeps what it does not know
	forever := with(func(r *Record) { r.Token = MaxToken; released(r) })
	forever.handle.Token = MaxToken
	for name, c := range map[string]struct {
		s    observation
		free bool
		lost error // of an heir
		wait time.Duration
	}{
		"undoer of its own write":                  {s: is(undoer, ours), free: true},
		"undoer of what others wrote":              {s: is(undoer, with(as))},
		"undoer of what is released":               {s: is(undoer, again)},
		"undoer of nothing":                        {s: is(undoer, observation{writtenByUs: true, rec: live})},
		"heir of the term":                         {s: is(heir, with(as)), free: true},
		"heir of nothing":                          {s: is(heir, observation{handle: ours.handle}), lost: ErrLost},
		"heir of a term that was taken over":       {s: is(heir, with(later)), lost: ErrLost},
		"heir before another object's term":        {s: is(heir, with(func(r *Record) { r.Token = 6 })), lost: ErrLost},
		"heir of a term that was released":         {s: is(heir, with(released)), lost: ErrReleased},
		"heir with another secret":                 {s: is(heir, another), lost: ErrLost},
		"heir of a foreign client's term":          {s: is(heir, bare), lost: ErrLost},
		"heir of a version that came back":         {s: is(heir, back), lost: ErrLost},
		"heir while a foreign client has the lock": {s: is(heir, foreign), wait: time.Minute + 5*time.Second + 1},
		"breaker of this term":                     {s: is(breaker, with(as)), free: true},
		"breaker of another term":                  {s: is(breaker, with(later))},
		"breaker of a released term":               {s: is(breaker, with(released))},
		"breaker of the last token":                {s: is(breaker, forever), free: true},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := newOptions(time.Millisecond, nil)
			require.NoError(t, err)
			c.s.wall = now
			v := o.decide(c.s)
			require.Equal(t, c.free, v.free)
			require.Equal(t, c.wait, max(v.wait, 0))
			require.ErrorIs(t, v.lost, c.lost)
		})
	}
}

// A holder that lives renews within its TTL, by clocks that differ by the allowance at most.
func TestWhoSeemsGone(t *testing.T) {
	const ttl, skew = 10 * time.Second, 5 * time.Second
	now := time.Date(2026, 10, 6, 12, 0, 0, 0, time.UTC)
	for age, gone := range map[time.Duration]bool{
		-skew - 1: true, -skew: false, 0: false, ttl: false, ttl + skew: false, ttl + skew + 1: true,
	} {
		o, err := newOptions(time.Millisecond, []Option{WithSkewAllowance(skew)})
		require.NoError(t, err)
		at := now.Add(-age)
		silent, is := o.silence(Record{TTL: ttl, RenewedAt: at, ExpiresAt: at.Add(ttl)}, now)
		require.Equal(t, age, silent)
		require.Equal(t, gone, is, "renewed %v ago", age)
		_, is = o.silence(Record{ExpiresAt: now.Add(-age)}, now)
		require.Equal(t, age > skew, is, "a foreign client's has been over for %v", age)
	}
}
