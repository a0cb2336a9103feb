//go:build unix

package main

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/exampletest"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-writer") { // one that main has started
		main()
		return
	}
	exampletest.Main(main, m)
}

func TestUsage(t *testing.T) { exampletest.Usage(t, "fencedwriter", run, "-s3 foo -bucket b") }

func TestRun(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), nil, &out), "%s", &out)
	t.Logf("%s", &out)
	require.Contains(t, out.String(), `in the object: "written by alice": WRONG`)
	require.Contains(t, out.String(), `in the object: "written by bob": right`)
	require.Contains(t, out.String(), "token 1: alice's write is refused, because a leader with token 2 has written\n")
}

func TestOnServers(t *testing.T) { exampletest.OnServers(t, 2, run) } // the second time, tokens go on
