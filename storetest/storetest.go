// Package storetest is the conformance suite for authors of a [leasehold.Store], which locks need,
// and of a [fenced.Backend], which refuses writes of former leaders.
package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/storecheck"
)

// Run checks every promise of [leasehold.Store], in one subtest each, on the stores that newStore
// returns. newStore may return the same store each time, because Run uses no key twice. All keys
// begin with "storetest/", and most objects remain. Use -race, and test against a real server if
// the store has one.
//
// A refusal must match the sentinel that leasehold.Store names. A write that meets another one
// under way may also return [leasehold.ErrConflict]: the checks of races count it as a write that
// did not win.
//
// Run includes the checks of [leasehold.CheckStore], with 32 writers and hundreds of rounds for
// each race.
func Run(t *testing.T, newStore func(t *testing.T) leasehold.Store, opts ...Option) {
	t.Helper()
	for _, c := range newSuite(opts).checks() {
		t.Run(c.name, func(t *testing.T) {
			if err := c.run(t.Context(), newStore(t), t.Logf); err != nil {
				t.Errorf("the store breaks the promise %q: %v", c.why, err)
			}
		})
	}
}

// Option declares a property of a store for [Run].
type Option func(*suite)

// Rounds sets the number of races of each kind. The default is 200. Fewer rounds take less time on
// a slow server, but prove less.
func Rounds(n int) Option { return func(s *suite) { s.rounds = n } }

// IgnoresDeleteCondition declares that the store's DeleteIfMatch ignores its condition, as on
// MinIO. Locks do not need the condition. Run fails if DeleteIfMatch honours it after all, so that
// the option is removed once it is not needed.
func IgnoresDeleteCondition() Option { return func(s *suite) { s.ignoresDelete = true } }

// MissingIsPreconditionFailed declares that PutIfMatch and DeleteIfMatch of the store return
// [leasehold.ErrPreconditionFailed] for a missing object as well as for a changed one. Run fails if
// they return [leasehold.ErrNotExist] after all.
func MissingIsPreconditionFailed() Option { return func(s *suite) { s.missing = preconditionFailed } }

// DeletesMissing declares that the store's DeleteIfMatch of a missing object succeeds, as on
// VersityGW. Run fails if it is refused after all.
func DeletesMissing() Option { return func(s *suite) { s.deletesMissing = true } }

// DeniesDelete declares that the credentials may not delete, so that DeleteIfMatch returns an error
// that matches [leasehold.ErrPermanent]. Locks do not need the permission. Run skips the checks
// that need a delete, and fails if a delete is carried out after all.
func DeniesDelete() Option { return func(s *suite) { s.deniesDelete = true } }

// Plant lets Run write an object without the store, to check that Get refuses an object that is too
// large.
func Plant(write func(key string, body []byte) error) Option {
	return func(s *suite) { s.plant = write }
}

// suite is what the options say about the store under test.
type suite struct {
	rounds         int
	wait           time.Duration // how long to watch an object's age
	ignoresDelete  bool
	deletesMissing bool
	deniesDelete   bool
	missing        refusal // the error of a conditional write to a missing object
	plant          func(key string, body []byte) error
}

const (
	ways       = 32              // writers in a race
	promptness = 5 * time.Second // the longest that a call with an ended context may take
	patience   = 5 * time.Second // how long writers try again while no update succeeds
	leastTries = 8               // tries of an update in any case, because the store may be slow
)

