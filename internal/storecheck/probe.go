package storecheck

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

type probe struct {
	ctx          context.Context
	s            *Store
	key          string
	ways, rounds int     // concurrent writers in a race, and how many races
	run          string  // begins what this run of the check writes
	written      *string // ETag of the object, as mustShow was told it last; "" if it was not
	shared       bool    // the object may exist already, is never deleted, and other processes may check with it too
}

var (
	errDisturbed = errors.New("other processes check the store with the same object all the time, or a cache in " +
		"front of it answers reads")
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

func (p probe) get() (object, error) { return p.s.get(p.ctx, p.key) }

func (p probe) pause(d time.Duration) error { return storeapi.Pause(p.ctx, d) }

const probeMark = "leasehold check " // begins every object of a check

// body is something to write that no other run of any check writes.
func (p probe) body(text string) []byte { return []byte(probeMark + p.run + ": " + text) }

// foreign reports whether another process, or an earlier check, has written body.
func (p probe) foreign(body []byte) bool {
	return p.shared && !bytes.HasPrefix(body, p.body("")) && bytes.HasPrefix(body, []byte(probeMark))
}

// leftover reads the object if there is one, and refuses one that is not a check's.
func (p probe) leftover() (etag string, exists bool, err error) {
	o, err := p.get()
	switch {
	case errors.Is(err, storeapi.ErrNotExist):
		return "", false, nil
	case err != nil:
		return "", false, err
	case !bytes.HasPrefix(o.body, []byte(probeMark)):
		return "", false, &storeapi.Error{
			Kind:  storeapi.ErrPermanent,
			Cause: fmt.Errorf("the object %q is not a check's own", p.key),
			Hint:  "choose another key prefix",
		}
	}
	return o.etag, true, nil
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
	etag, err = p.s.create(p.ctx, p.key, body)
	return etag, p.maybeDisturbed(err)
}

// update replaces the version that this check has written or read last.
func (p probe) update(body []byte, etag string) (string, error) {
	etag, err := p.s.update(p.ctx, p.key, body, etag)
	return etag, p.maybeDisturbed(err)
}

// maybeDisturbed marks the refusal of a write of a shared object if another process was faster.
func (p probe) maybeDisturbed(err error) error {
	if p.shared && (storeapi.Refused(err) || errors.Is(err, storeapi.ErrConflict)) {
		if o, getErr := p.get(); getErr == nil && p.foreign(o.body) {
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
			etag, err = p.s.create(p.ctx, p.key, p.body("may it be deleted?"))
		}
		if err == nil {
			if err = p.s.remove(p.ctx, p.key, etag); err == nil || errors.Is(err, storeapi.ErrNotExist) {
				return true, nil
			}
			if errors.Is(err, storeapi.ErrPermanent) { // not allowed, or not implemented
				return false, nil
			}
		}
		if !storeapi.Refused(err) && !errors.Is(err, storeapi.ErrConflict) { // by another process that checks
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
	ClockNotUsed    = "not used"
	ClockConsistent = "consistent"
	ClockWrong      = "wrong"
)

// clock reads an object for a second from its writing on: it can never be older than the time
// since.
func (p probe) clock() (verdict string, err error) {
	told := p.s.tellsAge
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
		o, err := p.get()
		elapsed := time.Since(sent)
		switch {
		case err != nil:
			return "", err
		case o.etag != etag && p.foreign(o.body): // somebody else's check: write again
			if etag = ""; tries > 2*clockLooks {
				return "", errDisturbed
			}
		case o.etag != etag:
			return "", otherETag(o.etag, etag)
		case o.age < 0 || o.age > elapsed:
			return ClockWrong, notSafe("an object written less than %v ago is told to be %v old: Date and "+
				"Last-Modified do not come from "+
				"one clock, or a proxy writes its own Date (remove WithServerClock)",
				elapsed.Round(time.Millisecond), o.age)
		default:
			if told = told || o.age > 0; !told {
				return ClockNotUsed, nil
			}
			looks++
		}
		if err := p.pause(clockStep/2 + mathrand.N(clockStep/2)); err != nil {
			return "", err
		}
	}
	return ClockConsistent, nil
}
