// Package bubble runs tests in virtual time.
package bubble

import (
	"testing"
	"testing/synctest"
)

// Run runs f as the subtest name, in a separate bubble.
func Run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
