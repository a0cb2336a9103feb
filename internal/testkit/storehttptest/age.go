package storehttptest

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// dated is a network whose answers have these two headers; "" means none.
type dated struct {
	http.RoundTripper
	date, modified string
}

func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	reply, err := d.RoundTripper.RoundTrip(r)
	if err == nil {
		for name, value := range map[string]string{"Date": d.date, "Last-Modified": d.modified} {
			if reply.Header.Set(name, value); value == "" {
				reply.Header.Del(name)
			}
		}
	}
	return reply, err
}

// Ages checks that an age comes from the two times of one answer alone. A Date that is not a date
// may also be a temporary error.
func (s Store) Ages(t *testing.T) {
	const noon, plus10, plus2 = "Tue, 06 Oct 2026 12:00:00 GMT", "Tue, 06 Oct 2026 12:00:10 GMT",
		"Tue, 06 Oct 2026 12:00:02 GMT"
	for name, c := range map[string]struct {
		date, modified string
		slack          time.Duration // 0: 2 s
		age            time.Duration
		garbage        bool
	}{
		"ten seconds minus the slack":  {date: plus10, modified: noon, age: 8 * time.Second},
		"ten seconds, another slack":   {date: plus10, modified: noon, slack: 7 * time.Second, age: 3 * time.Second},
		"no more than the slack":       {date: plus2, modified: noon},
		"modified in the future":       {date: noon, modified: plus10},
		"no Date":                      {modified: noon},
		"no Last-Modified":             {date: plus10},
		"neither":                      {},
		"garbage for a Date":           {date: "yesterday", modified: noon, garbage: true},
		"a Date in seconds":            {date: "1791288010", modified: noon, garbage: true},
		"a Date in another time zone":  {date: "Tue, 06 Oct 2026 14:00:10 +0200", modified: noon, garbage: true},
		"a Date of the year 1":         {date: "Mon, 01 Jan 0001 00:00:00 GMT", modified: noon},
		"modified in the year 1":       {date: plus10, modified: "Mon, 01 Jan 0001 00:00:00 GMT"},
		"modified at the epoch of all": {date: plus10, modified: "Thu, 01 Jan 1970 00:00:00 GMT"},
		"modified in the year 9999":    {date: plus10, modified: "Fri, 31 Dec 9999 23:59:59 GMT"},
		"a Date of the year 9999":      {date: "Fri, 31 Dec 9999 23:59:59 GMT", modified: noon},
	} {
		t.Run(name, func(t *testing.T) {
			store, w, _ := s.wire(t, 0)
			_, err := store.PutIfNoneMatch(t.Context(), Key, []byte("{}"))
			require.NoError(t, err)
			network := dated{w, c.date, c.modified}
			o, err := s.New(t, inProcess, network, max(c.slack, 2*time.Second)).Get(t.Context(), Key)
			if c.garbage && err != nil {
				RequireOnly(t, nil, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.age, o.Age)
			o, err = s.New(t, inProcess, network, 0).Get(t.Context(), Key)
			require.NoError(t, err)
			require.Zero(t, o.Age, "nobody has said that this clock is to be trusted")
		})
	}
	t.Run("of a strict server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, _, _ := s.wire(t, 2*time.Second)
			report, err := leasehold.CheckStore(t.Context(), store, "check")
			require.NoError(t, err)
			require.Equal(t, leasehold.ClockConsistent, report.ServerClock)
		})
	})
}
