//go:build !linux

package main_test

import "os/exec"

// What only Linux has.

func actAsWrapper(string)     {}
func endMainThread()          {}
func withoutCgroup(*exec.Cmd) {}
