//go:build unix

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/exampletest"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/testprocess"
)

func TestMain(m *testing.M) { exampletest.Main(main, m) }

func TestUsage(t *testing.T) { exampletest.Usage(t, "service", run) }

// instance is a running process of the service.
type instance struct {
	*testprocess.Process
	url string
}

func start(t *testing.T, server string) *instance {
	p := exampletest.Start(t, "-s3", server, "-bucket", fakes3.Bucket)
	return &instance{p, regexp.MustCompile(`replica=(\S+)`).FindStringSubmatch(p.Says(t, "msg=listening"))[1]}
}

func get(t *testing.T, url string) string {
	res, err := http.Get(url)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, "%s", body)
	return string(body)
}

// On SIGTERM the leader releases the lock and exits with status 0, and the other instance leads.
func TestHandover(t *testing.T) {
	server := httptest.NewServer(&fakes3.Server{})
	defer server.Close()
	first := start(t, server.URL)
	first.Says(t, `msg="background work"`)
	second := start(t, server.URL)
	second.Says(t, `msg="new leader" replica=`+second.url+` url=`+first.url)

	require.Equal(t, "ok\n", get(t, first.url+"/healthz"))
	require.Equal(t, "ok\n", get(t, second.url+"/healthz"), "not to lead is healthy")
	for _, either := range []*instance{first, second} {
		require.Equal(t, "hello from "+first.url+", with token 1\n", get(t, either.url))
	}
	require.Contains(t, get(t, first.url+"/.leasehold/leader"), `"leading":true`)

	require.NoError(t, first.Signal(syscall.SIGTERM))
	first.Says(t, `msg="lock (released|handed over)"`)
	first.Says(t, "msg=stopped")
	first.Ends(t)
	second.Says(t, "token=2")
	second.Says(t, `msg="background work"`)
	require.Equal(t, "hello from "+second.url+", with token 2\n", get(t, second.url))
	require.NoError(t, second.Signal(syscall.SIGTERM))
	second.Says(t, "msg=stopped")
	second.Ends(t)
}

func TestRollingRestart(t *testing.T) {
	out, err := exampletest.Output(t)
	require.NoError(t, err, "%s", out)
	for _, token := range []string{"1", "2", "3"} {
		require.Contains(t, out, `msg=answered with="200, by the leader with token `+token+`" requests=`)
	}
	require.NotRegexp(t, `msg=answered with="([^25]|200, by the leader with "|50[0-2])`, out)
	t.Log(regexp.MustCompile(`(?m)msg=answered .*`).FindAllString(out, -1))
}
