package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/faultproxy"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// spelling is a server that changes the If-Match of each write before it compares it.
func spelling(s *fakes3.Server, change func(ifMatch string) (string, int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if match := r.Header.Get("If-Match"); match != "" && r.Method != http.MethodGet {
			match, status := change(match)
			if status != 0 {
				w.WriteHeader(status)
				return
			}
			if r.Header.Del("If-Match"); match != "" {
				r.Header.Set("If-Match", match)
			}
		}
		s.ServeHTTP(w, r)
	})
}

const neverMatches = `"0"`

// learning is what it costs to find out that a server wants ETags without quotes: a read, and five requests on an object of its own.
const learning = 6

// etagsOf is what CheckStore tells of a server.
func etagsOf(t *testing.T, server http.Handler) leasehold.ETagForm {
	t.Helper()
	report, err := leasehold.CheckStore(t.Context(), newWire(server).store, "locks/check")
	require.NoError(t, err)
	require.True(t, report.ConditionalPuts)
	return report.ETags
}

func TestAServerThatWantsETagsWithoutQuotes(t *testing.T) {
	for name, server := range map[string]*fakes3.Server{
		"hashes":       {BareIfMatch: true},
		"never repeat": {BareIfMatch: true, RandomETags: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(server)
			first, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
			require.NoError(t, err)
			second, err := w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
			require.NoError(t, err)
			require.Equal(t, []string{"locks/.leasehold-etag", key}, server.Keys())
			require.Equal(t, 1+2+learning, w.Count())

			_, err = w.store.PutIfMatch(t.Context(), key, []byte("3"), first)
			requireOnly(t, leasehold.ErrPreconditionFailed, err)
			third, err := w.store.PutIfMatch(t.Context(), key, []byte("3"), second)
			require.NoError(t, err)
			require.Equal(t, 1+2+learning+2, w.Count(), "it is learnt once")
			requireOnly(t, leasehold.ErrPreconditionFailed, w.store.DeleteIfMatch(t.Context(), key, second))
			require.NoError(t, w.store.DeleteIfMatch(t.Context(), key, third))
			require.Equal(t, leasehold.ETagsWithoutQuotes, etagsOf(t, server))
		})
	}
}

// The usual servers cost nothing more, but for a read if the very first update is refused.
func TestTheUsualETagsCostNothing(t *testing.T) {
	server := spelling(&fakes3.Server{}, func(ifMatch string) (string, int) {
		if !strings.HasPrefix(ifMatch, `"`) {
			return "", http.StatusBadRequest
		}
		return ifMatch, 0
	})
	w := newWire(server)
	first, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
	require.NoError(t, err)
	second, err := w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
	require.NoError(t, err)
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("3"), first)
	requireOnly(t, leasehold.ErrPreconditionFailed, err)
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("3"), second)
	require.NoError(t, err)
	require.Equal(t, 4, w.Count())
	require.Equal(t, leasehold.ETagsAsReceived, etagsOf(t, server))

	w = newWire(server)
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("4"), first)
	requireOnly(t, leasehold.ErrPreconditionFailed, err)
	require.Equal(t, 2, w.Count())
}

// No write of a lock goes out in a form whose condition the server might ignore, and no conflict is taken for a matter of form.
func TestAnETagsFormIsNeverGuessed(t *testing.T) {
	never := func(string) (string, int) { return neverMatches, 0 }
	for name, c := range map[string]struct {
		change func(ifMatch string) (string, int)
		want   error
		says   string
	}{
		"ignored without quotes": {func(ifMatch string) (string, int) {
			if strings.HasPrefix(ifMatch, `"`) {
				return neverMatches, 0
			}
			return "", 0
		}, nil, "takes a wrong ETag"},
		"refused three times for nothing, and ignored without quotes": {func() func(string) (string, int) {
			falsely := 3
			return func(ifMatch string) (string, int) {
				if falsely--; falsely >= 0 {
					return neverMatches, 0
				}
				if strings.HasPrefix(ifMatch, `"`) {
					return ifMatch, 0
				}
				return "", 0
			}
		}(), nil, "takes a wrong ETag"},
		"refused in each form": {never, leasehold.ErrPreconditionFailed, "412"},
		"not understood without quotes": {func(ifMatch string) (string, int) {
			if strings.HasPrefix(ifMatch, `"`) {
				return neverMatches, 0
			}
			return "", http.StatusBadRequest
		}, nil, "finding out"},
	} {
		t.Run(name, func(t *testing.T) {
			server, sent := &fakes3.Server{}, []string(nil)
			dialect := spelling(server, c.change)
			w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if match := r.Header.Get("If-Match"); r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, key) && match != "" {
					sent = append(sent, match)
				}
				dialect.ServeHTTP(w, r)
			}))
			first, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
			require.NoError(t, err)
			_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
			requireOnly(t, c.want, err)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, "1", string(server.Body(key)))
			require.Equal(t, []string{first}, sent)
		})
	}
	t.Run("a read that shows an earlier version", func(t *testing.T) {
		server, old := &fakes3.Server{}, ""
		strict := spelling(server, func(ifMatch string) (string, int) { // but for bare ETags, which it ignores
			if strings.HasPrefix(ifMatch, `"`) {
				return ifMatch, 0
			}
			return "", 0
		})
		w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.Header().Set("ETag", old)
				_, _ = w.Write([]byte("1"))
				return
			}
			strict.ServeHTTP(w, r)
		}))
		old, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
		require.NoError(t, err)
		server.Put(key, []byte("another's"))
		_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), old)
		requireOnly(t, leasehold.ErrPreconditionFailed, err)
		require.Equal(t, "another's", string(server.Body(key)))
	})
}

