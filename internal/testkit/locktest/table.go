package locktest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/locktable"
)

// Table has two members share a table of locks, and nothing be left of them. The first one leaves
// while the second waits for what it holds. The store must honour the condition of a DELETE.
func Table(t *testing.T, store leasehold.Store) {
	join := func(member string) (tab *locktable.Table, leave func()) {
		tab, err := locktable.New(store, "tables/a", locktable.WithMemberName(member),
			locktable.WithPollInterval(300*time.Millisecond), locktable.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- tab.Run(ctx) }()
		return tab, func() {
			cancel()
			assert.NoError(t, <-ended)
		}
	}
	a, leaveA := join("a")
	b, leaveB := join("b")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, err := a.All(a.Lock("x"), a.Semaphore("gpu", 2).Slots(2)).Acquire(ctx)
	require.NoError(t, err)
	got := make(chan *locktable.Lease, 1)
	go func() {
		lease, err := b.All(b.Shared("x"), b.Semaphore("gpu", 2)).Acquire(ctx)
		assert.NoError(t, err)
		got <- lease
	}()
	require.Eventually(t, func() bool {
		s, err := a.Inspect(ctx)
		return err == nil && len(s.Waiting) == 1
	}, time.Minute, 10*time.Millisecond)
	leaveA()
	second := <-got
	require.NotNil(t, second)
	require.False(t, first.Valid())
	require.Greater(t, second.Token(), first.Token())
	leaveB()
	s, err := b.Inspect(ctx)
	require.NoError(t, err)
	require.Empty(t, s.Members)
	for _, member := range []string{"a", "b"} {
		_, err := store.Get(ctx, "tables/a.members/"+member)
		require.ErrorIs(t, err, leasehold.ErrNotExist)
	}
}
