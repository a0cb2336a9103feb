// Package storecheck tries out what a store must do so that locks can be built on it.
// leasehold.CheckStore runs the checks once, and package storetest runs them at length.
package storecheck

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/probe"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Report is a leasehold.Report.
type Report struct {
	ConditionalPuts    bool
	ConditionalDeletes bool
	ServerClock        string
	Requests           int
	Leftover           []string
}

const (
	checkWays  = 8                      // concurrent writers in a race of Run
	clockLooks = 6                      // at an object whose age is measured
	clockStep  = 250 * time.Millisecond // at most, between them: HTTP dates change once a second
)

// objects is a leasehold.Store, whose object type this package cannot name.
type objects[O any] interface {
	Get(ctx context.Context, key string) (O, error)
	writes
}

type writes interface {
	probe.Writes
	DeleteIfMatch(ctx context.Context, key, etag string) error
}

// Store is a leasehold.Store that counts its requests.
type Store struct {
	read     func(ctx context.Context, key string) (object, error)
	writes   writes
	tellsAge bool
	requests atomic.Int64
}

type object struct {
	body []byte
	etag string
	age  time.Duration
}

// Of is a leasehold.Store as the checks see it. parts returns the parts of an object.
func Of[O any](s objects[O], tellsAge bool, parts func(O) (body []byte, etag string, age time.Duration)) *Store {
	read := func(ctx context.Context, key string) (object, error) {
		o, err := s.Get(ctx, key)
		body, etag, age := parts(o)
		return object{body, etag, age}, err
	}
	return &Store{read: read, writes: s, tellsAge: tellsAge}
}

func (s *Store) get(ctx context.Context, key string) (o object, err error) {
	err = s.patiently(ctx, func(bool) (err error) {
		o, err = s.read(ctx, key)
		return err
	})
	return o, err
}

// put sends body, which no other process writes, over the version of an ETag, or a create if that
// is empty. If a repetition is refused, an earlier attempt may have landed.
func (s *Store) put(ctx context.Context, key string, body []byte, over string) (etag string, err error) {
	err = s.patiently(ctx, func(again bool) (err error) {
		etag, err = probe.Put(ctx, s.writes, key, body, over)
		if again && storeapi.Refused(err) {
			if o, getErr := s.get(ctx, key); getErr == nil && bytes.Equal(o.body, body) {
				etag, err = o.etag, nil
			}
		}
		return err
	})
	return etag, err
}

func (s *Store) remove(ctx context.Context, key, etag string) error {
	return s.patiently(ctx, func(again bool) error {
		err := s.writes.DeleteIfMatch(ctx, key, etag)
		if again && errors.Is(err, storeapi.ErrNotExist) { // an earlier attempt has landed
			return nil
		}
		return err
	})
}

func (s *Store) patiently(ctx context.Context, send func(again bool) error) error {
	return storeapi.Patiently(ctx, patience, func(again bool) error {
		s.requests.Add(1)
		return send(again)
	})
}

// patience is how often a request is sent, for about eight seconds, while it fails for a reason
// that passes by itself.
const patience = 10

// Check is one thing that a store must do, tried out on a separate key.
type Check struct {
	Name, Why string
	run       func(trial) error
}

// All returns the checks.
func All() []Check { return slices.Clone(checks) }

// Run tries the check out on key. ways is the number of concurrent writers in each race.
func (c Check) Run(ctx context.Context, s *Store, key string, ways, rounds int) error {
	return c.run(trial{
		ctx: ctx, s: s, key: key, ways: ways, rounds: rounds, run: rand.Text(), written: new(string),
	})
}

// ErrDeleteIgnored is the error of the one check that a store may fail and still be safe for locks.
var ErrDeleteIgnored = errors.New("conditional deletes are not enforced")

// ErrCreatesOnly is the error of a store that refuses creates as it must, and does not do so with
// updates, or has none.
var ErrCreatesOnly = errors.New("the store enforces the conditions of creates alone (use package createonly, which " +
	"keeps locks there)")

// LongestSuffix is as long as what comes after keyPrefix in the keys of Run.
const LongestSuffix = "-create-race-0123456789"

// Run runs the checks once, on keys that begin with keyPrefix. leasehold.CheckStore documents it.
func Run(ctx context.Context, s *Store, keyPrefix string) (report Report, err error) {
	defer func() { report.Requests = int(s.requests.Load()) }()
	shared := keyPrefix + "-probe"
	fixed := trial{ctx: ctx, s: s, key: keyPrefix + "-delete", run: rand.Text()}
	removes, err := fixed.mayDelete()
	if err != nil {
		return report, fmt.Errorf("checking that the store can be written: %w", err)
	}
	if !removes {
		report.Leftover = append(report.Leftover, fixed.key)
	}
	var problems []error
	puts, deletes := true, removes
	noUpdates, creates := false, false
	clock := Check{"clock", "no object is reported older than it is", func(p trial) (err error) {
		report.ServerClock, err = p.clock()
		return err
	}}
	for _, c := range append(slices.Clone(checks), clock) {
		if !removes && c.Name == "delete" {
			continue
		}
		p := trial{
			ctx: ctx, s: s, key: keyPrefix + "-" + c.Name + "-" + rand.Text()[:10], ways: checkWays, rounds: 1,
			written: new(string),
		}
		if !removes && c.Name != "missing" { // which writes nothing on a safe store
			p.key, p.shared = shared, true
		}
		err := probe.Undisturbed(ctx, func() error {
			p.run = rand.Text()
			return c.run(p)
		})
		switch {
		case errors.Is(err, ErrDeleteIgnored):
			deletes = false
		case err != nil:
			problems = append(problems, fmt.Errorf("checking that %s: %w", c.Why, err))
			puts = puts && c.Name == clock.Name
		}
		if c.Name == createRace {
			creates = err == nil
		} else if c.Name != clock.Name {
			noUpdates = noUpdates || errors.Is(err, storeapi.ErrUnsafeStore) && !errors.Is(err, ErrStale)
		}
		if !p.shared {
			if err := clear(ctx, s, p.key, *p.written); err != nil {
				report.Leftover = append(report.Leftover, p.key)
			}
		}
		if storeapi.Permanent(err) && !errors.Is(err, storeapi.ErrUnsafeStore) ||
			errors.Is(err, ErrStale) { // then no other check means what it says
			break
		}
	}
	if !removes {
		if _, err := s.get(ctx, shared); err == nil {
			report.Leftover = append(report.Leftover, shared)
		}
	}
	report.ConditionalPuts, report.ConditionalDeletes = puts, puts && deletes
	if noUpdates && creates {
		return report, fmt.Errorf("%w: %w", ErrCreatesOnly, errors.Join(problems...))
	}
	return report, errors.Join(problems...)
}

// clear deletes the object at key, which probably has that ETag, unless it is "".
func clear(ctx context.Context, s *Store, key, etag string) error {
	if etag != "" {
		if err := s.remove(ctx, key, etag); !errors.Is(err, storeapi.ErrPreconditionFailed) {
			return ignoreMissing(err)
		}
	}
	o, err := s.get(ctx, key)
	if err == nil {
		err = s.remove(ctx, key, o.etag)
	}
	return ignoreMissing(err)
}

func ignoreMissing(err error) error {
	if errors.Is(err, storeapi.ErrNotExist) {
		return nil
	}
	return err
}
