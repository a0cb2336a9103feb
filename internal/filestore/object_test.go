package filestore

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestObjectsAreReadAsTheyWereWritten(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, body := range [][]byte{nil, []byte("\n"), []byte("{}\n"), every} {
		h := header{Key: "locks/<é>\u2028", ETag: `"x"`, stamp: stamp{Clock: "c", Written: 5}}
		got, gotBody, err := decode(encode(h, body))
		require.NoError(t, err)
		require.Equal(t, h, got)
		require.Equal(t, string(body), string(gotBody))
	}
}

// A file that was cut off, or in which a byte has changed, is never taken for an object.
func TestTornFilesAreRefused(t *testing.T) {
	data := encode(header{
		Key:   "locks/a",
		ETag:  `"x"`,
		stamp: stamp{Clock: "c", Written: 5},
	}, []byte(`{"expires_at":0,"token":7}`))
	for i := range data {
		_, _, err := decode(data[:i])
		require.Error(t, err, "cut off after %d bytes", i)
		for _, bit := range []byte{1, 0x20, 0x80} {
			changed := bytes.Clone(data)
			changed[i] ^= bit
			_, _, err := decode(changed)
			require.Error(t, err, "byte %d", i)
		}
		if i > len(magic) { // zeros instead of what never reached the disk
			_, _, err := decode(append(slices.Clone(data[:i]), make([]byte, len(data)-i)...))
			require.Error(t, err, "zeros after %d bytes", i)
		}
	}
	_, _, err := decode(append(slices.Clone(data), 'x'))
	require.Error(t, err)
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(header{Key: "k", ETag: "e"}, []byte("body")))
	f.Add([]byte(magic + "00000000\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, body, err := decode(data)
		if err != nil {
			return
		}
		again, sameBody, err := decode(encode(h, body))
		require.NoError(t, err)
		require.Equal(t, h, again)
		require.Equal(t, string(body), string(sameBody))
	})
}

func TestAgeNeedsTheSameClock(t *testing.T) {
	s := now()
	require.Zero(t, stamp{}.age())
	require.Zero(t, stamp{Clock: s.Clock + "x", Written: s.Written - time.Hour}.age())
	require.Zero(t, stamp{Clock: s.Clock, Written: s.Written + time.Hour}.age())
	for _, written := range []time.Duration{math.MinInt64, math.MinInt64 / 2, math.MaxInt64} {
		require.Zero(t, stamp{Clock: s.Clock, Written: written}.age())
	}
	if TellsAge() {
		s.Written -= time.Hour
		require.InDelta(t, time.Hour, s.age(), float64(time.Minute))
	}
}
