package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// roster is the object in which members make themselves known to the planner. Nobody is a member because of it alone: a member is
// present while its session is held.
type roster struct {
	Members map[string]entry `json:"members"`
}

// entry is what a member says of itself.
type entry struct {
	Generation string   `json:"generation"`
	Refused    []string `json:"refused,omitempty"` // shards that it could not take
}

// decodeRoster reads a roster. One that is damaged counts as empty, because those that the plan omits enter themselves again.
func decodeRoster(body []byte) roster {
	r := roster{}
	if json.Unmarshal(body, &r) != nil || r.Members == nil {
		r = roster{Members: make(map[string]entry)}
	}
	return r
}

func (e entry) equal(f entry) bool {
	return e.Generation == f.Generation && slices.Equal(e.Refused, f.Refused)
}

// editRoster makes one try to change the roster, and returns what is there then.
func (g *Group) editRoster(ctx context.Context, change func(roster)) (roster, error) {
	body, err := g.edit(ctx, g.key("roster"), func(old []byte) ([]byte, error) {
		was, now := decodeRoster(old), decodeRoster(old)
		if change(now); len(old) > 0 && maps.EqualFunc(was.Members, now.Members, entry.equal) {
			return old, nil
		}
		body, err := json.Marshal(now)
		if len(body) > leasehold.MaxObjectSize {
			return nil, fmt.Errorf("the roster of %d members would have %d bytes, over the limit of %d: use shorter names of members",
				len(now.Members), len(body), leasehold.MaxObjectSize)
		}
		return body, err
	})
	if err != nil {
		return roster{}, fmt.Errorf("the roster: %w", err)
	}
	return decodeRoster(body), nil
}

// entrance is a member's own entry in the roster. It is used on one goroutine.
type entrance struct {
	g      *Group
	at     time.Duration // monotonic time of the next look at the roster
	joined bool          // the entry was written, or found there, since Run began
}

// maxReported bounds the shards that a member reports, so that the roster stays small.
const maxReported = 100

// visit enters the member in the roster if the plan omits it or is for another set, and reports shards that it could not take. Many
// members may start at once, so each waits for a random time first, and again if another was faster.
func (e *entrance) visit(ctx context.Context, p *plan) error {
	g, now := e.g, e.g.now()
	refused := g.toReport()
	if e.joined && p.has(g.member) && p.generation == g.set.generation() && len(refused) == 0 {
		e.at = 0
		return nil
	}
	if e.at == 0 && !e.joined {
		e.at = now + g.within(g.poll/2)
	}
	if now < e.at || !g.session.Held() {
		return nil
	}
	fresh := !e.joined
	_, err := g.editRoster(ctx, func(r roster) {
		mine, found := r.Members[g.member]
		if fresh || !found || mine.Generation != g.set.generation() {
			mine = entry{Generation: g.set.generation()}
		}
		mine.Refused = sorted(append(slices.Clone(mine.Refused), refused...))
		if len(mine.Refused) == 0 {
			mine.Refused = nil
		}
		mine.Refused = mine.Refused[:min(len(mine.Refused), maxReported)]
		r.Members[g.member] = mine
	})
	switch {
	case err == nil:
		e.at, e.joined = now+clock.Jitter(g.clock, g.ttl), true
		g.reported(refused)
		if fresh {
			g.emit(Event{Kind: EventJoined})
		}
		return nil
	case errors.Is(err, leasehold.ErrPreconditionFailed):
		e.at = now + g.within(g.poll)
		return nil
	}
	e.at = now + clock.Jitter(g.clock, g.poll)
	return err
}
