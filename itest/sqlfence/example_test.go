package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	_ "modernc.org/sqlite" // the driver, in pure Go

	"github.com/leasehold-go/leasehold"
)

func Example() {
	ctx, store := context.Background(), leasehold.NewMemStore()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // because each connection would have a database of its own
	if _, err := db.ExecContext(ctx, schema); err != nil {
		log.Fatal(err)
	}
	lead := func(name string) *leasehold.Lease {
		lock, err := leasehold.NewLock(store, "leaders/settings", leasehold.WithHolder(name))
		if err != nil {
			log.Fatal(err)
		}
		lease, err := lock.TryAcquire(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s leads with token %d\n", name, lease.Token())
		return lease
	}

	alice := lead("alice")
	fmt.Println("alice writes us:", set(ctx, db, alice.Token(), "region", "us"))
	if err := alice.Release(ctx); err != nil { // or her process is paused until her lease has expired
		log.Fatal(err)
	}
	bob := lead("bob")
	fmt.Println("bob writes eu:", set(ctx, db, bob.Token(), "region", "eu"))
	fmt.Println("alice writes asia:", set(ctx, db, alice.Token(), "region", "asia"))
	var value string
	if err := db.QueryRowContext(ctx, `SELECT value FROM setting WHERE name = 'region'`).Scan(&value); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the row holds", value)
	if err := bob.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// alice leads with token 1
	// alice writes us: <nil>
	// bob leads with token 2
	// bob writes eu: <nil>
	// alice writes asia: fenced off by a newer token: "region": token 1, seen 2
	// the row holds eu
}
