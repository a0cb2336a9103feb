package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// handle names a term for a process that did not begin it: the URL of the lock, "#", the token, "-", and a secret. Its text is a URL, so
// it can stand wherever one can. The record has the hash of the secret, which whoever may read the bucket cannot turn into a handle.
type handle struct {
	at     location
	token  uint64
	secret string
}

const handleEnv = "LEASEHOLD_HANDLE"

// metadataKey is where the record has the hash.
const metadataKey = "handle"

func (h handle) String() string { return fmt.Sprintf("%v#%d-%s", h.at, h.token, h.secret) }

func (h handle) hash() string {
	sum := sha256.Sum256([]byte(h.secret))
	return hex.EncodeToString(sum[:16])
}

// names reports whether the record is of the handle's term.
func (h handle) names(r leasehold.Record) bool {
	return r.Token == h.token && r.Metadata[metadataKey] == h.hash()
}

func parseHandle(text string) (handle, error) {
	url, fragment, ok := strings.Cut(text, "#")
	if !ok {
		return handle{}, fail(exitUsage, "%q is not a handle: pass what acquire has printed", url)
	}
	at, err := parseLock(url)
	number, secret, _ := strings.Cut(fragment, "-")
	token, notNumber := strconv.ParseUint(number, 10, 64)
	if err != nil || notNumber != nil || token == 0 || len(secret) != len(rand.Text()) {
		return handle{}, fail(exitUsage, "the handle of %q is not a whole one: pass what acquire has printed", url)
	}
	return handle{at, token, secret}, nil
}

// maxPoll is how often a lock with a long TTL is read while its next holder waits.
const maxPoll = 5 * time.Second

func (a *app) acquire() *cobra.Command {
	var c campaign
	cmd := &cobra.Command{
		Use:   "acquire [flags] URL",
		Short: "Take a lock for several steps of a pipeline, and print a handle",
		Long: `Waits for the lock, takes it for the TTL, and prints a handle. Later steps, each a process of its own, give the handle back to
"renew" and "release". Nothing renews the lease in between, so choose a TTL that covers the longest time between two steps.

Who has the handle can release the lock: keep it among the secrets of the pipeline.`,
		Example: `  handle=$(leasehold acquire --ttl 1h --wait 10m s3://bucket/locks/deploy)
  leasehold renew "$handle"
  leasehold release "$handle"`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.takeForSteps(ctx, &c, args[0])
		}),
	}
	c.leaseFlags(cmd.Flags(), time.Hour)
	c.waitFlags(cmd.Flags())
	return cmd
}

func (a *app) takeForSteps(ctx context.Context, c *campaign, url string) error {
	if err := c.check(); err != nil {
		return err
	}
	at, err := parseLock(url)
	if err != nil {
		return err
	}
	if goesNowhere(os.Stdout) {
		return fail(exitUsage, "standard output is closed or /dev/null, so the handle would be lost")
	}
	store, err := at.open(ctx)
	if err != nil {
		return err
	}
	defer store.close()
	h := handle{at: at, secret: rand.Text()}
	c.metadata = maps.Clone(c.metadata)
	if c.metadata == nil {
		c.metadata = make(map[string]string)
	}
	c.metadata[metadataKey] = h.hash()
	lock, err := c.lock(a, store, at.key, func() {}, leasehold.WithManualRenewal(), leasehold.WithPollInterval(min(c.ttl/5, maxPoll)))
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	catch(signals, toGroup, []os.Signal{syscall.SIGPIPE})
	lease, err := c.acquireUntilSignal(ctx, a, lock, signals)
	if err != nil {
		return err
	}
	h.token = lease.Token()
	err = a.print(struct {
		Handle string `json:"handle"`
		shown
	}{h.String(), show(at, lease.Record(), 0)}, h.String())
	if err != nil {
		return errors.Join(err, lease.Release(ctx))
	}
	signal.Reset() // the lock is the caller's now
	return nil
}

// goesNowhere reports whether what is written to a file is lost.
func goesNowhere(f *os.File) bool {
	null, err1 := os.Stat(os.DevNull)
	info, err2 := f.Stat()
	return err2 != nil || err1 == nil && os.SameFile(null, info)
}

