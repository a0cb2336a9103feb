package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/locktable"
)

// TableConfig bounds a search of members that share one table of locks.
type TableConfig struct {
	// Wants are the requests of each member, one after the other. A request names its locks with
	// "+" between; "/s" behind a name shares it.
	Wants    [][]string
	Steps    int // of one path
	Faults   int // on one path; time that passes while a request is under way is one, too
	Crashes  int // on one path; nobody restarts
	Suspends int // on one path: a member's machine sleeps from one step to a later one
}

// SearchTables is Search for members of a table.
func SearchTables(t *testing.T, cfg TableConfig, workers int) Result {
	return searchAll(t, cfg.Steps, workers, true, func() place { return newTableWorld(cfg) })
}

const tableKey = "t"

// tableWorld is the walk along one path. Between two steps every goroutine of every member waits.
type tableWorld struct {
	story
	cfg        TableConfig
	mu         sync.Mutex // guards all fields against the members' goroutines
	members    []*tableMember
	objects    map[string]*tableVersion // by short key
	ghosts     []*tableRequest          // on the network, though the member has its answer or crashed
	duplicates int                      // applied
	faults     int
	crashes    int
	suspends   int
	tokens     map[string]uint64 // the last one of each lock that somebody held exclusively
	acquired   int
	changes    int // of what members hold or have done
}

// tableVersion is what an object holds. Its name says which write has made it.
type tableVersion struct {
	name string
	body []byte
}

// tableRequest is one request. Its label tells it from all others of its member, whatever the order
// in which the member's goroutines send them.
type tableRequest struct {
	by             *tableMember
	kind, key      string
	label, version string
	body           []byte
	ifMatch        string
	reply          chan tableReply
}

type tableReply struct {
	obj leasehold.Object
	err error
}

// tableMember is one process, and the clock of its machine. Its history is all that it has
// observed, and therefore determines its state.
type tableMember struct {
	w       *tableWorld
	i       int
	rate    float64
	base    clock.Reading // at true time since
	since   time.Duration
	asleep  bool
	dead    bool
	timers  []*tableTimer
	pending []*tableRequest
	sent    map[string]int // requests by kind and key
	tab     *locktable.Table
	life    context.Context
	kill    context.CancelFunc
	lease   *locktable.Lease
	locks   []string // of the lease
	got     int      // requests that were granted
	done    bool
	history []event
	fresh   []event // of this step
}

func newTableWorld(cfg TableConfig) *tableWorld {
	w := &tableWorld{cfg: cfg, objects: make(map[string]*tableVersion), tokens: make(map[string]uint64)}
	for i := range cfg.Wants {
		m := &tableMember{
			w: w, i: i, rate: []float64{0.9852, 1.0148}[i%2], base: clock.Reading{Wall: time.Hour},
			sent: make(map[string]int),
		}
		m.life, m.kill = context.WithCancel(context.Background())
		var err error
		m.tab, err = locktable.New(m, tableKey, testopt.WithTableClock(m), locktable.WithTTL(ttl),
			locktable.WithSafetyMargin(margin), locktable.WithClockDrift(drift),
			locktable.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			panic(err)
		}
		w.members = append(w.members, m)
	}
	for _, m := range w.members {
		go m.run()
	}
	return w
}

func (m *tableMember) name() string { return string(rune('A' + m.i)) }

// run is the member's program: join, acquire, hold and release once for each request, and leave.
func (m *tableMember) run() {
	ctx, stop := context.WithCancel(m.life)
	defer stop()
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = m.tab.Run(ctx)
	}()
	for _, want := range m.w.cfg.Wants[m.i] {
		var locks []*locktable.Lock
		for name := range strings.SplitSeq(want, "+") {
			if plain, shared := strings.CutSuffix(name, "/s"); shared {
				locks = append(locks, m.tab.Shared(plain))
			} else {
				locks = append(locks, m.tab.Lock(name))
			}
		}
		lease, err := m.tab.All(locks...).Acquire(m.life)
		if err != nil {
			m.failed(err)
			break
		}
		m.acquires(lease, strings.Split(want, "+"))
		_ = m.Sleep(lease.Context(), ttl/3)
		m.released(lease, lease.Release(m.life))
	}
	stop()
	<-ran
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.done = true
	m.w.changes++
}

