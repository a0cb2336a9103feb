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

// write is one conditional PUT, from when it is sent.
type write struct {
	by      *client
	attempt int // of the client
	seq     int // in that attempt
	name    string
	body    []byte
	rec     leasehold.Record
	create  bool
	ifMatch string
	etag    string // once applied
}

// request is a request whose reply a client waits for.
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

// serve carries out a request.
func (w *world) serve(r *request) reply {
	if r.put != nil {
		return w.apply(r.put)
	}
	if w.object == nil {
		return reply{err: leasehold.ErrNotExist}
	}
	obj := leasehold.Object{Body: w.object.body, ETag: w.object.etag}
	if w.cfg.ReportsAge {
		obj.Age = w.now - w.writtenAt
	}
	return reply{obj: obj, of: w.object}
}

// apply carries out a write and checks the new token.
func (w *world) apply(p *write) reply {
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
		w.violate("%s changed the token from %d to %d", p.name, old.Token, now.Token)
	case now.Token == old.Token && old.Released() && !now.Released():
		w.violate("%s revived the released token %d", p.name, now.Token)
	}
	stored := *p
	if stored.etag != "" { // a duplicate
		w.duplicates++
	}
	stored.etag = fmt.Sprintf("%q", fmt.Sprint(p.name, "/", w.duplicates))
	p.etag = stored.etag
	w.object, w.writtenAt, w.ghostly = &stored, w.now, false
	return reply{obj: leasehold.Object{ETag: stored.etag}, of: &stored}
}

func (c *client) answer(r reply) {
	pending := c.pending
	c.pending = nil
	if pending.get && r.err == nil {
		if c.w.cfg.ReportsAge && c.lastRead == r.of { // as if the store's clock had been stepped
			r.obj.Age += time.Hour
		}
		c.lastRead = r.of
	}
	c.note(fmt.Sprint(r.err, r.obj.Age), r.of)
	pending.reply <- r
}

func (c *client) send(put *write) (leasehold.Object, error) {
	c.w.mu.Lock()
	if c.dead {
		c.w.mu.Unlock()
		return leasehold.Object{}, io.ErrClosedPipe
	}
	if put != nil {
		c.writes++
		put.by, put.attempt, put.seq = c, c.attempts, c.writes
		put.name = fmt.Sprintf("%s.%d put %d", c.name, put.attempt, put.seq)
		if err := json.Unmarshal(put.body, &put.rec); err != nil {
			c.w.violate("the body of %s is not a record: %v", put.name, err)
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

// Describe keeps the worlds small: no request tries the store.
func (*client) Describe() leasehold.StoreInfo { return leasehold.StoreInfo{Conditional: true} }

// Get implements leasehold.Store.
func (c *client) Get(context.Context, string) (leasehold.Object, error) { return c.send(nil) }

// PutIfNoneMatch implements leasehold.Store.
func (c *client) PutIfNoneMatch(_ context.Context, _ string, body []byte) (string, error) {
	o, err := c.send(&write{body: body, create: true})
	return o.ETag, err
}

// PutIfMatch implements leasehold.Store.
func (c *client) PutIfMatch(_ context.Context, _ string, body []byte, etag string) (string, error) {
	o, err := c.send(&write{body: body, ifMatch: etag})
	return o.ETag, err
}

// DeleteIfMatch implements leasehold.Store.
func (c *client) DeleteIfMatch(context.Context, string, string) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.violate("%s sent a DELETE", c.name)
	return errors.ErrUnsupported
}
