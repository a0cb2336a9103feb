// Command tiny has each kind of code that is mutated, and code that is easy to break. Each line that it prints shows one function.
package main

type flag bool

type number interface{ ~int | ~float64 }

const constant = 1 < 2

var variable = constant != (3 > 3)

type box struct{ n int }

func (b *box) set(n int) { b.n = n }

func ordered(a, b int) []bool { return []bool{a < b, a <= b, a > b, a >= b} }

func logical(a, b bool) []any { return []any{a && b, a || b, a && (b || a != b), a == b} }

func generic[T number](a, b T) int { return map[bool]int{true: 1}[a < b] }

func condition(m map[string]bool) string {
	if ok := m["x"]; ok {
		return "x"
	} else if n := len(m); n > 0 && // a comment within a condition
		!m["y"] {
		return "y"
	}
	return "z"
}

func removed() (b box) {
	set := b.set // a method value
	defer func() { b.n++ }()
	set(1)
	switch {
	case b.n == 1:
		b.n += 10
	}
	for i := 0; i < 2; i++ {
		b.n *= 2
	}
	return b
}

func flipped() (flag, any) { return true, false }

func missingReturn() int { panic("nobody calls it") }

func named(a, b flag) flag { return a && b }
