package locktable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/warnlog"
)

// Option configures a [Table]. [New] refuses options that cannot work together.
type Option func(*options)

type options struct {
	member            string
	hasName           bool // WithMemberName was given
	ttl, poll, margin time.Duration
	drift             float64
	metadata          map[string]string
	maxSize           int
	log               *slog.Logger
	observe           func(Event)
	clock             clock.Clock
	lock              []leasehold.Option // of tests
}

// patience is how long the cause may be a busy store if nothing moves: two TTLs, or two polls if
// these take longer.
func (o *options) patience() time.Duration { return 2 * max(o.ttl, o.poll) }

const (
	minMaxSize = 4 << 10
	unset      = time.Duration(math.MinInt64)
)

// WithMemberName sets the name of this member, which is also part of the key of the member's
// object: the name of a pod, for example. The name may not contain a slash. The default is the
// machine's name, the process ID and random letters, and is unique for each Table. A process that
// restarts under the name of a crashed member waits for a TTL. If two running processes have one
// name, only one of them at a time can use the table.
func WithMemberName(name string) Option { return func(o *options) { o.member, o.hasName = name, true } }

// WithTTL sets how long the member's lock lasts without a renewal: see [leasehold.WithTTL]. About
// one TTL after a process has crashed, other members can get its locks. Give all members of a table
// the same TTL.
func WithTTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

// WithPollInterval sets how often a member that waits reads the table: default TTL/5. One read
// serves all requests of the member. After [Table.Wake] the member reads at once.
func WithPollInterval(d time.Duration) Option { return func(o *options) { o.poll = d } }

// WithSafetyMargin sets how long before the end of the TTL all leases of a member end if the
// member's lock could not be renewed: see [leasehold.WithSafetyMargin].
func WithSafetyMargin(d time.Duration) Option { return func(o *options) { o.margin = d } }

// WithClockDrift sets the tolerated difference in clock rate between the members: see
// [leasehold.WithClockDrift].
func WithClockDrift(fraction float64) Option { return func(o *options) { o.drift = fraction } }

// WithMetadata puts strings into the table for the other members to read, such as this member's
// address: see [leasehold.WithMetadata].
func WithMetadata(m map[string]string) Option { return func(o *options) { o.metadata = maps.Clone(m) } }

// WithMaxSize bounds the table's object, in bytes: at least 4 KiB, and at most
// [leasehold.MaxObjectSize], which is also the default. If a request would make the object larger,
// the error matches [ErrFull]. A lock that is held takes about 40 bytes.
func WithMaxSize(bytes int) Option { return func(o *options) { o.maxSize = bytes } }

// WithLogger sets the logger, as [leasehold.WithLogger] does.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = cmp.Or(l, warnlog.New()) } }

// WithObserver sets a function that is called with every [Event], as [leasehold.WithObserver] does.
// No event of a table belongs to one call, so the context is [context.Background]. The function
// must be quick, must not call back into the table, and must be safe for concurrent use.
func WithObserver(f func(context.Context, Event)) Option {
	return func(o *options) {
		if o.observe = nil; f != nil {
			o.observe = func(e Event) { f(context.Background(), e) }
		}
	}
}

func newOptions(opts []Option) (options, error) {
	o := options{
		ttl: 15 * time.Second, poll: unset, margin: unset, drift: 0.02, maxSize: leasehold.MaxObjectSize,
		log: warnlog.New(), clock: clock.System,
	}
	for _, opt := range opts {
		if opt == nil {
			return o, errors.New("an Option is nil")
		}
		opt(&o)
	}
	for _, d := range []*time.Duration{&o.poll, &o.margin} {
		if *d == unset {
			*d = o.ttl / 5
		}
	}
	if o.observe == nil {
		o.observe = func(Event) {}
	}
	switch {
	case o.maxSize < minMaxSize || o.maxSize > leasehold.MaxObjectSize:
		return o, fmt.Errorf("WithMaxSize: %d is not between %d and %d bytes", o.maxSize, minMaxSize,
			leasehold.MaxObjectSize)
	case o.hasName && o.member == "":
		return o, errors.New("WithMemberName: the name is empty (leave the option out to get a unique one)")
	case strings.Contains(o.member, "/"):
		return o, fmt.Errorf("WithMemberName: %.80q contains a slash", o.member)
	}
	return o, nil
}

// settings are the settings of the members' locks.
func (o *options) settings() membership.Settings {
	return membership.Settings{
		TTL: o.ttl, Poll: o.poll, Margin: o.margin, Drift: o.drift, Holder: o.member, Log: o.log, Clock: o.clock,
		Options: o.lock,
	}
}

// attempt bounds one request, as for a member's lock: see [leasehold.WithTTL].
func (o *options) attempt() time.Duration { return o.settings().Attempt() }

func init() {
	clock.TableOption = func(c clock.Clock, lock leasehold.Option) Option {
		return func(o *options) { o.clock, o.lock = c, append(o.lock, lock) }
	}
}
