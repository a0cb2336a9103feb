package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A piece of code is found however its lines are broken, and only where it is the only one.
func TestCodeIsFoundByItsTokens(t *testing.T) {
	const wrapped = `package p

func f() {
	g(
		"a", // which comes first
		b+1,
	)
	if x := h(); x {
		return
	}
}
`
	for name, c := range map[string]struct{ old, new, want string }{
		"another layout":           {`g("a", b+1)`, `g("a", b)`, "\tg(\"a\", b)\n"},
		"the end of a list":        {`b+1)`, `b, nil)`, "\t\tb, nil)\n"},
		"a line for each":          {"if x := h();\nx {\nreturn\n}", "h()", "\th()\n}\n"},
		"part of a token":          {`g("a`, ``, ""},
		"a string of another text": {`g("b", b+1)`, ``, ""},
		"nothing":                  {"\n\n\n", ``, ""},
	} {
		t.Run(name, func(t *testing.T) {
			planted, err := edit{"p.go", c.old, c.new}.plant([]byte(wrapped))
			if c.want == "" {
				require.ErrorContains(t, err, "occurs 0 times")
				return
			}
			require.NoError(t, err)
			require.Contains(t, string(planted), c.want)
		})
	}
	_, err := edit{"p.go", "x()+y()", "z"}.plant([]byte("package p\nvar a, b = x() + y(), x() + y()\n"))
	require.ErrorContains(t, err, "occurs 2 times")
}
