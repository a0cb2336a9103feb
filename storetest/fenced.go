package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// RunFenced checks every promise of [fenced.Backend], in one subtest each, on the backends that
// newBackend returns. It then checks that a [fenced.Store] on a backend refuses writes of former
// leaders. newBackend may return the same backend each time, because RunFenced uses no key twice.
// All keys begin with "storetest/", and all objects remain. Use -race, and test against the real
// server.
//
// Bodies have up to 100,000 bytes. sizes are further sizes of bodies to check, in bytes. Pass one
// for each way in which the backend sends a body, such as in several requests.
//
// The refusal of a write may be any error that does not match [leasehold.ErrPermanent].
func RunFenced(t *testing.T, newBackend func(t *testing.T) fenced.Backend, sizes ...int) {
	t.Helper()
	for _, c := range fencedChecks(sizes) {
		t.Run(c.name, func(t *testing.T) {
			if err := c.run(t.Context(), newBackend(t)); err != nil {
				t.Errorf("the backend breaks the promise %q: %v", c.why, err)
			}
		})
	}
}

type fencedCheck struct {
	name, why string
	run       func(ctx context.Context, b fenced.Backend) error
}

const (
	fencedWays   = 8  // writers in a race
	fencedRounds = 25 // races of each kind
)

func fencedChecks(sizes []int) (all []fencedCheck) {
	sizes = append([]int{0, 1, 100_000}, sizes...)
	check := func(name, why string, run func(fencedProbe) error) {
		all = append(all, fencedCheck{name, why, func(ctx context.Context, b fenced.Backend) error {
			return run(fencedProbe{ctx, b, newKey("fenced-" + name), sizes})
		}})
	}
	check("missing", "a key without an object has the zero Version, and only a create writes it", fencedProbe.missing)
	check("metadata", "Head and Get show the metadata of the last write, and nothing else", fencedProbe.metadata)
	check("bodies", "bodies, sizes and content types come back as they were written", fencedProbe.bodies)
	check("create", "a Put of a zero Version replaces nothing, also of many at once", fencedProbe.create)
	check("replace", "a Put replaces exactly the Version that it was given, also of many at once", fencedProbe.replace)
	check("ids", "no two versions of a key have the same ID, even if their bodies are equal", fencedProbe.ids)
	check("cut", "a body that cannot be read to its end is not written", fencedProbe.cut)
	check("context", "with an ended context every call fails and changes nothing, and its end ends a read",
		fencedProbe.endedContext)
	check("set-metadata", "SetMetadata replaces exactly the Version that it was given, gives it a new ID, and keeps "+
		"the rest", fencedProbe.setMetadata)
	check("store", "a Store refuses former leaders", fencedProbe.store)
	return all
}

// fencedProbe is a check of a backend under way.
type fencedProbe struct {
	ctx   context.Context
	b     fenced.Backend
	key   string
	sizes []int // of bodies
}

// at returns a copy of p with suffix added to its key.
func (p fencedProbe) at(suffix string) fencedProbe {
	p.key += suffix
	return p
}

// written is a version as a Store writes it, which no other has been.
func written(body []byte, more ...string) fenced.Version {
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // never fails
	v := fenced.Version{
		Size: int64(len(body)), ContentType: "application/json",
		Metadata: map[string]string{"leasehold-token": "7", "leasehold-nonce": hex.EncodeToString(nonce)},
	}
	for _, name := range more {
		v.Metadata[name] = "of " + name
	}
	return v
}

// put replaces old.
func (p fencedProbe) put(old, next fenced.Version, body []byte) error {
	return op("Put", p.key, p.b.Put(p.ctx, p.key, old, next, bytes.NewReader(body)))
}

// begin writes an object, and returns its version.
func (p fencedProbe) begin(body []byte) (fenced.Version, error) {
	next := written(body)
	if err := p.put(fenced.Version{}, next, body); err != nil {
		return fenced.Version{}, err
	}
	return p.shows(next, body)
}

