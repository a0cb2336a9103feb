package ctxmutex_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/ctxmutex"
)

func TestLock(t *testing.T) {
	m := ctxmutex.New()
	require.NoError(t, m.Lock(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() { got <- m.Lock(ctx) }()
	cancel()
	require.ErrorIs(t, <-got, context.Canceled)
	m.Unlock()
	for range 100 { // free, but ctx has ended: never locked
		require.ErrorIs(t, m.Lock(ctx), context.Canceled)
	}
	require.NoError(t, m.Lock(t.Context()))
	go func() { got <- m.Lock(t.Context()) }()
	m.Unlock()
	require.NoError(t, <-got)
}
