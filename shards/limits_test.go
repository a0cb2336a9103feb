package shards

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// The limits that docs/shards.md gives, with names of members of 20 characters.

func limitsMember(i int) string { return fmt.Sprintf("consumer-7d9f-%06d", i) }

// crowded is a plan for 50 members, after one of them has left and its shards remember it.
func crowded(t *testing.T, ids []string) *plan {
	t.Helper()
	var who cast
	for i := range 50 {
		who.fit = append(who.fit, limitsMember(i))
	}
	require.Len(t, who.fit[0], 20)
	p := assign(nil, ids, who)
	gone := who.fit[7]
	who.fit = append(who.fit[:7:7], who.fit[8:]...)
	who.away = map[string]bool{gone: true}
	p = assign(p, ids, who)
	require.Contains(t, p.members[p.present:], gone)
	p.generation, p.deputy = Count(len(ids)).generation(), who.fit[0]
	return p
}

func TestElevenThousandNumberedShardsFitIntoThePlannersLock(t *testing.T) {
	size := func(shards int) int {
		body, err := crowded(t, numbers(shards)).encode(true)
		require.NoError(t, err)
		return len(body)
	}
	require.LessOrEqual(t, size(11_000), maxInline)
	require.Greater(t, size(12_000), maxInline)
}

func TestTwentyFiveKilobytesOfNamesFitIntoThePlannersLock(t *testing.T) {
	size := func(bytes int) int {
		ids := make([]string, bytes/25)
		for i := range ids {
			ids[i] = fmt.Sprintf("tenant-%018d", i) // 25 characters
		}
		body, err := crowded(t, ids).encode(false)
		require.NoError(t, err)
		return len(body)
	}
	require.LessOrEqual(t, size(25_000), maxInline)
	require.Greater(t, size(26_500), maxInline)
}

func TestTheRosterTakesAThousandMembers(t *testing.T) {
	for _, set := range []Set{Count(1000), Names("a", "b")} {
		g := &Group{options: options{ttl: defaultTTL}, store: leasehold.NewMemStore(), prefix: "g"}
		enter := func(members int) error {
			_, err := g.editRoster(t.Context(), func(r roster) {
				for i := range members {
					r.Members[limitsMember(i)] = entry{Generation: set.generation()}
				}
			})
			return err
		}
		require.NoError(t, enter(1000), set.kind)
		err := enter(1300)
		require.ErrorContains(t, err, "use shorter names of members", set.kind)
		r := readRosterOf(t, g)
		require.Len(t, r.Members, 1000, "what was there stays")
	}
}

func readRosterOf(t *testing.T, g *Group) roster {
	obj, err := g.store.Get(t.Context(), g.key("roster"))
	require.NoError(t, err)
	return decodeRoster(obj.Body)
}
