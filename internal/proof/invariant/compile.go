package invariant

import (
	"slices"
	"strconv"
)

// connectives are the functions of SMT-LIB that the files use.
var connectives = map[string]func(args []value) value{
	"not": func(args []value) value {
		return func(m *Machine, env []int64) int64 { return 1 - args[0](m, env) }
	},
	"and": func(args []value) value {
		return func(m *Machine, env []int64) int64 {
			return truth(!slices.ContainsFunc(args, func(a value) bool { return a(m, env) == 0 }))
		}
	},
	"or": func(args []value) value {
		return func(m *Machine, env []int64) int64 {
			return truth(slices.ContainsFunc(args, func(a value) bool { return a(m, env) == 1 }))
		}
	},
	"=>": func(args []value) value {
		return func(m *Machine, env []int64) int64 { return truth(args[0](m, env) == 0 || args[1](m, env) == 1) }
	},
	"ite": func(args []value) value {
		return func(m *Machine, env []int64) int64 { return args[2-args[0](m, env)](m, env) }
	},
	"=":  ofTwo(func(a, b int64) int64 { return truth(a == b) }),
	"<":  ofTwo(func(a, b int64) int64 { return truth(a < b) }),
	"<=": ofTwo(func(a, b int64) int64 { return truth(a <= b) }),
	">":  ofTwo(func(a, b int64) int64 { return truth(a > b) }),
	">=": ofTwo(func(a, b int64) int64 { return truth(a >= b) }),
	"+":  ofTwo(func(a, b int64) int64 { return a + b }),
	"-":  ofTwo(func(a, b int64) int64 { return a - b }),
}

func ofTwo(f func(a, b int64) int64) func([]value) value {
	return func(args []value) value {
		return func(m *Machine, env []int64) int64 { return f(args[0](m, env), args[1](m, env)) }
	}
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// compile makes a term ready to be computed. Its free names are those of scope, and what they stand
// for is in the same order in env.
func (m *Machine) compile(t term, scope []param) value {
	if t.list == nil {
		return m.compileName(t.atom, scope)
	}
	if t.head() == "forall" {
		bound := params(t.list[1])
		body := m.compile(t.list[2], append(slices.Clip(scope), bound...))
		var sorts []string
		for _, p := range bound {
			sorts = append(sorts, p.sort)
		}
		return func(m *Machine, env []int64) int64 {
			return truth(m.each(sorts, env, func(env []int64) bool { return body(m, env) == 1 }))
		}
	}
	var args []value
	for _, a := range t.list[1:] {
		args = append(args, m.compile(a, scope))
	}
	if c, ok := connectives[t.head()]; ok {
		return c(args)
	}
	f := m.spec.symbol(t.head()).name
	return func(m *Machine, env []int64) int64 {
		var at [2]int64
		for i, a := range args {
			at[i] = a(m, env)
		}
		return m.functions[f][at]
	}
}

func (m *Machine) compileName(name string, scope []param) value {
	for i, p := range slices.Backward(scope) { // what is bound last hides what has its name
		if p.name == name {
			return func(_ *Machine, env []int64) int64 { return env[i] }
		}
	}
	if name == "true" || name == "false" {
		return func(*Machine, []int64) int64 { return truth(name == "true") }
	}
	if number, err := strconv.ParseFloat(name, 64); err == nil {
		return func(*Machine, []int64) int64 { return int64(number) }
	}
	f := m.spec.symbol(name).name
	return func(m *Machine, _ []int64) int64 { return m.functions[f][[2]int64{}] }
}
