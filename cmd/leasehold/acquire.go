package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// handle names a term for a process that did not begin it: the URL of the lock, "#", the token,
// "-", and a secret. Its text is a URL, so it can stand wherever one can. The record has the hash
// of the secret, which whoever may read the bucket cannot turn into a handle.
type handle struct {
	at     place.Location
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
		return handle{}, exit.Errorf(exit.Usage, "%q is not a handle: pass what acquire has printed",
			place.WithoutSecrets(url))
	}
	at, err := place.ParseLock(url)
	number, secret, _ := strings.Cut(fragment, "-")
	token, notNumber := strconv.ParseUint(number, 10, 64)
	if err != nil || notNumber != nil || token == 0 || len(secret) != len(rand.Text()) {
		return handle{}, exit.Errorf(exit.Usage, "the handle of %q is not a whole one: pass what acquire has printed",
			place.WithoutSecrets(url))
	}
	return handle{at, token, secret}, nil
}

func (a *app) acquire() *cobra.Command {
	var c campaign
	var file string
	cmd := &cobra.Command{
		Use:   "acquire [flags] URL",
		Short: "Take a lock for several steps of a pipeline, and print a handle",
		Long: `Waits for the lock, takes it for the TTL, and prints a handle, or writes it to a file
that only you can read. Later steps, each a process of its own, give the handle back to "renew" and
"release". Nothing renews the lease in between, so choose a TTL that covers the longest time between
two steps, or let "hold" renew it in the background. Where one command is all that needs the lock,
use "run": it renews the lease, and ends the command if it is lost.

Who has the handle can release the lock: keep it among the secrets of the pipeline.`,
		Example: `  leasehold acquire --ttl 1h --wait 10m --handle-file lock s3://bucket/locks/deploy
  leasehold renew --handle-file lock
  leasehold release --if-held --handle-file lock`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.takeForSteps(ctx, &c, file, args[0])
		}),
	}
	cmd.Flags().StringVar(&file, "handle-file", "", "write the handle to this `file` in place of standard output; if "+
		"the lock is not taken, the file stays as it is")
	c.leaseFlags(cmd.Flags(), time.Hour)
	c.waitFlags(cmd.Flags())
	return cmd
}

func (a *app) takeForSteps(ctx context.Context, c *campaign, path, url string) error {
	if err := c.check(); err != nil {
		return err
	}
	at, err := place.ParseLock(url)
	if err != nil {
		return err
	}
	var file *handleFile
	switch {
	case path != "":
		if file, err = newHandleFile(path); err != nil {
			return err
		}
		defer file.remove()
	case goesNowhere(os.Stdout):
		return exit.Errorf(exit.Usage, "standard output is closed or /dev/null, so the handle would be lost")
	}
	store, err := at.Open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	h := handle{at: at, secret: rand.Text()}
	c.metadata = maps.Clone(c.metadata)
	if c.metadata == nil {
		c.metadata = make(map[string]string)
	}
	c.metadata[metadataKey] = h.hash()
	lock, err := c.lock(a, store, at.Key, func() {}, leasehold.WithManualRenewal())
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	guard.Catch(signals, guard.ToGroup, []os.Signal{syscall.SIGPIPE})
	lease, err := c.acquireUntilSignal(ctx, a, lock, signals)
	if err != nil {
		return err
	}
	h.token = lease.Token()
	view := show(at, lease.Record(), 0)
	if file != nil {
		if err = file.keep(h); err == nil {
			err = a.print(view, h.sentence("acquired", lease.Record()))
		}
	} else {
		err = a.print(struct {
			Handle string `json:"handle"`
			shown
		}{h.String(), view}, h.String())
	}
	if err != nil {
		return errors.Join(err, lease.Release(ctx))
	}
	signal.Reset() // the lock is the caller's now
	return nil
}

// handleFile is the file of --handle-file. What an earlier acquire has written there stays until
// this one has the lock: it may be all that can release a lock.
type handleFile struct {
	*os.File        // beside the file that the user names
	path     string // of that file
}

// newHandleFile makes a file that nobody else can read, and that keep puts in place of the one at
// path.
func newHandleFile(path string) (*handleFile, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, exit.Errorf(exit.Output, "the file for the handle cannot be made: %w (give another --handle-file)",
			err)
	case info.IsDir():
		return nil, exit.Errorf(exit.Usage, "--handle-file %q is a directory: give the path of a file", path)
	case !info.Mode().IsRegular(): // others may need a device, and read what goes into a pipe
		return nil, exit.Errorf(exit.Usage, "--handle-file %q is not a regular file, and is left alone: give the "+
			"path of a new one", path)
	}
	beside := filepath.Join(filepath.Dir(path), ".leasehold-handle-"+rand.Text())
	file, err := os.OpenFile(beside, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, exit.Errorf(exit.Output, "the file for the handle cannot be made: %w (give another --handle-file)",
			err)
	}
	return &handleFile{file, path}, nil
}

// keep writes the handle.
func (f *handleFile) keep(h handle) error {
	_, err := fmt.Fprintln(f, h)
	if err == nil {
		err = f.Close() // where some file systems tell that the disk is full
	}
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		return exit.Errorf(exit.Output, "the handle cannot be written: %w (give another --handle-file)", err)
	}
	return nil
}

