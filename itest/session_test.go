package itest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testserver"
)

// liveSession is a session that runs, and its connection to the server.
type liveSession struct {
	*leasehold.Session
	link  *link
	terms atomic.Uint64 // the token of the last term
	end   func() error  // ends Run and returns its error
}

// startSession runs a session until end, or until the test ends.
func startSession(t *testing.T, l *link, key string, opts ...leasehold.Option) *liveSession {
	t.Helper()
	s := &liveSession{link: l}
	opts = append(opts, leasehold.WithLogger(nil), leasehold.WithObserver(func(e leasehold.Event) {
		if e.Kind == leasehold.EventAcquired && e.Key == key {
			s.terms.Store(e.Token)
		}
	}))
	var err error
	s.Session, err = leasehold.NewSession(l.store, key, opts...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	s.end = sync.OnceValue(func() error {
		cancel()
		return <-ran
	})
	t.Cleanup(func() { _ = s.end() })
	require.Eventually(t, s.Held, 20*time.Second, time.Millisecond)
	return s
}

func (s *liveSession) lock(t *testing.T, key string) *leasehold.Lock {
	t.Helper()
	lock, err := s.Lock(key)
	require.NoError(t, err)
	return lock
}

// newKeyedLink is a link through a proxy, so that connections break. A request is one try, and each key has a plan of its own.
func newKeyedLink(t *testing.T, server testserver.S3, bucket string) *keyedLink {
	t.Helper()
	k := &keyedLink{link: &link{}, plans: make(map[string][]planned)}
	proxy := faultproxy.Start(t, server.Endpoint, k.next)
	k.Transport, server.Endpoint = proxy.Transport, proxy.URL()
	k.store = leasehold.NewS3Store(server.Client(func(o *s3.Options) { o.RetryMaxAttempts = 1 }), bucket)
	return k
}

// keyedLink is a link with faults planned for the requests on one key.
type keyedLink struct {
	*link
	mu    sync.Mutex
	plans map[string][]planned
}

// failOn plans a fault for the next request with this method on a key, after those planned before.
func (k *keyedLink) failOn(key, method string, f faultproxy.Fault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plans[key] = append(k.plans[key], planned{method, f})
}

func (k *keyedLink) next(r *http.Request) faultproxy.Fault {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/") // after the bucket
	k.mu.Lock()
	defer k.mu.Unlock()
	plan := k.plans[key]
	if len(plan) == 0 || plan[0].method != r.Method {
		return faultproxy.Fault{}
	}
	k.plans[key] = plan[1:]
	return plan[0].fault
}

// pending is how many planned faults no request has met.
func (k *keyedLink) pending() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, plan := range k.plans {
		n += len(plan)
	}
	return n
}

// At the HTTP level, a process that holds 1,000 locks under a session sends one PUT per renew interval, one that waits for all of
// them sends two GETs per poll interval at most, and the graceful end is one PUT.
func TestSessionRequestCounts(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		const (
			locks = 1000
			ttl   = 15 * time.Second
			renew = ttl / 3
			poll  = ttl / 5
		)
		bucket := server.Bucket(t)
		holder := startSession(t, newLink(t, server, bucket), "sessions/holder", leasehold.WithTTL(ttl))
		waiter := startSession(t, newLink(t, server, bucket), "sessions/waiter", leasehold.WithTTL(ttl))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		lead := func(s *liveSession, led *atomic.Int64, token uint64) {
			for i := range locks {
				lock := s.lock(t, fmt.Sprint("locks/", i))
				running.Go(func() {
					err := lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
						assert.GreaterOrEqual(t, lease.Token(), token) // above it, if a reply came too late
						led.Add(1)
						<-ctx.Done()
						return nil
					})
					assert.True(t, err == nil || ctx.Err() != nil, "%v", err)
				})
			}
		}
		all := func(led *atomic.Int64) {
			t.Helper()
			require.Eventually(t, func() bool { return led.Load() == locks }, time.Minute, time.Millisecond)
		}
		renewed := func() { // until just after a renewal
			t.Helper()
			before := holder.link.Count("PUT")
			require.Eventually(t, func() bool { return holder.link.Count("PUT") > before }, 2*renew, time.Millisecond)
		}
		var led, ledNext atomic.Int64
		lead(holder, &led, 1)
		all(&led)

		lead(waiter, &ledNext, 2)
		require.Eventually(t, func() bool { return waiter.link.Count("GET") >= locks }, time.Minute, 10*time.Millisecond)
		renewed()
		time.Sleep(poll) // for those that came too late for the first look at the session
		puts, gets := holder.link.Count("PUT"), holder.link.Count("GET")
		var perPoll []int
		began := time.Now()
		for range 6 {
			before := waiter.link.Count("GET")
			time.Sleep(poll)
			perPoll = append(perPoll, waiter.link.Count("GET")-before)
		}
		intervals := time.Since(began).Seconds() / renew.Seconds()
		renewals := holder.link.Count("PUT") - puts
		require.InDelta(t, intervals, renewals, 1+intervals/20) // renewals come up to a twentieth early
		require.Equal(t, gets, holder.link.Count("GET"), "a holder does not read")
		slices.Sort(perPoll)
		require.LessOrEqual(t, perPoll[len(perPoll)/2], 2, "GETs of the waiter in %d poll intervals: %v", len(perPoll), perPoll)

		renewed()
		before, waiterBefore := len(holder.link.Requests()), len(waiter.link.Requests())
		ended := time.Now()
		require.NoError(t, holder.end())
		last := holder.link.Requests()[before:]
		require.Len(t, last, 1, "%+v", last)
		require.Equal(t, "PUT", last[0].Method)
		all(&ledNext)
		t.Logf("%d renewals in %.1f intervals; GETs of the waiter in a poll interval: %v; all led by the waiter %.2f poll intervals after the "+
			"end, by %d requests", renewals, intervals, perPoll, time.Since(ended).Seconds()/poll.Seconds(), len(waiter.link.Requests())-waiterBefore)
	})
}

