// Package locktest has what a lock must do on the store of each cloud.
package locktest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// Process returns a lock of a process with that name, over a separate connection, and what cuts
// this connection and joins it again.
type Process func(name string) (lock *leasehold.Lock, cut func(bool))

// LeaderCutOff has three processes elect a leader of a new lock, and cuts the leader off. Another
// one must lead then, after the first has stopped.
func LeaderCutOff(t *testing.T, ttl time.Duration, process Process) {
	type term struct {
		token    uint64
		from, to time.Time
	}
	var mu sync.Mutex
	var terms []term
	led := make(chan string, 16)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	cuts := make(map[string]func(bool))
	for _, name := range []string{"alice", "bob", "carol"} {
		lock, cut := process(name)
		cuts[name] = cut
		elector, err := leasehold.NewElector(lock, leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
				own := term{token: lease.Token(), from: time.Now()}
				led <- name
				<-ctx.Done()
				own.to = time.Now()
				mu.Lock()
				defer mu.Unlock()
				terms = append(terms, own)
			},
		})
		require.NoError(t, err)
		running.Go(func() { assert.NoError(t, elector.Run(ctx)) })
	}
	next := func() string {
		select {
		case name := <-led:
			return name
		case <-time.After(20 * ttl):
			t.Fatal("no process leads")
			return ""
		}
	}
	first := next()
	time.Sleep(2 * ttl) // it leads on
	require.Empty(t, led)
	cuts[first](true)
	require.NotEqual(t, first, next())
	cuts[first](false)
	time.Sleep(2 * ttl)
	stop()
	running.Wait()
	require.GreaterOrEqual(t, len(terms), 2)
	for i, own := range terms {
		require.EqualValues(t, i+1, own.token)
		if i > 0 {
			require.True(t, terms[i-1].to.Before(own.from), "a leader must stop before the next term begins")
		}
	}
}

// Newcomer checks that a lock whose holder has crashed is taken over at once by a process that
// trusts the store's clock: with one GET and one PUT. A process returns its lock, and the number of
// requests that it has sent.
func Newcomer(t *testing.T, ttl time.Duration, process func(name string, opts ...leasehold.Option) (*leasehold.Lock,
	func() int)) {
	crashed, _ := process("crashed", leasehold.WithTTL(ttl), leasehold.WithManualRenewal())
	old, err := crashed.Acquire(t.Context())
	require.NoError(t, err)
	time.Sleep(ttl + 4*time.Second) // the TTL, the slack, and the resolution of the dates
	newcomer, sent := process("newcomer", leasehold.WithTTL(ttl))
	lease, err := newcomer.TryAcquire(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, old.Token()+1, lease.Token())
	require.Equal(t, 2, sent())
	require.NoError(t, lease.Release(t.Context()))
}
