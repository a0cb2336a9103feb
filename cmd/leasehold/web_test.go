package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Whoever waits leaves room for others, and whoever is one too many is told so at once.
func TestManyWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		h := atMost(2, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
		answers := make(chan int, 3)
		ask := func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if w.Code != http.StatusOK {
				require.Equal(t, "3", w.Header().Get("Retry-After"))
			}
			answers <- w.Code
		}
		go ask()
		go ask()
		synctest.Wait()
		ask()
		require.Equal(t, http.StatusServiceUnavailable, <-answers)
		close(over)
		require.Equal(t, http.StatusOK, <-answers)
		require.Equal(t, http.StatusOK, <-answers)
		ask()
		require.Equal(t, http.StatusOK, <-answers)
	})
}
