package leasehold

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/export"
)

// Report says what [CheckStore] found.
type Report struct {
	ConditionalPuts    bool     // creates and updates are refused when they must be, also under concurrency
	ConditionalDeletes bool     // so are deletes; locks do not need it
	ServerClock        string   // what is known of [Object].Age: "not used", "consistent" or "wrong"; "" if the check did not get so far
	Requests           int      // what the check cost
	Left               []string // keys of objects that could not be removed again
}

const (
	checkWays    = 8                      // concurrent writers in a race of CheckStore
	checkRetries = 12                     // of a check that another process disturbs
	clockLooks   = 6                      // at an object whose age is measured
	clockStep    = 250 * time.Millisecond // at most, between them: HTTP dates change once a second
)

// CheckStore tries out, with about 50 requests on keys that begin with keyPrefix, whether the store enforces its
// preconditions for these credentials. If conditional puts are not enforced, the error matches [ErrUnsafeStore] and says
// what went wrong: some S3 servers ignore the headers silently. It matches ErrUnsafeStore too if the store tells ages of
// objects ([WithServerClock]) that are higher than they can be; measuring them takes a second. Any other error means that
// the question is open: access denied, say, or a time-out. A Store whose method Validate returns an error is refused
// with that error.
//
// The objects have fresh keys and are removed again. Without the permission to delete there are two objects, keyPrefix +
// "-probe" and keyPrefix + "-delete", which stay and are used again by the next check: [Report] names them. Any number of
// processes may check the same store with the same prefix at the same time.
func CheckStore(ctx context.Context, s Store, keyPrefix string) (Report, error) {
	report, err := checkStore(ctx, s, keyPrefix)
	if err != nil {
		err = fmt.Errorf("leasehold: %w", err)
	}
	return report, err
}

// checkStore is CheckStore for callers that put the package's name into the error themselves.
func checkStore(ctx context.Context, s Store, keyPrefix string) (report Report, err error) {
	if why := badKey(keyPrefix + "x"); why != "" {
		return Report{}, fmt.Errorf("key prefix %.80q %s: use a path such as \"locks/check\"", keyPrefix, why)
	}
	if v, ok := s.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return Report{}, err
		}
	}
	counted := &countingStore{Store: s}
	defer func() { report.Requests = int(counted.requests.Load()) }()
	shared := keyPrefix + "-probe"
	fixed := probe{ctx: ctx, s: counted, key: keyPrefix + "-delete", run: rand.Text()}
	removes, err := fixed.mayDelete()
	if err != nil {
		return report, fmt.Errorf("checking that the store can be written: %w", err)
	}
	if !removes {
		report.Left = append(report.Left, fixed.key)
	}
	var problems []error
	puts, deletes := true, removes
	clock := storeCheck{"clock", "no object is told older than it is", func(p probe) (err error) {
		report.ServerClock, err = p.clock()
		return err
	}}
	for _, c := range append(slices.Clone(storeChecks), clock) {
		if !removes && c.name == "delete" {
			continue
		}
		p := probe{ctx: ctx, s: counted, key: keyPrefix + "-" + c.name + "-" + rand.Text()[:10], ways: checkWays, rounds: 1}
		if !removes && c.name != "missing" { // which writes nothing on a safe store
			p.key, p.shared = shared, true
		}
		err := p.undisturbed(c.run)
		switch {
		case errors.Is(err, errDeleteIgnored):
			deletes = false
		case err != nil:
			problems = append(problems, fmt.Errorf("checking that %s: %w", c.why, err))
			puts = puts && c.name == clock.name
		}
		if !p.shared {
			if err := remove(ctx, counted, p.key); err != nil {
				report.Left = append(report.Left, p.key)
			}
		}
		if permanent(err) && !errors.Is(err, ErrUnsafeStore) {
			break
		}
	}
	if !removes {
		if _, err := counted.Get(ctx, shared); err == nil {
			report.Left = append(report.Left, shared)
		}
	}
	report.ConditionalPuts, report.ConditionalDeletes = puts, puts && deletes
	return report, errors.Join(problems...)
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
	ways, rounds int    // concurrent writers in a race, and how many races
	run          string // begins what this run of the check writes
	shared       bool   // the object may exist already, is never deleted, and other processes may check with it too
}

var (
	errDeleteIgnored = errors.New("conditional deletes are not enforced")
	errDisturbed     = errors.New("other processes check the store with the same object all the time")
)

// undisturbed runs a check until no other process has come in between.
func (p probe) undisturbed(run func(probe) error) error {
	for try := 1; ; try++ {
		p.run = rand.Text()
		err := run(p)
		if !errors.Is(err, errDisturbed) || try == checkRetries {
			return err
		}
		pause := 10 * time.Millisecond << min(try, 5)
		if err := p.pause(pause/2 + mathrand.N(pause)); err != nil {
			return err
		}
	}
}

