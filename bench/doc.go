// Package bench measures leasehold and its peers side by side, on the same servers, in one run. "make bench" writes what it
// finds into docs/performance.md; "go test" runs the same in miniature.
package bench