func (m *tableMember) failed(err error) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	if !m.dead {
		m.w.violate("%s cannot acquire: %v", m.name(), err)
	}
}

func (m *tableMember) acquires(lease *locktable.Lease, locks []string) {
	w := m.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.dead {
		return
	}
	m.lease, m.locks = lease, locks
	m.got++
	w.acquired++
	w.changes++
	m.note("acquires " + strings.Join(locks, "+"))
	for _, name := range locks {
		if _, shared := strings.CutSuffix(name, "/s"); shared {
			continue
		}
		if token := lease.Token(); token <= w.tokens[name] {
			w.violate("%s holds %s with token %d after token %d", m.name(), name, token, w.tokens[name])
		}
		w.tokens[name] = lease.Token()
	}
}

// released checks what a release has left in the table.
func (m *tableMember) released(lease *locktable.Lease, err error) {
	w := m.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.dead {
		return
	}
	w.changes++
	m.note(fmt.Sprint("released ", err == nil))
	switch {
	case err == nil && w.stands(m, lease.Token()):
		w.violate("%s has released token %d, and the table still has it", m.name(), lease.Token())
	case err != nil && !errors.Is(err, leasehold.ErrLost):
		w.violate("%s cannot release token %d: %v", m.name(), lease.Token(), err)
	}
}

// table is the table in the store.
func (w *tableWorld) table() *tables.Table {
	o := w.objects[tableKey]
	if o == nil {
		return tables.New()
	}
	tab, err := tables.Decode(o.body)
	if err != nil {
		w.violate("the table cannot be read: %v", err)
		return tables.New()
	}
	return tab
}

// stands reports whether the table grants a token to a member.
func (w *tableWorld) stands(m *tableMember, token uint64) bool {
	tab := w.table()
	for r := range tab.Held() {
		if by, _ := tab.Member(r.Member); r.Token == token && by.Name == m.tab.Member() {
			return true
		}
	}
	return false
}

// check runs at every step. It wants that no two valid leases conflict, and that the table has
// each.
func (w *tableWorld) check() {
	var valid []*tableMember
	for _, m := range w.members {
		w.mu.Lock()
		slices.SortFunc(m.fresh, func(a, b event) int {
			return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.what, b.what))
		})
		m.history, m.fresh = append(m.history, m.fresh...), nil
		lease := m.lease
		w.mu.Unlock()
		if lease != nil && !m.dead && lease.Valid() {
			valid = append(valid, m)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	holders := make(map[string]*tableMember)
	for _, m := range valid {
		if !w.stands(m, m.lease.Token()) {
			w.violate("the lease of %s (token %d) is valid, and the table does not have it", m.name(), m.lease.Token())
		}
		for _, lock := range m.locks {
			name, shared := strings.CutSuffix(lock, "/s")
			if other := holders[name]; other != nil && (!shared || !slices.Contains(other.locks, lock)) {
				w.violate("%s and %s hold %s", other.name(), m.name(), name)
			}
			holders[name] = m
		}
	}
	if w.suspends > 0 { // because after a suspend a context may end late
		return
	}
	for _, m := range w.members {
		if m.dead || m.lease == nil || m.lease.Context().Err() != nil || slices.Contains(valid, m) {
			continue
		}
		for _, lock := range m.locks {
			if other := holders[strings.TrimSuffix(lock, "/s")]; other != nil {
				w.violate("the context of %s has not ended, but %s holds %s", m.name(), other.name(), lock)
			}
		}
	}
}

// checkEnd wants that each member that has not crashed has had all that it wanted, and that nothing
// is left if nothing went wrong.
func (w *tableWorld) checkEnd() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.members {
		if wants := len(w.cfg.Wants[m.i]); !m.dead && (!m.done || m.got < wants) {
			w.violate("at the end %s has had %d of its %d requests", m.name(), m.got, wants)
		}
	}
	if w.faults+w.crashes+w.suspends > 0 {
		return
	}
	if members, held, waiting := w.table().Counts(); members+held+waiting > 0 || len(w.objects) > 1 {
		w.violate("at the end there are %d members, %d requests that hold and %d that wait, and %d objects are left",
			members, held, waiting, len(w.objects))
	}
}

func (w *tableWorld) terms() int { return w.acquired }

// end makes every goroutine of the world return: nothing reaches the store any more, and the clocks
// run as fast as anybody waits.
func (w *tableWorld) end() {
	for _, m := range w.members {
		m.die()
	}
}

