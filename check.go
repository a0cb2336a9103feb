package leasehold

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/internal/export"
)

// Report says what [CheckStore] found.
type Report struct {
	ConditionalPuts    bool     // creates and updates are refused when they must be, also under concurrency
	ConditionalDeletes bool     // so are deletes; locks do not need it
	Requests           int      // what the check cost
	Left               []string // keys that could not be removed again
}

const checkWays = 8 // concurrent writers in a race of CheckStore

// CheckStore tries out, with about 40 requests on fresh keys that begin with keyPrefix, whether the store enforces its
// preconditions for these credentials, and removes the objects again where it can. If conditional puts are not enforced,
// the error matches [ErrUnsafeStore] and says what went wrong: some S3 servers ignore the headers silently. Any other
// error means that the question is open: access denied, say, or a time-out.
func CheckStore(ctx context.Context, s Store, keyPrefix string) (Report, error) {
	if err := checkKey(keyPrefix + "x"); err != nil {
		return Report{}, err
	}
	counted := &countingStore{Store: s}
	var report Report
	var problems []error
	deletes := true
	for _, c := range storeChecks {
		key := keyPrefix + "-" + c.name + "-" + rand.Text()[:10]
		err := c.run(probe{ctx, counted, key, checkWays, 1})
		switch {
		case errors.Is(err, errDeleteIgnored):
			deletes = false
		case err != nil:
			problems = append(problems, fmt.Errorf("%s: %w", c.why, err))
		}
		if err := remove(ctx, counted, key); err != nil {
			report.Left = append(report.Left, key)
		}
		if permanent(err) && !errors.Is(err, ErrUnsafeStore) {
			break
		}
	}
	report.Requests = int(counted.requests.Load())
	err := errors.Join(problems...)
	report.ConditionalPuts = err == nil
	report.ConditionalDeletes = err == nil && deletes
	return report, err
}

// remove deletes whatever stands at key.
func remove(ctx context.Context, s Store, key string) error {
	o, err := s.Get(ctx, key)
	if err == nil {
		err = s.DeleteIfMatch(ctx, key, o.ETag)
	}
	if errors.Is(err, ErrNotExist) {
		return nil
	}
	return err
}

// storeCheck is one thing that a store must do, tried out on a key of its own. CheckStore and storetest share the table.
type storeCheck struct {
	name, why string
	run       func(probe) error
}

type probe struct {
	ctx          context.Context
	s            Store
	key          string
	ways, rounds int // concurrent writers in a race, and how many races
}

var errDeleteIgnored = errors.New("conditional deletes are not enforced")

// unsafe is a failure that no lock can live with.
func unsafe(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnsafeStore}, args...)...)
}

// refused reports whether err is a clean refusal.
func refused(err error) bool {
	return errors.Is(err, ErrPreconditionFailed) || errors.Is(err, ErrNotExist)
}

