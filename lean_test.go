package leasehold

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The first renewal of a session's term and the function that begins the term must not wait for each other. Session.lead locks
// Session.mu and then the term's mu (record); a renewal locks the term's mu and then Session.mu (addHints, within putOnce).
func TestFirstRenewalAndBeginningOfTheTerm(t *testing.T) {
	session, err := NewSession(NewMemStore(), "sessions/a", WithLogger(nil), WithTTL(300*time.Millisecond))
	require.NoError(t, err)
	session.mu.Lock() // stands for a goroutine in Held, Lock.Acquire or a release that has been preempted here
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- session.Run(ctx) }()
	time.Sleep(150 * time.Millisecond) // lead waits for Session.mu, then the renewal does, which has locked the term
	session.mu.Unlock()
	time.Sleep(50 * time.Millisecond)
	held := make(chan bool, 1)
	go func() { held <- session.Held() }()
	select {
	case <-held:
	case <-time.After(5 * time.Second):
		t.Fatal("Session.Held has not returned in 5 s: Session.mu and the term's mu are locked in both orders")
	}
	cancel()
	<-done
}

// What a debt remembers of its failed writes is bounded.
func TestDebtThatNeverSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &forbiddingStore{Store: NewMemStore()}
		session, err := NewSession(store, "sessions/a", WithLogger(nil))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- session.Run(ctx) }()
		l, err := session.Lock("locks/x")
		require.NoError(t, err)
		lease, err := l.Acquire(t.Context())
		require.NoError(t, err)
		store.on = true
		require.Error(t, lease.Release(t.Context()))
		time.Sleep(24 * time.Hour)
		lease.t.mu.Lock()
		n := len(lease.t.unconfirmed)
		lease.t.mu.Unlock()
		cancel()
		<-done
		require.Less(t, n, 100, "records kept in memory after a day")
	})
}

type forbiddingStore struct {
	Store
	on bool
}

func (s *forbiddingStore) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if s.on && key == "locks/x" {
		return "", fmt.Errorf("writing: %w: access denied", ErrPermanent)
	}
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

// The wait for the end of a term whose object was replaced counts from a look that was sent after the lock was read that names the term.
func TestAnOldSightOfAnotherObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		body, err := Record{Token: 1, Holder: "other", TTL: 15 * time.Second, ExpiresAt: time.Now(), Nonce: "n", SessionID: "of another"}.MarshalJSON()
		require.NoError(t, err)
		_, err = store.PutIfNoneMatch(t.Context(), "sessions/a", body)
		require.NoError(t, err)
		l, err := NewLock(store, "locks/x", WithLogger(nil))
		require.NoError(t, err)
		p := l.peers().get(l, "sessions/a")
		judge := func(id string) time.Duration {
			said, err := p.judge(t.Context(), SessionTerm{Lock: l.key, Key: "sessions/a", ID: id, Token: 1, TTL: 15 * time.Second}, l.clock.Now().Mono, true)
			require.NoError(t, err)
			require.False(t, said.free)
			return said.wait
		}
		require.Equal(t, 15300*time.Millisecond, judge("first"))
		time.Sleep(2 * time.Second)
		require.Equal(t, 13300*time.Millisecond, judge("first"))
		require.Equal(t, 15300*time.Millisecond, judge("second"))
	})
}
