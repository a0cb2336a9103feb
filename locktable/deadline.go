package locktable

import "time"

// Deadline returns the time until which the lease is valid unless the term of its member is
// renewed: see [leasehold.Lease.Deadline].
func (le *Lease) Deadline() time.Time {
	le.r.t.mu.Lock()
	term := le.r.term
	le.r.t.mu.Unlock()
	return term.lease.Deadline()
}
