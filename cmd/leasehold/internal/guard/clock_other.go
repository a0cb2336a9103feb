//go:build !linux && !netbsd

package guard

import "golang.org/x/sys/unix"

const clockMonotonic = unix.CLOCK_MONOTONIC