func (p probe) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.ctx.Done():
		return p.ctx.Err()
	case <-timer.C:
		return nil
	}
}

const probeMark = "leasehold check " // begins every object of a check

// body is something to write that no other run of any check writes.
func (p probe) body(text string) []byte { return []byte(probeMark + p.run + ": " + text) }

// foreign reports whether another process, or an earlier check, has written body.
func (p probe) foreign(body []byte) bool {
	return p.shared && !bytes.HasPrefix(body, p.body("")) && bytes.HasPrefix(body, []byte(probeMark))
}

// leftover reads the object if there is one, and refuses one that is not a check's.
func (p probe) leftover() (etag string, exists bool, err error) {
	o, err := p.s.Get(p.ctx, p.key)
	switch {
	case errors.Is(err, ErrNotExist):
		return "", false, nil
	case err != nil:
		return "", false, err
	case !bytes.HasPrefix(o.Body, []byte(probeMark)):
		return "", false, &storeError{kind: ErrPermanent, cause: fmt.Errorf("the object %q is not a check's own", p.key), hint: "choose another key prefix"}
	}
	return o.ETag, true, nil
}

// start puts an object in place for a check.
func (p probe) start(body []byte) (etag string, err error) {
	exists := false
	if p.shared {
		if etag, exists, err = p.leftover(); err != nil {
			return "", err
		}
	}
	if exists {
		return p.update(body, etag)
	}
	etag, err = p.s.PutIfNoneMatch(p.ctx, p.key, body)
	return etag, p.maybeDisturbed(err)
}

// update replaces the version that this check has written or read last.
func (p probe) update(body []byte, etag string) (string, error) {
	etag, err := p.s.PutIfMatch(p.ctx, p.key, body, etag)
	return etag, p.maybeDisturbed(err)
}

// maybeDisturbed marks the refusal of a write of a shared object if another process was faster.
func (p probe) maybeDisturbed(err error) error {
	if p.shared && (refused(err) || errors.Is(err, errConflict)) {
		if o, getErr := p.s.Get(p.ctx, p.key); getErr == nil && p.foreign(o.Body) {
			return fmt.Errorf("%w: %w", errDisturbed, err)
		}
	}
	return err
}

// mayDelete finds out whether objects can be removed again.
func (p probe) mayDelete() (bool, error) {
	var err error
	for range checkRetries {
		var etag string
		var exists bool
		if etag, exists, err = p.leftover(); err == nil && !exists {
			etag, err = p.s.PutIfNoneMatch(p.ctx, p.key, p.body("may it be deleted?"))
		}
		if err == nil {
			if err = p.s.DeleteIfMatch(p.ctx, p.key, etag); err == nil || errors.Is(err, ErrNotExist) {
				return true, nil
			}
			if errors.Is(err, ErrPermanent) || errors.Is(err, ErrUnsafeStore) { // not allowed, or not implemented
				return false, nil
			}
		}
		if !refused(err) && !errors.Is(err, errConflict) { // by another process that checks
			return false, err
		}
		if err := p.pause(mathrand.N(100 * time.Millisecond)); err != nil {
			return false, err
		}
	}
	return false, nil // refused all the time
}

// What is known of the ages told, in a Report.
const (
	clockNotUsed    = "not used"
	clockConsistent = "consistent"
	clockWrong      = "wrong"
)

// clock reads an object for a second from its writing on: it can never be older than the time since.
func (p probe) clock() (verdict string, err error) {
	teller, _ := p.s.(interface{ TellsAge() bool })
	told := teller != nil && teller.TellsAge()
	body := p.body("how old is it?")
	var sent time.Time
	etag := ""
	for looks, tries := 0, 0; looks < clockLooks; tries++ {
		if etag == "" {
			sent = time.Now()
			if etag, err = p.start(body); err != nil {
				return "", err
			}
		}
		o, err := p.s.Get(p.ctx, p.key)
		elapsed := time.Since(sent)
		switch {
		case err != nil:
			return "", err
		case o.ETag != etag && p.foreign(o.Body): // somebody else's check: write again
			if etag = ""; tries > 2*clockLooks {
				return "", errDisturbed
			}
		case o.ETag != etag:
			return "", unsafe("the ETag reads %q, but the write gave %q", o.ETag, etag)
		case o.Age < 0 || o.Age > elapsed:
			return clockWrong, unsafe("an object written less than %v ago is told to be %v old: Date and Last-Modified do not come from "+
				"one clock, or a proxy writes its own Date (remove WithServerClock)", elapsed.Round(time.Millisecond), o.Age)
		default:
			if told = told || o.Age > 0; !told {
				return clockNotUsed, nil
			}
			looks++
		}
		if err := p.pause(clockStep/2 + mathrand.N(clockStep/2)); err != nil {
			return "", err
		}
	}
	return clockConsistent, nil
}

