package createonly_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/createonly"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testlog"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/storetest"
)

const key = "locks/report"

// object is the name of a version.
func object(version int) string {
	return fmt.Sprintf("%s/.leasehold-versions/.leasehold-%d", key, 9_999_999_999_999_999-version)
}

func TestConformance(t *testing.T) {
	b := newBucket()
	storetest.Run(t, func(*testing.T) leasehold.Store {
		return createonly.New(b)
	}, storetest.MissingIsPreconditionFailed(),
		storetest.Rounds(testsize.Pick(50, 200)), storetest.Plant(func(key string, body []byte) error {
			b.put(key+"/.leasehold-versions/.leasehold-9999999999999998", body)
			return nil
		}))
}

// write writes the versions from one to another, and returns the ETag of each.
func write(t *testing.T, s *createonly.Store, from, to int) map[int]string {
	t.Helper()
	etags := map[int]string{}
	o, err := s.Get(t.Context(), key)
	if errors.Is(err, leasehold.ErrNotExist) {
		require.Equal(t, 1, from)
	} else {
		require.NoError(t, err)
	}
	etag := o.ETag
	for n := from; n <= to; n++ {
		body := fmt.Appendf(nil, "version %d", n)
		if etag == "" {
			etag, err = s.PutIfNoneMatch(t.Context(), key, body)
		} else {
			etag, err = s.PutIfMatch(t.Context(), key, body, etag)
		}
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(etag, fmt.Sprint(n, "-")), "version %d has the ETag %s", n, etag)
		etags[n] = etag
	}
	synctest.Wait() // for the deletes
	return etags
}

func mustHold(t *testing.T, s *createonly.Store, body string) {
	t.Helper()
	o, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, body, string(o.Body))
}

// requireUnknown requires that an outcome is unknown: neither done nor refused.
func requireUnknown(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, leasehold.ErrPreconditionFailed)
	require.NotErrorIs(t, err, leasehold.ErrNotExist)
	require.NotErrorIs(t, err, leasehold.ErrPermanent)
}

// The sleeper has read its base when it falls asleep, or when it wakes up.
func TestTheSleeper(t *testing.T) {
	for newer := range 3 * createonly.Keep {
		onBucket(t, func(t *testing.T, b *bucket, s *createonly.Store) {
			base := write(t, s, 1, 5)[5]
			others := func() {
				if newer > 0 {
					write(t, s, 6, 5+newer)
				}
			}
			asleep := createonly.New(around(b, "create", others, nothing))
			_, err := asleep.PutIfMatch(t.Context(), key, []byte("woken"), base)
			switch {
			case newer == 0:
				require.NoError(t, err)
				mustHold(t, s, "woken")
				return
			case newer <= createonly.Keep:
				require.ErrorIs(t, err, leasehold.ErrPreconditionFailed, "version 6 is kept")
				mustHold(t, s, fmt.Sprint("version ", 5+newer))
				return
			default:
				require.Contains(t, b.names(), object(6), "the sleeper's create has landed")
				requireUnknown(t, err)
			}
			mustHold(t, s, fmt.Sprint("version ", 5+newer))
			_, err = s.PutIfMatch(t.Context(), key, []byte("woken"), base)
			require.ErrorIs(t, err, leasehold.ErrPreconditionFailed, "its base is gone")
			write(t, s, 6+newer, 6+newer)
			require.NotContains(t, b.names(), object(6), "what it has left is swept")
			require.Len(t, b.names(), min(6+newer, createonly.Keep))
		})
	}
}

// All objects were deleted by hand, and a process that was overlooked goes on. It must not write
// over what others have made since, whatever their number, nor begin a gap.
func TestAProcessThatWasOverlooked(t *testing.T) {
	for newer := range 9 {
		onBucket(t, func(t *testing.T, b *bucket, s *createonly.Store) {
			base := write(t, s, 1, 5)[5]
			for _, name := range b.names() {
				b.remove(name)
			}
			etag, last := "", ""
			for n := range newer {
				var err error
				if last = fmt.Sprint("another ", n); n == 0 {
					etag, err = createonly.New(b).PutIfNoneMatch(t.Context(), key, []byte(last))
				} else {
					etag, err = createonly.New(b).PutIfMatch(t.Context(), key, []byte(last), etag)
				}
				require.NoError(t, err)
			}
			before := b.names()
			_, err := s.PutIfMatch(t.Context(), key, []byte("overlooked"), base)
			require.ErrorIs(t, err, leasehold.ErrPreconditionFailed, "%d new versions", newer)
			require.ErrorIs(t, s.DeleteIfMatch(t.Context(), key, base), leasehold.ErrPreconditionFailed)
			require.Equal(t, before, b.names())
			if newer > 0 {
				mustHold(t, s, last)
			}
		})
	}
}

