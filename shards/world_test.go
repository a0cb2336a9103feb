package shards_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/shards"
)

func TestMain(m *testing.M) {
	flag.Parse()
	scale()
	goleak.VerifyTestMain(m)
}

const (
	ttl  = 15 * time.Second
	poll = ttl / 5
)

// world is a store and the members that use it. It checks that no shard ever has two owners, and that tokens rise by one.
type world struct {
	t   *testing.T
	mem *leasehold.MemStore
	set shards.Set

	mu      sync.Mutex // guards what follows
	members map[string]*member
	last    map[string]owner // of each shard
	starts  map[string]int   // of each shard
	skipped bool             // tokens may be skipped, because answers of the store get lost
	plans   []shards.Event
	events  []shards.Event
}

type owner struct {
	member string
	shard  shards.Shard
}

// member is one process.
type member struct {
	w     *world
	name  string
	link  *link
	group *shards.Group
	leave context.CancelFunc
	done  chan error
	owned map[string]bool // guarded by w.mu
}

// inWorld runs a test in virtual time.
func inWorld(t *testing.T, set shards.Set, run func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, mem: leasehold.NewMemStore(), set: set,
			members: make(map[string]*member), last: make(map[string]owner), starts: make(map[string]int),
		}
		defer w.stopAll()
		run(w)
	})
}

// name returns the name of member i.
func name(i int) string { return fmt.Sprintf("m%02d", i) }

// start starts a member.
func (w *world) start(name string, opts ...shards.Option) *member {
	return w.startWith(name, w.set, w.handle, opts...)
}

type handler func(m *member, ctx context.Context, s shards.Shard) error

func (w *world) startWith(name string, set shards.Set, handle handler, opts ...shards.Option) *member {
	w.t.Helper()
	m := &member{w: w, name: name, link: &link{Store: w.mem}, done: make(chan error, 1), owned: make(map[string]bool)}
	all := append([]shards.Option{
		shards.WithMember(name), shards.WithTTL(ttl), shards.WithLogger(nil), shards.WithObserver(m.observe),
	}, opts...)
	var err error
	m.group, err = shards.New(m.link, "g", set, func(ctx context.Context, s shards.Shard) error { return handle(m, ctx, s) }, all...)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m.leave = cancel
	w.mu.Lock()
	w.members[name] = m
	w.mu.Unlock()
	go func() { m.done <- m.group.Run(ctx) }()
	return m
}

// stop ends the member gracefully, and waits for that.
func (m *member) stop() error {
	m.leave()
	err := <-m.done
	m.w.mu.Lock()
	delete(m.w.members, m.name)
	m.w.mu.Unlock()
	return err
}

// kill ends the member as SIGKILL does, as far as the store can see.
func (m *member) kill() {
	m.link.down.Store(true)
	m.w.mu.Lock()
	delete(m.w.members, m.name)
	m.w.mu.Unlock()
	m.leave()
}

func (w *world) stopAll() {
	w.mu.Lock()
	members := slices.Collect(maps.Values(w.members))
	w.mu.Unlock()
	for _, m := range members {
		m.leave()
	}
	for _, m := range members {
		<-m.done
	}
	time.Sleep(4 * ttl) // of those that were killed
}

func (m *member) observe(e shards.Event) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	if e.Kind == shards.EventPlanned {
		m.w.plans = append(m.w.plans, e)
	}
	m.w.events = append(m.w.events, e)
}

// published returns the plans that were published.
func (w *world) published() []shards.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.plans)
}

// handle is the usual handler.
func (w *world) handle(m *member, ctx context.Context, s shards.Shard) error {
	w.begin(m, s)
	defer w.end(m, s)
	<-ctx.Done()
	return nil
}

func (w *world) begin(m *member, s shards.Shard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, ok := w.last[s.ID]; ok && before.shard.Lease() != s.Lease() {
		if before.shard.Lease().Valid() {
			w.t.Errorf("shard %s: %s owns it with token %d while the lease of %s goes on", s.ID, m.name, s.Token(), before.member)
		}
		if want := before.shard.Token() + 1; s.Token() != want && (!w.skipped || s.Token() < want) {
			w.t.Errorf("shard %s: token %d follows %d", s.ID, s.Token(), want-1)
		}
	}
	w.last[s.ID] = owner{m.name, s}
	w.starts[s.ID]++
	m.owned[s.ID] = true
}

func (w *world) end(m *member, s shards.Shard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(m.owned, s.ID)
}

// counts returns how many shards each live member owns.
func (w *world) counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := make(map[string]int)
	for name, m := range w.members {
		counts[name] = len(m.owned)
	}
	return counts
}

// balanced reports whether n shards are owned by live members, whose numbers differ by at most one.
func (w *world) balanced(n int) bool {
	counts := slices.Collect(maps.Values(w.counts()))
	total := 0
	for _, c := range counts {
		total += c
	}
	return total == n && (len(counts) == 0 || slices.Max(counts)-slices.Min(counts) <= 1)
}

