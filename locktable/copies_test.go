package locktable

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// copies are two processes that act under one term of one member, as a machine and a copy of it do
// until the next renewal.
func copies(t *testing.T, store leasehold.Store) (a, b *Table, lease *leasehold.Lease, endA, end func()) {
	t.Helper()
	lock, err := leasehold.NewLock(store, "t.members/m", leasehold.WithTTL(15*time.Second))
	require.NoError(t, err)
	lease, err = lock.TryAcquire(t.Context())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	first, stopFirst := context.WithCancel(ctx)
	var serving sync.WaitGroup
	released := make(chan struct{})
	run := func(ctx context.Context) *Table {
		tab, err := New(store, "t", WithMemberName("m"), WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		tab.running, tab.runs, tab.stop = true, ctx, stop
		serving.Go(func() { tab.serve(ctx, lease, membership.TermOf(lock.Key(), lease.Record())) })
		return tab
	}
	a, b = run(first), run(ctx)
	go func() {
		_ = lease.Do(ctx, func(context.Context, *leasehold.Lease) error {
			serving.Wait()
			return nil
		})
		close(released)
	}()
	return a, b, lease, stopFirst, func() {
		stop()
		<-released
	}
}

func readTable(t *testing.T, store leasehold.Store) *tables.Table {
	t.Helper()
	obj, err := store.Get(t.Context(), "t")
	require.NoError(t, err)
	tab, err := tables.Decode(obj.Body)
	require.NoError(t, err)
	return tab
}

// Neither of two copies takes a grant of the other for its own, and neither frees what the other
// holds.
func TestTwoCopiesOfAMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		a, b, lease, endA, end := copies(t, store)
		first, err := a.Lock("x").Acquire(t.Context())
		require.NoError(t, err)
		got := make(chan *Lease)
		go func() {
			second, err := b.Lock("x").Acquire(t.Context())
			require.NoError(t, err)
			got <- second
		}()
		mine, err := b.Lock("y").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		require.True(t, first.Valid())
		require.True(t, mine.Valid())
		_, held, waiting := readTable(t, store).Counts()
		require.Equal(t, []int{2, 1}, []int{held, waiting})
		require.NoError(t, first.Release(t.Context()))
		second := <-got
		require.Greater(t, second.Token(), first.Token())
		require.NoError(t, second.Release(t.Context()))
		endA()
		time.Sleep(time.Second)
		require.False(t, lease.Valid())
		_, held, _ = readTable(t, store).Counts()
		require.Equal(t, 1, held, "one that ends leaves what is the other's, and the term is not released")
		runtime.KeepAlive(mine)
		end()
		rec, err := leasehold.NewLock(store, "t.members/m")
		require.NoError(t, err)
		is, err := rec.Inspect(t.Context())
		require.NoError(t, err)
		require.False(t, is.Released())
	})
}

// What a copy has left behind goes after two TTLs, because its lease has run out by then, also if
// the first write fails, and if the row comes with an older version of the table.
func TestRowsOfACopyThatIsGone(t *testing.T) {
	for name, restored := range map[string]bool{"written": false, "restored": true} {
		bubble.Run(t, name, func(t *testing.T) { testRowsOfACopyThatIsGone(t, restored) })
	}
}

func testRowsOfACopyThatIsGone(t *testing.T, restored bool) {
	var fails atomic.Bool // the next write of the table
	store := teststore.Known(leasehold.NewMemStore(),
		func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Op == teststore.Update && r.Key == "t" && fails.Swap(false) {
				return leasehold.Object{}, errors.New("later")
			}
			return r.Send(ctx)
		})
	a, _, lease, _, end := copies(t, store)
	defer end()
	_, err := a.Lock("warm").Acquire(t.Context())
	require.NoError(t, err)
	tab := readTable(t, store)
	if restored {
		for range 3 {
			later, err := a.Lock("warm too").Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, later.Release(t.Context()))
		}
	}
	obj, err := store.Get(t.Context(), "t")
	require.NoError(t, err)
	n, ok := tab.Find(membership.TermOf("t.members/m", lease.Record()))
	require.True(t, ok)
	require.NoError(t, tab.Ask(tables.ID{Member: n, Number: 1 << 40}, []tables.Claim{{Name: "x"}}))
	tab.Finish("the copy's", 0)
	require.Equal(t, restored, tab.Revision < readTable(t, store).Revision)
	_, err = store.PutIfMatch(t.Context(), "t", tab.Encode(), obj.ETag)
	require.NoError(t, err)
	asked := time.Now()
	time.AfterFunc(10*time.Second, func() { fails.Store(true) })
	next, err := a.Lock("x").Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, next.Valid())
	require.Greater(t, time.Since(asked), 2*15*time.Second)
	require.Less(t, time.Since(asked), 3*15*time.Second)
}

// A row of this member with a number that this process has drawn is not its own if the claims
// differ.
func TestACopyDrawsTheSameNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		a, _, lease, _, end := copies(t, store)
		defer end()
		held, err := a.Lock("x").Acquire(t.Context())
		require.NoError(t, err)
		waits := make(chan *Lease)
		go func() {
			l, err := a.Lock("x").Acquire(t.Context())
			require.NoError(t, err)
			waits <- l
		}()
		time.Sleep(time.Second)
		tab := readTable(t, store)
		n, _ := tab.Find(membership.TermOf("t.members/m", lease.Record()))
		var number uint64
		for r := range tab.Waiting() {
			number = r.Number
		}
		obj, err := store.Get(t.Context(), "t")
		require.NoError(t, err)
		tab.Drop(tables.ID{Member: n, Number: number})
		require.NoError(t, tab.Ask(tables.ID{Member: n, Number: number}, []tables.Claim{{Name: "other"}}))
		tab.Finish("the copy's", 0)
		_, err = store.PutIfMatch(t.Context(), "t", tab.Encode(), obj.ETag)
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		require.True(t, held.Valid())
		require.NoError(t, held.Release(t.Context()))
		l := <-waits
		require.NoError(t, l.Release(t.Context()))
		a.mu.Lock() // one with this number was given back, and its write has not landed
		a.requests[number] = &request{
			t: a, state: freeing, sent: true, number: number, claims: []tables.Claim{{Name: "x"}},
		}
		a.mu.Unlock()
		a.ring()
		time.Sleep(time.Second)
		r, ok := readTable(t, store).Request(tables.ID{Member: n, Number: number})
		require.True(t, ok)
		require.Equal(t, "other", r.Claims[0].Name)
	})
}

// A member is not handed over while a copy acts under its term: the next process would take what
// the copy holds for its own, or drop it.
func TestDetachBesideACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, lease, _, end := copies(t, leasehold.NewMemStore())
		defer end()
		mine, err := a.Lock("x").Acquire(t.Context())
		require.NoError(t, err)
		theirs, err := b.Lock("y").Acquire(t.Context())
		require.NoError(t, err)
		other, err := a.Lock("z").Acquire(t.Context()) // and so a has read the table
		require.NoError(t, err)
		_, err = a.Detach(t.Context())
		require.ErrorIs(t, err, ErrNotDetachable)
		require.ErrorContains(t, err, "a copy of its machine runs, or an older version of the table was restored")
		require.True(t, lease.Valid())
		for _, l := range []*Lease{mine, theirs, other} {
			require.True(t, l.Valid())
		}
	})
}
