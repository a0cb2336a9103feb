package testserver

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A line may come in parts.
func TestHowFarABuildIs(t *testing.T) {
	var out output
	for _, part := range []string{"go: downloading example.com/a v1.0.0\ngo: down", "loading example.com/b v1.0.0\n",
		"internal/", "cpu\nruntime\nexample.com/a\n"} {
		fmt.Fprint(&out, part)
	}
	require.Equal(t, "2 modules downloaded, 3 packages compiled", out.String())
}
