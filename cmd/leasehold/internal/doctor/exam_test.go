package doctor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// A doctor's write that meets those of others is repeated for half a minute, and at a random pace.
func TestADoctorAmongOthers(t *testing.T) {
	for crowd, enough := range map[time.Duration]bool{20 * time.Second: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			faster := func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				other := r
				other.Body = []byte(mark.Begins + time.Now().String())
				if r.Op == teststore.Update && time.Since(began) < crowd {
					if obj, err := other.Send(ctx); err != nil {
						return obj, err
					}
				}
				return r.Send(ctx)
			}
			store := teststore.New(leasehold.NewMemStore(), faster)
			p := newExam(newReport("put"), place.Location{Key: "a"}, place.NewStore(store, nil, nil), permissions{})
			_, err := store.PutIfNoneMatch(t.Context(), p.key, []byte(mark.Begins))
			require.NoError(t, err)
			require.NoError(t, p.look(t.Context()))
			err = p.write(t.Context())
			if enough {
				require.NoError(t, err)
				require.Less(t, time.Since(began), crowd+longestRest)
				return
			}
			require.ErrorIs(t, err, errCrowd)
			require.False(t, errors.Is(err, leasehold.ErrPreconditionFailed))
			require.Less(t, time.Since(began), patience+time.Second)
		})
	}
}

// A server that refuses creates of an object that it does not have is told from other doctors.
func TestADoctorOfAGhost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := teststore.New(leasehold.NewMemStore(), nil)
		store.Fail(leasehold.ErrPreconditionFailed, teststore.Create)
		p := newExam(newReport("put"), place.Location{Key: "a"}, place.NewStore(store, nil, nil), permissions{})
		require.NoError(t, p.look(t.Context()))
		require.ErrorIs(t, p.write(t.Context()), errGhost)
	})
}

// keeping is a cache in front of a store, which keeps what it has read for four seconds.
type keeping struct {
	leasehold.Store
	missing bool // also that there was nothing
	kept    map[string]kept
}

type kept struct {
	object leasehold.Object
	err    error
	until  time.Time
}

func (k *keeping) Get(ctx context.Context, key string) (leasehold.Object, error) {
	answer := k.kept[key]
	if time.Now().After(answer.until) {
		answer.object, answer.err = k.Store.Get(ctx, key)
		answer.until = time.Now().Add(4 * time.Second)
		if answer.err == nil || k.missing {
			k.kept[key] = answer
		}
	}
	return answer.object, answer.err
}

// A cache is named, and nothing else: not a write that seems to be refused without a reason.
func TestADoctorBehindACache(t *testing.T) {
	for _, missing := range []bool{true, false} {
		for _, earlier := range []string{"", "a doctor's object", "one that is gone", "one that is not shown"} {
			synctest.Test(t, func(t *testing.T) {
				store := &keeping{Store: leasehold.NewMemStore(), missing: missing, kept: map[string]kept{}}
				ctx, report := t.Context(), newReport("list", "get", "put", "delete", "conditions", "latency")
				p := newExam(report, place.Location{Key: "a"}, place.NewStore(store, nil, nil), permissions{})
				if earlier == "one that is not shown" {
					require.NoError(t, p.look(ctx))
				}
				if earlier != "" {
					etag, err := store.PutIfNoneMatch(ctx, p.key, []byte(mark.Begins))
					require.NoError(t, err)
					if earlier == "one that is gone" {
						require.NoError(t, p.look(ctx))
						require.NoError(t, store.DeleteIfMatch(ctx, p.key, etag))
					}
				}
				if p.admitted(ctx, p.look(ctx)) {
					p.conditions(ctx)
					p.latency(ctx)
				}
				p.remove(ctx, nil)
				report.finish()
				failed := 0
				for _, c := range report {
					if c.Result == resultFailed {
						require.Contains(t, c.Seen, "a cache stands in front of the store")
						failed++
					}
				}
				require.Equal(t, 1, failed, "%v, %s: %v", missing, earlier, report)
			})
		}
	}
}
