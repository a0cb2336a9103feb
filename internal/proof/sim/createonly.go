package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/createonly"
)

// NewCreateOnlyConfig draws the world of a seed with a store on which objects can only be created.
// It lasts longer, machines stop for longer, and requests land later, so that others write more
// than [createonly.Keep] versions meanwhile.
func NewCreateOnlyConfig(seed uint64) *Config {
	c := NewConfig(seed)
	c.CreateOnly = true
	c.Ages, c.TornReads, c.OneWriteASecond, c.SlowCreates, c.HashETags = NoAges, false, false, false, false
	if !c.Long {
		c.Chaos *= createOnlyTimes
		for i := range c.Actions {
			a := &c.Actions[i]
			a.At *= createOnlyTimes
			a.For = min(2*createOnlyTimes*a.For, c.Chaos-a.At) // who has crashed is back in the end
		}
	}
	return c
}

const (
	createOnlyTimes = 4
	versionName     = 9_999_999_999_999_999 // minus the version
)

// versionOf returns the version that the name of an object says.
func versionOf(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, lockKey+"/.leasehold-versions/.leasehold-"))
	return versionName - n
}

func etagOf(version int) string { return fmt.Sprintf("%q", fmt.Sprint("v", version)) }

// serveObjects carries out a request of a [createonly.Store]. The versions are the same that the
// lock has in other worlds, so the same invariants hold for each write of the next one. What is
// created in the place of a version that has been removed must have no effect. The caller holds
// s.mu.
func (s *store) serveObjects(sender *process, r request) reply {
	was, exists := s.objects[r.version]
	switch r.kind {
	case "list":
		return reply{versions: slices.Sorted(maps.Keys(s.objects))}
	case "delete":
		s.w.markIf(exists && r.fate.answered.Load(), "a late delete")
		s.w.markIf(r.version+2*createonly.Keep < s.versions, "a delete after many versions")
		if exists && r.version+createonly.Keep > s.versions {
			s.w.violate("%s deleted version %d, and the highest is %d", sender.label(), r.version, s.versions)
		}
		delete(s.objects, r.version)
		return reply{}
	case "get":
		if !exists {
			s.w.mark("deleted before it is read")
			return reply{err: leasehold.ErrNotExist}
		}
		s.w.markIf(was.tooLate, "a read of a late create")
		return reply{obj: leasehold.Object{Body: was.body, ETag: etagOf(r.version)}, version: etagOf(r.version)}
	}
	s.w.arrives(r)
	switch {
	case exists && r.tries():
		s.tried(sender, r)
	case exists:
		s.w.refuses(sender, r)
	case r.version != s.versions+1:
		s.w.markIf(r.fate.answered.Load(), "a create too late")
		s.w.markIf(!r.fate.answered.Load(), "a create by a sleeper")
		s.objects[r.version] = object{r.body, true}
		return reply{}
	default:
		return s.land(sender, r)
	}
	return reply{err: leasehold.ErrPreconditionFailed}
}

// object is a version of the lock in a world with CreateOnly.
type object struct {
	body    []byte
	tooLate bool // created in the place of a version that has been removed
}

// keep keeps the version that has just been written, in a world in which versions are objects. The
// caller holds s.mu.
func (s *store) keep() {
	if !s.w.cfg.CreateOnly {
		return
	}
	if s.objects == nil {
		s.objects = make(map[int]object)
	}
	s.objects[s.versions] = object{body: s.body}
	s.written = append(s.written, s.body)
}

// checkRead wants that what a [createonly.Store] has read is what its version was written with.
func (s *store) checkRead(by *process, o leasehold.Object) {
	if o.Body == nil {
		return
	}
	n, _, _ := strings.Cut(o.ETag, "-")
	version, err := strconv.Atoi(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || version > len(s.written) || !bytes.Equal(o.Body, s.written[version-1]) {
		s.w.violate("%s has read %q as version %s", by.label(), o.Body, o.ETag)
	}
}

// objects is the client as the [createonly.Objects] of a store.
type objects struct{ *client }

// Create implements [createonly.Objects].
func (o objects) Create(ctx context.Context, name string, body []byte) error {
	n := versionOf(name)
	r := request{kind: "update", body: bytes.Clone(body), ifMatch: etagOf(n - 1), version: n}
	if n == 1 {
		r.kind, r.ifMatch = "create", ""
	}
	return unlessPage(o.send(ctx, r))
}

// Get implements [createonly.Objects].
func (o objects) Get(ctx context.Context, name string) ([]byte, error) {
	got := o.send(ctx, request{kind: "get", version: versionOf(name)})
	return got.obj.Body, unlessPage(got)
}

// List implements [createonly.Objects].
func (o objects) List(ctx context.Context, prefix string) (names []string, err error) {
	got := o.send(ctx, request{kind: "list"})
	for _, n := range got.versions {
		names = append(names, prefix+".leasehold-"+strconv.Itoa(versionName-n))
	}
	return names, unlessPage(got)
}

// Delete implements [createonly.Objects].
func (o objects) Delete(ctx context.Context, name string) error {
	return unlessPage(o.send(ctx, request{kind: "delete", version: versionOf(name)}))
}

var errPage = errors.New("the answer is a web page")

func unlessPage(got reply) error {
	if got.page {
		return errPage
	}
	return got.err
}

// calls sends whole calls to the [createonly.Store] of a client. It counts calls, not requests,
// because these are in proportion.
type calls struct {
	*client
	store *createonly.Store
}

func (c calls) send(ctx context.Context, r request) (got reply) {
	i, sentAt := c.note(r), c.p.clock.Now().Mono
	switch r.kind {
	case "get":
		if got.obj, got.err = c.store.Get(ctx, r.key); got.err == nil {
			got.obj.Age = c.reportedAge(reply{obj: got.obj, version: got.obj.ETag}, sentAt)
			c.learns(got.obj.Body)
		}
		c.read(ctx, r, got)
		c.p.w.store.checkRead(c.p, got.obj)
	case "create":
		got.obj.ETag, got.err = c.store.PutIfNoneMatch(ctx, r.key, r.body)
	case "update":
		got.obj.ETag, got.err = c.store.PutIfMatch(ctx, r.key, r.body, r.ifMatch)
	default: // no lock may ever
		got = c.client.send(ctx, r)
	}
	if r.writes() && got.err == nil {
		c.learns(r.body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[i].failed = got.err != nil && (r.kind != "get" || !errors.Is(got.err, leasehold.ErrNotExist))
	return got
}
