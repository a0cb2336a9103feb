package locktable_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/locktable"
)

// Tables of one process need no poll for what one of them frees.
func TestTablesOfOneProcessWakeEachOther(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b, c := start(t, store), start(t, store), start(t, store)
		lease := acquire(t, a.Lock("x"))
		var order []string
		var all sync.WaitGroup
		for name, m := range map[string]*member{"b": b, "c": c} {
			all.Go(func() {
				_ = m.Lock("x").Do(t.Context(), func(context.Context, *locktable.Lease) error {
					order = append(order, name)
					return nil
				})
			})
		}
		time.Sleep(2 * ttl)
		began := time.Now()
		require.NoError(t, lease.Release(t.Context()))
		all.Wait()
		require.Len(t, order, 2)
		require.Less(t, time.Since(began), time.Second, "two hand-overs, and polls come every 3 s")
	})
}