const ambiguousTTL = 10 * time.Second // so that a busy machine answers in time

// leaningFaults are the ambiguous ones, and one more that lands when the session has long gone on.
func leaningFaults() map[string]faultproxy.Fault {
	faults := map[string]faultproxy.Fault{"lands one and a half TTLs late": {Kind: faultproxy.Ghost, Before: ambiguousTTL * 3 / 2}}
	for name, f := range ambiguous {
		faults[name] = f
	}
	return faults
}

// takesOver requires that a lock is soon led with the token.
func takesOver(t *testing.T, lock *leasehold.Lock, tokens ...uint64) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 5*ambiguousTTL)
	defer cancel()
	lease, err := lock.Acquire(ctx)
	if !assert.NoError(t, err, "%s is not free", lock.Key()) {
		return false
	}
	ok := assert.Contains(t, tokens, lease.Token(), lock.Key())
	return assert.NoError(t, lease.Release(t.Context())) && ok
}

// applied is how many writes on a key the server has carried out.
func (l *link) applied(key string) (n int) {
	for _, r := range l.Requests() {
		if r.Method == http.MethodPut && strings.HasSuffix(r.Path, "/"+key) && r.Applied == http.StatusOK {
			n++
		}
	}
	return n
}

// Whatever happens to the write of an acquisition, and to the read that follows, the lock does not stay with a holder that does not
// know of it: its session frees it.
func TestAmbiguousLeaningAcquisitions(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		bucket := server.Bucket(t)
		l := newKeyedLink(t, server, bucket)
		holder := startSession(t, l.link, "sessions/holder", leasehold.WithTTL(ambiguousTTL))
		other := startSession(t, newLink(t, server, bucket), "sessions/other", leasehold.WithTTL(ambiguousTTL))
		stays, err := holder.lock(t, "locks/stays").Acquire(t.Context())
		require.NoError(t, err)
		var orphans, longest atomic.Int64
		var cases sync.WaitGroup
		for name, fault := range leaningFaults() {
			known := "locks/known/" + name
			knows, knowsNext := holder.lock(t, known), other.lock(t, known)
			l.failOn(known, http.MethodPut, fault)
			cases.Go(func() { // the holder finds out
				lease, err := knows.Acquire(t.Context())
				if !assert.NoError(t, err, name) {
					return
				}
				if fault.Kind != faultproxy.Ghost { // it may land before its repetition, and is then a leftover
					assert.EqualValues(t, 1, lease.Token(), name)
				}
				_, err = knowsNext.TryAcquire(t.Context())
				assert.ErrorIs(t, err, leasehold.ErrHeld, name)
				assert.True(t, lease.Valid(), name)
				assert.NoError(t, lease.Renew(t.Context()), name)
				assert.NoError(t, lease.Release(t.Context()), name)
				takesOver(t, knowsNext, lease.Token()+1)
			})
			unknown := "locks/unknown/" + name
			forgets, forgetsNext := holder.lock(t, unknown), other.lock(t, unknown)
			l.failOn(unknown, http.MethodPut, fault)
			l.failOn(unknown, http.MethodGet, faultproxy.Fault{Kind: faultproxy.Answer}) // not Refuse, after which net/http repeats a GET
			cases.Go(func() {                                                            // nobody tries again
				lease, err := forgets.TryAcquire(t.Context())
				began := time.Now()
				switch {
				case err == nil:
					assert.NoError(t, lease.Release(t.Context()), name)
					takesOver(t, forgetsNext, 2)
					return
				case l.applied(unknown) > 0:
					orphans.Add(1)
					takesOver(t, forgetsNext, 2)
				default:
					takesOver(t, forgetsNext, 1, 2)
				}
				for took := int64(time.Since(began)); ; {
					if before := longest.Load(); took <= before || longest.CompareAndSwap(before, took) {
						return
					}
				}
			})
		}
		cases.Wait()
		require.NotZero(t, orphans.Load(), "no acquisition was applied without the holder's knowledge")
		require.EqualValues(t, 1, holder.terms.Load(), "the session was lost")
		require.True(t, stays.Valid())
		l.Wait() // for the ghosts
		for name := range leaningFaults() {
			for _, key := range []string{"locks/known/" + name, "locks/unknown/" + name} {
				takesOver(t, other.lock(t, key), 2, 3, 4)
			}
		}
		t.Logf("%d orphans, free again %.2f TTL after the acquisition at the latest", orphans.Load(), time.Duration(longest.Load()).Seconds()/ambiguousTTL.Seconds())
	})
}

