package membership

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// The rows are those of the protocol page: what the object shows, for how long it has shown nothing
// else, and what follows for the term with token 7 of the object o.
func TestVerdicts(t *testing.T) {
	const ttl, lasts = 10 * time.Second, 10200 * time.Millisecond
	q := question{Term{Key: "k", ObjectID: "o", TermID: "t7", Token: 7}, ttl, 0.02}
	held := time.Unix(1_700_000_000, 0)
	record := func(object, term string, token uint64, expires time.Time) leasehold.Record {
		return leasehold.Record{ObjectID: object, TermID: term, Token: token, ExpiresAt: expires, TTL: ttl}
	}
	released := time.Time{}
	slower := record("o", "t7", 7, held)
	slower.TTL = 2 * ttl
	longer := record("other", "t7", 7, held)
	longer.TTL = time.Hour
	for _, c := range []struct {
		name  string
		rec   leasehold.Record
		stood time.Duration
		state State
		take  bool
	}{
		{"a higher token", record("o", "t8", 8, held), 0, Over, false},
		{"a higher token, released", record("o", "t9", 9, released), 0, Over, false},
		{"released", record("o", "t7", 7, released), 0, Over, false},
		{"renewed just now", record("o", "t7", 7, held), 0, Alive, false},
		{"before anything is known of how long it stood", record("o", "t7", 7, held), -time.Hour, Alive, false},
		{"its TTL old, not by a slower clock", record("o", "t7", 7, held), lasts - 1, Alive, false},
		{"its TTL old, by any clock", record("o", "t7", 7, held), lasts, Unknown, true},
		{"the TTL that the object shows counts", slower, lasts, Alive, false},
		{"another object, just now", record("other", "t1", 1, held), 0, Unknown, false},
		{"another object with a higher token", record("other", "t9", 9, held), 0, Unknown, false},
		{"another object, released", record("other", "t9", 9, released), 0, Unknown, false},
		{"another object with the names of the term", record("other", "t7", 7, released), 0, Unknown, false},
		{"another object, for nearly its TTL", record("other", "t1", 1, held), lasts - 1, Unknown, false},
		{"another object, for its TTL", record("other", "t9", 9, held), lasts, Over, false},
		{"another object whose TTL is longer", longer, lasts, Over, false},
		{"a lower token", record("o", "t6", 6, held), 0, Unknown, false},
		{"a lower token, released", record("o", "t6", 6, released), lasts - 1, Unknown, false},
		{"a lower token, for its TTL", record("o", "t6", 6, released), lasts, Over, false},
		{"another term of this token", record("o", "tX", 7, held), 0, Unknown, false},
		{"another term of this token, released", record("o", "tX", 7, released), 0, Unknown, false},
		{"another term of this token, for its TTL", record("o", "tX", 7, held), lasts, Over, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, take := q.answer(sight{exists: true, rec: c.rec, stood: c.stood})
			require.Equal(t, []any{c.state, c.take}, []any{v.State, take}, v.Reason)
			require.NotEmpty(t, v.Reason)
		})
	}
	t.Run("no object", func(t *testing.T) {
		v, take := q.answer(sight{stood: time.Hour})
		require.Equal(t, Unknown, v.State)
		require.True(t, take)
	})
}

// What counts as one and the same thing: of the term itself each renewal is another one, of what
// stands in its place only the object or the term.
func TestWhatAnObjectShows(t *testing.T) {
	q := question{term: Term{Key: "k", ObjectID: "o", TermID: "t7", Token: 7}}
	record := func(object, term string, token uint64, nonce string) leasehold.Record {
		return leasehold.Record{ObjectID: object, TermID: term, Token: token, Nonce: nonce}
	}
	for _, c := range []struct {
		name string
		a, b leasehold.Record
		same bool
	}{
		{"the term, and its renewal", record("o", "t7", 7, "1"), record("o", "t7", 7, "2"), false},
		{"another object, and its renewal", record("p", "t1", 1, "1"), record("p", "t1", 1, "2"), true},
		{"two terms of another object", record("p", "t1", 1, "1"), record("p", "t2", 2, "2"), true},
		{"two other objects", record("p", "t1", 1, "1"), record("q", "t1", 1, "1"), false},
		{"an earlier term, and its renewal", record("o", "t6", 6, "1"), record("o", "t6", 6, "2"), true},
		{"two earlier terms", record("o", "t6", 6, "1"), record("o", "t5", 5, "1"), false},
		{"another term of this token, and the term", record("o", "tX", 7, "1"), record("o", "t7", 7, "1"), false},
		{"another object, and the term", record("p", "t7", 7, "1"), record("o", "t7", 7, "1"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.same, q.shows(c.a) == q.shows(c.b))
		})
	}
}
