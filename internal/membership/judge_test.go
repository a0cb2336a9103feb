package membership_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

const (
	key = "tables/a.members/pod"
	ttl = 15 * time.Second
)

var silent = slog.New(slog.DiscardHandler)

func settings() membership.Settings {
	return membership.Settings{TTL: ttl, Poll: ttl / 5, Margin: ttl / 5, Drift: 0.02, Holder: "judge", Log: silent}
}

// scene is the object of one member, and what another member thinks of its term.
type scene struct {
	*testing.T
	store leasehold.Store
	group *membership.Group
	judge *membership.Judge
	asked membership.Term
}

// bubble runs a scene in virtual time.
func bubble(t *testing.T, play func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		play(&scene{T: t, store: store, group: membership.NewGroup(store, settings())})
	})
}

// through lets do answer the requests of the group, whose store is a known one.
func (s *scene) through(with membership.Settings, do teststore.Do) *teststore.Store {
	store := teststore.Known(s.store, do)
	s.group = membership.NewGroup(store, with)
	return store
}

// term begins a term of the member.
func (s *scene) term() *leasehold.Lease {
	s.Helper()
	l, err := leasehold.NewLock(s.store, key, leasehold.WithManualRenewal(), leasehold.WithLogger(silent))
	require.NoError(s, err)
	lease, err := l.TryAcquire(s.Context())
	require.NoError(s, err)
	return lease
}

func termOf(lease *leasehold.Lease) membership.Term { return membership.TermOf(key, lease.Record()) }

// look asks whether a term is over. One judge answers for one term.
func (s *scene) look(term membership.Term) membership.State {
	s.Helper()
	if s.judge == nil || s.asked != term {
		judge, err := s.group.Judge(term, ttl)
		require.NoError(s, err)
		s.judge, s.asked = judge, term
	}
	v, err := s.judge.Look(s.Context())
	require.NoError(s, err)
	require.NotEmpty(s, v.Reason)
	return v.State
}

func (s *scene) get() leasehold.Object {
	s.Helper()
	obj, err := s.store.Get(s.Context(), key)
	require.NoError(s, err)
	return obj
}

func (s *scene) exists() bool {
	_, err := s.store.Get(s.Context(), key)
	return err == nil
}

func (s *scene) remove() {
	s.Helper()
	require.NoError(s, s.store.DeleteIfMatch(s.Context(), key, s.get().ETag))
}

// put replaces what the object has.
func (s *scene) put(body []byte) {
	s.Helper()
	_, err := s.store.PutIfMatch(s.Context(), key, body, s.get().ETag)
	require.NoError(s, err)
}

func (s *scene) putRecord(rec leasehold.Record) {
	s.Helper()
	body, err := rec.MarshalJSON()
	require.NoError(s, err)
	s.put(body)
}

// never wants that no look within ten TTLs finds the term over. act is called before each.
func (s *scene) never(term membership.Term, act func()) {
	s.Helper()
	for range 40 {
		act()
		require.NotEqual(s, membership.Over, s.look(term))
		time.Sleep(ttl / 4)
	}
}

// until looks until the term is over, and returns for how long.
func (s *scene) until(term membership.Term) time.Duration {
	s.Helper()
	began := time.Now()
	for s.look(term) != membership.Over {
		require.Less(s, time.Since(began), 10*ttl)
		time.Sleep(ttl / 100)
	}
	return time.Since(began)
}

// A term that is renewed is alive. One that was released, or that a later one of the same object
// has followed, is over for good.
func TestTermsOfOneObject(t *testing.T) {
	bubble(t, func(s *scene) {
		lease := s.term()
		s.never(termOf(lease), func() { require.NoError(s, lease.Renew(s.Context())) })
		require.NoError(s, lease.Release(s.Context()))
		require.Equal(s, membership.Over, s.look(termOf(lease)))
		next := s.term()
		require.Equal(s, membership.Over, s.look(termOf(lease)))
		require.Equal(s, membership.Alive, s.look(termOf(next)))
	})
}

// A term that is not renewed is over when the judge has taken its object: after the TTL by its own
// clock, and not before. Then the object can go.
func TestATermThatRunsOut(t *testing.T) {
	bubble(t, func(s *scene) {
		lease := s.term()
		term := termOf(lease)
		require.Equal(s, membership.Alive, s.look(term))
		time.Sleep(ttl)
		require.Equal(s, membership.Alive, s.look(term), "the drift allowance")
		time.Sleep(ttl / 40)
		require.Equal(s, membership.Over, s.look(term))
		require.ErrorIs(s, lease.Renew(s.Context()), leasehold.ErrLost)
		require.NoError(s, s.judge.Evicted(s.Context()))
		require.False(s, s.exists())
	})
}

