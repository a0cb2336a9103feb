package itest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/itest"
	"github.com/leasehold-go/leasehold/storetest"
)

// eachServer runs a test against every server, in parallel with each other and with other tests.
func eachServer(t *testing.T, test func(t *testing.T, server testserver.S3)) {
	t.Helper()
	t.Parallel()
	servers(t, test)
}

// servers is eachServer for a test that is parallel already.
func servers(t *testing.T, test func(t *testing.T, server testserver.S3)) {
	t.Helper()
	for _, server := range itest.Servers(t) {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			test(t, server)
		})
	}
}

func newLock(t *testing.T, store leasehold.Store, opts ...leasehold.Option) *leasehold.Lock {
	t.Helper()
	lock, err := leasehold.NewLock(store, "locks/core", opts...)
	require.NoError(t, err)
	return lock
}

// link is one client's connection to a server. It can be cut, faults can be planned, and requests
// are counted.
type link struct {
	*faultproxy.Transport
	store leasehold.Store
	mu    sync.Mutex
	plan  []planned
	down  bool
	gets  []time.Time // when each GET was sent
}

// planned is a fault for the next request with this method.
type planned struct {
	method string
	fault  faultproxy.Fault
}

func newLink(t *testing.T, server testserver.S3, bucket string, options ...func(*s3.Options)) *link {
	t.Helper()
	l := unlinked(t)
	l.store = leasehold.NewS3Store(server.Client(append(options, func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: l.Transport}
	})...), bucket)
	return l
}

// unlinked is a link whose store is still missing.
func unlinked(t *testing.T) *link {
	l := &link{}
	base := &http.Transport{MaxIdleConnsPerHost: 64}
	l.Transport = &faultproxy.Transport{Base: base, Decide: l.decide}
	t.Cleanup(func() {
		l.Close()
		base.CloseIdleConnections()
	})
	return l
}

func (l *link) decide(r *http.Request) faultproxy.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Method == http.MethodGet {
		l.gets = append(l.gets, time.Now())
	}
	if l.down {
		return faultproxy.Fault{Kind: faultproxy.Refuse, Before: time.Minute} // no reply, as from a dead network
	}
	if len(l.plan) == 0 || l.plan[0].method != r.Method {
		return faultproxy.Fault{}
	}
	f := l.plan[0].fault
	l.plan = l.plan[1:]
	return f
}

func (l *link) fail(method string, f faultproxy.Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plan = append(l.plan, planned{method, f})
}

func (l *link) cut(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
}

// looksSince is how many GETs were sent after a time.
func (l *link) looksSince(when time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.gets {
		if at.After(when) {
			n++
		}
	}
	return n
}

// Looks are a fifth of a TTL apart. The first after a dead holder's TTL takes the lock, or the
// second if a reply was slow.
const mostLateLooks = 2

var raceRounds = testsize.Pick(50, 200)

func TestS3StoreConforms(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		busy(t)
		store := leasehold.NewS3Store(server.Client(), server.Bucket(t))
		known := []storetest.Option{storetest.Rounds(raceRounds)}
		if !server.DeleteIfMatch {
			known = append(known, storetest.IgnoresDeleteCondition())
		}
		if server.Name == "versitygw" {
			known = append(known, storetest.DeletesMissing())
		}
		storetest.Run(t, func(*testing.T) leasehold.Store { return store }, known...)
	})
}

