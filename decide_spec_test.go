package leasehold

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/proof/invariant"
)

// Whatever decide lets a Lock replace, an action of the proven protocol lets it replace. Who
// answers for the rest is the user, and of a restored version chance. And decide makes nobody wait
// whom the protocol would let go on, but for foreign clients, for which it is careful, and a create
// that another may have under way.
func TestDecideFollowsTheProof(t *testing.T) {
	spec := invariant.Parse(invariant.LeaseText)
	const ttl, drift = 10 * time.Second, 0.02
	wall := time.Date(2026, 10, 6, 12, 0, 0, 0, time.UTC)
	byLock := func(token uint64, ttl time.Duration) Record {
		return Record{Key: "k", Token: token, Holder: "bob", TTL: ttl, RenewedAt: wall, ExpiresAt: wall.Add(ttl)}
	}
	kept := byLock(7, ttl)
	kept.ExpiresAt = wall.Add(time.Minute)
	records := []Record{
		{Token: 7, TTL: ttl}, byLock(7, ttl), byLock(7, 3*ttl), kept,
		{Token: 7, ExpiresAt: wall.Add(-5*time.Second - 1)}, {Token: 7, ExpiresAt: wall.Add(time.Minute)},
	}
	for i := range records {
		records[i].TermID = handle.TermID(records[i].Key, "secret")
	}
	ages := []time.Duration{0, ttl, 10_200*time.Millisecond - 1, 10_200 * time.Millisecond,
		30_600*time.Millisecond - 1, 30_600 * time.Millisecond}
	laters := []Record{{}, byLock(8, ttl), byLock(8, 3*ttl)}
	counted, frees := 0, 0
	check := func(o options, s observation) {
		if s.revived == (s.later.Token == 0) || s.revived && (s.writtenByUs || s.sameHolder || s.handedOver) ||
			!s.exists && (s.revived || s.writtenByUs || s.handedOver || s.asks != candidate) {
			return // cannot be
		}
		v, allowed := o.decide(s), allowedBy(spec, o, s)
		counted++
		if v.free {
			frees++
			require.True(t, allowed, "%+v: decide says %q, and the protocol has no such step", s, v.reason)
		} else if s.asks == candidate && o.foreign(s.rec, s) <= 0 && s.exists {
			require.False(t, allowed, "%+v: decide waits for %v, and the protocol does not", s, v.wait)
		}
	}
	for _, asks := range []asker{candidate, undoer, heir, breaker} {
		for _, rec := range records {
			for _, age := range ages {
				for _, later := range laters {
					for bits := range 1 << 6 {
						is := func(i int) bool { return bits>>i&1 == 1 }
						check(options{ttl: ttl, drift: drift, skew: 5 * time.Second, reclaim: is(0)}, observation{
							asks: asks, handle: handle.Handle{Token: 7, Secret: "secret"}, exists: is(1), rec: rec,
							age: age, wall: wall, revived: is(2), later: later, writtenByUs: is(3), sameHolder: is(4),
							handedOver: is(5),
						})
					}
				}
			}
		}
	}
	t.Logf("%d cases, in %d of which the version may be replaced", counted, frees)
	require.Greater(t, frees, 500)
}

// allowedBy reports whether the machine has a step that replaces what s observes.
func allowedBy(spec *invariant.Spec, o options, s observation) bool {
	m := invariant.NewMachine(spec)
	p, v := m.Make("P"), m.Make("W") // the missing object
	set := func(name string, is bool, keys ...int64) {
		if is {
			m.Set(name, 1, keys...)
		}
	}
	const now = int64(time.Hour)
	m.Set("now", now)
	set("gone", true, v)
	set("rel", true, v)
	set("ended", true, v)
	if s.exists {
		v = m.Make("W")
		m.Set("of", v, v)
		m.Set("obj", v, v)
		m.Set("term", v, v)
		m.Set("tok", int64(s.rec.Token), v)
		set("rel", s.rec.Released(), v)
		set("foreign", !byLock(s.rec), v)
		set("old", s.revived, v)
		set("owns", s.writtenByUs, p, v)
		set("gaveUp", s.writtenByUs, p, v)
		set("free", s.handedOver, v)
		set("ended", s.writtenByUs || s.handedOver || s.rec.Released(), v)
		set("seen", true, p, v)
		m.Set("seenR", now-int64(s.age), p, v)
		m.Set("life", now+int64(s.rec.ExpiresAt.Add(o.skew).Sub(s.wall)), v) // sent at 0
		m.Set("wait", int64(s.rec.TTL)*51/50, p, v)                          // a drift of 2 %
		m.Set("waitOld", int64(max(s.later.TTL, s.rec.TTL))*51/50, p, v)
	}
	set("sent", true, v)
	set("landed", true, v)
	w := m.Make("W")
	m.Set("by", p, w)
	m.Set("base", v, w)
	m.Set("obj", w, w)
	if s.exists {
		m.Set("obj", v, w)
	}
	m.Set("sentR", now, w)
	m.Set("of", w, w)
	m.Set("term", w, w)
	m.Set("tok", int64(s.rec.Token)+1, w)
	may := func(action string, args []int64, excused ...string) bool {
		return m.May(action, args, excused...) == nil
	}
	replace := []int64{p, w, v}
	switch s.asks {
	case undoer:
		m.Set("of", v, w)
		m.Set("tok", int64(s.rec.Token), w)
		set("rel", true, w)
		return may("release", []int64{v, w, v})
	case heir, breaker:
		m.Set("term", v, w)
		m.Set("tok", int64(s.rec.Token), w)
		if s.asks == heir {
			return may("resume", replace, "user")
		}
		set("rel", true, w)
		return may("break", replace, "user", "knows")
	}
	aged := []int64{p, w, v, int64(s.age)}
	return may("acquireReleased", replace) || may("acquireExpired", aged) || may("acquireOwn", replace) ||
		may("acquireForeign", replace) || may("acquireOffered", replace) || may("acquireOld", aged) ||
		o.reclaim && s.sameHolder && may("acquireReclaim", replace, "user")
}
