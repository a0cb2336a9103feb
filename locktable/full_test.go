package locktable_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/locktable"
)

// wide returns the name of a lock, with so many digits.
func wide(digits, i int) string { return fmt.Sprintf("%0*d", digits, i) }

// fill acquires locks with names of so many digits until the table has no room for another.
func fill(t *testing.T, m *member, digits int) {
	t.Helper()
	for i := 0; ; i++ {
		lease, err := m.Lock(wide(digits, i)).Acquire(soon(t))
		if err != nil {
			require.ErrorIs(t, err, locktable.ErrFull)
			return
		}
		t.Cleanup(func() { runtime.KeepAlive(lease) }) // one that nobody refers to is freed
	}
}

// A table that is full of readers behind a writer is no dead end: the writer's release, which lets
// all of them in, is not refused for its size.
func TestAFullTableIsWorkedOff(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store, locktable.WithMaxSize(8<<10)), start(t, store, locktable.WithMaxSize(8<<10))
		writer := acquire(t, a.Lock("s"))
		var all sync.WaitGroup
		var in, full atomic.Int32
		for range 600 {
			all.Go(func() {
				lease, err := b.Shared("s").Acquire(t.Context())
				if err != nil {
					require.ErrorIs(t, err, locktable.ErrFull)
					full.Add(1)
					return
				}
				in.Add(1)
				_ = lease.Release(t.Context())
			})
		}
		time.Sleep(ttl)
		require.Greater(t, full.Load(), int32(50))
		require.NoError(t, writer.Release(soon(t)))
		all.Wait()
		require.Greater(t, in.Load(), int32(200))
		acquire(t, a.Lock("s"))
	})
}

// A member that has no room to join is told so as soon as the others are known to run.
func TestATryOfAMemberThatCannotJoin(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		size := locktable.WithMaxSize(4 << 10)
		full := start(t, store, size)
		fill(t, full, 100)
		fill(t, full, 1) // what is left
		b := start(t, store, size)
		for range 6 {
			began := time.Now()
			_, err := b.Lock("x").TryAcquire(soon(t))
			require.ErrorIs(t, err, locktable.ErrFull)
			require.Less(t, time.Since(began), ttl/3)
			time.Sleep(3 * time.Second)
		}
	})
}

// A member at which a process may not look counts as running: in a full table, its request fails as
// soon as that is known.
func TestAFullTableWhoseMembersMayNotBeRead(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		full := start(t, store, locktable.WithMaxSize(4<<10))
		for i := range 5 {
			acquire(t, full.Lock(wide(500, i)))
		}
		m := start(t, private(store), locktable.WithMaxSize(4<<10))
		for range 3 {
			began := time.Now()
			_, err := m.All(m.Lock(wide(500, 5)), m.Lock(wide(500, 6)), m.Lock(wide(500, 7))).Acquire(soon(t))
			require.ErrorIs(t, err, locktable.ErrFull)
			require.Less(t, time.Since(began), ttl/3)
			time.Sleep(time.Minute)
		}
	})
}

// A request without room keeps no smaller one out that is in the same write.
func TestASmallRequestBesideALargeOne(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		m := start(t, store, locktable.WithMaxSize(4<<10))
		for i := range 5 {
			acquire(t, m.Lock(wide(500, i)))
		}
		var all sync.WaitGroup
		all.Go(func() { acquire(t, m.Lock("first")) }) // the next ones come during its write
		time.Sleep(time.Millisecond)
		all.Go(func() {
			_, err := m.All(m.Lock(wide(500, 5)), m.Lock(wide(500, 6)), m.Lock(wide(500, 7))).Acquire(soon(t))
			require.ErrorIs(t, err, locktable.ErrFull)
		})
		time.Sleep(time.Millisecond)
		for i := range 3 {
			all.Go(func() { acquire(t, m.Lock(fmt.Sprint("small-", i))) })
		}
		all.Wait()
	})
}

// A table as large as a store reads, which an edit or an older release has made of requests, is
// worked off as well.
func TestATableThatIsLargerThanItMayBe(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		writer := acquire(t, a.Lock("s"))
		var readers []*locktable.Lease
		var all sync.WaitGroup
		var mu sync.Mutex
		for range 3 {
			all.Go(func() {
				lease := acquire(t, a.Shared("s"))
				mu.Lock()
				defer mu.Unlock()
				readers = append(readers, lease)
			})
		}
		time.Sleep(ttl)
		edit(t, store, func(tab *tables.Table) {
			m := tab.Join(tables.Member{
				Term: tables.Term{Key: key + ".members/ghost", ObjectID: "o", TermID: "t", Token: 1},
				Name: "ghost", TTL: ttl,
			})
			for n := uint64(1); n%500 != 0 || len(tab.Encode()) < leasehold.MaxObjectSize-20_000; n++ {
				require.NoError(t, tab.Ask(tables.ID{Member: m, Number: n}, []tables.Claim{{Name: "s", Shared: true}}))
			}
		})
		began := time.Now()
		require.NoError(t, writer.Release(soon(t)))
		all.Wait()
		require.Len(t, readers, 3)
		require.Less(t, time.Since(began), ttl, "the ghost still fills the table")
		time.Sleep(4 * ttl) // the ghost is seen to be dead, and evicted
		acquire(t, a.Lock("another"))
		state := inspect(t, a)
		require.Len(t, state.Members, 1)
	})
}

// A dead process that has filled the table locks nobody out: a member that has no room to join
// looks at the others all the same, and removes who is dead.
func TestADeadProcessHasFilledTheTable(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		dead := start(t, cable, locktable.WithMaxSize(4<<10))
		dead.fails = true
		fill(t, dead, 40)
		fill(t, dead, 1) // no member's row fits in
		b := start(t, store, locktable.WithMaxSize(4<<10), locktable.WithPollInterval(time.Second))
		time.Sleep(2 * ttl) // its looks at the beginning of a term see a running member
		cable.cut(true)
		within(t, ttl*5/4, "it joins", func() bool {
			return slices.ContainsFunc(inspect(t, b).Members, func(m locktable.Member) bool {
				return m.Name == b.MemberName()
			})
		})
		acquire(t, b.Lock("x"))
	})
}

// A member that is refused room looks at all others for a TTL. So members that crash in that time
// make room, even if nobody asks again.
func TestARefusedRequestLooksForTheDead(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		size := locktable.WithMaxSize(4 << 10)
		m := start(t, store, size, locktable.WithPollInterval(time.Second))
		acquire(t, m.Lock("own"))
		time.Sleep(3 * ttl)
		dead := start(t, cable, size)
		dead.fails = true
		fill(t, dead, 300)
		object := key + ".members/" + dead.MemberName()
		renewals := store.countOf("put", object)
		within(t, ttl, "it renews", func() bool { return store.countOf("put", object) > renewals })
		_, err := m.Lock(strings.Repeat("z", 400)).TryAcquire(soon(t))
		require.ErrorIs(t, err, locktable.ErrFull)
		cable.cut(true)
		within(t, ttl*13/10, "it is removed", func() bool { return len(inspect(t, m).Members) == 1 })
		cable.cut(false)
		time.Sleep(4 * ttl)
	})
}
