package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

// What --on-crash may be.
const (
	crashReleases = "release"
	crashKeeps    = "keep"
)

func (c *campaign) crashFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.onCrash, "on-crash", crashReleases, "what happens to the lock if leasehold is killed, when "+
		"nothing of the command is left: \"release\", or \"keep\" until the TTL has passed")
	flags.DurationVar(&c.crashDrain, "crash-drain", time.Second, "how long after the end of the command the lock is "+
		"released if leasehold is killed, for what the command has sent")
}

func (c *campaign) checkCrash() error {
	given := c.flags.Changed("crash-drain")
	switch {
	case c.onCrash != crashReleases && c.onCrash != crashKeeps:
		return exit.Errorf(exit.Usage, "--on-crash %q is neither %s nor %s", c.onCrash, crashReleases, crashKeeps)
	case c.crashDrain < 0:
		return exit.Errorf(exit.Usage, "--crash-drain %v is negative", c.crashDrain)
	case given && c.onCrash == crashKeeps:
		return exit.Errorf(exit.Usage, "--crash-drain and --on-crash keep exclude each other")
	case given && c.crashDrain >= c.ttl:
		return exit.Errorf(exit.Usage, "--crash-drain %v is not below the TTL %v, after which the lock is free: "+
			"choose a shorter one, or --on-crash keep", c.crashDrain, c.ttl)
	}
	return nil
}

// orphan is a term whose leasehold was killed, as the guard gets to know it.
type orphan struct {
	URL      string
	Handle   string // a secret
	Holder   string
	Metadata map[string]string
	Drain    time.Duration // before the release
	Output   string        // format of messages
}

// orphan is the note for the guard about the term of a lease of the lock at url; empty if the guard
// must not release it.
func (c *campaign) orphan(a *app, url string, lease *leasehold.Lease) []byte {
	if c.onCrash == crashKeeps {
		return nil
	}
	r := lease.Record()
	note, _ := json.Marshal(orphan{url, lease.Handle(), r.Holder, r.Metadata, c.crashDrain, a.output})
	return note
}

// maxOrphanPause is how long at most the guard waits between two tries to release a lock.
const maxOrphanPause = 5 * time.Second

// releaseOrphan releases the term of a leasehold that was killed, in the guard process, after
// everything else is done. ctx ends when others may take the lock anyway. Until then it tries again
// after failures that may pass.
func releaseOrphan(ctx context.Context, note []byte) {
	var o orphan
	if json.Unmarshal(note, &o) != nil {
		return
	}
	log := (&app{output: o.Output}).newLog()
	log.Warn("leasehold was killed: nothing of the command is left, and the lock will be released",
		"url", o.URL, "in", o.Drain)
	guard.Detach(os.Stdin, os.Stdout)
	told := false
	for pause, next := 250*time.Millisecond, o.Drain; ; pause = min(2*pause, maxOrphanPause) {
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return
		}
		err := o.release(ctx)
		switch {
		case err == nil, errors.Is(err, leasehold.ErrLost), errors.Is(err, leasehold.ErrReleased):
			return
		case errors.Is(err, leasehold.ErrPermanent): // tells nobody after Detach
			log.Warn("the lock could not be released: it is free after its TTL", "url", o.URL, "err", err)
			return
		case !told:
			log.Warn("the lock could not be released, will retry until its TTL has passed", "url", o.URL, "err", err)
			guard.Detach(os.Stderr)
			told = true
		}
		next = pause
	}
}

// release goes on with the term and ends it. What was sent for the term before, and arrives later,
// is refused by the store. The TTL is the time that is left. So if the second of the two writes
// fails, the lock is free about when it would have been without the first.
func (o *orphan) release(ctx context.Context) error {
	at, err := place.ParseLock(o.URL)
	if err != nil {
		return err
	}
	store, err := at.Open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	end, _ := ctx.Deadline()
	const shortest = time.Second
	lock, err := newLock(store, at.Key, []leasehold.Option{
		leasehold.WithTTL(max(time.Until(end), shortest)),
		leasehold.WithIdentity(o.Holder),
		leasehold.WithMetadata(o.Metadata),
		leasehold.WithLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return err
	}
	lease, err := lock.Resume(ctx, o.Handle)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}
