package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/export"
	"github.com/leasehold-go/leasehold/shards"
)

// fleetSize is how much of the section of shards is measured.
type fleetSize struct {
	shards  int
	members []int
	colds   int // cold starts
	// In each round a member leaves, one joins, one is killed and another joins.
	rounds, peerRounds int
}

// divider is a system that divides shards among members.
type divider struct {
	name    string
	rest    time.Duration // for which requests are counted: ten scans, or the 100 TTLs in which leasehold looks at each shard once
	prepare func(ctx context.Context, store leasehold.Store, shards []string) error
	run     func(ctx context.Context, store *link, name string, shards int, begin, end func(shard string)) error
}

var dividers = []divider{
	{
		name: report.Leasehold, rest: 25 * time.Minute,
		prepare: func(context.Context, leasehold.Store, []string) error { return nil },
		run: func(ctx context.Context, store *link, name string, n int, begin, end func(string)) error {
			group, err := shards.New(store, "g", shards.Count(n), func(ctx context.Context, s shards.Shard) error {
				begin(s.ID)
				defer end(s.ID)
				<-ctx.Done()
				return nil
			}, shards.WithMember(name), shards.WithLogger(nil),
				export.ShardsWithClock.(func(clock.Clock) shards.Option)(virtualClock{clock.System}))
			if err != nil {
				return err
			}
			return group.Run(ctx)
		},
	},
	bestLeaseTable.divider(report.LeaseTable, time.Minute),
	defaultLeaseTable.divider(report.DefaultLeaseTable, 5*time.Minute),
}

func (t leaseTable) divider(name string, rest time.Duration) divider {
	return divider{name, rest, createLeases, func(ctx context.Context, store *link, name string, _ int, begin, end func(string)) error {
		t.run(ctx, store, name, begin, end)
		return nil
	}}
}

func measureShards(t *testing.T, n size, progress func(string)) *report.Shards {
	began := time.Now()
	d := &report.Shards{Run: describeRun(t, n), TTL: defaultTTL.Seconds(), Poll: defaultPoll.Seconds(), Shards: n.fleets.shards}
	for _, members := range n.fleets.members {
		for _, system := range dividers {
			if system.name == report.DefaultLeaseTable && members < slices.Max(n.fleets.members) {
				continue // with few members it takes an hour until a new one has its share
			}
			progress(fmt.Sprintf("shards: %d members, %s", members, system.name))
			d.Fleets = append(d.Fleets, measureFleet(t, n.fleets, system, members))
		}
	}
	d.Minutes = time.Since(began).Round(time.Second).Minutes()
	return d
}

// measureFleet measures one system with so many members.
func measureFleet(t *testing.T, n fleetSize, system divider, members int) report.Fleet {
	d := report.Fleet{Peer: system.name, Members: members}
	followed := make(map[string]*aftermath)
	observe := func(f *fleet, way string, change func()) {
		if followed[way] == nil {
			followed[way] = new(aftermath)
		}
		f.observe(followed[way], change)
	}
	for i := range n.colds {
		inFleet(t, system, n.shards, func(f *fleet) {
			observe(f, report.ColdStart, func() {
				for range members {
					f.join()
				}
			})
			if i > 0 {
				return
			}
			f.countAtRest(&d)
			rounds := n.peerRounds
			if system.name == report.Leasehold {
				rounds = n.rounds
			}
			for range rounds {
				observe(f, report.MemberLeaves, func() { f.leave(f.any()) })
				observe(f, report.MemberJoins, f.join)
				observe(f, report.MemberCrashes, func() { f.kill(f.any()) })
				observe(f, report.MemberJoins, f.join)
			}
		})
	}
	for _, way := range []string{report.ColdStart, report.MemberJoins, report.MemberLeaves, report.MemberCrashes} {
		if c := followed[way]; c != nil {
			d.Changes = append(d.Changes, c.describe(way))
		}
	}
	return d
}

// bucket is a store that can list objects.
type bucket struct {
	*leasehold.MemStore
	mu    sync.Mutex
	etags map[string]string // by key
}

func (b *bucket) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return b.put(key, func() (string, error) { return b.MemStore.PutIfNoneMatch(ctx, key, body) })
}

func (b *bucket) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return b.put(key, func() (string, error) { return b.MemStore.PutIfMatch(ctx, key, body, etag) })
}

func (b *bucket) put(key string, put func() (string, error)) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	etag, err := put()
	if err == nil {
		b.etags[key] = etag
	}
	return etag, err
}

// link is a member's way to the bucket, with the latency of one. It counts requests.
type link struct {
	*bucket
	gets, puts, lists, refused atomic.Int64
	down                       atomic.Bool // each request hangs until its context ends
}

