package leasehold

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/warnlog"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Option configures a [Lock]. [NewLock] refuses options that cannot work together, and says why.
type Option func(*options)

type options struct {
	ttl      time.Duration
	renew    time.Duration
	poll     time.Duration
	margin   time.Duration
	attempt  time.Duration // bounds one request; derived from the others
	skew     time.Duration
	drift    float64
	holder   string
	metadata map[string]string
	hasName  bool // WithHolder was given
	reclaim  bool
	manual   bool
	log      *slog.Logger
	observe  func(context.Context, Event)
	clock    clock.Clock
	process  wire.Process
}

const (
	defaultTTL   = 15 * time.Second
	defaultSkew  = 5 * time.Second
	defaultDrift = 0.02
	minTTL       = time.Second
	unset        = time.Duration(math.MinInt64)
)

// Pauses between requests are fractions of the TTL, up to these limits. A store recovers no later
// because the TTL is long.
const (
	maxFirstPause    = time.Second            // after one failure
	maxConflictPause = 100 * time.Millisecond // after a 409: another write is under way
	maxBackoff       = 30 * time.Second       // after many failures in a row
	// of the tries to release at the end of Do and Run, once their ctx has ended
	maxParting = 30 * time.Second
)

// WithTTL sets how long an acquisition or renewal lasts: default 15 s, at least 1 s, at most ten
// years. A store may set another minimum ([StoreInfo]), such as 1 ms for [NewMemStore]. After a
// crash the lock has no leader for about one TTL. A shorter TTL costs more requests.
//
// The TTL also limits single requests. One attempt of a request gets a third of the time that
// remains of the TTL after the safety margin and the renew interval, at most 10 s. By default that
// is about a sixth of the TTL. The first pause between attempts is at most 1 s. Later pauses grow,
// to 30 s at most.
func WithTTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

// WithRenewInterval sets how often a holder renews: default a third of the TTL, which leaves time
// for two more tries after a failed renewal before the lease ends. Renewals come up to a twentieth
// of the interval early, and the first renewal of a term up to half an interval early, so that
// locks that were taken together are not renewed together. The interval is at most two thirds of
// the time between the beginning of the TTL and the safety margin, and at most ten years.
func WithRenewInterval(d time.Duration) Option { return func(o *options) { o.renew = d } }

// WithPollInterval sets about how often a waiting candidate reads the lock: default TTL/5. Most
// waits are between 0.7 and 1.5 times the interval, so that one read comes soon after each renewal,
// if renewals are not more frequent than reads. Up to 12 waits per term are shorter, until the
// candidate knows when renewals come. With the defaults there are two reads per renewal. The
// interval bounds how long a released lock has no holder, unless something calls [Lock.Wake].
// [Lock.Watch] keeps to the interval within 10 %. The interval is at most ten years.
func WithPollInterval(d time.Duration) Option { return func(o *options) { o.poll = d } }

// WithSafetyMargin sets how long before the end of the TTL a lease ends for its holder: default a
// fifth of the TTL. In this time the holder's code must stop after its context ends, before another
// process may lead. The margin must be positive, below the TTL, and at most ten years.
func WithSafetyMargin(d time.Duration) Option { return func(o *options) { o.margin = d } }

// WithHolder sets the name of this candidate in the record: default host/pid/random. The name need
// not be unique, except with [WithReclaim], because a lock recognises its own writes by nonce.
func WithHolder(name string) Option { return func(o *options) { o.holder, o.hasName = name, true } }

// WithMetadata puts strings into the record for others to read, such as the leader's address: at
// most 8 KiB as JSON.
func WithMetadata(m map[string]string) Option { return func(o *options) { o.metadata = maps.Clone(m) } }

// WithReclaim lets a restarted process take its own unexpired lock back at once, with a new token.
// You guarantee that no two running processes have the same [WithHolder]. The pod name of a
// StatefulSet is such a name, but a host name may not be. Locks of one process do not reclaim from
// each other, nor do a process and its copy in a copied machine. A restarted copy still has the
// name, so give the copy another one. If an old version of the object is restored, a Lock that has
// seen no later term reclaims it, even if another process holds the lock.
func WithReclaim() Option { return func(o *options) { o.reclaim = true } }

// WithManualRenewal leaves renewing to the caller of [Lease.Renew]. It is for step-by-step jobs
// that confirm the lease before each step. An [Elector] refuses such a lock.
func WithManualRenewal() Option { return func(o *options) { o.manual = true } }

// WithSkewAllowance sets the tolerated difference between the wall clocks of this machine and of a
// client that has written a record: default 5 s, at most ten years. It decides when a holder seems
// to have crashed ([HeldError]), and when the lease of a foreign client that does not write ttl
// ends. Nothing else depends on wall clocks.
func WithSkewAllowance(d time.Duration) Option { return func(o *options) { o.skew = d } }

// WithClockDrift sets the tolerated difference in clock rate between machines: the fraction by
// which a candidate's monotonic clock may run faster than a holder's. The default is 0.02. Quartz
// drifts by 0.0001. Time daemons slew by up to 0.1 in rare corrections, which the safety margin
// covers too.
func WithClockDrift(fraction float64) Option { return func(o *options) { o.drift = fraction } }

