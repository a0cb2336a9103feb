//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/examples/internal/exampletest"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

func TestMain(m *testing.M) { exampletest.Main(main, m.Run) }

func TestHelp(t *testing.T) { exampletest.Help(t, "service") }

func TestDeadEndpoint(t *testing.T) { exampletest.DeadEndpoint(t, "service") }

// instance is a running process of the service.
type instance struct {
	*exec.Cmd
	url   string
	lines *bufio.Scanner
}

func start(t *testing.T, server string) *instance {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel) // ends the process if the test has not
	cmd := exampletest.Command(ctx, "-s3", server, "-bucket", fakes3.Bucket)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	i := &instance{Cmd: cmd, lines: bufio.NewScanner(out)}
	i.url = regexp.MustCompile(`replica=(\S+)`).FindStringSubmatch(i.waitFor(t, "msg=listening"))[1]
	return i
}

// waitFor returns the next line of the log that contains one of these texts.
func (i *instance) waitFor(t *testing.T, texts ...string) string {
	for i.lines.Scan() {
		for _, text := range texts {
			if strings.Contains(i.lines.Text(), text) {
				return i.lines.Text()
			}
		}
	}
	t.Fatalf("the service has ended without %q", texts)
	return ""
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
	first.waitFor(t, `msg="background work"`)
	second := start(t, server.URL)
	second.waitFor(t, `msg="new leader" replica=`+second.url+` url=`+first.url)

	require.Equal(t, "ok\n", get(t, first.url+"/healthz"))
	require.Equal(t, "ok\n", get(t, second.url+"/healthz"), "not to lead is healthy")
	for _, either := range []*instance{first, second} {
		require.Equal(t, "hello from "+first.url+", with token 1\n", get(t, either.url))
	}
	require.Contains(t, get(t, first.url+"/.leasehold/leader"), `"leading":true`)

	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	first.waitFor(t, `msg="lock released"`, `msg="lock handed over"`)
	first.waitFor(t, "msg=stopped")
	require.NoError(t, first.Wait())
	second.waitFor(t, "token=2")
	second.waitFor(t, `msg="background work"`)
	require.Equal(t, "hello from "+second.url+", with token 2\n", get(t, second.url))
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	second.waitFor(t, "msg=stopped")
	require.NoError(t, second.Wait())
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
