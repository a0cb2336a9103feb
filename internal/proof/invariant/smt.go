package invariant

import (
	"fmt"
	"strings"
)

// An Obligation is a text in SMT-LIB that a solver must answer with unsat.
type Obligation struct {
	Action, Part string // Action is "init" for the first state
	SMT          string
}

// Obligations are: each part of the invariant holds at first, and each action keeps it. An action
// that changes nothing that a part mentions needs no proof. If without is not nil, it says of each
// guard of an action, by its number, whether to leave it out.
func (s *Spec) Obligations(without func(action string, guard int) bool) (all []Obligation) {
	var declared, assumed strings.Builder
	for _, sort := range s.sorts {
		fmt.Fprintf(&declared, "(declare-sort %s 0)\n", sort)
	}
	for _, f := range s.symbols {
		fmt.Fprintf(&declared, "(declare-fun %s (%s) %s)\n", f.name, strings.Join(f.args, " "), f.sort)
	}
	for _, axiom := range s.axioms {
		fmt.Fprintf(&declared, "(assert %v)\n", axiom)
	}
	for _, p := range s.invariants {
		fmt.Fprintf(&assumed, "(assert %v)\n", p.term)
		all = append(all, Obligation{"init", p.name,
			fmt.Sprintf("%v(assert %v)\n(assert (not %v))\n(check-sat)\n", &declared, s.init, p.term)})
	}
	for _, a := range s.actions {
		var guards strings.Builder
		for _, p := range a.params {
			fmt.Fprintf(&guards, "(declare-const %s %s)\n", p.name, p.sort)
		}
		for i, g := range a.guards {
			if without == nil || !without(a.name, i) {
				fmt.Fprintf(&guards, "(assert %v)\n", g.term)
			}
		}
		updates, next := s.next(a.updates)
		for _, p := range s.invariants {
			if p.term.mentions(next) {
				all = append(all, Obligation{a.name, p.name, fmt.Sprintf("%v%v%v%s(assert (not %v))\n(check-sat)\n",
					&declared, &assumed, &guards, updates, p.term.with(next))})
			}
		}
	}
	return all
}

// next defines the functions of the next state, and maps the names of this state's to theirs.
func (s *Spec) next(updates []update) (text string, next map[string]term) {
	var b strings.Builder
	next = make(map[string]term)
	for i, u := range updates {
		f, before := s.symbol(u.name), u.name
		if earlier, ok := next[u.name]; ok {
			before = earlier.atom
		}
		after := fmt.Sprintf("%s!%d", u.name, i)
		var declared, args, here []string
		for j, sort := range f.args {
			arg := fmt.Sprintf("x!%d", j)
			if u.all {
				arg = u.keys[j].atom
			} else {
				here = append(here, fmt.Sprintf("(= %s %v)", arg, u.keys[j]))
			}
			declared, args = append(declared, fmt.Sprintf("(%s %s)", arg, sort)), append(args, arg)
		}
		to := u.to.String()
		if len(here) > 0 {
			to = fmt.Sprintf("(ite (and %s) %s (%s %s))", strings.Join(here, " "), to, before, strings.Join(args, " "))
		}
		fmt.Fprintf(&b, "(define-fun %s (%s) %s %s)\n", after, strings.Join(declared, " "), f.sort, to)
		next[u.name] = term{atom: after}
	}
	return b.String(), next
}
