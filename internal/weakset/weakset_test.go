package weakset_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/weakset"
)

type value struct{ name string }

func TestValuesAreListedWhileTheyLive(t *testing.T) {
	var s weakset.Set[string, value]
	a, b := &value{"a"}, &value{"b"}
	s.Add("k", a)
	s.Add("k", b)
	for range 100 {
		s.Add("k", &value{"gone"})
		s.Add("other", &value{"gone"})
	}
	require.Empty(t, s.Of("none"))
	require.Eventually(t, func() bool {
		runtime.GC()
		return s.Len() == 1 && len(s.Of("k")) == 2
	}, 10*time.Second, 10*time.Millisecond)
	require.ElementsMatch(t, []*value{a, b}, s.Of("k"))
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
}
