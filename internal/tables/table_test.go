package tables

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/stretchr/testify/require"
)

var (
	x       = Claim{Name: "x"}
	y       = Claim{Name: "y"}
	sharedX = Claim{Name: "x", Shared: true}
)

func slots(n, of int) Claim { return Claim{Name: "gpu", Slots: n, Of: of} }

// write asks for one lock after the other, all in one write.
func write(t *testing.T, tab *Table, m, number uint64, claims ...Claim) ID {
	t.Helper()
	id := ID{Member: m, Number: number}
	require.NoError(t, tab.Ask(id, claims))
	tab.Finish("n", 0)
	return id
}

func holds(tab *Table, id ID) bool {
	r, ok := tab.Request(id)
	return ok && r.Token != 0
}

func TestWhoFreesALockHandsItOver(t *testing.T) {
	tab := New()
	alice, bob := tab.Join(member(1)), tab.Join(member(2))
	held := write(t, tab, alice, 1, x)
	waits := write(t, tab, bob, 1, x)
	require.True(t, holds(tab, held))
	require.False(t, holds(tab, waits))
	require.Equal(t, []uint64{alice}, tab.InTheWay(waits))
	require.True(t, tab.Wanted(held))

	require.True(t, tab.Drop(held))
	tab.Finish("n", 0)
	r, _ := tab.Request(waits)
	require.Equal(t, uint64(3), r.Token)
	require.False(t, tab.Wanted(waits))
	require.Nil(t, tab.InTheWay(waits))
}

func TestAWriterBehindReadersDoesNotStarve(t *testing.T) {
	tab := New()
	m := tab.Join(member(1))
	first := write(t, tab, m, 1, sharedX)
	second := write(t, tab, m, 2, sharedX)
	writer := write(t, tab, m, 3, x)
	late := write(t, tab, m, 4, sharedX)
	require.True(t, holds(tab, first) && holds(tab, second))
	require.False(t, holds(tab, writer) || holds(tab, late))
	require.Equal(t, []uint64{m}, tab.InTheWay(late), "its own requests count like any others")

	tab.Drop(first)
	tab.Finish("n", 0)
	require.False(t, holds(tab, writer))
	tab.Drop(second)
	tab.Finish("n", 0)
	require.True(t, holds(tab, writer))
	require.False(t, holds(tab, late))
}

func TestAClaimForManySlotsDoesNotStarve(t *testing.T) {
	tab := New()
	m := tab.Join(member(1))
	first := write(t, tab, m, 1, slots(2, 3))
	wide := write(t, tab, m, 2, slots(2, 3))
	narrow := write(t, tab, m, 3, slots(1, 3))
	require.False(t, holds(tab, wide) || holds(tab, narrow), "one slot is free, but the next in line needs it")
	tab.Drop(first)
	tab.Finish("n", 0)
	require.True(t, holds(tab, wide) && holds(tab, narrow))
}

func TestARequestForSeveralLocksDoesNotStarve(t *testing.T) {
	tab := New()
	alice, bob, carol := tab.Join(member(1)), tab.Join(member(2)), tab.Join(member(3))
	held := write(t, tab, alice, 1, x)
	both := write(t, tab, bob, 1, y, x)
	late := write(t, tab, carol, 1, y)
	require.False(t, holds(tab, both) || holds(tab, late))
	require.Equal(t, []uint64{alice}, tab.InTheWay(both))
	require.Equal(t, []uint64{bob}, tab.InTheWay(late), "nobody holds y, but bob is in front")

	require.True(t, tab.Leave(alice))
	tab.Finish("n", 0)
	require.True(t, holds(tab, both))
	require.False(t, tab.Drop(held))
	require.Equal(t, []Claim{x, y}, tab.Requests(bob)[0].Claims)
}

func TestMembers(t *testing.T) {
	tab := New()
	require.Equal(t, uint64(1), tab.Join(member(1)))
	require.Equal(t, uint64(2), tab.Join(member(2)))
	require.Equal(t, uint64(1), tab.Join(member(1)), "a term is in the table once")
	tab.Leave(1)
	require.Equal(t, uint64(3), tab.Join(member(1)), "above all numbers, not in a gap")
	for _, change := range []func(*Term){
		func(t *Term) {
			t.Key += "x"
		}, func(t *Term) { t.ObjectID += "x" }, func(t *Term) { t.TermID += "x" }, func(t *Term) { t.Token++ },
	} {
		other := member(1).Term
		change(&other)
		_, ok := tab.Find(other)
		require.False(t, ok)
	}
	var numbers []uint64
	for n := range tab.Members() {
		numbers = append(numbers, n)
	}
	require.Equal(t, []uint64{2, 3}, numbers)
	require.False(t, tab.Leave(1))
	_, ok := tab.Member(1)
	require.False(t, ok)
	_, ok = tab.Request(ID{Member: 1})
	require.False(t, ok)
}

