package main_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// Help and page say where the command's defaults differ from the library's, which they have right.
func TestDefaultsThatDifferFromTheLibrarys(t *testing.T) {
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), "a")
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	defer lease.Release(t.Context())
	ttl := lease.Record().TTL
	margin := ttl - lease.Deadline().Sub(lease.Record().RenewedAt)
	require.InDelta(t, float64(ttl)/5, float64(margin), float64(time.Second)/10, "a fifth")

	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, command := range []string{"run", "elect"} {
		help := offline(t, command, "--help").out
		require.Regexp(t, `(?m)--ttl duration .*(\n .*)?\(default 30s\)`, help)
		require.Contains(t, words(help),
			fmt.Sprintf("The library's defaults are a TTL of %v and a margin of a fifth", ttl))
	}
	for _, text := range []string{offline(t, "help", "guarantee").out, page(t)} {
		require.Regexp(t, fmt.Sprintf(`The library's defaults are (a TTL of )?%.0f s and (a margin of )?a fifth`,
			ttl.Seconds()), words(text))
	}
}