func newSuite(opts []Option) *suite {
	s := &suite{rounds: 200, wait: 3 * time.Second, missing: notExist}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// check is one promise.
type check struct {
	name, why string
	run       func(ctx context.Context, s leasehold.Store, logf func(string, ...any)) error
}

func (s *suite) checks() []check {
	var all []check
	for _, c := range storecheck.All() {
		if s.deniesDelete && c.Name == "delete" {
			continue
		}
		all = append(all, check{c.Name, c.Why, func(ctx context.Context, store leasehold.Store,
			_ func(string, ...any)) error {
			probed := storecheck.Of(store, leasehold.Describe(store).TellsAge,
				func(o leasehold.Object) ([]byte, string, time.Duration) {
					return o.Body, o.ETag, o.Age
				})
			err := c.Run(ctx, probed, newKey(c.Name), ways, s.rounds)
			switch {
			case !errors.Is(err, storecheck.ErrDeleteIgnored):
				return err
			case s.ignoresDelete:
				return nil // the check "delete-ignored" covers it
			}
			return fmt.Errorf("%w: locks do not need the condition; if the server cannot honour it, pass the option "+
				"IgnoresDeleteCondition", err)
		}})
	}
	own := func(name, why string, run func(p probe) error) {
		all = append(all, check{name, why, func(ctx context.Context, store leasehold.Store,
			logf func(string, ...any)) error {
			return run(probe{s, ctx, store, newKey(name), logf})
		}})
	}
	own("errors", "every refusal has exactly the error that the interface names", probe.errors)
	if s.ignoresDelete && !s.deniesDelete {
		own("delete-ignored", "DeleteIfMatch ignores its condition, as the option says", probe.deleteIgnored)
	}
	own("etags", "ETags are never empty, are read as they were written, and differ between bodies", probe.etags)
	own("bodies", "bodies come back unchanged, and do not share memory with the caller's", probe.bodies)
	own("limit", "objects over MaxObjectSize are refused", probe.limit)
	own("keys", "every key is a separate object, whatever characters it has", probe.keys)
	own("context", "with an ended context every call returns at once and changes nothing", probe.endedContext)
	own("age", "Age is never more than the time since the write was sent, and never negative", probe.age)
	own("counters", "with concurrent writers, no acknowledged update is lost and no refused update is carried out",
		probe.counters)
	return all
}

func newKey(name string) string { return "storetest/" + name + "-" + rand.Text()[:10] }

// probe is a check under way. Its methods call the methods of the store, and their errors name the
// operation.
type probe struct {
	*suite
	ctx   context.Context
	store leasehold.Store
	key   string
	logf  func(string, ...any)
}

func (p probe) get() (leasehold.Object, error) {
	o, err := p.store.Get(p.ctx, p.key)
	return o, op("Get", p.key, err)
}

func (p probe) create(body []byte) (string, error) {
	etag, err := p.store.PutIfNoneMatch(p.ctx, p.key, body)
	return etag, op("PutIfNoneMatch", p.key, err)
}

func (p probe) update(body []byte, etag string) (string, error) {
	next, err := p.store.PutIfMatch(p.ctx, p.key, body, etag)
	return next, op("PutIfMatch", p.key, err)
}

func (p probe) delete(etag string) error {
	return op("DeleteIfMatch", p.key, p.store.DeleteIfMatch(p.ctx, p.key, etag))
}

// at returns a copy of p with suffix added to its key.
func (p probe) at(suffix string) probe {
	p.key += suffix
	return p
}

// must checks that the object has exactly this body and ETag.
func (p probe) must(body []byte, etag string) error {
	o, err := p.get()
	switch {
	case err != nil:
		return err
	case !bytes.Equal(o.Body, body):
		return fmt.Errorf("Get(%q): the body is %s, but must be %s", p.key, brief(o.Body), brief(body))
	case o.ETag != etag:
		return fmt.Errorf("Get(%q): the ETag is %q, but the write returned %q", p.key, o.ETag, etag)
	}
	return nil
}

func (p probe) mustBeGone() error {
	_, err := p.get()
	return notExist.check("Get of a key without an object", err)
}

func op(name, key string, err error) error {
	if err != nil {
		return fmt.Errorf("%s(%q): %w", name, key, err)
	}
	return nil
}

func brief(body []byte) string {
	if len(body) > 64 {
		return fmt.Sprintf("%.64q… (%d bytes)", body, len(body))
	}
	return fmt.Sprintf("%q", body)
}

// refusal is the error with which an operation must end.
type refusal struct {
	name string
	is   error
}

var (
	notExist           = refusal{"ErrNotExist", leasehold.ErrNotExist}
	preconditionFailed = refusal{"ErrPreconditionFailed", leasehold.ErrPreconditionFailed}
	permanent          = refusal{"ErrPermanent", leasehold.ErrPermanent}
	others             = []refusal{notExist, preconditionFailed, permanent,
		{"ErrUnsafeStore", leasehold.ErrUnsafeStore}, {"ErrCorruptRecord", leasehold.ErrCorruptRecord}}
)

func (want refusal) check(what string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s succeeded, but must be refused with %s", what, want.name)
	case !errors.Is(err, want.is):
		return fmt.Errorf("%s must return an error that matches %s, but returned: %w", what, want.name, err)
	}
	for _, other := range others {
		if !errors.Is(want.is, other.is) && errors.Is(err, other.is) {
			return fmt.Errorf("%s must return an error that matches %s alone, but it also matches %s: %w", what,
				want.name, other.name, err)
		}
	}
	return nil
}

