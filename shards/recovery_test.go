package shards_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/shards"
)

// object returns what the store has under a key.
func (w *world) object(key string) []byte {
	w.t.Helper()
	obj, err := w.mem.Get(context.Background(), key)
	require.NoError(w.t, err)
	return obj.Body
}

// damagePlan replaces the plan by what is none.
func (w *world) damagePlan() {
	w.t.Helper()
	var rec leasehold.Record
	require.NoError(w.t, rec.UnmarshalJSON(w.object("g/planner")))
	rec.Payload = []byte("garbage")
	body, err := rec.MarshalJSON()
	require.NoError(w.t, err)
	w.overwrite("g/planner", body)
}

// A member whose session is not held yet has nothing to do but to read the plan once per poll interval.
func TestAMemberWithoutASessionReadsOncePerPollInterval(t *testing.T) {
	inWorld(t, shards.Count(4), func(w *world) {
		a := w.start("a")
		w.settled(4)
		twin := w.start("a") // it waits for as long as the other lives
		time.Sleep(10 * ttl)
		require.Less(t, twin.link.gets.Load(), int64(150), "the plan, and the session, once per poll interval")
		require.Empty(t, twin.group.Owned())
		require.NoError(t, a.stop())
		w.members["a"] = twin
	})
}

func TestThePlannerAndItsDeputyDieWhileThePlanIsDamaged(t *testing.T) {
	inWorld(t, shards.Count(10), func(w *world) {
		for _, name := range []string{"a", "b", "c", "d"} {
			w.start(name)
		}
		w.settled(10)
		planner, deputy := w.planner(), w.deputy()
		planner.kill() // first, or it might repair the plan
		deputy.kill()
		w.damagePlan()
		w.settled(10)
	})
}

// A member that restarts at once changes nothing in the plan, but has to find one.
func TestAMemberThatRestartsFindsAPlan(t *testing.T) {
	for what, spoil := range map[string]func(w *world){
		"damaged": (*world).damagePlan,
		"deleted": func(w *world) {
			obj, err := w.mem.Get(context.Background(), "g/planner")
			require.NoError(w.t, err)
			require.NoError(w.t, w.mem.DeleteIfMatch(context.Background(), "g/planner", obj.ETag))
		},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, shards.Count(12), func(w *world) {
				for _, name := range []string{"a", "b", "c"} {
					w.start(name)
				}
				w.settled(12)
				before := w.snapshot()
				spoil(w)
				time.Sleep(ttl)
				m := w.someMember(w.planner())
				require.NoError(t, m.stop())
				w.start(m.name)
				w.settled(12)
				require.Equal(t, 4, w.movesSince(before, 1))
			})
		})
	}
}

func TestAnOldPlan(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		a := w.start("a")
		w.settled(12)
		b := w.start("b")
		w.settled(12)
		old := w.object("g/planner")
		w.start("c")
		w.settled(12)
		require.NoError(t, b.stop())
		w.settled(12)
		require.Equal(t, a, w.planner(), "and it goes on")
		w.overwrite("g/planner", old)
		time.Sleep(2 * poll)
		w.settled(12)
	})
}

// The planner's lock is put back as it was before the first plan: whoever starts then finds none.
func TestThePlanIsPutBackToNone(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		w.start("a")
		w.await(ttl, "it is the planner", func() bool {
			_, err := w.mem.Get(context.Background(), "g/planner")
			return err == nil
		})
		payload := func() []byte {
			var rec leasehold.Record
			require.NoError(t, rec.UnmarshalJSON(w.object("g/planner")))
			return rec.Payload
		}
		require.Empty(t, payload())
		none := w.object("g/planner")
		w.start("b")
		w.settled(12)
		w.overwrite("g/planner", none)
		w.await(3*ttl, "the plan is written again", func() bool { return len(payload()) > 0 })
		w.settled(12)
	})
}

// The lock names the session of its first planner again, which lives, and whose member waits for that of the second.
func TestThePlannersLockAsItWasAtFirst(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		a := w.start("a")
		w.await(ttl, "it is the planner", func() bool {
			_, err := w.mem.Get(context.Background(), "g/planner")
			return err == nil
		})
		old := w.object("g/planner")
		w.start("b")
		w.settled(12)
		a.link.refuse(func(put bool, key string) error {
			if put && key == "g/planner" {
				return errors.New("503 Slow Down")
			}
			return nil
		})
		w.start("c")
		w.await(3*ttl, "it resigns", func() bool {
			n, _ := w.count(shards.EventRetired)
			return n > 0
		})
		a.link.refuse(func(bool, string) error { return nil })
		w.settled(12)
		require.Equal(t, w.members["b"], w.planner())
		require.Equal(t, a, w.deputy())
		w.overwrite("g/planner", old)
		w.start("d")
		w.settled(12)
	})
}

