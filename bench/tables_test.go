package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/locktable"
)

// tableLocks is how many locks one process holds at full size. That 10,000 of them are held, and
// waited for by two, takes a table of 700 KB.
const tableLocks = 10_000

var (
	tabledPushed = peer{name: report.TabledPushed, open: newTabledPushed, prefix: pushPrefix}
	meanwhile    = peer{name: report.Meanwhile, open: newMeanwhile, prefix: pushPrefix}
	etcdMutex    = peer{name: report.Mutex, open: newEtcdMutex}
)

// member is a process that uses a table, with a lock that it wants.
type member struct {
	table  *locktable.Table
	name   string // of the lock
	lock   *locktable.Lock
	mortal *mortal
	reads  atomic.Int64 // of the table's object
	writes atomic.Int64 // of the table's object
	work   tableWork
	end    func() // its Run gracefully, unless it is dead

	meanwhile bool // a release is not waited for, so that one write also has what is wanted next
}

// tableWork is what a process has done with the table's object.
type tableWork struct {
	mu sync.Mutex
	n  report.TableWork
}

func (w *tableWork) observe(_ context.Context, e locktable.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.Kind == locktable.EventRead:
		w.n.Reads++
	case e.Kind == locktable.EventWrite && errors.Is(e.Err, leasehold.ErrPreconditionFailed):
		w.n.Refused++
		w.n.RefusedTime += e.Duration.Seconds()
	case e.Kind == locktable.EventWrite:
		w.n.Writes++
		w.n.WriteTime += e.Duration.Seconds()
	}
}

// workOf is the sum of what the members of a crowd have done; nil if they use no table.
func workOf(crowd []candidate) (sum *report.TableWork) {
	for _, c := range crowd {
		m, ok := c.(*member)
		if !ok {
			return nil
		}
		if sum == nil {
			sum = new(report.TableWork)
		}
		m.work.mu.Lock()
		sum.Add(m.work.n, 1)
		m.work.mu.Unlock()
	}
	return sum
}

// join has a process with a store of its own use a table.
func join(t *testing.T, p *place, key, lock string, s settings) *member {
	dies := newMortal(leasehold.NewS3Store(p.client, p.bucket))
	m := &member{name: lock, mortal: dies}
	counted := teststore.Known(dies, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		switch {
		case r.Key != key:
		case r.Puts():
			m.writes.Add(1)
		case r.Op == teststore.Get:
			m.reads.Add(1)
		}
		return r.Send(ctx)
	})
	var err error
	m.table, err = locktable.New(counted, key, locktable.WithTTL(s.ttl), locktable.WithPollInterval(s.poll),
		locktable.WithLogger(slog.New(slog.DiscardHandler)), locktable.WithObserver(m.work.observe))
	require.NoError(t, err)
	m.lock = m.table.Lock(lock)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		if err := m.table.Run(ctx); err != nil && !dies.dead.Load() {
			t.Error(err)
		}
	}()
	m.end = func() {
		cancel()
		<-ran
	}
	t.Cleanup(m.end)
	return m
}

func newTabledPushed(t *testing.T, p *place, key, _ string, s settings) candidate {
	return pushedTo(p, join(t, p, key, "lock", s))
}

func newMeanwhile(t *testing.T, p *place, key, _ string, s settings) candidate {
	m := pushedTo(p, join(t, p, key, "lock", s))
	m.meanwhile = true
	return m
}

func pushedTo(p *place, m *member) *member {
	p.pushed(m.table.Key(), m.table.Wake)
	return m
}

type tableTerm struct {
	*locktable.Lease
	member *member
}

func (m *member) acquire(ctx context.Context) (term, error) {
	lease, err := m.lock.Acquire(ctx)
	return tableTerm{lease, m}, err
}

func (l tableTerm) release(ctx context.Context) error {
	if l.member.meanwhile {
		go func() { _ = l.Release(ctx) }()
		return nil
	}
	return l.Release(ctx)
}

func (tableTerm) renew(context.Context) error { return errors.New("renews by itself") }
func (l tableTerm) crash()                    { l.member.mortal.dead.Store(true) }

