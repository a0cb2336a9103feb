// Command sqlfence guards a row of a database by fencing tokens, in one statement: the row keeps the token of its last
// writer, and a lower one changes nothing. The database is SQLite, in memory; PostgreSQL takes the same statement.
//
//	go run .
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	_ "modernc.org/sqlite" // the driver, in pure Go
)

const schema = `CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL, fence INTEGER NOT NULL)`

// set writes a setting with proof that no newer leader has written it: check and write are one statement, so nothing can
// come between them. A former leader gets a [fenced.Error].
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
	refused := &fenced.Error{Key: name, Token: token}
	// For the message only: it may be higher by now.
	return errors.Join(refused, db.QueryRowContext(ctx, `SELECT fence FROM setting WHERE name = $1`, name).Scan(&refused.Highest))
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection would have a memory of its own
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	store := leasehold.NewMemStore()
	lead := func(name string) (*leasehold.Lease, error) {
		lock, err := leasehold.NewLock(store, "leaders/settings", leasehold.WithIdentity(name))
		if err != nil {
			return nil, err
		}
		return lock.TryAcquire(ctx)
	}
	alice, err := lead("alice")
	if err != nil {
		return err
	}
	if err := alice.Release(ctx); err != nil { // or she is paused for longer than her lease
		return err
	}
	bob, err := lead("bob")
	if err != nil {
		return err
	}
	if err := set(ctx, db, bob.Token(), "region", "eu"); err != nil {
		return err
	}
	fmt.Fprintf(out, "bob, token %d: accepted\n", bob.Token())
	late := set(ctx, db, alice.Token(), "region", "us")
	fmt.Fprintf(out, "alice, token %d, late: %v\n", alice.Token(), late)
	if !errors.Is(late, fenced.ErrFenced) {
		return errors.New("the late write was not refused")
	}
	return bob.Release(ctx)
}
