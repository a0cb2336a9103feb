package itest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// Each client has a FileStore of its own, as if it were a process. One call in four is cut off, so
// that its outcome is unknown, until the history of a key has ten such writes: each doubles the
// work of its check, and on a busy machine most calls that are cut off would be such writes.
func TestLinearizableFileStore(t *testing.T) {
	t.Parallel()
	busy(t)
	const clients, rounds = 6, 20
	keys := testsize.Pick(6, 30)
	dir := t.TempDir()
	ops, ambiguous := 0, 0
	for key := range keys {
		h := &history{began: time.Now()}
		name := fmt.Sprint("registers/", key)
		var wg sync.WaitGroup
		var etags sync.Map // ETag by body
		var unknowns atomic.Int32
		for c := range clients {
			store := leasehold.NewFileStore(dir)
			random := rand.New(rand.NewPCG(uint64(key), uint64(c)))
			wg.Go(func() {
				seen := ""
				for round := range rounds {
					ctx, cancel := context.Background(), context.CancelFunc(func() {})
					if random.IntN(4) == 0 && unknowns.Load() < 10 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(random.Int64N(int64(2*time.Millisecond))))
					}
					body := fmt.Sprintf("%d by client %d of %s", round, c, name)
					switch etag, ok := etags.Load(seen); {
					case random.IntN(3) == 0, seen != "" && !ok:
						h.record(c, call{op: "get"}, func() (any, bool) {
							obj, err := store.Get(ctx, name)
							switch seen = string(obj.Body); {
							case err == nil:
								etags.Store(seen, obj.ETag)
							case !errors.Is(err, leasehold.ErrNotExist):
								return nothing{}, false
							}
							return found(seen), true
						})
					case seen == "":
						h.record(c, call{op: "create", body: body}, func() (any, bool) {
							etag, err := store.PutIfNoneMatch(ctx, name, []byte(body))
							return counting(&unknowns)(landed(&etags, &seen, body, etag, err))
						})
					default:
						h.record(c, call{"update", body, seen}, func() (any, bool) {
							etag, err := store.PutIfMatch(ctx, name, []byte(body), etag.(string))
							return counting(&unknowns)(landed(&etags, &seen, body, etag, err))
						})
					}
					cancel()
				}
			})
		}
		wg.Wait()
		ambiguous += h.check(t, register, fmt.Sprintf("filestore-register-%d", key))
		ops += len(h.ops)
	}
	require.NotZero(t, ambiguous, "no operation was ambiguous, so the test proves little")
	t.Logf("%d histories of %d operations in all, %d of them ambiguous, are linearizable", keys, ops, ambiguous)
}

// counting counts the writes whose outcome is unknown, and returns its arguments.
func counting(unknowns *atomic.Int32) func(any, bool) (any, bool) {
	return func(output any, known bool) (any, bool) {
		if !known {
			unknowns.Add(1)
		}
		return output, known
	}
}