// A member whose number an edit by hand has made the highest of all does not keep others out.
func TestAMemberAfterTheHighestNumber(t *testing.T) {
	tab := New()
	for i, n := range []uint64{1, 2, leasehold.MaxToken} {
		tab.members[n] = member(i)
	}
	require.Equal(t, uint64(3), tab.Join(member(7)))
	_, err := Decode(tab.Encode())
	require.NoError(t, err)
}

func TestTheRevisionRises(t *testing.T) {
	tab := New()
	tab.Finish("a", 0)
	require.Equal(t, uint64(1), tab.Revision)
	tab.Finish("b", 7)
	require.Equal(t, uint64(8), tab.Revision)
	tab.Finish("c", 3)
	require.Equal(t, uint64(9), tab.Revision)
	require.Equal(t, "c", tab.Nonce)
}

func TestRefusedRequests(t *testing.T) {
	tab := New()
	m := tab.Join(member(1))
	write(t, tab, m, 1, x, slots(1, 8))
	write(t, tab, m, 2, x, Claim{Name: "waits", Slots: 1, Of: 2})
	before := string(tab.Encode())
	for _, c := range []struct {
		id     ID
		claims []Claim
		is     error
		want   string
	}{
		{ID{Member: 9, Number: 3}, []Claim{y}, ErrNoMember, "no such member in the table: 9"},
		{ID{Member: m, Number: 1}, []Claim{y}, ErrKnown, "Number:1"},
		{ID{Member: m, Number: 2}, []Claim{y}, ErrKnown, "already"},
		{ID{Member: m, Number: 3}, []Claim{{Name: "gpu"}}, ErrCapacity, `"gpu" is used as a semaphore now`},
		{ID{Member: m, Number: 3}, []Claim{{Name: "gpu", Shared: true}}, ErrCapacity, "is claimed as a lock"},
		{ID{Member: m, Number: 3}, []Claim{{Name: "waits"}}, ErrCapacity, `"waits" is used as a semaphore now`},
		{
			ID{Member: m, Number: 3},
			[]Claim{{Name: "x", Slots: 1, Of: 1}},
			ErrCapacity,
			`"x" is used as a lock now, and is claimed as a semaphore`,
		},
		{ID{Member: m, Number: 3}, nil, nil, "without a claim"},
		{ID{Member: m, Number: 3}, []Claim{slots(1, -8)}, nil, "the capacity -8 is not between"},
		{ID{Member: m, Number: leasehold.MaxToken + 1}, []Claim{y}, nil, "2^53-1"},
	} {
		err := tab.Ask(c.id, c.claims)
		require.ErrorContains(t, err, c.want)
		if c.is != nil {
			require.ErrorIs(t, err, c.is)
		}
		require.Equal(t, before, string(tab.Encode()))
	}

	tab.Leave(m)
	m = tab.Join(member(2))
	require.NoError(t, tab.Ask(ID{Member: m}, []Claim{{Name: "gpu"}}), "it is a semaphore while somebody claims it")
}

func TestCheckClaims(t *testing.T) {
	for _, c := range []struct {
		want   string
		claims []Claim
	}{
		{"without a claim", nil},
		{"the name is empty", []Claim{x, {}}},
		{"not valid UTF-8", []Claim{{Name: "a\xff"}}},
		{"control character", []Claim{{Name: "a\nb"}}},
		{"control character", []Claim{{Name: "a\u0085"}}},
		{"513 bytes exceeds the limit of 512", []Claim{{Name: strings.Repeat("é", 256) + "x"}}},
		{`"x": it is claimed twice`, []Claim{x, y, sharedX}},
		{"both shared and in slots", []Claim{{Name: "a", Shared: true, Slots: 1, Of: 2}}},
		{"both shared and in slots", []Claim{{Name: "a", Shared: true, Of: 2}}},
		{"both shared and in slots", []Claim{{Name: "a", Shared: true, Slots: 1}}},
		{"the capacity 0 is not between 1 and 1000000", []Claim{{Name: "a", Slots: 1}}},
		{"the capacity -1 is not between", []Claim{{Name: "a", Of: -1}}},
		{"the capacity 1000001 is not between", []Claim{slots(1, 1_000_001)}},
		{"0 slots are not between 1 and the capacity 8", []Claim{slots(0, 8)}},
		{"-1 slots are not between", []Claim{slots(-1, 8)}},
		{"9 slots are not between 1 and the capacity 8", []Claim{slots(9, 8)}},
	} {
		require.ErrorContains(t, CheckClaims(c.claims), c.want)
	}
	unsorted := []Claim{y, x, slots(8, 8), {Name: strings.Repeat("é", 256), Shared: true}, slots2("big", 1_000_000)}
	require.NoError(t, CheckClaims(unsorted))
	require.Equal(t, y, unsorted[0], "the caller's claims stay as they are")
}