func (p probe) errors() error {
	foreign, err := p.at("-foreign").create([]byte("foreign")) // a real ETag, but of another object
	if err != nil {
		return err
	}
	missing := func(what string, err error) error {
		if p.missing == preconditionFailed && errors.Is(err, leasehold.ErrNotExist) {
			return fmt.Errorf("%s returns ErrNotExist, as the interface wants: remove the option "+
				"MissingIsPreconditionFailed", what)
		}
		return p.missing.check(what, err)
	}
	if err := p.mustBeGone(); err != nil {
		return err
	}
	_, err = p.update([]byte("x"), foreign)
	if err := missing("PutIfMatch of a missing key", err); err != nil {
		return err
	}
	switch err := p.delete(foreign); {
	case p.ignoresDelete, p.deniesDelete:
	case p.deletesMissing && err != nil:
		return fmt.Errorf("DeleteIfMatch of a missing key is refused: remove the option DeletesMissing: %w", err)
	case !p.deletesMissing:
		if err := missing("DeleteIfMatch of a missing key", err); err != nil {
			return err
		}
	}
	etag, err := p.create([]byte("first"))
	if err != nil {
		return err
	}
	_, err = p.create([]byte("second"))
	if err := preconditionFailed.check("PutIfNoneMatch of an existing key", err); err != nil {
		return err
	}
	_, err = p.update([]byte("second"), foreign)
	if err := preconditionFailed.check("PutIfMatch with another ETag", err); err != nil {
		return err
	}
	if !p.ignoresDelete && !p.deniesDelete {
		if err := preconditionFailed.check("DeleteIfMatch with another ETag", p.delete(foreign)); err != nil {
			return err
		}
	}
	if err := p.must([]byte("first"), etag); err != nil {
		return err
	}
	if p.deniesDelete {
		return permanent.check("DeleteIfMatch without the permission", p.delete(etag))
	}
	if err := p.delete(etag); err != nil {
		return err
	}
	if err := p.mustBeGone(); err != nil {
		return err
	}
	_, err = p.update([]byte("second"), etag)
	if err := missing("PutIfMatch with the ETag of a deleted object", err); err != nil {
		return err
	}
	etag, err = p.create([]byte("anew"))
	if err != nil {
		return err
	}
	return p.must([]byte("anew"), etag)
}

func (p probe) deleteIgnored() error {
	stale, err := p.create([]byte("first"))
	if err != nil {
		return err
	}
	if _, err := p.update([]byte("second"), stale); err != nil {
		return err
	}
	if err := p.delete(stale); err != nil {
		return fmt.Errorf("DeleteIfMatch with an old ETag is refused, so the store honours the condition: remove the "+
			"option IgnoresDeleteCondition: %w", err)
	}
	return p.mustBeGone()
}

func (p probe) etags() error {
	first, err := p.create([]byte("first"))
	if err != nil {
		return err
	}
	if err := p.must([]byte("first"), first); err != nil {
		return err
	}
	second, err := p.update([]byte("secnd"), first) // as long as the first
	if err != nil {
		return err
	}
	if err := p.must([]byte("secnd"), second); err != nil {
		return err
	}
	if first == "" || second == "" {
		return errors.New("a write returned an empty ETag")
	}
	if first == second {
		return fmt.Errorf("two bodies have the same ETag %q", first)
	}
	for _, key := range []probe{p, p.at("-missing")} {
		if _, err := key.update([]byte("third"), ""); err == nil {
			return errors.New("PutIfMatch with an empty ETag succeeded, but must be refused")
		}
	}
	if err := p.at("-missing").mustBeGone(); err != nil {
		return err
	}
	again, err := p.update([]byte("first"), second)
	if err != nil {
		return err
	}
	if again == first {
		p.logf("equal bodies have equal ETags")
	} else {
		p.logf("equal bodies have different ETags")
	}
	return p.must([]byte("first"), again)
}