// The same for a lock: the overlooked leader loses it, and the new holder's goes on.
func TestALeaderThatWasOverlooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		take := func() *leasehold.Lease {
			lock, err := leasehold.NewLock(createonly.New(b), key, leasehold.WithManualRenewal(),
				leasehold.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			lease, err := lock.TryAcquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Renew(t.Context()))
			return lease
		}
		overlooked := take()
		for _, name := range b.names() {
			b.remove(name)
		}
		holder := take()
		require.ErrorIs(t, overlooked.Renew(t.Context()), leasehold.ErrLost)
		require.False(t, overlooked.Valid())
		require.NoError(t, holder.Renew(t.Context()))
		require.NoError(t, holder.Release(t.Context()))
	})
}

// The sleeper has read that there was nothing.
func TestTheSleeperWhoCreates(t *testing.T) {
	onBucket(t, func(t *testing.T, b *bucket, s *createonly.Store) {
		asleep := around(b, "create", func() { write(t, s, 1, createonly.Keep+1) }, nothing)
		_, err := createonly.New(asleep).PutIfNoneMatch(t.Context(), key, []byte("woken"))
		require.Contains(t, b.names(), object(1))
		requireUnknown(t, err)
		mustHold(t, s, fmt.Sprint("version ", createonly.Keep+1))
	})
}

// That the base is there proves nothing: its delete may be lost, and that of the next version not.
func TestTheBaseIsStillThere(t *testing.T) {
	onBucket(t, func(t *testing.T, b *bucket, s *createonly.Store) {
		base := write(t, s, 1, 5)[5]
		write(t, s, 6, 5+createonly.Keep+1)
		require.NotContains(t, b.names(), object(6))
		b.put(object(5), []byte("version 5"))
		_, err := s.PutIfMatch(t.Context(), key, []byte("woken"), base)
		requireUnknown(t, err)
		mustHold(t, s, fmt.Sprint("version ", 5+createonly.Keep+1))
	})
}

// around is a way to the bucket that calls before ahead of its first request of a kind, and after
// behind it.
func around(b *bucket, kind string, before, after func()) *client {
	first := true
	return b.on(kind, func(ctx context.Context, send func(context.Context) error) error {
		if !first {
			return send(ctx)
		}
		first = false
		before()
		defer after()
		return send(ctx)
	})
}

func nothing() {}

// A writer whose version is the base of others before it lists: it counts as long as nobody can
// have deleted it.
func TestAWriteCountsBelowTheBound(t *testing.T) {
	for newer := range createonly.Keep + 3 {
		onBucket(t, func(t *testing.T, b *bucket, s *createonly.Store) {
			base := write(t, s, 1, 1)[1]
			overtaken := createonly.New(around(b, "create", nothing, func() {
				if newer > 0 {
					write(t, s, 3, 2+newer)
				}
			}))
			_, err := overtaken.PutIfMatch(t.Context(), key, []byte("version 2"), base)
			if newer < createonly.Keep {
				require.NoError(t, err, "%d newer versions", newer)
			} else {
				requireUnknown(t, err)
			}
		})
	}
}

func TestALateDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		land := make(chan struct{})
		late := lateDeletes(b, land)
		s := createonly.New(b)
		write(t, createonly.New(late), 1, createonly.Keep+1)
		require.Contains(t, b.names(), object(1), "its delete is under way")
		write(t, s, createonly.Keep+2, 60)
		require.NotContains(t, b.names(), object(1), "another has deleted it")
		before := b.names()
		close(land)
		synctest.Wait()
		require.Equal(t, before, b.names())
		mustHold(t, s, "version 60")
		write(t, s, 61, 62)
	})
}