func (a *app) renew() *cobra.Command {
	return &cobra.Command{
		Use:   "renew [flags] [HANDLE]",
		Short: "Renew a lease that acquire has begun",
		Long: `Renews the lease of the handle for its TTL. If it succeeds, nobody else has held the lock since "acquire", even if the lease had run
out. If it exits with 79, the lease is lost. Without an argument, the handle is taken from ` + handleEnv + `.`,
		Args:              handleArg,
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.withHandle(ctx, args, "renewed", func(r *leasehold.Record) {
				r.ExpiresAt = r.RenewedAt.Add(r.TTL)
			})
		}),
	}
}

func (a *app) release() *cobra.Command {
	return &cobra.Command{
		Use:   "release [flags] [HANDLE]",
		Short: "Release a lock that acquire has taken",
		Long: `Releases the lock of the handle. Releasing twice does no harm. If the lease is lost, it changes nothing and exits with 79. Without an
argument, the handle is taken from ` + handleEnv + `.`,
		Args:              handleArg,
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.withHandle(ctx, args, "released", func(r *leasehold.Record) { r.ExpiresAt = time.Time{} })
		}),
	}
}

// handleArg is a handle, or none.
func handleArg(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return fail(exitUsage, "%s takes one handle, not %d", cmd.Name(), len(args))
	case len(args) == 0 && os.Getenv(handleEnv) == "":
		return fail(exitUsage, "there is no handle: pass what acquire has printed, or set %s", handleEnv)
	}
	return nil
}

// withHandle changes the record of the handle's term.
func (a *app) withHandle(ctx context.Context, args []string, done string, edit func(*leasehold.Record)) error {
	h, err := parseHandle(append(args, os.Getenv(handleEnv))[0])
	if err != nil {
		return err
	}
	store, err := h.at.open(ctx)
	if err != nil {
		return err
	}
	defer store.close()
	record, err := h.write(ctx, store, edit)
	if err != nil {
		return err
	}
	view := show(h.at, record, 0)
	text := fmt.Sprintf("%s: %s token %d", view.URL, done, record.Token)
	if !record.Released() {
		text += " until " + record.ExpiresAt.Format(time.DateTime)
	}
	return a.print(view, text)
}

// retryFor bounds the attempts to write.
const retryFor = 30 * time.Second

// write changes the record of the term, by writes that are conditional on the version that it has read. It repeats them while
// their outcome is unknown: the nonce that is read back tells. If it returns leasehold.ErrLost, it has changed nothing.
func (h handle) write(ctx context.Context, store leasehold.Store, edit func(*leasehold.Record)) (leasehold.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	sent := make(map[string]bool) // nonces
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		record, err := h.attempt(ctx, store, sent, edit)
		if err == nil || errors.Is(err, leasehold.ErrLost) || storeapi.Permanent(err) {
			return record, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return record, err
		}
	}
}

func (h handle) attempt(
	ctx context.Context, store leasehold.Store, sent map[string]bool, edit func(*leasehold.Record),
) (r leasehold.Record, err error) {
	o, err := store.Get(ctx, h.at.key)
	if err == nil {
		err = r.UnmarshalJSON(o.Body)
	}
	switch {
	case errors.Is(err, leasehold.ErrNotExist):
		return r, h.lost("the lock object was deleted")
	case err != nil:
		return r, fmt.Errorf("lock %q: %w", h.at.key, err)
	case sent[r.Nonce]:
		return r, nil
	case !h.names(r) && r.Released():
		return r, h.lost("%q had it with token %d and has released it", r.Holder, r.Token)
	case !h.names(r):
		return r, h.lost("%q has it with token %d", r.Holder, r.Token)
	}
	r.RenewedAt, r.Nonce = time.Now(), rand.Text()
	wasReleased := r.Released()
	edit(&r)
	switch {
	case wasReleased && !r.Released():
		return r, h.lost("it was released")
	case wasReleased:
		return r, nil
	}
	body, err := r.MarshalJSON()
	if err != nil {
		return r, err
	}
	sent[r.Nonce] = true
	if _, err = store.PutIfMatch(ctx, h.at.key, body, o.ETag); err != nil {
		err = fmt.Errorf("lock %q: %w", h.at.key, err)
	}
	return r, err
}

func (h handle) lost(format string, args ...any) error {
	return fmt.Errorf("lock %q: %w (token %d): %s (acquire the lock again)", h.at.key, leasehold.ErrLost, h.token, fmt.Sprintf(format, args...))
}