// Whatever happens to the write of a release, the lock becomes free while the session lives, also if its holder made one attempt only.
func TestAmbiguousLeaningReleases(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		bucket := server.Bucket(t)
		l := newKeyedLink(t, server, bucket)
		holder := startSession(t, l.link, "sessions/holder", leasehold.WithTTL(ambiguousTTL))
		other := startSession(t, newLink(t, server, bucket), "sessions/other", leasehold.WithTTL(ambiguousTTL))
		over, cancel := context.WithCancel(t.Context())
		cancel()
		var failed atomic.Int64
		var cases sync.WaitGroup
		for name, fault := range leaningFaults() {
			for attempts, ctx := range map[string]context.Context{"some": t.Context(), "one": over} {
				key := "locks/" + attempts + "/" + name
				lock, next := holder.lock(t, key), other.lock(t, key)
				cases.Go(func() {
					lease, err := lock.Acquire(t.Context())
					if !assert.NoError(t, err, name) {
						return
					}
					l.failOn(key, http.MethodPut, fault)
					err = lease.Release(ctx)
					assert.False(t, lease.Valid())
					switch {
					case attempts == "some":
						assert.NoError(t, err, name)
					case err != nil:
						failed.Add(1)
					}
					takesOver(t, next, 2)
				})
			}
		}
		cases.Wait()
		require.NotZero(t, failed.Load(), "no release has failed, so the test proves little")
		require.EqualValues(t, 1, holder.terms.Load(), "the session was lost")
		require.Zero(t, l.pending())
		l.Wait() // for the ghosts
		for name := range leaningFaults() {
			takesOver(t, other.lock(t, "locks/one/"+name), 3)
		}
		t.Logf("%d releases failed", failed.Load())
	})
}

// Whatever happens to a renewal of the session and to its release, its term goes on, and its end frees the lock.
func TestAmbiguousSessionWrites(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		bucket := server.Bucket(t)
		other := startSession(t, newLink(t, server, bucket), "sessions/other", leasehold.WithTTL(ambiguousTTL))
		var cases sync.WaitGroup
		for name, fault := range leaningFaults() {
			l := newKeyedLink(t, server, bucket)
			key := "sessions/" + name
			holder := startSession(t, l.link, key, leasehold.WithTTL(ambiguousTTL))
			lock, next := holder.lock(t, "locks/"+name), other.lock(t, "locks/"+name)
			cases.Go(func() {
				lease, err := lock.Acquire(t.Context())
				if !assert.NoError(t, err, name) {
					return
				}
				l.failOn(key, http.MethodPut, fault)
				assert.NoError(t, lease.Renew(t.Context()), name)
				assert.True(t, lease.Valid(), name)
				assert.Zero(t, l.pending())
				_, err = next.TryAcquire(t.Context())
				assert.ErrorIs(t, err, leasehold.ErrHeld, name)
				assert.EqualValues(t, 1, holder.terms.Load(), name)

				l.failOn(key, http.MethodPut, fault)
				assert.NoError(t, holder.end(), name)
				assert.False(t, lease.Valid())
				takesOver(t, next, 2)
				assert.Zero(t, l.pending())
			})
		}
		cases.Wait()
	})
}

