package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gocronlock"
	"github.com/leasehold-go/leasehold/internal/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testserver"
)

// line is a store that can be cut off. It counts the writes of each key.
type line struct {
	leasehold.Store
	cut atomic.Bool

	mu     sync.Mutex
	writes map[string]int
}

var errCut = errors.New("cut off")

func (l *line) wrote(key string) error {
	if l.cut.Load() {
		return errCut
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writes == nil {
		l.writes = map[string]int{}
	}
	l.writes[key]++
	return nil
}

// take returns the writes so far and begins anew.
func (l *line) take() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.writes
	l.writes = nil
	return was
}

func (l *line) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if l.cut.Load() {
		return leasehold.Object{}, errCut
	}
	return l.Store.Get(ctx, key)
}

func (l *line) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if err := l.wrote(key); err != nil {
		return "", err
	}
	return l.Store.PutIfNoneMatch(ctx, key, body)
}

func (l *line) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := l.wrote(key); err != nil {
		return "", err
	}
	return l.Store.PutIfMatch(ctx, key, body, etag)
}

// open makes a session and runs it until end is called, which waits for its release.
func open(t *testing.T, store leasehold.Store, name string, opts ...leasehold.Option) (session *leasehold.Session, end func()) {
	t.Helper()
	session, err := leasehold.NewSession(store, "sessions/"+name, append([]leasehold.Option{
		leasehold.WithIdentity(name), leasehold.WithLogger(nil)}, opts...)...)
	require.NoError(t, err)
	return session, run(t, session)
}

func run(t *testing.T, session *leasehold.Session) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		assert.NoError(t, session.Run(ctx))
	}()
	end = func() {
		cancel()
		<-over
	}
	t.Cleanup(end)
	return end
}

func sessionLocker(t *testing.T, session *leasehold.Session) *gocronlock.Locker {
	t.Helper()
	l, err := gocronlock.NewSessionLocker(session, "jobs", spacing)
	require.NoError(t, err)
	return l
}

func TestNewSessionLockerRefusesBadInput(t *testing.T) {
	session, err := leasehold.NewSession(leasehold.NewMemStore(), "sessions/a")
	require.NoError(t, err)
	for want, create := range map[string]func() (*gocronlock.Locker, error){
		"NewSession":         func() (*gocronlock.Locker, error) { return gocronlock.NewSessionLocker(nil, "jobs", spacing) },
		"empty path segment": func() (*gocronlock.Locker, error) { return gocronlock.NewSessionLocker(session, "jobs/", spacing) },
		"spacing 0s":         func() (*gocronlock.Locker, error) { return gocronlock.NewSessionLocker(session, "jobs", 0) },
		"decided by the session": func() (*gocronlock.Locker, error) {
			return gocronlock.NewSessionLocker(session, "jobs", spacing, leasehold.WithTTL(time.Minute))
		},
	} {
		l, err := create()
		require.ErrorContains(t, err, want)
		require.Nil(t, l)
	}
}

func TestSlotsUnderSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		lines := []*line{{Store: mem}, {Store: mem}, {Store: mem}}
		var processes []*process
		for i, store := range lines {
			session, _ := open(t, store, fmt.Sprint(i))
			processes = append(processes, beginWith(t, sessionLocker(t, session), time.Duration(i-1)*time.Second))
		}
		processes = append(processes, begin(t, mem, 2*time.Second)) // without a session
		const slots = 60
		to(30)
		for _, p := range processes {
			p.everyMinute(t, "job", "job")
			p.Start()
		}
		time.Sleep(slots * time.Minute)
		runs := 0
		for _, p := range processes {
			runs += len(p.seen())
			for _, err := range p.failures() {
				require.True(t, errors.Is(err, gocronlock.ErrAlreadyRan) || errors.Is(err, leasehold.ErrHeld), "%v", err)
			}
		}
		require.Equal(t, slots, runs)
		for i, store := range lines {
			require.LessOrEqual(t, store.take()["jobs/job"], 3*len(processes[i].seen()), "as without a session")
		}
	})
}

func TestLongJobUnderASessionSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, mem := t.Context(), leasehold.NewMemStore()
		store := &line{Store: mem}
		session, _ := open(t, store, "a")
		a, b := sessionLocker(t, session), newLocker(t, mem)
		synctest.Wait()
		lock, err := a.Lock(ctx, "job")
		require.NoError(t, err)
		lease := a.Lease("job")
		require.Equal(t, map[string]int{"sessions/a": 1, "jobs/job": 2}, store.take())
		for range 10 {
			time.Sleep(time.Minute)
			for _, l := range []*gocronlock.Locker{a, b} {
				_, err = l.Lock(ctx, "job")
				require.ErrorIs(t, err, leasehold.ErrHeld)
			}
		}
		require.True(t, lease.Valid())
		require.Zero(t, store.take()["jobs/job"], "the session renews itself")
		require.NoError(t, lock.Unlock(ctx))
		require.Equal(t, 1, store.take()["jobs/job"])
		lock, err = b.Lock(ctx, "job")
		require.NoError(t, err)
		require.Greater(t, b.Lease("job").Token(), lease.Token())
		require.NoError(t, lock.Unlock(ctx))
	})
}

func TestRunsWithoutTheSessionAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session, err := leasehold.NewSession(leasehold.NewMemStore(), "sessions/a", leasehold.WithLogger(nil))
		require.NoError(t, err)
		p := beginWith(t, sessionLocker(t, session), 0)
		p.everyMinute(t, "job", "job")
		p.Start()
		to(30)
		to(20)
		require.Empty(t, p.seen())
		require.Len(t, p.failures(), 1)
		require.ErrorIs(t, p.failures()[0], leasehold.ErrNoSession)
		end := run(t, session)
		to(10)
		require.Equal(t, []string{"job 02:00"}, p.seen())
		end()
		to(10)
		require.Len(t, p.failures(), 2)
		require.ErrorIs(t, p.failures()[1], leasehold.ErrNoSession)
	})
}

// TestLossOfTheSessionEndsRuns cuts off an instance during a run. Another one takes over.
func TestLossOfTheSessionEndsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		store := &line{Store: mem}
		first, _ := open(t, store, "a")
		second, endSecond := open(t, mem, "b")
		a, b := beginWith(t, sessionLocker(t, first), -time.Second), beginWith(t, sessionLocker(t, second), -2*time.Second)
		ended := make(chan error, 1)
		_, err := a.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(func() {
			lease := a.locker.Lease("job")
			<-lease.Context().Done()
			ended <- context.Cause(lease.Context())
		}), gocron.WithName("job"))
		require.NoError(t, err)
		b.everyMinute(t, "job", "b")
		a.Start()
		b.Start()
		to(10)
		require.NotNil(t, a.locker.Lease("job"))
		time.Sleep(10 * time.Minute)
		require.Empty(t, b.seen())
		to(40)
		store.cut.Store(true)
		to(20)
		require.ErrorIs(t, <-ended, leasehold.ErrLost)
		require.Nil(t, a.locker.Lease("job"), "gocron has unlocked it")
		require.Empty(t, b.seen(), "it has just seen the last renewal")
		to(10)
		require.Len(t, b.seen(), 1)
		require.EqualValues(t, 2, tokenOf(t, mem))

		store.cut.Store(false) // its session heals by itself
		require.NoError(t, b.Shutdown())
		endSecond()
		to(10)
		require.NotNil(t, a.locker.Lease("job"))
		require.EqualValues(t, 3, a.locker.Lease("job").Token())
		store.cut.Store(true) // so that the job returns
		require.ErrorIs(t, <-ended, leasehold.ErrLost)
		store.cut.Store(false)
	})
}

func tokenOf(t *testing.T, store leasehold.Store) uint64 {
	t.Helper()
	lock, err := leasehold.NewLock(store, "jobs/job")
	require.NoError(t, err)
	rec, err := lock.Inspect(t.Context())
	require.NoError(t, err)
	return rec.Token
}

func TestElectorUnderASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		begin := func(store leasehold.Store, name string) (gocron.Elector, func()) {
			session, end := open(t, store, name)
			lock, err := session.Lock("leader")
			require.NoError(t, err)
			e, err := leasehold.NewElector(lock, leasehold.Callbacks{})
			require.NoError(t, err)
			go e.Run(t.Context())
			synctest.Wait()
			return gocronlock.NewElector(e), end
		}
		store := &line{Store: mem}
		first, _ := begin(store, "a")
		second, endSecond := begin(mem, "b")
		require.NoError(t, first.IsLeader(t.Context()))
		require.ErrorContains(t, second.IsLeader(t.Context()), `"a" with token 1`)
		time.Sleep(10 * time.Minute)
		require.NoError(t, first.IsLeader(t.Context()))

		store.cut.Store(true)
		for cut := time.Now(); second.IsLeader(t.Context()) != nil; time.Sleep(10 * time.Millisecond) {
			require.Less(t, time.Since(cut), 20*time.Second)
		}
		require.ErrorIs(t, first.IsLeader(t.Context()), gocronlock.ErrNotLeader)
		store.cut.Store(false)
		time.Sleep(time.Minute)
		require.ErrorContains(t, first.IsLeader(t.Context()), `"b" with token 2`)

		endSecond()
		require.ErrorIs(t, second.IsLeader(t.Context()), gocronlock.ErrNotLeader)
		time.Sleep(5 * time.Second)
		require.NoError(t, first.IsLeader(t.Context()))
	})
}

func TestSlotsUnderSessionsThroughABucket(t *testing.T) {
	t.Parallel()
	const every, ttl = 2 * time.Second, 5 * time.Second
	server := testserver.MinIO(t)
	bucket, count := server.Bucket(t), &tally{every: every}
	type instance struct {
		gocron.Scheduler
		session *leasehold.Session
		end     func()
		cut     *atomic.Bool
		runs    *atomic.Int64
	}
	var all []instance
	for i := range 3 {
		in := instance{cut: new(atomic.Bool), runs: new(atomic.Int64)}
		proxy := faultproxy.Start(t, server.Endpoint, func(*http.Request) faultproxy.Fault {
			if in.cut.Load() {
				return faultproxy.Fault{Kind: faultproxy.Refuse}
			}
			return faultproxy.Fault{}
		})
		base := &http.Transport{}
		t.Cleanup(base.CloseIdleConnections)
		in.session, in.end = open(t, leasehold.NewS3Store(server.Client(func(o *s3.Options) {
			o.BaseEndpoint = aws.String(proxy.URL())
			o.HTTPClient = &http.Client{Transport: base}
		}), bucket), fmt.Sprint(i), leasehold.WithTTL(ttl))
		locker, err := gocronlock.NewSessionLocker(in.session, "jobs", every/2)
		require.NoError(t, err)
		in.Scheduler, err = gocron.NewScheduler(gocron.WithDistributedLocker(locker), gocron.WithLocation(time.UTC))
		require.NoError(t, err)
		_, err = in.NewJob(gocron.CronJob("*/2 * * * * *", true), gocron.NewTask(func() {
			count.begin(time.Now())
			defer count.end()
			in.runs.Add(1)
			time.Sleep(300 * time.Millisecond) // the job's work
		}), gocron.WithName("job"), gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
			if !in.cut.Load() && !errors.Is(err, gocronlock.ErrAlreadyRan) && !errors.Is(err, leasehold.ErrHeld) && !errors.Is(err, context.Canceled) {
				count.failed(err)
			}
		})))
		require.NoError(t, err)
		require.Eventually(t, in.session.Held, ttl, ttl/100)
		all = append(all, in)
	}
	for _, in := range all {
		in.Start()
		t.Cleanup(func() { in.Shutdown() })
	}
	total := func() (n int64) {
		for _, in := range all {
			n += in.runs.Load()
		}
		return n
	}
	more := func(n int64) {
		t.Helper()
		want := total() + n
		require.Eventually(t, func() bool { return total() >= want }, 20*every, every/100)
	}
	more(3)
	require.NoError(t, all[0].Shutdown())
	all[0].end()
	more(3)
	t.Logf("%d slots, %d runs", count.check(t), total())
	all[1].cut.Store(true) // it has crashed, and may leave a lock behind that leans on its session
	more(3)
	require.False(t, count.overlap)
	require.Empty(t, count.errs)
	all[1].cut.Store(false)
}
