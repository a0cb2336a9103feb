package gcsstore

import "time"

// WithMinTTL lets tests on a server without a rate limit use short leases.
func WithMinTTL(d time.Duration) Option { return func(s *Store) { s.minTTL = d } }
