package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/locktable"
)

// inTable has the flags of run and acquire for a lock in a table. Each of them says that the URL
// names a table.
type inTable struct {
	name   string
	shared bool
	slots  int
	flags  *pflag.FlagSet
}

func (in *inTable) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&in.name, "lock", "run", "`name` of the lock in the table that the URL names")
	flags.BoolVar(&in.shared, "shared", false, "share the lock with other shared holders; the URL names a table")
	flags.IntVar(&in.slots, "slots", 0, "maximum number of holders of the lock at once, the same for all commands; "+
		"the URL names a table")
	in.flags = flags
}

// wanted reports whether the URL names a table.
func (in *inTable) wanted() bool {
	return in.flags.Changed("lock") || in.flags.Changed("shared") || in.flags.Changed("slots")
}

// check checks the flags, and the flags of c with them, if they are wanted.
func (in *inTable) check(c *campaign) error {
	switch {
	case !in.wanted():
		return nil
	case in.shared && in.flags.Changed("slots"):
		return exit.Errorf(exit.Usage, "--shared and --slots exclude each other")
	case c.flags.Changed("on-crash") && c.onCrash == crashReleases, c.flags.Changed("crash-drain"):
		return exit.Errorf(exit.Usage, "a lock in a table is free only after the TTL if leasehold is killed (leave "+
			"--on-crash and --crash-drain out)")
	case c.web.addr != "":
		return exit.Errorf(exit.Usage, "--listen is for the URL of a lock, not for a lock in a table")
	}
	claim := tables.Claim{Name: in.name, Shared: in.shared}
	if in.flags.Changed("slots") {
		claim.Slots, claim.Of = 1, in.slots // so a capacity of 0 is refused
	}
	if err := tables.CheckClaims([]tables.Claim{claim}); err != nil {
		return exit.Errorf(exit.Usage, "%w (see --lock and --slots)", err)
	}
	return nil
}

// of is the lock that the flags name.
func (in *inTable) of(t *locktable.Table) *locktable.Lock {
	switch {
	case in.slots > 0:
		return t.Semaphore(in.name, in.slots)
	case in.shared:
		return t.Shared(in.name)
	}
	return t.Lock(in.name)
}

// runInTable is run for a lock in a table. Until it returns, this process is a member of the table.
func (a *app) runInTable(ctx context.Context, c *campaign, in *inTable, args []string) error {
	j, err := a.prepare(ctx, c, args)
	if err != nil {
		return err
	}
	defer j.store.Close()
	table, err := c.table(a, j.store, j.at.Key)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	guard.Catch(signals, guard.ToGroup, guard.ToCommand, []os.Signal{syscall.SIGPIPE})
	lease, end, err := in.acquire(ctx, c, a, j.store, table, signals)
	defer func() { _ = end() }() // the library logs a failure
	if err != nil {
		return err
	}
	under := &tableLease{Lease: lease, ended: sync.OnceValue(time.Now)}
	renewed, stop := under.renewals(c.ttl / 30)
	defer stop()
	j.supervisor.Renewed = renewed
	return tenure(ctx, j, signals, lease, func(_ context.Context, lease *locktable.Lease) grant {
		return grant{lease: under, env: []string{
			"LEASEHOLD_KEY=" + j.at.Key, "LEASEHOLD_LOCK=" + in.name, "LEASEHOLD_HOLDER=" + table.MemberName(),
			"LEASEHOLD_TOKEN=" + strconv.FormatUint(lease.Token(), 10),
		}}
	})
}

// acquire runs the table until end, and waits for the lock, which a signal ends.
func (in *inTable) acquire(ctx context.Context, c *campaign, a *app, store *place.Store, table *locktable.Table,
	signals <-chan os.Signal) (lease *locktable.Lease, end func() error, err error) {
	member, leave := context.WithCancel(context.WithoutCancel(ctx))
	left := make(chan error, 1)
	go func() { left <- table.Run(member) }()
	end = sync.OnceValue(func() error {
		leave()
		return <-left
	})
	waiting, stop := untilSignal(ctx, signals)
	quiet := store.OnChange(table.Key(), table.Wake)
	lease, err = acquire(waiting, c, a, table.Key(), tableLock{in.of(table), c, a})
	quiet()
	stop()
	ended, interrupted := errors.AsType[exit.Interrupted](context.Cause(waiting))
	switch {
	case interrupted:
		err = ended // a lease that has come with the signal is handed over
	case errors.Is(err, locktable.ErrNotRunning):
		err = cmp.Or(end(), err)
	case errors.Is(err, locktable.ErrCapacity):
		err = exit.Errorf(exit.Usage, "%w (give all commands of this lock the same --slots, or none)", err)
	}
	return lease, end, err
}

