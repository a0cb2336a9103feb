package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
)

// What --on-crash may be.
const (
	crashReleases = "release"
	crashKeeps    = "keep"
)

func (c *campaign) crashFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.onCrash, "on-crash", crashReleases, "action if leasehold is killed: \"release\" the lock "+
		"when nothing of the command is left, or \"keep\" it until the TTL has passed")
	flags.DurationVar(&c.crashDrain, "crash-drain", time.Second, "time between the end of the command and the release "+
		"if leasehold is killed, because requests that the command has sent may still arrive")
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
		return exit.Errorf(exit.Usage, "--crash-drain %v is not below the TTL %v, after which the lock is free "+
			"(choose a shorter one, or --on-crash keep)", c.crashDrain, c.ttl)
	}
	return nil
}

// orphan is a term whose leasehold was killed, as the guard gets to know it.
type orphan struct {
	Handle string        // a secret
	Drain  time.Duration // before the release
	Output string        // format of messages
}

// orphan is the note for the guard about the term of a lease of the lock at url; empty if the guard
// must not release it.
func (c *campaign) orphan(a *app, url string, lease *leasehold.Lease) []byte {
	if c.onCrash == crashKeeps {
		return nil
	}
	note, _ := json.Marshal(orphan{url + termMark + lease.Handle(), c.crashDrain, a.output})
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
	h, err := parseHandle(o.Handle)
	if err != nil {
		return
	}
	a := newApp()
	a.output = o.Output
	defer a.stderr.flush()
	log := a.newLog().With("url", h.at.String())
	log.Warn("leasehold was killed: the guard releases the lock", "in", o.Drain)
	guard.Detach(os.Stdin, os.Stdout)
	logged := false
	over, _ := ctx.Deadline()
	for pause, next := 250*time.Millisecond, o.Drain; ; pause = min(2*pause, maxOrphanPause) {
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return
		}
		if !time.Now().Before(over) { // after a stop of this process, ctx may end a little later
			return
		}
		err := h.releaseInTime(ctx)
		switch {
		case err == nil, errors.Is(err, leasehold.ErrLost), errors.Is(err, leasehold.ErrReleased):
			return
		case errors.Is(err, leasehold.ErrPermanent): // after Detach, this goes to /dev/null
			log.Warn("releasing failed", "err", err, "free_after", time.Until(over).Round(time.Millisecond))
			return
		case !logged:
			log.Warn("releasing failed", "err", err, "retries_for", time.Until(over).Round(time.Millisecond))
			a.stderr.flush()
			guard.Detach(os.Stderr)
			logged = true
		}
		next = pause
	}
}

// releaseInTime continues the term and ends it. The store refuses requests of the term that arrive
// later. The TTL is the time that ctx has left. If the second of the two writes fails, the lock is
// free a TTL of the lease after the first, because a TTL that others wait out is never shortened.
func (h handle) releaseInTime(ctx context.Context) error {
	store, err := h.at.Open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	end, _ := ctx.Deadline()
	lease, _, err := h.tryResume(ctx, store, max(time.Until(end), shortestTTL))
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}