// lateDeletes holds deletes back until land is closed.
func lateDeletes(b *bucket, land <-chan struct{}) *client {
	return b.on("delete", func(ctx context.Context, send func(context.Context) error) error {
		<-land
		return send(context.WithoutCancel(ctx))
	})
}

func TestLostDeletesAreMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		broken := b.failing("delete", errReset)
		write(t, createonly.New(broken), 1, createonly.Keep+5)
		require.Len(t, b.names(), createonly.Keep+5)
		write(t, createonly.New(b), createonly.Keep+6, createonly.Keep+6)
		write(t, createonly.New(b), createonly.Keep+7, createonly.Keep+7)
		require.Len(t, b.names(), createonly.Keep)
	})
}

// Processes that write once and end do not end what they have begun in the background.
func TestProcessesThatEndAfterAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		etag := ""
		for n := range 10 * createonly.Keep {
			var ended atomic.Bool
			s := createonly.New(b.on("delete", func(ctx context.Context, send func(context.Context) error) error {
				time.Sleep(time.Second)
				if ended.Load() {
					return errReset // it is not sent
				}
				return send(ctx)
			}))
			var err error
			if n == 0 {
				etag, err = s.PutIfNoneMatch(t.Context(), key, []byte("x"))
			} else {
				etag, err = s.PutIfMatch(t.Context(), key, fmt.Append(nil, n), etag)
			}
			require.NoError(t, err)
			ended.Store(true)
			require.LessOrEqual(t, len(b.names()), 2*createonly.Keep+1)
		}
		time.Sleep(time.Minute) // for the last ones
	})
}

// A server on which deletes hang holds up no write for longer than its context.
func TestDeletesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		hang := make(chan struct{})
		s := createonly.New(lateDeletes(b, hang))
		etag := write(t, createonly.New(b.failing("delete", errReset)), 1, 100)[100]
		ctx := testctx.Within(t, time.Second)
		began := time.Now()
		_, err := s.PutIfMatch(ctx, key, []byte("version 101"), etag)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(began))
		mustHold(t, s, "version 101")
		close(hang)
	})
}

// Deletes that fail or hang for long are told, one that is lost is not.
func TestDeletesThatAreLeftUndoneAreTold(t *testing.T) {
	denied := fmt.Errorf("%w: access denied", leasehold.ErrPermanent)
	for name, c := range map[string]struct {
		versions int
		objects  func(*bucket) createonly.Objects
		says     string // "": nothing
	}{
		"one is lost":   {createonly.Keep + 1, refuseDeletes(errReset), ""},
		"one is denied": {createonly.Keep + 1, refuseDeletes(denied), "denied"},
		"many are lost": {40, refuseDeletes(errReset), "connection reset"},
		"many hang": {40, func(b *bucket) createonly.Objects {
			return b.on("delete", func(ctx context.Context, _ func(context.Context) error) error {
				<-ctx.Done()
				return ctx.Err()
			})
		}, "not ended after 10s"},
		"many hang, and for longer than told": {40, func(b *bucket) createonly.Objects {
			land := make(chan struct{})
			time.AfterFunc(time.Minute, func() { close(land) })
			return lateDeletes(b, land)
		}, "not ended after 10s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			testlog.Default(t, &log)
			b := newBucket()
			etag := write(t, createonly.New(b.failing("delete", errReset)), 1, c.versions-1)[c.versions-1]
			synctest.Wait() // for the sweeps, which log
			log.Reset()
			_, err := createonly.New(c.objects(b)).PutIfMatch(t.Context(), key, []byte("x"), etag)
			require.NoError(t, err, name)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			var told []string // of this lock; a test before may have left deletes on a server
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, " key="+key+" ") {
					told = append(told, line)
				}
			}
			if c.says == "" {
				require.Empty(t, told, name)
				return
			}
			require.Len(t, told, 1, name)
			require.Contains(t, told[0], "old versions of a lock are not deleted", name)
			require.Contains(t, told[0], c.says, name)
		})
	}
}

func refuseDeletes(err error) func(*bucket) createonly.Objects {
	return func(b *bucket) createonly.Objects { return b.failing("delete", err) }
}

