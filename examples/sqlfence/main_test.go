package main

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/fenced"
	"github.com/stretchr/testify/require"
)

// TestMain runs main instead of the tests in a process that program has started.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program runs this example as a process of its own, and returns what it prints.
func program(t *testing.T, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "RUN_MAIN=1", "AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestHelp(t *testing.T) {
	out, err := program(t, "-h")
	require.NoError(t, err, "%s", out) // exit status 0
	require.Regexp(t, `(?s)^Sqlfence shows .+AWS_ENDPOINT_URL .+AWS_ACCESS_KEY_ID .+AWS_SECRET_ACCESS_KEY `, out)
}

func TestDeadEndpoint(t *testing.T) {
	began := time.Now()
	out, err := program(t, "-s3", "http://127.0.0.1:9", "-bucket", "b")
	require.EqualError(t, err, "exit status 1")
	require.Regexp(t, `^sqlfence: cannot reach an S3 server at http://127\.0\.0\.1:9: [^\n]+ \(start the server, or correct -s3 or AWS_ENDPOINT_URL\)\n$`, out)
	require.Less(t, time.Since(began), 10*time.Second)
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), nil, &out))
	require.Equal(t, `alice leads with token 1
alice sets region = us with token 1: accepted
alice releases the lock
bob   leads with token 2
bob   sets region = eu with token 2: accepted
alice sets region = asia with token 1: refused, because the row has token 2
The row holds region = eu, written with token 2.
`, out.String())
}

func TestOutcome(t *testing.T) {
	require.Equal(t, "accepted", outcome(nil))
	require.Equal(t, "refused, because the row has token 2", outcome(errors.Join(&fenced.Error{Token: 1, Highest: 2})))
	require.Equal(t, "failed: no such table", outcome(errors.New("no such table")))
}

// Writers of many tokens at once, each with a connection of its own, to a database on disk.
func TestSet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db") + "?_pragma=busy_timeout(10000)"
	open := func() *sql.DB {
		db, err := sql.Open("sqlite", "file:"+path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	db := open()
	_, err := db.Exec(schema)
	require.NoError(t, err)
	var mu sync.Mutex
	highest, refused := uint64(0), 0
	var wg sync.WaitGroup
	for i := range 8 {
		writer := open()
		wg.Go(func() {
			for n := range 10 {
				token := uint64(1 + (i*7+n*3)%40)
				mu.Lock()
				before := highest
				mu.Unlock()
				err := set(t.Context(), writer, token, "region", fmt.Sprint(token))
				mu.Lock()
				late, ok := errors.AsType[*fenced.Error](err)
				switch {
				case err == nil && token < before:
					t.Errorf("token %d wrote after %d", token, before)
				case err == nil:
					highest = max(highest, token)
				case ok && late.Highest > token:
					refused++
				default:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	var value string
	require.NoError(t, db.QueryRow(`SELECT value FROM setting`).Scan(&value))
	require.Equal(t, fmt.Sprint(highest), value)
	require.Positive(t, refused)
}