func TestCheckStore(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		store := leasehold.NewS3Store(server.Client(), server.Bucket(t))
		report, err := leasehold.CheckStore(t.Context(), store, "locks/check")
		require.NoError(t, err)
		require.True(t, report.ConditionalPuts)
		require.Equal(t, server.DeleteIfMatch, report.ConditionalDeletes)
		require.Empty(t, report.Leftover)
		require.InDelta(t, 49, report.Requests, 3)
		t.Logf("%d requests", report.Requests)

		lease, err := newLock(t, store).TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// With 32 candidates, only one at a time is in the critical section, and the tokens are 1 to n.
func TestContention(t *testing.T) { eachServer(t, contention) }

func contention(t *testing.T, server testserver.S3) {
	const candidates, turns = 32, 3
	busy(t)
	bucket := server.Bucket(t)
	var inside atomic.Int32
	var fence leasehold.Fence
	var mu sync.Mutex
	seen := make(map[uint64]bool)
	var wg sync.WaitGroup
	for range candidates {
		store := leasehold.NewS3Store(server.Client(), bucket)
		wg.Go(func() {
			lock, err := leasehold.NewLock(store, "locks/contended", leasehold.WithTTL(5*time.Second),
				leasehold.WithPollInterval(100*time.Millisecond))
			if !assertNoError(t, err) {
				return
			}
			for range turns {
				assertNoError(t, lock.Do(minute(t), func(_ context.Context, lease *leasehold.Lease) error {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d inside at once", n)
					}
					defer inside.Add(-1)
					mu.Lock()
					seen[lease.Token()] = true
					mu.Unlock()
					return fence.Check(lease.Token())
				}))
			}
		})
	}
	wg.Wait()
	require.Len(t, seen, candidates*turns)
	require.GreaterOrEqual(t, fence.Token(), uint64(candidates*turns), "an acquisition that takes longer than a TTL "+
		"is given back")
}

func assertNoError(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// A holder that crashes is replaced at a candidate's first look after its TTL has passed, and not
// before.
func TestCrashTakeover(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		const ttl = 3 * time.Second
		bucket := server.Bucket(t)
		crashing, candidate := newLink(t, server, bucket), newLink(t, server, bucket)
		lease, err := newLock(t, crashing.store, leasehold.WithTTL(ttl)).Acquire(minute(t))
		require.NoError(t, err)
		crashed := time.Now()
		crashing.cut(true)

		// a TTL that a busy machine keeps
		next, err := newLock(t, candidate.store, leasehold.WithPollInterval(ttl/5)).Acquire(minute(t))
		took := time.Since(crashed)
		require.NoError(t, err)
		require.Equal(t, lease.Token()+1, next.Token())
		require.False(t, lease.Valid())
		require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
		require.Greater(t, took, ttl) // its first look came after the crash
		late := candidate.looksSince(crashed.Add(ttl * 11 / 10))
		require.LessOrEqual(t, late, mostLateLooks)
		t.Logf("%.2f TTL, %d looks, %d of them after the TTL", took.Seconds()/ttl.Seconds(),
			candidate.Count("GET"), late)
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestGracefulHandover(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		const poll = 500 * time.Millisecond
		bucket := server.Bucket(t)
		store := newLink(t, server, bucket).store
		lease, err := newLock(t, store).Acquire(minute(t))
		require.NoError(t, err)
		got := make(chan *leasehold.Lease, 1)
		waiting := newLink(t, server, bucket)
		go func() {
			next, err := newLock(t, waiting.store, leasehold.WithPollInterval(poll)).Acquire(minute(t))
			assertNoError(t, err)
			got <- next
		}()
		// it has looked, has tried the store with two writes and a read, and has looked again
		require.Eventually(t, func() bool {
			return waiting.Count("GET") > 2 && waiting.Count("PUT") == 2
		}, time.Minute, time.Millisecond)
		require.NoError(t, lease.Release(t.Context()))
		released, looks := time.Now(), waiting.Count("GET")
		heir := receive(t, got, "the lock is handed over")
		require.EqualValues(t, 2, heir.Token())
		require.LessOrEqual(t, waiting.Count("GET")-looks, 1, "the first look after the release takes the lock")
		t.Logf("%.2f of a poll interval", time.Since(released).Seconds()/poll.Seconds())
		require.NoError(t, heir.Release(t.Context()))
	})
}

// ambiguous has faults after which the sender cannot tell from the reply, if any, whether its write
// has landed.
var ambiguous = map[string]faultproxy.Fault{
	"applied, connection closed":        {Kind: faultproxy.DropReply},
	"applied, no reply in time":         {Kind: faultproxy.DropReply, After: time.Minute},
	"applied, answered 500":             {Kind: faultproxy.AnswerAfter, Status: 500},
	"applied, answered 503":             {Kind: faultproxy.AnswerAfter, Status: 503},
	"applied, answered 409":             {Kind: faultproxy.AnswerAfter, Status: 409},
	"applied, answered 412":             {Kind: faultproxy.AnswerAfter, Status: 412},
	"lands half a second late":          {Kind: faultproxy.Ghost, Before: 500 * time.Millisecond},
	"refused, 503 SlowDown":             {Kind: faultproxy.Answer, Status: 503},
	"refused, 409":                      {Kind: faultproxy.Answer, Status: 409},
	"refused, connection reset":         {Kind: faultproxy.Refuse},
	"refused, no reply in time":         {Kind: faultproxy.Refuse, Before: time.Minute},
	"refused, 500":                      {Kind: faultproxy.Answer, Status: 500},
	"refused, 429 TooManyRequests":      {Kind: faultproxy.Answer, Status: 429, Code: "TooManyRequests"},
	"refused, 400 RequestTimeout":       {Kind: faultproxy.Answer, Status: 400, Code: "RequestTimeout"},
	"applied, reply half a second late": {Kind: faultproxy.Pass, After: 500 * time.Millisecond},
}

