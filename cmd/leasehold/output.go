package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/leasehold-go/leasehold"
)

// shown is what people and scripts see of a lock.
type shown struct {
	URL        string            `json:"url"`
	Key        string            `json:"key"`
	State      string            `json:"state"` // free, held, expired, or corrupt
	Holder     string            `json:"holder,omitempty"`
	Token      uint64            `json:"token"`
	TTL        float64           `json:"ttl_seconds,omitempty"`
	AcquiredAt *time.Time        `json:"acquired_at,omitempty"` // these three by the holder's clock
	RenewedAt  *time.Time        `json:"renewed_at,omitempty"`
	ExpiresAt  *time.Time        `json:"expires_at,omitempty"`
	Age        float64           `json:"age_seconds,omitempty"` // since the last write, by the server's clock; at least
	Metadata   map[string]string `json:"metadata,omitempty"`
	Session    string            `json:"session,omitempty"` // key of the session that it leans on
	Error      string            `json:"error,omitempty"`
}

// show is the view of a record.
func show(at location, r leasehold.Record, age time.Duration) shown {
	s := shown{
		URL: at.String(), Key: at.key, State: "held", Holder: r.Holder, Token: r.Token, TTL: r.TTL.Seconds(), Age: age.Seconds(),
		AcquiredAt: moment(r.AcquiredAt), RenewedAt: moment(r.RenewedAt), ExpiresAt: moment(r.ExpiresAt), Metadata: r.Metadata,
	}
	switch {
	case r.Released():
		s.State = "free"
	case overdue(r):
		s.State = "expired"
	}
	if r.Session != nil {
		s.Session, s.ExpiresAt = r.Session.Key, nil
	}
	return s
}

// showNone is the view of a lock without a record.
func showNone(at location) shown { return shown{URL: at.String(), Key: at.key, State: "free"} }

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// print writes a result: as text, or the value as JSON.
func (a *app) print(value any, text string) error {
	line := []byte(text)
	if a.json() {
		var err error
		if line, err = json.Marshal(value); err != nil {
			return fail(exitBug, "%w", err)
		}
	}
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		return fail(exitOutput, "the result cannot be written: %w", err)
	}
	return nil
}

// table prints rows, as JSON line by line, or else in columns under a header when close is called.
type table struct {
	app    *app
	header string // "" once it is written
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
		*w.err = fail(exitOutput, "the result cannot be written: %w", err)
	}
	return n, err
}

func (t *table) add(value any, cells string) {
	switch {
	case t.err != nil:
	case t.app.json():
		t.err = t.app.print(value, "")
	default:
		if t.header != "" {
			fmt.Fprintln(t.tabs, t.header)
			t.header = ""
		}
		fmt.Fprintln(t.tabs, cells)
	}
}

func (t *table) close() error {
	_ = t.tabs.Flush() // writer keeps the error
	return t.err
}

const lockHeader = "LOCK\tSTATE\tTOKEN\tHOLDER\tSINCE\tUNTIL\tAGE"

// cells are those of a lock under lockHeader.
func (s shown) cells(name string) string {
	age := "-"
	if s.Age > 0 {
		age = time.Duration(s.Age * float64(time.Second)).Round(time.Second).String()
	}
	holder, until := s.Holder, stamp(s.ExpiresAt)
	switch {
	case s.Error != "":
		holder = s.Error
	case s.State == "free" && holder != "":
		holder = "(" + holder + ")"
	case s.Session != "":
		until = "session " + s.Session
	}
	if holder == "" {
		holder = "-"
	}
	return fmt.Sprintf("%s\t%s\t%d\t%s\t%s\t%s\t%s", name, s.State, s.Token, holder, stamp(s.AcquiredAt), until, age)
}

func stamp(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}
