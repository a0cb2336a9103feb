package sim

import (
	"errors"
	"time"
)

var err429 = errors.New("429 TooManyRequests")

// drawStores draws whether the store accepts one write of an object a second, as R2 and Cloud Storage do.
func (c *Config) drawStores() { c.OneWriteASecond = c.rng("stores").IntN(8) == 0 }

// tooSoon refuses a write that follows the last one of the object within a second. The caller holds s.mu.
func (s *store) tooSoon() error {
	if !s.w.cfg.OneWriteASecond || !s.exists || time.Since(s.writtenAt) >= time.Second {
		return nil
	}
	s.w.mark(writeTooSoon)
	if s.versions%2 == 0 {
		return err503
	}
	return err429
}
