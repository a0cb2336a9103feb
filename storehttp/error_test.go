package storehttp_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/storehttp"
)

// A server that does not run is advised on once, in an error that has no other advice. A request
// that its caller has ended says nothing about the server.
func TestAServerThatCannotBeReached(t *testing.T) {
	failed := func(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
	refused := errors.New("refused")
	const advised = "dial tcp: refused (is the server running? check host and port of the endpoint, and the network)"
	for want, err := range map[string]*storehttp.Error{
		advised: {Cause: failed("dial", refused)},
		"reading: " + advised: {
			Doing: "reading", Cause: &storehttp.Error{Cause: failed("dial", refused)},
		},
		"dial tcp: refused (use a key)":       {Cause: failed("dial", refused), Hint: "use a key"},
		"read tcp: refused":                   {Cause: failed("read", refused)},
		"dial tcp: context canceled":          {Cause: failed("dial", context.Canceled)},
		"dial tcp: context deadline exceeded": {Cause: failed("dial", context.DeadlineExceeded)},
	} {
		require.EqualError(t, err, want)
	}
}
