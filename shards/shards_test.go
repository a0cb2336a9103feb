package shards_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/export"
	"github.com/leasehold-go/leasehold/shards"
)

func TestJoinAndLeave(t *testing.T) {
	inWorld(t, shards.Count(10), func(w *world) {
		a := w.start("a")
		require.Less(t, w.awaitBalance(10), ttl)
		w.settled(10)
		b := w.start("b")
		w.awaitBalance(10)
		w.settled(10)
		require.Equal(t, 15, w.totalStarts())
		require.Len(t, b.group.Owned(), 5)
		for _, s := range b.group.Owned() {
			require.EqualValues(t, 2, s.Token())
			require.Equal(t, fmt.Sprint(s.Number), s.ID)
		}
		puts := b.link.puts.Load()
		require.NoError(t, b.stop())
		require.LessOrEqual(t, b.link.puts.Load()-puts, int64(2), "one release for all, and perhaps a renewal")
		require.Less(t, w.awaitBalance(10), 3*poll)
		require.Equal(t, 20, w.totalStarts())
		require.NoError(t, a.group.Check(nil))
		require.NoError(t, a.stop())
		require.NoError(t, a.group.Check(nil))
	})
}

func TestDeaths(t *testing.T) {
	for what, victims := range map[string]func(w *world) []*member{
		"a member":               func(w *world) []*member { return []*member{w.someMember(w.planner(), w.deputy())} },
		"the planner":            func(w *world) []*member { return []*member{w.planner()} },
		"the deputy":             func(w *world) []*member { return []*member{w.deputy()} },
		"the planner and deputy": func(w *world) []*member { return []*member{w.planner(), w.deputy()} },
		"all but one":            func(w *world) []*member { return []*member{w.members["a"], w.members["b"], w.members["c"]} },
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, shards.Count(10), func(w *world) {
				for _, name := range []string{"a", "b", "c", "d"} {
					w.start(name)
				}
				w.settled(10)
				for _, m := range victims(w) {
					m.kill()
				}
				w.awaitBalance(10)
				w.settled(10)
			})
		})
	}
}

func TestAllStopAndStartAgain(t *testing.T) {
	inWorld(t, shards.Count(10), func(w *world) {
		for range 2 {
			a, b := w.start("a"), w.start("b")
			w.settled(10)
			require.NoError(t, a.stop())
			require.NoError(t, b.stop())
		}
	})
}

func TestAMemberThatRestartsGetsItsShardsBack(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.start(name)
		}
		w.settled(12)
		had := maps.Clone(w.members["b"].owned)
		require.NoError(t, w.members["b"].stop())
		w.settled(12)
		w.start("b")
		w.settled(12)
		require.Equal(t, had, w.members["b"].owned)
	})
}

func TestAMemberThatLeftIsForgotten(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		w.start("a")
		b := w.start("b")
		w.settled(12)
		require.NoError(t, b.stop())
		names := func() string {
			obj, err := w.mem.Get(context.Background(), "g/roster")
			require.NoError(t, err)
			return string(obj.Body)
		}
		time.Sleep(10 * ttl)
		require.Contains(t, names(), `"b"`)
		time.Sleep(15 * ttl)
		require.NotContains(t, names(), `"b"`)
		w.start("b")
		w.settled(12)
	})
}

func TestMembersThatComeOneAfterTheOtherAreWaitedFor(t *testing.T) {
	inWorld(t, shards.Count(100), func(w *world) {
		for i := range 10 {
			w.start(name(i))
			time.Sleep(poll / 3)
		}
		w.settled(100)
		require.LessOrEqual(t, w.totalStarts(), 150)
	})
}

func TestABrownOutEndsWithAGrace(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.start(name)
		}
		w.settled(12)
		m := w.someMember(w.planner())
		had := maps.Clone(m.owned)
		m.link.down.Store(true)
		w.await(2*ttl, "the others own all", func() bool {
			counts := w.counts()
			return counts[m.name] == 0 && counts["a"]+counts["b"]+counts["c"] == 12
		})
		m.link.down.Store(false)
		back := w.awaitBalance(12)
		require.Greater(t, back, ttl, "a grace")
		w.settled(12)
		require.Equal(t, had, m.owned)
	})
}