// unsafe is a failure that no lock can live with.
func unsafe(format string, args ...any) error {
	return &storeError{kind: ErrUnsafeStore, cause: fmt.Errorf(format, args...)}
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
	case p.foreign(o.Body):
		return errDisturbed
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
		_, err := p.s.PutIfMatch(p.ctx, p.key, p.body("x"), `"0123456789abcdef0123456789abcdef"`)
		return mustRefuse("PutIfMatch of a missing key", err)
	}},
	{"create-race", "of many creates at once, exactly one wins", func(p probe) error {
		base := p.key
		for round := range p.rounds {
			if p.rounds > 1 {
				p.key = fmt.Sprintf("%s-%d", base, round)
			}
			exists := false
			if p.shared { // then none may win
				var err error
				if _, exists, err = p.leftover(); err != nil {
					return err
				}
			}
			etag, err := p.race(func(body []byte) (string, error) { return p.s.PutIfNoneMatch(p.ctx, p.key, body) })
			switch {
			case exists && etag != "":
				return unsafe("a create over an existing object succeeded")
			case exists && errors.Is(err, errNoWinner), errors.Is(err, errDisturbed) && !exists:
			case err != nil:
				return err
			}
		}
		return nil
	}},
	{"create", "a create over an existing object is refused", func(p probe) error {
		first := p.body("\x00first\xff\n")
		etag, err := p.start(first)
		if err != nil {
			return err
		}
		_, err = p.s.PutIfNoneMatch(p.ctx, p.key, p.body("second"))
		if err := mustRefuse("a second PutIfNoneMatch", err); err != nil {
			return err
		}
		return p.mustHold(first, etag)
	}},
	{"update", "an update of a stale version is refused", func(p probe) error {
		stale, err := p.start(p.body("first"))
		if err != nil {
			return err
		}
		second := p.body("second")
		etag, err := p.update(second, stale)
		if err != nil {
			return err
		}
		if etag == stale {
			return unsafe("two different bodies have the same ETag %q", etag)
		}
		_, err = p.s.PutIfMatch(p.ctx, p.key, p.body("third"), stale)
		if err := mustRefuse("PutIfMatch with a stale ETag", err); err != nil {
			return err
		}
		return p.mustHold(second, etag)
	}},
	{"update-race", "of many updates of one version at once, exactly one wins", func(p probe) error {
		etag, err := p.start(p.body("start"))
		for round := 0; err == nil && round < p.rounds; round++ {
			etag, err = p.race(func(body []byte) (string, error) {
				return p.s.PutIfMatch(p.ctx, p.key, fmt.Appendf(body, " of round %d", round), etag)
			})
		}
		return err
	}},
	{"delete", "a delete of a stale version is refused", func(p probe) error {
		stale, err := p.start(p.body("first"))
		if err != nil {
			return err
		}
		second := p.body("second")
		etag, err := p.update(second, stale)
		if err != nil {
			return err
		}
		switch err := p.s.DeleteIfMatch(p.ctx, p.key, stale); {
		case err == nil, errors.Is(err, ErrPermanent): // not allowed, or not implemented: as good as not enforced
			return fmt.Errorf("%w (%w)", errDeleteIgnored, orUnexpected(err))
		case !refused(err):
			return err
		}
		if err := p.mustHold(second, etag); err != nil {
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

var errNoWinner = errors.New("none of the writers succeeded")

// race has p.ways writers write at once and returns the ETag of the only winner, whose body must stand.
func (p probe) race(write func(body []byte) (string, error)) (etag string, err error) {
	etags, errs := make([]string, p.ways), make([]error, p.ways)
	var wg sync.WaitGroup
	for i := range p.ways {
		wg.Go(func() { etags[i], errs[i] = write(p.body(fmt.Sprintf("writer %d.", i))) })
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
		err := fmt.Errorf("%w: %w", errNoWinner, errors.Join(errs...))
		return "", p.maybeDisturbed(err)
	}
	o, err := p.s.Get(p.ctx, p.key)
	switch {
	case err != nil:
		return "", err
	case p.foreign(o.Body):
		return "", errDisturbed
	case !bytes.HasPrefix(o.Body, p.body(fmt.Sprintf("writer %d.", winner))) || o.ETag != etags[winner]:
		return "", unsafe("writer %d succeeded, but the object holds %q with ETag %q", winner, o.Body, o.ETag)
	}
	return o.ETag, nil
}

// countingStore counts requests.
type countingStore struct {
	Store
	requests atomic.Int64
}

// TellsAge hands through the optional method of the store.
func (c *countingStore) TellsAge() bool {
	teller, ok := c.Store.(interface{ TellsAge() bool })
	return ok && teller.TellsAge()
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
				return c.run(probe{ctx: ctx, s: s, key: key, ways: ways, rounds: rounds, run: rand.Text()})
			}
			if !yield(c.name, c.why, run) {
				return
			}
		}
	}
}
