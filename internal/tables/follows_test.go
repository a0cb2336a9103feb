package tables

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func memberNamed(name string) Member {
	return Member{Term: Term{Key: name, ObjectID: name, TermID: name, Token: 1}, Name: name, TTL: time.Second}
}

// twoVersions are a version in which two members hold and wait, and the next one, by the first
// member: it drops x, so the second gets it, and asks for more.
func twoVersions(t *testing.T) (base, next *Table, w Write) {
	t.Helper()
	base = New()
	a, b := base.Join(memberNamed("a")), base.Join(memberNamed("b"))
	for _, ask := range []struct {
		id     ID
		claims []Claim
	}{
		{ID{a, 1}, []Claim{{Name: "x"}}}, {ID{a, 2}, []Claim{{Name: "y"}}}, {ID{b, 1}, []Claim{{Name: "x"}}},
		{ID{a, 3}, []Claim{{Name: "x"}}}, {ID{b, 2}, []Claim{{Name: "x", Shared: true}, {Name: "y"}}},
	} {
		require.NoError(t, base.Ask(ask.id, ask.claims))
	}
	base.Finish("one", 0)
	next = base.Clone()
	require.True(t, next.Drop(ID{a, 1}))
	require.NoError(t, next.Ask(ID{a, 4}, []Claim{{Name: "y"}}))
	require.NoError(t, next.Ask(ID{a, 5}, []Claim{{Name: "z"}}))
	next.Finish("two", 5)
	return base, next, Write{By: memberNamed("a").Term, AtLeast: 5, Dropped: []ID{{a, 1}}, Asked: []ID{{a, 4}, {a, 5}}}
}

// turn grants a request that waits for one lock, or lets one wait that holds it.
func turn(next *Table, id ID) {
	r := next.requests[id]
	is := func(other *Request) bool { return other == r }
	l := next.locks[r.Claims[0].Name]
	*l.side(r) -= r.Claims[0].weight()
	if r.Token == 0 {
		r.Token = next.Revision
		next.waiting = slices.DeleteFunc(next.waiting, is)
		next.held = slices.Insert(next.held, len(next.held)-1, r)
	} else {
		r.Token = 0
		next.held = slices.DeleteFunc(next.held, is)
		next.waiting = append(next.waiting, r)
	}
	*l.side(r) += r.Claims[0].weight()
}

// BenchmarkFollows compares the check with all that a write is built by, in a table of 10,000 locks
// that are held and 10,000 that are waited for.
func BenchmarkFollows(b *testing.B) {
	base := New()
	first, second := base.Join(memberNamed("a")), base.Join(memberNamed("b"))
	for _, m := range []uint64{first, second} {
		for i := range 10_000 {
			require.NoError(b, base.Ask(ID{m, uint64(i)}, []Claim{{Name: fmt.Sprintf("tenant-%05d", i)}}))
		}
	}
	base.Finish("one", 0)
	w := Write{By: memberNamed("a").Term, Dropped: []ID{{first, 1}}, Asked: []ID{{first, 10_001}}}
	var build, check time.Duration
	for b.Loop() {
		began := time.Now()
		next := base.Clone()
		next.Drop(w.Dropped[0])
		require.NoError(b, next.Ask(w.Asked[0], []Claim{{Name: "another"}}))
		next.Finish("two", 0)
		_ = next.Encode()
		built := time.Now()
		require.NoError(b, next.Follows(base, w))
		build, check = build+built.Sub(began), check+time.Since(built)
	}
	b.ReportMetric(float64(check)/float64(build), "check/build")
}

// Each rule that a write could break is seen to be broken.
func TestFollows(t *testing.T) {
	base, next, w := twoVersions(t)
	require.NoError(t, next.Follows(base, w))
	for name, c := range map[string]struct {
		want   string
		tamper func(next *Table, w *Write)
	}{
		"an old revision": {
			"do not follow",
			func(next *Table, _ *Write) { next.Revision = 5 },
		},
		"a higher one known": {
			"do not follow 6",
			func(_ *Table, w *Write) { w.AtLeast = 6 },
		},
		"the same nonce": {
			`nonce "one"`,
			func(next *Table, _ *Write) { next.Nonce = "one" },
		},
		"a member is lost": {
			`member 2 "b" is to go or`,
			func(next *Table, _ *Write) { next.Leave(2) },
		},
		"a member stays": {
			`member 1 "a" is to go or`,
			func(_ *Table, w *Write) { w.Gone = []uint64{1} },
		},
		"another joins": {
			"joins by a write of another",
			func(next *Table, _ *Write) { next.Join(memberNamed("c")) },
		},
		"other claims": {
			"the claims of request",
			func(next *Table, _ *Write) { claim(next, ID{1, 2}, "x") },
		},
		"a new token": {
			"changes from 1 to 6",
			func(next *Table, _ *Write) { next.requests[ID{1, 2}].Token = 6 },
		},
		"an old token": {
			"changes from 0 to 3",
			func(next *Table, _ *Write) { next.requests[ID{2, 1}].Token = 3 },
		},
		"a request is lost": {
			"1 requests are dropped and 2 are not",
			func(next *Table, _ *Write) { drop(next, ID{2, 2}) },
		},
		"another's is": {
			"not dropped by its member",
			func(next *Table, w *Write) { w.Dropped = append(w.Dropped, drop(next, ID{2, 2})) },
		},
		"what was asked is": {
			"{Member:1 Number:5} is not",
			func(next *Table, _ *Write) { drop(next, ID{1, 5}) },
		},
		"not asked": {
			"1 are in the places",
			func(_ *Table, w *Write) { w.Asked = w.Asked[:1] },
		},
		"asked by another": {
			"is not asked in its place",
			func(_ *Table, w *Write) { w.By.Token = 9 },
		},
		"two hold a lock": {
			`more of "x" is held`,
			func(next *Table, _ *Write) { hold(next, ID{1, 3}) },
		},
		"two hold a lock, and the sums know": {
			`more of "x" is held`,
			func(next *Table, _ *Write) { turn(next, ID{1, 3}) },
		},
		"another capacity": {
			"stands in the line of",
			func(next *Table, _ *Write) { next.locks["x"].of = 3 },
		},
		"out of line": {
			"a claim stands in no line",
			func(next *Table, _ *Write) { cut(next, "y") },
		},
		"out of order": {
			"Number:4} is not asked in its place",
			func(next *Table, _ *Write) { slices.Reverse(next.waiting[:2]) },
		},
		"one waits for none": {
			"Number:5} waits for nothing",
			func(next *Table, _ *Write) { turn(next, ID{1, 5}) },
		},
		"one is passed": {"Number:4} is granted past an", func(next *Table, w *Write) {
			w.Dropped = append(w.Dropped, drop(next, ID{1, 2}))
			turn(next, ID{1, 4})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			base, next, w := twoVersions(t)
			c.tamper(next, &w)
			require.ErrorContains(t, next.Follows(base, w), c.want)
		})
	}
}

func drop(next *Table, id ID) ID {
	next.Drop(id)
	next.grant()
	return id
}

func claim(next *Table, id ID, name string) { next.requests[id].Claims = []Claim{{Name: name}} }

// hold has a request hold a lock beside another, as turn would not insert it.
func hold(next *Table, id ID) {
	r := next.requests[id]
	next.waiting = slices.DeleteFunc(next.waiting, func(other *Request) bool { return other == r })
	next.held = slices.Insert(next.held, len(next.held)-1, r)
	r.Token = next.Revision
}

func cut(next *Table, name string) { next.locks[name].line = next.locks[name].line[:1] }