// take acquires the lock for the steps of a pipeline, and hands this member over to them. Its lease
// lasts the TTL from then on, however long it has waited.
func (in *inTable) take(ctx context.Context, c *campaign, a *app, store *place.Store, at place.Location,
	signals <-chan os.Signal) (got taken, err error) {
	table, err := c.table(a, store, at.Key)
	if err != nil {
		return got, err
	}
	lease, end, err := in.acquire(ctx, c, a, store, table, signals)
	defer func() { _ = end() }() // the library logs a failure
	if err != nil {
		return got, err
	}
	limited, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	text, err := table.Detach(limited)
	runtime.KeepAlive(lease)
	if err != nil {
		return got, err
	}
	if got.handle, err = memberHandle(at, text); err != nil {
		return got, err
	}
	got.giveBack = func() error {
		_, err := got.handle.release(ctx, store)
		return err
	}
	if got.record, err = got.handle.renew(ctx, store, 0); err != nil {
		err = errors.Join(err, got.giveBack())
	}
	return got, err
}

// table makes the table, of which this process is a member under a name that no other will have.
func (c *campaign) table(a *app, store *place.Store, key string) (*locktable.Table, error) {
	c.store = store
	metadata := maps.Clone(c.metadata)
	if metadata == nil {
		metadata = make(map[string]string)
	}
	if metadata["holder"] == "" {
		host, _ := os.Hostname()
		metadata["holder"] = cmp.Or(c.holder, fmt.Sprintf("%s/%d", host, os.Getpid()))
	}
	c.joined = make(chan struct{})
	joins := sync.OnceFunc(func() { close(c.joined) })
	table, err := locktable.New(store, key, locktable.WithTTL(c.ttl), locktable.WithSafetyMargin(c.margin),
		locktable.WithObserver(func(context.Context, locktable.Event) { joins() }),
		locktable.WithPollInterval(min(c.ttl/5, maxPoll)), locktable.WithMetadata(metadata),
		locktable.WithLogger(a.log))
	if err != nil && !errors.Is(err, leasehold.ErrPermanent) && !errors.As(err, new(syscall.Errno)) {
		return nil, exit.Errorf(exit.Usage, "%w", err)
	}
	return table, err
}

// tableLock is a lock in a table, for acquire.
type tableLock struct {
	*locktable.Lock
	c *campaign
	a *app
}

// Acquire logs the holder for whom it waits, as the observer of a lock does.
func (l tableLock) Acquire(ctx context.Context) (*locktable.Lease, error) {
	lease, err := l.Lock.TryAcquire(ctx)
	if err == nil || hopeless(err) || ctx.Err() != nil {
		return lease, err
	}
	if errors.Is(err, leasehold.ErrHeld) {
		l.a.log.Warn("the lock is held by another", "err", err)
	}
	return l.Lock.Acquire(ctx)
}

// TryAcquire does not wait for a store that fails before this process is a member.
func (l tableLock) TryAcquire(ctx context.Context) (*locktable.Lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.c.joined:
		case <-ctx.Done():
		case <-l.c.store.Failed:
			cancel()
		}
	}()
	lease, err := l.Lock.TryAcquire(ctx)
	if errors.Is(err, locktable.ErrNoTerm) || ctx.Err() != nil && err != nil && !errors.Is(err, leasehold.ErrHeld) {
		err = cmp.Or(l.c.store.Failure(), err)
	}
	return lease, err
}

// hopeless reports whether an error of a table stays however long one waits.
func hopeless(err error) bool {
	for _, kind := range []error{
		leasehold.ErrPermanent, leasehold.ErrCorruptRecord, locktable.ErrCapacity, locktable.ErrFull,
		locktable.ErrNotRunning,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// refused is why a table has no place for a request, without the end of a wait for the place of a
// crashed member; nil if it has, or if that is not known.
func refused(err error) error {
	switch {
	case !errors.Is(err, locktable.ErrFull) && !errors.Is(err, locktable.ErrCapacity):
		return nil
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	switch e := err.(type) { //nolint:errorlint // each part is looked at
	case interface{ Unwrap() error }:
		return refused(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if why := refused(part); why != nil {
				return why
			}
		}
	}
	return err
}

// tableLease is a lease of a table for the guard.
type tableLease struct {
	*locktable.Lease
	ended func() time.Time // when it was seen to have ended
}

// Deadline is the deadline of the member's term, or earlier if the lease has ended before.
func (l *tableLease) Deadline() time.Time {
	deadline := l.Lease.Deadline()
	if l.Context().Err() != nil && l.ended().Before(deadline) {
		return l.ended()
	}
	return deadline
}

// renewals returns a channel that gets a value soon after each renewal of the member's term, until
// stop.
func (l *tableLease) renewals(every time.Duration) (renewed <-chan struct{}, stop func()) {
	ticker, over, each := time.NewTicker(max(every, 10*time.Millisecond)), make(chan struct{}), make(chan struct{}, 1)
	go func() {
		for last := l.Deadline(); ; {
			select {
			case <-over:
				return
			case <-ticker.C:
			}
			if now := l.Deadline(); !now.Equal(last) {
				last = now
				select {
				case each <- struct{}{}:
				default:
				}
			}
		}
	}()
	return each, func() {
		ticker.Stop()
		close(over)
	}
}
