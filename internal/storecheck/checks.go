package storecheck

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold/internal/probe"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// createRace is the check that creates are refused.
const createRace = "create-race"

var checks = []Check{
	{"missing", "a missing object is reported, and not updated", func(p trial) error {
		if _, err := p.get(); !errors.Is(err, storeapi.ErrNotExist) {
			return fmt.Errorf("a Get of a missing key must return ErrNotExist; it returned: %w", orUnexpected(err))
		}
		_, err := p.s.put(p.ctx, p.key, p.body("x"), probe.NoVersion)
		return mustRefuse("PutIfMatch of a missing key", err)
	}},
	{createRace, "of many creates at once, exactly one wins", func(p trial) error {
		base := p.key
		for round := range p.rounds {
			if p.rounds > 1 {
				p.key = fmt.Sprintf("%s-%d", base, round)
			}
			exists := false
			if p.shared { // then none may win
				etag, err := p.leftover()
				if err != nil {
					return err
				}
				exists = etag != ""
			}
			etag, err := p.race("", "")
			switch {
			case exists && etag != "":
				return probe.Unsafe("a create over an existing object succeeded")
			case exists && errors.Is(err, errNoWinner), errors.Is(err, probe.ErrDisturbed) && !exists:
			case err != nil:
				return err
			}
		}
		return nil
	}},
	{"create", "a create over an existing object is refused", func(p trial) error {
		first := p.body("\x00first\xff\n")
		if !p.shared { // which start reads
			p.s.requests.Add(1)
			_, _ = p.s.read(p.ctx, p.key) // a cache may keep that nothing is there
		}
		etag, err := p.start(first)
		if err != nil {
			return err
		}
		_, err = p.s.put(p.ctx, p.key, p.body("second"), "")
		if err := mustRefuse("a second PutIfNoneMatch", err); err != nil {
			return err
		}
		return p.mustShow(first, etag, nil)
	}},
	{"update", "an update of a stale version is refused", func(p trial) error {
		first, second := p.body("first"), p.body("second")
		stale, err := p.start(first)
		if err != nil {
			return err
		}
		if err := p.mustShow(first, stale, nil); err != nil { // a cache may keep that
			return err
		}
		etag, err := p.put(second, stale)
		if err != nil {
			return err
		}
		if etag == stale {
			return probe.Unsafe("two different bodies have the same ETag %q", etag)
		}
		_, err = p.s.put(p.ctx, p.key, p.body("third"), stale)
		if err := mustRefuse("PutIfMatch with a stale ETag", err); err != nil {
			return err
		}
		return p.mustShow(second, etag, first)
	}},
	{"update-race", "of many updates of one version at once, exactly one wins", func(p trial) error {
		etag, err := p.start(p.body("start"))
		for round := 0; err == nil && round < p.rounds; round++ {
			etag, err = p.race(etag, fmt.Sprintf(" of round %d", round))
		}
		return err
	}},
	{"delete", "a delete of a stale version is refused", func(p trial) error {
		stale, err := p.start(p.body("first"))
		if err != nil {
			return err
		}
		second := p.body("second")
		etag, err := p.put(second, stale)
		if err != nil {
			return err
		}
		switch err := p.s.remove(p.ctx, p.key, stale); {
		// not allowed, or not implemented: as good as not enforced
		case err == nil, errors.Is(err, storeapi.ErrPermanent):
			return fmt.Errorf("%w (%w)", ErrDeleteIgnored, orUnexpected(err))
		case !storeapi.Refused(err):
			return err
		}
		if err := p.mustHold(second, etag); err != nil {
			return err
		}
		if err := p.s.remove(p.ctx, p.key, etag); err != nil {
			return fmt.Errorf("DeleteIfMatch of the present version: %w", err)
		}
		return nil
	}},
}

