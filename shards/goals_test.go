package shards_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/shards"
)

// raceEnabled reports whether the race detector runs. Under it the large tests would take ten minutes.
var raceEnabled bool

// The goals of the package are for many shards and many members. A short test has fewer, and so has one under the race detector.
var many, workers = 1000, 50

func scale() {
	if testing.Short() || raceEnabled {
		many, workers = 200, 20
	}
}

// fleet starts the members at once and waits until they are settled.
func (w *world) fleet(members int) {
	for i := range members {
		w.start(name(i))
	}
	w.settled(many)
}

func TestFiftyJoinFromCold(t *testing.T) {
	inWorld(t, shards.Count(many), func(w *world) {
		for i := range workers {
			w.start(name(i))
		}
		took := w.awaitBalance(many)
		time.Sleep(3 * ttl)
		require.True(t, w.balanced(many))
		moved := 0
		for _, p := range w.published() {
			moved += p.Moved
			require.LessOrEqual(t, p.Imbalance, 1)
		}
		_, _, refused := w.requests()
		t.Logf("balanced in %.2f TTL, %d plans that moved %d shards, %d starts, %d writes refused",
			took.Seconds()/ttl.Seconds(), len(w.published()), moved, w.totalStarts(), refused)
		require.LessOrEqual(t, moved, many*3/2)
		require.LessOrEqual(t, w.totalStarts(), many*3/2)
	})
}

func TestNothingIsWrittenAtRestButTheSessions(t *testing.T) {
	inWorld(t, shards.Count(many), func(w *world) {
		w.fleet(workers)
		gets, puts, refused := w.requests()
		const ttls = 10
		written := w.writes()
		time.Sleep(ttls * ttl)
		gets2, puts2, refused2 := w.requests()
		t.Logf("in a TTL: %.1f GET and %.1f PUT of %d members", float64(gets2-gets)/ttls, float64(puts2-puts)/ttls, workers)
		require.Zero(t, refused2-refused)
		require.Equal(t, written, w.writes())
		require.InDelta(t, 3*workers, float64(puts2-puts)/ttls, 0.1*3*float64(workers), "a session is renewed three times a TTL")
		perPoll := float64(workers+2*(workers-1)+2+1) + float64(workers)/5 // the plan; the sessions and the roster, twice; and signs of life
		require.Less(t, float64(gets2-gets)/ttls, 1.03*5*perPoll)
		require.Equal(t, many, w.totalStarts())
	})
}

func TestAJoinAndALeaveMoveFew(t *testing.T) {
	inWorld(t, shards.Count(many), func(w *world) {
		w.fleet(workers)
		before := w.snapshot()
		w.start(name(workers))
		w.settled(many)
		require.LessOrEqual(t, w.movesSince(before, 1), (many+workers)/(workers+1))
		before = w.snapshot()
		require.NoError(t, w.members[name(7)].stop())
		w.settled(many)
		require.LessOrEqual(t, w.movesSince(before, 1), (many+workers)/(workers+1))
	})
}

func TestAJoinMovesItsShare(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		for i := range 3 {
			w.start(name(i))
		}
		w.settled(12)
		before := w.snapshot()
		w.start(name(3))
		w.settled(12)
		require.Equal(t, 3, w.movesSince(before, 1))
		before = w.snapshot()
		require.NoError(t, w.members[name(1)].stop())
		w.settled(12)
		require.Equal(t, 3, w.movesSince(before, 1))
	})
}

// movesSince returns how many shards have started since, and wants that each did so limit times at most.
func (w *world) movesSince(before map[string]int, limit int) (moves int) {
	w.t.Helper()
	for id, n := range w.snapshot() {
		require.LessOrEqual(w.t, n-before[id], limit, "shard %s", id)
		moves += n - before[id]
	}
	return moves
}

func TestADeadMembersShardsAreOwnedAgain(t *testing.T) {
	inWorld(t, shards.Count(many), func(w *world) {
		w.fleet(workers)
		var took []float64
		for i := range 11 {
			time.Sleep(time.Duration(i) * ttl / 33) // another phase of the renewals
			victim := w.someMember(w.planner())
			victim.kill()
			took = append(took, w.awaitBalance(many).Seconds()/ttl.Seconds())
			w.settled(many)
		}
		slices.Sort(took)
		t.Logf("TTLs from the kill until all is owned: %.2f", took)
		require.LessOrEqual(t, took[len(took)/2], 1.3)
	})
}