func (m *tableMember) die() {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.dead = true
	m.kill()
	for _, t := range m.timers {
		m.fires(t)
	}
	m.timers, m.pending = nil, nil
}

// note adds an event to the member's history. The caller holds w.mu.
func (m *tableMember) note(what string) { m.fresh = append(m.fresh, event{at: m.w.now, what: what}) }

// choices lists everything that can happen next, in an order that depends only on the state.
func (w *tableWorld) choices() []choice {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []choice
	add := func(name string, do func()) {
		list = append(list, choice{name, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			do()
		}})
	}
	underWay := false
	for _, m := range w.members {
		if m.asleep || m.dead {
			continue
		}
		for _, r := range m.pending {
			underWay = true
			w.addRequest(r, add)
		}
	}
	for i, g := range w.ghosts {
		add(g.label+" is applied late", func() {
			w.ghosts = slices.Delete(slices.Clone(w.ghosts), i, i+1)
			w.apply(g)
		})
	}
	if _, ok := w.nextTimer(); ok && (!underWay || w.faults < w.cfg.Faults) {
		name := "time passes"
		if underWay {
			name += " while requests are under way"
		}
		list = append(list, choice{name, func() {
			if underWay {
				w.faults++
			}
			w.pass()
		}})
	}
	for _, m := range w.members {
		switch {
		case m.dead || m.done:
			continue
		case m.asleep:
			add(m.name()+" resumes", func() { m.sleepOrWake(false) })
			continue
		case w.suspends < w.cfg.Suspends && m.lease != nil:
			add(m.name()+" is suspended", func() {
				w.suspends++
				m.sleepOrWake(true)
			})
		}
		if w.crashes < w.cfg.Crashes && m.lease != nil {
			list = append(list, choice{m.name() + " crashes", func() { w.crash(m) }})
		}
	}
	return list
}

// crash ends a process. Its writes may have left the machine.
func (w *tableWorld) crash(m *tableMember) {
	w.mu.Lock()
	w.crashes++
	for _, r := range m.pending {
		if r.kind != "get" {
			w.ghosts = append(w.ghosts, r)
		}
	}
	w.mu.Unlock()
	m.die()
}

// addRequest adds what can happen to a request.
func (w *tableWorld) addRequest(r *tableRequest, add func(string, func())) {
	add(r.label+": served", func() { r.answer(w.apply(r)) })
	if w.faults == w.cfg.Faults {
		return
	}
	fault := func(name string, do func()) {
		add(r.label+": "+name, func() {
			w.faults++
			do()
		})
	}
	fault("lost, timed out", func() { r.answer(tableReply{err: context.DeadlineExceeded}) })
	if r.kind == "get" {
		return
	}
	fault("applied, no reply", func() { w.apply(r); r.answer(tableReply{err: io.ErrUnexpectedEOF}) })
	fault("applied, answered 412", func() { w.apply(r); r.answer(tableReply{err: leasehold.ErrPreconditionFailed}) })
	fault("timed out, may be applied later", func() {
		w.ghosts = append(w.ghosts, r)
		r.answer(tableReply{err: context.DeadlineExceeded})
	})
	fault("applied, sent twice", func() {
		w.ghosts = append(w.ghosts, r)
		r.answer(w.apply(r))
	})
}

// apply carries out a request.
func (w *tableWorld) apply(r *tableRequest) tableReply {
	o := w.objects[r.key]
	switch {
	case o == nil && r.kind != "create":
		return tableReply{err: leasehold.ErrNotExist}
	case r.kind == "get":
		return tableReply{obj: leasehold.Object{Body: o.body, ETag: o.name}}
	case r.kind == "create" && o != nil, r.kind != "create" && o.name != r.ifMatch:
		return tableReply{err: leasehold.ErrPreconditionFailed}
	case r.kind == "delete":
		if r.key == tableKey {
			w.violate("%s deletes the table", r.by.name())
		}
		delete(w.objects, r.key)
		return tableReply{}
	}
	before := w.table().Revision
	v := &tableVersion{name: r.version, body: r.body}
	if r.version == "" {
		r.version = r.label
		v.name = r.label
	} else { // a duplicate
		w.duplicates++
		v.name = fmt.Sprint(r.label, " again ", w.duplicates)
	}
	w.objects[r.key] = v
	if after := w.table().Revision; r.key == tableKey && after <= before {
		w.violate("%s writes revision %d after %d", r.label, after, before)
	}
	return tableReply{obj: leasehold.Object{ETag: v.name}}
}

