package invariant

import "strings"

// term is an S-expression: an atom, or a list.
type term struct {
	atom string
	list []term // not nil for a list
}

func (t term) String() string {
	if t.list == nil {
		return t.atom
	}
	parts := make([]string, len(t.list))
	for i, part := range t.list {
		parts[i] = part.String()
	}
	return "(" + strings.Join(parts, " ") + ")"
}

// head is the first atom of a list; none of an atom.
func (t term) head() string {
	if len(t.list) == 0 {
		return ""
	}
	return t.list[0].atom
}

var brackets = strings.NewReplacer("(", " ( ", ")", " ) ")

// parse reads a sequence of terms. A comment goes from a semicolon to the end of its line.
func parse(text string) []term {
	open := [][]term{nil}
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, ";")
		for _, token := range strings.Fields(brackets.Replace(code)) {
			last := len(open) - 1
			switch {
			case token == "(":
				open = append(open, []term{})
			case token == ")" && last > 0:
				open[last-1] = append(open[last-1], term{list: open[last]})
				open = open[:last]
			case token == ")":
				panic("a bracket is closed that was not opened: " + line)
			default:
				open[last] = append(open[last], term{atom: token})
			}
		}
	}
	if len(open) > 1 {
		panic("a bracket is not closed")
	}
	return open[0]
}

// with returns t with other terms for some of its atoms. No name that t binds may be one of a term
// that is put in.
func (t term) with(terms map[string]term) term {
	if t.list == nil {
		if other, ok := terms[t.atom]; ok {
			return other
		}
		return t
	}
	list := make([]term, len(t.list))
	for i, part := range t.list {
		list[i] = part.with(terms)
	}
	return term{list: list}
}

// mentions reports whether one of the names is an atom of t.
func (t term) mentions(names map[string]term) bool {
	_, ok := names[t.atom]
	for i := 0; i < len(t.list) && !ok; i++ {
		ok = t.list[i].mentions(names)
	}
	return ok
}
