package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/locktable"
)

// term is a term of this TTL, the lock's store, and that store as a client sees it through do.
func term(t *testing.T, ttl time.Duration, do teststore.Do) (h handle, below leasehold.Store, store *place.Store) {
	below = leasehold.NewMemStore()
	lock, err := leasehold.NewLock(below, "a", leasehold.WithManualRenewal(), leasehold.WithTTL(ttl),
		leasehold.WithHolder("ci"), leasehold.WithMetadata(map[string]string{"build": "42"}))
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	lease.Abandon()
	h = handle{at: place.Location{Key: "a"}, term: lease.Handle()}
	return h, below, place.NewStore(teststore.New(below, do), nil, nil)
}

// beforeUpdates calls f with the number of each update before it, which fails if f does.
func beforeUpdates(f func(n int) error) teststore.Do {
	n := 0
	return func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if r.Op == teststore.Update {
			n++
			if err := f(n); err != nil {
				return leasehold.Object{}, err
			}
		}
		return r.Send(ctx)
	}
}

// While hold renews in the background, a release takes as many tries as it needs.
func TestReleaseBesideHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hold func() error
		writes := 0
		h, below, store := term(t, time.Hour, beforeUpdates(func(n int) error {
			writes = n // of which the second is a release, and the others resume the term
			if n != 2 && n != 3 {
				return nil
			}
			return hold()
		}))
		held := place.NewStore(below, nil, nil)
		hold = func() error {
			_, err := h.renew(t.Context(), held, 0)
			return err
		}
		r, err := h.release(t.Context(), store)
		require.NoError(t, err)
		require.True(t, r.Released())
		require.Equal(t, "ci", r.Holder)
		require.Equal(t, 5, writes)
		require.ErrorIs(t, hold(), leasehold.ErrReleased)
		r, err = h.release(t.Context(), store)
		require.NoError(t, err)
		require.True(t, r.Released())
	})
}

// A renewal that has read the record before another one does not bring its TTL back.
func TestANewTTLBesideHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lengthen func() error
		h, below, store := term(t, time.Hour, beforeUpdates(func(n int) error {
			if n > 1 {
				return nil
			}
			return lengthen()
		}))
		lengthen = func() error {
			_, err := h.renew(t.Context(), place.NewStore(below, nil, nil), 2*time.Hour)
			return err
		}
		r, err := h.renew(t.Context(), store, 0)
		require.NoError(t, err)
		require.Equal(t, 2*time.Hour, r.TTL)
		require.WithinDuration(t, time.Now().Add(2*time.Hour), r.ExpiresAt, time.Second)
	})
}

// A renewal keeps the holder, the metadata and the TTL of the record, even if its first read fails.
func TestARenewalKeepsTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ttl := range []time.Duration{2 * time.Second, time.Minute} { // neither is the default
			reads := 0
			h, _, store := term(t, ttl, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				if r.Op == teststore.Get {
					if reads++; reads == 1 {
						return leasehold.Object{}, errors.New("503 SlowDown")
					}
				}
				return r.Send(ctx)
			})
			r, err := h.renew(t.Context(), store, 0)
			require.NoError(t, err)
			require.Equal(t, ttl, r.TTL)
			require.Equal(t, "ci", r.Holder)
			require.Equal(t, map[string]string{"build": "42"}, r.Metadata)
		}
	})
}

// The read of a handle's record has the time that a lock of that TTL gives each request.
func TestTheReadOfAHandlesRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ttl := range []time.Duration{0, 3 * time.Second, time.Hour} {
			var reads []time.Duration
			h, _, store := term(t, time.Hour, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				if end, _ := ctx.Deadline(); r.Op == teststore.Get {
					reads = append(reads, time.Until(end))
				}
				return r.Send(ctx)
			})
			lock, err := leasehold.NewLock(store, "a", leasehold.WithTTL(cmp.Or(ttl, defaultTTL)))
			require.NoError(t, err)
			_, err = lock.Inspect(t.Context())
			require.NoError(t, err)
			_, err = h.renew(t.Context(), store, ttl)
			require.NoError(t, err)
			require.Len(t, reads, 2)
			require.Equal(t, reads[0], reads[1])
		}
	})
}

// If others take the lock between the two writes of a release, nothing of theirs is released.
func TestReleaseOfATermThatIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var next *leasehold.Lease
		var others leasehold.Store
		h, below, store := term(t, time.Hour, beforeUpdates(func(n int) error {
			if n == 2 {
				lock, err := leasehold.NewLock(others, "a", leasehold.WithHolder("next"))
				require.NoError(t, err)
				require.NoError(t, lock.Break(t.Context(), 1))
				next, err = lock.Acquire(t.Context())
				require.NoError(t, err)
			}
			return nil
		}))
		others = below
		_, err := h.release(t.Context(), store)
		require.ErrorIs(t, err, leasehold.ErrLost)
		require.ErrorContains(t, err, `by "next" with token 2`)
		require.NoError(t, next.Renew(t.Context()))
		require.NoError(t, next.Release(t.Context()))
	})
}

