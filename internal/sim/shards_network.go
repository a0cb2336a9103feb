package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
)

var err403 = fmt.Errorf("403 AccessDenied: %w", leasehold.ErrPermanent)

// apply carries out a request of a process at one instant.
func (w *shardWorld) apply(p *shardProcess, r request) reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objects[r.key]
	switch {
	case o == nil && r.kind != "create":
		return reply{err: leasehold.ErrNotExist}
	case r.kind == "get" && r.torn && o.previousETag != "":
		return reply{obj: leasehold.Object{Body: o.body, ETag: o.previousETag}}
	case r.kind == "get":
		return reply{obj: leasehold.Object{Body: o.body, ETag: o.etag}}
	case r.kind == "create" && o != nil, r.kind == "update" && r.ifMatch != o.etag:
		return reply{err: leasehold.ErrPreconditionFailed}
	}
	if o == nil {
		o = &object{}
		w.objects[r.key] = o
	}
	w.versions++
	w.stats.Writes++
	old := o.rec
	if r.key == "g/roster" || r.key == "g/planner" {
		w.former[r.key] = append(w.former[r.key], r.body)
	}
	o.previousETag = o.etag
	o.body, o.etag, o.rec = r.body, fmt.Sprintf("%q", fmt.Sprint("v", w.versions)), leasehold.Record{}
	if isSession := strings.HasPrefix(r.key, "g/members/"); isSession || strings.HasPrefix(r.key, "g/shards/") {
		if err := o.rec.UnmarshalJSON(r.body); err != nil {
			w.violateLocked("a body that is not a record was written to %s: %v", brief(r.key), err)
		}
		if isSession {
			w.checkSessionWrite(p, r, o.rec)
			return reply{obj: leasehold.Object{ETag: o.etag}}
		}
		w.checkShardWrite(p, r, old, o.rec)
	}
	w.writes++
	return reply{obj: leasehold.Object{ETag: o.etag}}
}

// send sends a request, and returns when the member has a reply and its machine runs.
func (p *shardProcess) send(ctx context.Context, r request) (obj leasehold.Object, err error) {
	w := p.w
	p.clock.waitWhileFrozen()
	w.mu.Lock()
	on := !w.chaosOver && time.Since(w.began) < w.cfg.Chaos*7/10
	f := drawFault(p.rand, &w.cfg.Config, w.cfg.RequestFaults, on)
	r.torn = w.cfg.TornReads && on && p.rand.IntN(3) == 0
	w.stats.Requests++
	w.mu.Unlock()
	defer func() { p.checkRequests(err) }()
	if r.kind == "get" && (errors.Is(f.err, leasehold.ErrNotExist) || errors.Is(f.err, leasehold.ErrPreconditionFailed)) {
		f.err = err500
	}
	refuse := func(err error) networkFault {
		return networkFault{requestDelay: time.Millisecond, replyDelay: f.replyDelay, dropRequest: true, err: err}
	}
	switch denied := p.denied.Load(); {
	case p.crashed.Load():
		return leasehold.Object{}, errReset
	case p.cut.Load():
		f = networkFault{dropRequest: true, dropReply: true}
	case p.outage.Load():
		f = refuse(err503)
	case denied != nil && r.kind != "get" && (*denied)(r.key) != nil:
		f = refuse((*denied)(r.key))
	}
	replies := make(chan reply, 1)
	go func() {
		time.Sleep(f.requestDelay)
		var got reply
		if !f.dropRequest {
			got = w.apply(p, r)
			if f.duplicateAfter > 0 {
				time.AfterFunc(f.duplicateAfter, func() { w.apply(p, r) })
			}
		}
		time.Sleep(f.replyDelay)
		if f.err != nil {
			got = reply{err: f.err}
		}
		if !f.dropReply && !p.cut.Load() {
			replies <- got
		}
	}()
	var got reply
	if f.errAtOnce {
		time.Sleep(f.replyDelay)
		got = reply{err: f.err}
	} else {
		select {
		case got = <-replies:
		case <-ctx.Done():
			got = reply{err: ctx.Err()}
		}
	}
	p.clock.waitWhileFrozen()
	if p.crashed.Load() {
		got = reply{err: errReset}
	}
	return got.obj, got.err
}

// Get implements leasehold.Store.
func (p *shardProcess) Get(ctx context.Context, key string) (leasehold.Object, error) {
	return p.send(ctx, request{key: key, kind: "get"})
}

// PutIfNoneMatch implements leasehold.Store.
func (p *shardProcess) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	obj, err := p.send(ctx, request{key: key, kind: "create", body: body})
	return obj.ETag, err
}

// PutIfMatch implements leasehold.Store.
func (p *shardProcess) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	obj, err := p.send(ctx, request{key: key, kind: "update", body: body, ifMatch: etag})
	return obj.ETag, err
}

// DeleteIfMatch implements leasehold.Store. No group may ever call it.
func (p *shardProcess) DeleteIfMatch(context.Context, string, string) error {
	p.w.violate("%s sent a DELETE", p.name)
	return errReset
}

// MinTTL allows any TTL.
func (*shardProcess) MinTTL() time.Duration { return 0 }