// mustRefuse turns the outcome of a write that must be refused into a verdict.
func mustRefuse(what string, err error) error {
	switch {
	case err == nil:
		return unsafe("%s succeeded", what)
	case refused(err), errors.Is(err, errConflict):
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// mustHold checks that the object is exactly as expected.
func (p probe) mustHold(body []byte, etag string) error {
	o, err := p.s.Get(p.ctx, p.key)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(o.Body, body):
		return unsafe("the object holds %q, should hold %q", o.Body, body)
	case o.ETag != etag:
		return unsafe("the ETag reads %q, but the write gave %q", o.ETag, etag)
	}
	return nil
}

var storeChecks = []storeCheck{
	{"missing", "a missing object is told apart, and not updated", func(p probe) error {
		if _, err := p.s.Get(p.ctx, p.key); !errors.Is(err, ErrNotExist) {
			return fmt.Errorf("Get of a missing key must be ErrNotExist, is: %w", orUnexpected(err))
		}
		_, err := p.s.PutIfMatch(p.ctx, p.key, []byte("x"), `"0123456789abcdef0123456789abcdef"`)
		return mustRefuse("PutIfMatch of a missing key", err)
	}},
	{"create", "a create over an existing object is refused", func(p probe) error {
		first := []byte("\x00first\xff\n")
		etag, err := p.s.PutIfNoneMatch(p.ctx, p.key, first)
		if err != nil {
			return err
		}
		_, err = p.s.PutIfNoneMatch(p.ctx, p.key, []byte("second"))
		if err := mustRefuse("a second PutIfNoneMatch", err); err != nil {
			return err
		}
		return p.mustHold(first, etag)
	}},
	{"update", "an update of a stale version is refused", func(p probe) error {
		stale, err := p.s.PutIfNoneMatch(p.ctx, p.key, []byte("first"))
		if err != nil {
			return err
		}
		etag, err := p.s.PutIfMatch(p.ctx, p.key, []byte("second"), stale)
		if err != nil {
			return err
		}
		if etag == stale {
			return unsafe("two different bodies have the same ETag %q", etag)
		}
		_, err = p.s.PutIfMatch(p.ctx, p.key, []byte("third"), stale)
		if err := mustRefuse("PutIfMatch with a stale ETag", err); err != nil {
			return err
		}
		return p.mustHold([]byte("second"), etag)
	}},
	{"create-race", "of many creates at once, exactly one wins", func(p probe) error {
		base := p.key
		for round := range p.rounds {
			if p.rounds > 1 {
				p.key = fmt.Sprintf("%s-%d", base, round)
			}
			if _, err := p.race(func(body []byte) (string, error) { return p.s.PutIfNoneMatch(p.ctx, p.key, body) }); err != nil {
				return err
			}
		}
		return nil
	}},
	{"update-race", "of many updates of one version at once, exactly one wins", func(p probe) error {
		etag, err := p.s.PutIfNoneMatch(p.ctx, p.key, []byte("start"))
		for round := 0; err == nil && round < p.rounds; round++ {
			etag, err = p.race(func(body []byte) (string, error) {
				return p.s.PutIfMatch(p.ctx, p.key, fmt.Appendf(body, " of round %d", round), etag)
			})
		}
		return err
	}},
	{"delete", "a delete of a stale version is refused", func(p probe) error {
		stale, err := p.s.PutIfNoneMatch(p.ctx, p.key, []byte("first"))
		if err != nil {
			return err
		}
		etag, err := p.s.PutIfMatch(p.ctx, p.key, []byte("second"), stale)
		if err != nil {
			return err
		}
		switch err := p.s.DeleteIfMatch(p.ctx, p.key, stale); {
		case err == nil, errors.Is(err, ErrPermanent): // not allowed, or not implemented: as good as not enforced
			return fmt.Errorf("%w (%w)", errDeleteIgnored, orUnexpected(err))
		case !refused(err):
			return err
		}
		if err := p.mustHold([]byte("second"), etag); err != nil {
			return err
		}
		if err := p.s.DeleteIfMatch(p.ctx, p.key, etag); err != nil {
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

// race has p.ways writers write at once and returns the ETag of the only winner, whose body must stand.
func (p probe) race(write func(body []byte) (string, error)) (etag string, err error) {
	etags, errs := make([]string, p.ways), make([]error, p.ways)
	var wg sync.WaitGroup
	for i := range p.ways {
		wg.Go(func() { etags[i], errs[i] = write(fmt.Appendf(nil, "writer %d.", i)) })
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err != nil:
			if err := mustRefuse(fmt.Sprintf("writer %d", i), err); err != nil {
				return "", err
			}
		case winner >= 0:
			return "", unsafe("writers %d and %d both succeeded", winner, i)
		default:
			winner = i
		}
	}
	if winner < 0 {
		return "", fmt.Errorf("none of %d writers succeeded: %w", p.ways, errors.Join(errs...))
	}
	o, err := p.s.Get(p.ctx, p.key)
	if err != nil {
		return "", err
	}
	if !bytes.HasPrefix(o.Body, fmt.Appendf(nil, "writer %d.", winner)) || o.ETag != etags[winner] {
		return "", unsafe("writer %d succeeded, but the object holds %q with ETag %q", winner, o.Body, o.ETag)
	}
	return o.ETag, nil
}

// countingStore counts requests.
type countingStore struct {
	Store
	requests atomic.Int64
}

func (c *countingStore) Get(ctx context.Context, key string) (Object, error) {
	c.requests.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *countingStore) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	c.requests.Add(1)
	return c.Store.PutIfNoneMatch(ctx, key, body)
}

func (c *countingStore) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	c.requests.Add(1)
	return c.Store.PutIfMatch(ctx, key, body, etag)
}

func (c *countingStore) DeleteIfMatch(ctx context.Context, key, etag string) error {
	c.requests.Add(1)
	return c.Store.DeleteIfMatch(ctx, key, etag)
}

func init() {
	export.ErrDeleteIgnored = errDeleteIgnored
	export.EachCheck = func(yield func(name, why string, run func(ctx context.Context, s Store, key string, ways, rounds int) error) bool) {
		for _, c := range storeChecks {
			run := func(ctx context.Context, s Store, key string, ways, rounds int) error {
				return c.run(probe{ctx, s, key, ways, rounds})
			}
			if !yield(c.name, c.why, run) {
				return
			}
		}
	}
}
