package leasehold

import (
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
	"github.com/leasehold-go/leasehold/internal/export"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Option configures a [Lock]. Options that cannot work together are refused by [NewLock], which says why.
type Option func(*options)

type options struct {
	ttl        time.Duration
	renew      time.Duration
	poll       time.Duration
	margin     time.Duration
	attempt    time.Duration // bound on one request, derived
	skew       time.Duration
	drift      float64
	identity   string
	metadata   map[string]string
	hasName    bool // WithIdentity was given
	reclaim    bool
	manual     bool
	storeCheck bool
	log        *slog.Logger
	observe    func(Event)
	clock      clock.Clock
}

const (
	defaultTTL   = 15 * time.Second
	defaultSkew  = 5 * time.Second
	defaultDrift = 0.02
	minTTL       = time.Second
	unset        = time.Duration(math.MinInt64)
)

// WithTTL sets for how long an acquisition or renewal is good: default 15 s, at least 1 s (1 ms on a
// [MemStore]; a Store with a method MinTTL() time.Duration sets its own least). After a crash nobody leads for about a TTL;
// a shorter one costs more requests.
func WithTTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

// WithRenewInterval sets how often a holder renews: default a third of the TTL. The first failed renewal then leaves
// time for two more tries before the lease ends. Renewals come up to a twentieth of it early, and the first of a term up to
// a half, so that locks that were taken together are not renewed together.
func WithRenewInterval(d time.Duration) Option { return func(o *options) { o.renew = d } }

// WithPollInterval sets about how often a waiting candidate reads the lock: default TTL/5. Each wait is between 0.7 and 1.5 of
// it, so that one read comes soon after each renewal if they are not more frequent; with the defaults that makes two reads
// per renewal. It bounds how long a released lock stays free. [Lock.Watch] keeps to it within 10 %.
func WithPollInterval(d time.Duration) Option { return func(o *options) { o.poll = d } }

// WithSafetyMargin sets how long before the TTL has passed a lease ends for its holder: default a fifth of the TTL.
// It is the time that the holder's code has to stop after its context ends, before anyone else may lead; it must be positive.
func WithSafetyMargin(d time.Duration) Option { return func(o *options) { o.margin = d } }

// WithIdentity sets the name under which this candidate appears in the record: default host/pid/random. It need not be
// unique, except with [WithReclaim]: a lock recognises its own writes by nonce.
func WithIdentity(name string) Option { return func(o *options) { o.identity, o.hasName = name, true } }

// WithMetadata puts a few strings into the record for others to read, such as the leader's address; 8 KiB as JSON at most.
func WithMetadata(m map[string]string) Option { return func(o *options) { o.metadata = maps.Clone(m) } }

// WithReclaim lets a restarted process take its own unexpired lock back at once, with a new token. Its user guarantees
// that no two live processes have the same [WithIdentity]: a StatefulSet's pod name does, a host name may not. Within one
// process, Locks that share a Store value, a key and an identity do not reclaim from each other.
func WithReclaim() Option { return func(o *options) { o.reclaim = true } }

// WithManualRenewal leaves renewing to the caller of [Lease.Renew]: for step-by-step jobs that want to prove the lease
// before each step. An [Elector] refuses such a lock.
func WithManualRenewal() Option { return func(o *options) { o.manual = true } }

// WithStoreCheck runs [CheckStore] once before the first acquisition, and refuses a store that ignores conditional
// writes with [ErrUnsafeStore]. It costs about 50 requests, on objects whose keys begin with the lock's key and ".check". The
// lock logs which of them it could not delete.
func WithStoreCheck() Option { return func(o *options) { o.storeCheck = true } }

// WithSkewAllowance sets how far the wall clocks of this machine and of a foreign client that writes no ttl may be
// apart: default 5 s. Nothing else depends on wall clocks.
func WithSkewAllowance(d time.Duration) Option { return func(o *options) { o.skew = d } }

// WithClockDrift sets by which fraction a candidate's monotonic clock may run faster than a holder's: default 0.02.
// Quartz drifts by 0.0001 and time daemons slew by up to 0.1 in rare corrections, which the safety margin covers too.
func WithClockDrift(fraction float64) Option { return func(o *options) { o.drift = fraction } }

// WithLogger sets a logger: default [slog.Default], at level Warn and above. Steps of a term are logged at Info, failures that
// are retried at Warn, an overrun of a lease at Error. A nil logger keeps the lock silent.
func WithLogger(l *slog.Logger) Option {
	if l == nil {
		l = silent
	}
	return func(o *options) { o.log = l }
}

// WithObserver has f called with every [Event], on the goroutine that caused it: it must be quick, must not call back
// into the lock, and must be safe for concurrent use.
func WithObserver(f func(Event)) Option { return func(o *options) { o.observe = f } }

var silent = slog.New(slog.DiscardHandler)

// warnings is the default logger's handler: whatever slog.Default is when something is logged, from Warn on.
type warnings struct{}

func (warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && slog.Default().Enabled(ctx, level)
}
func (warnings) Handle(ctx context.Context, r slog.Record) error {
	return slog.Default().Handler().Handle(ctx, r)
}
func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w } // a Lock gives all attributes with the record
func (w warnings) WithGroup(string) slog.Handler      { return w }

