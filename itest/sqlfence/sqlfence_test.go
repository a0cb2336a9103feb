package sqlfence

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// The statements on the page refuse a lower token alone, also on an empty table, where a former
// leader has written nothing yet. Each affects no row if and only if it is refused.
func TestStatementsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/fencing.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## A database\n")
	section, _, _ = strings.Cut(section, "\n## ")
	statements := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(section, -1)
	require.Len(t, statements, 2, "one of a row, and one that begins a transaction")
	require.NotRegexp(t, "`(INSERT|UPDATE)[^`]*\\$1", section, "a statement that no test runs")
	for i, arguments := range []func(token int64) []any{
		func(token int64) []any { return []any{"region", "eu", token} },
		func(token int64) []any { return []any{token} },
	} {
		db, err := sql.Open("sqlite", ":memory:")
		require.NoError(t, err)
		db.SetMaxOpenConns(1)
		_, err = db.Exec(schema + `; CREATE TABLE leader (id INTEGER PRIMARY KEY, fence INTEGER NOT NULL)`)
		require.NoError(t, err)
		for _, write := range []struct{ token, rows int64 }{{2, 1}, {2, 1}, {1, 0}, {3, 1}, {2, 0}} {
			done, err := db.Exec(statements[i][1], arguments(write.token)...)
			require.NoError(t, err)
			rows, err := done.RowsAffected()
			require.NoError(t, err)
			require.Equal(t, write.rows, rows, "token %d: %s", write.token, statements[i][1])
		}
		require.NoError(t, db.Close())
	}
	code, err := os.ReadFile("sqlfence.go")
	require.NoError(t, err)
	require.Equal(t, strings.Fields(statements[0][1]), strings.Fields(
		regexp.MustCompile("(?s)`(INSERT .*?)`").FindStringSubmatch(string(code))[1]), "that of set")
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
