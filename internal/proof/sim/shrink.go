package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Shrink looks for a smaller world that still fails. It removes actions, faults and nodes one at a
// time, until no further removal leaves a failure.
func Shrink(t *testing.T, cfg *Config) (*Config, Outcome) {
	t.Helper()
	best, out := cfg, Run(t, cfg, true)
	// Goroutines that use one Lock at the same instant run in any order, so such a world may fail
	// only at a later try.
	for try := 0; len(out.Violations) == 0 && try < 20; try++ {
		out = Run(t, cfg, true)
	}
	try := func(change func(c *Config)) bool {
		c := *best
		c.Actions = slices.Clone(best.Actions)
		change(&c)
		if o := Run(t, &c, true); len(o.Violations) > 0 {
			best, out = &c, o
			return true
		}
		return false
	}
	for shorter := true; shorter; {
		shorter = false
		for i := len(best.Actions) - 1; i >= 0; i-- {
			shorter = try(func(c *Config) { c.Actions = slices.Delete(c.Actions, i, i+1) }) || shorter
		}
		if best.RequestFaults > 0 {
			shorter = try(func(c *Config) { c.RequestFaults = 0 }) || shorter
		}
		if best.Ages != NoAges {
			shorter = try(func(c *Config) { c.Ages = NoAges }) || shorter
		}
		for _, part := range []func(c *Config) *bool{
			func(c *Config) *bool { return &c.Slow },
			func(c *Config) *bool { return &c.TornReads },
			func(c *Config) *bool { return &c.Siblings },
			func(c *Config) *bool { return &c.Readers },
			func(c *Config) *bool { return &c.Pages },
			func(c *Config) *bool { return &c.Wakes },
			func(c *Config) *bool { return &c.Foreign },
			func(c *Config) *bool { return &c.Abandons },
			func(c *Config) *bool { return &c.OneWriteASecond },
			func(c *Config) *bool { return &c.SlowCreates },
			func(c *Config) *bool { return &c.Tried },
			func(c *Config) *bool { return &c.Copies },
			func(c *Config) *bool { return &c.Handles },
			func(c *Config) *bool { return &c.TTLs },
			func(c *Config) *bool { return &c.Visitors },
			func(c *Config) *bool { return &c.HashETags },
		} {
			if *part(best) {
				shorter = try(func(c *Config) { *part(c) = false }) || shorter
			}
		}
		if last := best.Nodes - 1; last >= 2 && !slices.ContainsFunc(best.Actions, func(a Action) bool {
			return a.Node == last
		}) {
			shorter = try(func(c *Config) { c.Nodes = last }) || shorter
		}
	}
	return best, out
}

// Report describes a failure: the world, its violations, and the timeline up to the first.
func Report(cfg *Config, out Outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes, TTL %v, margin %v, drift allowance %v, clock rates 1±%v, wall clocks ±%v, "+
		"request faults %v, slow replies %v, %s, ETags without quotes %v, torn reads %v, siblings %v, foreign client "+
		"%v, reader %v, pages %v, wake-ups %v, abandons %v, one write a second %v, slow creates %v, tried %v, "+
		"handles %v, TTLs of their own %v, ETags of the body %v, visitors %v\n",
		cfg.Seed, cfg.Nodes, cfg.TTL, cfg.Margin, cfg.Drift, cfg.RateSpread, cfg.Skew, cfg.RequestFaults, cfg.Slow,
		cfg.Ages, cfg.BareETags, cfg.TornReads, cfg.Siblings, cfg.Foreign, cfg.Readers, cfg.Pages, cfg.Wakes,
		cfg.Abandons, cfg.OneWriteASecond, cfg.SlowCreates, cfg.Tried, cfg.Handles, cfg.TTLs, cfg.HashETags,
		cfg.Visitors)
	for _, a := range cfg.Actions {
		fmt.Fprintf(&b, "  %v\n", a)
	}
	b.WriteString("violations:\n")
	for i, v := range out.Violations {
		if i == 5 {
			fmt.Fprintf(&b, "  and %d more\n", len(out.Violations)-i)
			break
		}
		fmt.Fprintf(&b, "  %s\n", v)
	}
	b.WriteString("timeline:\n")
	for _, line := range out.Trace {
		b.WriteString(line + "\n")
		if strings.Contains(line, "!!!!") {
			b.WriteString("  (the rest of the timeline is omitted)\n")
			break
		}
	}
	return b.String()
}
