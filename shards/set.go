package shards

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Set says what a group divides. It is made by [Count], [Names] or [NamesFrom].
type Set struct {
	kind  string // "" if it was not made
	count int
	list  func(context.Context) ([]string, error)
}

// Count is a set of n shards, numbered from 0. All members must give the same number: see [Group].
func Count(n int) Set { return Set{kind: fmt.Sprint("count ", n), count: n} }

// Names is a set of named shards that does not change while the members run. All members must give the same names: see [Group].
func Names(names ...string) Set {
	names = sorted(names)
	digest := sha256.Sum256([]byte(strings.Join(names, "\n")))
	return Set{kind: fmt.Sprintf("names %x", digest[:8]), list: func(context.Context) ([]string, error) { return names, nil }}
}

// NamesFrom is a set of named shards that may change while the members run, such as the tenants in a database. The planner calls list
// about once per TTL, one call at a time, with a context that ends after half a TTL, and its list counts for all members. If list
// fails, the last list stays. Repeated names count once, and names that are no valid part of a key are left out and logged.
func NamesFrom(list func(ctx context.Context) ([]string, error)) Set {
	return Set{kind: "names", list: list}
}

func (s Set) validate(prefix string) error {
	switch {
	case s.kind == "":
		return fmt.Errorf("the Set is empty: make it with Count, Names or NamesFrom")
	case s.count < 0:
		return fmt.Errorf("Count(%d) is negative", s.count)
	case s.numbered():
		return nil
	case s.list == nil:
		return fmt.Errorf("NamesFrom: the function is nil")
	case s.kind == "names":
		return nil
	}
	names, _ := s.list(context.Background())
	for _, name := range names {
		if why := storeapi.BadKey(shardKey(prefix, name)); why != "" {
			return fmt.Errorf("Names: the key of shard %.80q %s", name, why)
		}
	}
	return nil
}

func (s Set) numbered() bool { return s.list == nil && strings.HasPrefix(s.kind, "count ") }

// generation names the set and the version of the plan's form. Members of different generations do not share a plan.
func (s Set) generation() string { return "1 " + s.kind }

// numbers returns the IDs of n numbered shards.
func numbers(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	return ids
}

// sorted returns names in order, each once.
func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}
