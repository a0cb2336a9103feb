package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

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
}

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

// breakMember is locktable.Table.Break of this member.
func breakMember(store *place.Store, key, member string) (func(context.Context, uint64) error, error) {
	table, err := locktable.New(store, key, locktable.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, token uint64) error { return table.Break(ctx, member, token) }, nil
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

// summary stands under lockHeader as the holder.
func (t *shownTable) summary() string {
	return fmt.Sprintf("%d members, %d held, %d waiting", len(t.Members), len(t.Held), len(t.Waiting))
}

// addTo adds a line for each member and each request to the text.
func (t *shownTable) addTo(table *table) {
	line := func(name, state string, token uint64, member string) {
		number := "-"
		if token > 0 {
			number = strconv.FormatUint(token, 10)
		}
		table.more("  "+name, state, number, member, "-", "-", "-")
	}
	for _, m := range t.Members {
		line(m.Name, "member", m.Token, "-")
	}
	for _, r := range t.Held {
		line(strings.Join(r.Locks, ", "), "held", r.Token, r.Member)
	}
	for _, r := range t.Waiting {
		line(strings.Join(r.Locks, ", "), "waiting", r.Token, r.Member)
	}
}