func TestTwoWhoCreateTheSameVersion(t *testing.T) {
	b := newBucket()
	base, err := createonly.New(b).PutIfNoneMatch(t.Context(), key, []byte("version 1"))
	require.NoError(t, err)
	for range 100 {
		errs, etags := make([]error, 8), make([]string, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				etags[i], errs[i] = createonly.New(b).PutIfMatch(t.Context(), key, fmt.Append(nil, "by ", i), base)
			})
		}
		wg.Wait()
		won := -1
		for i, err := range errs {
			if err == nil {
				require.Negative(t, won, "two have won")
				won = i
			} else {
				require.ErrorIs(t, err, leasehold.ErrPreconditionFailed)
			}
		}
		require.GreaterOrEqual(t, won, 0)
		mustHold(t, createonly.New(b), fmt.Sprint("by ", won))
		base = etags[won]
	}
}

func TestADeletedKey(t *testing.T) {
	onBucket(t, func(t *testing.T, b *bucket, s *createonly.Store) {
		etags := write(t, s, 1, 3)
		require.ErrorIs(t, s.DeleteIfMatch(t.Context(), key, etags[2]), leasehold.ErrPreconditionFailed)
		require.NoError(t, s.DeleteIfMatch(t.Context(), key, etags[3]))
		_, err := s.Get(t.Context(), key)
		require.ErrorIs(t, err, leasehold.ErrNotExist)
		for _, stale := range []string{etags[1], etags[3]} {
			_, err = s.PutIfMatch(t.Context(), key, []byte("x"), stale)
			require.ErrorIs(t, err, leasehold.ErrPreconditionFailed)
		}
		etag, err := s.PutIfNoneMatch(t.Context(), key, []byte("again"))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(etag, "5-"), "the numbers go on after the tombstone: %s", etag)
		_, err = s.PutIfNoneMatch(t.Context(), key, []byte("twice"))
		require.ErrorIs(t, err, leasehold.ErrPreconditionFailed)
		mustHold(t, s, "again")
	})
}

// Who watches a lock is told of a tombstone as of any deletion.
func TestAWatchOfADeletedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := createonly.New(newBucket())
		lock := func() *leasehold.Lock {
			l, err := leasehold.NewLock(s, key)
			require.NoError(t, err)
			return l
		}
		crash := func() {
			lease, err := lock().TryAcquire(t.Context())
			require.NoError(t, err)
			lease.Abandon()
		}
		crash()
		var states []leasehold.State
		for status, err := range lock().Watch(t.Context()) {
			require.NoError(t, err)
			if states = append(states, status.State); len(states) == 4 {
				break
			}
			switch status.State {
			case leasehold.StateExpired:
				object, err := s.Get(t.Context(), key)
				require.NoError(t, err)
				require.NoError(t, s.DeleteIfMatch(t.Context(), key, object.ETag))
			case leasehold.StateDeleted:
				crash()
			}
		}
		require.Equal(t, []leasehold.State{
			leasehold.StateHeld, leasehold.StateExpired, leasehold.StateDeleted, leasehold.StateHeld,
		}, states)
	})
}

// A LIST that is older than the last create is found where it hides the writer's own version.
func TestALaggingList(t *testing.T) {
	b := newBucket()
	b.lag = 1
	s := createonly.New(b)
	_, err := s.PutIfNoneMatch(t.Context(), key, []byte("version 1"))
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
	require.ErrorContains(t, err, "LIST does not show version 1")
	_, err = leasehold.CheckStore(t.Context(), s, "check")
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
	require.ErrorContains(t, err, "use a server whose LIST is strongly consistent")

	b = newBucket()
	s = createonly.New(b)
	etag, err := s.PutIfNoneMatch(t.Context(), key, []byte("version 1"))
	require.NoError(t, err)
	b.lag = 1
	_, err = s.PutIfMatch(t.Context(), key, []byte("version 2"), etag)
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
	require.NotErrorIs(t, err, leasehold.ErrPreconditionFailed)
}

func TestCheckStore(t *testing.T) {
	report, err := leasehold.CheckStore(t.Context(), createonly.New(newBucket()), "locks/check")
	require.NoError(t, err)
	require.True(t, report.ConditionalPuts)
	require.True(t, report.ConditionalDeletes)
	require.Equal(t, leasehold.ClockNotUsed, report.ServerClock)

	b := newBucket()
	b.overwrites = true
	_, err = leasehold.CheckStore(t.Context(), createonly.New(b), "locks/check")
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
}

