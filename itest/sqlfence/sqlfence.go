// Package sqlfence shows how a database refuses the late write of a former leader. One statement
// compares and writes: the row keeps the token of its last writer, and a lower token changes
// nothing. The database of the tests is SQLite; PostgreSQL takes the same statement.
package sqlfence

import (
	"context"
	"database/sql"
	"errors"

	"github.com/leasehold-go/leasehold"
)

const schema = `CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL, fence INTEGER NOT NULL)`

// set writes a setting unless a newer leader has written it. Check and write are one statement, so
// nothing can come between them. A former leader gets a [leasehold.FencedError].
func set(ctx context.Context, db *sql.DB, token uint64, name, value string) error {
	done, err := db.ExecContext(ctx, `INSERT INTO setting (name, value, fence) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value, fence = excluded.fence
		WHERE setting.fence <= excluded.fence`, name, value, int64(token))
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n > 0 {
		return err
	}
	refused := &leasehold.FencedError{Key: name, Token: token}
	// Only for the message: the row may have a higher token by now.
	return errors.Join(refused, db.QueryRowContext(ctx, `SELECT fence FROM setting WHERE name = $1`,
		name).Scan(&refused.Highest))
}
