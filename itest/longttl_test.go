package itest_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// hurried is a clock by which a quarter of a minute is an hour.
type hurried struct {
	clock.Clock
	began clock.Reading
}

const hurry = 240

func (h hurried) Now() clock.Reading {
	d := hurry * (h.Clock.Now().Mono - h.began.Mono)
	return clock.Reading{Mono: h.began.Mono + d, Wall: h.began.Wall + d, Boot: h.began.Boot + d}
}

func (h hurried) AfterFunc(d time.Duration, f func()) clock.Timer {
	return hurriedTimer{h.Clock.AfterFunc(d/hurry, f)}
}

func (h hurried) Sleep(ctx context.Context, d time.Duration) error {
	return h.Clock.Sleep(ctx, d/hurry)
}

type hurriedTimer struct{ clock.Timer }

func (t hurriedTimer) Reset(d time.Duration) bool { return t.Timer.Reset(d / hurry) }

// At a TTL of an hour, what goes wrong on the way to a real server costs seconds. A minute only
// ends a hang.
func TestFaultsAtALongTTL(t *testing.T) {
	slow := faultproxy.Fault{Kind: faultproxy.Refuse, Before: time.Hour}
	eachServer(t, func(t *testing.T, server testserver.S3) {
		client := func(t *testing.T) (*link, *leasehold.Lock) {
			t.Parallel()
			l := newLink(t, server, server.Bucket(t))
			return l, newLock(t, l.store, leasehold.WithTTL(time.Hour))
		}
		t.Run("a read without an answer", func(t *testing.T) {
			l, lock := client(t)
			l.fail("GET", slow)
			lease, err := lock.Acquire(minute(t))
			require.NoError(t, err)
			require.EqualValues(t, 2, l.Count("GET"))
			require.NoError(t, lease.Release(t.Context()))
		})
		t.Run("503 at a release", func(t *testing.T) {
			l, lock := client(t)
			lease, err := lock.Acquire(minute(t))
			require.NoError(t, err)
			l.fail("PUT", faultproxy.Fault{
				Kind:   faultproxy.Answer,
				Status: http.StatusServiceUnavailable,
				Code:   "SlowDown",
			})
			require.NoError(t, lease.Release(minute(t)))
			rec, err := lock.Inspect(minute(t))
			require.NoError(t, err)
			require.True(t, rec.Released())
		})
		t.Run("a release whose ctx ends", func(t *testing.T) {
			l, lock := client(t)
			lease, err := lock.Acquire(minute(t))
			require.NoError(t, err)
			l.cut(true)
			ctx := testctx.Within(t, time.Second)
			released := make(chan error, 1)
			go func() { released <- lease.Release(ctx) }()
			require.ErrorIs(t, receive(t, released, "the end of Release"), context.DeadlineExceeded)
		})
		t.Run("an outage of an hour", func(t *testing.T) {
			t.Parallel()
			bucket := server.Bucket(t)
			first, err := newLock(t, newLink(t, server, bucket).store, leasehold.WithTTL(time.Hour)).Acquire(minute(t))
			require.NoError(t, err)
			l, fast := newLink(t, server, bucket), hurried{clock.System, clock.System.Now()}
			var down atomic.Bool
			l.Decide = func(*http.Request) faultproxy.Fault {
				if down.Load() {
					return faultproxy.Fault{
						Kind:   faultproxy.Answer,
						Status: http.StatusServiceUnavailable,
						Code:   "SlowDown",
					}
				}
				return faultproxy.Fault{}
			}
			lock := newLock(t, l.store, leasehold.WithTTL(time.Hour), testopt.WithClock(fast))
			got := make(chan *leasehold.Lease, 1)
			go func() {
				next, _ := lock.Acquire(t.Context())
				got <- next
			}()
			require.Eventually(t, func() bool { return l.Count("GET") > 0 }, time.Minute, time.Millisecond)
			down.Store(true)
			lock.Wake()
			require.NoError(t, first.Release(minute(t)))
			before := l.Count("GET")
			require.NoError(t, fast.Sleep(t.Context(), time.Hour))
			tries := l.Count("GET") - before
			require.GreaterOrEqual(t, tries, 30, "it tries each half minute; without a cap, its pauses would double "+
				"up to an hour")
			down.Store(false)
			next := receive(t, got, "the candidate leads after the outage")
			require.NotNil(t, next)
			require.EqualValues(t, 2, next.Token())
			require.NoError(t, next.Release(t.Context()))
			t.Logf("%d tries in the hour", tries)
		})
	})
}
