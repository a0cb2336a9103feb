package shards

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Check is for a health endpoint. It fails if a handler still runs a poll interval after its context has ended, if the member's session
// is unhealthy (see [leasehold.Session.Check]), which it also is if another process has this member's name, or if the plan could not be
// read for two TTLs. A member without shards is healthy, and so is one whose handlers return errors. Check sends no request. The
// argument is ignored; it makes Check a Kubernetes healthz.Checker.
func (g *Group) Check(r *http.Request) error {
	if g == nil || g.session == nil {
		return errors.New("shards: this Group was not made by New")
	}
	if !g.running.Load() {
		return nil
	}
	if late := g.late(); len(late) > 0 {
		return fmt.Errorf("shards: %d handlers still run although their contexts have ended: %s",
			len(late), strings.Join(late[:min(len(late), 10)], ", "))
	}
	if err := g.session.Check(r); err != nil {
		return fmt.Errorf("shards: member %q: %w", g.member, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if silent := g.now() - g.answered; silent > 2*max(g.ttl, g.poll) {
		return fmt.Errorf("shards: the plan could not be read for %v: %w", silent.Round(time.Second), g.readError)
	}
	return nil
}

// late returns the shards whose handlers should have returned.
func (g *Group) late() (ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for id, w := range g.workers {
		if w.lease != nil && w.endedAt > 0 && now-w.endedAt > g.poll {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
