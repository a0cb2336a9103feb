package locktable

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/tables"
)

// State is what the table's object says at one moment.
type State struct {
	Revision uint64
	Size     int // of the object, in bytes
	Members  []Member
	Held     []Row // by rising token
	Waiting  []Row // in order: whom nothing stands in the way of is granted first
}

// Member is one process that uses the table.
type Member struct {
	Name     string
	Key      string // of its object
	Token    uint64 // of its term
	TTL      time.Duration
	Metadata map[string]string
	Err      error // why this process cannot tell whether it lives; nil if it can, or has no reason to look
}

// Row is one request.
type Row struct {
	Member string   // its name
	Locks  []string // in the words of the guide: "name", "name (shared)", "name (2 of 8)"
	Token  uint64   // 0 while it waits
}

// Inspect reads the table without asking for anything. A table that nobody has used yet is empty.
// The error matches [leasehold.ErrCorruptRecord] if the object is not a table. Run need not be
// running.
func (t *Table) Inspect(ctx context.Context) (State, error) {
	v, err := t.get(ctx, t.clock.Now().Mono, nil)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return State{}, t.named(err)
	}
	s := State{Revision: v.tab.Revision, Size: v.size}
	names := make(map[uint64]string)
	t.mu.Lock()
	for n, m := range v.tab.Members() {
		names[n] = m.Name
		member := Member{Name: m.Name, Key: m.Key, Token: m.Token, TTL: m.TTL, Metadata: m.Metadata}
		if t.term != nil {
			if w := t.term.watches[m.Term]; w != nil && w.err != nil {
				member.Err = w.unreadable()
			}
		}
		s.Members = append(s.Members, member)
	}
	t.mu.Unlock()
	row := func(r tables.Request) Row {
		row := Row{Member: names[r.Member], Token: r.Token}
		for _, c := range r.Claims {
			row.Locks = append(row.Locks, c.String())
		}
		return row
	}
	for r := range v.tab.Held() {
		s.Held = append(s.Held, row(r))
	}
	slices.SortStableFunc(s.Held, func(a, b Row) int { return int(min(max(int64(a.Token-b.Token), -1), 1)) })
	for r := range v.tab.Waiting() {
		s.Waiting = append(s.Waiting, row(r))
	}
	return s, nil
}
