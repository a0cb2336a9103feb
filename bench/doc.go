// Package bench measures leasehold and its peers side by side, on the same servers, in one run.
// "make bench" writes the results to docs/performance.json, from which package report renders the
// page and its charts. "go test" runs the same measurements in miniature and writes nothing into
// docs.
package bench
