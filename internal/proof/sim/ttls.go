package sim

import (
	"time"

	"github.com/leasehold-go/leasehold"
)

// timing is the durations that the locks of a process are given.
type timing struct{ ttl, margin, poll time.Duration }

// timing draws the durations for one purpose, the same each time. The margin has the same share of
// any TTL, by which leases cannot overlap.
func (c *Config) timing(purpose ...any) timing {
	if !c.TTLs {
		return timing{c.TTL, c.Margin, c.TTL / 5}
	}
	r := c.rng(append(purpose, "timing")...)
	ttl := []time.Duration{c.shortest(), c.TTL / 2, c.TTL, c.longest()}[r.IntN(4)]
	return timing{ttl, c.marginOf(ttl), []time.Duration{ttl / 10, ttl / 5, ttl / 5, ttl}[r.IntN(4)]}
}

func (c *Config) marginOf(ttl time.Duration) time.Duration {
	return time.Duration(float64(c.Margin) * (float64(ttl) / float64(c.TTL)))
}

// longest is the longest TTL that a process may have.
func (c *Config) longest() time.Duration {
	if c.TTLs {
		return 2 * c.TTL
	}
	return c.TTL
}

// shortest is the shortest TTL that a process may have.
func (c *Config) shortest() time.Duration {
	if c.TTLs {
		return c.TTL / 3
	}
	return c.TTL
}

// looks is how often a process that waits reads the lock at most: once per poll interval, and when
// the lease that it waits for can expire.
func (t timing) looks(leader time.Duration) time.Duration { return min(t.poll, leader) }

// outOfSight is how long a version may be out of sight, and is not seen for the first time when it
// is read again.
func (t timing) outOfSight(body []byte) time.Duration {
	var rec leasehold.Record
	_ = rec.UnmarshalJSON(body)
	return 2 * max(rec.TTL, t.poll)
}

func (t timing) renewInterval() time.Duration { return t.ttl / 3 }

func ttlOf(lease *leasehold.Lease) time.Duration { return lease.Record().TTL }

// latestEnd is how long after a suspend the context of a lease may end that has run out.
func latestEnd(lease *leasehold.Lease) time.Duration { return ttlOf(lease) / 5 * 11 / 10 }
