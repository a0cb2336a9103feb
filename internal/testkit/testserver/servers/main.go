// Command servers builds the server programs for the tests, either all or those that its arguments
// name, and prints their paths, and how far it is.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

func main() {
	names := os.Args[1:]
	if len(names) == 0 {
		names = testserver.Programs()
	}
	for i, name := range names {
		start := time.Now()
		path, err := testserver.Build(context.Background(), runtime.GOOS, name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(path)
		next := ""
		if i+1 < len(names) {
			next = ", next is " + names[i+1]
		}
		fmt.Fprintf(os.Stderr, "server %d of %d: %s is ready after %s%s\n", i+1, len(names), name,
			time.Since(start).Round(time.Millisecond), next)
	}
}