// shows checks that next is the version that Head and Get show, and returns it.
func (p fencedProbe) shows(next fenced.Version, body []byte) (fenced.Version, error) {
	head, err := p.b.Head(p.ctx, p.key)
	if err != nil {
		return head, op("Head", p.key, err)
	}
	if err := same("Head", head, next); err != nil {
		return head, err
	}
	got, raw, err := p.b.Get(p.ctx, p.key)
	if err != nil {
		return head, op("Get", p.key, err)
	}
	defer func() { _ = raw.Close() }()
	if err := same("Get", got, next); err != nil {
		return head, err
	}
	if got.ID != head.ID {
		return head, fmt.Errorf("Get(%q): the ID is %q, but Head returned %q", p.key, got.ID, head.ID)
	}
	read, err := io.ReadAll(raw)
	if err != nil {
		return head, op("reading the body of Get", p.key, err)
	}
	if !bytes.Equal(read, body) {
		return head, fmt.Errorf("Get(%q): the body is %s, but must be %s", p.key, brief(read), brief(body))
	}
	return head, nil
}

// same checks what a method returns of the version next.
func same(method string, v, next fenced.Version) error {
	switch {
	case v.ID == "":
		return fmt.Errorf("%s: the ID is empty, although there is an object", method)
	case v.Size >= 0 && v.Size != next.Size:
		return fmt.Errorf("%s: the size is %d, but must be %d, or -1 if it is not known", method, v.Size, next.Size)
	case v.ContentType != next.ContentType:
		return fmt.Errorf("%s: the content type is %q, but must be %q", method, v.ContentType, next.ContentType)
	case !maps.Equal(v.Metadata, next.Metadata):
		return fmt.Errorf("%s: the metadata is %v, but must be %v: without its token, any former leader may replace "+
			"an object", method, v.Metadata, next.Metadata)
	}
	return nil
}

// refused checks the outcome of a write that must change nothing.
func (p fencedProbe) refused(what string, err error, present fenced.Version) error {
	if err == nil {
		return fmt.Errorf("%s succeeded, but must be refused", what)
	}
	if storeapi.Permanent(err) {
		return fmt.Errorf("%s must be refused with an error that does not match ErrPermanent, because the Store looks "+
			"again: %w", what, err)
	}
	now, headErr := p.b.Head(p.ctx, p.key)
	if headErr != nil {
		return op("Head", p.key, headErr)
	}
	if now.ID != present.ID || !maps.Equal(now.Metadata, present.Metadata) {
		return fmt.Errorf("%s was refused, but has changed the object: %w", what, err)
	}
	return nil
}

func (p fencedProbe) missing() error {
	v, err := p.b.Head(p.ctx, p.key)
	if err != nil || v.ID != "" || len(v.Metadata) > 0 {
		return fmt.Errorf("Head of a key without an object must return the zero Version and no error, but returned "+
			"%+v and %w", v, orNone(err))
	}
	if _, _, err = p.b.Get(p.ctx, p.key); !errors.Is(err, leasehold.ErrNotExist) {
		return fmt.Errorf("Get of a key without an object must return ErrNotExist, but returned: %w", orNone(err))
	}
	other, err := p.at("-other").begin([]byte("other"))
	if err != nil {
		return err
	}
	err = p.put(other, written([]byte("x")), []byte("x"))
	return p.refused("a Put over a version of another key, which has no object,", err, fenced.Version{})
}

func (p fencedProbe) metadata() error {
	var old fenced.Version
	for i, names := range [][]string{{"author", "leasehold-deleted"}, {"reviewer"}, nil} {
		next := written([]byte("x"), names...)
		if err := p.put(old, next, []byte("x")); err != nil {
			return err
		}
		shown, err := p.shows(next, []byte("x"))
		if err != nil {
			return fmt.Errorf("version %d: %w", i+1, err)
		}
		old = shown
	}
	return nil
}

func (p fencedProbe) bodies() error {
	for _, size := range p.sizes {
		p := p.at(fmt.Sprint("-", size))
		old := fenced.Version{}
		for _, text := range []string{"0123456789abcdef", "fedcba9876543210"} {
			body := []byte(strings.Repeat(text, size/len(text)+1)[:size])
			next := written(body)
			if err := p.put(old, next, body); err != nil {
				return err
			}
			var err error
			if old, err = p.shows(next, body); err != nil {
				return fmt.Errorf("%d bytes: %w", size, err)
			}
		}
	}
	return nil
}

