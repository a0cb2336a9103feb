package leasehold

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/memstore"
)

// NewMemStore returns an empty [Store] in memory, with the exact semantics of a strict S3. Use it
// for tests, examples, and candidates within one process. It is safe for concurrent use and works
// under testing/synctest. No ETag ever repeats, and Age is always 0.
func NewMemStore() Store { return newMemStore(&memstore.Objects{Limit: MaxObjectSize}) }

type memStore struct{ *memstore.Objects }

func newMemStore(o *memstore.Objects) Store { return &memStore{o} }

// Describe allows any TTL from 1 ms on, because there is no network between a lock and this store,
// only the scheduler.
func (m *memStore) Describe() StoreInfo {
	return StoreInfo{MinTTL: time.Millisecond, TellsAge: m.TellsAge, Conditional: true}
}

func (m *memStore) Get(ctx context.Context, key string) (Object, error) {
	o, err := m.Objects.Get(ctx, key)
	return Object(o), err
}

func init() { memstore.Store = newMemStore }
