package fencehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fencehttp"
)

func byPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

func put(ctx context.Context, h http.Handler, path string, tokens ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPut, path, nil)
	r.Header[fencehttp.Header] = tokens
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func Example() {
	marks := fencehttp.NewStoreMarks(leasehold.NewMemStore(), "marks/") // a store that lasts, in earnest
	handler := fencehttp.Middleware(marks, byPath)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "written with token ", r.Header.Get(fencehttp.Header))
	}))
	for _, token := range []uint64{1, 2, 1} {
		r := httptest.NewRequest(http.MethodPut, "/reports/today", nil)
		r.Header.Set(fencehttp.Header, fencehttp.Format(token)) // of lease.Token()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 200 written with token 1
	// 200 written with token 2
	// 412 leasehold: fenced off by a newer token: "reports/today": token 1, seen 2
}

// broken are marks that cannot be read.
type broken struct{}

func (broken) Raise(context.Context, string, uint64) (uint64, error) {
	return 0, errors.New("disk full")
}

func TestStatus(t *testing.T) {
	served := 0
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
	guarded := fencehttp.Middleware(&fencehttp.MemMarks{}, byPath)(handler)
	for _, tc := range []struct {
		tokens []string
		path   string
		status int
	}{
		{[]string{"7"}, "/a", 200},
		{[]string{"7"}, "/a", 200},
		{[]string{"6"}, "/a", 412},
		{[]string{"6"}, "/b", 200},
		{[]string{"18446744073709551615"}, "/a", 200},
		{[]string{"7"}, "/a", 412},
		{nil, "/a", 428},
		{[]string{""}, "/a", 428},
		{[]string{"0"}, "/a", 400},
		{[]string{"-1"}, "/a", 400},
		{[]string{"1e3"}, "/a", 400},
		{[]string{"18446744073709551616"}, "/a", 400},
		{[]string{"7", "8"}, "/c", 400},
	} {
		before := served
		w := put(t.Context(), guarded, tc.path, tc.tokens...)
		require.Equal(t, tc.status, w.Code, "%v: %s", tc, w.Body)
		require.Equal(t, tc.status == 200, served > before)
	}
	require.Equal(t, "18446744073709551615", put(t.Context(), guarded, "/a", "7").Header().Get(fencehttp.Header))
	w := put(t.Context(), fencehttp.Middleware(broken{}, byPath)(handler), "/a", "1")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.NotContains(t, w.Body.String(), "disk", "the reason is nobody's business")
}

func TestANewLeaderWaitsForRequestsOfTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var log []string
		guarded := fencehttp.Middleware(&fencehttp.MemMarks{}, byPath)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, fmt.Sprint(time.Since(began), " ", what, " ", r.Header.Get(fencehttp.Header)))
			}
			note("begins")
			time.Sleep(10 * time.Second)
			note("ends")
		}))
		var wg sync.WaitGroup
		codes := make([]int, 4)
		for i, token := range []string{"1", "2", "1", "2"} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				codes[i] = put(t.Context(), guarded, "/a", token).Code
			})
		}
		impatient, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		wg.Go(func() {
			time.Sleep(2 * time.Second)
			put(impatient, guarded, "/a", "3")
		})
		wg.Wait()
		require.Equal(t, []int{200, 412, 412, 412}, codes, "the mark was raised to 3 by who did not wait")
		require.Equal(t, []string{"0s begins 1", "10s ends 1"}, log)
		log, began = nil, time.Now()
		for i, token := range []string{"3", "4"} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				put(t.Context(), guarded, "/a", token)
			})
		}
		wg.Wait()
		require.Equal(t, []string{"0s begins 3", "10s ends 3", "10s begins 4", "20s ends 4"}, log)
	})
}

// Whatever is let through is in the order of tokens, and marks on a store survive the process.
func TestMarks(t *testing.T) {
	mem := leasehold.NewMemStore()
	for name, marks := range map[string]fencehttp.Marks{"mem": &fencehttp.MemMarks{}, "store": fencehttp.NewStoreMarks(mem, "marks/")} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			last := ""
			guarded := fencehttp.Middleware(marks, byPath)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if token := fmt.Sprintf("%20s", r.Header.Get(fencehttp.Header)); token < last {
					t.Errorf("%s after %s", token, last)
				} else {
					last = token
				}
			}))
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() { put(t.Context(), guarded, "/a", fencehttp.Format(uint64(1+i%16))) })
			}
			wg.Wait()
			highest, err := marks.Raise(t.Context(), "a", 1)
			require.NoError(t, err)
			require.Equal(t, uint64(16), highest)
		})
	}
	restarted := fencehttp.NewStoreMarks(mem, "marks/")
	highest, err := restarted.Raise(t.Context(), "a", 3)
	require.NoError(t, err)
	require.Equal(t, uint64(16), highest)

	_, err = mem.PutIfNoneMatch(t.Context(), "marks/b", []byte("{}"))
	require.NoError(t, err)
	_, err = restarted.Raise(t.Context(), "b", 3)
	require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = restarted.Raise(ctx, "c", 3)
	require.ErrorIs(t, err, context.Canceled)
}
