package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A SIGTERM that comes while a command is about to run either keeps it from running, or reaches it.
func TestASignalReachesTheCommandThatBegins(t *testing.T) {
	r := &relay{passed: make(chan os.Signal, 16)}
	took := make(chan bool)
	var begun, kept int
	for range 300_000 {
		r.ending.Store(nil)
		r.running.Store(false)
		r.passed <- syscall.SIGHUP // for the last command
		go func() { took <- r.take(syscall.SIGTERM) != nil }()
		runs := r.begin()
		ends := <-took
		if !runs {
			kept++
			require.NotNil(t, r.end(false), "the campaign ends")
			continue
		}
		begun++
		require.False(t, ends, "not while the command runs")
		var last os.Signal
		for len(r.passed) > 0 {
			last = <-r.passed
		}
		require.Equal(t, syscall.SIGTERM, last, "it reaches the command, which else runs on")
	}
	t.Logf("%d commands have begun, %d were kept from it", begun, kept)
	require.NotZero(t, begun)
	require.NotZero(t, kept)
}
