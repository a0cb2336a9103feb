package probe

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// A check that others disturb begins again, but not for ever, and not after ctx has ended. Its
// error does not speak of an object of the user.
func TestUndisturbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, c := range []struct {
			refused, runs int
			says          error
		}{{0, 1, nil}, {Tries - 1, Tries, nil}, {Tries, Tries, ErrDisturbed}, {1, 1, context.Canceled}} {
			if c.says == context.Canceled {
				cancel()
			}
			runs := 0
			err := Undisturbed(ctx, func() error {
				if runs++; runs <= c.refused {
					return Disturbed(storeapi.ErrConflict)
				}
				return nil
			})
			require.ErrorIs(t, err, c.says)
			require.NotErrorIs(t, err, storeapi.ErrConflict)
			require.Equal(t, c.runs, runs)
		}
	})
}
