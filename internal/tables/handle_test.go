package tables

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/handle"
)

// A handle has one member and what it holds or waits for, and nothing of the others.
func TestHandle(t *testing.T) {
	secret := handle.NewSecret()
	member := func(name string) Member {
		m := Member{Name: name, TTL: 1500 * time.Millisecond, Metadata: map[string]string{"a": "ü"}}
		m.Key, m.ObjectID, m.Token = "some/t.members/"+name, "o", 7
		m.TermID = handle.TermID(m.Key, secret)
		return m
	}
	tab := New()
	other, n := tab.Join(member("other")), tab.Join(member("m 1"))
	claims := []Claim{{Name: "a"}, {Name: "b", Shared: true}, {Name: "c", Slots: 1, Of: 2}}
	require.NoError(t, tab.Ask(ID{n, 1 << 31}, claims))
	require.NoError(t, tab.Ask(ID{other, 5}, []Claim{{Name: "b", Shared: true}}))
	tab.Finish("x", 41)
	lock := handle.Handle{Token: 7, Secret: secret}
	text := tab.HandleOf(n, lock.String())
	require.Regexp(t, `^[-_.A-Za-z0-9]+$`, text)
	h, err := ParseHandle(text)
	require.NoError(t, err)
	require.Equal(t, lock, h.Term)
	require.Equal(t, "some/t", h.Key)
	require.Equal(t, member("m 1"), h.Member)
	require.Equal(t, tab.Requests(n), h.Table.Requests(n))
	members, held, _ := h.Table.Counts()
	require.Equal(t, []int{1, 1}, []int{members, held})
	require.Equal(t, uint64(42), h.Table.Revision)

	for _, lock := range []handle.Handle{{Token: 8, Secret: secret}, {Token: 7, Secret: handle.NewSecret()}} {
		_, err = ParseHandle(tab.HandleOf(n, lock.String()))
		require.ErrorIs(t, err, leasehold.ErrPermanent, "it is of another term")
		require.NotContains(t, err.Error(), lock.Secret)
	}
}