// A release of which only the first write succeeds leaves the lock taken for its TTL. The lease
// before may last so long, and nobody shortens for others what they must wait for. A release goes
// on after a TTL in which the store has failed.
func TestReleaseInAnOutage(t *testing.T) {
	for ttl, outage := range map[time.Duration]time.Duration{time.Hour: time.Hour, 2 * time.Second: 10 * time.Second} {
		bubble.Run(t, outage.String(), func(t *testing.T) {
			began := time.Now()
			h, below, store := term(t, ttl, beforeUpdates(func(n int) error {
				if n > 1 && time.Since(began) < outage {
					return errors.New("connection reset")
				}
				return nil
			}))
			_, err := h.release(t.Context(), store)
			require.LessOrEqual(t, time.Since(began), retryFor+time.Second)
			lock, wrong := leasehold.NewLock(below, "a")
			require.NoError(t, wrong)
			r, wrong := lock.Inspect(t.Context())
			require.NoError(t, wrong)
			require.Equal(t, outage < retryFor, r.Released())
			if outage < retryFor {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "connection reset")
			require.Equal(t, ttl, r.TTL)
		})
	}
}

// The first write of a release shows that the term was never lost. If nothing is known of the
// second one for a TTL, and another has the lock since, there is nothing left to release.
func TestReleaseWhoseAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes, began := 0, time.Now()
		var others leasehold.Store
		do := func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Puts() {
				writes++
			}
			if writes < 2 || time.Since(began) > 5*time.Second {
				return r.Send(ctx)
			}
			if r.Puts() && writes == 2 {
				_, err := r.Send(ctx)
				require.NoError(t, err)
				next, err := leasehold.NewLock(others, "a", leasehold.WithHolder("next"))
				require.NoError(t, err)
				_, err = next.Acquire(ctx)
				require.NoError(t, err)
			}
			return leasehold.Object{}, errors.New("connection reset")
		}
		h, below, store := term(t, 2*time.Second, do)
		others = below
		r, err := h.release(t.Context(), store)
		require.NoError(t, err)
		require.True(t, r.Released())
		require.EqualValues(t, 1, r.Token)
		_, err = h.release(t.Context(), store)
		require.ErrorIs(t, err, leasehold.ErrLost, "nothing is known of the time before this call")
	})
}

// A stranger swaps a link in between the look at a file and its opening. The link leads to another
// handle of the user's own, which must not be used in the place of the first.
func TestALinkThatIsSwappedIn(t *testing.T) {
	if os.Getuid() != 0 {
		return // nobody else can give away a link
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("other"), []byte("other"), 0o600))
	stop := make(chan struct{})
	var swaps sync.WaitGroup
	swaps.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			assert.NoError(t, os.WriteFile(at("new"), []byte("mine"), 0o600))
			assert.NoError(t, os.Rename(at("new"), at("handle")))
			assert.NoError(t, os.Symlink(at("other"), at("link")))
			assert.NoError(t, os.Lchown(at("link"), 1234, 1234))
			assert.NoError(t, os.Rename(at("link"), at("handle")))
		}
	})
	read := 0
	for began := time.Now(); time.Since(began) < 2*time.Second || read == 0 && time.Since(began) < time.Minute; {
		body, err := readHandle(at("handle"))
		if err == nil {
			read++
			assert.Equal(t, "mine", string(body))
		}
	}
	close(stop)
	swaps.Wait()
	require.Positive(t, read)
}

// While hold renews a member of a table in the background, a release takes as many tries as it
// needs, and leaves no member that only hold keeps.
func TestReleaseInATableBesideHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := leasehold.NewMemStore()
		writes, meddle := 0, func() {}
		store := place.NewStore(teststore.New(below, beforeUpdates(func(int) error {
			meddle()
			return nil
		})), nil, nil)
		held := place.NewStore(below, nil, nil)
		table, err := locktable.New(store, "t")
		require.NoError(t, err)
		go func() { _ = table.Run(t.Context()) }()
		lease, err := table.Lock("x").Acquire(t.Context())
		require.NoError(t, err)
		text, err := table.Detach(t.Context())
		require.NoError(t, err)
		h, err := memberHandle(place.Location{Key: "t"}, text)
		require.NoError(t, err)
		require.Equal(t, lease.Token(), h.token(leasehold.Record{}))
		meddle = func() { // go on with the term, write the table, free the lease, free the member's lock
			if writes++; writes == 4 {
				_, err := h.renew(t.Context(), held, 0)
				require.NoError(t, err)
			}
		}
		require.True(t, h.goesOn(t.Context(), store))
		_, err = h.release(t.Context(), store)
		require.NoError(t, err)
		require.Equal(t, 8, writes)
		require.False(t, h.goesOn(t.Context(), store))
		state, err := table.Inspect(t.Context())
		require.NoError(t, err)
		require.Empty(t, state.Members)
		_, err = store.Get(t.Context(), h.table.Member.Key)
		require.ErrorIs(t, err, leasehold.ErrNotExist)
		_, err = h.renew(t.Context(), held, 0)
		require.ErrorIs(t, err, leasehold.ErrLost)
	})
}
