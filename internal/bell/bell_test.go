package bell_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/bell"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// Goroutines that listen, ring and request at the same time. Each that listens hears a ring that
// comes later.
func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bell.New()
		var listening, ringing sync.WaitGroup
		stop := make(chan struct{})
		for range 4 {
			ringing.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						b.Ring()
						b.Request(clock.System, time.Second, 10)
					}
				}
			})
			listening.Go(func() {
				w := b.Wait("here", false)
				defer w.Leave()
				for range 1000 {
					<-w.Listen()
				}
			})
		}
		listening.Wait()
		close(stop)
		ringing.Wait()
	})
}

func TestRequestsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bell.New()
		began := time.Now()
		var rings []time.Duration
		w := b.Wait("here", false)
		defer w.Leave()
		for range 25 {
			rung := w.Listen()
			b.Request(clock.System, time.Second, 10)
			<-rung
			rings = append(rings, time.Since(began))
		}
		require.Zero(t, rings[9], "ten at once")
		for i := 10; i < 25; i++ {
			require.Equal(t, time.Duration(i-9)*100*time.Millisecond, rings[i])
		}
	})
}

func TestTurns(t *testing.T) {
	b, other := bell.New(), bell.New()
	type waiter struct {
		*bell.Waiter
		rung <-chan struct{}
	}
	rung := func(w *waiter) bool {
		select {
		case <-w.rung:
			w.rung = w.Listen()
			return true
		default:
			return false
		}
	}
	wait := func(b *bell.Bell, place any, queue bool) *waiter {
		w := b.Wait(place, queue)
		return &waiter{w, w.Listen()}
	}
	first, second, third := wait(&b, 1, true), wait(&other, 1, true), wait(&b, 1, true)
	looks, elsewhere := wait(&b, 1, false), wait(&b, 2, true)
	none := func(ws ...*waiter) {
		t.Helper()
		for _, w := range ws {
			require.False(t, rung(w))
		}
	}

	require.Equal(t, 4, bell.Free(1))
	require.True(t, rung(first))
	require.True(t, rung(looks))
	none(first, second, third, looks, elsewhere)
	first.Looked(true)
	require.True(t, rung(second))
	second.Looked(false)
	none(first, second, third, looks, elsewhere)

	bell.Free(1)
	bell.Free(1) // nobody has used the first turn yet
	require.True(t, rung(first))
	require.True(t, rung(second))
	first.Leave() // with its turn
	require.True(t, rung(third))
	third.Looked(true)
	none(second, third, elsewhere)
	second.Leave()
	require.True(t, rung(third))
	third.Looked(false)

	require.Equal(t, 2, bell.Free(1))
	third.Leave() // with a turn that it has not begun
	require.True(t, rung(looks))
	looks.Leave()
	require.Zero(t, bell.Free(1))
	none(elsewhere)
	b.Ring()
	require.True(t, rung(elsewhere))
	elsewhere.Leave()
}
