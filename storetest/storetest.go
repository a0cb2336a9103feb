// Package storetest checks that an implementation of [leasehold.Store] is one that locks can be built on.
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
	"github.com/leasehold-go/leasehold/internal/storecheck"
)

// Run tries out every promise of [leasehold.Store], one subtest each, on stores that newStore returns. It may return the
// same one each time, for no key is used twice; all begin with "storetest/", and most objects stay behind.
// Run it under -race, and against a real server if the store has one.
//
// It includes the checks of [leasehold.CheckStore], with 32 writers and hundreds of rounds for each race.
func Run(t *testing.T, newStore func(t *testing.T) leasehold.Store, opts ...Option) {
	t.Helper()
	for _, c := range newSuite(opts).checks() {
		t.Run(c.name, func(t *testing.T) {
			if err := c.run(t.Context(), newStore(t), t.Logf); err != nil {
				t.Errorf("not so: %s: %v", c.why, err)
			}
		})
	}
}

// Option tells [Run] about a store.
type Option func(*suite)

// Rounds sets how many races of each kind are run: default 200. Fewer suit a slow server, but prove less.
func Rounds(n int) Option { return func(s *suite) { s.rounds = n } }

// IgnoresDeleteCondition says that the store's DeleteIfMatch deletes whatever there is, as on MinIO. Locks can live
// with that. Run then demands that it be so, lest the option outlive its reason.
func IgnoresDeleteCondition() Option { return func(s *suite) { s.ignoresDelete = true } }

// MissingIsPreconditionFailed says that the store does not tell a missing object from a changed one when it refuses a
// PutIfMatch or DeleteIfMatch: it returns [leasehold.ErrPreconditionFailed] for both. Run then demands that it be so.
func MissingIsPreconditionFailed() Option { return func(s *suite) { s.missing = preconditionFailed } }

// DeletesMissing says that the store's DeleteIfMatch of a missing object succeeds, as on VersityGW. Run then demands that
// it be so.
func DeletesMissing() Option { return func(s *suite) { s.deletesMissing = true } }

// Plant gives Run a way to write an object behind the back of the store, to see it refuse one that is too large to be read.
func Plant(write func(key string, body []byte) error) Option {
	return func(s *suite) { s.plant = write }
}

// suite is what is known of the store under test.
type suite struct {
	rounds         int
	wait           time.Duration // how long to watch an object age
	ignoresDelete  bool
	deletesMissing bool
	missing        refusal // how a conditional write of a missing object is refused
	plant          func(key string, body []byte) error
}

const (
	ways       = 32              // writers in a race
	promptness = 5 * time.Second // the longest that a call with an ended context may take
	patience   = 5 * time.Second // without any update that succeeds
	leastTries = 8               // of an update, should the store be slow
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
		all = append(all, check{c.Name, c.Why, func(ctx context.Context, store leasehold.Store, _ func(string, ...any)) error {
			probed := storecheck.Of(store, func(o leasehold.Object) ([]byte, string, time.Duration) { return o.Body, o.ETag, o.Age })
			err := c.Run(ctx, probed, newKey(c.Name), ways, s.rounds)
			switch {
			case !errors.Is(err, storecheck.ErrDeleteIgnored):
				return err
			case s.ignoresDelete:
				return nil // looked into by "delete-ignored"
			}
			return fmt.Errorf("%w: a lock can live with it; if it is the server's way, say so with the option IgnoresDeleteCondition", err)
		}})
	}
	own := func(name, why string, run func(p probe) error) {
		all = append(all, check{name, why, func(ctx context.Context, store leasehold.Store, logf func(string, ...any)) error {
			return run(probe{s, ctx, store, newKey(name), logf})
		}})
	}
	own("errors", "every refusal has the one error that the interface names", probe.errors)
	if s.ignoresDelete {
		own("delete-ignored", "DeleteIfMatch disregards its condition, as the option says", probe.deleteIgnored)
	}
	own("etags", "ETags are never empty, read as they were written, and differ between bodies", probe.etags)
	own("bodies", "bodies come back byte by byte, and are nobody's shared memory", probe.bodies)
	own("limit", "objects over MaxObjectSize are refused", probe.limit)
	own("keys", "every key is an object of its own, whatever characters it has", probe.keys)
	own("context", "an ended context ends every call at once, and changes nothing", probe.endedContext)
	own("age", "Age is never more than the time since the write was sent, and never negative", probe.age)
	own("counters", "no acknowledged update is lost, and no refused one is carried out, among concurrent writers", probe.counters)
	return all
}