const ambiguousTTL = 10 * time.Second // so that a busy machine answers in time

// Whatever happens to a write, the lock is neither lost nor held twice, and no token is issued
// twice.
func TestAmbiguousWrites(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) { ambiguousWrites(t, linksOnS3(server)) })
}

func linksOnS3(server testserver.S3) func(*testing.T) func() *link {
	return func(t *testing.T) func() *link {
		bucket := server.Bucket(t)
		return func() *link { return newLink(t, server, bucket) }
	}
}

// ambiguousWrites gets a place of its own for each of its tests, and links to it.
func ambiguousWrites(t *testing.T, place func(*testing.T) func() *link) {
	for name, fault := range ambiguous {
		for _, during := range []string{"acquire", "renew", "release"} {
			t.Run(name+", on "+during, func(t *testing.T) {
				t.Parallel()
				connect := place(t)
				l := connect()
				lock := newLock(t, l.store, leasehold.WithTTL(ambiguousTTL), leasehold.WithManualRenewal())
				at := func(step string) {
					if step == during {
						l.fail("PUT", fault)
					}
				}
				at("acquire")
				lease, err := lock.Acquire(minute(t))
				require.NoError(t, err)
				token := lease.Token()
				// the write may land before its repetition, and is then a leftover
				if during != "acquire" || fault.Kind != faultproxy.Ghost {
					require.EqualValues(t, 1, token)
				}
				at("renew")
				require.NoError(t, lease.Renew(t.Context()))
				require.True(t, lease.Valid())
				at("release")
				require.NoError(t, lease.Release(t.Context()))

				other := newLock(t, connect().store)
				rec, err := other.Inspect(t.Context())
				require.NoError(t, err)
				require.True(t, rec.Released())
				require.Equal(t, token, rec.Token)
				l.Wait() // for the ghost
				next, err := other.Acquire(minute(t))
				require.NoError(t, err)
				require.Equal(t, token+1, next.Token())
				require.NoError(t, next.Release(t.Context()))
			})
		}
	}
}

// withSkew makes the wall clock of the machine wrong.
func withSkew(d time.Duration) leasehold.Option {
	return testopt.WithClock(testopt.Clock(func(now *clock.Reading) { now.Wall += d }))
}

// The wall clocks of holder and candidate are an hour apart, in either direction. The candidate
// neither takes over a lock from a living holder nor waits longer for a dead one.
func TestWallClocksAnHourApart(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		for _, skew := range []time.Duration{-time.Hour, time.Hour} {
			t.Run(skew.String(), func(t *testing.T) {
				t.Parallel()
				const ttl = 6 * time.Second
				bucket := server.Bucket(t)
				holder, looking := newLink(t, server, bucket), newLink(t, server, bucket)
				lease, err := newLock(t, holder.store, leasehold.WithTTL(ttl)).Acquire(minute(t))
				require.NoError(t, err)
				candidate := newLock(t, looking.store, leasehold.WithTTL(ttl), withSkew(skew))

				wait := testctx.Within(t, 2*ttl)
				_, err = candidate.Acquire(wait)
				// not ErrHeld: the last look may have been too slow
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.True(t, lease.Valid())

				holder.cut(true)
				crashed := time.Now()
				next, err := candidate.Acquire(minute(t))
				require.NoError(t, err)
				require.EqualValues(t, 2, next.Token())
				require.False(t, lease.Valid())
				late := looking.looksSince(crashed.Add(ttl * 13 / 10)) // a TTL after the first look at its last renewal
				require.LessOrEqual(t, late, mostLateLooks)
				t.Logf("%.2f TTL, %d looks after the TTL", time.Since(crashed).Seconds()/ttl.Seconds(), late)
				require.NoError(t, next.Release(t.Context()))
			})
		}
	})
}

