package membership

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// Settings are the settings of all locks of a group, in one process. For TTL, Poll, Margin and
// Drift see leasehold.WithTTL, WithPollInterval, WithSafetyMargin and WithClockDrift.
type Settings struct {
	TTL, Poll, Margin time.Duration
	Drift             float64
	Holder            string
	Log               *slog.Logger
	Clock             clock.Clock        // nil means clock.System
	Options           []leasehold.Option // of every lock
}

// Attempt bounds one request, as leasehold.WithTTL says.
func (s Settings) Attempt() time.Duration { return clock.Attempt(s.TTL, s.Margin, s.renew()) }

// renew is how often members renew.
func (s Settings) renew() time.Duration { return s.TTL / 3 }

// Group is the members of one group, as one process sees them. It is safe for concurrent use.
type Group struct {
	store   leasehold.Store
	s       Settings
	deletes atomic.Int32 // one of the following
}

// What is known of the store's DELETE. Some servers ignore its condition. There, a late DELETE
// would remove the object of a running member. So the first removal tries the condition with an
// older version, and a server that ignores it gets no further DELETE.
const (
	untried int32 = iota
	enforced
	ignored
)

// NewGroup returns a group whose members have their objects in this store.
func NewGroup(store leasehold.Store, s Settings) *Group {
	s.Clock, s.Log = cmp.Or(s.Clock, clock.System), cmp.Or(s.Log, slog.Default())
	return &Group{store: store, s: s}
}

// lock makes a lock with the settings of the group. Later options win.
func (g *Group) lock(key string, more ...leasehold.Option) (*leasehold.Lock, error) {
	opts := []leasehold.Option{
		leasehold.WithTTL(g.s.TTL), leasehold.WithRenewInterval(g.s.renew()), leasehold.WithPollInterval(g.s.Poll),
		leasehold.WithSafetyMargin(g.s.Margin), leasehold.WithClockDrift(g.s.Drift),
		leasehold.WithHolder(g.s.Holder), leasehold.WithLogger(g.s.Log),
	}
	return leasehold.NewLock(g.store, key, append(append(opts, g.s.Options...), more...)...)
}

// Break ends the term of a member by force: see leasehold.Lock.Break.
func (g *Group) Break(ctx context.Context, key string, token uint64) error {
	l, err := g.lock(key)
	if err != nil {
		return err
	}
	return l.Break(ctx, token)
}

// version is the version of an object that is about to be released, for remove to try the condition
// with; "" if that is known already.
func (g *Group) version(ctx context.Context, key string) string {
	if g.deletes.Load() != untried {
		return ""
	}
	obj, _ := g.store.Get(ctx, key)
	return obj.ETag
}

// remove deletes the object of a member whose term was released, unless another term has begun in
// it. stale is from version. Without it, or if version has seen the release already, the condition
// cannot be tried, and the object stays. unique says that no other process will ever use the key:
// then the condition need not be tried.
func (g *Group) remove(ctx context.Context, key string, term leasehold.Record, stale string, unique bool) error {
	tries := !unique && g.deletes.Load() == untried
	if g.deletes.Load() == ignored || tries && stale == "" {
		return nil
	}
	obj, err := g.store.Get(ctx, key)
	if errors.Is(err, leasehold.ErrNotExist) {
		return nil
	}
	var rec leasehold.Record
	if err == nil {
		err = rec.UnmarshalJSON(obj.Body)
	}
	if err != nil || !rec.Released() || TermOf(key, rec) != TermOf(key, term) {
		return err
	}
	if tries {
		if stale == obj.ETag {
			return nil
		}
		switch err := g.store.DeleteIfMatch(ctx, key, stale); {
		case err == nil: // the object was removed against the condition
			g.deletes.Store(ignored)
			return nil
		case errors.Is(err, leasehold.ErrPreconditionFailed):
			g.deletes.CompareAndSwap(untried, enforced)
		default:
			return gone(err)
		}
	}
	return gone(g.store.DeleteIfMatch(ctx, key, obj.ETag))
}

// gone is the error of a DELETE, and nil if the object is absent or another one is in its place.
func gone(err error) error {
	if errors.Is(err, leasehold.ErrPreconditionFailed) || errors.Is(err, leasehold.ErrNotExist) {
		return nil
	}
	return err
}
