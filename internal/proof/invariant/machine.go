package invariant

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Machine is a state of a [Spec] with a finite number of elements of each sort, which are numbered
// from 0 on. Numbers and times are integers. Of a new element, each function is 0 or false.
type Machine struct {
	spec       *Spec
	guards     map[string][]value // by action
	updates    map[string][]set
	invariants []value
	elements   map[string]int64 // how many of each sort
	functions  map[string]function
	taken      map[string]int
}

type (
	function map[[2]int64]int64
	// value computes a term. env has the parameters of the action, and then what is bound.
	value func(m *Machine, env []int64) int64
	// set computes one update of an action.
	set struct {
		keys []value
		to   value
	}
)

// NewMachine returns a machine without elements.
func NewMachine(s *Spec) *Machine {
	m := &Machine{
		spec:      s,
		guards:    make(map[string][]value),
		updates:   make(map[string][]set),
		elements:  make(map[string]int64),
		functions: make(map[string]function),
		taken:     make(map[string]int),
	}
	for _, f := range s.symbols {
		m.functions[f.name] = make(function)
	}
	for _, p := range s.invariants {
		m.invariants = append(m.invariants, m.compile(p.term, nil))
	}
	for _, a := range s.actions {
		for _, g := range a.guards {
			m.guards[a.name] = append(m.guards[a.name], m.compile(g.term, a.params))
		}
		for _, u := range a.updates {
			f, scope := s.symbol(u.name), a.params
			var keys []value
			for i, k := range u.keys {
				if u.all {
					scope = append(slices.Clip(scope), param{k.atom, f.args[i]})
				} else {
					keys = append(keys, m.compile(k, a.params))
				}
			}
			m.updates[a.name] = append(m.updates[a.name], set{keys, m.compile(u.to, scope)})
		}
	}
	return m
}

// clone returns a machine of its own in the same state.
func (m *Machine) clone() *Machine {
	c := *m
	c.elements, c.taken = maps.Clone(m.elements), maps.Clone(m.taken)
	c.functions = make(map[string]function)
	for name, f := range m.functions {
		c.functions[name] = maps.Clone(f)
	}
	return &c
}

// Make makes an element of a sort.
func (m *Machine) Make(sort string) int64 {
	m.elements[sort]++
	return m.elements[sort] - 1
}

// Get is the value of a function, 1 if it is true.
func (m *Machine) Get(name string, keys ...int64) int64 { return m.functions[name][entry(keys)] }

// Set sets a value without a step: of the first state, and of what never changes of a new element.
func (m *Machine) Set(name string, to int64, keys ...int64) { m.functions[name][entry(keys)] = to }

func entry(keys []int64) (e [2]int64) {
	copy(e[:], keys)
	return e
}

// Taken is how many steps of each action were taken.
func (m *Machine) Taken() map[string]int { return m.taken }

// Refused is the error of a step that a guard does not allow.
type Refused struct {
	Action string
	Args   []int64
	Who    string // answers for the guard
	Guard  string
}

func (r *Refused) Error() string {
	return fmt.Sprintf("%s%s is not a step of the protocol: %s does not hold (%s)", r.Action,
		strings.ReplaceAll(fmt.Sprint(r.Args), " ", ", "), r.Guard, r.Who)
}

// May returns nil, or a [*Refused] that names the first guard which does not allow a step. Guards
// for which one of excused answers are taken for true.
func (m *Machine) May(action string, args []int64, excused ...string) error {
	a := m.spec.find(action)
	for i, g := range m.guards[action] {
		if g(m, args) == 0 && !slices.Contains(excused, a.guards[i].who) {
			return &Refused{action, args, a.guards[i].who, a.guards[i].term.String()}
		}
	}
	return nil
}

// Step takes a step if its guards allow it; otherwise it returns what [Machine.May] does.
func (m *Machine) Step(action string, args []int64, excused ...string) error {
	if err := m.May(action, args, excused...); err != nil {
		return err
	}
	var do []func()
	write := func(f string, at [2]int64, to int64) {
		do = append(do, func() { m.functions[f][at] = to })
	}
	for i, u := range m.spec.find(action).updates {
		compiled := m.updates[action][i]
		if u.all {
			sorts := m.spec.symbol(u.name).args
			m.each(sorts, args, func(env []int64) bool {
				write(u.name, entry(env[len(args):]), compiled.to(m, env))
				return true
			})
			continue
		}
		keys := make([]int64, len(compiled.keys))
		for j, k := range compiled.keys {
			keys[j] = k(m, args)
		}
		write(u.name, entry(keys), compiled.to(m, args))
	}
	for _, f := range do {
		f()
	}
	m.taken[action]++
	return nil
}

// Broken returns the names of the parts of the invariant that do not hold.
func (m *Machine) Broken() (names []string) {
	for i, holds := range m.invariants {
		if holds(m, nil) == 0 {
			names = append(names, m.spec.invariants[i].name)
		}
	}
	return names
}

// each calls f with env and each combination of elements of the sorts, until f returns false.
func (m *Machine) each(sorts []string, env []int64, f func(env []int64) bool) bool {
	if len(sorts) == 0 {
		return f(env)
	}
	for x := range m.elements[sorts[0]] {
		if !m.each(sorts[1:], append(slices.Clip(env), x), f) {
			return false
		}
	}
	return true
}
