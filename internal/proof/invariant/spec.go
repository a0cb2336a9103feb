package invariant

// Spec is a state machine as its file says it.
type Spec struct {
	sorts      []string
	symbols    []symbol
	axioms     []term
	init       term
	actions    []action
	invariants []part
	macros     map[string]term // by name: (define (NAME PARAMETER...) TERM)
}

// symbol is a function.
type symbol struct {
	name string
	args []string // sorts
	sort string
}

// A param is a name with its sort.
type param struct{ name, sort string }

type action struct {
	name    string
	params  []param
	guards  []guard
	updates []update
}

// guard is a condition of an action, and who answers for it. The proof holds without a spare one.
type guard struct {
	who   string
	term  term
	spare bool
}

// update sets one entry of a function of the state, or all of them. Then keys are the names of the
// arguments.
type update struct {
	name string
	keys []term
	to   term
	all  bool
}

// part is a part of the invariant.
type part struct {
	name string
	term term
}

// Parse reads a state machine. It panics if the text is none.
func Parse(text string) *Spec {
	s := &Spec{macros: make(map[string]term)}
	for _, d := range parse(text) {
		l := d.list
		switch d.head() {
		case "sort":
			s.sorts = append(s.sorts, l[1].atom)
		case "rigid", "var":
			f := symbol{name: l[1].atom, sort: l[3].atom}
			for _, sort := range l[2].list {
				f.args = append(f.args, sort.atom)
			}
			s.symbols = append(s.symbols, f)
		case "define":
			s.macros[l[1].head()] = d
		case "axiom":
			s.axioms = append(s.axioms, s.expand(l[1]))
		case "init":
			s.init = s.expand(l[1])
		case "invariant":
			s.invariants = append(s.invariants, part{l[1].atom, s.expand(l[2])})
		case "action":
			s.actions = append(s.actions, s.action(l))
		default:
			panic("no such declaration: " + d.String())
		}
	}
	return s
}

func (s *Spec) action(l []term) action {
	a := action{name: l[1].atom, params: params(l[2])}
	for _, c := range l[3:] {
		switch c.head() {
		case "set", "setall":
			place := s.expand(c.list[1])
			u := update{name: place.atom, to: s.expand(c.list[2]), all: c.head() == "setall"}
			if place.list != nil {
				u.name, u.keys = place.head(), place.list[1:]
			}
			a.updates = append(a.updates, u)
		case "spare": // (spare (WHO TERM))
			g := c.list[1]
			a.guards = append(a.guards, guard{who: g.head(), term: s.expand(g.list[1]), spare: true})
		default:
			a.guards = append(a.guards, guard{who: c.head(), term: s.expand(c.list[1])})
		}
	}
	return a
}

// params reads ((NAME SORT)...).
func params(t term) (ps []param) {
	for _, p := range t.list {
		ps = append(ps, param{p.list[0].atom, p.list[1].atom})
	}
	return ps
}

// Actions are the names of the actions, in the order of the file.
func (s *Spec) Actions() (names []string) {
	for _, a := range s.actions {
		names = append(names, a.name)
	}
	return names
}

// symbol is the function of this name.
func (s *Spec) symbol(name string) symbol {
	for _, f := range s.symbols {
		if f.name == name {
			return f
		}
	}
	panic("no such function: " + name)
}

// find is the action of this name.
func (s *Spec) find(name string) *action {
	for i := range s.actions {
		if s.actions[i].name == name {
			return &s.actions[i]
		}
	}
	panic("no such action: " + name)
}

// expand puts in what macros stand for.
func (s *Spec) expand(t term) term {
	if t.list == nil {
		return t
	}
	list := make([]term, len(t.list))
	for i, part := range t.list {
		list[i] = s.expand(part)
	}
	t = term{list: list}
	macro, ok := s.macros[t.head()]
	if !ok {
		return t
	}
	terms := make(map[string]term)
	for i, p := range macro.list[1].list[1:] {
		terms[p.atom] = list[i+1]
	}
	return s.expand(macro.list[2].with(terms))
}
