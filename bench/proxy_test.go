package bench

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slowProxy listens on loopback and forwards connections to addr. It delays the bytes of each
// direction by half a round trip.
func slowProxy(t *testing.T, addr string, roundTrip time.Duration) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			go delayed(server, client, roundTrip/2)
			go delayed(client, server, roundTrip/2)
		}
	}()
	return listener.Addr().String()
}

// delayed copies bytes until from ends, and then ends that direction of to.
func delayed(to, from net.Conn, delay time.Duration) {
	type chunk struct {
		due   time.Time
		bytes []byte
	}
	chunks := make(chan chunk, 1024)
	go func() {
		defer close(chunks)
		for {
			bytes := make([]byte, 16<<10)
			n, err := from.Read(bytes)
			chunks <- chunk{time.Now().Add(delay), bytes[:n]}
			if err != nil {
				return
			}
		}
	}()
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		if _, err := to.Write(c.bytes); err != nil {
			_ = from.Close()
		}
	}
	_ = to.(*net.TCPConn).CloseWrite()
}

func TestSlowProxy(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	go func() {
		conn, err := server.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	const roundTrip = 20 * time.Millisecond
	conn, err := net.Dial("tcp", slowProxy(t, server.Addr().String(), roundTrip))
	require.NoError(t, err)
	began := time.Now()
	_, err = conn.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	echo, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "hello", string(echo))
	require.GreaterOrEqual(t, time.Since(began), roundTrip)
}
