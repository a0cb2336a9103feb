package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	defer http.DefaultClient.CloseIdleConnections()
	ctx, stop := context.WithCancel(t.Context())
	var out strings.Builder
	require.NoError(t, run(ctx, stop, "", &out))
	require.Contains(t, out.String(), `leasehold_leader{key="examples/metrics"} 1`)
	require.Contains(t, out.String(), `leasehold_transitions_total{key="examples/metrics"} 1`)
}

func TestRunOnAPortThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	require.ErrorContains(t, run(t.Context(), func() {}, taken.Addr().String(), nil), "address already in use")
}
