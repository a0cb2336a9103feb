package testserver

import "testing"

// Z3 is the path of the theorem prover z3, which is a package of Debian. Where that is not
// installed, the test is [Missing] z3.
func Z3(tb testing.TB) string {
	tb.Helper()
	return debianProgram(tb, "z3", "z3")
}
