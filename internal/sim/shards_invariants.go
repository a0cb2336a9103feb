package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/shards"
)

// begin checks that nobody else owns the shard.
func (w *shardWorld) begin(p *shardProcess, s shards.Shard, run *shardRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	excused := func(p *shardProcess) bool { return p.crashed.Load() || time.Now().Before(p.excusedUntil) }
	former := p.runs[s.ID]
	again := former != nil && former.lease == run.lease || w.tokens[s.ID] == s.Token()
	for _, other := range w.processes {
		theirs := other.runs[s.ID]
		switch {
		case theirs == nil, theirs.lease == run.lease, excused(other), excused(p):
		case theirs.lease.Valid():
			w.violateLocked("%s owns shard %s with token %d while %s owns it with token %d",
				p.name, brief(s.ID), s.Token(), other.name, theirs.lease.Token())
		case theirs.ctx.Err() == nil && !other.clock.isFrozen() && time.Since(other.resumedAt) > w.cfg.TTL/5*11/10:
			w.violateLocked("%s owns shard %s with token %d before the context of %s's token %d has ended",
				p.name, brief(s.ID), s.Token(), other.name, theirs.lease.Token())
		}
	}
	if p.crashed.Load() {
		return
	}
	if !again {
		w.stats.Terms++
	}
	if s.Token() < w.tokens[s.ID] && !excused(p) {
		w.violateLocked("%s owns shard %s with token %d after %d", p.name, brief(s.ID), s.Token(), w.tokens[s.ID])
	}
	w.tokens[s.ID] = max(w.tokens[s.ID], s.Token())
	p.runs[s.ID] = run
}

// checkShardWrite checks every change of a shard's lock. The caller holds w.mu.
func (w *shardWorld) checkShardWrite(p *shardProcess, r request, old, now leasehold.Record) {
	if now.Token != old.Token && now.Token != old.Token+1 {
		w.violateLocked("the token of %s goes from %d to %d", brief(r.key), old.Token, now.Token)
	}
	if old.Token == now.Token && old.Nonce != "" && old.Released() && !now.Released() {
		w.violateLocked("token %d of %s was revived", old.Token, brief(r.key))
	}
	if run := p.runs[strings.TrimPrefix(r.key, "g/shards/")]; run != nil && run.lease.Token() == now.Token && now.Released() {
		p.checkReleased(run, r.key)
	}
}

// checkSessionWrite checks every change of a session by its own process. The caller holds w.mu.
func (w *shardWorld) checkSessionWrite(p *shardProcess, r request, now leasehold.Record) {
	if r.key != "g/members/"+p.member || !now.Released() {
		return
	}
	for _, run := range p.runs {
		if term := run.lease.Record().Session; term != nil && term.ID == now.SessionID && term.Token == now.Token {
			p.checkReleased(run, r.key)
		}
	}
}

// checkReleased wants that a shard is not released while its handler runs, unless it was lost, or the handler did not return for a TTL.
func (p *shardProcess) checkReleased(run *shardRun, key string) {
	if cause := context.Cause(run.lease.Context()); !errors.Is(cause, leasehold.ErrLost) && !p.crashed.Load() {
		p.w.violateLocked("%s released %s while the handler of token %d runs", p.name, brief(key), run.lease.Token())
	}
}

// checkEvent wants that what begins ends before it begins again.
func (p *shardProcess) checkEvent(e shards.Event) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	var begins bool
	switch e.Kind {
	case shards.EventStarted, shards.EventElected:
		begins = true
	case shards.EventStopped, shards.EventRetired:
	default:
		return
	}
	if p.told[e.Shard] == begins {
		p.w.violateLocked("%s tells %q of shard %q twice", p.name, e.Kind, brief(e.Shard))
	}
	p.told[e.Shard] = begins
}

// checkTold wants that a process that has ended has told so of all that it has owned.
func (p *shardProcess) checkTold() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for id, owns := range p.told {
		if owns {
			p.w.violateLocked("%s has not told the end of shard %q", p.name, brief(id))
		}
	}
}

