package wire

import (
	"crypto/rand"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// zeros is the random source of two copies of a machine that have not drawn anything of their own
// yet.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Two copies of a machine may draw the same random bytes, but hardly in the same nanosecond.
func TestNoncesOfEqualRandomBytesDiffer(t *testing.T) {
	defer func(r any) { rand.Reader = r.(interface{ Read([]byte) (int, error) }) }(rand.Reader)
	p := NewProcess()
	rand.Reader = zeros{}
	synctest.Test(t, func(t *testing.T) {
		seen := make(map[string]bool)
		for range 1000 {
			nonce := p.NewNonce()
			require.True(t, p.Wrote(Record{Nonce: nonce}))
			require.False(t, seen[nonce])
			seen[nonce] = true
			time.Sleep(time.Nanosecond)
		}
	})
}
