package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/exampletest"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

func TestMain(m *testing.M) { exampletest.Main(main, m) }

func TestExample(t *testing.T) {
	server := testserver.MinIO(t)
	exampletest.Credentials(t, server)
	flags := []string{"-bucket", server.Bucket(t), "-endpoint", server.Endpoint, "-every", "2"}
	first, second := exampletest.Start(t, flags...), exampletest.Start(t, flags...)
	ones, others := first.Lines(), second.Lines()
	slots, last := map[string]bool{}, 0
	for want := 1; want <= 5; want++ {
		var line string
		select {
		case line = <-ones:
		case line = <-others:
		case <-time.After(45 * time.Second): // a killed process may hold the lock for its TTL
			t.Fatal("no slot ran within 45 s")
		}
		var slot string
		var token int
		_, err := fmt.Sscanf(line, "run %s with token %d", &slot, &token)
		require.NoError(t, err, line)
		require.Greater(t, token, last)
		last = token
		require.False(t, slots[slot], "slot %s ran twice", slot)
		slots[slot] = true
		if want == 2 { // killed between two runs; the other process continues
			require.NoError(t, first.Kill())
			ones = nil
		}
	}
}