// answer gives the sender its reply.
func (r *tableRequest) answer(got tableReply) {
	m := r.by
	m.pending = slices.DeleteFunc(slices.Clone(m.pending), func(other *tableRequest) bool { return other == r })
	m.note(fmt.Sprint(r.label, ": ", got.err, " ", got.obj.ETag))
	r.reply <- got
}

// send sends a request, and waits until the explorer answers it.
func (m *tableMember) send(kind, key string, body []byte, ifMatch string) (leasehold.Object, error) {
	w := m.w
	w.mu.Lock()
	if m.dead {
		w.mu.Unlock()
		return leasehold.Object{}, io.ErrClosedPipe
	}
	short := key
	for _, other := range w.members {
		if strings.HasSuffix(key, other.tab.Member()) {
			short = other.name()
		}
	}
	m.sent[kind+short]++
	r := &tableRequest{
		by: m, kind: kind, key: short, label: fmt.Sprint(m.name(), " ", kind, " ", short, " #", m.sent[kind+short]),
		body: body, ifMatch: ifMatch, reply: make(chan tableReply, 1),
	}
	m.pending = append(m.pending, r)
	slices.SortFunc(m.pending, func(a, b *tableRequest) int { return strings.Compare(a.label, b.label) })
	m.note("sends " + r.label + " " + ifMatch)
	w.mu.Unlock()
	select {
	case got := <-r.reply:
		return got.obj, got.err
	case <-m.life.Done():
		return leasehold.Object{}, io.ErrClosedPipe
	}
}

// Describe keeps the worlds small: no request tries the store.
func (*tableMember) Describe() leasehold.StoreInfo { return leasehold.StoreInfo{Conditional: true} }

// Get implements leasehold.Store.
func (m *tableMember) Get(_ context.Context, key string) (leasehold.Object, error) {
	return m.send("get", key, nil, "")
}

// PutIfNoneMatch implements leasehold.Store.
func (m *tableMember) PutIfNoneMatch(_ context.Context, key string, body []byte) (string, error) {
	o, err := m.send("create", key, body, "")
	return o.ETag, err
}

// PutIfMatch implements leasehold.Store.
func (m *tableMember) PutIfMatch(_ context.Context, key string, body []byte, etag string) (string, error) {
	o, err := m.send("update", key, body, etag)
	return o.ETag, err
}

// DeleteIfMatch implements leasehold.Store.
func (m *tableMember) DeleteIfMatch(_ context.Context, key, etag string) error {
	_, err := m.send("delete", key, nil, etag)
	return err
}

// fingerprint is equal for two states only if the same futures follow from both, because a member
// is a function of its history. Times are relative to now. Writes are named by their writer, and by
// how many it has sent before, so that their names say the same in both.
func (w *tableWorld) fingerprint() [16]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := fmt.Append(nil, w.faults, w.crashes, w.suspends)
	for _, key := range append([]string{tableKey}, "A", "B", "C") {
		if o := w.objects[key]; o != nil {
			b = fmt.Append(b, "\n", key, " ", o.name)
		}
	}
	for _, m := range w.members {
		b = fmt.Append(b, "\n", m.dead, m.asleep, m.done)
		if m.dead { // only what it has written says anything about what follows
			continue
		}
		for _, e := range m.history {
			b = fmt.Append(b, " ", w.now-e.at, e.what)
		}
		var due []time.Duration
		for _, t := range m.timers {
			due = append(due, t.due-m.reading().Mono)
		}
		slices.Sort(due)
		b = fmt.Append(b, due)
	}
	for _, g := range w.ghosts {
		b = fmt.Append(b, "\n", g.label, g.ifMatch)
	}
	h := fnv.New128a()
	_, _ = h.Write(b)
	return [16]byte(h.Sum(nil))
}

// tableTimer is a timer of a member's machine.
type tableTimer struct {
	m   *tableMember
	due time.Duration
	f   func()
}

// reading is what the member's clocks show. The caller holds w.mu.
func (m *tableMember) reading() clock.Reading {
	d := time.Duration(math.Round(float64(m.w.now-m.since) * m.rate))
	r := m.base
	r.Wall, r.Boot = r.Wall+d, r.Boot+d
	if !m.asleep {
		r.Mono += d
	}
	return r
}

