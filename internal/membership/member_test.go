package membership_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

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
				ignore := func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
					if obj, err := r.Get(ctx); loose && r.Op == teststore.Delete && err == nil {
						r.ETag = obj.ETag
					}
					return r.Send(ctx)
				}
				store := s.through(settings(), ignore)
				for i := range 3 {
					_, err := s.once(false, waits(true))
					require.Equal(s, !loose || i == 0, err != nil)
				}
				require.Equal(s, map[bool]int{false: 4, true: 1}[loose], store.Sent(teststore.Delete))
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
	var failing atomic.Bool
	store := s.through(settings(), func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if r.Op == teststore.Get && failing.CompareAndSwap(true, false) { // the look before the release
			return leasehold.Object{}, errors.New("503")
		}
		return r.Send(ctx)
	})
	_, err := s.once(false, membership.Terms{
		Serve: func(ctx context.Context, lease *leasehold.Lease, _ membership.Term) bool {
			<-ctx.Done()
			if failing.Store(fails); !fails { // another process has the handle
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
	require.False(s, failing.Load())
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

// kinds runs a test with a first term of its own, and with one of a handle.
func kinds(t *testing.T, play func(s *scene, m func(membership.Terms) *membership.Member)) {
	t.Helper()
	for name, goesOn := range map[string]bool{"a term of its own": false, "a term of a handle": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				play(s, func(terms membership.Terms) *membership.Member {
					m, err := s.group.Member(key, true, terms)
					require.NoError(s, err)
					if goesOn {
						lease := s.term()
						lease.Abandon()
						m.Resume(lease.Handle())
					}
					return m
				})
			})
		})
	}
}

// A term that ends by Resign is followed by another one.
func TestResign(t *testing.T) {
	kinds(t, func(s *scene, member func(membership.Terms) *membership.Member) {
		terms := make(chan membership.Term, 2)
		m := member(membership.Terms{
			Serve: func(ctx context.Context, _ *leasehold.Lease, term membership.Term) bool {
				terms <- term
				<-ctx.Done()
				time.Sleep(time.Second)
				return true
			},
		})
		require.Equal(s, key, m.Key())
		ctx, cancel := context.WithCancel(s.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		first := <-terms
		require.NoError(s, m.Check(nil))
		began := time.Now()
		m.Resign()
		require.Zero(s, time.Since(began), "it does not wait")
		second := <-terms
		require.Equal(s, first.Token+1, second.Token)
		cancel()
		require.NoError(s, <-done)
		require.False(s, s.exists())
	})
}

// A release that fails is logged, also if Run continues.
func TestAReleaseThatFails(t *testing.T) {
	var log bytes.Buffer
	kinds(t, func(s *scene, member func(membership.Terms) *membership.Member) {
		log.Reset()
		with := settings()
		with.Log = slog.New(slog.NewTextHandler(&log, nil))
		store := s.through(with, nil)
		m := member(membership.Terms{Serve: func(ctx context.Context, _ *leasehold.Lease, term membership.Term) bool {
			<-ctx.Done()
			if term.Token == 1 {
				store.Fail(errors.New("503"), teststore.Puts...)
			}
			return true
		}})
		ctx, cancel := context.WithCancel(s.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(time.Second)
		m.Resign()
		time.Sleep(2 * ttl)
		store.Fail(nil)
		time.Sleep(2 * ttl)
		cancel()
		require.NoError(s, <-done)
		require.Equal(s, 1, strings.Count(log.String(), "releasing failed"))
	})
}

// A request that never returns is found, also before the first term and after the last one.
func TestCheckOfARequestThatHangs(t *testing.T) {
	for name, hangs := range map[string]teststore.Op{"resuming": teststore.Get, "removing": teststore.Delete} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				lease := s.term()
				lease.Abandon()
				goesOn := make(chan struct{})
				s.through(settings(), func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
					if r.Op == hangs {
						<-goesOn
					}
					return r.Send(ctx)
				})
				m, err := s.group.Member(key, true, waits(true))
				require.NoError(s, err)
				m.Resume(lease.Handle())
				ctx, cancel := context.WithCancel(s.Context())
				done := make(chan error, 1)
				go func() { done <- m.Run(ctx) }()
				if hangs == teststore.Delete {
					time.Sleep(ttl)
					cancel()
				}
				time.Sleep(2*ttl - time.Second)
				require.NoError(s, m.Check(nil))
				time.Sleep(2 * time.Second)
				require.ErrorContains(s, m.Check(nil), "31s: "+name+" the member's")
				require.ErrorIs(s, m.Check(nil), m.Failure())
				close(goesOn)
				time.Sleep(time.Second)
				require.NoError(s, m.Check(nil))
				require.NoError(s, m.Failure())
				cancel()
				require.NoError(s, <-done)
			})
		})
	}
}

// A process that is paused before it can serve a resumed term resumes the term again, if nobody has
// taken the object meanwhile.
func TestAPauseBeforeAResumedTerm(t *testing.T) {
	for name, taken := range map[string]bool{"nobody has taken it": false, "a judge has taken it": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				lease, pauses := s.term(), 1
				lease.Abandon()
				with := settings()
				with.Options = []leasehold.Option{leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
					if e.Kind == leasehold.EventAcquired && pauses > 0 {
						pauses--
						time.Sleep(2 * ttl)
						if taken {
							require.NoError(s, s.term().Release(s.Context()))
						}
					}
				})}
				s.group = membership.NewGroup(s.store, with)
				var served []membership.Term
				m, err := s.group.Member(key, true, membership.Terms{
					Serve: func(ctx context.Context, _ *leasehold.Lease, term membership.Term) bool {
						served = append(served, term)
						<-ctx.Done()
						return true
					},
				})
				require.NoError(s, err)
				m.Resume(lease.Handle())
				ctx, cancel := context.WithTimeout(s.Context(), 4*ttl)
				defer cancel()
				err = m.Run(ctx)
				if taken {
					require.ErrorIs(s, err, leasehold.ErrLost)
					require.Empty(s, served)
					return
				}
				require.NoError(s, err)
				require.Equal(s, []membership.Term{termOf(lease)}, served)
				require.False(s, s.exists())
			})
		})
	}
}

// What is left of a term is settled even if the store panics.
func TestAPanicOfTheRelease(t *testing.T) {
	kinds(t, func(s *scene, member func(membership.Terms) *membership.Member) {
		panics, settled := false, 0
		s.through(settings(), func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if panics {
				panic("oh")
			}
			return r.Send(ctx)
		})
		m := member(membership.Terms{
			Serve: func(ctx context.Context, _ *leasehold.Lease, _ membership.Term) bool {
				<-ctx.Done()
				panics = true
				return false
			},
			Settle: func() { settled++ },
		})
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		require.PanicsWithValue(s, "oh", func() { _ = m.Run(ctx) })
		require.Equal(s, 1, settled)
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
