package testserver

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A port that was given to one test process is not given to another.
func TestPortsAreReserved(t *testing.T) {
	addr := FreeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	l, err := net.Listen("tcp", addr) // for the server itself
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = net.Listen("tcp", "127.0.0.2:"+port)
	require.Error(t, err)
	require.True(t, strings.HasPrefix(addr, "127.0.0.1:"))
}