func TestHandlersThatFailAreCalledAgainByTheSameOwner(t *testing.T) {
	inWorld(t, shards.Count(3), func(w *world) {
		var mu sync.Mutex
		calls := make(map[string][]time.Time)
		m := w.startWith("a", w.set, func(m *member, ctx context.Context, s shards.Shard) error {
			w.begin(m, s)
			defer w.end(m, s)
			mu.Lock()
			calls[s.ID] = append(calls[s.ID], time.Now())
			mu.Unlock()
			switch s.ID {
			case "0":
				return errors.New("cannot")
			case "1":
				panic("cannot at all")
			}
			return nil // it has nothing more to do
		})
		time.Sleep(20 * ttl)
		mu.Lock()
		seen := maps.Clone(calls)
		mu.Unlock()
		require.Len(t, seen["2"], 1)
		for _, id := range []string{"0", "1"} {
			require.InDelta(t, 10, len(seen[id]), 6, "with a back-off")
			require.Greater(t, seen[id][5].Sub(seen[id][4]), seen[id][1].Sub(seen[id][0]))
		}
		require.Len(t, m.group.Owned(), 3)
		for _, s := range m.group.Owned() {
			require.EqualValues(t, 1, s.Token())
		}
		_, failed := w.count(shards.EventFailed)
		require.Equal(t, map[string]bool{"0": true, "1": true}, failed)
		require.NoError(t, m.group.Check(nil))
	})
}

// suspended is the clock of a machine that was suspended: its wall clock has counted that.
type suspended struct {
	clock.Clock
	slept atomic.Int64
}

func (c *suspended) Now() clock.Reading {
	r := c.Clock.Now()
	r.Wall += time.Duration(c.slept.Load())
	return r
}

func TestAHandlerIsNotCalledAfterASuspend(t *testing.T) {
	inWorld(t, shards.Count(1), func(w *world) {
		machine := &suspended{Clock: clock.System}
		var calls atomic.Int64
		w.startWith("a", w.set, func(m *member, ctx context.Context, s shards.Shard) error {
			call := calls.Add(1)
			if !s.Lease().Valid() {
				t.Error("the handler is called under a lease that is over")
			}
			if call == 1 {
				machine.slept.Add(int64(time.Hour))
			}
			return errors.New("it failed")
		}, export.ShardsWithClock.(func(clock.Clock) shards.Option)(machine))
		w.await(10*ttl, "it is called again", func() bool { return calls.Load() > 1 })
	})
}

func TestAHandlerThatDoesNotReturn(t *testing.T) {
	inWorld(t, shards.Count(4), func(w *world) {
		free := make(chan struct{})
		a := w.startWith("a", w.set, func(m *member, ctx context.Context, s shards.Shard) error {
			w.begin(m, s)
			defer w.end(m, s)
			<-ctx.Done()
			<-free
			return nil
		})
		w.settled(4)
		b := w.start("b")
		w.await(5*ttl, "Check reports the handlers", func() bool { return a.group.Check(nil) != nil })
		require.ErrorContains(t, a.group.Check(nil), "2 handlers still run although their contexts have ended")
		w.await(2*ttl, "the shards are released after a TTL", func() bool { return len(b.group.Owned()) == 2 })
		close(free)
		w.settled(4)
		require.NoError(t, a.group.Check(nil))
	})
}

func TestADamagedRoster(t *testing.T) {
	for what, body := range map[string]string{
		"no JSON": "\x00garbage", "empty": "", "no members": "{}", "a list": "[1,2]",
		"other names": `{"members":{"x":{"generation":"1 count 10"},"../y":{}}}`,
		"too large":   strings.Repeat(" ", leasehold.MaxObjectSize),
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, shards.Count(10), func(w *world) {
				a, b := w.start("a"), w.start("b")
				w.settled(10)
				before := w.totalStarts()
				w.overwrite("g/roster", []byte(body))
				time.Sleep(5 * ttl)
				require.Equal(t, before, w.totalStarts(), "nothing moves")
				w.start("c")
				w.settled(10)
				require.NoError(t, a.stop()) // perhaps the planner
				w.settled(10)
				require.NoError(t, b.stop())
				w.settled(10)
				w.start("b")
				w.settled(10)
			})
		})
	}
}

// overwrite replaces an object, as a person might.
func (w *world) overwrite(key string, body []byte) {
	w.t.Helper()
	obj, err := w.mem.Get(context.Background(), key)
	require.NoError(w.t, err)
	_, err = w.mem.PutIfMatch(context.Background(), key, body, obj.ETag)
	require.NoError(w.t, err)
}

