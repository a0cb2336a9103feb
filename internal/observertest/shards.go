package observertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/shards"
)

// Group is the prefix of a group that divides four shards.
const Group = "workers"

// Join runs a member of [Group] until stop is called. If handle is nil, its handlers work until their contexts end.
func (p *Process) Join(member string, handle func(context.Context, shards.Shard) error) (stop func()) {
	p.t.Helper()
	if handle == nil {
		handle = func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil }
	}
	g, err := shards.New(p, Group, shards.Count(4), handle,
		shards.WithMember(member), shards.WithObserver(p.observer.ObserveShards), shards.WithLogger(nil))
	require.NoError(p.t, err)
	return p.run(g.Run)
}

// ofPlanner are the lines that only the planner has.
func ofPlanner(lines []string) (found []string) {
	for _, line := range lines {
		switch name, _, _ := strings.Cut(line, ":"); name {
		case "planned", "members", "imbalance":
			found = append(found, line)
		}
	}
	return found
}

func moves(t *testing.T, watch func(leasehold.Store) *Process) {
	mem := leasehold.NewMemStore()
	alice, bob := watch(mem), watch(mem)
	stopAlice := alice.Join("alice", nil)
	time.Sleep(time.Minute)
	require.ElementsMatch(t, []string{
		"owned: 4", "started: 4", "failures: 0", "refused permanent: 0", "refused timeout: 0", "refused error: 0",
		"stopped moved: 0", "stopped left: 0",
		"stopped expired: 0", "stopped taken_over: 0", "stopped deleted: 0", "stopped broken: 0", "stopped corrupt: 0",
		"planned: 4", "members: 1", "imbalance: 0", "moved: 4",
	}, alice.Metrics("workers/alice"), "with counters of 0: a counter that begins at 1 shows no increase")

	stopBob := bob.Join("bob", nil)
	time.Sleep(time.Minute)
	require.Subset(t, alice.Metrics("workers/alice"),
		[]string{"owned: 2", "started: 4", "stopped moved: 2", "stopped left: 0", "planned: 4", "members: 2", "imbalance: 0", "moved: 6"})
	require.Subset(t, bob.Metrics("workers/bob"), []string{"owned: 2", "started: 2", "stopped moved: 0", "moved: 0"})
	require.Empty(t, ofPlanner(bob.Metrics("workers/bob")))

	stopAlice()
	require.Subset(t, alice.Metrics("workers/alice"), []string{"owned: 0", "stopped moved: 2", "stopped left: 2", "moved: 6"})
	require.Empty(t, ofPlanner(alice.Metrics("workers/alice")))
	time.Sleep(time.Minute)
	require.Subset(t, bob.Metrics("workers/bob"), []string{"owned: 4", "started: 4", "planned: 4", "members: 1", "imbalance: 0", "moved: 2"})
	stopBob()
	require.Subset(t, bob.Metrics("workers/bob"), []string{"owned: 0", "stopped left: 4", "stopped expired: 0"})
}

// lostSession has a planner come back that need not change its plan.
func lostSession(t *testing.T, watch func(leasehold.Store) *Process) {
	alice := watch(leasehold.NewMemStore())
	defer alice.Join("alice", nil)()
	time.Sleep(time.Minute)
	alice.Cut(errors.New("connection reset"))
	time.Sleep(time.Minute)
	require.Subset(t, alice.Metrics("workers/alice"), []string{"owned: 0", "stopped expired: 4", "stopped left: 0", "moved: 4"})
	require.Empty(t, ofPlanner(alice.Metrics("workers/alice")))
	alice.Mend()
	time.Sleep(time.Minute)
	require.Subset(t, alice.Metrics("workers/alice"),
		[]string{"owned: 4", "started: 8", "stopped expired: 4", "planned: 4", "members: 1", "imbalance: 0", "moved: 4"})
}

