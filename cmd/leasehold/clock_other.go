//go:build !linux && !netbsd

package main

import "golang.org/x/sys/unix"

const clockMonotonic = unix.CLOCK_MONOTONIC