// joined waits until the process is a member, and has read the table.
func (m *member) joined(ctx context.Context) error {
	own, err := leasehold.NewLock(m.mortal.Store.Store, m.table.Key()+".members/"+m.table.MemberName())
	if err != nil {
		return err
	}
	for {
		rec, err := own.Inspect(ctx)
		if err == nil && !rec.Released() && m.reads.Load() > 0 {
			return nil
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// many is a process that holds, or waits for, many locks.
type many interface {
	hold(ctx context.Context, lock string) error           // returns when it holds it
	waiting(ctx context.Context) (int, error)              // requests in all lines
	crash(ctx context.Context) (last time.Time, err error) // last is when the last renewal was sent
	leave()                                                // gracefully
	requests() report.Requests
}

type manyTabled struct {
	*member
	mu     sync.Mutex
	leases []*locktable.Lease // else they would be freed as forgotten
}

func (m *manyTabled) hold(ctx context.Context, lock string) error {
	lease, err := m.table.Lock(lock).Acquire(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leases = append(m.leases, lease)
	return nil
}

func (m *manyTabled) waiting(ctx context.Context) (int, error) {
	state, err := m.table.Inspect(ctx)
	return len(state.Waiting), err
}

func (m *manyTabled) crash(context.Context) (time.Time, error) {
	m.mortal.dead.Store(true)
	go m.end()
	return m.mortal.written(), nil
}

func (m *manyTabled) leave() { m.end() }

func (m *manyTabled) requests() report.Requests {
	return report.Requests{
		Gets:      int64(m.mortal.Sent(teststore.Get)),
		Puts:      int64(m.mortal.Sent(teststore.Puts...)),
		Deletes:   int64(m.mortal.Sent(teststore.Delete)),
		TableGets: m.reads.Load(), TablePuts: m.writes.Load(),
	}
}

type manyEtcd struct {
	client  *clientv3.Client
	session *concurrency.Session
	prefix  string
	locks   int
}

func newManyEtcd(t *testing.T, p *place, key string, locks int, s settings) many {
	session, err := concurrency.NewSession(p.etcd, concurrency.WithTTL(int(s.ttl/time.Second)))
	require.NoError(t, err)
	t.Cleanup(session.Orphan)
	return &manyEtcd{p.etcd, session, "/" + key + "/", locks}
}

// hold asks again when etcd refuses because 5,000 requests wait to be applied.
func (m *manyEtcd) hold(ctx context.Context, lock string) error {
	mutex := concurrency.NewMutex(m.session, m.prefix+lock)
	for {
		err := mutex.Lock(ctx)
		if !errors.Is(err, rpctypes.ErrTooManyRequests) {
			return err
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func (m *manyEtcd) waiting(ctx context.Context) (int, error) {
	keys, err := m.client.Get(ctx, m.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return int(keys.Count) - m.locks, nil
}

func (m *manyEtcd) crash(ctx context.Context) (time.Time, error) {
	last := time.Now()
	_, err := m.client.KeepAliveOnce(ctx, m.session.Lease())
	m.session.Orphan()
	return last, err
}

func (m *manyEtcd) leave() { _ = m.session.Close() }

func (*manyEtcd) requests() report.Requests { return report.Requests{} }

// holdAll has a process want all locks at once. led is called with each lock that it has.
func holdAll(ctx context.Context, m many, locks int, led func(lock int)) (ended func() error) {
	failed := make(chan error, locks)
	var wg sync.WaitGroup
	for i := range locks {
		wg.Go(func() {
			if err := m.hold(ctx, fmt.Sprintf("lock-%05d", i)); err != nil {
				failed <- err
				return
			}
			led(i)
		})
	}
	return func() error {
		wg.Wait()
		close(failed)
		return <-failed
	}
}

// manyTrial has one process acquire all locks, and two others wait for all of them. Then it ends,
// or crashes. atOnce is how long the first took, and again until all were led again: since the last
// renewal of a process that crashed, and since one was told to end.
func manyTrial(ctx context.Context, locks int, s settings, crash bool,
	process func(name string) (many, error),
) (atOnce, again time.Duration, acquiring, ending report.Requests, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	first, err := process("first")
	if err != nil {
		return
	}
	began := time.Now()
	if err = holdAll(ctx, first, locks, func(int) {})(); err != nil {
		return
	}
	atOnce, acquiring = time.Since(began), first.requests()

	var led atomic.Int64
	all := make(chan time.Time, 1)
	taken := make([]atomic.Bool, locks)
	var ended []func() error
	for _, name := range []string{"second", "third"} {
		other, failed := process(name)
		if failed != nil {
			err = failed
			return
		}
		defer other.leave()
		ended = append(ended, holdAll(ctx, other, locks, func(lock int) {
			if !taken[lock].Swap(true) && led.Add(1) == int64(locks) {
				all <- time.Now()
			}
		}))
	}
	defer func() {
		cancel() // those that still wait
		for _, ended := range ended {
			_ = ended()
		}
	}()
	for n := 0; n < 2*locks; {
		if n, err = first.waiting(ctx); err != nil {
			return
		}
		if err = wait(ctx, 50*time.Millisecond); err != nil {
			return
		}
	}
	settle(s)
	before := first.requests()
	began = time.Now()
	if crash {
		time.Sleep(time.Duration(rand.Int64N(int64(s.ttl)))) // at any point of the renewals
		if began, err = first.crash(ctx); err != nil {
			return
		}
	} else {
		first.leave()
		ending = first.requests().Since(before)
	}
	select {
	case at := <-all:
		again = at.Sub(began)
	case <-ctx.Done():
		err = errors.New("not all locks are led again")
	}
	return
}

// crowded is of candidates whom push wakes, so they poll as seldom as by default, every TTL/5.
var crowded = settings{ttl: 10 * time.Second, poll: 2 * time.Second}

// measureTables measures many locks in one table.
func measureTables(t *testing.T, server testserver.S3, h *hub, o otherServers, n size,
	progress func(string)) *report.Tables {
	s := settings{ttl: n.tableTTL, poll: n.tableTTL / 5}
	p := newPlace(t, server)
	found := &report.Tables{
		Place: p.name, Locks: n.tableLocks, TTL: s.ttl.Seconds(), Poll: s.poll.Seconds(),
		CrowdPoll: crowded.poll.Seconds(),
	}
	server.Notify(t, p.bucket, pushPrefix)
	o.reach(t, p, func(addr string) string { return addr })
	p.pushed = h.add
	h.delay.Store(0)

	progress("tables: memory, and a loss")
	found.Memory, found.Told = weighTable(t, n, s)
	progress("tables: many locks")
	t.Run("many", func(t *testing.T) { found.Many, found.Bare = measureMany(t, p, s, n) })
	progress("tables: crowds")
	rate := bareRate(t, p, n.contention)
	var rates []float64
	for _, candidates := range n.tableCrowds {
		for _, peer := range shuffled([]peer{tabledPushed, meanwhile, etcdMutex}) {
			rates = append(rates, rate())
			t.Run("crowd", func(t *testing.T) {
				found.Crowds = append(found.Crowds, contend(t, p, peer, candidates, crowded, n.tableCompetition))
			})
		}
	}
	for _, candidates := range n.tableEach {
		for _, peer := range shuffled([]peer{tabledPushed, meanwhile, etcdMutex}) {
			rates = append(rates, rate())
			t.Run("each", func(t *testing.T) {
				found.Each = append(found.Each, lockEach(t, p, peer, candidates, n.tableCompetition))
			})
		}
	}
	found.Puts = report.Quantile(rates, 0.5)
	progress("tables: hand-over")
	t.Run("hand-over", func(t *testing.T) { found.Handovers = tableHandovers(t, server, h, o, n) })
	require.False(t, t.Failed())
	return found
}

// measureMany makes trials with many locks, one at a time.
func measureMany(t *testing.T, p *place, s settings, n size) (list []report.Many, halfOfTwo report.Sample) {
	kinds := []struct {
		peer string
		open func(t *testing.T, key string) (many, error)
	}{
		{report.Tabled, func(t *testing.T, key string) (many, error) {
			m := &manyTabled{member: join(t, p, key, "lock", s)}
			return m, m.joined(t.Context())
		}},
		{report.TabledPushed, func(t *testing.T, key string) (many, error) {
			m := &manyTabled{member: pushedTo(p, join(t, p, key, "lock", s))}
			return m, m.joined(t.Context())
		}},
		{report.Mutex, func(t *testing.T, key string) (many, error) {
			return newManyEtcd(t, p, key, n.tableLocks, s), nil
		}},
	}
	type figures struct {
		times     []float64
		requests  []report.Requests
		peer, way string
	}
	var all []*figures
	of := func(peer, way string) *figures {
		for _, f := range all {
			if f.peer == peer && f.way == way {
				return f
			}
		}
		all = append(all, &figures{peer: peer, way: way})
		return all[len(all)-1]
	}
	for _, way := range []string{report.AtOnce, report.AllKilled, report.AllEnded} { // the order of the rows
		for _, kind := range kinds {
			of(kind.peer, way)
		}
	}
	r := newRaw(t, p, "bare")
	var bare []float64
	for i := range n.tableTrials {
		for range 20 {
			began := time.Now()
			require.NoError(t, errors.Join(r.get(t.Context()), r.put(t.Context())))
			bare = append(bare, time.Since(began).Seconds()/2)
		}
		for k, kind := range kinds {
			for _, way := range []string{report.AllKilled, report.AllEnded} {
				if way == report.AllKilled && kind.peer == report.TabledPushed { // nothing pushes a death
					continue
				}
				t.Run(fmt.Sprint(kind.peer, " ", way), func(t *testing.T) {
					key := fmt.Sprintf("%smany/%d/%d/%s", pushPrefix, i, k, way)
					open := func(string) (many, error) { return kind.open(t, key) }
					atOnce, again, acquiring, ending, err := manyTrial(t.Context(), n.tableLocks, s,
						way == report.AllKilled, open)
					require.NoError(t, err)
					f := of(kind.peer, report.AtOnce)
					f.times, f.requests = append(f.times, atOnce.Seconds()), append(f.requests, acquiring)
					f = of(kind.peer, way)
					f.times = append(f.times, again.Seconds())
					if way == report.AllEnded {
						f.requests = append(f.requests, ending)
					}
				})
			}
		}
	}
	for _, f := range all {
		if len(f.times) == 0 {
			continue
		}
		m := report.Many{Peer: f.peer, Case: f.way, Time: report.NewSample(f.times)}
		if f.peer != report.Mutex && len(f.requests) > 0 {
			most := report.Requests{}
			for _, r := range f.requests {
				most = most.Most(r)
			}
			m.Requests = &most
		}
		list = append(list, m)
	}
	return list, report.NewSample(bare)
}

// weighTable weighs the leases that one process holds, and the requests with which another waits
// for them. Then the store is gone for the first one. told is the time from the end of the first
// context of its leases to the end of the last, as goroutines see it that wait for them.
func weighTable(t *testing.T, n size, s settings) (memory []report.Memory, told report.Sample) {
	store := leasehold.NewMemStore()
	open := func(store leasehold.Store) *locktable.Table {
		table, err := locktable.New(store, "weighed", locktable.WithTTL(s.ttl), locktable.WithPollInterval(s.poll),
			locktable.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		return table
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running, waiting sync.WaitGroup
	defer running.Wait()
	defer cancel()
	dies := newMortal(store)
	first, second := open(dies), open(store)
	for _, table := range []*locktable.Table{first, second} {
		running.Go(func() { _ = table.Run(ctx) })
		lease, err := table.Lock("first of " + table.MemberName()).Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, lease.Release(ctx))
	}
	want := func(table *locktable.Table, keep func(i int, lease *locktable.Lease)) {
		for i := range n.tableLocks {
			waiting.Go(func() {
				if lease, err := table.Lock(fmt.Sprintf("lock-%05d", i)).Acquire(ctx); err == nil {
					keep(i, lease)
				}
			})
		}
	}
	leases := make([]*locktable.Lease, n.tableLocks)
	before := weigh()
	want(first, func(i int, lease *locktable.Lease) { leases[i] = lease })
	waiting.Wait()
	memory = append(memory, lightest().since(before, report.OnMemStore, report.Holds, n.tableLocks))
	before = weigh()
	want(second, func(int, *locktable.Lease) {})
	for n, err := 0, error(nil); n < len(leases); time.Sleep(s.poll / 10) {
		require.NoError(t, err)
		var state locktable.State
		state, err = first.Inspect(ctx)
		n = len(state.Waiting)
	}
	memory = append(memory, lightest().since(before, report.OnMemStore, report.WaitsFor, n.tableLocks))

	ends := make([]time.Time, len(leases))
	var watching sync.WaitGroup
	for i, lease := range leases {
		watching.Go(func() {
			<-lease.Context().Done()
			ends[i] = time.Now()
		})
	}
	dies.dead.Store(true)
	watching.Wait()
	began := slices.MinFunc(ends, time.Time.Compare)
	var seconds []float64
	for _, at := range ends {
		seconds = append(seconds, at.Sub(began).Seconds())
	}
	cancel()
	waiting.Wait()
	return memory, report.NewSample(seconds)
}

// lightest weighs ten times, because a version of the table may be on its way to the store, and
// takes the least.
func lightest() (s scales) {
	for i := range 10 {
		time.Sleep(10 * time.Millisecond)
		if next := weigh(); i == 0 || next.memory.HeapAlloc < s.memory.HeapAlloc {
			s = next
		}
	}
	return s
}

// bareRate returns a function that sends bare conditional PUTs in a row, and returns how many they
// are a second.
func bareRate(t *testing.T, p *place, d time.Duration) func() float64 {
	r := newRaw(t, p, "rate")
	return func() float64 {
		sent, began := 0, time.Now()
		for ; time.Since(began) < d; sent++ {
			require.NoError(t, r.put(t.Context()))
		}
		return float64(sent) / time.Since(began).Seconds()
	}
}

// A line is of the candidates for one lock of a table. Another holds the lock until all of them
// wait, so that what is measured is how it passes along a line, and not how the line comes to be.
type line struct {
	table *locktable.Table
	gate  *locktable.Lease // nil if there is no line
	wait  int              // candidates
}

// assemble waits until all processes of a table are its members, as etcd's candidates have their
// sessions before the clock starts.
func assemble(t *testing.T, crowd []candidate) (l line) {
	one, ok := crowd[0].(*member)
	if !ok {
		return l
	}
	l.table = one.table
	l.await(t, func(s locktable.State) bool { return len(s.Members) == len(crowd) })
	if len(crowd) > 1 && one.name == crowd[1].(*member).name {
		var err error
		l.gate, err = one.lock.Acquire(t.Context())
		require.NoError(t, err)
		l.wait = len(crowd)
	}
	return l
}

func (l line) fill(t *testing.T) {
	if l.gate != nil {
		l.await(t, func(s locktable.State) bool { return len(s.Waiting) == l.wait })
	}
}

func (l line) open(t *testing.T) {
	if l.gate != nil {
		require.NoError(t, l.gate.Release(t.Context()))
	}
}

func (l line) await(t *testing.T, there func(locktable.State) bool) {
	for {
		state, err := l.table.Inspect(t.Context())
		require.NoError(t, err)
		if there(state) {
			return
		}
		require.NoError(t, wait(t.Context(), 20*time.Millisecond))
	}
}

// lockEach is contend for candidates each of which has a lock of its own.
func lockEach(t *testing.T, p *place, peer peer, candidates int, d time.Duration) report.Crowd {
	key := fmt.Sprintf("%sper-member/%d/%s", peer.prefix, candidates, peer.name)
	crowd := make([]candidate, candidates)
	for i := range crowd {
		if peer.on() == "" {
			m := pushedTo(p, join(t, p, key, fmt.Sprint("lock-", i), crowded))
			m.meanwhile = peer.name == report.Meanwhile
			crowd[i] = m
		} else {
			crowd[i] = peer.open(t, p, fmt.Sprint(key, "/", i), fmt.Sprint("candidate-", i), crowded)
		}
	}
	return compete(t, p, peer, crowd, d)
}

// tableHandovers measures the hand-over of one lock, as measureHandover does.
func tableHandovers(t *testing.T, server testserver.S3, h *hub, o otherServers, n size) (list []report.Handover) {
	s := settings{ttl: 5 * time.Second, poll: time.Second}
	for _, roundTrip := range n.roundTrips {
		p := farPlace(t, server, h, o, roundTrip)
		list = append(list, releases(t, p, n, s, []peer{tabledPushed, etcdMutex})...)
	}
	return list
}
