package locktable

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// invariants is a Table, and a version in which another member and then itself wait for one lock.
func invariants(t *testing.T) (tab *Table, base *version, other, own tables.ID, named tables.Term) {
	t.Helper()
	tab, err := New(leasehold.NewMemStore(), "t")
	require.NoError(t, err)
	base = &version{tab: tables.New()}
	named = tables.Term{Key: "m", ObjectID: "o", TermID: "t", Token: 1}
	other.Member = base.tab.Join(tables.Member{Term: tables.Term{Key: "n", ObjectID: "o", TermID: "t", Token: 1}})
	own.Member, other.Number, own.Number = base.tab.Join(tables.Member{Term: named}), 1, 1
	for _, id := range []tables.ID{other, own} {
		require.NoError(t, base.tab.Ask(id, []tables.Claim{{Name: "x"}}))
	}
	base.tab.Finish("one", 0)
	return tab, base, other, own, named
}

// A write that would break what leases rest on is not built, and so not sent: the committer panics.
func TestAnInvariantIsChecked(t *testing.T) {
	tab, base, other, own, named := invariants(t)
	build := func(id tables.ID) (err error) {
		defer func() { err, _ = recover().(error) }()
		tm := &term{named: named, working: t.Context()}
		_, _, _ = newCommitter(tab, tm).build(base, &difference{drop: []tables.ID{id}})
		return nil
	}
	require.NoError(t, build(own))
	err := build(other)
	require.ErrorIs(t, err, errInvariant)
	require.ErrorContains(t, err, "or belongs to another member")
}

// What one process must not do is checked beside the table itself.
func TestInvariantsOfAProcess(t *testing.T) {
	tab, base, _, own, named := invariants(t)
	check := func(functions int, d *difference) (err error) {
		defer func() { err, _ = recover().(error) }()
		tm := &term{named: named, functions: functions, working: t.Context()}
		_, _, _ = newCommitter(tab, tm).build(base, d)
		return nil
	}
	drop, leave := &difference{drop: []tables.ID{own}}, &difference{leaves: true}
	tab.requests[own.Number] = &request{state: freeing, claims: []tables.Claim{{Name: "x"}}}
	assert.NoError(t, check(0, drop))
	assert.NoError(t, check(0, leave))
	assert.ErrorContains(t, check(2, leave), "2 functions run")
	tab.requests[own.Number].state = held
	assert.ErrorContains(t, check(0, drop), "is dropped while its lease lasts")
}
