package locktable_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/locktable"
)

// Whatever is asked for at one moment, or freed at one moment, is one write or two, also where
// nothing is gathered while a write is under way, because the store answers at once. This is about
// the scheduler, so its time is real. Where other processes take the processors, some bursts are
// torn, so a third of them must do. The locks are so few that gather's patience lasts for them on a
// slow machine, too.
func TestWhatIsWantedAtOneMomentIsWrittenTogether(t *testing.T) {
	const locks, bursts = 2_000, 9
	store := newCounting()
	store.instant = true
	a := start(t, store)
	require.NoError(t, acquire(t, a.Lock("joined")).Release(t.Context()))
	writes := make(map[string][]int)
	burst := func(what string, do func(i int)) {
		store.forget()
		var all, ready sync.WaitGroup
		begin := make(chan struct{})
		ready.Add(locks)
		for i := range locks {
			all.Go(func() {
				ready.Done()
				<-begin
				do(i)
			})
		}
		ready.Wait()
		close(begin)
		all.Wait()
		writes[what] = append(writes[what], store.count("put"))
		require.LessOrEqual(t, store.count("get"), 2, what)
	}
	leases, names := make([]*locktable.Lease, locks), make([]string, locks)
	for i := range names {
		names[i] = fmt.Sprint("x", i)
	}
	for range bursts {
		burst("asked", func(i int) {
			var err error
			leases[i], err = a.Lock(names[i]).Acquire(t.Context())
			assert.NoError(t, err)
		})
		burst("freed", func(i int) { assert.NoError(t, leases[i].Release(t.Context())) })
	}
	t.Log(writes)
	for what, list := range writes {
		slices.Sort(list)
		require.LessOrEqual(t, list[bursts/3], 2, "%s: %v", what, list)
	}
}
