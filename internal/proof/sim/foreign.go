package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

// Foreign clients need wall clocks that agree: see WithSkewAllowance. Here they do within twice
// foreignSkew, and everybody allows for foreignAllowance, which is the default.
const (
	foreignSkew      = 2 * time.Second
	foreignAllowance = 5 * time.Second
)

// foreignRecord is how a foreign client writes.
type foreignRecord int

const (
	twoMembers foreignRecord = iota // expires_at and token, the published protocol
	noToken                         // expires_at alone
	allMembers                      // also those that it does not know, as it has read them, and one of its own
	sameTerm                        // those too, and the token: only expires_at is its own
)

// foreignClient is another program that uses the lock by the published protocol: it knows only
// expires_at and token. It takes a lock that is released, or has expired by its wall clock. It
// renews, and releases or lets the lock run out.
func (w *world) foreignClient(ctx context.Context) {
	r, often := w.rng("foreign"), w.cfg.TTL/2
	if w.cfg.Handles { // so that it is there before others are, and heirs find that it has kept their term
		often = w.cfg.TTL / 20
	}
	for ctx.Err() == nil {
		time.Sleep(below(r, often))
		if w.faultsOn() {
			w.foreignTerm(r)
		}
	}
}

// foreignTerm is one term of the foreign client, if it can take the lock.
func (w *world) foreignTerm(r *rand.Rand) {
	kind, now := min(foreignRecord(r.IntN(5)), sameTerm), time.Now()
	if w.cfg.Handles && r.IntN(2) == 0 {
		kind = sameTerm
	}
	got := w.store.apply(nil, request{kind: "get"})
	var rec leasehold.Record
	if got.err != nil || json.Unmarshal(got.obj.Body, &rec) != nil || !rec.Released() &&
		now.Before(rec.ExpiresAt.Add(foreignAllowance)) {
		return
	}
	if !rec.Released() {
		w.mark("a foreign takeover")
		w.checkForeignTakeover(rec.Token)
	}
	token, etag, ok := rec.Token+1, got.obj.ETag, true
	if kind == sameTerm {
		token = rec.Token
	}
	if kind == noToken || kind == sameTerm && rec.Released() { // which begins a term of the same token
		w.mu.Lock()
		w.tokenErased = true
		w.mu.Unlock()
	}
	var until time.Time
	for first := true; ok; first = false {
		// also longer than the ttl that it may have kept, and never shorter than it was
		until = latest(until, time.Now().Add(below(r, 2*w.cfg.TTL)))
		if etag, ok = w.foreignWrite(kind, got.obj.Body, token, etag, until, first); !ok {
			return
		}
		w.markIf(kind == sameTerm, "a foreign client keeps the term")
		w.log("foreign", "holds token %d until %v", token, until.Sub(w.began))
		time.Sleep(time.Until(until) * 3 / 4)
		if r.IntN(2) == 0 || !w.faultsOn() {
			break
		}
	}
	if r.IntN(2) == 0 {
		_, _ = w.foreignWrite(kind, got.obj.Body, token, etag, time.Time{}, false)
	}
}

// foreignHolds reports whether the foreign client holds the lock by a record that keeps a term.
func (w *world) foreignHolds(token uint64) bool {
	rec, _ := w.store.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	return rec.Token == token && time.Now().Before(w.foreignUntil)
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// foreignWrite writes a record over the version that etag names. An until of zero releases.
func (w *world) foreignWrite(kind foreignRecord, read []byte, token uint64, etag string, until time.Time,
	first bool) (next string, ok bool) {
	expires := 0.0
	if !until.IsZero() {
		expires = float64(until.UnixMicro()) / 1e6
	}
	body := fmt.Appendf(nil, `{"expires_at": %f, "token": %d}`, expires, token)
	switch kind {
	case noToken:
		body = fmt.Appendf(nil, `{"expires_at": %f}`, expires)
	case allMembers, sameTerm:
		members := map[string]any{}
		_ = json.Unmarshal(read, &members)
		members["expires_at"] = expires
		if kind == allMembers {
			members["token"], members["owner"] = token, "foreign"
		}
		body, _ = json.Marshal(members)
	}
	w.mu.Lock()
	before := w.foreignUntil
	w.foreignUntil = until // before the write, in whose checks it counts
	w.mu.Unlock()
	step := w.trace.foreignSends(body, etag, first, until)
	put := w.store.apply(nil, request{kind: "update", body: body, ifMatch: etag, step: step})
	if put.err == nil && !until.IsZero() {
		w.trace.foreignHolds(step)
	}
	if put.err != nil {
		w.mu.Lock()
		w.foreignUntil = before
		w.mu.Unlock()
	}
	return put.obj.ETag, put.err == nil
}

// checkForeignTakeover wants every lease over when a foreign client takes a lock that has expired
// by its wall clock.
func (w *world) checkForeignTakeover(token uint64) {
	for _, l := range w.accountable() {
		if justResumed := time.Since(l.resumedAt) <= latestEnd(l.lease); l.lease.Valid() ||
			l.lease.Context().Err() == nil && !justResumed {
			w.violate("a foreign client found token %d expired by its wall clock before the lease of %s with token "+
				"%d was over", token, l.name, l.lease.Token())
		}
	}
}