func (p fencedProbe) create() error {
	for _, size := range p.sizes {
		p, body := p.at(fmt.Sprint("-", size)), make([]byte, size)
		present, err := p.begin(body)
		if err != nil {
			return err
		}
		err = p.put(fenced.Version{}, written(body), body)
		if err := p.refused(fmt.Sprintf("a Put of %d bytes over a zero Version of a key with an object", size), err,
			present); err != nil {
			return err
		}
	}
	for round := range fencedRounds {
		if _, err := p.at(fmt.Sprint("-race-", round)).race(fenced.Version{}); err != nil {
			return err
		}
	}
	return nil
}

func (p fencedProbe) replace() error {
	for _, size := range p.sizes {
		p, body := p.at(fmt.Sprint("-", size)), make([]byte, size)
		former, err := p.begin(body)
		if err != nil {
			return err
		}
		next := written(body)
		if err := p.put(former, next, body); err != nil {
			return err
		}
		present, err := p.shows(next, body)
		if err != nil {
			return err
		}
		err = p.put(former, written(body), body)
		if err := p.refused(fmt.Sprintf("a Put of %d bytes over a former version", size), err, present); err != nil {
			return err
		}
	}
	now, err := p.at("-race").begin([]byte("x"))
	for round := 0; err == nil && round < fencedRounds; round++ {
		now, err = p.at("-race").race(now)
	}
	return err
}

// race has several writers replace old at once, with the same body. One at most may succeed. It
// returns the version that is there afterwards.
func (p fencedProbe) race(old fenced.Version) (fenced.Version, error) {
	errs, nexts := make([]error, fencedWays), make([]fenced.Version, fencedWays)
	var wg sync.WaitGroup
	for i := range fencedWays {
		nexts[i] = written([]byte("x"))
		wg.Go(func() { errs[i] = p.put(old, nexts[i], []byte("x")) })
	}
	wg.Wait()
	now, err := p.b.Head(p.ctx, p.key)
	if err != nil {
		return now, op("Head", p.key, err)
	}
	winners := 0
	for i, err := range errs {
		switch {
		case storeapi.Permanent(err):
			return now, fmt.Errorf("the loser of a race must not get an error that matches ErrPermanent: %w", err)
		case err == nil && now.Metadata["leasehold-nonce"] != nexts[i].Metadata["leasehold-nonce"]:
			return now, fmt.Errorf("writer %d of %d at once succeeded, but Head shows the version of another", i,
				fencedWays)
		case err == nil:
			winners++
		}
	}
	if winners == 0 && now.ID == old.ID {
		return now, fmt.Errorf("of %d writers at once none succeeded: %w", fencedWays, errors.Join(errs...))
	}
	return now, nil
}

func (p fencedProbe) ids() error {
	var seen []string
	var old fenced.Version
	for i, text := range []string{"a", "a", "b", "a"} {
		next := written([]byte(text))
		err := p.put(old, next, []byte(text))
		if err == nil {
			old, err = p.shows(next, []byte(text))
		}
		if err != nil {
			return err
		}
		if slices.Contains(seen, old.ID) {
			return fmt.Errorf("version %d has the ID %q, as an earlier one: a former leader that has read that may "+
				"replace it", i+1, old.ID)
		}
		seen = append(seen, old.ID)
	}
	return nil
}

var errCut = errors.New("the body cannot be read")

func (p fencedProbe) cut() error {
	for _, size := range p.sizes {
		p, body := p.at(fmt.Sprint("-", size)), make([]byte, size)
		half := func() io.Reader { return io.MultiReader(bytes.NewReader(body[:size/2]), failing{}) }
		err := p.b.Put(p.ctx, p.key, fenced.Version{}, written(body), half())
		if err := p.refused(fmt.Sprintf("a create whose body of %d bytes breaks off", size), err,
			fenced.Version{}); err != nil {
			return err
		}
		present, err := p.begin(body)
		if err != nil {
			return err
		}
		err = p.b.Put(p.ctx, p.key, present, written(body), half())
		if err := p.refused(fmt.Sprintf("a Put whose body of %d bytes breaks off", size), err, present); err != nil {
			return err
		}
	}
	return nil
}

