package locktable_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/locktable"
)

// A member whose term is broken loses its leases. Another gets its locks once they cannot be valid
// any more, also those of a member that does not see the break.
func TestBreak(t *testing.T) {
	for name, cut := range map[string]bool{"the member sees it": false, "the member is cut off": true} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newCounting()
			cable := newCable(store)
			a, b := start(t, cable), start(t, store)
			seenToDelete(t, store, b)
			own := key + ".members/" + a.MemberName()
			lease := acquire(t, a.Lock("x"))
			got := make(chan bool, 1)
			go func() {
				acquire(t, b.Lock("x"))
				got <- lease.Valid() || lease.Context().Err() == nil
			}()
			within(t, ttl, "b stands in line", func() bool { return len(inspect(t, b).Waiting) == 1 })
			m := entry(t, b, a)
			require.ErrorIs(t, b.Break(t.Context(), m.Name, m.Token+1), leasehold.ErrPreconditionFailed)
			require.ErrorIs(t, b.Break(t.Context(), "nobody", 1), leasehold.ErrNotExist)
			require.ErrorContains(t, b.Break(t.Context(), m.Name, leasehold.MaxToken+1), "2^53-1")
			time.Sleep(ttl)
			require.True(t, lease.Valid())
			cable.cut(cut)
			began := time.Now()
			require.NoError(t, b.Break(t.Context(), m.Name, m.Token))
			require.NoError(t, b.Break(t.Context(), m.Name, m.Token)) // it is over
			if !cut {
				within(t, ttl/2, "the lease is lost", func() bool { return lease.Context().Err() != nil })
			}
			within(t, 2*ttl, "b holds it", func() bool { return len(got) == 1 })
			require.False(t, <-got, "both held it")
			require.Less(t, time.Since(began), ttl*3/2)
			if cut {
				within(t, ttl, "its object is gone", func() bool { return store.countOf("delete", own) > 0 })
				_, err := store.Store.Get(t.Context(), own)
				require.ErrorIs(t, err, leasehold.ErrNotExist)
				cable.cut(false)
			}
			acquire(t, a.Lock("y")) // it has healed
			require.Greater(t, inspect(t, b).Revision, m.Token)
			require.NoError(t, a.Check(nil))
			require.NoError(t, b.Check(nil))
		})
	}
}

// seenToDelete has a member find that the store heeds the condition of a DELETE. Before, it removes
// no object that it has not taken itself.
func seenToDelete(t *testing.T, store *counting, m *member) {
	t.Helper()
	cable := newCable(store)
	other := start(t, cable)
	acquire(t, other.Lock("other"))
	cable.cut(true)
	require.NoError(t, acquire(t, m.Lock("other")).Release(t.Context()))
	own := key + ".members/" + other.MemberName()
	within(t, ttl, "its object is removed", func() bool {
		_, err := store.Store.Get(t.Context(), own)
		return errors.Is(err, leasehold.ErrNotExist)
	})
	other.fails = true // it may, because it ends while it is cut off
	_ = other.stop()
}

// entry is what the table that m sees says of another member.
func entry(t *testing.T, m, of *member) locktable.Member {
	t.Helper()
	members := inspect(t, m).Members
	i := slices.IndexFunc(members, func(other locktable.Member) bool { return other.Name == of.MemberName() })
	require.GreaterOrEqual(t, i, 0)
	return members[i]
}

// A break whose reply is lost has broken the term, and no later one. One that is outrun says so.
func TestBreakWithTroubles(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		own := key + ".members/" + a.MemberName()
		lease := acquire(t, a.Lock("x"))
		m := entry(t, b, a)
		store.set(onKey("put", own, leasehold.ErrPreconditionFailed), nil)
		require.ErrorContains(t, b.Break(t.Context(), m.Name, m.Token), "try again")
		store.set(nil, nil)
		time.Sleep(ttl)
		require.True(t, lease.Valid())
		var once atomic.Bool
		store.set(nil, func(op, of string) error {
			if op == "put" && of == own && !once.Swap(true) {
				return errLost
			}
			return nil
		})
		require.NoError(t, b.Break(t.Context(), m.Name, m.Token))
		require.True(t, once.Load())
		within(t, ttl/2, "the lease is lost", func() bool { return lease.Context().Err() != nil })
		next := acquire(t, a.Lock("y"))
		require.ErrorIs(t, b.Break(t.Context(), m.Name, m.Token), leasehold.ErrPreconditionFailed)
		time.Sleep(ttl)
		require.True(t, next.Valid())
	})
}

// A member's object that is damaged blocks those who wait for what it holds until it is broken.
func TestBreakOfADamagedMember(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		a.fails = true // its Run, because nothing but a person can repair its object
		own := key + ".members/" + a.MemberName()
		lease := acquire(t, a.Lock("x"))
		obj, err := store.Get(t.Context(), own)
		require.NoError(t, err)
		_, err = store.PutIfMatch(t.Context(), own, []byte("{"), obj.ETag)
		require.NoError(t, err)
		got := make(chan bool, 1)
		go func() {
			acquire(t, b.Lock("x"))
			got <- lease.Valid() || lease.Context().Err() == nil
		}()
		within(t, 10*ttl, "Check says so", func() bool { return b.Check(nil) != nil })
		require.ErrorIs(t, b.Check(nil), leasehold.ErrCorruptRecord)
		require.ErrorContains(t, b.Check(nil), "repair it with Table.Break of package locktable")
		require.Empty(t, got)
		require.NoError(t, b.Break(t.Context(), a.MemberName(), 7))
		within(t, 2*ttl, "b holds it", func() bool { return len(got) == 1 })
		require.False(t, <-got, "both held it")
		require.NoError(t, b.Check(nil))
	})
}
