// Package bench measures leasehold and its peers side by side, on the same servers, in one run. "make bench" writes the results
// to docs/performance.md. "go test" runs the same measurements in miniature.
package bench