// The canary of the first acquisition finds a server that overwrites.
func TestTheCanary(t *testing.T) {
	b := newBucket()
	b.overwrites = true
	lock, err := leasehold.NewLock(createonly.New(b), key, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	_, err = lock.TryAcquire(t.Context())
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)

	b = newBucket()
	lock, err = leasehold.NewLock(createonly.New(b), key)
	require.NoError(t, err)
	lease, err := lock.TryAcquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, b.counted()["create"], "the lock's, and one that must be refused")
	require.NoError(t, lease.Release(t.Context()))
}

func TestBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*bucket)
		says  string
	}{
		"a foreign object": {
			func(b *bucket) { b.put(key+"/.leasehold-versions/readme", nil) },
			`"locks/report/.leasehold-versions/readme" is not a version`,
		},
		"too many digits": {func(b *bucket) { b.put(object(20)+"0", nil) }, "is not a version"},
		"too few": {
			func(b *bucket) { b.put(key+"/.leasehold-versions/.leasehold-1", nil) },
			"is not a version",
		},
		"version 0": {func(b *bucket) { b.put(object(0), nil) }, "is not a version"},
		"a gap": {
			func(b *bucket) { b.remove(object(15)) },
			"version 15 is missing, but 20 is there",
		},
		"the version before":        {func(b *bucket) { b.remove(object(19)) }, "version 19 is missing"},
		"the last one that is kept": {func(b *bucket) { b.remove(object(5)) }, "version 5 is missing"},
		"a version far ahead": {
			func(b *bucket) { b.put(object(40), nil) },
			"version 39 is missing, but 40 is there",
		},
		"all but one, as by lifecycle": {func(b *bucket) {
			for n := range 20 {
				b.remove(object(n))
			}
		}, "version 19 is missing"},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			b := newBucket()
			s := createonly.New(b)
			write(t, s, 1, 20)
			c.spoil(b)
			before := b.names()
			_, err := s.Get(t.Context(), key)
			require.ErrorIs(t, err, leasehold.ErrPermanent)
			require.ErrorContains(t, err, c.says)
			_, err = s.PutIfNoneMatch(t.Context(), key, []byte("x"))
			require.ErrorIs(t, err, leasehold.ErrPermanent)
			lock, err := leasehold.NewLock(s, key)
			require.NoError(t, err)
			_, err = lock.TryAcquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrPermanent)
			synctest.Wait()
			require.Equal(t, before, b.names())
		})
	}
}

// The version that is created shows a gap that nobody has read yet: nothing is deleted then.
func TestAGapThatAWriteFinds(t *testing.T) {
	onBucket(t, func(t *testing.T, b *bucket, s *createonly.Store) {
		base := write(t, s, 1, 20)[20]
		b.remove(object(12))
		_, err := s.PutIfMatch(t.Context(), key, []byte("x"), base)
		require.ErrorContains(t, err, "version 12 is missing, but 21 is there")
		requireUnknown(t, err)
		synctest.Wait()
		require.Contains(t, b.names(), object(5))
	})
}

// What fails after a create says nothing of the create: a lock that took that for final would leave
// its record behind.
func TestWhatFailsAfterACreateIsNotFinal(t *testing.T) {
	b := newBucket()
	s := createonly.New(b)
	etag, err := s.PutIfNoneMatch(t.Context(), key, []byte("version 1"))
	require.NoError(t, err)
	why := fmt.Errorf("%w: access denied", leasehold.ErrPermanent)
	denied := b.failing("list", why)
	_, err = createonly.New(denied).PutIfMatch(t.Context(), key, []byte("version 2"), etag)
	requireUnknown(t, err)
	require.ErrorContains(t, err, "access denied")
	mustHold(t, s, "version 2")
	_, err = createonly.New(denied).Get(t.Context(), key)
	require.ErrorIs(t, err, leasehold.ErrPermanent)

	o, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	_, err = createonly.New(b.failing("create", why)).PutIfMatch(t.Context(), key, []byte("version 3"), o.ETag)
	require.ErrorIs(t, err, leasehold.ErrPermanent, "the create itself")
}

