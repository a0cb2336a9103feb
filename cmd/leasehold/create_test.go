package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// A job that the others may do must not end with 0 on all machines while the store lets none of
// them have the lock.
func TestALockThatCannotBeCreatedIsNotHeld(t *testing.T) {
	t.Parallel()
	for code, status := range map[string]int{
		"PreconditionFailed":         412,
		"ConditionalRequestConflict": 409,
		"AnotherConflict":            409,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Amz-Request-Id", "1")
				if r.Method == http.MethodPut {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>as told</Message></Error>")
					return
				}
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
			}))
			t.Cleanup(server.Close)
			b := bucket{t: t, server: testserver.S3{Endpoint: server.URL, AccessKey: "a", SecretKey: "b"}, name: "jobs"}
			for _, wait := range []string{"--no-wait", "--wait=1s"} {
				r := b.run("run", wait, "--held-code=0", "--ttl=3s", b.url("report"), "--", "echo", "ran")
				require.Equal(t, 69, r.code, "%s: %s", wait, r.stderr)
				require.Empty(t, r.out)
			}
		})
	}
}
