package leasehold_test

import (
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/storetest"
)

func TestMemStoreConforms(t *testing.T) {
	for name, byContent := range map[string]bool{"ETags never repeat": false, "ETags by content": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // for one check waits in real time
			storetest.Run(t, func(*testing.T) leasehold.Store {
				return testopt.NewMemStore(byContent, true)
			})
		})
	}
}

// Under this setting, crypto/md5 and its like panic.
func TestMemStoreWithApprovedCryptographyOnly(t *testing.T) {
	const setting = "fips140=only"
	if os.Getenv("GODEBUG") != setting {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		again.Env = append(os.Environ(), "GODEBUG="+setting)
		out, err := again.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	for _, byContent := range []bool{false, true} {
		s := testopt.NewMemStore(byContent, false)
		lease, err := newLock(t, s).TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
}

func TestMemStoreTellsTheExactAgeIfItIsToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testopt.NewMemStore(false, true)
		etag, err := s.PutIfNoneMatch(t.Context(), key, nil)
		require.NoError(t, err)
		time.Sleep(1234 * time.Millisecond)
		o, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, 1234*time.Millisecond, o.Age)
		_, err = s.PutIfMatch(t.Context(), key, nil, etag)
		require.NoError(t, err)
		o, err = s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Zero(t, o.Age)
	})
}

func TestMemStoreTellsNoAgeByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasehold.NewMemStore()
		_, err := s.PutIfNoneMatch(t.Context(), key, nil)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		o, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Zero(t, o.Age)
	})
}

func TestMemStoreRefusesATTLThatNoSchedulerKeeps(t *testing.T) {
	_, err := leasehold.NewLock(leasehold.NewMemStore(), key, leasehold.WithTTL(15*time.Nanosecond))
	require.ErrorContains(t, err, "TTL 15ns is below 1ms")
	_, err = leasehold.NewLock(leasehold.NewMemStore(), key, leasehold.WithTTL(time.Millisecond))
	require.NoError(t, err)
}

func TestMemStoresErrorsSayWhatWasBeingDone(t *testing.T) {
	s := leasehold.NewMemStore()
	_, err := s.Get(t.Context(), key)
	require.EqualError(t, err, `reading "`+key+`": no such object`)
	etag, err := s.PutIfNoneMatch(t.Context(), key, nil)
	require.NoError(t, err)
	_, err = s.PutIfNoneMatch(t.Context(), key, nil)
	require.EqualError(t, err, `writing "`+key+`": precondition failed: it exists`)
	_, err = s.PutIfMatch(t.Context(), key, nil, etag+"x")
	require.EqualError(t, err, `writing "`+key+`": precondition failed: it has changed`)
	_, err = s.PutIfMatch(t.Context(), key, make([]byte, leasehold.MaxObjectSize+1), etag)
	requireOnly(t, leasehold.ErrPermanent, err)
	require.EqualError(t, err, `writing "`+key+`": 1048577 bytes exceed the limit of 1048576`)
}

func TestMemStoresETagsRepeatOnlyIfTheyAreMadeOfContent(t *testing.T) {
	for _, byContent := range []bool{false, true} {
		s := testopt.NewMemStore(byContent, false)
		first, err := s.PutIfNoneMatch(t.Context(), key, []byte("same"))
		require.NoError(t, err)
		second, err := s.PutIfMatch(t.Context(), key, []byte("same"), first)
		require.NoError(t, err)
		require.Equal(t, byContent, first == second)
	}
}
