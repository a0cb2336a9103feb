package tables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// behindAWriter is a table in which one member holds a lock, and waits with as many readers behind
// as admission lets in.
func behindAWriter(t *testing.T, limit int, revision uint64) (tab *Table, m uint64) {
	t.Helper()
	tab = New()
	m = tab.Join(member(1))
	require.NoError(t, tab.Ask(ID{m, 1}, []Claim{{Name: "s"}}))
	tab.Finish("n", revision)
	for n := uint64(2); ; n++ {
		next := tab.Clone()
		require.NoError(t, next.Ask(ID{m, n}, []Claim{{Name: "s", Shared: true}}))
		next.Revision = revision
		if _, over, err := next.Seal("n", 0, limit); err != nil {
			require.ErrorIs(t, err, ErrFull)
			require.Positive(t, over)
			return tab, m
		}
		tab = next
	}
}

// What admission lets in can be granted later: the object stays within the limit, although each
// grant adds a token, and although the revision may have two digits more by then.
func TestAdmissionLeavesRoomForEveryGrant(t *testing.T) {
	const limit = 1500
	tab, m := behindAWriter(t, limit, 90)
	_, _, waiting := tab.Counts()
	require.Greater(t, waiting, 20)
	tab.Drop(ID{m, 1})
	body, over, err := tab.Seal("n", 9000, limit)
	require.NoError(t, err)
	require.Negative(t, over)
	require.LessOrEqual(t, len(body), limit)
	_, held, waiting := tab.Counts()
	require.Zero(t, waiting, "all are let in")
	require.Greater(t, held, 20)
}

// A table that was filled by hand, up to what stores read, is worked off: as many are granted as
// there is room for, in order, and whoever frees a row makes room for more. The padding lets the
// excess be each remainder of what a grant takes.
func TestAFullTableGrantsAsManyAsFit(t *testing.T) {
	for padding := range len(",1000001") {
		t.Run(fmt.Sprint(padding), func(t *testing.T) { workOff(t, strings.Repeat("p", padding+1)) })
	}
}

// A table that is too large without a grant is refused.
func TestATableThatIsTooLargeWithoutAGrant(t *testing.T) {
	tab := New()
	m := tab.Join(member(1))
	for n := uint64(0); n%1000 != 1 || len(tab.Encode()) <= leasehold.MaxObjectSize; n++ {
		require.NoError(t, tab.Ask(ID{m, n}, []Claim{{Name: "s"}}))
	}
	body, over, err := tab.Seal("n", 0, leasehold.MaxObjectSize)
	require.ErrorIs(t, err, ErrFull)
	require.Greater(t, over, len(body)-leasehold.MaxObjectSize)
}

func workOff(t *testing.T, padding string) {
	t.Helper()
	tab := New()
	m, other := tab.Join(member(1)), tab.Join(member(2))
	require.NoError(t, tab.Ask(ID{other, 0}, []Claim{{Name: padding}}))
	require.NoError(t, tab.Ask(ID{m, 0}, []Claim{{Name: "s"}}))
	tab.Finish("n", 1_000_000)
	for n := uint64(1); n%1000 != 0 || len(tab.Encode()) < leasehold.MaxObjectSize-30_000; n++ {
		require.NoError(t, tab.Ask(ID{m, n}, []Claim{{Name: "s", Shared: true}}))
	}
	tab.Drop(ID{m, 0})
	last := uint64(0)
	for writes := 1; ; writes++ {
		body, _, _ := tab.Seal("n", 0, leasehold.MaxObjectSize)
		require.LessOrEqual(t, len(body), leasehold.MaxObjectSize)
		require.False(t, tab.Unfinished(len(body)), "another write would not help")
		_, held, waiting := tab.Counts()
		if waiting == 0 {
			require.Greater(t, writes, 1)
			return
		}
		require.Greater(t, held, 1)
		again, err := Decode(body)
		require.NoError(t, err)
		require.Equal(t, index(again), index(tab), "what was taken back waits in its place")
		for _, r := range tab.Requests(m)[:held-1] {
			require.Greater(t, r.Number, last, "in order")
			last = r.Number
			tab.Drop(r.ID)
		}
		require.True(t, tab.Unfinished(len(tab.Encode())), "now it would")
	}
}