func (p probe) bodies() error {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, body := range map[string][]byte{
		"-empty": {}, "-every-byte": every, "-text": []byte("line\r\nline\n\ttab ünïcode"),
		"-largest": bytes.Repeat(every, leasehold.MaxObjectSize/256),
	} {
		p := p.at(name)
		own := bytes.Clone(body)
		etag, err := p.create(own)
		if err != nil {
			return err
		}
		for i := range own {
			own[i]++ // the caller may reuse its memory
		}
		if err := p.must(body, etag); err != nil {
			return err
		}
		o, err := p.get()
		if err != nil {
			return err
		}
		for i := range o.Body {
			o.Body[i]++ // and may change what it has read
		}
		if err := p.must(body, etag); err != nil {
			return err
		}
		if etag, err = p.update([]byte("other"), etag); err != nil {
			return err
		}
		if etag, err = p.update(body, etag); err != nil {
			return err
		}
		if err := p.must(body, etag); err != nil {
			return err
		}
	}
	return nil
}

func (p probe) limit() error {
	large := bytes.Repeat([]byte("x"), leasehold.MaxObjectSize+1)
	if _, err := p.create(large); err == nil {
		return fmt.Errorf("PutIfNoneMatch(%q) of %d bytes succeeded, but must be refused", p.key, len(large))
	}
	if err := p.mustBeGone(); err != nil {
		return err
	}
	etag, err := p.create([]byte("small"))
	if err != nil {
		return err
	}
	if _, err := p.update(large, etag); err == nil {
		return fmt.Errorf("PutIfMatch(%q) of %d bytes succeeded, but must be refused", p.key, len(large))
	}
	if err := p.must([]byte("small"), etag); err != nil {
		return err
	}
	if p.plant == nil {
		p.logf("reading an object over the limit was not tested: pass the option Plant to test it")
		return nil
	}
	p = p.at("-planted")
	if err := p.plant(p.key, large); err != nil {
		return fmt.Errorf("planting %q: %w", p.key, err)
	}
	o, err := p.get()
	if err := (refusal{"ErrCorruptRecord", leasehold.ErrCorruptRecord}).check(fmt.Sprintf("Get of %d bytes",
		len(large)), err); err != nil {
		return err
	}
	if o.ETag == "" {
		return errors.New("Get of an object over the limit must return its ETag, so that the object can be replaced")
	}
	etag, err = p.update([]byte("repaired"), o.ETag)
	if err != nil {
		return err
	}
	return p.must([]byte("repaired"), etag)
}

