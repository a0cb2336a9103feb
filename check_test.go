package leasehold_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/faultproxy"
)

// checkCost is what CheckStore costs on a strict store, as the comment on WithStoreCheck says.
const checkCost = 43

func TestCheckStoreOnSoundStores(t *testing.T) {
	for name, c := range map[string]struct {
		server  *fakes3.Server
		deletes bool
		cost    int
	}{
		"strict":               {&fakes3.Server{}, true, checkCost},
		"ETags never repeat":   {&fakes3.Server{RandomETags: true}, true, checkCost},
		"DELETE unconditional": {&fakes3.Server{IgnoreDeleteCondition: true}, false, checkCost - 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(c.server)
			report, err := leasehold.CheckStore(t.Context(), w.store, "locks/check")
			require.NoError(t, err)
			require.True(t, report.ConditionalPuts)
			require.Equal(t, c.deletes, report.ConditionalDeletes)
			require.Equal(t, w.Count(), report.Requests)
			require.Equal(t, c.cost, report.Requests)
			require.Empty(t, report.Left)
			require.Empty(t, c.server.Keys(), "nothing stays behind")
		})
	}
	report, err := leasehold.CheckStore(t.Context(), leasehold.NewMemStore(), "check")
	require.NoError(t, err)
	require.Equal(t, leasehold.Report{ConditionalPuts: true, ConditionalDeletes: true, Requests: checkCost}, report)
}

func TestCheckStoreLeavesOtherObjectsAlone(t *testing.T) {
	server := &fakes3.Server{}
	server.Put("locks/check", []byte("mine"))
	_, err := leasehold.CheckStore(t.Context(), newWire(server).store, "locks/check")
	require.NoError(t, err)
	require.Equal(t, []string{"locks/check"}, server.Keys())
	require.Equal(t, "mine", string(server.Body("locks/check")))
}

func TestCheckStoreFindsDroppedConditions(t *testing.T) {
	server := &fakes3.Server{IgnoreConditions: true}
	report, err := leasehold.CheckStore(t.Context(), newWire(server).store, "locks/check")
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
	for _, says := range []string{
		"PutIfMatch of a missing key succeeded", "a second PutIfNoneMatch succeeded", "PutIfMatch with a stale ETag succeeded", "both succeeded",
	} {
		require.ErrorContains(t, err, says)
	}
	require.False(t, report.ConditionalPuts)
	require.False(t, report.ConditionalDeletes)
	require.Empty(t, server.Keys(), "nothing stays behind")
}

// checkThenPut refuses as it should, as long as nobody else writes at the same time.
type checkThenPut struct{ *leasehold.MemStore }

func (s checkThenPut) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if _, err := s.Get(ctx, key); err == nil {
		return "", leasehold.ErrPreconditionFailed
	}
	return s.put(ctx, key, body)
}

func (s checkThenPut) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	o, err := s.Get(ctx, key)
	switch {
	case err != nil:
		return "", err
	case o.ETag != etag:
		return "", leasehold.ErrPreconditionFailed
	}
	return s.put(ctx, key, body)
}

func (s checkThenPut) put(ctx context.Context, key string, body []byte) (string, error) {
	time.Sleep(time.Millisecond)
	for {
		o, err := s.Get(ctx, key)
		if errors.Is(err, leasehold.ErrNotExist) {
			o.ETag, err = s.MemStore.PutIfNoneMatch(ctx, key, body)
		} else if err == nil {
			o.ETag, err = s.MemStore.PutIfMatch(ctx, key, body, o.ETag)
		}
		if !errors.Is(err, leasehold.ErrPreconditionFailed) {
			return o.ETag, err
		}
	}
}

func TestCheckStoreFindsRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report, err := leasehold.CheckStore(t.Context(), checkThenPut{leasehold.NewMemStore()}, "check")
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
		require.ErrorContains(t, err, "of many creates at once, exactly one wins: ")
		require.ErrorContains(t, err, "of many updates of one version at once, exactly one wins: ")
		require.NotContains(t, err.Error(), "a create over an existing object")
		require.False(t, report.ConditionalPuts)
		require.Empty(t, report.Left)
	})
}

// deny answers requests with that method as S3 answers credentials that may not.
func deny(method string) func(*http.Request) faultproxy.Fault {
	return func(r *http.Request) faultproxy.Fault {
		if r.Method != method {
			return faultproxy.Fault{}
		}
		return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusForbidden}
	}
}

func TestCheckStoreWithCredentialsThatMayOnlyRead(t *testing.T) {
	server := &fakes3.Server{}
	w := newWire(server)
	w.Decide = deny("PUT")
	report, err := leasehold.CheckStore(t.Context(), w.store, "check")
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.NotErrorIs(t, err, leasehold.ErrUnsafeStore, "the question is open")
	require.ErrorContains(t, err, "s3:PutObject")
	require.False(t, report.ConditionalPuts)
	require.LessOrEqual(t, report.Requests, 4, "it does not go on")
	require.Empty(t, report.Left)
	require.Empty(t, server.Keys())
}

func TestCheckStoreWithCredentialsThatMayNotDelete(t *testing.T) {
	server := &fakes3.Server{}
	w := newWire(server)
	w.Decide = deny("DELETE")
	report, err := leasehold.CheckStore(t.Context(), w.store, "check")
	require.NoError(t, err, "locks never delete")
	require.True(t, report.ConditionalPuts)
	require.False(t, report.ConditionalDeletes)
	require.ElementsMatch(t, server.Keys(), report.Left, "it says what stays behind")
	require.NotEmpty(t, report.Left)
}

func TestCheckStoreOnAServerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(&fakes3.Server{})
		w.failAlways(faultproxy.Fault{Kind: faultproxy.Answer, Status: 503})
		report, err := leasehold.CheckStore(t.Context(), w.store, "check")
		require.Error(t, err)
		require.NotErrorIs(t, err, leasehold.ErrUnsafeStore)
		require.False(t, report.ConditionalPuts)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.failAlways(faultproxy.Fault{After: time.Hour})
		began := time.Now()
		_, err = leasehold.CheckStore(ctx, w.store, "check")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestCheckStoreRefusesABadPrefix(t *testing.T) {
	for _, prefix := range []string{"/", "a//", "a/../", "\x00", string(bytes.Repeat([]byte("x"), 1024))} {
		w := newWire(&fakes3.Server{})
		_, err := leasehold.CheckStore(t.Context(), w.store, prefix)
		require.Error(t, err, "%q", prefix)
		require.Zero(t, w.Count())
	}
}