// A missing object proves nothing, because a late write may still bring the term back. Another
// object in its place proves it after a TTL in which it was one and the same.
func TestAnObjectThatWasDeleted(t *testing.T) {
	bubble(t, func(s *scene) {
		term := termOf(s.term())
		require.Equal(s, membership.Alive, s.look(term))
		s.never(term, s.remove) // so that each time another one is made
		s.remove()
		took := s.until(term)
		require.Greater(s, took, ttl)
		require.Less(s, took, ttl*11/10)
	})
}

// An older version that was restored, or another object that changes places with the term's, proves
// nothing.
func TestAnObjectThatComesBack(t *testing.T) {
	for name, restored := range map[string]bool{"an earlier term": true, "another object": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				earlier := s.term()
				other := s.get().Body
				require.NoError(s, earlier.Release(s.Context()))
				if !restored {
					s.remove()
				}
				lease, n := s.term(), 0
				require.Equal(s, restored, termOf(earlier).ObjectID == termOf(lease).ObjectID)
				s.never(termOf(lease), func() {
					if n++; n%4 < 3 {
						s.put(other)
					} else {
						s.putRecord(lease.Record())
					}
				})
				s.putRecord(lease.Record())
				require.Equal(s, membership.Alive, s.look(termOf(lease)))
				s.put(other)
				require.Greater(s, s.until(termOf(lease)), ttl)
			})
		})
	}
}

// The token of a restored term may come again in a later one, but not its name.
func TestATokenThatComesAgain(t *testing.T) {
	bubble(t, func(s *scene) {
		before := s.term()
		require.NoError(s, before.Release(s.Context()))
		old := s.get().Body
		lease := s.term()
		term := termOf(lease)
		s.put(old)
		again := s.term()
		require.Equal(s, []any{term.ObjectID, term.Token}, []any{termOf(again).ObjectID, termOf(again).Token})
		require.Equal(s, membership.Unknown, s.look(term))
		require.NoError(s, again.Release(s.Context()))
		require.Equal(s, membership.Unknown, s.look(term), "it is the other that was released")
		require.True(s, lease.Valid())
	})
}

// A higher token under the ID of another object proves nothing by itself.
func TestAHigherTokenOfAnotherObject(t *testing.T) {
	bubble(t, func(s *scene) {
		term := termOf(s.term())
		term.ObjectID, term.Token = "another", term.Token-1
		require.Equal(s, membership.Unknown, s.look(term))
		time.Sleep(ttl)
		require.Equal(s, membership.Unknown, s.look(term))
		time.Sleep(ttl / 40)
		require.Equal(s, membership.Over, s.look(term))
	})
}

// Objects that change places with one another, in place of the term's, prove nothing.
func TestObjectsThatChangePlaces(t *testing.T) {
	bubble(t, func(s *scene) {
		lease, n := s.term(), 0
		s.never(termOf(lease), func() {
			rec := lease.Record()
			rec.ObjectID = []string{"one", "another"}[n%2]
			n++
			s.putRecord(rec)
		})
	})
}

// What a judge has seen counts for its own term alone: what stood in the object before another term
// was named says nothing of that one.
func TestWhatTheJudgeOfAnotherTermHasSeen(t *testing.T) {
	bubble(t, func(s *scene) {
		first := s.term()
		require.NoError(s, first.Release(s.Context()))
		old := s.get().Body
		lease := s.term()
		other := membership.Term{Key: key, ObjectID: "another", TermID: "t", Token: 3}
		s.put(old)
		for range 8 { // a judge of another term looks at this object all the time
			s.look(other)
			time.Sleep(ttl / 4)
		}
		require.Equal(s, membership.Unknown, s.look(termOf(lease)))
	})
}

// A group's own requests have the time that its locks give theirs.
func TestAGroupsRequestsHaveTheTimeOfALocks(t *testing.T) {
	bubble(t, func(s *scene) {
		var reads []time.Duration
		with := settings()
		with.Margin = ttl / 3
		s.through(with, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if end, ok := ctx.Deadline(); ok && r.Op == teststore.Get {
				reads = append(reads, time.Until(end))
			}
			return r.Send(ctx)
		})
		term := termOf(s.term())
		s.look(term)
		require.NoError(s, s.group.Break(s.Context(), key, term.Token))
		require.Equal(s, []time.Duration{ttl / 9, ttl / 9}, reads)
	})
}