// remove removes what keep has not kept.
func (f *handleFile) remove() {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// goesNowhere reports whether what is written to a file is lost.
func goesNowhere(f *os.File) bool {
	null, err1 := os.Stat(os.DevNull)
	info, err2 := f.Stat()
	return err2 != nil || err1 == nil && os.SameFile(null, info)
}

func (a *app) renew() *cobra.Command {
	var given givenHandle
	cmd := &cobra.Command{
		Use:   "renew [flags] [HANDLE]",
		Short: "Renew a lease that acquire has begun",
		Long: `Renews the lease of the handle for its TTL. If it succeeds, nobody else has held the
lock since "acquire", even if the lease had run out. If it exits with 79, the lease is lost. Without
an argument, the handle is taken from --handle-file, or from ` +
			handleEnv + `.`,
		Args:              given.check,
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.withHandle(ctx, given.text, "renewed", prolong)
		}),
	}
	given.fileFlag(cmd.Flags())
	return cmd
}

// prolong is what a renewal writes.
func prolong(r *leasehold.Record) { r.ExpiresAt = r.RenewedAt.Add(r.TTL) }

func (a *app) release() *cobra.Command {
	var given givenHandle
	cmd := &cobra.Command{
		Use:   "release [flags] [HANDLE]",
		Short: "Release a lock that acquire has taken",
		Long: `Releases the lock of the handle. Releasing twice does no harm. If the lease is lost,
it changes nothing and exits with 79. Without an argument, the handle is taken from --handle-file,
or from ` + handleEnv + `.

With --if-held, it is silent and exits with 0 where there is nothing to release: there is no handle,
because "acquire" has failed, or the lease is lost.`,
		Args:              given.check,
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if given.text == "" {
				return nil
			}
			err := a.withHandle(ctx, given.text, "released", func(r *leasehold.Record) { r.ExpiresAt = time.Time{} })
			if given.ifHeld && errors.Is(err, leasehold.ErrLost) {
				return nil
			}
			return err
		}),
	}
	given.fileFlag(cmd.Flags())
	cmd.Flags().BoolVar(&given.ifHeld, "if-held", false, "do nothing if there is no handle or the lease is lost")
	return cmd
}

// givenHandle is the text of a handle, wherever it was given.
type givenHandle struct {
	text, file string
	ifHeld     bool // there may be none
}

func (g *givenHandle) fileFlag(flags *pflag.FlagSet) {
	flags.StringVar(&g.file, "handle-file", "", "take the handle from this `file`, which acquire has written")
}

// check finds the handle.
func (g *givenHandle) check(cmd *cobra.Command, args []string) error {
	where := "pass what acquire has printed, or set " + handleEnv
	switch {
	case len(args) > 1, len(args) == 1 && g.file != "":
		return exit.Errorf(exit.Usage, "%s takes one handle, not %d", cmd.Name(), max(len(args), 2))
	case len(args) == 1:
		g.text = args[0]
	case g.file != "":
		body, err := readHandle(g.file)
		switch {
		case errors.Is(err, fs.ErrNotExist) && g.ifHeld:
		case errors.Is(err, fs.ErrNotExist):
			return exit.Errorf(exit.Usage, "the handle cannot be read: %w (acquire has not taken the lock, or had "+
				"another --handle-file)", err)
		case err != nil:
			return exit.Errorf(exit.Usage, "the handle cannot be read: %w (give the --handle-file of acquire)", err)
		}
		g.text, where = strings.TrimSpace(string(body)), "the file is empty: give the --handle-file of acquire"
	default:
		g.text = os.Getenv(handleEnv)
	}
	if g.text == "" && !g.ifHeld {
		return exit.Errorf(exit.Usage, "there is no handle: %s", where)
	}
	return nil
}

// maxHandle bounds what is read of a file, which may be a device without end.
const maxHandle = 64 << 10

// readHandle reads a file, which may be a pipe.
func readHandle(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxHandle))
}

// withHandle changes the record of the handle's term.
func (a *app) withHandle(ctx context.Context, text, done string, edit func(*leasehold.Record)) error {
	h, err := parseHandle(text)
	if err != nil {
		return err
	}
	store, err := h.at.Open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	record, err := h.write(ctx, store, edit)
	if err != nil {
		return err
	}
	return a.print(show(h.at, record, 0), h.sentence(done, record))
}

// sentence says what was done to the term.
func (h handle) sentence(done string, r leasehold.Record) string {
	text := fmt.Sprintf("%v: %s token %d", h.at, done, r.Token)
	if !r.Released() {
		text += " until " + r.ExpiresAt.Format(time.DateTime)
	}
	return text
}

// retryFor bounds the attempts to write.
const retryFor = 30 * time.Second

// write changes the record of the term, by writes that are conditional on the version that it has
// read. It repeats them while their outcome is unknown: the nonce that is read back tells. If it
// returns leasehold.ErrLost, it has changed nothing.
func (h handle) write(ctx context.Context, store leasehold.Store,
	edit func(*leasehold.Record)) (leasehold.Record, error) {
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
	o, err := store.Get(ctx, h.at.Key)
	if err == nil {
		err = r.UnmarshalJSON(o.Body)
	}
	switch {
	case errors.Is(err, leasehold.ErrNotExist):
		return r, h.lost("the lock object was deleted")
	case err != nil:
		return r, fmt.Errorf("lock %q: %w", h.at.Key, err)
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
		return r, h.lost("%w", errReleased)
	case wasReleased:
		return r, nil
	}
	body, err := r.MarshalJSON()
	if err != nil {
		return r, err
	}
	sent[r.Nonce] = true
	if _, err = store.PutIfMatch(ctx, h.at.Key, body, o.ETag); err != nil {
		err = fmt.Errorf("lock %q: %w", h.at.Key, err)
	}
	return r, err
}

// errReleased says that the term of a handle was ended by its own release.
var errReleased = errors.New("it was released")

func (h handle) lost(format string, args ...any) error {
	return fmt.Errorf("lock %q: %w (token %d): %w (acquire the lock again)", h.at.Key, leasehold.ErrLost, h.token,
		fmt.Errorf(format, args...))
}
