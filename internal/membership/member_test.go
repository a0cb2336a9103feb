package membership_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// looseStore may ignore the condition of a DELETE.
type looseStore struct {
	leasehold.Store
	loose   bool
	deletes int
}

func (l *looseStore) DeleteIfMatch(ctx context.Context, key, etag string) error {
	l.deletes++
	if obj, err := l.Get(ctx, key); l.loose && err == nil {
		etag = obj.ETag
	}
	return l.Store.DeleteIfMatch(ctx, key, etag)
}

func (l *looseStore) Describe() leasehold.StoreInfo { return leasehold.Describe(l.Store) }

// waits has a Serve that ends with its term.
func waits(forgotten bool) membership.Terms {
	return membership.Terms{Serve: func(ctx context.Context, _ *leasehold.Lease, _ membership.Term) bool {
		<-ctx.Done()
		return forgotten
	}}
}

// once runs a member for a while, and returns what its object is then.
func (s *scene) once(unique bool, terms membership.Terms) (leasehold.Object, error) {
	s.Helper()
	m, err := s.group.Member(key, unique, terms)
	require.NoError(s, err)
	ctx, cancel := context.WithTimeout(s.Context(), 3*ttl)
	defer cancel()
	require.NoError(s, m.Run(ctx))
	return s.store.Get(s.Context(), key)
}

// A member that leaves takes its object with it, once the group has forgotten it; until then the
// released object tells that its term is over.
func TestAMemberLeavesNothing(t *testing.T) {
	for name, unique := range map[string]bool{"a unique name": true, "a name that comes again": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				obj, err := s.once(unique, waits(false))
				require.NoError(s, err)
				var rec leasehold.Record
				require.NoError(s, rec.UnmarshalJSON(obj.Body))
				require.True(s, rec.Released())
				for range 3 {
					_, err = s.once(unique, waits(true))
					require.ErrorIs(s, err, leasehold.ErrNotExist)
				}
			})
		})
	}
}

// A server that ignores the condition of a DELETE is found out by the first one, which can do no
// harm, and is sent no more.
func TestDeletesThatIgnoreTheirCondition(t *testing.T) {
	for name, loose := range map[string]bool{"enforced": false, "ignored": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				store := &looseStore{Store: s.store, loose: loose}
				s.group = membership.NewGroup(store, settings())
				for i := range 3 {
					_, err := s.once(false, waits(true))
					require.Equal(s, !loose || i == 0, err != nil)
				}
				require.Equal(s, loose, s.group.IgnoresDeletes())
				require.Equal(s, map[bool]int{false: 4, true: 1}[loose], store.deletes)
			})
		})
	}
}

// Without an older version there is nothing to try the condition with. No DELETE is sent then,
// because another process may take the name before it lands.
func TestADeleteThatCannotBeTried(t *testing.T) {
	for name, fails := range map[string]bool{"the object cannot be read": true, "it was released before": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) { testADeleteThatCannotBeTried(s, fails) })
		})
	}
}

func testADeleteThatCannotBeTried(s *scene, fails bool) {
	failing := false
	store := teststore.New(s.store, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if failing && r.Op == teststore.Get {
			failing = false // once, which is the look before the release
			return leasehold.Object{}, errors.New("503")
		}
		return r.Send(ctx)
	})
	s.group = membership.NewGroup(store, settings())
	_, err := s.once(false, membership.Terms{
		Serve: func(ctx context.Context, lease *leasehold.Lease, _ membership.Term) bool {
			<-ctx.Done()
			if failing = fails; !fails { // another process has the handle
				l, err := leasehold.NewLock(s.store, key, leasehold.WithLogger(silent))
				require.NoError(s, err)
				resumed, err := l.Resume(s.Context(), lease.Handle())
				require.NoError(s, err)
				require.NoError(s, resumed.Release(s.Context()))
			}
			return true
		},
	})
	require.NoError(s, err)
	require.False(s, failing)
	require.Zero(s, store.Sent(teststore.Delete))
}

// What a judge has made or taken is removed, unless another term has begun in it.
func TestALaterTermStays(t *testing.T) {
	for name, ends := range map[string]bool{"it goes on": false, "it was released": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				term := termOf(s.term())
				time.Sleep(2 * ttl)
				require.Equal(s, membership.Alive, s.look(term))
				time.Sleep(2 * ttl)
				require.Equal(s, membership.Over, s.look(term))
				next := s.term()
				if ends {
					require.NoError(s, next.Release(s.Context()))
				}
				require.NoError(s, s.judge.Evicted(s.Context()))
				require.True(s, s.exists(), "whoever has had it removes it")
			})
		})
	}
}

