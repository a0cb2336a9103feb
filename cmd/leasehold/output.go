package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

// The states of locks, of members of tables and of their requests, as text, JSON and docs name
// them.
const (
	stateNeverTaken = string(leasehold.StateNeverTaken)
	stateHeld       = string(leasehold.StateHeld)
	stateReleased   = string(leasehold.StateReleased)
	stateExpired    = string(leasehold.StateExpired)
	stateDeleted    = string(leasehold.StateDeleted)
	stateWaiting    = "waiting" // a request of a table
	stateTable      = "table"   // the object is a table of locks
	stateCorrupt    = "corrupt"
	stateDenied     = "denied"
	stateUnknown    = "unknown" // the store has not answered
)

// shown is what people and scripts see of a lock.
type shown struct {
	URL        string            `json:"url,omitempty"` // it is missing if the object is not a lock
	Key        string            `json:"key"`
	State      string            `json:"state"`
	Holder     string            `json:"holder,omitempty"`
	Token      uint64            `json:"token"`
	TTL        float64           `json:"ttl_seconds,omitempty"`
	AcquiredAt *time.Time        `json:"acquired_at,omitempty"` // these three by the holder's clock
	RenewedAt  *time.Time        `json:"renewed_at,omitempty"`
	ExpiresAt  *time.Time        `json:"expires_at,omitempty"`
	Age        float64           `json:"age_seconds,omitempty"` // since the last write, by the server's clock; at least
	Metadata   map[string]string `json:"metadata,omitempty"`
	Table      *shownTable       `json:"table,omitempty"` // if the object is a table of locks
	Error      string            `json:"error,omitempty"`
}

// show is the view of a record.
func show(at place.Location, r leasehold.Record, age time.Duration) shown {
	s := shown{
		URL: at.String(), Key: at.Key, State: stateHeld, Holder: r.Holder, Token: r.Token,
		TTL: r.TTL.Seconds(), Age: age.Seconds(),
		AcquiredAt: moment(r.AcquiredAt), RenewedAt: moment(r.RenewedAt), ExpiresAt: moment(r.ExpiresAt),
		Metadata: r.Metadata,
	}
	switch {
	case r.Released():
		s.State = stateReleased
	case overdue(r):
		s.State = stateExpired
	}
	return s
}

// overdue reports whether the holder has not renewed in time, if its wall clock and this machine's
// are right.
func overdue(r leasehold.Record) bool {
	return !r.Released() && time.Since(r.ExpiresAt) > 5*time.Second
}

// showNone is the view of a lock without a record.
func showNone(at place.Location) shown {
	return shown{URL: at.String(), Key: at.Key, State: stateNeverTaken}
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// print writes a result: as text, or the value as JSON.
func (a *app) print(value any, text string) error {
	return a.printIn("", value, text)
}

// printIn prints a text in a colour of a terminal.
func (a *app) printIn(colour string, value any, text string) error {
	line := []byte(exit.Printable(text))
	if colour != "" && colours(os.Stdout) {
		line = []byte(painted(colour, string(line)))
	}
	if a.json() {
		var err error
		if line, err = json.Marshal(value); err != nil {
			return exit.Errorf(exit.Bug, "%w", err)
		}
	}
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		return exit.Errorf(exit.Output, "the result cannot be written: %w", err)
	}
	return nil
}

// table prints rows, as JSON line by line, or else in columns under a header when close is called.
type table struct {
	app    *app
	header string // "" once it is written
	states bool   // the second column has states of locks, in colours
	tabs   *tabwriter.Writer
	err    error
}

func (a *app) table(header string) *table {
	t := &table{app: a, header: header}
	t.tabs = tabwriter.NewWriter(writer{os.Stdout, &t.err}, 0, 0, 2, ' ', 0)
	return t
}

// writer keeps the first error.
type writer struct {
	io.Writer
	err *error
}

func (w writer) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if *w.err == nil && err != nil {
		*w.err = exit.Errorf(exit.Output, "the result cannot be written: %w", err)
	}
	return n, err
}

// add adds a row.
func (t *table) add(value any, cells ...string) {
	switch {
	case t.err != nil:
	case t.app.json():
		t.err = t.app.print(value, "")
	default:
		if t.header != "" {
			t.more(strings.Split(t.header, "\t")...)
			t.header = ""
		}
		t.more(cells...)
	}
}

// more adds a row to the text alone.
func (t *table) more(cells ...string) {
	if t.err != nil || t.app.json() {
		return
	}
	for i := range cells {
		cells[i] = exit.Printable(cells[i])
	}
	if t.states {
		cells[1] = painted(colourOf[cells[1]], cells[1])
	}
	fmt.Fprintln(t.tabs, strings.Join(cells, "\t"))
}

func (t *table) close() error {
	_ = t.tabs.Flush() // writer keeps the error
	return t.err
}

// locks is a table of locks.
func (a *app) locks() *table {
	t := a.table("LOCK\tSTATE\tTOKEN\tHOLDER\tTTL\tSINCE\tUNTIL\tAGE")
	t.states = colours(os.Stdout)
	return t
}

// cells are the cells of a lock in a table of locks.
func (s shown) cells(name string) []string {
	holder := s.Holder
	switch {
	case s.Error != "":
		holder = s.Error
	case s.Table != nil:
		holder = s.Table.summary()
	case s.State == stateReleased && holder != "":
		holder = "(" + holder + ")"
	}
	if holder == "" {
		holder = "-"
	}
	return append([]string{name, s.State, strconv.FormatUint(s.Token, 10), holder}, s.times()...)
}

// times are the last cells: TTL, since when, until when, and how old.
func (s shown) times() []string {
	ttl, age := "-", "-"
	if s.TTL > 0 {
		ttl = seconds(s.TTL).String()
	}
	switch {
	case s.Age > 0:
		age = seconds(s.Age).Round(time.Second).String()
	case s.RenewedAt != nil: // the age by the server's clock is not known
		age = max(time.Since(*s.RenewedAt), 0).Round(time.Second).String()
	}
	return []string{ttl, stamp(s.AcquiredAt), stamp(s.ExpiresAt), age}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func stamp(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format(dateTime)
}

// dateTime is how people see times.
const dateTime = time.DateTime + " -0700"
