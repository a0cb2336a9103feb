package leasehold

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
			s:    observation{exists: true, rec: live, sameIdentity: true},
			wait: 10_200 * time.Millisecond,
		},
		"our name, which is ours alone": {
			opts: []Option{WithIdentity("bob"), WithReclaim()},
			s:    observation{exists: true, rec: live, sameIdentity: true},
			free: true,
		},
		"another's name, though ours is ours alone": {
			opts: []Option{WithIdentity("eve"), WithReclaim()},
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
