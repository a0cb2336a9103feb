//go:build !unix

package testserver

import "context"

// lockFile does nothing because there is no flock here. Parallel processes may build the same
// program twice.
func lockFile(context.Context, string) (func(), error) { return func() {}, nil }