// A read that fails leaves it open why the write was refused.
func TestErrorsWhileAnETagsFormIsLearnt(t *testing.T) {
	w := newWire(&fakes3.Server{BareIfMatch: true})
	first, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
	require.NoError(t, err)
	w.Fail(http.MethodGet, faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusServiceUnavailable})
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
	requireOnly(t, nil, err)
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
	require.NoError(t, err, "the next write asks again")
}

// What an answer says of the object that was made for the question says nothing about the lock's.
func TestErrorsOnTheObjectThatIsAsked(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable, http.StatusForbidden} {
		for n := range 5 { // the requests on that object, in order
			dialect, asked := &fakes3.Server{BareIfMatch: true}, 0
			w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, ".leasehold-etag") {
					if asked++; asked == n+1 {
						w.WriteHeader(status)
						_, _ = w.Write([]byte(`<Error><Code>` + map[bool]string{true: "NoSuchKey", false: "Other"}[status == 404] + `</Code></Error>`))
						return
					}
				}
				dialect.ServeHTTP(w, r)
			}))
			first, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
			require.NoError(t, err)
			_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
			requireOnly(t, nil, err)
			require.NotErrorIs(t, err, storeapi.ErrConflict)
			_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
			require.NoError(t, err, "the next write asks again")
		}
	}
}

func TestManyLearnAnETagsFormOnce(t *testing.T) {
	const n = 20
	server := &fakes3.Server{BareIfMatch: true}
	var refused sync.WaitGroup // each waits for the first refusal of all
	refused.Add(n)
	w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.HasPrefix(r.Header.Get("If-Match"), `"`) && !strings.Contains(r.URL.Path, ".leasehold-etag") {
			refused.Done()
			refused.Wait()
		}
		server.ServeHTTP(w, r)
	}))
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			key := fmt.Sprintf("locks/%d", i)
			etag, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
			if assert.NoError(t, err) {
				_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), etag)
				assert.NoError(t, err)
			}
		})
	}
	group.Wait()
	require.Equal(t, n*4+learning-1, w.Count())
}

// Attempts that are too short for all the questions come to an answer together.
func TestAnETagsFormIsLearntInSeveralAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{BareIfMatch: true}
		w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(60 * time.Millisecond)
			if r.Context().Err() == nil {
				server.ServeHTTP(w, r)
			}
		}))
		etag, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
		require.NoError(t, err)
		attempts := 0
		for err = errors.New("not tried yet"); err != nil; attempts++ {
			require.Less(t, attempts, 6)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			_, err = w.store.PutIfMatch(ctx, key, []byte("2"), etag)
			if err != nil {
				requireOnly(t, nil, err)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			cancel()
		}
		require.Greater(t, attempts, 1)
		require.Equal(t, []string{"locks/.leasehold-etag", key}, server.Keys())
	})
}

// Without quotes they would mean something else.
func TestETagsThatNeedTheirQuotes(t *testing.T) {
	server := &fakes3.Server{BareIfMatch: true}
	w := newWire(server)
	etag, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
	require.NoError(t, err)
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), etag)
	require.NoError(t, err)
	for _, etag := range []string{`"*"`, `""`} {
		_, err := w.store.PutIfMatch(t.Context(), key, []byte("3"), etag)
		requireOnly(t, leasehold.ErrPreconditionFailed, err)
	}
	require.Equal(t, "2", string(server.Body(key)))
}