func orUnexpected(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

var errNoWinner = errors.New("none of the writers succeeded")

// race has p.ways writers write over a version, or create, at once, each its own body, which ends
// with suffix. It returns the ETag of the only winner, whose body must stand. While nothing but
// passing errors comes back, it is held again.
func (p trial) race(over, suffix string) (etag string, err error) {
	bodies := make([][]byte, p.ways)
	for i := range bodies {
		bodies[i] = p.body(fmt.Sprintf("writer %d.%s", i, suffix))
	}
	doubt := false // some writer may have succeeded unseen
	for try := 1; ; try++ {
		etags, errs := p.together(bodies, over)
		winner, refused := -1, false
		for i, err := range errs {
			switch {
			case storeapi.Passing(p.ctx, err):
				doubt = true
			case err != nil:
				if err := mustRefuse(fmt.Sprintf("writer %d", i), err); err != nil {
					return "", err
				}
				refused = true
			case winner >= 0:
				return "", probe.Unsafe("writers %d and %d both succeeded", winner, i)
			default:
				winner = i
			}
		}
		noWinner := fmt.Errorf("%w: %w", errNoWinner, errors.Join(errs...))
		if winner < 0 && !doubt {
			return "", p.maybeDisturbed(noWinner)
		}
		o, err := p.get()
		switch {
		case winner >= 0 && errors.Is(err, storeapi.ErrNotExist):
			return "", stale()
		case err != nil && (winner >= 0 || !errors.Is(err, storeapi.ErrNotExist)):
			return "", err
		case winner < 0 && slices.ContainsFunc(bodies, func(b []byte) bool { return bytes.Equal(b, o.body) }):
			return o.etag, nil
		case winner < 0 && !refused && try < patience:
			if err := storeapi.Rest(p.ctx, try); err != nil {
				return "", err
			}
		case winner < 0:
			return "", p.maybeDisturbed(noWinner)
		case p.foreign(o.body):
			return "", probe.ErrDisturbed
		case !bytes.Equal(o.body, bodies[winner]):
			return "", probe.Unsafe("writer %d succeeded, but the object holds %q with ETag %q", winner, o.body, o.etag)
		case o.etag != etags[winner]:
			return "", otherETag(o.etag, etags[winner])
		default:
			return o.etag, nil
		}
	}
}

// together sends each body once, all at once.
func (p trial) together(bodies [][]byte, over string) (etags []string, errs []error) {
	etags, errs = make([]string, len(bodies)), make([]error, len(bodies))
	var wg sync.WaitGroup
	for i, body := range bodies {
		wg.Go(func() {
			p.s.requests.Add(1)
			etags[i], errs[i] = probe.Put(p.ctx, p.s.writes, p.key, body, over)
		})
	}
	wg.Wait()
	return etags, errs
}

// mustRefuse turns the outcome of a write that must be refused into a verdict.
func mustRefuse(what string, err error) error {
	switch {
	case err == nil:
		return probe.Unsafe("%s succeeded", what)
	case probe.Refused(err):
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// otherETag is the failure of a read that shows another ETag than the write of that version.
func otherETag(read, wrote string) error {
	if strings.HasPrefix(read, "W/") {
		return &storeapi.Error{
			Kind: storeapi.ErrUnsafeStore,
			Cause: fmt.Errorf("the ETag %s of a read is weak, so no condition on it can hold; the write gave %s", read,
				wrote),
			Hint: "a proxy in front of the server compresses or changes answers: let it pass them as they are",
		}
	}
	return probe.Unsafe("the ETag reads %q, but the write gave %q", read, wrote)
}

// ErrStale is the error of a store whose reads do not show the writes before them.
var ErrStale = errors.New("a read does not show the write before it, but what was there before that: a cache stands " +
	"in front of the store")

func stale() error {
	return &storeapi.Error{
		Kind: storeapi.ErrUnsafeStore, Cause: ErrStale,
		Hint: "let the cache pass all requests of this bucket to the server (nginx: proxy_cache off), or go around it",
	}
}

// mustShow checks that the object is exactly as written. former is what a read has shown before the
// write, or nil if there was no object.
func (p trial) mustShow(body []byte, etag string, former []byte) error {
	*p.written = etag
	o, err := p.get()
	if former == nil && errors.Is(err, storeapi.ErrNotExist) || former != nil && bytes.Equal(o.body, former) {
		return stale()
	}
	return p.holds(o, err, body, etag)
}

// mustHold checks that the object is exactly as expected.
func (p trial) mustHold(body []byte, etag string) error {
	o, err := p.get()
	return p.holds(o, err, body, etag)
}

func (p trial) holds(o object, err error, body []byte, etag string) error {
	switch {
	case err != nil:
		return err
	case p.foreign(o.body):
		return probe.ErrDisturbed
	case !bytes.Equal(o.body, body):
		return probe.Unsafe("the object holds %q, should hold %q", o.body, body)
	case o.etag != etag:
		return otherETag(o.etag, etag)
	}
	return nil
}