// sleepOrWake suspends or resumes the member's machine. Its monotonic clock stands still meanwhile.
func (m *tableMember) sleepOrWake(asleep bool) {
	m.base, m.since = m.reading(), m.w.now
	m.asleep = asleep
	m.note(fmt.Sprint("asleep ", asleep))
}

// nextTimer is the true time at which the next timer of a machine that runs is due.
func (w *tableWorld) nextTimer() (time.Duration, bool) {
	next := time.Duration(math.MaxInt64)
	for _, m := range w.members {
		for _, t := range m.timers {
			if !m.asleep {
				left := max(t.due-m.reading().Mono, 0)
				next = min(next, w.now+time.Duration(math.Ceil(float64(left)/m.rate))+1)
			}
		}
	}
	return next, next < math.MaxInt64
}

// pass moves time until somebody sends a request, or a lease begins or ends. No choice follows from
// other timers.
func (w *tableWorld) pass() {
	before := w.observed()
	for range 1000 {
		w.mu.Lock()
		next, ok := w.nextTimer()
		if !ok {
			w.mu.Unlock()
			return
		}
		w.now = next
		w.mu.Unlock()
		for w.fireOne() {
			synctest.Wait()
		}
		if w.observed() != before {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violate("timers go on, and nothing happens")
}

// fireOne fires one timer that is due, so that what follows from two does not depend on the order
// in which goroutines run.
func (w *tableWorld) fireOne() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.members {
		if m.asleep || m.dead {
			continue
		}
		for _, t := range m.timers {
			if t.due <= m.reading().Mono {
				t.stop()
				m.note("timer")
				go t.f()
				return true
			}
		}
	}
	return false
}

// observed is all that choices depend on.
func (w *tableWorld) observed() string {
	w.mu.Lock()
	leases := make([]*locktable.Lease, len(w.members))
	s := fmt.Sprint(w.changes)
	for i, m := range w.members {
		leases[i] = m.lease
		for _, r := range m.pending {
			s += " " + r.label
		}
	}
	w.mu.Unlock()
	for _, lease := range leases {
		s += fmt.Sprint(lease != nil && lease.Valid())
	}
	return s
}

// Now implements clock.Clock.
func (m *tableMember) Now() clock.Reading {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	return m.reading()
}

// Rand implements clock.Clock. There is no jitter.
func (*tableMember) Rand() float64 { return 0.5 }

// AfterFunc implements clock.Clock.
func (m *tableMember) AfterFunc(d time.Duration, f func()) clock.Timer {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	t := &tableTimer{m: m, f: f}
	t.start(d)
	return t
}

func (t *tableTimer) start(d time.Duration) {
	m := t.m
	t.due = m.reading().Mono + d
	if m.dead {
		m.fires(t)
		return
	}
	m.timers = append(m.timers, t)
	slices.SortStableFunc(m.timers, func(a, b *tableTimer) int { return cmp.Compare(a.due, b.due) })
}

// fires lets a timer of a process that is dead fire at once: whatever it still waits for has
// passed.
func (m *tableMember) fires(t *tableTimer) {
	m.base.Mono += max(t.due-m.reading().Mono, 0)
	go t.f()
}

// stop is Stop for a caller that holds w.mu.
func (t *tableTimer) stop() bool {
	i := slices.Index(t.m.timers, t)
	if i < 0 {
		return false
	}
	t.m.timers = slices.Delete(slices.Clone(t.m.timers), i, i+1)
	return true
}

// Stop implements clock.Timer.
func (t *tableTimer) Stop() bool {
	t.m.w.mu.Lock()
	defer t.m.w.mu.Unlock()
	return t.stop()
}

// Reset implements clock.Timer.
func (t *tableTimer) Reset(d time.Duration) bool {
	t.m.w.mu.Lock()
	defer t.m.w.mu.Unlock()
	was := t.stop()
	t.start(d)
	return was
}

// Sleep implements clock.Clock.
func (m *tableMember) Sleep(ctx context.Context, d time.Duration) error {
	passed := make(chan struct{})
	t := m.AfterFunc(d, func() { close(passed) })
	defer t.Stop()
	select {
	case <-passed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-m.life.Done():
		return m.life.Err()
	}
}
