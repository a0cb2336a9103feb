package leasehold_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// eventLog keeps events.
type eventLog struct {
	mu  sync.Mutex
	all []leasehold.Event
}

func (l *eventLog) observe(e leasehold.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

func (l *eventLog) of(key string) (kinds []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.all {
		if e.Key == key && e.Kind != leasehold.EventRequest && e.Kind != leasehold.EventRenewed && e.Kind != leasehold.EventNewLeader {
			kinds = append(kinds, e.Kind.String()+" "+e.Outcome())
		}
	}
	return kinds
}

// A lease that its holder has not released yet when the session ends gracefully: no event tells its end.
func TestGracefulEndTellsEachLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &eventLog{}
		session, stop := runSession(t, leasehold.NewMemStore(), "sessions/a", leasehold.WithObserver(log.observe))
		lease, err := leaningLock(t, session, "locks/x").Acquire(t.Context())
		require.NoError(t, err)
		stop()
		require.NoError(t, lease.Release(t.Context()))
		require.Equal(t, []string{"acquired ok", "released ok"}, log.of("locks/x"))
	})
}

// What a process reads of another's session is reported under that session's key, as if it were a candidate for it.
func TestRequestsForOthersSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := leasehold.NewMemStore(), &eventLog{}
		session, stop := runSession(t, store, "sessions/a")
		err := holding(t, leaningLock(t, session, "locks/x"), t.Context())
		require.NoError(t, err)
		other, stopOther := runSession(t, store, "sessions/b", leasehold.WithObserver(log.observe))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = leaningLock(t, other, "locks/x").Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		stopOther()
		stop()
		for _, e := range log.all {
			require.NotEqual(t, "sessions/a", e.Key)
		}
	})
}

// A function that does not return for a TTL after its context ended.
func TestNotReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &eventLog{}
		session, stop := runSession(t, leasehold.NewMemStore(), "sessions/a", leasehold.WithObserver(log.observe))
		lock := leaningLock(t, session, "locks/x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = lock.Do(ctx, func(context.Context, *leasehold.Lease) error {
			time.Sleep(3 * time.Minute)
			return nil
		})
		stop()
		require.Equal(t, []string{"acquired ok", "lost expired", "overrun expired"}, log.of("locks/x"))
	})
}
