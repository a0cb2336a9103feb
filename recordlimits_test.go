package leasehold_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// Members that are longer than any lock writes, or that this package writes in a longer form than it has read them.
func TestMembersThatAreTooLong(t *testing.T) {
	separators := strings.Repeat("\u2028", 20_000)
	for name, member := range map[string]string{
		"holder":             `"holder":"` + separators + `"`,
		"nonce":              `"nonce":"` + separators + `"`,
		"object_id":          `"object_id":"` + strings.Repeat("x", 60_000) + `"`,
		"term_id":            `"term_id":"` + strings.Repeat("x", 60_000) + `"`,
		"metadata":           `"metadata":{"x":"` + separators + `"}`,
		"names of metadata":  `"metadata":{"` + separators + `":"x"}`,
		"holder that grows":  `"holder":"` + separators[:4500] + `"`,
		"many in one object": `"holder":"` + separators[:6000] + `","metadata":{"x":"` + separators[:8100] + `"},"object_id":"` + separators[:3000] + `"`,
	} {
		for _, released := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", released ", released), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := leasehold.NewMemStore()
					expires := `"expires_at":` + map[bool]string{true: "0", false: "253370764800"}[released]
					_, err := store.PutIfNoneMatch(t.Context(), key, []byte(`{`+expires+`,"token":7,`+member+`}`))
					require.NoError(t, err)
					lock := newLock(t, store)
					_, err = lock.TryAcquire(t.Context())
					require.ErrorIs(t, err, leasehold.ErrCorruptRecord, "the record is to blame, not the options of this lock")
					require.NoError(t, lock.Break(t.Context(), 7))
					lease := acquire(t, lock)
					require.EqualValues(t, 8, lease.Token())
					require.NoError(t, lease.Release(t.Context()))
				})
			})
		}
	}
}

// Whatever a lock may write, any other may read, break and take over.
func TestTheLongestRecordIsReadAndBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		metadata := map[string]string{"x": strings.Repeat("\x00", 1360)}
		lock := newLock(t, store, leasehold.WithIdentity(strings.Repeat("\x00", 1024)), leasehold.WithMetadata(metadata))
		lease := acquire(t, lock)
		require.NoError(t, lease.Commit(t.Context(), make([]byte, 32<<10)))
		body, err := json.Marshal(lease.Record())
		require.NoError(t, err)
		require.Greater(t, len(body), 57_000)
		rec, err := newLock(t, store).Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, metadata, rec.Metadata)
		require.NoError(t, newLock(t, store).Break(t.Context(), 1))
		next := acquire(t, newLock(t, store))
		require.Len(t, next.Record().Payload, 32<<10)
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestTheLongestTTLs(t *testing.T) {
	const longest = 876_000 * time.Hour
	for _, ttl := range []time.Duration{longest, longest - 1} {
		synctest.Test(t, func(t *testing.T) {
			store := leasehold.NewMemStore()
			lease := acquire(t, newLock(t, store, leasehold.WithTTL(ttl)))
			rec, err := newLock(t, store).Inspect(t.Context())
			require.NoError(t, err)
			require.InDelta(t, ttl, rec.TTL, float64(time.Microsecond))
			require.NoError(t, lease.Renew(t.Context()))
			require.NoError(t, lease.Release(t.Context()))
		})
	}
	_, err := leasehold.NewLock(leasehold.NewMemStore(), key, leasehold.WithTTL(longest+1))
	require.ErrorContains(t, err, "is over")
}

// Machines whose wall clocks stand before 1970, as after a reset, decide by TTL as all others do.
func TestWallClocksBefore1970(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		past := newBrokenClock()
		past.move(clock.Reading{Wall: -time.Duration(time.Now().Unix()+365*24*3600) * time.Second})
		require.Negative(t, past.Now().Wall)
		holder := acquire(t, newLock(t, store, withClock(past)))
		time.Sleep(time.Minute)
		require.NoError(t, holder.Renew(t.Context()))
		require.True(t, holder.Valid())
		holder.Abandon()
		ctx, cancel := context.WithTimeout(t.Context(), 16*time.Second)
		defer cancel()
		next, err := newLock(t, store, withClock(past)).Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, next.Release(t.Context()))
	})
}