// A lock whose LIST is refused once, after its create, has the lock or gives it back.
func TestALockWhoseListIsRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		lists := 0
		once := b.on("list", func(ctx context.Context, send func(context.Context) error) error {
			if lists++; lists == 3 {
				return fmt.Errorf("%w: access denied", leasehold.ErrPermanent)
			}
			return send(ctx)
		})
		lock, err := leasehold.NewLock(createonly.New(once), key, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		lease, err := lock.TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// Folders that a console has made are no versions, and a name that two pages show is one version.
func TestAListWithFoldersAndRepetitions(t *testing.T) {
	b := newBucket()
	s := createonly.New(b.listing(func(names []string) []string { return append(names, names...) }))
	lock, err := leasehold.NewLock(s, key)
	require.NoError(t, err)
	for range createonly.Keep {
		b.put(key+"/", nil)
		b.put(key+"/.leasehold-versions/", nil)
		b.put(key+"/.leasehold-versions/folder/", nil)
		lease, err := lock.TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	require.Contains(t, b.names(), key+"/.leasehold-versions/")
}

// A LIST that is not of one instant may miss what was deleted during it, and then it is no gap.
func TestAListThatIsNotOfOneInstant(t *testing.T) {
	onBucket(t, func(t *testing.T, b *bucket, s *createonly.Store) {
		write(t, s, 1, 30)
		torn := false
		once := b.listing(func(names []string) []string {
			if torn {
				return names
			}
			torn = true
			write(t, s, 31, 33) // so that it does not show what this deletes
			there := b.names()
			return slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(there, name) })
		})
		mustHold(t, createonly.New(once), "version 33")
	})
}

// A version that a LIST has shown may be another one when it is read: it has been deleted, and a
// sleeper has created it again. For the sleeper, which looks for its own nonce, that would be a
// write that was done.
func TestAReadThatMeetsASleeper(t *testing.T) {
	for newer := range 2 * createonly.Keep {
		onBucket(t, func(t *testing.T, b *bucket, s *createonly.Store) {
			base := write(t, s, 1, 5)[5]
			write(t, s, 6, 6)
			others := func() {
				if newer > 0 {
					write(t, s, 7, 6+newer)
				}
			}
			between := around(b, "get", func() {
				asleep := createonly.New(around(b, "create", others, nothing))
				_, err := asleep.PutIfMatch(t.Context(), key, []byte("woken"), base)
				require.Error(t, err)
			}, nothing)
			mustRead := fmt.Sprint("version ", 6)
			if newer >= createonly.Keep {
				mustRead = fmt.Sprint("version ", 6+newer)
			}
			mustHold(t, createonly.New(between), mustRead)
		})
	}
}

// A reader that is always overtaken gives up, and says so.
func TestAReadThatIsAlwaysOvertaken(t *testing.T) {
	onBucket(t, func(t *testing.T, b *bucket, s *createonly.Store) {
		write(t, s, 1, 1)
		last := 1
		always := b.on("get", func(ctx context.Context, send func(context.Context) error) error {
			write(t, s, last+1, last+createonly.Keep)
			last += createonly.Keep
			return send(ctx)
		})
		b.counted()
		_, err := createonly.New(always).Get(t.Context(), key)
		requireUnknown(t, err)
		require.ErrorContains(t, err, "others have written 16 versions or more")
		require.Equal(t, 1+4*createonly.Keep, last)
	})
}

// What a LIST shows and no GET finds is not a key without an object, for which a lock would begin
// anew.
func TestAVersionThatCannotBeRead(t *testing.T) {
	b := newBucket()
	s := createonly.New(b.failing("get", leasehold.ErrNotExist))
	_, err := s.PutIfNoneMatch(t.Context(), key, []byte("x"))
	require.NoError(t, err)
	_, err = s.Get(t.Context(), key)
	requireUnknown(t, err)
	_, err = s.PutIfNoneMatch(t.Context(), key, []byte("y"))
	requireUnknown(t, err)
	require.Equal(t, []string{object(1)}, b.names())
}

// A LIST that is cut off shows the highest versions only if it is in the order of names.
func TestAListThatIsCutOff(t *testing.T) {
	b := newBucket()
	for n := range 3 * createonly.Listed {
		b.put(object(n+1), fmt.Append(nil, "version ", n+1))
	}
	mustHold(t, createonly.New(b.listing(page)), "version 3000")
	_, err := createonly.New(b.listing(func(names []string) []string {
		names = page(names)
		slices.Reverse(names)
		return names
	})).Get(t.Context(), key)
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
	require.ErrorContains(t, err, "more than 1000 versions have not been deleted")
}

