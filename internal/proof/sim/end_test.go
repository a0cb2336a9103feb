package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/proof/sim"
)

// Each kind of world has a process that is to start again when the world is over.
func TestNothingStartsAfterTheEnd(t *testing.T) {
	late := sim.NewConfig(1)
	late.Actions = []sim.Action{
		{At: 90 * time.Second, Node: 0, Kind: "stop and start", For: 170 * time.Second},
		{At: 91 * time.Second, Node: 1, Kind: "crash and restart", For: 170 * time.Second},
	}
	require.Empty(t, late.Run(t, false).Violations)
	tables := sim.NewTableConfig(1)
	for _, kind := range []string{"stop and start", "stop and run again", "crash and restart"} {
		tables.Actions = []sim.Action{{At: time.Minute, Node: 0, Kind: kind, For: time.Hour}}
		require.NotEmpty(t, tables.Run(t, false).Violations, "it waits for that process")
	}
}

func TestPanicNamesTheSeed(t *testing.T) {
	defer func() { require.Contains(t, recover(), "the world of seed 4711: deadlock") }()
	sim.InBubble(t, 4711, func() {
		go func() { select {} }()
	})
}
