package shards

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// plan says which member is to own each shard. It is advice: the lock of a shard alone decides who owns it.
type plan struct {
	generation string
	deputy     string   // the member that watches along with the planner
	members    []string // first those that are present, then those that are away and have a shard that remembers them
	present    int
	ids        []string // of the shards
	owner      []int    // by shard: the index of a member, or nobody
	home       []int    // by shard: the member that owned it before it left, if that is away; or nobody
}

const nobody = -1

// byID returns the owner and the home of each shard that has one. p may be nil.
func (p *plan) byID() (owner, home map[string]string) {
	owner, home = make(map[string]string), make(map[string]string)
	if p == nil {
		return owner, home
	}
	for i, id := range p.ids {
		if p.owner[i] != nobody {
			owner[id] = p.members[p.owner[i]]
		}
		if p.home[i] != nobody {
			home[id] = p.members[p.home[i]]
		}
	}
	return owner, home
}

// of returns the shards that the plan gives to a member. p may be nil.
func (p *plan) of(member string) map[string]bool {
	mine := make(map[string]bool)
	if p == nil {
		return mine
	}
	index := slices.Index(p.members, member)
	for i, owner := range p.owner {
		if index >= 0 && owner == index {
			mine[p.ids[i]] = true
		}
	}
	return mine
}

// has reports whether the plan knows the member as present. p may be nil.
func (p *plan) has(member string) bool {
	return p != nil && slices.Contains(p.members[:p.present], member)
}

// moved is the number of shards that have another owner in next than in p, which may be nil.
func (p *plan) moved(next *plan) (moved int) {
	before, _ := p.byID()
	after, _ := next.byID()
	for id, owner := range after {
		if before[id] != owner {
			moved++
		}
	}
	return moved
}

// says reports whether p says the same as next. Who is remembered as a home does not count. p may be nil.
func (p *plan) says(next *plan) bool {
	return p != nil && p.generation == next.generation && p.deputy == next.deputy && slices.Equal(p.ids, next.ids) &&
		slices.Equal(p.members[:p.present], next.members[:next.present]) && p.moved(next) == 0
}

// imbalance is the difference between the most and the fewest shards of a member.
func (p *plan) imbalance() int {
	if p.present == 0 {
		return 0
	}
	held := make([]int, p.present)
	for _, owner := range p.owner {
		if owner != nobody {
			held[owner]++
		}
	}
	return slices.Max(held) - slices.Min(held)
}

// event is an event with what the plan says. p may be nil.
func (p *plan) event(kind EventKind) Event {
	if p == nil {
		return Event{Kind: kind}
	}
	return Event{Kind: kind, Members: p.present, Shards: len(p.ids), Imbalance: p.imbalance()}
}

// planObject is a plan as JSON, or what says where it stands if it is too large for the planner's lock: see pieces.
type planObject struct {
	Generation string   `json:"generation,omitempty"`
	Deputy     string   `json:"deputy,omitempty"`
	Members    []string `json:"members,omitempty"`
	Present    int      `json:"present,omitempty"`
	Count      int      `json:"count,omitempty"`  // of numbered shards
	Names      []string `json:"names,omitempty"`  // of the others
	Owners     []byte   `json:"owners,omitempty"` // by shard: 1 + the index of a member, or 0, in two bytes, low byte first
	Homes      []byte   `json:"homes,omitempty"`  // of those that have one: the number of the shard and the index of a member, as uvarints

	Pieces int    `json:"pieces,omitempty"`
	Digest []byte `json:"digest,omitempty"` // of the pieces together
}

func (p *plan) encode(numbered bool) ([]byte, error) {
	o := planObject{
		Generation: p.generation, Deputy: p.deputy, Members: p.members, Present: p.present,
		Owners: encodeOwners(p.owner), Homes: encodeHomes(p.home),
	}
	if numbered {
		o.Count = len(p.ids)
	} else {
		o.Names = p.ids
	}
	return json.Marshal(o)
}

func encodeOwners(owners []int) []byte {
	b := make([]byte, 0, 2*len(owners))
	for _, owner := range owners {
		b = binary.LittleEndian.AppendUint16(b, uint16(owner+1))
	}
	return b
}

func encodeHomes(homes []int) (b []byte) {
	for i, home := range homes {
		if home != nobody {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(i)), uint64(home))
		}
	}
	return b
}

var errBadPlan = errors.New("the plan is damaged")

func (o *planObject) plan() (*plan, error) {
	n := max(o.Count, len(o.Names))
	if len(o.Owners) != 2*n || o.Present < 0 || o.Present > len(o.Members) || o.Count > 0 && len(o.Names) > 0 || o.Count < 0 {
		return nil, fmt.Errorf("%w: %d owners of %d shards, %d of %d members", errBadPlan, len(o.Owners)/2, n, o.Present, len(o.Members))
	}
	p := &plan{generation: o.Generation, deputy: o.Deputy, members: o.Members, present: o.Present, ids: o.Names}
	if o.Count > 0 {
		p.ids = numbers(o.Count)
	}
	if !p.decodeOwners(o.Owners) || !p.decodeHomes(o.Homes) {
		return nil, fmt.Errorf("%w: it names a member or a shard that it does not have", errBadPlan)
	}
	return p, nil
}

func (p *plan) decodeOwners(b []byte) bool {
	p.owner = make([]int, len(p.ids))
	for i := range p.owner {
		p.owner[i] = int(binary.LittleEndian.Uint16(b[2*i:])) - 1
		if p.owner[i] >= p.present {
			return false
		}
	}
	return true
}

func (p *plan) decodeHomes(b []byte) bool {
	p.home = slices.Repeat([]int{nobody}, len(p.ids))
	for len(b) > 0 {
		i, n := binary.Uvarint(b)
		home, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || i >= uint64(len(p.ids)) || home >= uint64(len(p.members)) {
			return false
		}
		p.home[i] = int(home)
		b = b[n+m:]
	}
	return true
}
