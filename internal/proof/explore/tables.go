package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/locktable"
)

// TableConfig bounds a search of members that share one table of locks.
type TableConfig struct {
	// Wants are the requests of each member, one after the other. A request names its locks with
	// "+" between; "/s" behind a name shares it.
	Wants    [][]string
	Faults   int // on one path; time that passes while a request is under way is one, too
	Crashes  int // on one path; nobody restarts
	Suspends int // on one path: a member's machine sleeps from one step to a later one
}

// SearchTables is Search for members of a table.
func SearchTables(t *testing.T, cfg TableConfig, workers int) Result {
	return searchAll(t, workers, true, func() place { return newTableWorld(cfg) })
}

const tableKey = "t"

// tableWorld is the walk along one path. Between two steps every goroutine of every member waits.
type tableWorld struct {
	stage
	cfg      TableConfig
	members  []*tableMember
	tokens   map[string]uint64 // the last one of each lock that somebody held exclusively
	acquired int
	changes  int // of what members hold or have done
}

// tableMember is one process.
type tableMember struct {
	*machine
	w       *tableWorld
	i       int
	sent    map[string]int // requests by kind and key
	tab     *locktable.Table
	lease   *locktable.Lease
	locks   []string // of the lease
	got     int      // requests that were granted
	done    bool
	settled int // events of the history whose order no race of its goroutines changes any more
}

func newTableWorld(cfg TableConfig) *tableWorld {
	w := &tableWorld{cfg: cfg, tokens: make(map[string]uint64)}
	w.objects, w.changed = make(map[string]*request), w.checkWrite
	for i := range cfg.Wants {
		m := &tableMember{w: w, i: i, sent: make(map[string]int)}
		m.machine = w.newMachine(m, []float64{0.9852, 1.0148}[i%2])
		var err error
		m.tab, err = locktable.New(m, tableKey, testopt.WithTableClock(m), locktable.WithTTL(ttl),
			locktable.WithSafetyMargin(margin), locktable.WithClockDrift(drift),
			locktable.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			panic(err)
		}
		w.members, w.machines = append(w.members, m), append(w.machines, m.machine)
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
	m.note("acquires "+strings.Join(locks, "+"), nil)
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
	m.note(fmt.Sprint("released ", err == nil), nil)
	switch {
	case err == nil && w.stands(m, lease.Token()):
		w.violate("%s has released token %d, and the table still has it", m.name(), lease.Token())
	case err != nil && !errors.Is(err, leasehold.ErrLost):
		w.violate("%s cannot release token %d: %v", m.name(), lease.Token(), err)
	}
}

// table is the table in the store.
func (w *tableWorld) table() *tables.Table { return w.decode(w.objects[tableKey]) }

func (w *tableWorld) decode(o *request) *tables.Table {
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

// checkWrite wants that the table stays, and that its revisions rise.
func (w *tableWorld) checkWrite(r, old *request) {
	if r.key != tableKey {
		return
	}
	if r.kind == "delete" {
		w.violate("%s deletes the table", r.by.program.(*tableMember).name())
	} else if before, after := w.decode(old).Revision, w.table().Revision; after <= before {
		w.violate("%s writes revision %d after %d", r.label, after, before)
	}
}

// stands reports whether the table grants a token to a member.
func (w *tableWorld) stands(m *tableMember, token uint64) bool {
	tab := w.table()
	for r := range tab.Held() {
		if by, _ := tab.Member(r.Member); r.Token == token && by.Name == m.tab.MemberName() {
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
		slices.SortFunc(m.history[m.settled:], func(a, b event) int {
			return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.what, b.what))
		})
		m.settled = len(m.history)
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

// choices lists everything that can happen next, in an order that depends only on the state.
func (w *tableWorld) choices() []choice {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := menu{s: &w.stage}
	underWay := list.addRequests(w.cfg.Faults)
	if _, ok := w.nextTimer(); ok && (!underWay || w.faults < w.cfg.Faults) {
		name := "time passes"
		if underWay {
			name += " while requests are under way"
		}
		list.addUnlocked(name, func() {
			if underWay {
				w.faults++
			}
			w.advance(w.observed)
		})
	}
	for _, m := range w.members {
		switch {
		case m.dead || m.done:
			continue
		case m.asleep:
			list.add(m.name()+" resumes", func() { m.sleepOrWake(false) })
			continue
		case w.suspends < w.cfg.Suspends && m.lease != nil:
			list.add(m.name()+" is suspended", func() {
				w.suspends++
				m.sleepOrWake(true)
			})
		}
		if w.crashes < w.cfg.Crashes && m.lease != nil {
			list.add(m.name()+" crashes", func() { w.crash(m.machine) })
		}
	}
	return list.list
}

// sends labels a request by what it is for, whatever the order in which the member's goroutines
// send theirs. The names of objects are short, and the same in all worlds.
func (m *tableMember) sends(r *request) {
	for _, other := range m.w.members {
		if strings.HasSuffix(r.key, other.tab.MemberName()) {
			r.key = other.name()
		}
	}
	m.sent[r.kind+r.key]++
	r.label = fmt.Sprint(m.name(), " ", r.kind, " ", r.key, " #", m.sent[r.kind+r.key])
	m.note("sends "+r.label+" "+r.ifMatch, nil)
}

func (m *tableMember) hears(r *request, got *reply) {
	m.note(fmt.Sprint(r.label, ": ", got.err, " ", got.obj.ETag), nil)
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
			b = fmt.Append(b, "\n", key, " ", o.version)
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
	return digest(b)
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