func (l *link) send(ctx context.Context, requests *atomic.Int64) error {
	if l.down.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	requests.Add(1)
	time.Sleep(10*time.Millisecond + rand.N(20*time.Millisecond))
	return nil
}

func (l *link) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := l.send(ctx, &l.gets); err != nil {
		return leasehold.Object{}, err
	}
	return l.bucket.Get(ctx, key)
}

func (l *link) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if err := l.send(ctx, &l.puts); err != nil {
		return "", err
	}
	return l.note(l.bucket.PutIfNoneMatch(ctx, key, body))
}

func (l *link) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := l.send(ctx, &l.puts); err != nil {
		return "", err
	}
	return l.note(l.bucket.PutIfMatch(ctx, key, body, etag))
}

func (l *link) note(etag string, err error) (string, error) {
	if errors.Is(err, leasehold.ErrPreconditionFailed) || errors.Is(err, leasehold.ErrNotExist) {
		l.refused.Add(1)
	}
	return etag, err
}

// list returns the ETags of all objects under a prefix, by what follows it in their keys. A page has up to 1,000 of them.
func (l *link) list(ctx context.Context, prefix string) (map[string]string, error) {
	found := make(map[string]string)
	for page := 0; page == 0 || page < len(found); page += 1000 {
		if err := l.send(ctx, &l.lists); err != nil {
			return nil, err
		}
		l.mu.Lock()
		for key, etag := range l.etags {
			if name, ok := strings.CutPrefix(key, prefix); ok {
				found[name] = etag
			}
		}
		l.mu.Unlock()
	}
	return found, nil
}

// fleet is members that divide the shards of a bucket.
type fleet struct {
	t      *testing.T
	system divider
	shards int
	bucket *bucket
	crew   map[string]*member // those that live
	joined int
	census *census
	ending sync.WaitGroup
}

type member struct {
	link *link
	stop context.CancelFunc
}

// inFleet runs f in virtual time.
func inFleet(t *testing.T, system divider, n int, run func(f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{
			t: t, system: system, shards: n, crew: make(map[string]*member), census: newCensus(n),
			bucket: &bucket{MemStore: leasehold.NewMemStore(), etags: make(map[string]string)},
		}
		ids := make([]string, n)
		for i := range ids {
			ids[i] = strconv.Itoa(i)
		}
		require.NoError(t, system.prepare(t.Context(), f.bucket, ids))
		defer f.stop()
		run(f)
	})
}

func (f *fleet) stop() {
	for _, m := range f.crew {
		m.stop()
	}
	f.ending.Wait()
	time.Sleep(4 * defaultTTL) // what members that were killed have left behind ends
}

func (f *fleet) join() {
	name := fmt.Sprintf("member-%03d", f.joined)
	f.joined++
	ctx, stop := context.WithCancel(context.Background())
	m := &member{link: &link{bucket: f.bucket}, stop: stop}
	f.crew[name] = m
	f.census.joins(name)
	f.ending.Go(func() {
		err := f.system.run(ctx, m.link, name, f.shards,
			func(shard string) { f.census.begins(name, shard) }, func(shard string) { f.census.ends(name, shard) })
		if err != nil && !m.link.down.Load() {
			f.t.Error(err)
		}
	})
}

// any returns the name of a member.
func (f *fleet) any() string {
	names := slices.Sorted(maps.Keys(f.crew))
	return names[rand.IntN(len(names))]
}

// leave ends a member gracefully, and does not wait for that.
func (f *fleet) leave(name string) {
	f.census.leaves(name)
	f.crew[name].stop()
	delete(f.crew, name)
}

// kill ends a member as SIGKILL does, as far as the others can see.
func (f *fleet) kill(name string) {
	f.crew[name].link.down.Store(true)
	f.census.dies(name)
	f.crew[name].stop()
	delete(f.crew, name)
}

// observe makes a change, and waits until the shards have been balanced for a TTL.
func (f *fleet) observe(c *aftermath, change func()) {
	time.Sleep(rand.N(defaultTTL))
	began := f.census.start()
	change()
	for limit := time.Now().Add(1000 * defaultTTL); !f.census.balancedSince(defaultTTL); time.Sleep(defaultTTL / 10) {
		require.True(f.t, time.Now().Before(limit), "%s: the shards are not balanced", f.system.name)
	}
	c.add(f.census, began)
}

