package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/locktable"
)

// defaultTTL is the TTL of run and elect. A command has a sixth of it between SIGTERM and SIGKILL,
// and after a crash the lock has no holder for as long as the TTL.
const defaultTTL = 30 * time.Second

// maxPoll is the longest time between two reads of a waiting command, however long the TTL is.
const maxPoll = 6 * time.Second

// campaign has the flags of the commands that take a lock.
type campaign struct {
	ttl, margin, wait time.Duration
	noWait            bool
	onCrash           string
	crashDrain        time.Duration
	holder            string
	metadata          map[string]string
	flags             *pflag.FlagSet
	announces         bool                            // acquire logs the holder for whom it waits
	store             *place.Store                    // of the lock or table
	web               web                             // of run and elect
	waiting           *waiting                        // of run
	other             atomic.Pointer[leasehold.Event] // the last new term of another holder
	has               atomic.Bool                     // the lock, even while it is being passed on
	joined            chan struct{}                   // closed when this process is a member of a table
}

// metadata is a flag that may be repeated. A value may have anything in it.
type metadata map[string]string

func (m *metadata) String() string { return "" }
func (m *metadata) Type() string   { return "name=value" }

func (m *metadata) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q is not name=value", text)
	}
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[name] = value
	return nil
}

func (c *campaign) leaseFlags(flags *pflag.FlagSet, ttl time.Duration) {
	flags.DurationVar(&c.ttl, "ttl", ttl, "time that a renewal lasts, and that the lock stays taken after a crash")
	flags.StringVar(&c.holder, "holder", "", "holder `name` that status and logs show (default host/pid/random)")
	flags.Var((*metadata)(&c.metadata), "metadata", "`name=value` that status shows; may be repeated")
	c.flags = flags
}

func (c *campaign) marginFlag(flags *pflag.FlagSet) {
	flags.DurationVar(&c.margin, "margin", 0, "time before the end of the TTL at which the command gets SIGTERM if "+
		"the lease is lost; SIGKILL follows half a margin later (default a third of the TTL). The library's defaults "+
		"are a TTL of 15s and a margin of a fifth, because a goroutine ends faster than a process")
}

func (c *campaign) waitFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&c.wait, "wait", 0, "maximum time to wait for the lock (default no limit); 0 is --no-wait")
	flags.BoolVarP(&c.noWait, "no-wait", "n", false, "fail at once if the lock is held")
	c.announces = true
}

func (c *campaign) check() error {
	switch {
	case c.wait < 0:
		return exit.Errorf(exit.Usage, "--wait %v is negative", c.wait)
	case c.noWait && c.wait > 0:
		return exit.Errorf(exit.Usage, "--wait and --no-wait exclude each other")
	case c.flags.Changed("margin") && c.margin <= 0:
		return exit.Errorf(exit.Usage, "--margin %v is not positive, but the command needs time to end", c.margin)
	case c.ttl > 0 && c.margin > c.ttl/2:
		return exit.Errorf(exit.Usage, "--margin %v exceeds half of the TTL %v (choose a shorter --margin or a "+
			"longer --ttl)", c.margin, c.ttl)
	}
	if err := c.web.check(c.metadata, c.flags); err != nil {
		return err
	}
	c.noWait = c.noWait || c.wait == 0 && c.flags.Changed("wait")
	c.margin = cmp.Or(c.margin, c.ttl/3)
	return nil
}

// lock makes the lock, with more options. After each renewal, renewed gets a value if it has room.
func (c *campaign) lock(a *app, store *place.Store, key string, renewed chan<- struct{},
	more ...leasehold.Option) (lock *leasehold.Lock, err error) {
	c.store = store
	level := slog.LevelInfo
	if c.announces && !c.noWait || isTerminal(os.Stderr) {
		level = slog.LevelWarn
	}
	opts := append(more, leasehold.WithTTL(c.ttl), leasehold.WithPollInterval(min(c.ttl/5, maxPoll)),
		leasehold.WithMetadata(c.metadata), leasehold.WithLogger(a.log),
		leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			if c.waiting != nil {
				c.waiting.saw(e, lock.Holder())
			}
			switch {
			case e.Kind == leasehold.EventRenewed:
				select {
				case renewed <- struct{}{}:
				default:
				}
			case e.Kind == leasehold.EventAcquired, e.Kind == leasehold.EventReleased, e.Kind == leasehold.EventLost:
				c.has.Store(e.Kind == leasehold.EventAcquired)
			case e.Kind == leasehold.EventNewLeader && e.Holder != lock.Holder() && !c.has.Load(): // else passed on
				c.other.Store(&e)
				a.log.Log(context.Background(), level, "the lock is held by another", "key", key, "holder",
					e.Holder, "token", e.Token)
			}
		}))
	if c.holder != "" {
		opts = append(opts, leasehold.WithHolder(c.holder))
	}
	lock, err = newLock(store, key, opts)
	return lock, err
}

// acquireUntilSignal is acquire, which a signal ends. A lease that comes together with the signal
// is released.
func (c *campaign) acquireUntilSignal(ctx context.Context, a *app, store *place.Store, lock *leasehold.Lock,
	signals <-chan os.Signal) (*leasehold.Lease, error) {
	defer wakeWhenFree(ctx, store, lock)()
	waiting, stop := untilSignal(ctx, signals)
	lease, err := acquire(waiting, c, a, lock.Key(), lock)
	stop()
	if ended, ok := errors.AsType[exit.Interrupted](context.Cause(waiting)); ok {
		if err == nil {
			_ = giveBack(ctx, lease) // the library logs a failure
		}
		return nil, ended
	}
	return lease, err
}