// If the object is deleted or overwritten by hand, the holder stops at its next renewal. A corrupt
// record stays until Break repairs it.
func TestInterference(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		client, bucket, key := server.Client(), server.Bucket(t), "locks/core"
		store := leasehold.NewS3Store(client, bucket)
		ctx := t.Context()
		put := func(body string) {
			o, err := store.Get(ctx, key)
			require.NoError(t, err)
			_, err = store.PutIfMatch(ctx, key, []byte(body), o.ETag)
			require.NoError(t, err)
		}
		acquire := func() *leasehold.Lease {
			lease, err := newLock(t, store, leasehold.WithManualRenewal()).TryAcquire(ctx)
			require.NoError(t, err)
			return lease
		}

		lease := acquire()
		_, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
		require.NoError(t, err)
		require.ErrorIs(t, lease.Renew(ctx), leasehold.ErrLost)
		require.ErrorContains(t, context.Cause(lease.Context()), "deleted")

		lease = acquire()
		put(fmt.Sprintf(`{"expires_at": %d}`, time.Now().Add(time.Hour).Unix()))
		require.ErrorIs(t, lease.Renew(ctx), leasehold.ErrLost)
		_, err = newLock(t, store).TryAcquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		put(fmt.Sprintf(`{"expires_at": %d}`, time.Now().Add(-time.Hour).Unix()))

		lease = acquire()
		put("<html>maintenance</html>")
		require.ErrorIs(t, lease.Renew(ctx), leasehold.ErrLost)
		lock := newLock(t, store)
		_, err = lock.TryAcquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
		_, err = lock.Acquire(ctx) // does not wait, because waiting cannot repair the record
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
		require.ErrorIs(t, lock.Break(ctx, 41), leasehold.ErrCorruptRecord) // nothing says that it was a lock
		put(`{"expires_at": -1, "token": 41}`)
		require.NoError(t, lock.Break(ctx, 41))
		require.EqualValues(t, 42, acquire().Token())
	})
}

func TestPermanentErrorsEndRunAtOnce(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		elector := func(store leasehold.Store) error {
			e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
			require.NoError(t, err)
			ctx := minute(t)
			err = e.Run(ctx)
			require.NoError(t, ctx.Err(), "Run retried a permanent error: %v", err)
			return err
		}
		err := elector(leasehold.NewS3Store(server.Client(), "no-such-bucket"))
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "create the bucket")

		wrong := server
		wrong.SecretKey = "wrong-secret"
		err = elector(leasehold.NewS3Store(wrong.Client(), server.Bucket(t)))
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "wrong secret key")
	})
}

// If credentials are refused during a term, the lease ends. The elector leads again once they are
// accepted, and not before.
func TestCredentialsRefusedMidTerm(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		l := newLink(t, server, server.Bucket(t))
		var refuse atomic.Bool
		inner := l.Decide
		l.Decide = func(r *http.Request) faultproxy.Fault {
			if refuse.Load() { // what S3 answers for an expired token; on these servers no token expires within a test
				return faultproxy.Fault{Kind: faultproxy.Answer, Status: 400, Code: "ExpiredToken"}
			}
			return inner(r)
		}
		started, stopped := make(chan uint64, 4), make(chan error, 4)
		e, err := leasehold.NewElector(newLock(t, l.store, leasehold.WithTTL(6*time.Second)), leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) { started <- lease.Token() },
			OnStoppedLeading: func(cause error) { stopped <- cause },
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- e.Run(ctx) }()
		require.EqualValues(t, 1, receive(t, started, "the first term"))
		refuse.Store(true)
		require.ErrorIs(t, receive(t, stopped, "the end of the first term"), leasehold.ErrLost)
		require.Empty(t, started)
		refuse.Store(false)
		require.EqualValues(t, 2, receive(t, started, "the second term"))
		cancel()
		require.NoError(t, receive(t, ran, "the end of Run"))
	})
}

