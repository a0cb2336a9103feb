package tables

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/stretchr/testify/require"
)

// world is a table, and what a plain reading of the rules makes of the same history: lists,
// searched from end to end.
type world struct {
	table   *Table
	terms   int // how many have joined
	members []uint64
	held    []Request
	waiting []Request
	last    map[string]uint64 // the last token of each lock that was claimed exclusively
}

func newWorld(members int) *world {
	w := &world{table: New(), last: map[string]uint64{}}
	for range members {
		w.join()
	}
	return w
}

func (w *world) clone() *world {
	return &world{
		w.table.Clone(), w.terms, slices.Clone(w.members), slices.Clone(w.held),
		slices.Clone(w.waiting), maps.Clone(w.last),
	}
}

func member(i int) Member {
	name := fmt.Sprintf("pod-%d", i)
	return Member{
		Term: Term{
			Key:      "tables/t.members/" + name,
			ObjectID: "object-" + name,
			TermID:   "term-" + name,
			Token:    uint64(i + 1),
		},
		Name:     name,
		TTL:      15 * time.Second,
		Metadata: map[string]string{"url": "http://" + name},
	}
}

func (w *world) join() {
	w.members = append(w.members, w.table.Join(member(w.terms)))
	w.terms++
}

// ask uses the lowest number that is free, so that numbers come again.
func (w *world) ask(t require.TestingT, m uint64, claims []Claim) {
	id := ID{Member: m}
	all := slices.Concat(w.held, w.waiting)
	for slices.ContainsFunc(all, func(r Request) bool { return r.ID == id }) {
		id.Number++
	}
	require.NoError(t, w.table.Ask(id, claims))
	require.ErrorIs(t, w.table.Ask(id, claims), ErrKnown)
	w.waiting = append(w.waiting, Request{ID: id, Claims: claims})
}

func (w *world) remove(which func(Request) bool) {
	w.held = slices.DeleteFunc(w.held, which)
	w.waiting = slices.DeleteFunc(w.waiting, which)
}

func (w *world) drop(t require.TestingT, id ID) {
	require.True(t, w.table.Drop(id))
	require.False(t, w.table.Drop(id))
	w.remove(func(r Request) bool { return r.ID == id })
}

func (w *world) leave(t require.TestingT, m uint64) {
	require.True(t, w.table.Leave(m))
	require.False(t, w.table.Leave(m))
	w.members = slices.DeleteFunc(w.members, func(n uint64) bool { return n == m })
	w.remove(func(r Request) bool { return r.Member == m })
}

// finish grants as the rules say, and then asks of the result what must always be so.
func (w *world) finish(t require.TestingT) {
	revision, before := w.table.Revision, w.waiting
	w.table.Finish(fmt.Sprintf("nonce-%d", revision), 0)
	require.Equal(t, revision+1, w.table.Revision)

	var granted []Request
	w.waiting = nil
	for _, r := range before {
		if blockers(r, slices.Concat(w.held, w.waiting)) != nil {
			w.waiting = append(w.waiting, r)
			continue
		}
		r.Token = revision + 1
		w.held = append(w.held, r)
		granted = append(granted, r)
	}

	held, waiting := slices.Collect(w.table.Held()), slices.Collect(w.table.Waiting())
	require.Equal(t, w.held, append(w.held[:0:0], held...))
	require.Equal(t, w.waiting, append(w.waiting[:0:0], waiting...))
	require.Len(t, w.table.held, len(held), "what was dropped is kept for ever")
	require.Len(t, w.table.waiting, len(waiting), "what was dropped is kept for ever")
	for i, r := range held {
		require.Empty(t, blockers(r, held[:i]), "holders exclude one another")
	}
	for i, r := range waiting {
		require.NotEmpty(t, blockers(r, slices.Concat(held, waiting[:i])), "a request waits for nothing")
	}
	for _, r := range granted {
		now, _ := w.table.Request(r.ID)
		require.Equal(t, w.table.Revision, now.Token)
		earlier := before[:slices.IndexFunc(before, func(b Request) bool { return b.ID == r.ID })]
		stayed := slices.DeleteFunc(slices.Clone(earlier), func(e Request) bool {
			return !slices.ContainsFunc(waiting, func(s Request) bool { return s.ID == e.ID })
		})
		require.Empty(t, blockers(r, stayed), "a request was passed")
		require.Empty(t, blockers(r, slices.Concat(held[:slices.IndexFunc(held, func(h Request) bool {
			return h.ID == r.ID
		})], stayed)), "a request was passed, in sum")
		for _, c := range r.Claims {
			if !c.Shared && c.Of == 0 {
				require.Greater(t, now.Token, w.last[c.Name])
				w.last[c.Name] = now.Token
			}
		}
	}
}

