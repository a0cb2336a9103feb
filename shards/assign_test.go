package shards

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// crew is a group of members whose shards are assigned again and again.
type crew struct {
	t       *testing.T
	ids     []string
	present map[string]bool
	away    map[string]bool
	wary    map[string]map[string]bool
	plan    *plan
	moves   map[string]int // of each shard
}

func newCrew(t *testing.T, shards, members int) *crew {
	c := &crew{t: t, ids: numbers(shards), present: make(map[string]bool), away: make(map[string]bool), moves: make(map[string]int)}
	for i := range members {
		c.present[fmt.Sprintf("m%02d", i)] = true
	}
	c.assign()
	clear(c.moves)
	return c
}

// assign makes the next plan, and returns how many shards have moved.
func (c *crew) assign() (moved int) {
	c.t.Helper()
	who := cast{away: c.away, wary: c.wary}
	for _, m := range slices.Sorted(maps.Keys(c.present)) {
		if c.wary[m] == nil {
			who.fit = append(who.fit, m)
		}
	}
	next := assign(c.plan, c.ids, who)
	before, _ := c.plan.byID()
	after, _ := next.byID()
	for id, owner := range after {
		if before[id] != owner {
			c.moves[id]++
			moved++
		}
	}
	require.Equal(c.t, moved, c.plan.moved(next))
	body, err := next.encode(true)
	require.NoError(c.t, err)
	c.plan, err = (&Group{}).decodePlan(c.t.Context(), body)
	require.NoError(c.t, err)
	require.Equal(c.t, next, c.plan)
	return moved
}

func (c *crew) leave(m string) (moved int) {
	delete(c.present, m)
	c.away[m] = true
	return c.assign()
}

func (c *crew) join(m string) (moved int) {
	delete(c.away, m)
	c.present[m] = true
	return c.assign()
}

// TestAssign lets members come and go at random.
func TestAssign(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		c := newCrew(t, 1+r.IntN(60), 1+r.IntN(12))
		for range 30 {
			m := fmt.Sprintf("m%02d", r.IntN(14))
			share := func() int { return (len(c.ids) + len(c.present) - 1) / len(c.present) }
			switch {
			case !c.present[m]:
				moved := c.join(m)
				require.LessOrEqual(t, moved, share(), "a join moves no more than the share of the member")
			case len(c.present) > 1:
				had := len(c.plan.of(m))
				require.Equal(t, had, c.leave(m), "a leave moves the shards of the member")
			}
			require.LessOrEqual(t, c.plan.imbalance(), 1)
			require.Zero(t, c.assign(), "nothing moves twice")
			require.NotContains(t, c.plan.owner, nobody)
		}
	}
}

func TestARollingRestartMovesTwice(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		c := newCrew(t, 1+r.IntN(200), 2+r.IntN(20))
		for _, m := range slices.Sorted(maps.Keys(c.present)) {
			had := c.plan.of(m)
			c.leave(m)
			c.join(m)
			require.Equal(t, had, c.plan.of(m))
		}
		for id, n := range c.moves {
			require.LessOrEqual(t, n, 2, "shard %s of %d, %d members", id, len(c.ids), len(c.present))
		}
	}
}

func TestSeveralComeHome(t *testing.T) {
	c := newCrew(t, 40, 8)
	for _, m := range []string{"m02", "m03", "m01", "m06"} { // each comes back as a stranger
		c.leave(m)
		delete(c.away, m)
		c.assign()
		c.join(m)
	}
	had := make(map[string]map[string]bool)
	for _, m := range []string{"m01", "m03", "m06"} {
		had[m] = c.plan.of(m)
	}
	for m := range had {
		c.leave(m)
	}
	for m := range had {
		c.present[m] = true
		delete(c.away, m)
	}
	c.assign()
	for m, ids := range had {
		require.Equal(t, ids, c.plan.of(m))
	}
	c.leave("m03")
	delete(c.away, "m03") // it is forgotten
	c.assign()
	require.NotContains(t, c.plan.members, "m03")
}

func TestRefusals(t *testing.T) {
	c := newCrew(t, 40, 8)
	refused := c.plan.ids[slices.Index(c.plan.owner, 0)]
	c.wary = map[string]map[string]bool{"m00": {refused: true}}
	require.Equal(t, 1, c.assign())
	require.Len(t, c.plan.of("m00"), 4)
	for i := 1; i < maxRefusals; i++ {
		owners, _ := c.plan.byID()
		c.wary[owners[refused]] = map[string]bool{refused: true}
		c.assign()
	}
	require.Len(t, c.wary, maxRefusals)
	require.Zero(t, c.assign(), "the others are left in peace")
	owners, _ := c.plan.byID()
	require.Contains(t, c.wary, owners[refused])
	c.leave("m07")
	for m := range c.wary {
		require.LessOrEqual(t, len(c.plan.of(m)), 5, "they get no more")
	}
	c.wary = nil
	c.assign()
	require.LessOrEqual(t, c.plan.imbalance(), 1)
}

func TestPiecesOfTwoPlans(t *testing.T) {
	g := &Group{options: options{ttl: time.Minute}, store: leasehold.NewMemStore(), prefix: "g"}
	write := func(token uint64, owner int) []byte {
		p := &plan{members: []string{"a", "b"}, present: 2, ids: numbers(1), owner: []int{owner}, home: []int{nobody}}
		body, err := p.encode(true)
		require.NoError(t, err)
		payload, err := g.writePieces(t.Context(), token, body, nil)
		require.NoError(t, err)
		return payload
	}
	first, second := write(1, 0), write(2, 1)
	_, err := g.decodePlan(t.Context(), first)
	require.ErrorIs(t, err, errBadPlan)
	p, err := g.decodePlan(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"0": true}, p.of("b"))
	confirm := func(context.Context) error { return leasehold.ErrLost }
	_, err = g.writePieces(t.Context(), 1, []byte("late"), confirm)
	require.ErrorIs(t, err, leasehold.ErrLost)
	_, err = g.decodePlan(t.Context(), second)
	require.NoError(t, err)
}