func TestADamagedPlan(t *testing.T) {
	for _, payload := range []string{
		"garbage", `{"count":10,"owners":"AAAA"}`, `{"members":["a"],"present":1,"count":1,"owners":"//8="}`, `{"pieces":2,"digest":"AAAA"}`,
	} {
		inWorld(t, shards.Count(10), func(w *world) {
			w.start("a")
			w.start("b")
			w.settled(10)
			before := w.totalStarts()
			obj, err := w.mem.Get(context.Background(), "g/planner")
			require.NoError(t, err)
			var rec leasehold.Record
			require.NoError(t, rec.UnmarshalJSON(obj.Body))
			rec.Payload = []byte(payload)
			body, err := rec.MarshalJSON()
			require.NoError(t, err)
			w.overwrite("g/planner", body)
			time.Sleep(ttl)
			require.Equal(t, before, w.totalStarts(), "members go on with what they have read")
			require.NoError(t, w.planner().stop())
			w.settled(10)
			w.start("c")
			w.settled(10)
		})
	}
}

func TestADeletedPlan(t *testing.T) {
	inWorld(t, shards.Count(10), func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.start(name)
		}
		w.settled(10)
		before := w.totalStarts()
		obj, err := w.mem.Get(context.Background(), "g/planner")
		require.NoError(t, err)
		require.NoError(t, w.mem.DeleteIfMatch(context.Background(), "g/planner", obj.ETag))
		time.Sleep(5 * ttl)
		require.Equal(t, before, w.totalStarts(), "nothing moves")
		w.start("d")
		w.settled(10)
		require.LessOrEqual(t, w.totalStarts(), before+3)
	})
}

func TestTwoSetsOnOnePrefix(t *testing.T) {
	inWorld(t, shards.Count(10), func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.start(name)
		}
		var others []*member
		for _, name := range []string{"x", "y"} {
			others = append(others, w.startWith(name, shards.Count(20), w.handle))
		}
		time.Sleep(10 * ttl)
		total := 0
		for name, n := range w.counts() {
			total += n
			require.Equal(t, name < "x", n > 0, "the majority divides its set")
		}
		require.Equal(t, 10, total)
		for _, m := range others {
			require.NoError(t, m.group.Check(nil), "or a deployment would stop here")
		}
	})
}

func TestTheNumberOfShardsChangesInADeployment(t *testing.T) {
	for _, n := range []int{5, 20} {
		inWorld(t, shards.Count(10), func(w *world) {
			for _, name := range []string{"a", "b", "c"} {
				w.start(name)
			}
			w.settled(10)
			for i, name := range []string{"a", "b", "c"} {
				require.NoError(t, w.members[name].stop())
				w.startWith(name, shards.Count(n), w.handle)
				time.Sleep(6 * ttl)
				total := 0
				for _, owned := range w.counts() {
					total += owned
				}
				require.Equal(t, []int{10, n, n}[i], total, "after %s: %v", name, w.counts())
			}
			w.settled(n)
		})
	}
}

func TestAMemberWithAnotherSetDoesNotFollowThePlan(t *testing.T) {
	inWorld(t, shards.Count(10), func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.start(name)
		}
		w.settled(10)
		m := w.someMember(w.planner())
		require.NoError(t, m.stop())
		m = w.startWith(m.name, shards.Count(20), func(m *member, ctx context.Context, s shards.Shard) error {
			t.Errorf("the plan is for 10 shards, and %s starts shard %s of 20", m.name, s.ID)
			return nil
		}) // before the planner knows
		time.Sleep(6 * ttl)
		require.Empty(t, m.group.Owned())
	})
}

func TestZeroShards(t *testing.T) {
	for _, set := range []shards.Set{shards.Count(0), shards.Names()} {
		inWorld(t, set, func(w *world) {
			a := w.start("a")
			w.start("b")
			w.settled(0)
			require.NoError(t, a.group.Check(nil))
			require.Zero(t, w.totalStarts())
		})
	}
}

func TestNamesThatChange(t *testing.T) {
	var mu sync.Mutex
	names := []string{"x/1", "x/2", "x/3", "x/3"}
	var fails atomic.Bool
	set := func(change ...string) {
		mu.Lock()
		defer mu.Unlock()
		names = change
	}
	list := func(context.Context) ([]string, error) {
		if fails.Load() {
			return nil, errors.New("the database is down")
		}
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(names), nil
	}
	inWorld(t, shards.NamesFrom(list), func(w *world) {
		a := w.start("a")
		w.start("b")
		w.settled(3)
		set("x/1", "x/2", "x/4", "x/5", "../bad", "")
		w.settled(4)
		require.Equal(t, 4, w.published()[len(w.published())-1].Shards)
		require.Equal(t, map[string]int{"x/1": 1, "x/2": 1, "x/3": 1, "x/4": 1, "x/5": 1}, w.snapshot(), "no other shard moves")
		for _, s := range a.group.Owned() {
			require.Equal(t, -1, s.Number)
		}
		fails.Store(true)
		require.NoError(t, w.planner().stop()) // the next one has no list yet
		w.settled(4)
		set()
		fails.Store(false)
		w.settled(0)
	})
}

func longNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("tenants/%064d", i))
	}
	return names
}

func TestPlansTooLargeForTheLock(t *testing.T) {
	names := longNames(1500) // 108 KB
	inWorld(t, shards.Names(names...), func(w *world) {
		w.start("a")
		w.start("b")
		w.start("c")
		w.settled(len(names))
		_, err := w.mem.Get(context.Background(), "g/plan/2")
		require.NoError(t, err)
		before := w.totalStarts()
		require.NoError(t, w.planner().stop())
		w.settled(len(names))
		require.Equal(t, before+len(names)/3, w.totalStarts())
	})
}

// The planner's lock was deleted, so its tokens begin again, but those of the pieces are of before.
func TestPiecesThatAreOlderThanThePlannersLock(t *testing.T) {
	names := longNames(1000)
	inWorld(t, shards.Names(names...), func(w *world) {
		_, err := w.mem.PutIfNoneMatch(context.Background(), "g/plan/0", []byte(`{"token":1000,"data":"AAAA"}`))
		require.NoError(t, err)
		w.start("a")
		w.settled(len(names))
	})
}

// A member that starts again under its name changes nothing in the plan, but has to find its pieces.
func TestAPieceIsWrittenAgain(t *testing.T) {
	names := longNames(1000)
	for what, spoil := range map[string]func(w *world){
		"overwritten": func(w *world) { w.overwrite("g/plan/0", []byte(`{"token":1,"data":"AAAA"}`)) },
		"deleted": func(w *world) {
			obj, err := w.mem.Get(context.Background(), "g/plan/0")
			require.NoError(w.t, err)
			require.NoError(w.t, w.mem.DeleteIfMatch(context.Background(), "g/plan/0", obj.ETag))
		},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, shards.Names(names...), func(w *world) {
				w.start("a")
				w.start("b")
				w.start("c")
				w.settled(len(names))
				before := w.object("g/plan/0")
				spoil(w)
				w.await(2*ttl, "the piece is there again", func() bool {
					obj, err := w.mem.Get(context.Background(), "g/plan/0")
					return err == nil && string(obj.Body) == string(before)
				})
				m := w.someMember(w.planner())
				name := m.group.Member()
				m.kill()
				w.start(name)
				w.settled(len(names))
			})
		})
	}
}

func TestAMemberThatCannotTakeSomeShards(t *testing.T) {
	for what, answer := range map[string]error{"403": denied("writing"), "503": errors.New("503 Slow Down")} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, shards.Count(12), func(w *world) {
				w.start("a")
				w.start("b")
				c := w.start("c")
				c.link.refuse(func(put bool, key string) error {
					if put && isShard(key) && (strings.HasSuffix(key, "1") || strings.HasSuffix(key, "2")) { // 1, 2 and 11
						return answer
					}
					return nil
				})
				w.await(8*ttl, "all shards are owned", func() bool {
					counts := w.counts()
					return counts["a"]+counts["b"]+counts["c"] == 12
				})
				time.Sleep(3 * ttl)
				for id, o := range w.last {
					require.False(t, o.member == "c" && (id == "1" || id == "2" || id == "11"), "shard %s", id)
				}
				c.link.refuse(func(bool, string) error { return nil })
				w.await(60*ttl, "it gets its share when the pause is over", func() bool { return w.balanced(12) })
			})
		})
	}
}

func TestNobodyCanTakeAShard(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		for i := range 6 {
			w.start(name(i)).link.refuse(func(put bool, key string) error {
				if put && key == "g/shards/7" {
					return denied("writing")
				}
				return nil
			})
		}
		w.await(10*ttl, "all others are owned", func() bool {
			total := 0
			for _, n := range w.counts() {
				total += n
			}
			return total == 11
		})
		w.await(20*ttl, "the planner gives up", func() bool { return len(w.published()) > 1 })
		time.Sleep(5 * ttl)
		plans := len(w.published())
		time.Sleep(100 * ttl)
		require.Less(t, len(w.published())-plans, 30, "it does not move for ever")
	})
}