// blockers returns those of others that the request cannot be held beside. What slots are too few
// for, all that have slots block. Behind one that waits with a smaller capacity, that one counts.
func blockers(r Request, others []Request) []Request {
	var all []Request
	for _, c := range r.Claims {
		slots, of, here := c.Slots, c.Of, []Request(nil)
		for _, o := range others {
			for _, oc := range o.Claims {
				if oc.Name == c.Name && (!oc.Shared || !c.Shared) {
					slots += oc.Slots
					here = append(here, o)
					if o.Token == 0 {
						of = min(of, oc.Of)
					}
				}
			}
		}
		if c.Of == 0 || slots > of {
			all = append(all, here...)
		}
	}
	return all
}

// check compares all that the table tells, finished or not.
func (w *world) check(t require.TestingT) {
	require.Equal(t, w.held, append(w.held[:0:0], slices.Collect(w.table.Held())...))
	require.Equal(t, w.waiting, append(w.waiting[:0:0], slices.Collect(w.table.Waiting())...))
	for _, m := range w.members {
		others := func(r Request) bool { return r.Member != m }
		own := slices.DeleteFunc(slices.Concat(w.held, w.waiting), others)
		require.Equal(t, own, append(own[:0:0], w.table.Requests(m)...))
		info, ok := w.table.Member(m)
		require.True(t, ok)
		n, ok := w.table.Find(info.Term)
		require.True(t, ok)
		require.Equal(t, m, n)
	}
	wanted := map[ID]bool{}
	for i, r := range w.waiting {
		members := []uint64{}
		for _, b := range blockers(r, slices.Concat(w.held, w.waiting[:i])) {
			members = append(members, b.Member)
			wanted[b.ID] = true
		}
		slices.Sort(members)
		require.Equal(t, slices.Compact(members), w.table.InTheWay(r.ID))
		require.False(t, w.table.Wanted(r.ID))
	}
	for _, r := range w.held {
		require.Equal(t, wanted[r.ID], w.table.Wanted(r.ID), "%v", r.ID)
		require.Nil(t, w.table.InTheWay(r.ID))
	}

	body := w.table.Encode()
	again, err := Decode(body)
	require.NoError(t, err, "%s", body)
	require.Equal(t, string(body), string(again.Encode()))
	require.Equal(t, index(again), index(w.table))
	require.Equal(t, index(again), index(w.table.Clone()))
}

type entry struct {
	semaphore     bool
	weights       [2]int64
	held, waiting []ID
}

// index is the index with those who hold in an order of its own, because the table keeps none for
// each lock.
func index(t *Table) map[string]entry {
	entries := map[string]entry{}
	for name, l := range t.locks {
		e := entry{semaphore: l.semaphore, weights: [2]int64{l.held, l.waiting}}
		for _, r := range l.line {
			switch {
			case r.dropped():
			case t.requests[r.ID] != r:
				panic(fmt.Sprintf("%s has a request that is not in the table: %v", name, r.ID))
			case r.Token != 0:
				e.held = append(e.held, r.ID)
			default:
				e.waiting = append(e.waiting, r.ID)
			}
		}
		slices.SortFunc(e.held, func(a, b ID) int {
			return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Number, b.Number),
				cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
		})
		entries[name] = e
	}
	return entries
}

// second is what the second of the two locks is that small worlds claim.
type second string

const (
	aLock      second = "a lock"
	aSemaphore second = "a semaphore"
	capacities second = "a semaphore of two capacities" // during a deployment
)

// claimsOf are what small worlds claim. The first few are the most telling.
func claimsOf(is second) [][]Claim {
	a, sharedA := Claim{Name: "a"}, Claim{Name: "a", Shared: true}
	b, otherB := Claim{Name: "b"}, Claim{Name: "b", Shared: true}
	switch is {
	case aSemaphore:
		b, otherB = Claim{Name: "b", Slots: 2, Of: 2}, Claim{Name: "b", Slots: 1, Of: 2}
	case capacities:
		b, otherB = Claim{Name: "b", Slots: 1, Of: 1}, Claim{Name: "b", Slots: 1, Of: 2}
		return [][]Claim{{otherB}, {b}, {a, otherB}, {sharedA, b}, {a}, {sharedA}}
	}
	return [][]Claim{{a, otherB}, {sharedA}, {b}, {otherB}, {a}, {sharedA, b}}
}

