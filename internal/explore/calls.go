package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

// version is one conditional PUT, from when it is sent, and then what it has put.
type version struct {
	by      *process
	key     string
	name    string // of the writer, the key, and the number of the writer's PUTs to it
	rec     leasehold.Record
	body    []byte
	create  bool
	ifMatch string
}

func (v *version) etag() string { return fmt.Sprintf("%q", v.name) }

// call is a request whose answer a process waits for.
type call struct {
	p      *process
	key    string
	put    *version      // nil if it is a GET
	sent   time.Duration // by the process's monotonic clock
	until  time.Duration // it has its answer
	hangs  bool
	landed *answer // what the process will hear when it wakes
	reply  chan answer
}

type answer struct {
	err error
	of  *version
}

func (c *call) name() string {
	if c.put != nil {
		return c.put.name
	}
	return fmt.Sprint(c.p.name, " get ", c.key)
}

// serve carries out a request.
func (c *call) serve() answer {
	if c.put != nil {
		return c.p.w.apply(c.put)
	}
	v := c.p.w.store[c.key]
	if v == nil {
		return answer{err: leasehold.ErrNotExist}
	}
	return answer{of: v}
}

// answer tells the process.
func (c *call) answer(a answer) {
	p, w := c.p, c.p.w
	w.calls = slices.DeleteFunc(w.calls, func(other *call) bool { return other == c })
	if a.of != nil && a.of.by == p && c.key == sessionKey(p.index) {
		p.known = p.sent[a.of.name]
	}
	p.hears(c, a)
	c.reply <- a
}

// matches reports whether the condition of a write holds. If it does not, it never will, because no version comes back, unless
// somebody deletes the object.
func (w *sessionWorld) matches(v *version) bool {
	now := w.store[v.key]
	if v.create || now == nil {
		return v.create && now == nil
	}
	return now.etag() == v.ifMatch
}

// apply carries out a write, and checks it.
func (w *sessionWorld) apply(v *version) answer {
	old := w.store[v.key]
	switch {
	case w.matches(v):
	case old == nil:
		return answer{err: leasehold.ErrNotExist}
	default:
		return answer{err: leasehold.ErrPreconditionFailed}
	}
	w.checkWrite(v, old)
	w.store[v.key] = v
	return answer{of: v}
}

func (p *process) send(key string, put *version) answer {
	w := p.w
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		return answer{err: errDead}
	}
	if put != nil {
		p.puts[key]++
		put.by, put.key, put.name = p, key, fmt.Sprint(p.name, " put ", key, " ", p.puts[key])
		p.sent[put.name] = p.reading()
		if err := json.Unmarshal(put.body, &put.rec); err != nil {
			w.violate("the body of %s is not a record: %v", put.name, err)
		}
	}
	c := &call{p: p, key: key, put: put, sent: p.reading().Mono, until: p.reading().Mono + attempt, reply: make(chan answer, 1)}
	w.calls = append(w.calls, c)
	w.events++
	w.mu.Unlock()
	return <-c.reply
}

// Get implements leasehold.Store.
func (p *process) Get(_ context.Context, key string) (leasehold.Object, error) {
	a := p.send(key, nil)
	if a.err != nil {
		return leasehold.Object{}, a.err
	}
	return leasehold.Object{Body: a.of.body, ETag: a.of.etag()}, nil
}

// PutIfNoneMatch implements leasehold.Store.
func (p *process) PutIfNoneMatch(_ context.Context, key string, body []byte) (string, error) {
	return etagOf(p.send(key, &version{body: body, create: true}))
}

// PutIfMatch implements leasehold.Store.
func (p *process) PutIfMatch(_ context.Context, key string, body []byte, etag string) (string, error) {
	return etagOf(p.send(key, &version{body: body, ifMatch: etag}))
}

func etagOf(a answer) (string, error) {
	if a.err != nil {
		return "", a.err
	}
	return a.of.etag(), nil
}

// DeleteIfMatch implements leasehold.Store.
func (p *process) DeleteIfMatch(context.Context, string, string) error {
	p.w.violateLocked("%s sent a DELETE", p.name)
	return errors.ErrUnsupported
}

// faults are what can go wrong with a call. Each is done under w.mu.
func (c *call) faults() []choice {
	w := c.p.w
	list := []choice{{"lost", func() { c.answer(answer{err: context.DeadlineExceeded}) }}}
	if !c.hangs {
		list = append(list, choice{"hangs", func() { c.hangs, c.until = true, c.until+2*ttl }})
	}
	if c.put == nil {
		if w.store[c.key] != nil {
			list = append(list, choice{"said to be missing", func() { c.answer(answer{err: leasehold.ErrNotExist}) }})
		}
		return list
	}
	if !w.matches(c.put) {
		return list
	}
	return append(list,
		choice{"applied, no reply", func() { c.serve(); c.answer(answer{err: io.ErrUnexpectedEOF}) }},
		choice{"applied, answered 412", func() { c.serve(); c.answer(answer{err: leasehold.ErrPreconditionFailed}) }},
		choice{"timed out, may be applied later", func() {
			w.ghosts = append(w.ghosts, c.put)
			c.answer(answer{err: context.DeadlineExceeded})
		}})
}
