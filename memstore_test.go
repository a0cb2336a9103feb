package leasehold_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/storetest"
)

func TestMemStoreConforms(t *testing.T) {
	for name, byContent := range map[string]bool{"ETags never repeat": false, "ETags by content": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // for one check waits in real time
			storetest.Run(t, func(*testing.T) leasehold.Store {
				s := leasehold.NewMemStore()
				s.ContentETags = byContent
				return s
			})
		})
	}
}

func TestMemStoresZeroValueIsReady(t *testing.T) {
	var s leasehold.MemStore
	require.ErrorIs(t, s.DeleteIfMatch(t.Context(), key, "x"), leasehold.ErrNotExist)
	_, err := s.PutIfNoneMatch(t.Context(), key, nil)
	require.NoError(t, err)
}

func TestMemStoreTellsTheExactAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasehold.NewMemStore()
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

func TestMemStoresETagsRepeatOnlyIfTheyAreMadeOfContent(t *testing.T) {
	for _, byContent := range []bool{false, true} {
		s := &leasehold.MemStore{ContentETags: byContent}
		first, err := s.PutIfNoneMatch(t.Context(), key, []byte("same"))
		require.NoError(t, err)
		second, err := s.PutIfMatch(t.Context(), key, []byte("same"), first)
		require.NoError(t, err)
		require.Equal(t, byContent, first == second)
	}
}
