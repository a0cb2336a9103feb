package fenced_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/fencedtest"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/locktable"
)

// TestTokensOfATable moves a lock of a table between two processes: by a crash, and by a graceful
// end. Another lock takes revisions in between, so the tokens have gaps.
func TestTokensOfATable(t *testing.T) {
	onBoth(t, func(t *testing.T, f *s3Store) {
		mem := leasehold.NewMemStore()
		process := func(store leasehold.Store, name string) (table *locktable.Table, end func()) {
			table, err := locktable.New(store, "table", locktable.WithMemberName(name),
				locktable.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			over := make(chan struct{})
			go func() {
				defer close(over)
				assert.NoError(t, table.Run(ctx))
			}()
			end = func() {
				cancel()
				<-over
			}
			t.Cleanup(end)
			return table, end
		}
		lead := func(table *locktable.Table) *locktable.Lease {
			require.NoError(t, table.Lock("other").Do(t.Context(), func(context.Context, *locktable.Lease) error {
				return nil
			}))
			lease, err := table.Lock("leader").Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, f.Seal(lease.Context(), lease.Token(), object))
			return lease
		}
		put := func(ctx context.Context, lease *locktable.Lease, body string) error {
			return f.Put(ctx, lease.Token(), object, strings.NewReader(body))
		}
		connection := teststore.Known(mem, nil) // nothing needs to try the store
		a, _ := process(connection, "a")
		b, endB := process(mem, "b")
		first := lead(a)
		require.NoError(t, put(first.Context(), first, "of a"))

		connection.Fail(errors.New("cut off"))
		second := lead(b)
		require.Greater(t, second.Token(), first.Token())
		require.ErrorIs(t, put(first.Context(), first, "late"), context.Canceled,
			"the lease has ended with its member's term")
		require.ErrorIs(t, put(t.Context(), first, "late"), leasehold.ErrFenced)
		require.NoError(t, put(second.Context(), second, "of b"))

		connection.Fail(nil)
		time.Sleep(time.Minute) // a has a new term
		endB()
		third := lead(a)
		require.Greater(t, third.Token(), second.Token())
		require.ErrorIs(t, put(t.Context(), second, "late"), leasehold.ErrFenced)
		body, _ := fencedtest.Read(t, f.Store, object)
		require.Equal(t, "of b", body)
		require.NoError(t, third.Release(t.Context()))
	})
}
