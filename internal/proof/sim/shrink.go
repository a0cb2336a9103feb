package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// shrinker looks for a smaller world that still fails. C is the configuration of a kind of worlds.
type shrinker[C any] struct {
	run  func(c *C) Outcome // traced
	base func(c *C) *Config // what all kinds have
	best *C
	out  Outcome // of best
}

// try keeps a change if the world still fails. The change may not write to what best refers to.
func (s *shrinker[C]) try(change func(c *C)) bool {
	c := *s.best
	base := s.base(&c)
	base.Actions = slices.Clone(base.Actions)
	change(&c)
	out := s.run(&c)
	if len(out.Violations) == 0 {
		return false
	}
	s.best, s.out = &c, out
	return true
}

// shrink removes actions, faults, parts and nodes one at a time, until no further removal leaves a
// failure. More is what else can be removed: it reports whether it has removed anything.
func (s *shrinker[C]) shrink(parts func(c *C) []*bool, more func() bool) {
	// Goroutines that act at the same instant run in any order, and some names are random, so a
	// world may fail only at a later try.
	for tries := 20; tries > 0 && !s.try(func(*C) {}); {
		tries--
	}
	on := func(change func(c *Config)) bool { return s.try(func(c *C) { change(s.base(c)) }) }
	for shorter := true; shorter; {
		shorter = false
		for i := len(s.base(s.best).Actions) - 1; i >= 0; i-- {
			shorter = on(func(c *Config) { c.Actions = slices.Delete(c.Actions, i, i+1) }) || shorter
		}
		shorter = more() || shorter
		if s.base(s.best).RequestFaults > 0 {
			shorter = on(func(c *Config) { c.RequestFaults = 0 }) || shorter
		}
		for i, part := range parts(s.best) {
			if *part {
				shorter = s.try(func(c *C) { *parts(c)[i] = false }) || shorter
			}
		}
		if last := s.base(s.best).Nodes - 1; last >= 2 && !slices.ContainsFunc(s.base(s.best).Actions,
			func(a Action) bool { return a.Node == last }) {
			shorter = on(func(c *Config) { c.Nodes = last }) || shorter
		}
	}
}

// Report describes the failure of a world: the smallest world found that still fails, its
// violations, and the timeline up to the first.
func Report(t *testing.T, cfg *Config, out Outcome) string {
	t.Helper()
	s := &shrinker[Config]{
		run:  func(c *Config) Outcome { return Run(t, c, true) },
		base: func(c *Config) *Config { return c },
		best: cfg, out: out,
	}
	s.shrink(func(c *Config) []*bool {
		return []*bool{
			&c.Slow, &c.TornReads, &c.Siblings, &c.Readers, &c.Pages, &c.Wakes, &c.Foreign, &c.Abandons,
			&c.OneWriteASecond, &c.SlowCreates, &c.Tried, &c.Copies, &c.Handles, &c.TTLs, &c.Visitors, &c.HashETags,
		}
	}, func() bool {
		return s.best.Ages != NoAges && s.try(func(c *Config) { c.Ages = NoAges })
	})
	c := s.best
	return report(c, s.out, fmt.Sprintf("TTL %v, wall clocks ±%v, %s, ETags without quotes %v, siblings %v, foreign "+
		"client %v, reader %v, pages %v, abandons %v, one write a second %v, slow creates %v, tried %v, handles %v, "+
		"TTLs of their own %v, ETags of the body %v", c.TTL, c.Skew, c.Ages, c.BareETags, c.Siblings, c.Foreign,
		c.Readers, c.Pages, c.Abandons, c.OneWriteASecond, c.SlowCreates, c.Tried, c.Handles, c.TTLs, c.HashETags))
}

// TableReport is Report for members of a table.
func TableReport(t *testing.T, cfg *TableConfig, out Outcome) string {
	t.Helper()
	s := &shrinker[TableConfig]{
		run:  func(c *TableConfig) Outcome { return RunTables(t, c, true) },
		base: func(c *TableConfig) *Config { return &c.Config },
		best: cfg, out: out,
	}
	s.shrink(func(c *TableConfig) []*bool {
		return []*bool{&c.Slow, &c.TornReads, &c.Wakes, &c.Two, &c.Loose, &c.Overruns, &c.Visitors, &c.Handles}
	}, func() (shorter bool) {
		for i := len(s.best.Locks) - 1; i >= 0 && len(s.best.Locks) > 1; i-- {
			shorter = s.try(func(c *TableConfig) {
				c.Locks = slices.Delete(slices.Clone(c.Locks), i, i+1)
			}) || shorter
		}
		for s.best.Workers > 1 && s.try(func(c *TableConfig) { c.Workers-- }) {
			shorter = true
		}
		return shorter
	})
	c := s.best
	return report(&c.Config, s.out, fmt.Sprintf("locks %v, %d workers, named %v (twins %v), two tables %v, loose "+
		"deletes %v, overruns %v, damage %v (wrong clock %v), %v of faults", c.Locks, c.Workers, c.Named, c.Twins,
		c.Two, c.Loose, c.Overruns, c.Damage, c.Wrong, c.Chaos))
}

// report describes a world that fails. What only worlds of its kind have is told in more.
func report(c *Config, out Outcome, more string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes, margin %v, drift allowance %v, clock rates 1±%v, request faults %v, slow "+
		"replies %v, torn reads %v, wake-ups %v, visitors %v, %s\n", c.Seed, c.Nodes, c.Margin, c.Drift, c.RateSpread,
		c.RequestFaults, c.Slow, c.TornReads, c.Wakes, c.Visitors, more)
	for _, a := range c.Actions {
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
