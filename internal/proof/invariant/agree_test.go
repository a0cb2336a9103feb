package invariant

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// The two readers of a file agree: on random states of three elements a sort, the machine computes
// each guard, and each part of the invariant before and after each step, and z3 must find that this
// is so.
func TestTheMachineAgreesWithZ3(t *testing.T) {
	z3 := testserver.Z3(t)
	small := map[string]string{"lease": LeaseText, "tables": TablesText, "small": `
		(sort E) (var x () Real) (var y () Real) (var f (E E) Bool) (var g (E) E)
		(action swap ((d Real)) (code (not (< (+ x d) y))) (code (or (> x y) (= x 1.0) (<= (- y d) x)))
			(set x y) (set y x))
		(action turn ((e E)) (code (=> (f e e) (>= x y)))
			(set (g e) (g (g e))) (setall (f a b) (and (f b a) (not (= a e)))))
		(action twice ((e E) (d E)) (set (g e) d) (set (g d) (ite (f e d) e (g e))))
		(invariant all (forall ((a E) (b E)) (=> (f a b) (= (g a) b))))
		(invariant hidden (forall ((a E)) (or (f a a) (forall ((a E)) (not (f (g a) a))))))
		(invariant order (<= x (+ y 1.0)))`}
	for name, text := range small {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compared := 0
			for seed := range uint64(30) {
				d := draw{m: NewMachine(Parse(text)), r: rand.New(rand.NewPCG(seed, 0))}
				d.state()
				d.says(nil, nil)
				for _, a := range d.m.spec.actions {
					d.step(a)
				}
				answers := strings.Fields(ask(z3, d.smt.String()))
				require.Len(t, answers, len(d.m.spec.actions), answers)
				for i, answer := range answers {
					require.Equal(t, "sat", answer, "state %d, action %s: z3 computes something else", seed,
						d.m.spec.actions[i].name)
				}
				compared += d.compared
			}
			t.Logf("%d values agree", compared)
		})
	}
}

// draw draws a state and steps, and writes down what the machine makes of them.
type draw struct {
	m        *Machine
	r        *rand.Rand
	smt      strings.Builder
	compared int
}

const elements = 3 // of each sort

func (d *draw) value(sort string) int64 {
	if sort == "Bool" {
		return d.r.Int64N(2)
	}
	return d.r.Int64N(elements)
}

// literal is a value as SMT-LIB writes it.
func (d *draw) literal(sort string, v int64) string {
	switch sort {
	case "Bool":
		return fmt.Sprint(v == 1)
	case "Real":
		return fmt.Sprintf("%d.0", v)
	case "Int":
		return fmt.Sprint(v)
	}
	return fmt.Sprint(sort, v)
}

// state draws each function.
func (d *draw) state() {
	for _, sort := range d.m.spec.sorts {
		fmt.Fprintf(&d.smt, "(declare-datatypes () ((%s", sort)
		for range elements {
			fmt.Fprintf(&d.smt, " %s%d", sort, d.m.Make(sort))
		}
		d.smt.WriteString(")))\n")
	}
	for _, f := range d.m.spec.symbols {
		var declared []string
		for i, sort := range f.args {
			declared = append(declared, fmt.Sprintf("(x%d %s)", i, sort))
		}
		body := d.literal(f.sort, d.value(f.sort)) // of no element, or of the last
		d.m.each(f.args, nil, func(keys []int64) bool {
			v := d.value(f.sort)
			d.m.Set(f.name, v, keys...)
			if len(keys) == 0 {
				body = d.literal(f.sort, v)
				return true
			}
			var here []string
			for i, k := range keys {
				here = append(here, fmt.Sprintf("(= x%d %s)", i, d.literal(f.args[i], k)))
			}
			body = fmt.Sprintf("(ite (and %s) %s %s)", strings.Join(here, " "), d.literal(f.sort, v), body)
			return true
		})
		fmt.Fprintf(&d.smt, "(define-fun %s (%s) %s %s)\n", f.name, strings.Join(declared, " "), f.sort, body)
	}
}

// equals writes down that a term is true, or that it is not.
func (d *draw) equals(t term, v int64) {
	d.compared++
	fmt.Fprintf(&d.smt, "(assert (= %v %v))\n", t, v == 1)
}

// says writes down which parts of the invariant hold after a step, of those that mention what it
// has changed; all of them before the first.
func (d *draw) says(after *Machine, next map[string]term) {
	m := d.m
	if after != nil {
		m = after
	}
	for i, p := range m.spec.invariants {
		if after == nil || p.term.mentions(next) {
			d.equals(p.term.with(next), m.invariants[i](m, nil))
		}
	}
}

// step draws the parameters of an action, and takes it whatever its guards say.
func (d *draw) step(a action) {
	d.smt.WriteString("(push)\n")
	var args []int64
	bound := make(map[string]term)
	for _, p := range a.params {
		v := d.value(p.sort)
		args = append(args, v)
		bound[p.name] = term{atom: d.literal(p.sort, v)}
	}
	var everybody []string
	for i, g := range a.guards {
		everybody = append(everybody, g.who)
		d.equals(g.term.with(bound), d.m.guards[a.name][i](d.m, args))
	}
	after := d.m.clone()
	_ = after.Step(a.name, args, everybody...)
	var updates []update
	for _, u := range a.updates {
		at := update{name: u.name, keys: u.keys, to: u.to.with(bound), all: u.all}
		if !u.all {
			at.keys = term{list: u.keys}.with(bound).list
		}
		updates = append(updates, at)
	}
	text, next := d.m.spec.next(updates)
	d.smt.WriteString(text)
	d.says(after, next)
	d.smt.WriteString("(check-sat)(pop)\n")
}
