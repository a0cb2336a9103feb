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

// Goroutines that listen, ring and request at the same time. Each that listens hears a ring that comes later.
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
				for range 1000 {
					<-b.Listen()
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
		for range 25 {
			rung := b.Listen()
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
