package sim

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold"
)

var (
	errReset = errors.New("connection reset by peer")
	err500   = errors.New("500 InternalError")
	err503   = errors.New("503 SlowDown")
	err409   = errors.New("409 ConditionalRequestConflict")
	// what a policy answers that somebody has just changed
	errAccess = fmt.Errorf("%w: 403 AccessDenied", leasehold.ErrPermanent)
)

// networkFault is what the network does to one request, and also the delays of a request that goes
// well.
type networkFault struct {
	name           string
	requestDelay   time.Duration // until the request reaches the server
	replyDelay     time.Duration // until the reply reaches the client
	dropRequest    bool
	duplicateAfter time.Duration // the request reaches the server again, so long after the first time; 0: it does not
	err            error         // what the client gets instead of the reply
	errAtOnce      bool          // err does not wait for the server
	dropReply      bool          // the client hears nothing until its own deadline
	page           bool          // the client gets a proxy's page, with status 200, instead of the reply
	pageETag       string        // of that page
}

// ofRead is the fault of a request that is no write: no linearizable store answers one on an object
// that exists as if it did not.
func (f networkFault) ofRead() networkFault {
	if errors.Is(f.err, leasehold.ErrNotExist) || errors.Is(f.err, leasehold.ErrPreconditionFailed) {
		f.err = err500
	}
	return f
}

// drawPage draws what happens to a request whose answer is a proxy's page. It may have an ETag, but
// to a write only where the real S3Store can tell: a Store that answers a write with an ETag has
// written.
func drawPage(r *rand.Rand, kind string, realStore bool) networkFault {
	f := networkFault{
		name:         "answered by a page",
		requestDelay: time.Millisecond,
		replyDelay:   time.Millisecond,
		dropRequest:  r.IntN(2) == 0,
		page:         true,
	}
	if r.IntN(2) == 0 && (kind == "get" || realStore) {
		f.name, f.pageETag = "answered by a page with an ETag", `"page"`
	}
	return f
}

// drawFault draws what happens to a request. The share is that of requests that go wrong. One that
// lands late does so within three TTLs.
func drawFault(r *rand.Rand, cfg *Config, share float64, faultsOn bool) networkFault {
	ms := func(from, to time.Duration) time.Duration {
		return from*time.Millisecond + below(r, (to-from)*time.Millisecond)
	}
	f := networkFault{name: "ok", requestDelay: ms(1, 30), replyDelay: ms(1, 30)}
	// All are drawn for every request, so that a change of one rate leaves the rest of a world as
	// it was.
	p, kind, slow, late, flip := r.Float64(), r.IntN(10), ms(100, 3000),
		below(r, 3*cfg.TTL), r.IntN(2) == 0
	if cfg.CreateOnly {
		late *= createOnlyTimes
	}
	if faultsOn && cfg.Slow {
		f.name, f.replyDelay = "slow", slow
	}
	if !faultsOn || p >= share {
		return f
	}
	answers := []error{err500, err503, err409, leasehold.ErrPreconditionFailed, leasehold.ErrNotExist, errReset}
	switch kind {
	case 0, 1:
		f.name = "slow"
		if flip {
			f.requestDelay += slow
		} else {
			f.replyDelay += slow
		}
	case 2:
		f.name, f.dropRequest, f.dropReply = "lost before it lands, no reply", true, true
	case 3:
		f.name, f.dropRequest, f.err = "refused before it lands", true, answers[r.IntN(3)]
	case 4:
		f.name, f.dropReply = "applied, no reply", true
	case 5, 6:
		f.name, f.err = "applied, answered otherwise", answers[r.IntN(len(answers))]
	case 7:
		f.name, f.requestDelay, f.dropReply = "ghost: lands late, no reply", late, true
	case 8:
		f.name, f.requestDelay, f.err, f.errAtOnce = "ghost: lands late, connection reset", late,
			io.ErrUnexpectedEOF, true
	case 9:
		f.name, f.duplicateAfter = "applied twice", late
	}
	return f
}