func slots2(name string, of int) Claim { return Claim{Name: name, Slots: of, Of: of} }

func TestAClonesChangesAreItsOwn(t *testing.T) {
	metadata := map[string]string{"a": "b"}
	claims := []Claim{y, x}
	tab := New()
	m := tab.Join(Member{Term: member(1).Term, TTL: time.Second, Metadata: metadata})
	held := write(t, tab, m, 1, claims...)
	waits := write(t, tab, m, 2, x)
	before := string(tab.Encode())
	metadata["a"], claims[0].Name = "c", "z"
	require.Equal(t, before, string(tab.Encode()), "neither do the caller's show")

	clone := tab.Clone()
	require.Equal(t, before, string(clone.Encode()))
	clone.Drop(held)
	clone.Finish("clone", 0)
	clone.Join(member(3))
	require.True(t, holds(clone, waits))
	require.False(t, holds(tab, waits))
	require.Equal(t, before, string(tab.Encode()))
	after := string(clone.Encode())
	tab.Leave(m)
	require.Equal(t, after, string(clone.Encode()))
}

func TestLoopsMayEndEarlyAndChangeTheTable(t *testing.T) {
	tab := New()
	m := tab.Join(member(1))
	tab.Join(member(2))
	for i := range uint64(4) {
		write(t, tab, m, i, x)
	}
	for range tab.Members() {
		break
	}
	for range tab.Held() {
		break
	}
	for range tab.Waiting() {
		break
	}
	for r := range tab.Waiting() {
		tab.Drop(r.ID)
		require.NoError(t, tab.Ask(ID{Member: m, Number: r.Number + 10}, []Claim{x}))
	}
	var numbers []uint64
	for r := range tab.Waiting() {
		numbers = append(numbers, r.Number)
	}
	require.Equal(t, []uint64{11, 12, 13}, numbers)
}

// TestLargeTablesTakeLinearTime fails only where the time grows with the square: that would be
// minutes.
func TestLargeTablesTakeLinearTime(t *testing.T) {
	const n = 20_000
	start := time.Now()
	tab := big(t, n)
	other := tab.Join(member(1))
	for i := range uint64(n) {
		require.NoError(t, tab.Ask(ID{Member: other, Number: i}, []Claim{{Name: fmt.Sprintf("tenant-%05d", i)}}))
	}
	tab.Finish("n", 0)
	for i := range uint64(n) {
		require.True(t, tab.Wanted(ID{Member: 1, Number: i}))
		require.Equal(t, []uint64{1}, tab.InTheWay(ID{Member: other, Number: i}))
	}
	tab.Leave(1)
	tab.Finish("n", 0)
	require.Len(t, tab.Requests(other), n)
	for i := range uint64(n) {
		require.False(t, tab.Wanted(ID{Member: other, Number: i}))
		require.True(t, tab.Drop(ID{Member: other, Number: i}))
	}
	require.Empty(t, tab.locks)
	require.Less(t, time.Since(start), 30*time.Second)
}

func BenchmarkAskAndFinish(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		big(b, 10_000)
	}
}

func BenchmarkClone(b *testing.B) {
	tab := big(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		tab.Clone()
	}
}

// BenchmarkHandOver is a write in which all locks change hands.
func BenchmarkHandOver(b *testing.B) {
	tab := big(b, 10_000)
	for i := range uint64(10_000) {
		require.NoError(b, tab.Ask(ID{Member: tab.Join(member(1)), Number: i},
			[]Claim{{Name: fmt.Sprintf("tenant-%05d", i)}}))
	}
	tab.Finish("n", 0)
	b.ReportAllocs()
	for b.Loop() {
		next := tab.Clone()
		next.Leave(1)
		next.Finish("n", 0)
	}
}