func newKey(name string) string { return "storetest/" + name + "-" + rand.Text()[:10] }

// probe is a check under way. Its methods wrap those of the store with errors that name the operation.
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

// at is p with a key of its own.
func (p probe) at(suffix string) probe {
	p.key += suffix
	return p
}

// must checks that the object is exactly this one.
func (p probe) must(body []byte, etag string) error {
	o, err := p.get()
	switch {
	case err != nil:
		return err
	case !bytes.Equal(o.Body, body):
		return fmt.Errorf("Get(%q): the body is %s, should be %s", p.key, brief(o.Body), brief(body))
	case o.ETag != etag:
		return fmt.Errorf("Get(%q): the ETag is %q, should be %q as the write gave it", p.key, o.ETag, etag)
	}
	return nil
}

func (p probe) mustBeGone() error {
	_, err := p.get()
	return notExist.check("Get of a key that has no object", err)
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

// refusal is the one error that an operation must end in.
type refusal struct {
	name string
	is   error
}

var (
	notExist           = refusal{"ErrNotExist", leasehold.ErrNotExist}
	preconditionFailed = refusal{"ErrPreconditionFailed", leasehold.ErrPreconditionFailed}
	others             = []refusal{notExist, preconditionFailed,
		{"ErrPermanent", leasehold.ErrPermanent}, {"ErrUnsafeStore", leasehold.ErrUnsafeStore}, {"ErrCorruptRecord", leasehold.ErrCorruptRecord}}
)

func (want refusal) check(what string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s succeeded, must be refused with %s", what, want.name)
	case !errors.Is(err, want.is):
		return fmt.Errorf("%s must be refused with an error that matches %s, is: %w", what, want.name, err)
	}
	for _, other := range others {
		if other != want && errors.Is(err, other.is) {
			return fmt.Errorf("%s must be refused with %s alone, but the error matches %s too: %w", what, want.name, other.name, err)
		}
	}
	return nil
}

