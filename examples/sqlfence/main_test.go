package main

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/fenced"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Equal(t, "bob, token 2: accepted\nalice, token 1, late: fenced off by a newer token: \"region\": token 1, seen 2\n", out.String())
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