// Whatever happens to the write that seals a dead session, its lock is taken over once, and the session cannot come back to its term.
func TestAmbiguousSeals(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		bucket := server.Bucket(t)
		dead, l := newLink(t, server, bucket), newKeyedLink(t, server, bucket)
		candidate := startSession(t, l.link, "sessions/candidate", leasehold.WithTTL(ambiguousTTL))
		type dying struct {
			*liveSession
			lock  *leasehold.Lock
			lease *leasehold.Lease
		}
		sessions := make(map[string]dying)
		for name := range leaningFaults() {
			s := startSession(t, dead, "sessions/"+name, leasehold.WithTTL(ambiguousTTL))
			lock := s.lock(t, "locks/"+name)
			lease, err := lock.Acquire(t.Context())
			require.NoError(t, err)
			sessions[name] = dying{s, lock, lease}
		}
		dead.cut(true)
		died := time.Now()
		var longest time.Duration
		var taken []*leasehold.Lease
		var mu sync.Mutex
		var cases sync.WaitGroup
		for name, fault := range leaningFaults() {
			lock := candidate.lock(t, "locks/"+name)
			l.failOn("sessions/"+name, http.MethodPut, fault)
			cases.Go(func() {
				next, err := lock.Acquire(t.Context())
				took := time.Since(died)
				assert.False(t, sessions[name].lease.Valid(), name)
				if !assert.NoError(t, err, name) {
					return
				}
				assert.EqualValues(t, 2, next.Token(), name)
				session, err := leasehold.NewLock(l.store, "sessions/"+name)
				assert.NoError(t, err)
				rec, err := session.Inspect(t.Context())
				assert.NoError(t, err)
				assert.True(t, rec.Released(), "%s: taken over before the session's term was sealed", name)
				assert.EqualValues(t, 1, rec.Token)
				assert.Greater(t, took, ambiguousTTL*2/3-200*time.Millisecond, name) // the last renewal may be a renew interval old
				mu.Lock()
				defer mu.Unlock()
				longest, taken = max(longest, took), append(taken, next)
			})
		}
		cases.Wait()
		require.Zero(t, l.pending())
		dead.cut(false)
		for name, s := range sessions {
			require.Eventually(t, s.Held, 5*ambiguousTTL, 10*time.Millisecond, name)
			require.ErrorIs(t, context.Cause(s.lease.Context()), leasehold.ErrLost)
			_, err := s.lock.TryAcquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrHeld, name)
		}
		for _, next := range taken {
			require.True(t, next.Valid())
			require.NoError(t, next.Release(t.Context()))
		}
		require.EqualValues(t, 1, candidate.terms.Load())
		t.Logf("all taken over %.2f TTL after the end of the connection", longest.Seconds()/ambiguousTTL.Seconds())
	})
}

// A candidate that may not write the objects of other sessions cannot end an expired term. Its error names the permission.
func TestSealWithoutPermission(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		const ttl = 2 * time.Second
		bucket := server.Bucket(t)
		l := newLink(t, server, bucket)
		holder := startSession(t, l, "sessions/holder", leasehold.WithTTL(ttl))
		lease, err := holder.lock(t, "locks/core").Acquire(t.Context())
		require.NoError(t, err)

		restricted := newLink(t, server, bucket, func(o *s3.Options) {
			if strings.HasPrefix(server.Name, "minio") {
				o.Credentials = assumeRole(t, server, fmt.Sprintf(`{"Version": "2012-10-17", "Statement": [
					{"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::%[1]s/*"]},
					{"Effect": "Allow", "Action": ["s3:PutObject"], "Resource": ["arn:aws:s3:::%[1]s/locks/*", "arn:aws:s3:::%[1]s/sessions/restricted"]}]}`, bucket))
			}
		})
		if !strings.HasPrefix(server.Name, "minio") { // accounts of VersityGW have no policies
			restricted.Decide = func(r *http.Request) faultproxy.Fault {
				if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/sessions/holder") {
					return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusForbidden}
				}
				return faultproxy.Fault{}
			}
		}
		candidate := startSession(t, restricted, "sessions/restricted", leasehold.WithTTL(ttl))
		lock := candidate.lock(t, "locks/core")
		_, err = lock.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		l.cut(true)
		require.Eventually(t, func() bool {
			_, err = lock.TryAcquire(t.Context())
			return !errors.Is(err, leasehold.ErrHeld)
		}, 10*ttl, ttl/10)
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "s3:PutObject")
		require.ErrorContains(t, err, "sessions/holder")
		_, err = lock.Acquire(t.Context()) // does not wait, because waiting gives no permission
		require.ErrorIs(t, err, leasehold.ErrPermanent)

		// Somebody who has the permission ends the term. Then the others need none.
		takesOver(t, newLeaningLock(t, server, bucket), 2)
		takesOver(t, lock, 3)
		require.False(t, lease.Valid())
		l.cut(false)
	})
}

