package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/examples/internal/exampletest"
	"github.com/leasehold-go/leasehold/internal/testserver"
)

func TestMain(m *testing.M) { exampletest.Main(main, func() int { return testserver.Main(m) }) }

func TestHelp(t *testing.T) { exampletest.Help(t, "shards") }

func TestDeadEndpoint(t *testing.T) { exampletest.DeadEndpoint(t, "shards") }

func TestInMemory(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, run(t.Context(), []string{"-ttl", "15s"}, &out), "%s", &out)
	})
	t.Logf("\n%s", &out)
	require.Regexp(t, `bob is KILLED.*\n.*balanced after \d\.\d\d TTL: 12 shards have got another owner\n`, out.String())
	require.Regexp(t, `fay JOINS.*\n.*balanced after \d\.\d\d TTL: 12 shards have got another owner\n`, out.String())
	require.Regexp(t, `cyd LEAVES.*\n.*balanced after 0\.\d\d TTL: 12 shards have got another owner\n`, out.String())
	require.Contains(t, out.String(), "Two owners of one shard, or a token that did not rise: 0 times.")
}

func TestPicture(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		d := newDemo(&out, true, nil, "p", 3, 1)
		d.workers = append(d.workers, &worker{name: "ada", state: "left"})
		d.say("one")
		d.say("two")
	})
	first, then := `      ada ···   0 left\n\n +0\.000s  one\n`, ` +0\.000s  two\n`
	require.Regexp(t, `^`+first+`\x1b\[3A\x1b\[J`+first+then+`$`, out.String())
}

func TestOnServers(t *testing.T) { exampletest.OnServers(t, 1, run, "-ttl", "5s") }

func TestBadInput(t *testing.T) {
	for _, args := range [][]string{{"-shards", "-1"}, {"-ttl", "0s"}, {"-x"}} {
		require.Error(t, run(t.Context(), args, new(bytes.Buffer)), "%v", args)
	}
}
