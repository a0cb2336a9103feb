package gcsstore

import "time"

// WithMinTTL lets tests use short leases on a server without a rate limit.
func WithMinTTL(d time.Duration) Option { return func(s *Store) { s.minTTL = d } }
