package invariant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A machine takes what guards allow, and says what they do not.
func TestAStepIsTakenOrRefused(t *testing.T) {
	m := NewMachine(Parse(`
		(sort W) ; a write
		(rigid base (W) W) (var cur () W) (var landed (W) Bool)
		(define (free w) (not (landed w)))
		(action land ((w W)) (store (free w)) (code (= (base w) cur)) (set cur w) (set (landed w) true))
		(invariant cur (landed cur))`))
	first, second := m.Make("W"), m.Make("W")
	m.Set("landed", 1, first)
	require.Empty(t, m.Broken())
	err := m.Step("land", []int64{first})
	require.EqualError(t, err, "land[0] is not a step of the protocol: (not (landed w)) does not hold (store)")
	require.Error(t, m.May("land", []int64{first}, "code"))
	require.NoError(t, m.May("land", []int64{first}, "store"))
	require.NoError(t, m.Step("land", []int64{second}))
	require.Equal(t, second, m.Get("cur"))
	require.EqualValues(t, 1, m.Get("landed", second))
	require.Equal(t, map[string]int{"land": 1}, m.Taken())
	m.Set("landed", 0, second)
	require.Equal(t, []string{"cur"}, m.Broken())
}

// What is no state machine is named, and not read as another one.
func TestTextsThatAreNoSpec(t *testing.T) {
	for text, says := range map[string]string{
		"(sort P":                     "a bracket is not closed",
		"(sort P))":                   "a bracket is closed that was not opened: (sort P))",
		"(theorem x)":                 "no such declaration: (theorem x)",
		"(invariant x (lost))":        "no such function: lost",
		"(action a () (set x true))":  "no such function: x",
		"(invariant x (and true no))": "no such function: no",
	} {
		require.PanicsWithValue(t, says, func() { NewMachine(Parse(text)) }, text)
	}
}
