package doctor

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

// crowded is a store in which another doctor is always faster, until a time.
type crowded struct {
	leasehold.Store
	mu    sync.Mutex
	until time.Time
}

func (c *crowded) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.until) {
		if _, err := c.Store.PutIfMatch(ctx, key, []byte(probeMark+time.Now().String()), etag); err != nil {
			return "", err
		}
	}
	return c.Store.PutIfMatch(ctx, key, body, etag)
}

// A doctor's write that meets those of others is repeated for half a minute, and at a random pace.
func TestADoctorAmongOthers(t *testing.T) {
	for crowd, enough := range map[time.Duration]bool{20 * time.Second: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			store := &crowded{Store: leasehold.NewMemStore(), until: time.Now().Add(crowd)}
			p := newProbe(newReport("put"), place.Location{Key: "a"}, place.NewStore(store, nil, nil), permissions{})
			_, err := store.PutIfNoneMatch(t.Context(), p.key, []byte(probeMark))
			require.NoError(t, err)
			began := time.Now()
			require.NoError(t, p.look(t.Context()))
			err = p.write(t.Context())
			if enough {
				require.NoError(t, err)
				require.Less(t, time.Since(began), crowd+probeRest)
				return
			}
			require.ErrorIs(t, err, errCrowd)
			require.False(t, errors.Is(err, leasehold.ErrPreconditionFailed))
			require.Less(t, time.Since(began), probePatience+time.Second)
		})
	}
}

// A server that refuses creates of an object that it does not have is told from other doctors.
func TestADoctorOfAGhost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := place.NewStore(refusesCreates{leasehold.NewMemStore()}, nil, nil)
		p := newProbe(newReport("put"), place.Location{Key: "a"}, store, permissions{})
		require.NoError(t, p.look(t.Context()))
		require.ErrorIs(t, p.write(t.Context()), errGhost)
	})
}

type refusesCreates struct{ leasehold.Store }

func (refusesCreates) PutIfNoneMatch(context.Context, string, []byte) (string, error) {
	return "", leasehold.ErrPreconditionFailed
}