// On a server whose LIST has no order, a lock goes on when deletes work again.
func TestManyVersionsInNoOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		broken := createonly.New(b.failing("delete", errReset))
		etag := write(t, broken, 1, createonly.Listed-1)[createonly.Listed-1]
		_, err := broken.PutIfMatch(t.Context(), key, []byte("version 1000"), etag)
		requireUnknown(t, err)
		for n := range 200 { // of others
			b.put(object(createonly.Listed+1+n), fmt.Append(nil, "version ", createonly.Listed+1+n))
		}
		_, err = broken.Get(t.Context(), key)
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
		require.ErrorContains(t, err, "more than 1000 versions have not been deleted")
		mustHold(t, createonly.New(b), "version 1200")
		require.Len(t, b.names(), createonly.Listed-1)
		mustHold(t, createonly.New(b), "version 1200")
		write(t, createonly.New(b), 1201, 1201)
	})
}

// page is the first page of a LIST.
func page(names []string) []string {
	slices.Sort(names)
	return names[:createonly.Listed]
}

func TestWrongArguments(t *testing.T) {
	for _, s := range []*createonly.Store{nil, new(createonly.Store), createonly.New(nil),
		createonly.New((*bucket)(nil)), createonly.New((*createonly.S3)(nil))} {
		_, err := leasehold.NewLock(s, key)
		require.Error(t, err)
		if s != nil {
			require.ErrorIs(t, err, leasehold.ErrPermanent)
			_, err = s.Get(t.Context(), key)
			require.ErrorIs(t, err, leasehold.ErrPermanent)
		}
	}
	b := newBucket()
	s := createonly.New(b)
	for _, bad := range []string{"a\nb", "a\ufffe", "a//b"} {
		_, err := s.Get(t.Context(), bad)
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		_, err = s.PutIfNoneMatch(t.Context(), bad, []byte("x"))
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.Empty(t, b.counted())
	}
	for _, bad := range []string{"", strings.Repeat("k", 1000)} {
		_, err := s.PutIfNoneMatch(t.Context(), bad, []byte("x"))
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "use 1 to 976")
	}
	_, err := s.PutIfNoneMatch(t.Context(), strings.Repeat("k", 976), []byte("x"))
	require.NoError(t, err)
	_, err = s.PutIfNoneMatch(t.Context(), key, []byte("leasehold: deleted here, and kept so that version numbers do "+
		"not start again\n"))
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	etag, err := s.PutIfNoneMatch(t.Context(), "other", []byte("x"))
	require.NoError(t, err)
	b.counted()
	for _, foreign := range []string{etag, "1", "01" + etag[1:], "-1-", "x", `"0123456789abcdef0123456789abcdef"`} {
		_, err = s.PutIfMatch(t.Context(), key, []byte("x"), foreign)
		require.ErrorIs(t, err, leasehold.ErrPreconditionFailed, foreign)
	}
	require.Empty(t, b.counted(), "nothing is sent")
}

func TestKeyOf(t *testing.T) {
	key, ok := createonly.KeyOf(object(7))
	require.True(t, ok)
	require.Equal(t, "locks/report", key)
	for _, foreign := range []string{"", "locks/report", object(0), object(7) + "0",
		"a/.leasehold-versions/" + object(7), "locks/report/.leasehold-versions/readme",
		"locks/report/.leasehold-versions/",
		"locks/report/.leasehold-etag"} {
		_, ok := createonly.KeyOf(foreign)
		require.False(t, ok, foreign)
	}
}

// The objects of such a key would be in the list of another.
func TestAKeyInThePlaceOfVersions(t *testing.T) {
	b := newBucket()
	s := createonly.New(b)
	_, err := s.PutIfNoneMatch(t.Context(), key, []byte("version 1"))
	require.NoError(t, err)
	b.counted()
	for _, bad := range []string{
		key + "/.leasehold-versions/a", key + "/.leasehold-versions", ".leasehold-versions/a",
	} {
		if lock, err := leasehold.NewLock(s, bad); err == nil {
			_, err = lock.TryAcquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrPermanent, bad)
		}
		_, err = s.PutIfNoneMatch(t.Context(), bad, []byte("x"))
		require.ErrorContains(t, err, "has a part that leasehold itself writes")
	}
	require.Empty(t, b.counted())
	mustHold(t, s, "version 1")
}