// At the HTTP level, a cold acquisition is two requests. A warm acquisition, a renewal, a release
// and a poll are one each.
func TestRequestCounts(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		bucket := server.Bucket(t)
		l := newLink(t, server, bucket)
		tried, err := leasehold.NewLock(l.store, "locks/tried") // the first acquisition of a store tries its conditions
		require.NoError(t, err)
		require.NoError(t, tried.Do(minute(t), func(context.Context, *leasehold.Lease) error { return nil }))
		require.Equal(t, 2+2+1, l.Count("PUT")+l.Count("GET"), "first of a process: read, write, two that must be "+
			"refused; release")
		before := len(l.Requests())
		took := func(what string, want ...string) {
			t.Helper()
			var got []string
			for _, r := range l.Requests()[before:] {
				got = append(got, r.Method)
			}
			before += len(got)
			require.Equal(t, want, got, what)
		}
		lock := newLock(t, l.store, leasehold.WithManualRenewal())
		lease, err := lock.TryAcquire(t.Context())
		require.NoError(t, err)
		took("cold acquire", "GET", "PUT")
		require.NoError(t, lease.Renew(t.Context()))
		took("renew", "PUT")
		require.NoError(t, lease.Release(t.Context()))
		took("release", "PUT")
		lease, err = lock.TryAcquire(t.Context())
		require.NoError(t, err)
		took("warm acquire", "PUT")

		waiting := newLink(t, server, bucket)
		_, err = newLock(t, waiting.store).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Equal(t, 1, waiting.Count(), "poll")
		ctx := testctx.Within(t, 2*time.Second)
		_, err = newLock(t, waiting.store, leasehold.WithPollInterval(time.Minute),
			leasehold.WithTTL(time.Minute)).Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Equal(t, 2, waiting.Count("PUT"), "who waits tries the store")
		require.NoError(t, lease.Release(t.Context()))
	})
}

// Over a thousand acquisitions, or some of them, each followed by a release or a crash, the tokens
// are 1 to n.
func TestThousandCycles(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		busy(t)
		cycles := testsize.Pick[uint64](200, 1000)
		bucket := server.Bucket(t)
		client := server.Client()
		random := rand.New(rand.NewPCG(1, 2))
		crashes := 0
		process := func() *leasehold.Lock { // a new process knows nothing about the previous one, but has the same name
			return newLock(t, leasehold.NewS3Store(client, bucket), leasehold.WithHolder("pod-0"),
				leasehold.WithReclaim(),
				leasehold.WithManualRenewal(), testopt.NewProcess())
		}
		lock := process()
		for n := uint64(1); n <= cycles; n++ {
			lease, err := lock.TryAcquire(t.Context())
			require.NoError(t, err)
			require.Equal(t, n, lease.Token())
			if random.IntN(2) == 0 {
				crashes++
				lock = process()
				continue
			}
			require.NoError(t, lease.Release(t.Context()))
		}
		t.Logf("%d cycles, %d of them ended in a crash", cycles, crashes)
	})
}