// A member whose term is lost takes its object anew only when nothing acts under the lost term any
// more. Only what Serve itself does counts as a function that still runs.
func TestHealing(t *testing.T) {
	for name, settles := range map[string]bool{"Serve goes on": false, "Settle goes on": true} {
		for of, goesOn := range map[string]bool{"a term of its own": false, "a term of a handle": true} {
			t.Run(name+" after "+of, func(t *testing.T) {
				bubble(t, func(s *scene) { testHealing(s, settles, goesOn) })
			})
		}
	}
}

func testHealing(s *scene, settles, goesOn bool) {
	terms := make(chan membership.Term, 2)
	mayReturn := make(chan struct{})
	waitsIf := func(now bool) {
		if now {
			<-mayReturn
		}
	}
	m, err := s.group.Member(key, true, membership.Terms{
		Serve: func(ctx context.Context, _ *leasehold.Lease, term membership.Term) bool {
			terms <- term
			<-ctx.Done()
			waitsIf(!settles)
			return true
		},
		Settle: func() { waitsIf(settles) },
	})
	require.NoError(s, err)
	if goesOn {
		lease := s.term()
		lease.Abandon()
		m.Resume(lease.Handle())
	}
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	first := <-terms
	s.remove()
	time.Sleep(2 * ttl)
	require.Equal(s, settles, m.Check(nil) == nil, "it may take its time")
	time.Sleep(ttl)
	require.False(s, s.exists(), "something may still act under the lost term")
	require.Empty(s, terms)
	require.Error(s, m.Check(nil), "it hangs")
	close(mayReturn)
	second := <-terms
	require.NotEqual(s, first.ObjectID, second.ObjectID)
	cancel()
	require.NoError(s, <-done)
	require.False(s, s.exists())
}

// A term that ends by Resign is followed by another one.
func TestResign(t *testing.T) {
	bubble(t, func(s *scene) {
		terms := make(chan membership.Term, 2)
		m, err := s.group.Member(key, true, membership.Terms{
			Serve: func(ctx context.Context, _ *leasehold.Lease, term membership.Term) bool {
				terms <- term
				<-ctx.Done()
				return true
			},
		})
		require.NoError(s, err)
		require.Equal(s, key, m.Key())
		ctx, cancel := context.WithCancel(s.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		first := <-terms
		require.NoError(s, m.Check(nil))
		require.NoError(s, m.Resign(s.Context()))
		second := <-terms
		require.Equal(s, first.Token+1, second.Token)
		cancel()
		require.NoError(s, <-done)
		require.False(s, s.exists())
	})
}

// After a panic nobody gets the member's lock before its TTL has passed, because what has run under
// its term may run on.
func TestAPanic(t *testing.T) {
	bubble(t, func(s *scene) {
		m, err := s.group.Member(key, true, membership.Terms{
			Serve: func(context.Context, *leasehold.Lease, membership.Term) bool { panic("oh") },
		})
		require.NoError(s, err)
		require.PanicsWithValue(s, "oh", func() { _ = m.Run(s.Context()) })
		var rec leasehold.Record
		require.NoError(s, rec.UnmarshalJSON(s.get().Body))
		require.False(s, rec.Released())
		require.Equal(s, membership.Alive, s.look(membership.TermOf(key, rec)))
	})
}

// What cannot work is refused before any request.
func TestMembersThatCannotBe(t *testing.T) {
	wrong := settings()
	wrong.Drift = -1
	group := membership.NewGroup(leasehold.NewMemStore(), wrong)
	_, err := group.Member(key, true, waits(true))
	require.ErrorContains(t, err, "drift")
	_, err = group.Judge(membership.Term{Key: key}, ttl)
	require.ErrorContains(t, err, "drift")
	group = membership.NewGroup(leasehold.NewMemStore(), settings())
	_, err = group.Member("", true, waits(true))
	require.ErrorContains(t, err, "key")
	_, err = group.Member(key, true, waits(true), leasehold.WithManualRenewal())
	require.ErrorContains(t, err, "WithManualRenewal")
}