func TestAnOldRoster(t *testing.T) {
	inWorld(t, shards.Count(10), func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.start(name)
		}
		w.settled(10)
		old := w.object("g/roster")
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, w.members[name].stop())
			w.startWith(name, shards.Count(20), w.handle)
			time.Sleep(6 * ttl)
		}
		w.settled(20)
		w.overwrite("g/roster", old) // that of the former number of shards
		time.Sleep(ttl)
		require.NoError(t, w.someMember(w.planner()).stop())
		w.settled(20)
	})
}

// A planner that can neither publish nor release starts a new session. It does so once, and goes on when the store does.
func TestAPlannerThatIsAloneAndCannotPublish(t *testing.T) {
	var names atomic.Pointer[[]string]
	names.Store(&[]string{"x"})
	inWorld(t, shards.NamesFrom(func(context.Context) ([]string, error) { return *names.Load(), nil }), func(w *world) {
		a := w.start("a")
		w.settled(1)
		a.link.refuse(func(put bool, key string) error {
			if put && key == "g/planner" {
				return errors.New("503 Slow Down")
			}
			return nil
		})
		names.Store(&[]string{"x", "y"})
		time.Sleep(6 * ttl)
		a.link.refuse(func(bool, string) error { return nil })
		w.settled(2)
		require.LessOrEqual(t, strings.Count(string(w.object("g/members/a")), "token"), 1)
		var rec leasehold.Record
		require.NoError(t, rec.UnmarshalJSON(w.object("g/members/a")))
		require.LessOrEqual(t, rec.Token, uint64(2), "one new session")
	})
}

func TestAMemberThatTheRosterHasLost(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		w.start("a")
		w.start("b")
		w.settled(12)
		w.start("c")
		w.await(ttl, "it has entered the roster", func() bool { return strings.Contains(string(w.object("g/roster")), `"c"`) })
		w.overwrite("g/roster", []byte("{}")) // before the planner has read it
		w.settled(12)
	})
}

// A member with another number of shards is in the plan by its name. Only the roster tells the planner that it does not follow the plan.
func TestADamagedRosterInADeployment(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.start(name)
		}
		w.settled(12)
		m := w.someMember(w.planner())
		require.NoError(t, m.stop())
		w.startWith(m.name, shards.Count(20), w.handle)
		time.Sleep(3 * ttl)
		w.overwrite("g/roster", []byte("{}"))
		time.Sleep(5 * ttl)
		total := 0
		for _, owned := range w.counts() {
			total += owned
		}
		require.Equal(t, 12, total, "%v", w.counts())
	})
}

func TestTheDeputyHasWatchedAlong(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		for i := range 8 {
			w.start(name(i))
		}
		w.settled(12)
		for range 3 {
			planner := w.planner()
			w.someMember(planner, w.deputy()).kill()
			planner.kill()
			require.LessOrEqual(t, w.awaitBalance(12), ttl*3/2, "and not two TTLs")
			w.settled(12)
		}
	})
}

func TestJoinsAreSpread(t *testing.T) {
	var writes atomic.Int64
	for range 5 {
		inWorld(t, shards.Count(10), func(w *world) {
			for i := range 10 {
				w.start(name(i)).link.refuse(func(put bool, key string) error {
					if put && key == "g/roster" {
						writes.Add(1)
					}
					return nil
				})
			}
			w.settled(10)
		})
	}
	t.Logf("%d writes of the roster for 50 joins", writes.Load())
	require.Less(t, writes.Load(), int64(63), "if all entered at once there would be 71")
}

func TestAListThatHangs(t *testing.T) {
	var hangs atomic.Bool
	list := func(ctx context.Context) ([]string, error) {
		if hangs.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []string{"a", "b", "c", "d", "e", "f"}, nil
	}
	inWorld(t, shards.NamesFrom(list), func(w *world) {
		w.start("a")
		w.start("b")
		w.start("c")
		w.settled(6)
		hangs.Store(true)
		w.someMember(w.planner()).kill()
		require.LessOrEqual(t, w.awaitBalance(6), 2*ttl)
	})
}