func TestALockBelowAnother(t *testing.T) {
	s := createonly.New(newBucket())
	for _, k := range []string{"jobs/report", "jobs/report/daily", "jobs"} {
		lock, err := leasehold.NewLock(s, k)
		require.NoError(t, err)
		require.NoError(t, lock.Do(t.Context(), func(_ context.Context, lease *leasehold.Lease) error {
			require.Equal(t, uint64(1), lease.Token())
			return nil
		}))
	}
}

// The requests that the package documentation and the page on servers name.
func TestRequests(t *testing.T) {
	onBucket(t, func(t *testing.T, b *bucket, s *createonly.Store) {
		open := func() *leasehold.Lock {
			lock, err := leasehold.NewLock(s, key, leasehold.WithManualRenewal())
			require.NoError(t, err)
			return lock
		}
		holder, other := open(), open()
		acquire := func(lock *leasehold.Lock) *leasehold.Lease {
			lease, err := lock.TryAcquire(t.Context())
			require.NoError(t, err)
			return lease
		}
		renew := func(lease *leasehold.Lease) {
			require.NoError(t, lease.Renew(t.Context()))
			synctest.Wait()
		}
		lease := acquire(holder)
		for range createonly.Keep {
			renew(lease)
		}
		b.counted()
		renew(lease)
		require.Equal(t, map[string]int{"get": 1, "create": 1, "list": 1, "delete": 1}, b.counted(), "a renewal")
		_, err := other.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Equal(t, map[string]int{"list": 2, "get": 1}, b.counted(), "a poll")
		require.NoError(t, lease.Release(t.Context()))
		synctest.Wait()
		require.Equal(t, map[string]int{"get": 1, "create": 1, "list": 1, "delete": 1}, b.counted(), "a release")
		lease = acquire(other)
		synctest.Wait()
		require.Equal(t, map[string]int{"list": 3, "get": 2, "create": 1, "delete": 1}, b.counted(), "an acquisition")
		require.NoError(t, lease.Release(t.Context()))
		synctest.Wait()
		b.counted()
		acquire(other)
		synctest.Wait()
		require.Equal(t, map[string]int{"get": 1, "create": 1, "list": 1, "delete": 1}, b.counted(),
			"an acquisition of a version that is known")
	})
}

func TestDeletesThatAreNotAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		write(t, createonly.New(b.failing("delete", fmt.Errorf("%w: access denied", leasehold.ErrPermanent))), 1, 60)
		require.Len(t, b.names(), 60)
	})
}

// Locks exclude each other over a network that loses, delays and repeats creates and deletes, and
// makes writers sleep for longer than others need to delete their base.
func TestALossyNetwork(t *testing.T) {
	for seed := range testsize.Pick[uint64](3, 100) {
		synctest.Test(t, func(t *testing.T) {
			b := newBucket()
			var mu sync.Mutex
			leading, terms := 0, uint64(0)
			ctx := testctx.Within(t, 30*time.Minute)
			var wg sync.WaitGroup
			for i := range uint64(3) {
				l := lossy(b, rand.New(rand.NewPCG(seed, i)))
				lock, err := leasehold.NewLock(createonly.New(l), key, leasehold.WithTTL(4*time.Second),
					leasehold.WithLogger(slog.New(slog.DiscardHandler)))
				require.NoError(t, err)
				wg.Go(func() {
					for ctx.Err() == nil {
						_ = lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
							mu.Lock()
							leading++
							if leading > 1 || lease.Token() <= terms {
								t.Errorf("seed %d: %d lead, token %d after %d", seed, leading, lease.Token(), terms)
							}
							terms = lease.Token()
							mu.Unlock()
							select {
							case <-ctx.Done():
							case <-time.After(20 * time.Second):
							}
							mu.Lock()
							leading--
							mu.Unlock()
							return nil
						})
					}
				})
			}
			wg.Wait()
			time.Sleep(5 * time.Minute) // for the deletes of one sweep
			require.Greater(t, terms, uint64(10))
			require.Less(t, len(b.names()), 2*createonly.Keep)
		})
	}
}