// newLeaningLock returns the lock "locks/core" of a session of its own.
func newLeaningLock(t *testing.T, server testserver.S3, bucket string) *leasehold.Lock {
	t.Helper()
	return startSession(t, newLink(t, server, bucket), "sessions/"+strings.ReplaceAll(t.Name(), "/", "-")).lock(t, "locks/core")
}

// interference is what somebody does to the object of a session.
type interference struct {
	do      func(s *scene)
	cause   string // why the lease was lost
	corrupt bool   // somebody must repair the object before anyone can lead
	atOnce  bool   // others may lead before the holder knows: see Lock.Break
}

// scene is a holder of one lock and a candidate for it, while somebody interferes with the holder's session.
type scene struct {
	t      *testing.T
	store  *leasehold.S3Store
	put    func(key string, body []byte)
	remove func(key string)
	key    string           // of the holder's session
	object leasehold.Object // there, some renewals ago
	lock   *leasehold.Lock  // of the holder
	lease  *leasehold.Lease
	next   *leasehold.Lock // of the candidate
}

// edited is the session's record with a change.
func (s *scene) edited(edit func(*leasehold.Record)) []byte {
	var rec leasehold.Record
	assert.NoError(s.t, rec.UnmarshalJSON(s.object.Body))
	edit(&rec)
	body, err := rec.MarshalJSON()
	assert.NoError(s.t, err)
	return body
}

func (s *scene) breakSession(token uint64) {
	lock, err := leasehold.NewLock(s.store, s.key, leasehold.WithLogger(nil))
	assert.NoError(s.t, err)
	assert.NoError(s.t, lock.Break(s.t.Context(), token))
}

var interferences = map[string]interference{
	"deleted":       {do: func(s *scene) { s.remove(s.key) }, cause: "deleted|broken"}, // a candidate puts a released record there
	"broken":        {do: func(s *scene) { s.breakSession(1) }, cause: "broken", atOnce: true},
	"older version": {do: func(s *scene) { s.put(s.key, s.object.Body) }, cause: "taken over"},
	"foreign client": {do: func(s *scene) {
		s.put(s.key, fmt.Appendf(nil, `{"expires_at": %d, "token": 1}`, time.Now().Add(time.Hour).Unix()))
	}, cause: "taken over"},
	"foreign client, released": {do: func(s *scene) { s.put(s.key, []byte(`{"expires_at": 0}`)) }, cause: "taken over"},
	"another session": {do: func(s *scene) {
		s.put(s.key, s.edited(func(r *leasehold.Record) { r.SessionID, r.Holder, r.Nonce = "another", "somebody else", "x" }))
	}, cause: "taken over"},
	"another session, released": {do: func(s *scene) {
		s.put(s.key, s.edited(func(r *leasehold.Record) { r.SessionID, r.ExpiresAt = "another", time.Time{} }))
	}, cause: "broken"},
	"leaning lock": {do: func(s *scene) {
		o, err := s.store.Get(s.t.Context(), s.lock.Key())
		assert.NoError(s.t, err)
		s.put(s.key, o.Body)
	}, cause: "taken over"},
	"garbage":       {do: func(s *scene) { s.put(s.key, []byte("<html>maintenance</html>")) }, cause: "overwritten", corrupt: true},
	"empty":         {do: func(s *scene) { s.put(s.key, nil) }, cause: "overwritten", corrupt: true},
	"half a record": {do: func(s *scene) { s.put(s.key, s.object.Body[:len(s.object.Body)/2]) }, cause: "overwritten", corrupt: true},
}