// countAtRest counts requests while nobody comes or goes.
func (f *fleet) countAtRest(d *report.Fleet) {
	time.Sleep(3 * defaultTTL)
	count := func() (gets, puts, lists, refused int64) {
		for _, m := range f.crew {
			gets, puts, lists, refused = gets+m.link.gets.Load(), puts+m.link.puts.Load(), lists+m.link.lists.Load(), refused+m.link.refused.Load()
		}
		return gets, puts, lists, refused
	}
	gets, puts, lists, refused := count()
	time.Sleep(f.system.rest)
	gets2, puts2, lists2, refused2 := count()
	hours := f.system.rest.Hours()
	d.Rest, d.Refused = hours, int(refused2-refused)
	d.GetHour, d.PutHour, d.ListHour = float64(gets2-gets)/hours, float64(puts2-puts)/hours, float64(lists2-lists)/hours
}

// census knows who works on which shard, as the members themselves see it.
type census struct {
	mu      sync.Mutex
	members map[string]int // how many shards each works on; only of those that are to have some
	shards  map[string]*workedOn
	free    int       // shards on which nobody works
	twice   int       // on which more than one member does
	owned   time.Time // when the last shard without an owner got one
	even    time.Time // since when the shards are balanced; zero if they are not

	// Since start was called.
	gaps   []float64 // seconds for which nobody worked on a shard that was worked on before
	shared []float64 // seconds for which two members worked on one
}

// workedOn is a shard.
type workedOn struct {
	by    map[string]bool
	since time.Time // of the last change of the number of members that work on it; zero if there was none
	moves int       // since start was called
}

func newCensus(n int) *census {
	c := &census{members: make(map[string]int), shards: make(map[string]*workedOn), free: n}
	for i := range n {
		c.shards[strconv.Itoa(i)] = &workedOn{by: make(map[string]bool)}
	}
	return c
}

// start begins the count of what follows from a change.
func (c *census) start() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaps, c.shared = nil, nil
	for _, s := range c.shards {
		s.moves = 0
	}
	return time.Now()
}

func (c *census) joins(member string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[member] = 0
	c.weigh()
}

// leaves notes that a member is to have no shards.
func (c *census) leaves(member string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.members, member)
	c.weigh()
}

func (c *census) dies(member string) {
	c.leaves(member)
	for shard := range c.shards {
		c.ends(member, shard)
	}
}

// begins notes that a member works on a shard. It does nothing if the member leaves or is dead: a request of it may have been under way.
func (c *census) begins(member, shard string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.members[member]; !ok {
		return
	}
	s, now := c.shards[shard], time.Now()
	s.by[member] = true
	s.moves++
	c.members[member]++
	switch len(s.by) {
	case 1:
		if c.free--; c.free == 0 {
			c.owned = now
		}
		if !s.since.IsZero() {
			c.gaps = append(c.gaps, now.Sub(s.since).Seconds())
		}
		s.since = now
	case 2:
		c.twice++
		s.since = now
	}
	c.weigh()
}

// ends notes that a member works on a shard no more. It does nothing if that is known.
func (c *census) ends(member, shard string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, now := c.shards[shard], time.Now()
	if !s.by[member] {
		return
	}
	delete(s.by, member)
	if _, ok := c.members[member]; ok {
		c.members[member]--
	}
	switch len(s.by) {
	case 0:
		c.free++
		s.since = now
	case 1:
		c.twice--
		c.shared = append(c.shared, now.Sub(s.since).Seconds())
		s.since = now
	}
	c.weigh()
}

// weigh notes whether the shards are balanced.
func (c *census) weigh() {
	least, most, total := len(c.shards), 0, 0
	for _, n := range c.members {
		least, most, total = min(least, n), max(most, n), total+n
	}
	if c.free > 0 || c.twice > 0 || total != len(c.shards) || most-least > 1 {
		c.even = time.Time{}
	} else if c.even.IsZero() {
		c.even = time.Now()
	}
}

func (c *census) balancedSince(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.even.IsZero() && time.Since(c.even) >= d
}

// aftermath is what followed from changes of one kind.
type aftermath struct {
	owned, balanced, moves, gaps, shared []float64
	most                                 int
}

func (c *aftermath) add(census *census, began time.Time) {
	census.mu.Lock()
	defer census.mu.Unlock()
	moves := 0
	for _, s := range census.shards {
		moves += s.moves
		c.most = max(c.most, s.moves)
	}
	c.owned = append(c.owned, max(census.owned.Sub(began).Seconds(), 0))
	c.balanced = append(c.balanced, max(census.even.Sub(began).Seconds(), 0))
	c.moves = append(c.moves, float64(moves))
	c.gaps, c.shared = append(c.gaps, census.gaps...), append(c.shared, census.shared...)
}

func (c *aftermath) describe(way string) report.Change {
	return report.Change{
		Way: way, Owned: report.NewSample(c.owned), Balanced: report.NewSample(c.balanced), Moves: report.NewSample(c.moves), Most: c.most,
		Gap: report.NewSample(c.gaps), Shared: report.NewSample(c.shared),
	}
}
