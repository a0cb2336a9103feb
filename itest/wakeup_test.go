package itest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// notified is a bucket whose MinIO posts a notification for every write. The receiver believes
// everybody: it checks no token, reads no message, and wakes every lock.
type notified struct {
	server   testserver.S3
	bucket   string
	receiver *httptest.Server
	posts    atomic.Int64
	mu       sync.Mutex
	locks    []*leasehold.Lock
}

// newNotified starts the server and the receiver, which passes each notification on through
// deliver.
func newNotified(t *testing.T, deliver func(wake func())) *notified {
	t.Helper()
	n := &notified{}
	n.receiver = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n.posts.Add(1)
		deliver(n.wake)
	}))
	t.Cleanup(n.receiver.Close)
	n.server, _ = testserver.StartMinIOWithWebhooks(t, "", n.receiver.URL)
	n.bucket = n.server.Bucket(t)
	n.server.Notify(t, n.bucket, "locks/")
	return n
}

func (n *notified) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, lock := range n.locks {
		lock.Wake()
	}
}

// newLock returns a lock as a process of its own has it, and its connection to the server.
func (n *notified) newLock(t *testing.T, opts ...leasehold.Option) (*leasehold.Lock, *link) {
	t.Helper()
	l := newLink(t, n.server, n.bucket)
	lock := newLock(t, l.store, opts...)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.locks = append(n.locks, lock)
	return lock, l
}

// passOn has three electors lead one after the other, each until the others know of it and it
// resigns. It returns the times from a resignation to the next term. Each must be below a limit.
func (n *notified) passOn(t *testing.T, limit time.Duration, opts ...leasehold.Option) (took []time.Duration) {
	t.Helper()
	const electors = 3
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	type term struct {
		elector *leasehold.Elector
		lease   *leasehold.Lease
		began   time.Time
	}
	terms := make(chan term, electors)
	waiting := make(map[*leasehold.Elector]bool)
	for range electors {
		lock, _ := n.newLock(t, opts...)
		var e *leasehold.Elector
		e, err := leasehold.NewElector(lock, leasehold.Callbacks{
			OnStartedLeading: func(_ context.Context, lease *leasehold.Lease) { terms <- term{e, lease, time.Now()} },
		})
		require.NoError(t, err)
		waiting[e] = true
		running.Go(func() { assertNoError(t, e.Run(ctx)) })
	}
	var last *leasehold.Lease
	resigned := time.Now()
	for i := range electors {
		var now term
		select {
		case now = <-terms:
		case <-time.After(limit):
			t.Fatalf("no leader %v after resignation %d", limit, i)
		}
		require.EqualValues(t, i+1, now.lease.Token())
		if last != nil {
			require.False(t, last.Valid())
			took = append(took, now.began.Sub(resigned))
		}
		last = now.lease
		delete(waiting, now.elector)
		require.Eventually(t, func() bool {
			for e := range waiting {
				if rec, ok := e.Leader(); !ok || rec.Token != now.lease.Token() {
					return false
				}
			}
			return true
		}, limit, time.Millisecond)
		require.True(t, now.lease.Valid())
		resigned = time.Now()
		require.NoError(t, now.elector.Resign(ctx))
	}
	return took
}

// Polls are two minutes apart, so within a minute only a notification can hand the lock over. It
// may come late or more than once.
func TestNotificationsHandOver(t *testing.T) {
	t.Parallel()
	for name, deliver := range map[string]func(wake func()){
		"at once": func(wake func()) { wake() },
		"twice":   func(wake func()) { wake(); time.AfterFunc(200*time.Millisecond, wake) },
		"late":    func(wake func()) { time.AfterFunc(time.Second, wake) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNotified(t, deliver)
			took := n.passOn(t, time.Minute, leasehold.WithTTL(10*time.Minute),
				leasehold.WithPollInterval(2*time.Minute))
			t.Logf("from a resignation to the next term: %v", took)
		})
	}
}

// If notifications are lost, candidates poll, and the server takes writes as before.
func TestLostNotifications(t *testing.T) {
	t.Parallel()
	n := newNotified(t, func(wake func()) { wake() })
	n.receiver.Close()
	took := n.passOn(t, time.Minute, leasehold.WithTTL(5*time.Second))
	require.Zero(t, n.posts.Load())
	t.Logf("from a resignation to the next term: %v", took)
}

// Somebody posts garbage and wakes the lock a million times. The candidate reads no more than its
// rate allows, the holder keeps the lock, and the release is noticed.
func TestFloodOfWakeUps(t *testing.T) {
	t.Parallel()
	busy(t)
	const poll = time.Second
	n := newNotified(t, func(wake func()) { wake() })
	options := []leasehold.Option{leasehold.WithTTL(15 * time.Second), leasehold.WithPollInterval(poll)}
	holder, _ := n.newLock(t, options...)
	lease, err := holder.Acquire(minute(t))
	require.NoError(t, err)
	candidate, requests := n.newLock(t, options...)
	next := make(chan *leasehold.Lease, 1)
	go func() {
		lease, err := candidate.Acquire(minute(t))
		assertNoError(t, err)
		next <- lease
	}()
	require.Eventually(t, func() bool { // it has looked, and has tried the store with two writes and a read
		return requests.Count("GET") > 1 && requests.Count("PUT") == 2
	}, time.Minute, time.Millisecond)

	began, before := time.Now(), requests.Count()
	var flood sync.WaitGroup
	for range 2 {
		flood.Go(func() {
			for range testsize.Pick(50_000, 500_000) {
				candidate.Wake()
			}
		})
		flood.Go(func() {
			for range testsize.Pick(500, 5_000) {
				res, err := http.Post(n.receiver.URL, "text/plain", strings.NewReader("\x00 not a notification"))
				if !assertNoError(t, err) {
					return
				}
				_ = res.Body.Close()
			}
		})
	}
	flood.Wait()
	reads, lasted := requests.Count()-before, time.Since(began)
	require.LessOrEqual(t, reads, 10+int(lasted/(poll/10))+int(lasted/(poll/2))+2,
		"ten at once, ten in a poll interval, and the polls, in %v", lasted)
	require.Greater(t, reads, 5, "a wake-up is a read")
	require.Equal(t, 2, requests.Count("PUT"), "no wake-up is a write")
	t.Logf("%d reads in %v", reads, lasted.Round(time.Millisecond))
	require.True(t, lease.Valid())
	require.NoError(t, lease.Context().Err())

	require.NoError(t, lease.Release(t.Context()))
	heir := receive(t, next, "the release is noticed")
	require.EqualValues(t, 2, heir.Token())
	require.NoError(t, heir.Release(t.Context()))
}
