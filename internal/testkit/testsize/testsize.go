// Package testsize is the one switch for the sizes of tests: how many worlds, locks, rounds and
// faults, how long a TTL. "make test" runs the short sizes, so that it takes minutes.
// LEASEHOLD_SIZE=full is for "make nightly".
package testsize

import (
	"fmt"
	"os"
)

// Full reports whether tests run at full size. It panics if LEASEHOLD_SIZE has a value other than
// short and full.
func Full() bool {
	switch size := os.Getenv("LEASEHOLD_SIZE"); size {
	case "", "short":
		return false
	case "full":
		return true
	default:
		panic(fmt.Sprintf("LEASEHOLD_SIZE is %q: set it to short or full", size))
	}
}

// Pick returns the size that is asked for.
func Pick[T any](short, full T) T {
	if Full() {
		return full
	}
	return short
}
