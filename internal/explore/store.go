package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/leasehold-go/leasehold"
)

// write is one conditional PUT on its way.
type write struct {
	by      *client
	round   int // of by
	seq     int // in that round
	name    string
	body    []byte
	rec     leasehold.Record
	create  bool
	ifMatch string
	etag    string // once landed
}

// request is one that a client waits for.
type request struct {
	get   bool
	put   *write
	reply chan reply
}

type reply struct {
	obj leasehold.Object
	err error
	of  *write // the version in obj
}

// serve carries out a request that arrives.
func (w *world) serve(r *request) reply {
	if r.put != nil {
		return w.land(r.put)
	}
	if w.object == nil {
		return reply{err: leasehold.ErrNotExist}
	}
	obj := leasehold.Object{Body: w.object.body, ETag: w.object.etag}
	if w.cfg.TellsAge {
		obj.Age = w.now - w.landedAt
	}
	return reply{obj: obj, of: w.object}
}

// land applies a write, and checks what may never happen to the register.
func (w *world) land(p *write) reply {
	switch {
	case p.create && w.object != nil, !p.create && w.object != nil && w.object.etag != p.ifMatch:
		return reply{err: leasehold.ErrPreconditionFailed}
	case !p.create && w.object == nil:
		return reply{err: leasehold.ErrNotExist}
	}
	var old leasehold.Record
	if w.object != nil {
		old = w.object.rec
	}
	switch now := p.rec; {
	case now.Token < old.Token || now.Token > old.Token+1:
		w.violate("%s: token went from %d to %d", p.name, old.Token, now.Token)
	case now.Token == old.Token && old.Released() && !now.Released():
		w.violate("%s: token %d came back to life", p.name, now.Token)
	}
	landed := *p
	if landed.etag != "" { // a second copy
		w.copies++
	}
	landed.etag = fmt.Sprintf("%q", fmt.Sprint(p.name, "/", w.copies))
	p.etag = landed.etag
	w.object, w.landedAt = &landed, w.now
	return reply{obj: leasehold.Object{ETag: landed.etag}, of: &landed}
}

func (c *client) answer(r reply) {
	pending := c.pending
	c.pending = nil
	if pending.get && r.err == nil {
		if c.w.cfg.TellsAge && c.shown == r.of { // the store's clock was stepped
			r.obj.Age += time.Hour
		}
		c.shown = r.of
	}
	c.note(fmt.Sprint(r.err, r.obj.Age), r.of)
	pending.reply <- r
}

func (c *client) do(put *write) (leasehold.Object, error) {
	c.w.mu.Lock()
	if c.dead {
		c.w.mu.Unlock()
		return leasehold.Object{}, io.ErrClosedPipe
	}
	if put != nil {
		c.writes++
		put.by, put.round, put.seq = c, c.rounds, c.writes
		put.name = fmt.Sprintf("%s.%d put %d", c.name, put.round, put.seq)
		if err := json.Unmarshal(put.body, &put.rec); err != nil {
			c.w.violate("%s is no record: %v", put.name, err)
		}
	}
	r := &request{get: put == nil, put: put, reply: make(chan reply, 1)}
	c.pending = r
	c.note("sends", nil)
	c.w.mu.Unlock()
	select {
	case answer := <-r.reply:
		return answer.obj, answer.err
	case <-c.ctx.Done():
		return leasehold.Object{}, io.ErrClosedPipe
	}
}

// Get implements leasehold.Store.
func (c *client) Get(context.Context, string) (leasehold.Object, error) { return c.do(nil) }

// PutIfNoneMatch implements leasehold.Store.
func (c *client) PutIfNoneMatch(_ context.Context, _ string, body []byte) (string, error) {
	o, err := c.do(&write{body: body, create: true})
	return o.ETag, err
}

// PutIfMatch implements leasehold.Store.
func (c *client) PutIfMatch(_ context.Context, _ string, body []byte, etag string) (string, error) {
	o, err := c.do(&write{body: body, ifMatch: etag})
	return o.ETag, err
}

// DeleteIfMatch implements leasehold.Store.
func (c *client) DeleteIfMatch(context.Context, string, string) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.violate("%s sent a DELETE", c.name)
	return errors.ErrUnsupported
}
