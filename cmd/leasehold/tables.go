package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/locktable"
)

// shownTable is what people and scripts see of a table of locks.
type shownTable struct {
	Bytes   int           `json:"bytes"`
	Members []shownMember `json:"members"`
	Held    []shownRow    `json:"held"`
	Waiting []shownRow    `json:"waiting"` // in order
}

type shownMember struct {
	Name     string            `json:"name"`
	Key      string            `json:"key"`
	Token    uint64            `json:"token"` // of its own lock
	TTL      float64           `json:"ttl_seconds"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Lock     *shown            `json:"lock,omitempty"` // its own, if it was read
}

// expired reports whether a member should have renewed its own lock by now.
func (m shownMember) expired() bool { return m.Lock != nil && m.Lock.State == "expired" }

// shownRow is one request for one lock or several.
type shownRow struct {
	Locks  []string `json:"locks"`
	Member string   `json:"member"`
	Token  uint64   `json:"token,omitempty"`
}

// lookAtTable is the view of an object that is not a lock, if it is a table of locks. Its token is
// the table's revision.
func (a *app) lookAtTable(ctx context.Context, store *place.Store, at place.Location) (view shown, ok bool, err error) {
	o, err := store.Get(ctx, at.Key)
	if err != nil {
		return shown{}, false, err
	}
	if wire.KindOf(o.Body) != wire.Table {
		return shown{}, false, nil
	}
	table, err := locktable.New(store, at.Key, locktable.WithLogger(a.log))
	if err != nil {
		return shown{}, false, err
	}
	state, err := table.Inspect(ctx)
	if err != nil {
		return shown{}, false, err
	}
	view = showNone(at)
	view.State, view.Token, view.Age = "table", state.Revision, store.Age(at.Key).Seconds()
	view.Table = &shownTable{
		Bytes: state.Size, Members: []shownMember{}, Held: rows(state.Held), Waiting: rows(state.Waiting),
	}
	for _, m := range state.Members {
		view.Table.Members = append(view.Table.Members,
			shownMember{Name: m.Name, Key: m.Key, Token: m.Token, TTL: m.TTL.Seconds(), Metadata: m.Metadata})
	}
	return view, true, nil
}

// howToBreak says what can be broken of a table.
func (t *shownTable) howToBreak(at place.Location) string {
	if len(t.Members) == 0 {
		return "it has no members"
	}
	m := t.Members[0]
	at.Key = m.Key
	return fmt.Sprintf("end a member, or break its own lock, such as with leasehold break --token %d %s", m.Token, at)
}

func rows(of []locktable.Row) []shownRow {
	list := make([]shownRow, 0, len(of))
	for _, r := range of {
		list = append(list, shownRow{r.Locks, r.Member, r.Token})
	}
	return list
}

// lookAtMembers reads the members' own locks. One that cannot be read stays unknown.
func (a *app) lookAtMembers(ctx context.Context, store *place.Store, at place.Location, t *shownTable) {
	var reading errgroup.Group
	reading.SetLimit(readsAtOnce)
	for i := range t.Members {
		m := &t.Members[i]
		own := at
		own.Key = m.Key
		reading.Go(func() error {
			if view, err := a.inspectObject(ctx, store, own); err == nil {
				m.Lock = &view
			}
			return nil
		})
	}
	_ = reading.Wait()
}

// summary stands in a table of locks as the holder.
func (t *shownTable) summary() string {
	text := fmt.Sprintf("%d members, %d held, %d waiting", len(t.Members), len(t.Held), len(t.Waiting))
	expired := 0
	for _, m := range t.Members {
		if m.expired() {
			expired++
		}
	}
	if expired > 0 {
		text += fmt.Sprintf(", %d expired", expired)
	}
	return text
}

// addTo adds a line for each member and each request to the text.
func (t *shownTable) addTo(table *table) {
	line := func(name, state string, token uint64, holder string, times []string) {
		number := "-"
		if token > 0 {
			number = strconv.FormatUint(token, 10)
		}
		table.more(append([]string{"  " + name, state, number, holder}, times...)...)
	}
	members := make(map[string]shownMember)
	for _, m := range t.Members {
		members[m.Name] = m
		state, own := "member", shown{}
		if m.Lock != nil {
			own = *m.Lock
		}
		if m.expired() {
			state = own.State
		}
		line(m.Name, state, m.Token, cmp.Or(m.Metadata["holder"], "-"), own.times())
	}
	rows := func(of []shownRow, state string) {
		for _, r := range of {
			m, state, holder := members[r.Member], state, r.Member
			if m.expired() {
				state = "expired"
			}
			if name := m.Metadata["holder"]; name != "" {
				holder += " (" + name + ")"
			}
			line(strings.Join(r.Locks, ", "), state, r.Token, holder, shown{}.times())
		}
	}
	rows(t.Held, "held")
	rows(t.Waiting, "waiting")
}