// The capacity of a semaphore changes while it is used. Each counts by its own, nobody is passed by
// one with a larger number, and a smaller one is in force for all who come behind it.
func TestASemaphoreGrowsAndShrinks(t *testing.T) {
	type ask struct{ slots, of int }
	for name, c := range map[string]struct {
		asks []ask
		held []int // of the asks, by index
	}{
		"grows":                            {[]ask{{1, 2}, {1, 2}, {1, 3}}, []int{0, 1, 2}},
		"the old number is full":           {[]ask{{1, 2}, {1, 2}, {1, 2}, {1, 3}}, []int{0, 1}},
		"nobody passes the old one":        {[]ask{{2, 2}, {1, 2}, {1, 8}, {1, 8}}, []int{0}},
		"shrinks":                          {[]ask{{1, 8}, {1, 8}, {1, 8}, {1, 2}, {1, 8}}, []int{0, 1, 2}},
		"old and new beside each other":    {[]ask{{1, 3}, {1, 2}, {1, 3}, {1, 3}}, []int{0, 1, 2}},
		"a small one of many gets through": {[]ask{{1, 8}, {1, 2}}, []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			tab := New()
			m := tab.Join(member(1))
			for i, a := range c.asks {
				require.NoError(t, tab.Ask(ID{m, uint64(i)}, []Claim{{Name: "gpu", Slots: a.slots, Of: a.of}}))
			}
			tab.Finish("n", 0)
			var held []int
			for r := range tab.Held() {
				held = append(held, int(r.Number))
			}
			require.Equal(t, c.held, held)
			for r := range tab.Held() {
				require.Equal(t, len(held) < len(c.asks), tab.Wanted(r.ID))
			}
			again, err := Decode(tab.Encode())
			require.NoError(t, err)
			require.Equal(t, tab.Encode(), again.Encode())
		})
	}
}

// Of a long line, a member sees who holds, and who stands in front of its own first request.
func TestAheadOf(t *testing.T) {
	tab := New()
	for n := range uint64(5) {
		m := tab.Join(member(int(n) + 1))
		require.NoError(t, tab.Ask(ID{m, 1}, []Claim{{Name: "x"}}))
	}
	require.NoError(t, tab.Ask(ID{3, 2}, []Claim{{Name: "x"}}))
	tab.Finish("n", 0)
	require.Equal(t, []Ahead{{Holders: []uint64{1}, Front: []uint64{3, 2}}}, tab.AheadOf(4))
	require.Equal(t, []Ahead{{Holders: []uint64{1}, Front: []uint64{2}}}, tab.AheadOf(3))
	require.Empty(t, tab.AheadOf(1))
	these := func(members ...uint64) func(uint64) bool {
		return func(n uint64) bool {
			for _, m := range members {
				if m == n {
					return true
				}
			}
			return false
		}
	}
	x := []Claim{{Name: "x"}}
	require.Equal(t, []uint64{1, 2, 3, 4, 5}, tab.Behind(ID{5, 9}, x, these(1, 2, 3, 4, 5)), "the last in line")
	require.Empty(t, tab.Behind(ID{5, 9}, []Claim{{Name: "y"}}, these(1, 2, 3, 4, 5)))
	require.Equal(t, []uint64{1, 2}, tab.Behind(ID{3, 1}, x, these(1, 2, 3, 4, 5)))
	require.Equal(t, []uint64{2}, tab.Behind(ID{3, 1}, x, these(2, 3)))
	require.Empty(t, tab.Behind(ID{3, 1}, x, these(3, 4, 5)))
	require.Equal(t, []uint64{1}, tab.InTheWay(ID{2, 1}))
}

// Who keeps a claim out is who uses the name as another kind, and nobody else.
func TestUsersOfAnotherKind(t *testing.T) {
	tab := New()
	one, two := tab.Join(member(1)), tab.Join(member(2))
	require.NoError(t, tab.Ask(ID{one, 1}, []Claim{{Name: "gpu", Slots: 1, Of: 2}}))
	require.NoError(t, tab.Ask(ID{two, 1}, []Claim{{Name: "x"}}))
	require.Equal(t, []uint64{one}, tab.Users([]Claim{{Name: "gpu"}, {Name: "x"}}))
	require.Empty(t, tab.Users([]Claim{{Name: "gpu", Slots: 1, Of: 3}, {Name: "x"}, {Name: "unused"}}))
}
