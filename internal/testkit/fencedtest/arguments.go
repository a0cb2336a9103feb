package fencedtest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
)

// NeedsMetadata checks that nothing is written through what hides the metadata of objects, because
// the token is there. open connects a store to a server, and stored are the versions of all objects
// by their keys.
func NeedsMetadata(t *testing.T, server http.Handler, hides map[string]func(server http.Handler) http.Handler,
	open func(server http.Handler, opts ...fenced.Option) *fenced.Store, stored func() map[string]string) {
	const key = "data/hidden"
	require.NoError(t, open(server).Put(t.Context(), 7, key, strings.NewReader("leader's")))
	before := stored()
	require.Len(t, before, 1, "the check leaves nothing behind")
	for where, hide := range hides {
		for _, opts := range [][]fenced.Option{nil, {fenced.WithAdoption()}} {
			s := open(hide(server), opts...)
			for name, err := range map[string]error{
				"Put":    s.Put(t.Context(), 3, key, strings.NewReader("late")),
				"Seal":   s.Seal(t.Context(), 3, key),
				"Delete": s.Delete(t.Context(), 3, key),
			} {
				require.ErrorIs(t, err, leasehold.ErrUnsafeStore, "%s, %s", where, name)
				require.ErrorContains(t, err, "drops the metadata")
				require.NotContains(t, err.Error(), "WithAdoption")
			}
			require.Equal(t, before, stored(), "nothing is changed or left behind")
		}
	}
}

// BadArguments checks that stores with arguments that cannot work are not opened. The errors say
// the names of the cases.
func BadArguments(t *testing.T, cases map[string]func() (*fenced.Store, error)) {
	for says, open := range cases {
		s, err := open()
		require.Nil(t, s)
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, says)
	}
}
