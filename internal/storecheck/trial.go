package storecheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/internal/probe"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// trial is one run of a check.
type trial struct {
	ctx          context.Context
	s            *Store
	key          string
	ways, rounds int     // concurrent writers in a race, and how many races
	run          string  // begins what this run of the check writes
	written      *string // ETag of the object, as given to mustShow last; "" if it was not
	shared       bool    // the object may exist already, is never deleted, and other processes may check with it too
}

func (p trial) get() (object, error) { return p.s.get(p.ctx, p.key) }

func (p trial) pause(d time.Duration) error { return storeapi.Pause(p.ctx, d) }

var mark = probe.Mark{Begins: "leasehold check ", Whose: "a check's", Hint: "choose another key prefix"}

// body is something to write that no other run of any check writes.
func (p trial) body(text string) []byte { return []byte(mark.Begins + p.run + ": " + text) }

// foreign reports whether another process, or an earlier check, has written body.
func (p trial) foreign(body []byte) bool {
	return p.shared && !bytes.HasPrefix(body, p.body("")) && mark.Own(p.key, body) == nil
}

// leftover returns the ETag of the object, "" if there is none, and refuses one that is not a
// check's.
func (p trial) leftover() (etag string, err error) {
	o, err := p.get()
	if err == nil {
		err = mark.Own(p.key, o.body)
	}
	if err != nil {
		return "", ignoreMissing(err)
	}
	return o.etag, nil
}

// start puts an object in place for a check.
func (p trial) start(body []byte) (etag string, err error) {
	if p.shared {
		if etag, err = p.leftover(); err != nil {
			return "", err
		}
	}
	return p.put(body, etag)
}

// put replaces the version that this check has written or read last, or writes a new object.
func (p trial) put(body []byte, over string) (string, error) {
	etag, err := p.s.put(p.ctx, p.key, body, over)
	return etag, p.maybeDisturbed(err)
}

// maybeDisturbed marks the refusal of a write of a shared object if another process was faster.
func (p trial) maybeDisturbed(err error) error {
	if p.shared && probe.Refused(err) {
		if o, getErr := p.get(); getErr == nil && p.foreign(o.body) {
			return fmt.Errorf("%w: %w", probe.ErrDisturbed, err)
		}
	}
	return err
}

// mayDelete finds out whether objects can be removed again.
func (p trial) mayDelete() (bool, error) {
	var err error
	for range probe.Tries {
		var etag string
		if etag, err = p.leftover(); err == nil && etag == "" {
			etag, err = p.s.put(p.ctx, p.key, p.body("may it be deleted?"), "")
		}
		if err == nil {
			if err = p.s.remove(p.ctx, p.key, etag); err == nil || errors.Is(err, storeapi.ErrNotExist) {
				return true, nil
			}
			if errors.Is(err, storeapi.ErrPermanent) { // not allowed, or not implemented
				return false, nil
			}
		}
		if !probe.Refused(err) { // by another process that checks
			return false, err
		}
		if err := p.pause(mathrand.N(100 * time.Millisecond)); err != nil {
			return false, err
		}
	}
	return false, nil // refused all the time
}

// What is known of the reported ages, in a Report.
const (
	ClockNotUsed    = "not used"
	ClockConsistent = "consistent"
	ClockWrong      = "wrong"
)

// clock reads an object for a second from its writing on: it can never be older than the time
// since.
func (p trial) clock() (verdict string, err error) {
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
		case o.etag != etag && p.foreign(o.body): // another process checks: write again
			if etag = ""; tries > 2*clockLooks {
				return "", probe.ErrDisturbed
			}
		case o.etag != etag:
			return "", otherETag(o.etag, etag)
		case o.age < 0 || o.age > elapsed:
			return ClockWrong, probe.Unsafe("an object written less than %v ago is reported to be %v old: Date "+
				"and Last-Modified do not come from one clock, or a proxy writes its own Date (remove WithServerClock)",
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
