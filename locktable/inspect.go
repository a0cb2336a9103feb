package locktable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// State is the content of a table at one moment: its members, their locks, and the requests that
// wait.
type State struct {
	Revision uint64
	Size     int // of the object, in bytes
	Members  []Member
	Held     []Row // by rising token
	Waiting  []Row // in order: of the requests that nothing blocks, the first is granted first
}

// Member is one process that uses the table.
type Member struct {
	Name     string
	Key      string // of its object
	Token    uint64 // of its term
	TTL      time.Duration
	Metadata map[string]string
	// Renewed is the time of the last renewal of the member's lock, by the member's clock. It is
	// zero if the member's object could not be read, or was not read.
	Renewed time.Time
	// Err is nil if the member seems to run: by the clocks of both machines, it has renewed its
	// lock within its TTL. Otherwise Err says what is known.
	Err error
}

// Row is one request, held or waiting.
type Row struct {
	Member string   // its name
	Locks  []string // in the words of the guide: "name", "name (shared)", "name (2 of 8)"
	Token  uint64   // 0 while it waits
}

// Inspect returns the members, leases and waiting requests of the table. It reads the table, and
// the object of each member, and writes nothing. A table that was never used is empty. The error
// matches [leasehold.ErrCorruptRecord] if the object is not a table. [Table.Run] need not be
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
	var terms []tables.Term
	for n, m := range v.tab.Members() {
		names[n] = m.Name
		terms = append(terms, m.Term)
		s.Members = append(s.Members, memberOf(m))
	}
	var all sync.WaitGroup
	turns := make(chan struct{}, maxInspected)
	for i := range s.Members {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			s.Members[i].Renewed, s.Members[i].Err = t.renewed(ctx, terms[i], s.Members[i].TTL)
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return State{}, t.named(context.Cause(ctx))
	}
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
	slices.SortStableFunc(s.Held, func(a, b Row) int { return cmp.Compare(a.Token, b.Token) })
	for r := range v.tab.Waiting() {
		s.Waiting = append(s.Waiting, row(r))
	}
	return s, nil
}

// memberOf is what the table says of a member.
func memberOf(m tables.Member) Member {
	return Member{Name: m.Name, Key: m.Key, Token: m.Token, TTL: m.TTL, Metadata: m.Metadata}
}

// maxInspected is how many members' objects Inspect reads at a time.
const maxInspected = 16

// renewed is when a member has renewed the lock of its term, by its own clock, and what seems wrong
// with the record.
func (t *Table) renewed(ctx context.Context, term tables.Term, ttl time.Duration) (at time.Time, err error) {
	limited, cancel := context.WithTimeout(ctx, t.attempt())
	defer cancel()
	obj, err := t.store.Get(limited, term.Key)
	var rec leasehold.Record
	if err == nil {
		err = rec.UnmarshalJSON(obj.Body)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("its state is unknown: %w", err)
	}
	age := t.clock.Now().Time().Sub(rec.RenewedAt)
	switch {
	case membership.TermOf(term.Key, rec) != term, rec.Released():
		err = errors.New("its term has ended (other members remove its requests)")
	case age < -allowance:
		err = fmt.Errorf("its clock is %v ahead of this one (set both by NTP)", -age.Round(time.Second))
	case age > ttl+allowance:
		err = fmt.Errorf("it was last renewed %v ago by its own clock, and its TTL is %v (if it has crashed, other "+
			"members remove its requests)", age.Round(time.Second), ttl)
	}
	return rec.RenewedAt, err
}
