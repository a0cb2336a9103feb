// Command sqlfence shows how a database refuses the late write of a former leader. One statement
// compares and writes: the row keeps the token of its last writer, and a lower token changes
// nothing. The database is SQLite, in memory; PostgreSQL takes the same statement.
//
//	go run ./examples/sqlfence
//	go run ./examples/sqlfence -s3 http://127.0.0.1:9000 -bucket locks
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
	_ "modernc.org/sqlite" // the driver, in pure Go
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "sqlfence:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sqlfence", flag.ContinueOnError)
	where := storeflag.Add(flags, "Sqlfence shows how a row of a database refuses the late write of a former leader, "+
		"by fencing token.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store, err := where.Open(ctx)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // because each connection would have a database of its own
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	lead := func(name string) (*leasehold.Lease, error) {
		lock, err := leasehold.NewLock(store, "examples/sqlfence", leasehold.WithIdentity(name))
		if err != nil {
			return nil, err
		}
		lease, err := lock.TryAcquire(ctx)
		if err == nil {
			fmt.Fprintf(out, "%-5s leads with token %d\n", name, lease.Token())
		}
		return lease, err
	}
	write := func(lease *leasehold.Lease, value string) error {
		err := set(ctx, db, lease.Token(), "region", value)
		fmt.Fprintf(out, "%-5s sets region = %s with token %d: %s\n", lease.Record().Holder, value,
			lease.Token(), outcome(err))
		return err
	}

	alice, err := lead("alice")
	if err != nil {
		return err
	}
	if err := write(alice, "us"); err != nil {
		return err
	}
	if err := alice.Release(ctx); err != nil { // or her process is paused until her lease has expired
		return err
	}
	fmt.Fprintln(out, "alice releases the lock")
	bob, err := lead("bob")
	if err != nil {
		return err
	}
	if err := write(bob, "eu"); err != nil {
		return err
	}
	if err := write(alice, "asia"); !errors.Is(err, leasehold.ErrFenced) {
		return errors.Join(errors.New("alice's late write was not refused"), err)
	}
	if err := show(ctx, db, out); err != nil {
		return err
	}
	return bob.Release(ctx)
}

// outcome says what became of a write.
func outcome(err error) string {
	if err == nil {
		return "accepted"
	}
	if refused, ok := errors.AsType[*leasehold.FencedError](err); ok {
		return fmt.Sprintf("refused, because the row has token %d", refused.Highest)
	}
	return "failed: " + err.Error()
}

// show prints the row.
func show(ctx context.Context, db *sql.DB, out io.Writer) error {
	var value string
	var fence int64
	if err := db.QueryRowContext(ctx, `SELECT value, fence FROM setting WHERE name = 'region'`).Scan(&value,
		&fence); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "The row holds region = %s, written with token %d.\n", value, fence)
	return err
}