func TestAPlannerThatCannotPublish(t *testing.T) {
	inWorld(t, shards.Count(10), func(w *world) {
		w.start("a")
		w.start("b")
		w.start("c")
		w.settled(10)
		planner := w.planner()
		planner.link.refuse(func(put bool, key string) error {
			if put && key == "g/planner" {
				return errors.New("503 Slow Down")
			}
			return nil
		})
		w.start("d")
		w.awaitBalance(10)
		require.NotEqual(t, planner, w.planner())
		w.settled(10)
	})
}

func TestASecondProcessOfTheSameNameWaits(t *testing.T) {
	inWorld(t, shards.Count(4), func(w *world) {
		a := w.start("a")
		w.settled(4)
		twin := w.start("a")
		time.Sleep(3 * ttl)
		require.ErrorContains(t, twin.group.Check(nil), "give each process a session key of its own")
		require.Empty(t, twin.group.Owned())
		require.NoError(t, a.stop())
		w.members["a"] = twin
		w.settled(4)
		require.NoError(t, twin.group.Check(nil))
	})
}

func TestStartsAreBounded(t *testing.T) {
	inWorld(t, shards.Count(100), func(w *world) {
		var most, now atomic.Int64
		w.startWith("a", w.set, func(m *member, ctx context.Context, s shards.Shard) error {
			w.begin(m, s)
			defer w.end(m, s)
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(poll / 31) // until it has connected
			now.Add(-1)
			<-ctx.Done()
			return nil
		}, shards.WithMaxStarts(5))
		w.settled(100)
		require.EqualValues(t, 5, most.Load())
	})
}

func TestRunEnds(t *testing.T) {
	inWorld(t, shards.Count(4), func(w *world) {
		a := w.start("a")
		w.settled(4)
		require.ErrorContains(t, a.group.Run(context.Background()), "already running")
		require.NoError(t, a.stop())
		ctx, cancel := context.WithCancel(context.Background()) // it may run again
		done := make(chan error)
		go func() { done <- a.group.Run(ctx) }()
		time.Sleep(2 * ttl)
		require.Len(t, a.group.Owned(), 4)
		cancel()
		require.NoError(t, <-done)

		for _, key := range []string{"g/roster", "g/members/b"} {
			b := w.start("b")
			b.link.refuse(func(put bool, k string) error {
				if put && k == key {
					return denied("writing")
				}
				return nil
			})
			require.ErrorIs(t, <-b.done, leasehold.ErrPermanent, key)
			delete(w.members, "b")
		}
	})
}

func TestNewRefuses(t *testing.T) {
	handle := func(context.Context, shards.Shard) error { return nil }
	store := leasehold.NewMemStore()
	try := func(set shards.Set, opts ...shards.Option) error {
		_, err := shards.New(store, "g", set, handle, opts...)
		return err
	}
	one := shards.Count(1)
	for want, err := range map[string]error{
		"shards: the Set is empty":                      try(shards.Set{}),
		"shards: Count(-1) is negative":                 try(shards.Count(-1)),
		"shards: NamesFrom: the function is nil":        try(shards.NamesFrom(nil)),
		`shards: Names: the key of shard "../x" has a`:  try(shards.Names("../x")),
		"shards: an Option is nil":                      try(one, nil),
		"WithMaxStarts(0): no handler could start":      try(one, shards.WithMaxStarts(0)),
		"WithMember: the name has 201 bytes":            try(one, shards.WithMember(strings.Repeat("x", 201))),
		"TTL -1s is below 1ms":                          try(one, shards.WithTTL(-time.Second), shards.WithPollInterval(time.Second)),
		"poll interval -1s is negative":                 try(one, shards.WithPollInterval(-time.Second)),
		"WithEachLockReleased is for NewSession: leave": try(one, shards.WithLockOptions(leasehold.WithEachLockReleased())),
	} {
		require.ErrorContains(t, err, want)
	}
	_, err := shards.New(store, "g", one, nil)
	require.EqualError(t, err, "shards: the handler is nil")
	_, err = shards.New(store, "", one, handle)
	require.ErrorContains(t, err, `shards: prefix "" is empty`)
	_, err = shards.New(nil, "g", one, handle)
	require.ErrorContains(t, err, "store is nil")
	var none *shards.Group
	require.ErrorContains(t, none.Run(context.Background()), "was not made by New")
	require.ErrorContains(t, none.Check(nil), "was not made by New")
	g, err := shards.New(store, "g", shards.Count(1), handle)
	require.NoError(t, err)
	require.NotEmpty(t, g.Member())
}
