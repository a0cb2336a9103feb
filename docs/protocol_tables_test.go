package docs_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// tableVector is what a table says.
type tableVector struct {
	Revision uint64                  `json:"revision"`
	Nonce    string                  `json:"nonce"`
	Members  map[string]memberVector `json:"members"`
	Held     []requestVector         `json:"held"`
	Waiting  []requestVector         `json:"waiting"`
}

type memberVector struct {
	Name     string            `json:"name"`
	Key      string            `json:"key"`
	ID       string            `json:"id"`
	Term     string            `json:"term"`
	Token    uint64            `json:"token"`
	TTL      float64           `json:"ttl"`
	Metadata map[string]string `json:"metadata"`
}

type requestVector struct {
	Member uint64        `json:"member"`
	Number uint64        `json:"number"`
	Token  uint64        `json:"token"`
	Claims []claimVector `json:"claims"`
}

type claimVector struct {
	Name   string `json:"name"`
	Shared bool   `json:"shared"`
	Slots  int    `json:"slots"`
	Of     int    `json:"of"`
}

func meaningOfTable(t *tables.Table) tableVector {
	v := tableVector{
		Revision: t.Revision, Nonce: t.Nonce, Members: map[string]memberVector{},
		Held: []requestVector{}, Waiting: []requestVector{},
	}
	for n, m := range t.Members() {
		v.Members[fmt.Sprint(n)] = memberVector{
			Name: m.Name, Key: m.Key, ID: m.ObjectID, Term: m.TermID, Token: m.Token, TTL: m.TTL.Seconds(),
			Metadata: m.Metadata,
		}
	}
	for r := range t.Held() {
		v.Held = append(v.Held, meaningOfRequest(r))
	}
	for r := range t.Waiting() {
		v.Waiting = append(v.Waiting, meaningOfRequest(r))
	}
	return v
}

func meaningOfRequest(r tables.Request) requestVector {
	v := requestVector{Member: r.Member, Number: r.Number, Token: r.Token}
	for _, c := range r.Claims {
		v.Claims = append(v.Claims, claimVector(c))
	}
	return v
}

func TestProtocolTables(t *testing.T) {
	for _, c := range vectors[struct {
		Name, Body, Base64 string
		Table              *tableVector
		Corrupt            bool
	}](t, "tables.json") {
		t.Run(c.Name, func(t *testing.T) {
			require.NotEqual(t, c.Corrupt, c.Table != nil, "either or")
			tab, err := tables.Decode(bodyOf(t, c.Body, c.Base64))
			if c.Corrupt {
				require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
				return
			}
			require.NoError(t, err)
			require.Equal(t, *c.Table, meaningOfTable(tab))
			again, err := tables.Decode(tab.Encode())
			require.NoError(t, err)
			require.Equal(t, *c.Table, meaningOfTable(again), "what is written means what was read")
		})
	}
}

// step is one part of a write. One of join, ask, drop and leave is there.
type step struct {
	Join    *memberVector
	As      uint64 // the number that the member gets
	Ask     []any  // member, number and claims, as in the table
	Drop    []uint64
	Leave   uint64
	Refused bool
}

func TestProtocolWritesOfTables(t *testing.T) {
	for _, c := range vectors[struct {
		Name, Table, Nonce string
		Steps              []step
		Above              uint64
		Next               tableVector
	}](t, "table-writes.json") {
		t.Run(c.Name, func(t *testing.T) {
			tab, err := tables.Decode([]byte(c.Table))
			require.NoError(t, err)
			for _, s := range c.Steps {
				switch {
				case s.Join != nil:
					m := *s.Join
					require.Equal(t, s.As, tab.Join(tables.Member{
						Term: tables.Term{Key: m.Key, ObjectID: m.ID, TermID: m.Term, Token: m.Token}, Name: m.Name,
						TTL: time.Duration(m.TTL * float64(time.Second)), Metadata: m.Metadata,
					}))
				case s.Ask != nil:
					id := tables.ID{Member: uint64(s.Ask[0].(float64)), Number: uint64(s.Ask[1].(float64))}
					err := tab.Ask(id, claimsOf(s.Ask[2:]))
					require.Equal(t, s.Refused, err != nil, "%v: %v", s.Ask, err)
				case s.Drop != nil:
					tab.Drop(tables.ID{Member: s.Drop[0], Number: s.Drop[1]})
				default:
					require.True(t, tab.Leave(s.Leave))
				}
			}
			tab.Finish(c.Nonce, c.Above)
			require.Equal(t, c.Next, meaningOfTable(tab))
		})
	}
}

// claimsOf reads claims as a table has them.
func claimsOf(values []any) (claims []tables.Claim) {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			claims = append(claims, tables.Claim{Name: v})
		case []any:
			c := tables.Claim{Name: v[0].(string), Shared: v[1] == "s"}
			if !c.Shared {
				c.Slots, c.Of = int(v[1].(float64)), int(v[2].(float64))
			}
			claims = append(claims, c)
		}
	}
	return claims
}

// The page shows a table that a reader takes, in the form in which it is written.
func TestProtocolShowsATable(t *testing.T) {
	page, err := os.ReadFile("protocol.md")
	require.NoError(t, err)
	blocks := strings.Split(string(page), "```json\n")[1:]
	i := slices.IndexFunc(blocks, func(b string) bool { return strings.HasPrefix(b, `{"table":`) })
	require.GreaterOrEqual(t, i, 0)
	shown, _, _ := strings.Cut(blocks[i], "\n```")
	tab, err := tables.Decode([]byte(shown))
	require.NoError(t, err)
	require.Equal(t, shown, string(tab.Encode()))
}

func TestProtocolMembers(t *testing.T) {
	for _, c := range vectors[struct {
		Name   string
		Object *string
		Term   struct {
			ObjectID string `json:"object_id"`
			TermID   string `json:"term_id"`
			Token    uint64
		}
		TTL, Age float64
		Drift    *float64
		Is       string
	}](t, "members.json") {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storeWith(t, "member", c.Object)
				of := membership.Settings{
					TTL: seconds(c.TTL), Poll: time.Second, Margin: seconds(c.TTL) / 5, Drift: 0.02, Holder: "reader",
					Log: slog.New(slog.DiscardHandler),
				}
				if c.Drift != nil {
					of.Drift = *c.Drift
				}
				judge, err := membership.NewGroup(store, of).Judge(membership.Term{
					Key: "member", ObjectID: c.Term.ObjectID, TermID: c.Term.TermID, Token: c.Term.Token,
				}, seconds(c.TTL))
				require.NoError(t, err)
				v, err := judge.Look(t.Context())
				if c.Age > 0 { // the first look shows the object
					time.Sleep(seconds(c.Age))
					v, err = judge.Look(t.Context())
				}
				is := map[membership.State]string{
					membership.Unknown: "unknown", membership.Alive: "alive", membership.Over: "over",
				}[v.State]
				if errors.Is(err, leasehold.ErrCorruptRecord) {
					is = "unreadable"
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, c.Is, is, v.Reason)
			})
		})
	}
}