const interferenceTTL = 3 * time.Second

// Whatever somebody puts in the place of a session's object, its lock is led by one at a time, with token after token. It makes no
// difference whether the candidate has waited before.
func TestSessionInterference(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		client, bucket := server.Client(), server.Bucket(t)
		ttl := leasehold.WithTTL(interferenceTTL)
		candidates := newLink(t, server, bucket)
		waiting := startSession(t, candidates, "sessions/waiting", ttl)
		var cases sync.WaitGroup
		defer cases.Wait()
		for name, c := range interferences {
			for _, waits := range []bool{true, false} {
				id := fmt.Sprintf("%s, waits %t", name, waits)
				s := &scene{t: t, store: leasehold.NewS3Store(client, bucket), key: "sessions/" + id}
				s.put = func(key string, body []byte) {
					_, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)})
					assert.NoError(t, err)
				}
				s.remove = func(key string) {
					_, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
					assert.NoError(t, err)
				}
				s.lock = startSession(t, newLink(t, server, bucket), s.key, ttl).lock(t, "locks/"+id)
				var err error
				s.lease, err = s.lock.Acquire(t.Context())
				require.NoError(t, err)
				s.object, err = s.store.Get(t.Context(), s.key)
				require.NoError(t, err)
				require.NoError(t, s.lease.Renew(t.Context())) // so that the record differs from s.object
				s.next = waiting.lock(t, s.lock.Key())
				if !waits { // knows nothing of the session
					s.next = startSession(t, candidates, "sessions/of newcomer/"+id, ttl).lock(t, s.lock.Key())
				}
				cases.Go(func() { s.run(id, c, waits) })
			}
		}
	})
}

func (s *scene) run(name string, c interference, waits bool) {
	t := s.t
	ctx, cancel := context.WithTimeout(t.Context(), 10*interferenceTTL)
	defer cancel()
	type result struct {
		lease  *leasehold.Lease
		err    error
		leader bool // the holder still is one
		at     time.Time
	}
	results := make(chan result, 1)
	take := func() {
		lease, err := s.next.Acquire(ctx)
		results <- result{lease, err, s.lease.Valid() || s.lease.Context().Err() == nil, time.Now()}
	}
	if waits {
		_, err := s.next.TryAcquire(ctx)
		assert.ErrorIs(t, err, leasehold.ErrHeld, name)
		go take()
		time.Sleep(interferenceTTL / 2)
	}
	did := time.Now()
	c.do(s)
	if c.corrupt {
		newcomer, err := leasehold.NewLock(s.store, s.lock.Key(), leasehold.WithLogger(nil))
		assert.NoError(t, err)
		_, err = newcomer.TryAcquire(ctx)
		assert.ErrorIs(t, err, leasehold.ErrCorruptRecord, name)
		assert.ErrorContains(t, err, s.key)
		assert.ErrorContains(t, err, "Lock.Break")
		time.Sleep(2 * interferenceTTL)
		_, err = newcomer.Acquire(ctx) // does not wait, because waiting cannot repair the record
		assert.ErrorIs(t, err, leasehold.ErrCorruptRecord, name)
		if waits { // who waits learns of it too
			assert.ErrorIs(t, (<-results).err, leasehold.ErrCorruptRecord, name)
		}
		s.breakSession(1)
	}
	if !waits || c.corrupt {
		go take()
	}
	next := <-results
	if !assert.NoError(t, next.err, name) {
		return
	}
	assert.True(t, c.atOnce || !next.leader, "%s: two leaders", name)
	assert.EqualValues(t, 2, next.lease.Token(), name)
	<-s.lease.Context().Done()
	assert.False(t, s.lease.Valid(), name)
	assert.ErrorIs(t, context.Cause(s.lease.Context()), leasehold.ErrLost, name)
	assert.Regexp(t, "("+c.cause+")|not renewed in time", context.Cause(s.lease.Context()).Error(), name)
	assert.True(t, next.lease.Valid(), name)
	assert.NoError(t, next.lease.Renew(ctx), name)
	_, err := s.lock.TryAcquire(ctx)
	assert.True(t, errors.Is(err, leasehold.ErrHeld) || errors.Is(err, leasehold.ErrNoSession), "%s: %v", name, err)
	assert.NoError(t, next.lease.Release(ctx), name)
	t.Logf("%s: led again after %.2f TTL", name, next.at.Sub(did).Seconds()/interferenceTTL.Seconds())
}