func failures(t *testing.T, watch func(leasehold.Store) *Process) {
	alice := watch(leasehold.NewMemStore())
	var calls [4]atomic.Int64
	stop := alice.Join("alice", func(ctx context.Context, s shards.Shard) error {
		switch first := calls[s.Number].Add(1) == 1; {
		case s.Number == 0 && first:
			return errors.New("cannot")
		case s.Number == 1 && first:
			panic("cannot at all")
		case s.Number == 2:
			return nil // it has nothing more to do
		}
		<-ctx.Done()
		return errors.New("stopped while at work")
	})
	time.Sleep(time.Minute)
	require.Subset(t, alice.Metrics("workers/alice"), []string{"failures: 2", "owned: 4", "started: 4", "stopped left: 0"})
	stop()
	require.Subset(t, alice.Metrics("workers/alice"), []string{"failures: 2", "owned: 0", "started: 4", "stopped left: 4"})
}

// withoutPermission may not write the locks of shards.
type withoutPermission struct{ leasehold.Store }

func (s withoutPermission) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if strings.HasPrefix(key, Group+"/shards/") {
		return "", fmt.Errorf("%w: access denied", leasehold.ErrPermanent)
	}
	return s.Store.PutIfNoneMatch(ctx, key, body)
}

func (s withoutPermission) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if strings.HasPrefix(key, Group+"/shards/") {
		return "", fmt.Errorf("%w: access denied", leasehold.ErrPermanent)
	}
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

func refusals(t *testing.T, watch func(leasehold.Store) *Process) {
	mem := leasehold.NewMemStore()
	alice, bob := watch(mem), watch(withoutPermission{mem})
	defer alice.Join("alice", nil)()
	time.Sleep(time.Minute)
	defer bob.Join("bob", nil)()
	time.Sleep(time.Minute)
	require.Subset(t, alice.Metrics("workers/alice"), []string{"owned: 4", "planned: 4", "members: 2", "imbalance: 4"})
	lines := bob.Metrics("workers/bob")
	require.Subset(t, lines, []string{"owned: 0", "started: 0", "stopped moved: 0", "refused timeout: 0", "refused error: 0"})
	require.NotContains(t, lines, "refused permanent: 0")
}

// lateHandlers has handlers run on although their contexts have ended.
func lateHandlers(t *testing.T, watch func(leasehold.Store) *Process) {
	mem := leasehold.NewMemStore()
	alice, bob := watch(mem), watch(mem)
	let := make(chan struct{})
	end := sync.OnceFunc(func() { close(let) })
	defer alice.Join("alice", func(ctx context.Context, _ shards.Shard) error {
		<-ctx.Done()
		<-let
		return nil
	})()
	time.Sleep(time.Minute)
	defer bob.Join("bob", nil)()
	defer end()
	time.Sleep(time.Minute)
	require.Subset(t, alice.Metrics("workers/alice"), []string{"owned: 4", "planned: 4", "stopped expired: 0"})
	require.Contains(t, bob.Metrics("workers/bob"), "owned: 2", "together more than the plan has")
	end()
	synctest.Wait()
	require.Subset(t, alice.Metrics("workers/alice"), []string{"owned: 2", "stopped expired: 2", "stopped moved: 0"})
}

func twoMembersOfAProcess(t *testing.T, watch func(leasehold.Store) *Process) {
	process := watch(leasehold.NewMemStore())
	stop := process.Join("one", nil)
	time.Sleep(time.Minute)
	defer process.Join("two", nil)()
	time.Sleep(time.Minute)
	one, two := process.Metrics("workers/one"), process.Metrics("workers/two")
	require.Subset(t, one, []string{"owned: 2", "planned: 4", "moved: 6"})
	require.Subset(t, two, []string{"owned: 2", "moved: 0"})
	require.Empty(t, ofPlanner(two))
	stop()
	time.Sleep(time.Minute)
	one, two = process.Metrics("workers/one"), process.Metrics("workers/two")
	require.Contains(t, one, "owned: 0")
	require.Empty(t, ofPlanner(one))
	require.Subset(t, two, []string{"owned: 4", "imbalance: 0", "members: 1", "planned: 4"})
}
