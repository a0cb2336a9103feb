package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
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
	State    string            `json:"state"` // held or expired
	Token    uint64            `json:"token"` // of the member's lock
	TTL      float64           `json:"ttl_seconds"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Of the member's lock, by the member's clock; nil if the lock cannot be read.
	RenewedAt *time.Time `json:"renewed_at,omitempty"`
	Error     string     `json:"error,omitempty"` // why it does not seem to run
}

// expired reports whether a member should have renewed its lock by now, or its term has ended. Then
// others can get what it holds.
func (m shownMember) expired() bool {
	return m.Error != "" && m.RenewedAt != nil && m.RenewedAt.Before(time.Now()) // else its clock is ahead
}

// times are the columns of a lock that the member holds since it was renewed.
func (m shownMember) times() []string {
	own := shown{TTL: m.TTL, RenewedAt: m.RenewedAt}
	if m.RenewedAt != nil {
		end := m.RenewedAt.Add(seconds(m.TTL))
		own.ExpiresAt = &end
	}
	return own.times()
}

// shownRow is one request for one lock or several.
type shownRow struct {
	Locks  []string `json:"locks"`
	Member string   `json:"member"`
	State  string   `json:"state"` // held, waiting or expired
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
	view.State, view.Token, view.Age = stateTable, state.Revision, store.Age(at.Key).Seconds()
	view.Table = &shownTable{Bytes: state.Size, Members: []shownMember{}}
	expired := make(map[string]bool)
	for _, m := range state.Members {
		member := shownMember{
			Name: m.Name, Key: m.Key, State: stateHeld, Token: m.Token, TTL: m.TTL.Seconds(), Metadata: m.Metadata,
		}
		if !m.Renewed.IsZero() {
			member.RenewedAt = &m.Renewed
		}
		if m.Err != nil {
			member.Error = exit.Message(m.Err)
		}
		if member.expired() {
			member.State, expired[m.Name] = stateExpired, true
		}
		view.Table.Members = append(view.Table.Members, member)
	}
	view.Table.Held = rows(state.Held, stateHeld, expired)
	view.Table.Waiting = rows(state.Waiting, stateWaiting, expired)
	return view, true, nil
}

// howToBreak says what can be broken of a table.
func (t *shownTable) howToBreak(at place.Location) string {
	if len(t.Members) == 0 {
		return "it has no members"
	}
	m := t.Members[0]
	at.Key = m.Key
	return fmt.Sprintf("end a member, or break its lock, such as with leasehold break --token %d %s", m.Token, at)
}

// rows are requests in this state, or expired with their member.
func rows(of []locktable.Row, state string, expired map[string]bool) []shownRow {
	list := make([]shownRow, 0, len(of))
	for _, r := range of {
		row := shownRow{r.Locks, r.Member, state, r.Token}
		if expired[r.Member] {
			row.State = stateExpired
		}
		list = append(list, row)
	}
	return list
}

// summary is shown as the holder of the table's object.
func (t *shownTable) summary() string {
	text := fmt.Sprintf("%d members, %d held, %d waiting", len(t.Members), len(t.Held), len(t.Waiting))
	expired := 0
	for _, m := range t.Members {
		if m.State == stateExpired {
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
		line(m.Name, m.State, m.Token, cmp.Or(m.Metadata["holder"], "-"), m.times())
	}
	for _, r := range slices.Concat(t.Held, t.Waiting) {
		holder := r.Member
		if name := members[r.Member].Metadata["holder"]; name != "" {
			holder += " (" + name + ")"
		}
		line(strings.Join(r.Locks, ", "), r.State, r.Token, holder, shown{}.times())
	}
}
