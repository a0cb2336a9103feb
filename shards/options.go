package shards

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/export"
	"github.com/leasehold-go/leasehold/internal/warnlog"
)

// Option configures a [Group].
type Option func(*options)

type options struct {
	member  string
	ttl     time.Duration
	poll    time.Duration
	starts  int
	log     *slog.Logger
	observe func(Event)
	lock    []leasehold.Option
	clock   clock.Clock
}

// WithMember sets the name of this member, which is part of the key of its session: by default host name, process ID and a number.
// No two live processes may have the same name. A member that restarts under the same name gets its shards back. So give a name that
// stays, such as that of a pod or a slot, wherever process IDs differ from run to run.
func WithMember(name string) Option { return func(o *options) { o.member = name } }

// WithTTL sets how long a member's session lasts after its last renewal: default 15 s. After a crash the shards of a member have no
// owner for about that long. A shorter one costs more requests. Give all members the same.
func WithTTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

// WithPollInterval sets how often a member reads the plan, and how often the planner looks at each member: default TTL/5. A shard that
// moves has no owner for one to two intervals.
func WithPollInterval(d time.Duration) Option { return func(o *options) { o.poll = d } }

// WithMaxStarts bounds the handlers that start within a thirtieth of the poll interval: default 64. It spreads the load on what
// handlers connect to when a member takes over many shards at once. The requests for them are bounded by the session.
func WithMaxStarts(n int) Option { return func(o *options) { o.starts = n } }

// WithLogger sets the logger of the group and of its locks: default [slog.Default], at level Warn and above. A nil logger keeps
// both silent.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) {
		if o.log = l; l == nil {
			o.log = slog.New(slog.DiscardHandler)
		}
	}
}

// WithObserver sets a function that is called with every [Event], on the goroutine that caused it. It must be quick, and must be safe
// for concurrent use.
func WithObserver(f func(Event)) Option { return func(o *options) { o.observe = f } }

// WithLockOptions gives further options to the member's session and to all locks of the group, such as a safety margin, a clock drift
// or an observer of requests. What this package has an option for is decided by that. [leasehold.WithStoreCheck] and
// [leasehold.WithEachLockReleased] are not for groups.
func WithLockOptions(opts ...leasehold.Option) Option {
	return func(o *options) { o.lock = append(o.lock, opts...) }
}

const (
	defaultTTL    = 15 * time.Second
	defaultStarts = 64
)

// groups counts those of this process, so that each has a name of its own.
var groups atomic.Int64

func newOptions(opts []Option) (*options, error) {
	o := &options{ttl: defaultTTL, starts: defaultStarts, clock: clock.System}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("an Option is nil")
		}
		opt(o)
	}
	if o.poll == 0 {
		o.poll = o.ttl / 5
	}
	switch {
	case o.poll < 0:
		return nil, fmt.Errorf("poll interval %v is negative", o.poll)
	case o.starts < 1:
		return nil, fmt.Errorf("WithMaxStarts(%d): no handler could start", o.starts)
	case len(o.member) > 200:
		return nil, fmt.Errorf("WithMember: the name has %d bytes, over the limit of 200", len(o.member))
	}
	if o.member == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.member = fmt.Sprintf("%s-%d-%d", host, os.Getpid(), groups.Add(1))
	}
	lock := append([]leasehold.Option{}, o.lock...)
	o.lock = append(lock, leasehold.WithTTL(o.ttl), leasehold.WithPollInterval(o.poll), leasehold.WithIdentity(o.member))
	if o.log != nil {
		o.lock = append(o.lock, leasehold.WithLogger(o.log))
	} else {
		o.log = warnlog.New()
	}
	if o.clock != clock.System {
		o.lock = append(o.lock, export.WithClock.(func(clock.Clock) leasehold.Option)(o.clock))
	}
	return o, nil
}

func init() {
	export.ShardsWithClock = func(c clock.Clock) Option { return func(o *options) { o.clock = c } }
}
