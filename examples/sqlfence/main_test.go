package main

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(main, m.Run) }

func TestHelp(t *testing.T) { exampletest.Help(t, "sqlfence") }

func TestDeadEndpoint(t *testing.T) { exampletest.DeadEndpoint(t, "sqlfence") }

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
	require.Equal(t, "refused, because the row has token 2",
		outcome(errors.Join(&leasehold.FencedError{Token: 1, Highest: 2})))
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
				late, ok := errors.AsType[*leasehold.FencedError](err)
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
