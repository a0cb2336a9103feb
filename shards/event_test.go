package shards_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/shards"
)

// told returns the events of a member.
func (w *world) told(member string) (events []shards.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Member == member {
			events = append(events, e)
		}
	}
	return events
}

// ownerships requires that each ownership of a member has begun once and ended once, and returns how many ended for each reason.
func (w *world) ownerships(member string) map[string]int {
	w.t.Helper()
	owned, ended := make(map[string]bool), make(map[string]int)
	for _, e := range w.told(member) {
		term := fmt.Sprint(e.Shard, " with token ", e.Token)
		switch e.Kind {
		case shards.EventStarted:
			require.False(w.t, owned[term], term)
			owned[term] = true
		case shards.EventStopped:
			require.True(w.t, owned[term], "%s of %s has not started", term, member)
			delete(owned, term)
			ended[e.Outcome()]++
		}
	}
	require.Empty(w.t, owned)
	return ended
}

func TestWhyShardsStop(t *testing.T) {
	inWorld(t, shards.Count(4), func(w *world) {
		a := w.start("a")
		w.settled(4)
		b := w.start("b")
		w.settled(4)
		b.link.down.Store(true)
		w.await(3*ttl, "a has taken over", func() bool { return w.counts()["a"] == 4 })
		b.link.down.Store(false)
		w.settled(4)
		require.NoError(t, a.stop())
		require.NoError(t, b.stop())
		require.Equal(t, map[string]int{"moved": 4, "left": 2}, w.ownerships("a"))
		require.Equal(t, map[string]int{"expired": 2, "left": 2}, w.ownerships("b"))
	})
}

// The member has taken all shards, but their handlers start one by one.
func TestAShardThatHasNotStartedDoesNotStop(t *testing.T) {
	inWorld(t, shards.Count(50), func(w *world) {
		a := w.startWith("a", w.set, func(m *member, ctx context.Context, s shards.Shard) error {
			err := w.handle(m, ctx, s)
			time.Sleep(time.Millisecond) // lest its place be free for another before all contexts have ended
			return err
		}, shards.WithMaxStarts(1))
		w.await(ttl, "some have started", func() bool { return w.counts()["a"] > 10 })
		require.NoError(t, a.stop())
		started, _ := w.count(shards.EventStarted)
		require.Less(t, started, 20)
		require.Equal(t, map[string]int{"left": started}, w.ownerships("a"))
	})
}

func TestThePlannerTellsOfItsTermAndOfThePlan(t *testing.T) {
	inWorld(t, shards.Count(10), func(w *world) {
		a := w.start("a")
		w.settled(10)
		a.link.down.Store(true)
		time.Sleep(3 * ttl)
		a.link.down.Store(false)
		w.settled(10)
		require.NoError(t, a.stop())
		var told []shards.Event
		for _, e := range w.told("a") {
			if e.Kind >= shards.EventElected {
				told = append(told, e)
			}
		}
		event := func(kind shards.EventKind, members, numbers, moved int) shards.Event {
			return shards.Event{Kind: kind, Prefix: "g", Member: "a", Members: members, Shards: numbers, Moved: moved}
		}
		require.Equal(t, []shards.Event{
			event(shards.EventElected, 0, 0, 0), event(shards.EventPlanned, 1, 10, 10), event(shards.EventRetired, 0, 0, 0),
			event(shards.EventElected, 1, 10, 0), event(shards.EventRetired, 0, 0, 0), // the plan is as before
		}, told)
	})
}

// The planner tells of the imbalance while a member cannot take shards.
func TestImbalance(t *testing.T) {
	inWorld(t, shards.Count(12), func(w *world) {
		w.start("a")
		w.settled(12)
		b := w.start("b")
		b.link.refuse(func(put bool, key string) error {
			if put && isShard(key) {
				return denied("writing")
			}
			return nil
		})
		var last shards.Event
		w.await(8*ttl, "b has none", func() bool {
			plans := w.published()
			last = plans[len(plans)-1]
			return last.Imbalance == 12
		})
		require.Equal(t, 2, last.Members)
		for _, e := range w.told("b") {
			require.NotEqual(t, shards.EventStarted, e.Kind)
			if e.Kind == shards.EventRefused {
				require.Equal(t, "permanent", e.Outcome())
			}
		}
	})
}

func TestNamesOfEvents(t *testing.T) {
	require.Equal(t, "unknown", shards.EventKind(0).String())
	require.Equal(t, "joined", shards.EventJoined.String())
	require.Equal(t, "retired", shards.EventRetired.String())
	require.Equal(t, "unknown", (shards.EventRetired + 1).String())
	require.Equal(t, "ok", shards.Event{}.Outcome())
}
