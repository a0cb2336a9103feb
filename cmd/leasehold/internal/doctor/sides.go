package doctor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// sides is one bucket reached by several endpoints, which take turns.
type sides struct {
	stores []*place.Store

	mu   sync.Mutex
	next int
	keys map[string]bool // of the objects that may have been written
}

func (s *sides) turn(key string) leasehold.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.keys[key] = true
	return s.stores[s.next%len(s.stores)]
}

func (s *sides) Get(ctx context.Context, key string) (leasehold.Object, error) {
	return s.turn(key).Get(ctx, key)
}

func (s *sides) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return s.turn(key).PutIfNoneMatch(ctx, key, body)
}

func (s *sides) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return s.turn(key).PutIfMatch(ctx, key, body, etag)
}

func (s *sides) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return s.turn(key).DeleteIfMatch(ctx, key, etag)
}

const oneEndpoint = "use one endpoint for all processes: these are different buckets, copies of one bucket, or there " +
	"is a cache on the way"

// compareSides checks that each side shows at once what another has written, and runs the checks of
// leasehold.CheckStore with requests by all sides in turn, once for each side that begins.
func compareSides(ctx context.Context, r Report, at []place.Location) {
	all := &sides{keys: make(map[string]bool)}
	defer all.clear(ctx)
	for _, side := range at {
		store, err := side.Open(ctx)
		if err == nil {
			defer store.Close()
			_, err = store.Get(ctx, doctorKey(side))
		}
		if err != nil && !errors.Is(err, leasehold.ErrNotExist) {
			r.broke("sides", err, "correct the endpoint "+side.Endpoint)
			r.of("sides").Seen = side.Endpoint + ": " + r.of("sides").Seen
			return
		}
		all.stores = append(all.stores, store)
	}
	requests := 0
	for begin := range at {
		all.next = begin
		found, err := leasehold.CheckStore(ctx, all, doctorKey(at[0]))
		requests += found.Requests
		if err != nil && exit.Code(err) == exit.Store && !storeapi.Refused(err) {
			r.broke("sides", err, "run doctor again")
			return
		} else if err != nil {
			r.fail("sides", exit.Config, oneEndpoint, "%s", brief(err))
			return
		}
	}
	if stale, err := all.stale(ctx, at[0]); err != nil {
		r.broke("sides", err, "run doctor again")
		return
	} else if stale != "" {
		r.fail("sides", exit.Config, oneEndpoint, "%s", stale)
		return
	}
	r.ok("sides", "%d endpoints show one bucket, in %d requests", len(at), requests)
}

const sidesRounds = 3

// stale says which side does not show what another has just written.
func (s *sides) stale(ctx context.Context, at place.Location) (string, error) {
	s.keys[doctorKey(at)] = true
	p := &exam{key: doctorKey(at)}
	if at.Scheme == "gs" {
		p.pause = onePutASecond
	}
	mine := make(map[string]bool)
	for range sidesRounds {
		for i, store := range s.stores {
			p.store = store
			p.rest(ctx)
			if err := p.write(ctx); err != nil {
				return "", err
			}
			for j, other := range s.stores {
				o, err := other.Get(ctx, p.key)
				switch {
				// else another doctor was here
				case errors.Is(err, leasehold.ErrNotExist) && len(mine) > 0, err == nil && mine[o.ETag]:
					return fmt.Sprintf("endpoint %d does not show what was written by endpoint %d just before",
						j+1, i+1), nil
				case err != nil && !errors.Is(err, leasehold.ErrNotExist):
					return "", err
				}
			}
			mine[p.etag] = true
		}
	}
	return "", nil
}

// clear removes on each side what is left there.
func (s *sides) clear(ctx context.Context) {
	for key := range s.keys {
		for _, store := range s.stores {
			if o, err := store.Get(ctx, key); err == nil {
				_ = store.DeleteIfMatch(ctx, key, o.ETag)
			}
		}
	}
}