// failing is a reader that fails.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errCut }

func (p fencedProbe) endedContext() error {
	present, err := p.begin([]byte("x"))
	if err != nil {
		return err
	}
	ended, end := context.WithCancel(p.ctx)
	end()
	late := p
	late.ctx = ended
	if err := p.refused("a Put with an ended context", late.put(present, written([]byte("y")), []byte("y")),
		present); err != nil {
		return err
	}
	if _, err := p.b.Head(ended, p.key); err == nil {
		return errors.New("Head with an ended context succeeded")
	}
	if _, body, err := p.b.Get(ended, p.key); err == nil {
		_ = body.Close()
		return errors.New("Get with an ended context succeeded")
	}
	return nil
}

func (p fencedProbe) setMetadata() error {
	b, ok := p.b.(fenced.MetadataSetter)
	if !ok {
		return nil
	}
	set := func(p fencedProbe, old fenced.Version, metadata map[string]string) error {
		return op("SetMetadata", p.key, b.SetMetadata(p.ctx, p.key, old, metadata))
	}
	for _, size := range p.sizes {
		p, body := p.at(fmt.Sprint("-", size)), make([]byte, size)
		former, err := p.begin(body)
		if err != nil {
			return err
		}
		next := written(body, "author")
		if err := set(p, former, next.Metadata); err != nil {
			return err
		}
		present, err := p.shows(next, body)
		if err != nil {
			return err
		}
		if present.ID == former.ID {
			return fmt.Errorf("after SetMetadata the ID is still %q: a former leader may replace the version",
				present.ID)
		}
		if err := p.refused("SetMetadata of a former version", set(p, former, written(body).Metadata),
			present); err != nil {
			return err
		}
		if err := p.refused("a Put over the version before SetMetadata", p.put(former, written(body), body),
			present); err != nil {
			return err
		}
	}
	return nil
}

// store is the life of an object under three leaders.
func (p fencedProbe) store() error {
	s, report := fenced.NewStore(p.b), func() io.ReadSeeker { return strings.NewReader(`{"n":1}`) }
	fencedOff := func(what string, err error) error {
		if !errors.Is(err, leasehold.ErrFenced) {
			return fmt.Errorf("%s must return ErrFenced, but returned: %w", what, orNone(err))
		}
		return nil
	}
	unfenced := func(err error) error {
		if !errors.Is(err, fenced.ErrUnfenced) {
			return fmt.Errorf("a Put over another client's object must return ErrUnfenced, but returned: %w",
				orNone(err))
		}
		return nil
	}
	foreign := p.at("-foreign")
	for _, err := range []func() error{
		func() error { return s.Put(p.ctx, 2, p.key, report()) },
		func() error { return s.Seal(p.ctx, 3, p.key, p.key+"-not-yet") },
		func() error { return fencedOff("a Put with a lower token", s.Put(p.ctx, 2, p.key, report())) },
		func() error { return fencedOff("a Put to a sealed key", s.Put(p.ctx, 2, p.key+"-not-yet", report())) },
		func() error {
			o, err := s.Get(p.ctx, p.key)
			if err != nil {
				return err
			}
			body, err := io.ReadAll(o.Body)
			_ = o.Body.Close()
			if err == nil && (string(body) != `{"n":1}` || o.Token != 3) {
				err = fmt.Errorf("after a Seal with token 3, Get returned %s of token %d", brief(body), o.Token)
			}
			return err
		},
		func() error { return s.Delete(p.ctx, 4, p.key) },
		func() error { return fencedOff("a Put after a Delete", s.Put(p.ctx, 3, p.key, report())) },
		func() error {
			return foreign.put(fenced.Version{}, fenced.Version{Size: 6, ContentType: "text/plain"}, []byte("theirs"))
		},
		func() error { return unfenced(s.Put(p.ctx, 4, foreign.key, report())) },
		func() error { return fenced.NewStore(p.b, fenced.WithAdoption()).Seal(p.ctx, 4, foreign.key) },
		func() error { return fencedOff("a Put after an adoption", s.Put(p.ctx, 3, foreign.key, report())) },
	} {
		if err := err(); err != nil {
			return err
		}
	}
	return nil
}