// await waits until what it asks for is so, and returns how long that took.
func (w *world) await(limit time.Duration, what string, ok func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > limit {
			require.FailNow(w.t, "not so within "+limit.String()+": "+what, "%v", w.counts())
		}
		time.Sleep(ttl / 300)
	}
	return time.Since(began)
}

func (w *world) awaitBalance(n int) time.Duration {
	w.t.Helper()
	return w.await(10*ttl, fmt.Sprint(n, " shards are balanced"), func() bool { return w.balanced(n) })
}

// settled waits until the shards are balanced and the planner is at rest.
func (w *world) settled(n int) {
	w.t.Helper()
	w.awaitBalance(n)
	time.Sleep(3 * ttl)
	require.True(w.t, w.balanced(n), "%v", w.counts())
}

func (w *world) totalStarts() (total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.starts {
		total += n
	}
	return total
}

// snapshot returns the number of starts of each shard.
func (w *world) snapshot() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.starts)
}

// count returns how many events of a kind there were, and of which shards.
func (w *world) count(kind shards.EventKind) (n int, ids map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids = make(map[string]bool)
	for _, e := range w.events {
		if e.Kind == kind {
			n++
			ids[e.Shard] = true
		}
	}
	return n, ids
}

// planner returns the member that is the planner.
func (w *world) planner() *member {
	w.t.Helper()
	obj, err := w.mem.Get(context.Background(), "g/planner")
	require.NoError(w.t, err)
	var rec leasehold.Record
	require.NoError(w.t, rec.UnmarshalJSON(obj.Body))
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.members[rec.Holder]
}

// requests returns what all members have sent.
func (w *world) requests() (gets, puts, refused int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.members {
		gets, puts, refused = gets+m.link.gets.Load(), puts+m.link.puts.Load(), refused+m.link.refused.Load()
	}
	return gets, puts, refused
}

// writes returns how many objects other than sessions all members have written.
func (w *world) writes() (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.members {
		n += m.link.others.Load()
	}
	return n
}

// link is a member's way to the store, with the latency of a bucket. Each member has its own, so that members do not wake each other
// as locks of one process do.
type link struct {
	leasehold.Store
	gets, puts, refused atomic.Int64
	others              atomic.Int64 // of puts: those of other objects than sessions
	down                atomic.Bool  // each request hangs until its context ends
	deny                atomic.Pointer[func(put bool, key string) error]
}

func (l *link) send(ctx context.Context, put bool, key string) error {
	if l.down.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if put {
		l.puts.Add(1)
		if !strings.HasPrefix(key, "g/members/") {
			l.others.Add(1)
		}
	} else {
		l.gets.Add(1)
	}
	time.Sleep(10*time.Millisecond + rand.N(20*time.Millisecond))
	if deny := l.deny.Load(); deny != nil {
		return (*deny)(put, key)
	}
	return nil
}

// refuse denies what the function returns an error for.
func (l *link) refuse(f func(put bool, key string) error) { l.deny.Store(&f) }

func (l *link) note(err error) {
	if errors.Is(err, leasehold.ErrPreconditionFailed) || errors.Is(err, leasehold.ErrNotExist) {
		l.refused.Add(1)
	}
}

func (l *link) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := l.send(ctx, false, key); err != nil {
		return leasehold.Object{}, err
	}
	return l.Store.Get(ctx, key)
}

func (l *link) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if err := l.send(ctx, true, key); err != nil {
		return "", err
	}
	etag, err := l.Store.PutIfNoneMatch(ctx, key, body)
	l.note(err)
	return etag, err
}

func (l *link) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := l.send(ctx, true, key); err != nil {
		return "", err
	}
	newETag, err := l.Store.PutIfMatch(ctx, key, body, etag)
	l.note(err)
	return newETag, err
}

// denied is what S3 says without a permission.
func denied(doing string) error {
	return fmt.Errorf("%s: 403 AccessDenied: %w", doing, leasehold.ErrPermanent)
}

func isShard(key string) bool { return strings.HasPrefix(key, "g/shards/") }

// deputy returns the member that watches along with the planner.
func (w *world) deputy() *member {
	w.t.Helper()
	obj, err := w.mem.Get(context.Background(), "g/planner")
	require.NoError(w.t, err)
	var rec leasehold.Record
	require.NoError(w.t, rec.UnmarshalJSON(obj.Body))
	var plan struct{ Deputy string }
	require.NoError(w.t, json.Unmarshal(rec.Payload, &plan))
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.members[plan.Deputy]
}

// someMember returns any member but these.
func (w *world) someMember(but ...*member) *member {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.members)) {
		if m := w.members[name]; !slices.Contains(but, m) {
			return m
		}
	}
	return nil
}
