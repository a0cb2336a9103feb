package shards

import (
	"cmp"
	"slices"
)

// cast says who may own shards.
type cast struct {
	fit  []string                   // members that may get more shards
	wary map[string]map[string]bool // members that could not take these shards: they keep the others, and get no more for now
	away map[string]bool            // members that are gone, and may come back
}

// maxRefusals bounds the members that are tried for a shard that nobody can take.
const maxRefusals = 3

// assign divides the shards of ids among the members so that their numbers differ by at most one, and moves as few as that needs. A
// shard whose owner has left remembers it as its home, and of the shards that must move those go first that go home.
func assign(old *plan, ids []string, who cast) *plan {
	a := newAssignment(old, ids, who)
	if len(a.members) > 0 {
		a.setQuotas()
		a.moveHome()
		a.fill(a.takeSurplus())
	}
	return a.plan()
}

// assignment is a plan in the making.
type assignment struct {
	who     cast
	members []string
	ids     []string
	owner   map[string]string // by shard; absent if it has none
	home    map[string]string
	held    map[string]int // shards of each member
	quota   map[string]int
}

func newAssignment(old *plan, ids []string, who cast) *assignment {
	if len(who.fit) == 0 { // better them than nobody
		for m := range who.wary {
			who.fit = append(who.fit, m)
		}
		who.wary = nil
	}
	a := &assignment{
		who: who, members: slices.Clone(who.fit), ids: ids,
		owner: make(map[string]string), home: make(map[string]string), held: make(map[string]int), quota: make(map[string]int),
	}
	for m := range who.wary {
		a.members = append(a.members, m)
	}
	slices.Sort(a.members)
	owners, homes := old.byID()
	for _, id := range ids {
		owner, home := owners[id], homes[id]
		switch {
		case owner == "":
		case !a.has(owner):
			if home == "" || a.has(home) {
				home = owner
			}
		case !a.refuses(owner, id):
			a.owner[id] = owner
			a.held[owner]++
		}
		if home != "" && (who.away[home] || a.has(home)) {
			a.home[id] = home
		}
	}
	return a
}

func (a *assignment) has(member string) bool {
	_, found := slices.BinarySearch(a.members, member)
	return found
}

// refuses reports whether a shard must leave its owner. One that many have refused stays where it is.
func (a *assignment) refuses(member, id string) bool {
	refusals := 0
	for _, refused := range a.who.wary {
		if refused[id] {
			refusals++
		}
	}
	return a.who.wary[member][id] && refusals < maxRefusals
}

// setQuotas sets how many shards each member gets. Those with the most keep the most.
func (a *assignment) setQuotas() {
	left, limit := len(a.ids), (len(a.ids)+len(a.members)-1)/len(a.members)
	for m := range a.who.wary {
		a.quota[m] = min(a.held[m], limit)
		left -= a.quota[m]
	}
	wanted := make(map[string]int) // shards that a member owns and that have no other home, and those that come home
	for _, id := range a.ids {
		if home := a.home[id]; a.has(home) {
			wanted[home]++
		} else {
			wanted[a.owner[id]]++
		}
	}
	order := slices.Clone(a.who.fit)
	slices.SortFunc(order, func(m, n string) int {
		return cmp.Or(wanted[n]-wanted[m], a.held[n]-a.held[m], cmp.Compare(m, n))
	})
	for i, m := range order {
		a.quota[m] = left / len(order)
		if i < left%len(order) {
			a.quota[m]++
		}
	}
}

func (a *assignment) needs(member string) bool { return a.held[member] < a.quota[member] }

func (a *assignment) give(id, member string) {
	if from := a.owner[id]; from != "" {
		a.held[from]--
	}
	a.owner[id] = member
	a.held[member]++
}

// moveHome gives members back what was theirs, as far as they need it and its owner does not.
func (a *assignment) moveHome() {
	for _, id := range a.ids {
		home, owner := a.home[id], a.owner[id]
		if a.has(home) && home != owner && a.needs(home) && (owner == "" || a.held[owner] > a.quota[owner]) {
			a.give(id, home)
		}
	}
}

// takeSurplus takes from members what is above their quota, and returns all shards that have no owner then.
func (a *assignment) takeSurplus() (pool []string) {
	for _, homeless := range []bool{true, false} { // first those that are not at home either
		for _, id := range slices.Backward(a.ids) {
			owner := a.owner[id]
			if owner == "" || a.held[owner] <= a.quota[owner] || homeless != (a.home[id] != "" && a.home[id] != owner) {
				continue
			}
			a.held[owner]--
			delete(a.owner, id)
		}
	}
	for _, id := range a.ids {
		if a.owner[id] == "" {
			pool = append(pool, id)
		}
	}
	return pool
}

// fill gives the shards of the pool to those that need them, in turn, so that no member gets all that belong together.
func (a *assignment) fill(pool []string) {
	for len(pool) > 0 {
		given := false
		for _, m := range a.members {
			if len(pool) > 0 && a.needs(m) {
				a.give(pool[0], m)
				pool, given = pool[1:], true
			}
		}
		if !given {
			return
		}
	}
}

// plan returns the assignment as a plan. Homes are kept of those that are away.
func (a *assignment) plan() *plan {
	p := &plan{members: slices.Clone(a.members), ids: a.ids, owner: make([]int, len(a.ids)), home: make([]int, len(a.ids))}
	index := make(map[string]int)
	for i, m := range p.members {
		index[m] = i
	}
	for i, id := range a.ids {
		p.owner[i], p.home[i] = nobody, nobody
		if m := a.owner[id]; m != "" {
			p.owner[i] = index[m]
		}
		home := a.home[id]
		if home == "" || a.has(home) {
			continue
		}
		if _, known := index[home]; !known {
			index[home] = len(p.members)
			p.members = append(p.members, home)
		}
		p.home[i] = index[home]
	}
	p.present = len(a.members)
	return p
}