func newOptions(s Store, opts []Option) (*options, error) {
	o := &options{
		ttl: defaultTTL, renew: unset, poll: unset, margin: unset, skew: defaultSkew, drift: defaultDrift,
		log: slog.New(warnings{}), clock: clock.System,
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("leasehold: an Option is nil")
		}
		opt(o)
	}
	setDefault(&o.renew, o.ttl/3)
	setDefault(&o.poll, o.ttl/5)
	setDefault(&o.margin, o.ttl/5)
	if o.observe == nil {
		o.observe = func(Event) {}
	}
	if err := o.validate(s); err != nil {
		return nil, fmt.Errorf("leasehold: %w", err)
	}
	if !o.hasName {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.identity = fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:8])
	}
	// Three attempts that all hang must fit between the renewal and the end of the lease.
	o.attempt = max((o.ttl-o.margin-o.renew)/3, time.Millisecond)
	return o, nil
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == unset {
		*d = value
	}
}

// maxMetadata bounds the metadata as JSON, so that it always fits into a record beside the largest payload.
const maxMetadata = 8 << 10

func (o *options) validate(s Store) error {
	least := minTTL
	if m, ok := s.(interface{ MinTTL() time.Duration }); ok {
		least = max(m.MinTTL(), time.Millisecond)
	}
	leastPoll, leastMargin := max(least/20, time.Millisecond/10), least/100
	valid := o.ttl - o.margin
	switch {
	case o.ttl < least:
		return fmt.Errorf("TTL %v is below %v, the least that this store allows: "+
			"network delays and clock resolution would end leases at random%s", o.ttl, least, nanoseconds(o.ttl))
	case o.ttl > wire.MaxTTL:
		return fmt.Errorf("TTL %v is over %v", o.ttl, wire.MaxTTL)
	case o.renew < least/3:
		return fmt.Errorf("renew interval %v is below %v, a third of the least TTL of this store%s", o.renew, least/3, nanoseconds(o.renew))
	case o.poll < leastPoll:
		return fmt.Errorf("poll interval %v is below %v, the least for this store: each poll is a request%s", o.poll, leastPoll, nanoseconds(o.poll))
	case o.poll > wire.MaxTTL:
		return fmt.Errorf("poll interval %v is over %v", o.poll, wire.MaxTTL)
	case o.margin < leastMargin:
		return fmt.Errorf("safety margin %v is below %v: the holder's code needs time to stop before others may lead%s", o.margin, leastMargin, nanoseconds(o.margin))
	case o.margin >= o.ttl:
		return fmt.Errorf("safety margin %v is not below the TTL %v", o.margin, o.ttl)
	case o.renew*3/2 > valid:
		return fmt.Errorf("renew interval %v leaves no time for a second try before the lease ends after %v "+
			"(TTL %v minus safety margin %v): use at most two thirds of that", o.renew, valid, o.ttl, o.margin)
	case o.skew < 0 || o.skew > 0 && o.skew < time.Millisecond:
		return fmt.Errorf("skew allowance %v is neither 0 nor at least 1ms%s", o.skew, nanoseconds(o.skew))
	case !(o.drift >= 0 && o.drift <= 1):
		return fmt.Errorf("clock drift %v is not between 0 and 1", o.drift)
	case o.hasName && o.identity == "":
		return errors.New("WithIdentity: the name is empty; without the option it is host/pid/random")
	case o.reclaim && !o.hasName:
		return errors.New("WithReclaim needs WithIdentity: a name that no other live process has")
	case len(o.identity) > 1024 || !utf8.ValidString(o.identity):
		return errors.New("identity must be valid UTF-8 of at most 1024 bytes")
	}
	for k, v := range o.metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("metadata %q is not valid UTF-8", k)
		}
	}
	with, err := Record{Metadata: o.metadata}.MarshalJSON()
	without, _ := Record{}.MarshalJSON()
	if size := len(with) - len(without); err != nil || size > maxMetadata {
		return fmt.Errorf("metadata of %d bytes as JSON is over %d", size, maxMetadata)
	}
	return nil
}

// nanoseconds is a hint for those who gave a plain number.
func nanoseconds(d time.Duration) string {
	if d > 0 && d < time.Microsecond {
		return fmt.Sprintf(" (a plain number counts nanoseconds: write %d*time.Second)", int64(d))
	}
	return ""
}

func init() {
	export.WithClock = func(c clock.Clock) Option { return func(o *options) { o.clock = c } }
}