// WithLogger sets the logger: default [slog.Default], at level Warn and above. Steps of a term are
// logged at Info, failures that are retried at Warn, and an overrun of a lease at Error. A nil
// logger means the default, so that an unset field cannot hide lost leases. For silence use
// [slog.DiscardHandler]. The goroutine that renews a lease calls the logger. While a handler
// blocks, nothing is renewed, and the lease ends at its deadline.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = cmp.Or(l, warnlog.New()) } }

// WithObserver sets a function that is called with every [Event], on the goroutine that caused it.
// The context belongs to the call that caused the event, and may have ended. For renewals in the
// background and other events that no call caused, it is [context.Background]. The function must be
// quick, must not call back into the lock, and must be safe for concurrent use.
func WithObserver(f func(context.Context, Event)) Option { return func(o *options) { o.observe = f } }

func newOptions(minimum time.Duration, opts []Option) (*options, error) {
	o := &options{
		ttl: defaultTTL, renew: unset, poll: unset, margin: unset, skew: defaultSkew, drift: defaultDrift,
		log: warnlog.New(), clock: clock.System, process: wire.ThisProcess,
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("leasehold: an Option is nil")
		}
		opt(o)
	}
	for d, part := range map[*time.Duration]time.Duration{&o.renew: 3, &o.poll: 5, &o.margin: 5} {
		if *d == unset {
			*d = o.ttl / part
		}
	}
	if o.observe == nil {
		o.observe = func(context.Context, Event) {}
	}
	if err := o.validate(max(cmp.Or(minimum, minTTL), time.Millisecond)); err != nil {
		return nil, fmt.Errorf("leasehold: %w", err)
	}
	if !o.hasName {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.holder = fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:8])
	}
	o.attempt = clock.Attempt(o.ttl, o.margin, o.renew)
	return o, nil
}

// maxMetadata bounds the metadata as JSON, so that it always fits into a record with the largest
// payload.
const maxMetadata = 8 << 10

// maxDuration bounds every duration that is set, so that a few times as much is still a duration.
const maxDuration = 10 * 365 * 24 * time.Hour

func (o *options) validate(minimum time.Duration) error {
	for _, set := range []struct {
		what string
		d    time.Duration
	}{
		{"TTL", o.ttl}, {"renew interval", o.renew}, {"poll interval", o.poll}, {"safety margin", o.margin},
		{"skew allowance", o.skew},
	} {
		if set.d > maxDuration {
			return fmt.Errorf("%s %v exceeds ten years (%v)", set.what, set.d, maxDuration)
		}
	}
	minPoll, minMargin := max(minimum/20, time.Millisecond/10), minimum/100
	switch {
	case o.ttl < minimum:
		return fmt.Errorf("TTL %v is below %v, the minimum of this store: "+
			"network delays and clock resolution would end leases at random%s", o.ttl, minimum, nanoseconds(o.ttl))
	case o.renew < minimum/3:
		return fmt.Errorf("renew interval %v is below %v, a third of the minimum TTL of this store%s", o.renew,
			minimum/3, nanoseconds(o.renew))
	case o.poll < minPoll:
		return fmt.Errorf("poll interval %v is below %v, the minimum for this store, because each poll is a request%s",
			o.poll, minPoll, nanoseconds(o.poll))
	case o.margin < minMargin:
		return fmt.Errorf("safety margin %v is below %v: the holder's code needs time to stop before others may lead%s",
			o.margin, minMargin, nanoseconds(o.margin))
	case o.margin >= o.ttl:
		return fmt.Errorf("safety margin %v is not below the TTL %v", o.margin, o.ttl)
	case o.renew*3/2 > o.ttl-o.margin:
		return fmt.Errorf("renew interval %v leaves no time for a second try before the lease ends after %v, "+
			"the TTL %v minus the safety margin %v (use at most two thirds of that)",
			o.renew, o.ttl-o.margin, o.ttl, o.margin)
	case o.skew < 0 || o.skew > 0 && o.skew < time.Millisecond:
		return fmt.Errorf("skew allowance %v is neither 0 nor at least 1ms%s", o.skew, nanoseconds(o.skew))
	case !(o.drift >= 0 && o.drift <= 1):
		return fmt.Errorf("clock drift %v is not between 0 and 1", o.drift)
	case o.hasName && o.holder == "":
		return errors.New("WithHolder: the name is empty (leave the option out to get host/pid/random)")
	case o.reclaim && !o.hasName:
		return errors.New("WithReclaim needs WithHolder: a name that no other live process has")
	case len(o.holder) > 1024 || !utf8.ValidString(o.holder):
		return errors.New("holder must be valid UTF-8 of at most 1024 bytes")
	}
	for k, v := range o.metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("metadata %q is not valid UTF-8", k)
		}
	}
	with, err := Record{Metadata: o.metadata}.MarshalJSON()
	without, _ := Record{}.MarshalJSON()
	if size := len(with) - len(without); err != nil || size > maxMetadata {
		return fmt.Errorf("metadata of %d bytes as JSON exceeds the limit of %d", size, maxMetadata)
	}
	return nil
}

// nanoseconds is a hint for callers that gave a plain number.
func nanoseconds(d time.Duration) string {
	if d > 0 && d < time.Microsecond {
		return fmt.Sprintf(" (a plain number counts nanoseconds: write %d*time.Second)", int64(d))
	}
	return ""
}

func init() {
	clock.Option = func(c clock.Clock) Option { return func(o *options) { o.clock = c } }
	wire.Option = func(p wire.Process) Option { return func(o *options) { o.process = p } }
}