// steps returns all that can happen next.
func (w *world) steps(claims [][]Claim, members int) []func(require.TestingT, *world) {
	var steps []func(require.TestingT, *world)
	for _, m := range w.members {
		for _, c := range claims {
			steps = append(steps, func(t require.TestingT, w *world) { w.ask(t, m, c) })
		}
		steps = append(steps, func(t require.TestingT, w *world) { w.leave(t, m) })
	}
	for _, r := range slices.Concat(w.held, w.waiting) {
		steps = append(steps, func(t require.TestingT, w *world) { w.drop(t, r.ID) })
	}
	if len(w.members) < members {
		steps = append(steps, func(_ require.TestingT, w *world) { w.join() })
	}
	return steps
}

// TestEverySequence walks through every history of a few steps. A write has one step, or two.
func TestEverySequence(t *testing.T) {
	for _, b := range []second{aLock, aSemaphore, capacities} {
		for _, perWrite := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, steps in a write %d", b, perWrite), func(t *testing.T) {
				claims, histories := claimsOf(b), 0
				var walk func(w *world, step int)
				walk = func(w *world, step int) {
					if step > testsize.Pick(3, 4) {
						histories++
						return
					}
					before := string(w.table.Encode())
					for _, next := range w.steps(claims, 2) {
						after := w.clone()
						next(t, after)
						if step%perWrite == 0 {
							after.finish(t)
						}
						after.check(t)
						walk(after, step+1)
					}
					require.Equal(t, before, string(w.table.Encode()), "a change of a clone shows in the original")
					w.check(t)
				}
				walk(newWorld(2), 1)
				t.Logf("%d histories", histories)
			})
		}
	}
}

// TestEveryState goes further, but goes on from each state only once, whatever the history and
// whoever is who.
func TestEveryState(t *testing.T) {
	for _, b := range []second{aLock, aSemaphore, capacities} {
		for _, members := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s, members %d", b, members), func(t *testing.T) {
				seen, claims := map[string]bool{}, claimsOf(b)[:testsize.Pick(3, 6)]
				now := []*world{newWorld(members)}
				for range testsize.Pick(4, 5) {
					var next []*world
					for _, w := range now {
						for _, step := range w.steps(claims, members) {
							after := w.clone()
							step(t, after)
							after.finish(t)
							if state := after.state(); !seen[state] {
								seen[state] = true
								after.check(t)
								next = append(next, after)
							}
						}
					}
					now = next
				}
				t.Logf("%d states", len(seen))
			})
		}
	}
}

// state is the table without what decides nothing: revision, tokens, the order of those who hold,
// and which member is which.
func (w *world) state() string {
	var own []string
	for _, m := range w.members {
		var requests []string
		for _, r := range w.table.Requests(m) {
			place := slices.IndexFunc(w.waiting, func(o Request) bool { return o.ID == r.ID })
			requests = append(requests, fmt.Sprint(r.Number, r.Claims, place))
		}
		slices.Sort(requests)
		own = append(own, fmt.Sprint(requests))
	}
	slices.Sort(own)
	return fmt.Sprint(own)
}

// TestLongHistories has crowds, several capacities of one semaphore, and writes of many steps.
func TestLongHistories(t *testing.T) {
	for seed := range testsize.Pick(15, 500) {
		rnd := rand.New(rand.NewPCG(uint64(seed), 0))
		w := newWorld(4)
		for range 60 {
			for range 1 + rnd.IntN(5) {
				if len(w.members) < 4 {
					w.join()
				}
				m := w.members[rnd.IntN(len(w.members))]
				all := slices.Concat(w.held, w.waiting)
				switch choice := rnd.IntN(100); {
				case choice < 3:
					w.leave(t, m)
				case len(all) > 0 && choice < 45:
					w.drop(t, all[rnd.IntN(len(all))].ID)
				default:
					w.ask(t, m, randomClaims(rnd))
				}
			}
			w.check(t)
			w.finish(t)
			w.check(t)
		}
	}
}

func randomClaims(rnd *rand.Rand) []Claim {
	var claims []Claim
	for _, name := range []string{"a", "b", "c", "s3", "s5"} {
		switch {
		case rnd.IntN(3) > 0:
		case name[0] == 's':
			of := int(name[1]-'0') - rnd.IntN(3) // members of two releases
			claims = append(claims, Claim{Name: name, Slots: 1 + rnd.IntN(of), Of: of})
		default:
			claims = append(claims, Claim{Name: name, Shared: rnd.IntN(3) > 0})
		}
	}
	if claims == nil {
		return []Claim{{Name: "a"}}
	}
	return claims
}