// What cannot be read gives no verdict, and says so each time.
func TestUnreadableObjects(t *testing.T) {
	foreign := `{"expires_at":0,"token":9}` // has no object id, so it is never one and the same
	for name, body := range map[string]string{"cut short": `{"expires_at":`, "no member's": foreign} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				lease := s.term()
				require.Equal(s, membership.Alive, s.look(termOf(lease)))
				whole := s.get().Body
				s.put([]byte(body))
				for range 10 {
					v, err := s.judge.Look(s.Context())
					require.ErrorIs(s, err, leasehold.ErrCorruptRecord)
					require.Equal(s, membership.Unknown, v.State)
					time.Sleep(ttl)
				}
				require.Equal(s, body, string(s.get().Body), "nobody has repaired it")
				s.put(whole)
				took := s.until(termOf(lease))
				require.Greater(s, took, ttl, "this version is a new one")
				require.Less(s, took, ttl*11/10)
			})
		})
	}
}

// A store that refuses to show or to write the object gives no verdict either.
func TestObjectsThatMayNotBeTouched(t *testing.T) {
	bubble(t, func(s *scene) {
		store, denied := s.through(settings(), nil), errors.New("access denied")
		lease := s.term()
		require.Equal(s, membership.Alive, s.look(termOf(lease)))
		time.Sleep(2 * ttl)
		for _, op := range []teststore.Op{teststore.Update, teststore.Get} {
			store.Fail(denied, op)
			v, err := s.judge.Look(s.Context())
			require.ErrorIs(s, err, denied)
			require.Equal(s, membership.Unknown, v.State)
		}
		store.Fail(nil)
		require.Equal(s, membership.Over, s.look(termOf(lease)))
	})
}

// A process that ends while it makes an object knows that it has made it, and removes it.
func TestAProcessEndsWhileItMakesAnObject(t *testing.T) {
	bubble(t, func(s *scene) {
		term := termOf(s.term())
		s.remove()
		ctx, cancel := context.WithCancel(s.Context())
		s.through(settings(), func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			obj, err := r.Send(ctx)
			if r.Op == teststore.Create {
				cancel()
			}
			return obj, err
		})
		judge, err := s.group.Judge(term, ttl)
		require.NoError(s, err)
		v, err := judge.Look(ctx)
		require.NoError(s, err)
		require.Equal(s, membership.Unknown, v.State)
		require.True(s, s.exists())
		require.NoError(s, judge.Evicted(s.Context()))
		require.False(s, s.exists())
	})
}

// The next look comes soon after each renewal, and when the term runs out.
func TestWhenToLook(t *testing.T) {
	bubble(t, func(s *scene) {
		l, err := leasehold.NewLock(s.store, key, leasehold.WithLogger(silent)) // renews by itself
		require.NoError(s, err)
		lease, err := l.Acquire(s.Context())
		require.NoError(s, err)
		term, began, looks := termOf(lease), time.Now(), 0
		for ; looks < 100; looks++ {
			require.Equal(s, membership.Alive, s.look(term))
			time.Sleep(s.judge.Next())
		}
		require.Greater(s, time.Since(began), 100*ttl/5, "not much more than one look for each renewal")
		lease.Abandon()
		died := time.Now()
		for s.look(term) != membership.Over {
			require.Less(s, time.Since(died), 10*ttl)
			time.Sleep(s.judge.Next())
		}
		require.Less(s, time.Since(died), ttl*125/100)
	})
}

// What an answer shows was there when it was asked for. It says nothing of the time until it is
// looked at.
func TestAnAnswerThatIsOld(t *testing.T) {
	bubble(t, func(s *scene) {
		lease := s.term()
		whole := s.get().Body
		var asleep atomic.Int64
		p := testopt.Stopped(&asleep)
		of := settings()
		of.Clock, of.Options = p, []leasehold.Option{testopt.WithClock(p)}
		var next atomic.Int64 // for how long the process is stopped after its next read
		s.through(of, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			obj, err := r.Send(ctx)
			if r.Op == teststore.Get {
				asleep.Add(next.Swap(0))
			}
			return obj, err
		})

		rec := lease.Record()
		rec.ObjectID = "another"
		s.putRecord(rec)
		require.Equal(s, membership.Unknown, s.look(termOf(lease)))
		time.Sleep(time.Second)
		next.Store(int64(2 * ttl)) // in which the term's own object may have come back
		require.Equal(s, membership.Unknown, s.look(termOf(lease)))
		s.put(whole)
		require.Equal(s, membership.Alive, s.look(termOf(lease)))
	})
}