func (p probe) keys() error {
	// Neighbours are keys that a careless encoding would confuse.
	suffixes := []string{
		"/a/b/c", "/a/b-c", "/a b", "/a+b", "/a%20b", "/a%2Bb", "/a%2Fb", "/a%b", "/é", "/e\u0301", "/日本/🔒", "/K", "/k",
		"/q?x=1&y=2", "/#fragment", "/'quotes\"", "/a:b;c,d@e=f", "/(a)[b]{c}!*~$^", "/.hidden", "/..dots", "/" +
			strings.Repeat("n", 200),
	}
	etags := make([]string, len(suffixes))
	for i, suffix := range suffixes {
		var err error
		if etags[i], err = p.at(suffix).create([]byte(suffix)); err != nil {
			return err
		}
	}
	for i, suffix := range suffixes {
		if err := p.at(suffix).must([]byte(suffix), etags[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p probe) endedContext() error {
	etag, err := p.create([]byte("first"))
	if err != nil {
		return err
	}
	cancelled, cancel := context.WithCancel(p.ctx)
	cancel()
	late, cancel := context.WithDeadline(p.ctx, time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{cancelled, late} {
		ended := p
		ended.ctx = ctx
		for name, call := range map[string]func() error{
			"Get":            func() error { _, err := ended.get(); return err },
			"PutIfNoneMatch": func() error { _, err := ended.at("-new").create([]byte("x")); return err },
			"PutIfMatch":     func() error { _, err := ended.update([]byte("x"), etag); return err },
			"DeleteIfMatch":  func() error { return ended.delete(etag) },
		} {
			began := time.Now()
			if err := call(); !errors.Is(err, ctx.Err()) {
				return fmt.Errorf("%s with an ended context must return an error that matches %q, but returned: %w",
					name, ctx.Err(), orNone(err))
			}
			if took := time.Since(began); took > promptness {
				return fmt.Errorf("%s with an ended context took %v, more than %v", name, took, promptness)
			}
		}
	}
	if err := p.at("-new").mustBeGone(); err != nil {
		return err
	}
	return p.must([]byte("first"), etag)
}

func orNone(err error) error {
	if err == nil {
		return errors.New("none")
	}
	return err
}

func (p probe) age() error {
	sent := time.Now()
	etag, err := p.create([]byte("first"))
	if err != nil {
		return err
	}
	look := func() (age, elapsed time.Duration, err error) {
		o, err := p.get()
		elapsed = time.Since(sent)
		switch {
		case err != nil:
			return 0, 0, err
		case o.Age < 0:
			return 0, 0, fmt.Errorf("Get(%q): Age is %v, but must not be negative", p.key, o.Age)
		case o.Age > elapsed:
			return 0, 0, fmt.Errorf("Get(%q): Age is %v, but the write was sent only %v ago", p.key, o.Age, elapsed)
		}
		return o.Age, elapsed, nil
	}
	for {
		age, elapsed, err := look()
		if err != nil {
			return err
		}
		if elapsed >= p.wait {
			p.logf("%v after the write, Age is %v", elapsed, age)
			break
		}
		time.Sleep(p.wait / 8)
	}
	sent = time.Now()
	if _, err := p.update([]byte("second"), etag); err != nil {
		return err
	}
	if _, _, err = look(); err != nil {
		return fmt.Errorf("after an update: %w", err)
	}
	return nil
}

// counters checks concurrent updates: every writer increments its own number in one shared object.
func (p probe) counters() error {
	const writers = 8
	goal := max(p.rounds/10, 5)
	progress := &progress{began: time.Now()}
	numbers := make([]int, writers)
	if _, err := p.create(encode(numbers)); err != nil {
		return err
	}
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() { errs[i] = p.count(i, goal, progress) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range numbers {
		numbers[i] = goal
	}
	o, err := p.get()
	if err == nil && !bytes.Equal(o.Body, encode(numbers)) {
		err = fmt.Errorf("at the end the object holds %s, but must hold %s", brief(o.Body), encode(numbers))
	}
	return err
}

func encode(numbers []int) []byte {
	body, _ := json.Marshal(numbers)
	return body
}

// progress records when any writer last succeeded. Writers continue while at least one of them
// succeeds now and then.
type progress struct {
	began time.Time
	at    atomic.Int64 // nanoseconds since began
}

func (p *progress) note() { p.at.Store(int64(time.Since(p.began))) }

func (p *progress) stopped() bool { return time.Since(p.began)-time.Duration(p.at.Load()) > patience }

func (p probe) count(i, goal int, progress *progress) error {
	acknowledged := 0
	var last error
	pause := time.Millisecond
	for tries := 1; ; tries++ {
		o, err := p.get()
		if err != nil {
			return err
		}
		var numbers []int
		if err := json.Unmarshal(o.Body, &numbers); err != nil || i >= len(numbers) {
			return fmt.Errorf("Get(%q): the body is %s, which no writer wrote", p.key, brief(o.Body))
		}
		switch n := numbers[i]; {
		case n == acknowledged+1 && last != nil && !errors.Is(last, leasehold.ErrPreconditionFailed):
			acknowledged++ // an update whose error left its outcome open
			progress.note()
		case n > acknowledged:
			return fmt.Errorf("writer %d: an update was refused, but carried out: %w", i, orNone(last))
		case n < acknowledged:
			return fmt.Errorf("writer %d: update %d was acknowledged, but the object shows %d", i, acknowledged, n)
		}
		if acknowledged == goal {
			return nil
		}
		if last != nil {
			if tries > leastTries && progress.stopped() {
				return fmt.Errorf("writer %d: after %d of %d updates, no update of any writer has succeeded for %v: %w",
					i, acknowledged, goal, patience, last)
			}
			time.Sleep(mathrand.N(pause)) // do not flood a store that refuses everything
			longest := 32 * time.Millisecond
			if storeapi.Passing(p.ctx, last) { // such as one that takes a write a second
				longest = time.Second
			}
			pause = min(2*pause, longest)
		}
		numbers[i] = acknowledged + 1
		runtime.Gosched() // let the others run, even if the store never blocks
		if _, last = p.update(encode(numbers), o.ETag); last == nil {
			acknowledged++
			progress.note()
			pause = time.Millisecond
		}
	}
}