// wakeWhenFree has the lock read without a poll when another process of this machine has released
// it, in a directory, until stop. A renewal wakes no command.
func wakeWhenFree(ctx context.Context, store *place.Store, lock *leasehold.Lock) (stop func()) {
	return store.OnChange(lock.Key(), func() {
		if rec, err := lock.Inspect(ctx); err != nil || rec.Released() {
			lock.Wake()
		}
	})
}

// giveBack releases a lease that is not used. It tries for less than a long TTL, because no signal
// ends it.
func giveBack(ctx context.Context, lease *leasehold.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	return lease.Release(ctx)
}

// remindEvery is the time between two lines in the log of a command that waits.
const remindEvery = time.Minute

// remind logs again and again until stop that the command waits for the lock with this key, and for
// which holder. The observer of the lock has logged it at once. On a terminal, a status line
// counts.
func (c *campaign) remind(a *app, key string) (stop func()) {
	began, every, end := time.Now(), remindEvery, func() {}
	say := func() {
		args := []any{"key", key, "for", time.Since(began).Round(time.Second)}
		if e := c.other.Load(); e != nil {
			args = append(args, "holder", e.Holder, "token", e.Token)
		}
		a.log.Warn("still waiting for the lock", args...)
	}
	switch {
	case a.counts():
		every, say, end = time.Second, func() {
			if inForeground(os.Stderr) {
				a.stderr.status(c.countdown(key, time.Since(began)))
			}
		}, a.stderr.endStatus
	case c.noWait:
		return end
	}
	ticker, over, ended := time.NewTicker(every), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				say()
			case <-over:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(over)
		<-ended
		end()
	}
}

// countdown says how long the lock with this key was waited for, and when it can be free.
func (c *campaign) countdown(key string, waited time.Duration) string {
	text := fmt.Sprint("leasehold: waiting ", waited.Round(time.Second))
	if c.wait > 0 {
		text += fmt.Sprint(" of ", c.wait)
	}
	var rec leasehold.Record
	seen := c.store.Seen(key)
	if rec.UnmarshalJSON(seen.Body) != nil || rec.Released() { // or the object is a table
		return text
	}
	text += fmt.Sprintf(": held by %s, token %d, ", rec.Holder, rec.Token)
	left := time.Until(seen.Since.Add(rec.TTL)).Round(time.Second)
	if left <= 0 {
		return text + "not renewed for its TTL"
	}
	return fmt.Sprint(text, "for ", left, " unless renewed")
}

// acquire waits for a lock, or for a lock in a table, as long as the flags say. It waits longer if
// the holder, or a member in a full table, seems to have crashed, or if the lock is being created:
// otherwise a job that never waits for a TTL would never get it. key is the object's, for messages.
func acquire[L any](ctx context.Context, c *campaign, a *app, key string, lock interface {
	Acquire(ctx context.Context) (L, error)
	TryAcquire(ctx context.Context) (L, error)
}) (L, error) {
	began := time.Now()
	defer c.remind(a, key)()
	if !c.noWait {
		limited, cancel := ctx, func() {}
		if c.wait > 0 {
			limited, cancel = context.WithTimeout(ctx, c.wait)
		}
		defer cancel()
		lease, err := lock.Acquire(limited)
		cutOff := errors.Is(err, context.DeadlineExceeded) && refused(err) != nil
		if !errors.Is(err, leasehold.ErrHeld) && !cutOff || ctx.Err() != nil {
			return lease, c.gaveUp(began, err)
		}
	}
	watching, cancel := context.WithTimeout(ctx, maxExtra)
	defer cancel()
	lease, err := lock.TryAcquire(watching)
	return lease, c.gaveUp(began, err)
}

// gaveUp is the error of a wait that began then. At the end of --wait it names the holder, or what
// else has prevented the acquisition.
func (c *campaign) gaveUp(began time.Time, err error) error {
	var why error
	lock, isLock := errors.AsType[*leasehold.HeldError](err)
	table, isTable := errors.AsType[*locktable.HeldError](err)
	switch {
	case c.wait == 0:
		return err
	case isLock:
		why = lock
	case isTable:
		why = table
	case refused(err) != nil:
		return refused(err)
	case errors.Is(err, context.DeadlineExceeded):
		why = cmp.Or(c.store.Failure(), errors.New("the store has not answered"))
	default:
		return err
	}
	return &exit.GaveUp{After: max(c.wait, time.Since(began).Round(time.Second)), Err: why}
}

// maxExtra bounds the wait for a lock whose holder seems to have crashed, beyond the time that the
// user gives.
const maxExtra = 5 * time.Minute

// environment has the variables that describe the term in which a command runs.
func environment(key string, r leasehold.Record) []string {
	return []string{"LEASEHOLD_KEY=" + key, "LEASEHOLD_TOKEN=" + strconv.FormatUint(r.Token, 10),
		"LEASEHOLD_HOLDER=" + r.Holder}
}

// untilSignal is ctx until one of the signals arrives that end a process. After stop, signals has
// only later signals. A caller that needs none of these may let ctx end instead of stop.
func untilSignal(ctx context.Context, signals <-chan os.Signal) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case s := <-signals:
				switch s {
				case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
					cancel(exit.Interrupted{Signal: s.(syscall.Signal)})
					return
				}
			case <-ctx.Done():
				return
			case <-over:
				return
			}
		}
	}()
	return ctx, func() {
		close(over)
		<-ended
	}
}
