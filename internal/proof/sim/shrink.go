package sim

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Scenario is the configuration of one world, of any kind.
type Scenario interface {
	// Run runs the world to its end. The outcome has a trace if it is asked for.
	Run(t *testing.T, trace bool) Outcome

	common() *Config
	smaller() []func() // each makes the world smaller
}

func (c *Config) common() *Config { return c }

// smaller implements Scenario. Nothing that the configuration refers to is written to, because that
// may be part of another one.
func (c *Config) smaller() (changes []func()) {
	last := c.Nodes - 1
	if last >= 2 && !slices.ContainsFunc(c.Actions, func(a Action) bool { return a.Node == last }) {
		changes = append(changes, func() { c.Nodes = last })
	}
	if c.RequestFaults > 0 {
		changes = append(changes, func() { c.RequestFaults = 0 })
	}
	if c.Ages != "" && c.Ages != NoAges {
		changes = append(changes, func() { c.Ages = NoAges })
	}
	for i := range c.Actions {
		changes = append(changes, func() { c.Actions = slices.Delete(slices.Clone(c.Actions), i, i+1) })
	}
	return changes
}

// smaller implements Scenario.
func (c *TableConfig) smaller() (changes []func()) {
	if c.Workers > 1 {
		changes = append(changes, func() { c.Workers-- })
	}
	for i := range c.Locks {
		if len(c.Locks) > 1 {
			changes = append(changes, func() { c.Locks = slices.Delete(slices.Clone(c.Locks), i, i+1) })
		}
	}
	return append(changes, c.Config.smaller()...)
}

// kept are the parts of a world by which others go: without such a part alone, any world may fail.
var kept = []string{"CreateOnly", "Damage", "Long"}

// fields are those of a configuration.
func fields(c Scenario) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		v := reflect.ValueOf(c).Elem()
		for _, f := range reflect.VisibleFields(v.Type()) {
			if !f.Anonymous && !yield(f.Name, v.FieldByIndex(f.Index)) {
				return
			}
		}
	}
}

// changes are all that make a world smaller.
func changes(c Scenario) (all []func()) {
	for name, v := range fields(c) {
		if v.Kind() == reflect.Bool && v.Bool() && !slices.Contains(kept, name) {
			all = append(all, func() { v.SetBool(false) })
		}
	}
	return append(all, c.smaller()...)
}

// shrink removes actions, faults, parts and nodes of a world that fails, one at a time, until no
// further removal leaves a failure.
func shrink(t *testing.T, best Scenario, out Outcome) (Scenario, Outcome) {
	try := func(c Scenario) bool {
		now := c.Run(t, true)
		fails := len(now.Violations) > 0
		if fails {
			best, out = c, now
		}
		return fails
	}
	// Goroutines that act at the same instant run in any order, and some names are random, so a
	// world may fail only at a later try.
	for tries := 20; tries > 0 && !try(best); {
		tries--
	}
	for shorter := true; shorter; {
		shorter = false
		for i := len(changes(best)) - 1; i >= 0; i-- {
			v := reflect.New(reflect.TypeOf(best).Elem())
			v.Elem().Set(reflect.ValueOf(best).Elem())
			c := v.Interface().(Scenario)
			if all := changes(c); i < len(all) {
				all[i]()
				shorter = try(c) || shorter
			}
		}
	}
	return best, out
}

// Report describes the failure of a world: the smallest world found that still fails, its
// violations, and the timeline up to the first.
func Report(t *testing.T, c Scenario, out Outcome) string {
	t.Helper()
	c, out = shrink(t, c, out)
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d", c.common().Seed)
	for name, v := range fields(c) {
		if name != "Seed" && name != "Actions" && !v.IsZero() {
			fmt.Fprintf(&b, ", %s %v", name, v)
		}
	}
	b.WriteString("\n")
	for _, a := range c.common().Actions {
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