// Three electors reach the server through a network that loses, delays or falsifies one request in
// five.
func TestElectorsOnALossyNetwork(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		const ttl = 2 * time.Second
		random := rand.New(rand.NewPCG(3, 4))
		var mu sync.Mutex
		faults := make([]faultproxy.Fault, 0, len(ambiguous))
		for _, f := range ambiguous {
			f.Before, f.After = min(f.Before, ttl), min(f.After, ttl)
			faults = append(faults, f)
		}
		calm := false
		proxy := faultproxy.Start(t, server.Endpoint, func(*http.Request) faultproxy.Fault {
			mu.Lock()
			defer mu.Unlock()
			if calm || random.IntN(5) > 0 {
				return faultproxy.Fault{}
			}
			return faults[random.IntN(len(faults))]
		})
		bucket := server.Bucket(t)
		far := server
		far.Endpoint = proxy.URL()

		var leases [3]atomic.Pointer[leasehold.Lease]
		var terms atomic.Int32
		var fence leasehold.Fence
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var electors []*leasehold.Elector
		for i := range leases {
			lock := newLock(t, leasehold.NewS3Store(far.Client(), bucket), leasehold.WithTTL(ttl))
			e, err := leasehold.NewElector(lock, leasehold.Callbacks{
				OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
					terms.Add(1)
					leases[i].Store(lease)
					for tick := time.NewTicker(5 * time.Millisecond); ; {
						select {
						case <-ctx.Done():
							return
						case <-tick.C:
							if !lease.Valid() {
								continue
							}
							// still, so this process was not just slow
							if err := fence.Check(lease.Token()); err != nil && lease.Valid() {
								t.Error(err)
							}
						}
					}
				},
			})
			require.NoError(t, err)
			electors = append(electors, e)
			wg.Go(func() {
				if err := e.Run(ctx); err != nil && !errors.Is(err, io.EOF) {
					t.Log("stepping down:", err) // every try of the release was lost
				}
			})
		}
		isOver := func(lease *leasehold.Lease) bool { return !lease.Valid() }
		until := time.Now().Add(testsize.Pick(6*time.Second, 12*time.Second))
		for time.Now().Before(until) {
			var valid []*leasehold.Lease
			for i := range leases {
				if lease := leases[i].Load(); lease != nil && lease.Valid() {
					valid = append(valid, lease)
				}
			}
			// A lease that is over is never valid again: two that were valid and still are were so
			// at the same time.
			require.LessOrEqual(t, len(slices.DeleteFunc(valid, isOver)), 1)
			if random := time.Now().UnixNano() % 400; random == 0 { // now and then the leader resigns
				for _, e := range electors {
					if e.IsLeader() {
						done, stop := context.WithCancel(ctx)
						stop()
						_ = e.Resign(done)
					}
				}
			}
			time.Sleep(time.Millisecond)
		}
		mu.Lock()
		calm = true
		mu.Unlock()
		require.Eventually(t, func() bool {
			return slices.ContainsFunc(electors, (*leasehold.Elector).IsLeader)
		}, time.Minute, 10*time.Millisecond, "no leader after the last fault")
		cancel()
		wg.Wait()
		t.Logf("%d terms, %d requests", terms.Load(), proxy.Count())
	})
}

// Behind a front that lets one write a second through to each object, as Cloudflare R2's and
// Storj's do, terms take their time and none is lost.
func TestRateLimitedServer(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		bucket := server.Bucket(t)
		var mu sync.Mutex
		var last time.Time
		limited, let := 0, 0
		renewals := func(n int) {
			t.Helper()
			written := func() int {
				mu.Lock()
				defer mu.Unlock()
				return let
			}
			before := written()
			require.Eventually(t, func() bool { return written()-before >= n }, time.Minute, 10*time.Millisecond)
		}
		newLimited := func() *leasehold.Lock {
			l := newLink(t, server, bucket)
			l.Decide = func(r *http.Request) faultproxy.Fault {
				mu.Lock()
				defer mu.Unlock()
				if r.Method != http.MethodPut {
					return faultproxy.Fault{}
				}
				if time.Since(last) < time.Second {
					limited++
					return faultproxy.Fault{
						Kind:   faultproxy.Answer,
						Status: http.StatusTooManyRequests,
						Code:   "TooManyRequests",
					}
				}
				last = time.Now()
				let++
				return faultproxy.Fault{}
			}
			store := leasehold.NewS3Store(server.Client(func(o *s3.Options) {
				o.HTTPClient = &http.Client{Transport: l.Transport}
			}), bucket, leasehold.WithMinTTL(10*time.Second))
			_, err := leasehold.NewLock(store, "locks/core", leasehold.WithTTL(9*time.Second))
			require.ErrorContains(t, err, "TTL 9s is below 10s, the minimum of this store")
			return newLock(t, store, leasehold.WithTTL(10*time.Second),
				leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
					if e.Kind == leasehold.EventLost {
						t.Errorf("token %d is lost: %v", e.Token, e.Err)
					}
				}))
		}
		locks := []*leasehold.Lock{newLimited(), newLimited()}
		for term := range 4 {
			lease, err := locks[term%2].Acquire(minute(t))
			require.NoError(t, err)
			require.EqualValues(t, term+1, lease.Token())
			require.NoError(t, lease.Commit(t.Context(), fmt.Appendf(nil, "of term %d", term)))
			if term == 2 {
				renewals(4) // which take more than a TTL
			}
			require.NoError(t, lease.Release(t.Context()))
		}
		require.NotZero(t, limited)
	})
}
