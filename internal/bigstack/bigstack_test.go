package bigstack_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/bigstack"
)

func TestRun(t *testing.T) {
	never := func(any, []byte) { t.Error("nothing panicked") }
	ran := false
	bigstack.Run(func() { ran = true }, never)
	require.True(t, ran)

	var stack string
	require.PanicsWithValue(t, "boom", func() {
		bigstack.Run(func() { panic("boom") }, func(value any, s []byte) {
			require.Equal(t, "boom", value)
			stack = string(s)
		})
	})
	require.Contains(t, stack, "TestRun", "where the panic began")

	done := make(chan bool)
	go func() {
		wentOn := false
		defer func() { done <- wentOn }()
		bigstack.Run(runtime.Goexit, never)
		wentOn = true
	}()
	require.False(t, <-done)
}