func TestAMemberAndThePlannerDieTogether(t *testing.T) {
	inWorld(t, shards.Count(many), func(w *world) {
		w.fleet(workers)
		var took []float64
		for i := range 7 {
			time.Sleep(time.Duration(i) * ttl / 21)
			planner := w.planner()
			w.someMember(planner, w.deputy()).kill()
			planner.kill()
			took = append(took, w.awaitBalance(many).Seconds()/ttl.Seconds())
			w.settled(many)
		}
		slices.Sort(took)
		t.Logf("TTLs from the kill until all is owned: %.2f", took)
		require.LessOrEqual(t, took[len(took)-1], 1.5)
	})
}

func TestAGracefulLeaveIsShort(t *testing.T) {
	inWorld(t, shards.Count(many), func(w *world) {
		w.fleet(workers)
		var gaps []float64
		for i := range 9 {
			time.Sleep(time.Duration(i) * poll / 9)
			m := w.someMember(w.planner())
			ids := m.group.Owned()
			began := time.Now()
			left := make(chan error, 1)
			go func() { left <- m.stop() }()
			for _, s := range ids {
				w.await(ttl, "the shard has another owner", func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return w.last[s.ID].member != m.name
				})
				gaps = append(gaps, time.Since(began).Seconds()/poll.Seconds()) // an upper bound, as the shards are looked at in turn
			}
			require.NoError(t, <-left)
			w.settled(many)
		}
		slices.Sort(gaps)
		t.Logf("poll intervals without an owner: median %.2f, most %.2f", gaps[len(gaps)/2], gaps[len(gaps)-1])
		require.LessOrEqual(t, gaps[len(gaps)/2], 2.0)
	})
}

func TestARollingRestartMovesEachShardTwice(t *testing.T) {
	for _, n := range []int{many, many + 3} {
		inWorld(t, shards.Count(n), func(w *world) {
			for i := range workers {
				w.start(name(i))
			}
			w.settled(n)
			before := w.snapshot()
			for i := range workers {
				require.NoError(t, w.members[name(i)].stop())
				w.awaitBalance(n)
				w.start(name(i))
				w.awaitBalance(n)
			}
			w.settled(n)
			moves := w.movesSince(before, math.MaxInt)
			most := 0
			for id, starts := range w.snapshot() {
				most = max(most, starts-before[id])
			}
			t.Logf("%d shards: %d moves, %d of one shard at most", n, moves, most)
			require.LessOrEqual(t, most, 2)
		})
	}
}

// TestRequestsAtRest prints the table of docs/shards.md.
func TestRequestsAtRest(t *testing.T) {
	const hours, month = 0.5, 730
	const pricePut, priceGet = 0.005 / 1000, 0.0004 / 1000 // of the README
	t.Logf("| members | shards | PUT an hour | GET an hour | dollars a month | dollars, a lock a shard |")
	for _, c := range []struct{ members, shards int }{{3, 100}, {3, 1000}, {10, 1000}, {50, 1000}} {
		if (testing.Short() || raceEnabled) && c.members > 3 {
			continue
		}
		inWorld(t, shards.Count(c.shards), func(w *world) {
			for i := range c.members {
				w.start(name(i))
			}
			w.settled(c.shards)
			gets, puts, _ := w.requests()
			time.Sleep(time.Duration(hours * float64(time.Hour)))
			gets2, puts2, _ := w.requests()
			put, get := float64(puts2-puts)/hours, float64(gets2-gets)/hours
			apart := float64(c.shards) * 3 * time.Hour.Seconds() / ttl.Seconds() // PUTs an hour, without those that wait for the locks
			t.Logf("| %d | %d | %.0f | %.0f | %.2f | %.2f |", c.members, c.shards, put, get, month*(put*pricePut+get*priceGet), month*apart*pricePut)
			require.Less(t, put, 3.3*240*float64(c.members))
			require.Less(t, get, 1200*(3*float64(c.members)+4+float64(c.members)/5)+float64(c.shards)*3)
		})
	}
}