// checkRest wants that all shards are owned within ten TTLs, and balanced soon. Then nothing may move for three TTLs, and only sessions are
// written.
func (w *shardWorld) checkRest() {
	const limit = 10
	w.mu.Lock()
	patience := time.Duration(limit)
	if w.stats.Faults["shard refused"] > 0 {
		patience += 3 * limit // the pauses of a member that could not take shards get longer
	}
	w.mu.Unlock()
	ended, owned := time.Now(), false
	var since time.Time
	var was string
	for ; ; time.Sleep(w.cfg.TTL / 20) {
		rest, why := w.atRest()
		owned = owned || rest != ""
		switch {
		case !owned && time.Since(ended) > limit*w.cfg.TTL:
			w.violate("%d TTLs after the last fault: %s", limit, why)
		case why != "" && time.Since(ended) > patience*w.cfg.TTL:
			w.violate("%d TTLs after the last fault: %s", patience, why)
		case time.Since(ended) > (patience+5)*w.cfg.TTL:
			w.violate("%d TTLs after the last fault there is no rest: %s, before %s", patience+5, rest, was)
		case why != "" || rest != was:
			since, was = time.Now(), rest
			continue
		case time.Since(since) > 3*w.cfg.TTL:
			return
		default:
			continue
		}
		w.log("world", "roster: %s", w.body("g/roster"))
		return
	}
}

func (w *shardWorld) body(key string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.objects[key]; o != nil {
		return o.body
	}
	return nil
}

// atRest says who owns the shards, or nothing if some have no owner, and why they are not balanced; "" if they are.
func (w *shardWorld) atRest() (rest, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	votes, most := make(map[int]int), 0
	for _, p := range w.nodes {
		if !p.stopped && !p.crashed.Load() {
			votes[p.shards]++
			most = max(most, votes[p.shards])
		}
	}
	for _, n := range slices.Sorted(maps.Keys(votes)) {
		if votes[n] < most {
			continue
		}
		var names []string
		if w.cfg.Named {
			names = slices.Sorted(slices.Values(w.names))
		} else {
			for i := range n {
				names = append(names, fmt.Sprint(i))
			}
			slices.Sort(names)
		}
		if rest, why = w.dividedBy(n, names); rest != "" {
			break
		}
	}
	return rest, why
}

// dividedBy is atRest, if the members that have n shards own them all. The caller holds w.mu.
func (w *shardWorld) dividedBy(n int, names []string) (rest, why string) {
	owners, counts, tokens := make(map[string]string), make(map[string]int), make(map[string]uint64)
	for _, p := range w.nodes {
		if p.stopped || p.crashed.Load() {
			continue
		}
		if p.shards == n {
			counts[p.name] = 0
		}
		for _, s := range p.group.Owned() {
			if owners[s.ID] != "" {
				w.violateLocked("shard %s is owned by %s and by %s", brief(s.ID), owners[s.ID], p.name)
			}
			owners[s.ID], tokens[s.ID] = p.name, s.Token()
			if p.shards == n {
				counts[p.name]++
			}
		}
	}
	if got := slices.Sorted(maps.Keys(owners)); !slices.Equal(got, names) {
		return "", fmt.Sprintf("%d shards are owned, of %d: %s", len(got), len(names), briefly(owners))
	}
	if all := slices.Collect(maps.Values(counts)); len(all) > 0 && slices.Max(all)-slices.Min(all) > 1 {
		why = fmt.Sprintf("not balanced: %v", counts)
	}
	return fmt.Sprintf("%s %s, %d writes", briefly(owners), briefly(tokens), w.writes), why
}

func briefly[V any](of map[string]V) string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&b, "%s:%v ", brief(id), of[id])
	}
	return b.String()
}

// shardRequest is a request that was sent.
type shardRequest struct {
	at     time.Time
	failed bool
}

// checkRequests bounds what a process sends within a TTL: the renewals of its session, and once per poll interval reads of the session,
// the plan, the roster, the planner's lock, the members' sessions, as planner and for shards that they hold, and of each shard. Each
// request that has failed explains two more: a try reads the lock before it writes, and after that has failed.
func (p *shardProcess) checkRequests(err error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	p.recent = append(p.recent, shardRequest{now, err != nil})
	for now.Sub(p.recent[0].at) > w.cfg.TTL {
		p.recent = p.recent[1:]
	}
	failed := 0
	for _, r := range p.recent {
		if r.failed {
			failed++
		}
	}
	explained := 3 + 5*(5+2*len(w.nodes)+max(len(w.names), p.shards))
	if n := len(p.recent) - 3*failed; float64(n) > enough*float64(explained) && !p.stormy {
		p.stormy = true
		w.violateLocked("request storm: %s sent %d requests within a TTL, of which %d failed; its intervals explain %d",
			p.name, len(p.recent), failed, explained)
	}
}