func (p probe) errors() error {
	foreign, err := p.at("-foreign").create([]byte("foreign")) // an ETag of the server's own making, of another object
	if err != nil {
		return err
	}
	missing := func(what string, err error) error {
		if p.missing == preconditionFailed && errors.Is(err, leasehold.ErrNotExist) {
			return fmt.Errorf("%s is ErrNotExist as it should be: drop the option MissingIsPreconditionFailed", what)
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
	case p.ignoresDelete:
	case p.deletesMissing && err != nil:
		return fmt.Errorf("DeleteIfMatch of a missing key is refused: drop the option DeletesMissing: %w", err)
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
	if !p.ignoresDelete {
		if err := preconditionFailed.check("DeleteIfMatch with another ETag", p.delete(foreign)); err != nil {
			return err
		}
	}
	if err := p.must([]byte("first"), etag); err != nil {
		return err
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
		return fmt.Errorf("a stale delete is refused, so the condition is honoured: drop the option IgnoresDeleteCondition: %w", err)
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
		return errors.New("a write gave an empty ETag")
	}
	if first == second {
		return fmt.Errorf("two bodies have the same ETag %q", first)
	}
	for _, key := range []probe{p, p.at("-missing")} {
		if _, err := key.update([]byte("third"), ""); err == nil {
			return errors.New("PutIfMatch with an empty ETag wrote")
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
		"-empty": {}, "-every-byte": every, "-text": []byte("line\r\nline\n\ttab ünïcode"), "-largest": bytes.Repeat(every, leasehold.MaxObjectSize/256),
	} {
		p := p.at(name)
		own := bytes.Clone(body)
		etag, err := p.create(own)
		if err != nil {
			return err
		}
		for i := range own {
			own[i]++ // the caller's again
		}
		if err := p.must(body, etag); err != nil {
			return err
		}
		o, err := p.get()
		if err != nil {
			return err
		}
		for i := range o.Body {
			o.Body[i]++ // so is this
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
		return fmt.Errorf("PutIfNoneMatch(%q) of %d bytes succeeded, must be refused", p.key, len(large))
	}
	if err := p.mustBeGone(); err != nil {
		return err
	}
	etag, err := p.create([]byte("small"))
	if err != nil {
		return err
	}
	if _, err := p.update(large, etag); err == nil {
		return fmt.Errorf("PutIfMatch(%q) of %d bytes succeeded, must be refused", p.key, len(large))
	}
	if err := p.must([]byte("small"), etag); err != nil {
		return err
	}
	if p.plant == nil {
		p.logf("reading an object over the limit is not tried: there is no Plant")
		return nil
	}
	p = p.at("-planted")
	if err := p.plant(p.key, large); err != nil {
		return fmt.Errorf("planting %q: %w", p.key, err)
	}
	o, err := p.get()
	if err := (refusal{"ErrCorruptRecord", leasehold.ErrCorruptRecord}).check(fmt.Sprintf("Get of %d bytes", len(large)), err); err != nil {
		return err
	}
	if o.ETag == "" {
		return errors.New("Get of an object over the limit must give its ETag, for it to be repaired")
	}
	etag, err = p.update([]byte("repaired"), o.ETag)
	if err != nil {
		return err
	}
	return p.must([]byte("repaired"), etag)
}

func (p probe) keys() error {
	// Pairs that a careless encoding confuses stand side by side.
	suffixes := []string{
		"/a/b/c", "/a/b-c", "/a b", "/a+b", "/a%20b", "/a%2Bb", "/a%2Fb", "/a%b", "/é", "/e\u0301", "/日本/🔒", "/K", "/k",
		"/q?x=1&y=2", "/#fragment", "/'quotes\"", "/a:b;c,d@e=f", "/(a)[b]{c}!*~$^", "/.hidden", "/..dots", "/" + strings.Repeat("n", 200),
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
				return fmt.Errorf("%s with an ended context must return an error that matches %q, returned %w", name, ctx.Err(), orNone(err))
			}
			if took := time.Since(began); took > promptness {
				return fmt.Errorf("%s with an ended context took %v", name, took)
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
			return 0, 0, fmt.Errorf("Get(%q): Age is negative: %v", p.key, o.Age)
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
			p.logf("after %v the store knows of %v", elapsed, age)
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

// counters has every writer count up its own number in one shared object.
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
		err = fmt.Errorf("at the end the object holds %s, should hold %s", brief(o.Body), encode(numbers))
	}
	return err
}

func encode(numbers []int) []byte {
	body, _ := json.Marshal(numbers)
	return body
}

// progress is when any of the writers last succeeded: while one does, the others may go on.
type progress struct {
	began time.Time
	at    atomic.Int64 // since then
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
			return fmt.Errorf("Get(%q): the body is %s, which nobody wrote", p.key, brief(o.Body))
		}
		switch n := numbers[i]; {
		case n == acknowledged+1 && last != nil && !errors.Is(last, leasehold.ErrPreconditionFailed):
			acknowledged++ // an update with an error that leaves it open
			progress.note()
		case n > acknowledged:
			return fmt.Errorf("writer %d: an update that was refused was carried out (%w)", i, orNone(last))
		case n < acknowledged:
			return fmt.Errorf("writer %d: update %d was acknowledged, but the object shows %d", i, acknowledged, n)
		}
		if acknowledged == goal {
			return nil
		}
		if last != nil {
			if tries > leastTries && progress.stopped() {
				return fmt.Errorf("writer %d: no update succeeds any more, after %d of %d: %w", i, acknowledged, goal, last)
			}
			time.Sleep(mathrand.N(pause)) // so that a store that refuses everything is not asked without a pause
			pause = min(2*pause, 32*time.Millisecond)
		}
		numbers[i] = acknowledged + 1
		runtime.Gosched() // let the others in, should the store never block
		if _, last = p.update(encode(numbers), o.ETag); last == nil {
			acknowledged++
			progress.note()
			pause = time.Millisecond
		}
	}
}
