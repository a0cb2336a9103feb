// Command servers builds the server programs for the tests, either all or those that its arguments
// name, and prints their paths.
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
	for _, name := range names {
		start := time.Now()
		path, err := testserver.Build(context.Background(), runtime.GOOS, name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(path)
		fmt.Fprintf(os.Stderr, "%s ready in %s\n", name, time.Since(start).Round(time.Millisecond))
	}
}
