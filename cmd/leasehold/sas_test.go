package main_test

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever knows a SAS has its rights, and what the command says ends in logs. The SDK puts the URL
// of a request that got no answer into its error, with the SAS.
func TestNoMessageHasTheSignatureOfASAS(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"busy":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	} {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		at := "?account=account&endpoint=" + server.URL
		url := "azblob://container/a" + at
		for _, args := range [][]string{
			{"status", url}, {"status", "-o", "json", url}, {"list", "azblob://container/" + at},
			{"run", "--wait", "100ms", url, "--", "true"}, {"acquire", "-v", "-o", "json", "-n", url},
			{"break", "--token", "1", url}, {"doctor", url},
		} {
			t.Run(name+" "+args[0], func(t *testing.T) {
				t.Parallel()
				cmd := exec.CommandContext(t.Context(), program, args...)
				cmd.Env = append(plainEnviron(), "AZURE_STORAGE_SAS_TOKEN=sv=2026-02-06&sig=hunter2%2Fx%3D")
				r := finish(t, cmd)
				require.NotZero(t, r.code)
				require.NotEmpty(t, r.stderr+r.out)
				require.NotContains(t, r.stderr+r.out, "hunter2")
			})
		}
	}
}
