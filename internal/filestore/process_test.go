//go:build linux || darwin || freebsd

package filestore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// roles are what this test program does when a test starts it as a process of its own, with the
// path of a directory.
var roles = map[string]func(path string, args []string) error{
	"count":        countProcess,
	"full disk":    fullDiskProcess,
	"no privilege": noPrivilegeProcess,
	"replace":      replaceProcess,
	"locks":        locksProcess,
	"write":        writeProcess,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "role" {
		if err := roles[os.Args[2]](os.Args[3], os.Args[4:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func process(t *testing.T, role, path string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, append([]string{"role", role, path}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// memoryDir is a directory in memory, where the system has one, because a test with thousands of
// writes would wait for a slow disk.
func memoryDir(t *testing.T) string {
	t.Helper()
	path, err := os.MkdirTemp("/dev/shm", "leasehold")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(path) })
	return path
}

// tally is what the processes of a test count together in one object, by conditional writes alone.
type tally struct {
	Total int
	By    map[string]int // of it, by each of them
	Fill  string         // makes the sizes of the bodies differ
}

func readTally(o Object) (c tally, err error) {
	if err = json.Unmarshal(o.Body, &c); err != nil {
		return c, err
	}
	sum := 0
	for _, n := range c.By {
		sum += n
	}
	if sum != c.Total || c.Fill != fill(c.Total) {
		return c, fmt.Errorf("torn: %.200s", o.Body)
	}
	return c, nil
}

func fill(total int) string {
	return strings.Repeat(string(rune('a'+total%26)), total*7919%60_000)
}

// increment adds one to the tally, and to what name has added.
func increment(ctx context.Context, d *Dir, name string) error {
	for {
		o, err := d.Get(ctx, key)
		if err != nil {
			return err
		}
		c, err := readTally(o)
		if err != nil {
			return err
		}
		c.Total++
		c.By[name]++
		c.Fill = fill(c.Total)
		body, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if _, err = d.PutIfMatch(ctx, key, body, o.ETag); err == nil ||
			!errors.Is(err, storeapi.ErrPreconditionFailed) {
			return err
		}
	}
}

// countProcess increments until it is killed, or so many times, and prints a line after each.
func countProcess(path string, args []string) error {
	name, most := args[0], 1<<30
	if len(args) > 1 {
		most, _ = strconv.Atoi(args[1])
	}
	d := New(path, limit)
	for range most {
		if err := increment(context.Background(), d, name); err != nil {
			return err
		}
		if _, err := os.Stdout.WriteString("+"); err != nil {
			return err
		}
	}
	return nil
}

func startTally(t *testing.T, path string) *Dir {
	t.Helper()
	d := New(path, limit)
	body, err := json.Marshal(tally{By: map[string]int{}})
	require.NoError(t, err)
	_, err = d.PutIfNoneMatch(t.Context(), key, body)
	require.NoError(t, err)
	return d
}

func TestEightProcessesLoseNoUpdate(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		each int
	}{"in memory": {memoryDir(t), 40}, "on disk": {t.TempDir(), 3}} {
		t.Run(name, func(t *testing.T) {
			d := startTally(t, c.path)
			var wg sync.WaitGroup
			errs := make([]error, 8)
			for i := range errs {
				cmd := process(t, "count", c.path, fmt.Sprint("p", i), strconv.Itoa(c.each))
				wg.Go(func() { errs[i] = cmd.Run() })
			}
			wg.Wait()
			require.NoError(t, errors.Join(errs...))
			o, err := d.Get(t.Context(), key)
			require.NoError(t, err)
			got, err := readTally(o)
			require.NoError(t, err)
			require.Equal(t, len(errs)*c.each, got.Total)
			require.Empty(t, leftovers(t, c.path))
		})
	}
}

// Four writers are killed again and again, at any moment. Whoever reads meanwhile sees whole
// objects that never go back. What a writer was told to have written is there, and nothing that it
// has not tried.
func TestWritersAreKilled(t *testing.T) {
	patience := 8 * time.Second
	if testing.Short() {
		patience = time.Second
	}
	path := memoryDir(t)
	d := startTally(t, path)
	until := time.Now().Add(patience)
	var acked, killed [4]int
	var reads atomic.Int64
	var writers, reader sync.WaitGroup
	errs := make([]error, len(acked)+1)
	for i := range acked {
		writers.Go(func() {
			for time.Now().Before(until) && errs[i] == nil {
				n, err := killOne(process(t, "count", path, fmt.Sprint("p", i)))
				acked[i] += n
				killed[i]++
				errs[i] = err
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	reader.Go(func() {
		var last tally
		for etag := ""; ctx.Err() == nil; {
			o, err := d.Get(t.Context(), key)
			if err == nil && o.ETag != etag {
				before := last.Total
				if last, err = readTally(o); err == nil && last.Total < before {
					err = fmt.Errorf("%d after %d", last.Total, before)
				}
				etag = o.ETag
			}
			if err != nil {
				errs[len(acked)] = err
				return
			}
			reads.Add(1)
		}
	})
	writers.Wait()
	stop()
	reader.Wait()
	require.NoError(t, errors.Join(errs...))

	require.NoError(t, increment(t.Context(), d, "after")) // no lock is left held
	o, err := d.Get(t.Context(), key)
	require.NoError(t, err)
	c, err := readTally(o)
	require.NoError(t, err)
	kills, told := 0, 0
	for i := range acked {
		n := c.By[fmt.Sprint("p", i)]
		require.GreaterOrEqual(t, n, acked[i], "acknowledged writes are lost")
		require.LessOrEqual(t, n, acked[i]+killed[i])
		kills, told = kills+killed[i], told+acked[i]
	}
	require.Positive(t, told)
	temporary := 0
	for _, name := range leftovers(t, path) {
		require.True(t, strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix), name)
		temporary++
	}
	t.Logf("%d kills, %d acknowledged writes, %d more that landed, %d reads, %d temporary files left behind",
		kills, told, c.Total-1-told, reads.Load(), temporary)
}

// killOne kills a process that counts, in most cases a moment after its first write, and returns
// how often it has said that it did.
func killOne(cmd *exec.Cmd) (acked int, err error) {
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, err
	}
	r := bufio.NewReader(out)
	if rand.IntN(4) > 0 {
		_, _ = r.Peek(1)
	}
	time.AfterFunc(rand.N(10*time.Millisecond), func() { _ = cmd.Process.Kill() })
	said, err := io.ReadAll(r)
	status := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](status); ok &&
		exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		status = nil
	}
	return len(said), errors.Join(err, status)
}

// fullDiskProcess may write files of at most 100 bytes, so that a write stops in the middle.
func fullDiskProcess(path string, _ []string) error {
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100, Max: 100}); err != nil {
		return err
	}
	d := New(path, limit)
	o, err := d.Get(context.Background(), key)
	if err != nil {
		return err
	}
	_, err = d.PutIfMatch(context.Background(), key, []byte("second"), o.ETag)
	if !errors.Is(err, syscall.EFBIG) || storeapi.Permanent(err) || storeapi.Refused(err) {
		return fmt.Errorf("not the error of a full disk: %v", err)
	}
	return nil
}

func TestDiskIsFull(t *testing.T) {
	path := t.TempDir()
	d := New(path, limit)
	etag, err := d.PutIfNoneMatch(t.Context(), key, []byte("first"))
	require.NoError(t, err)
	require.NoError(t, process(t, "full disk", path).Run())
	o, err := d.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, etag, o.ETag)
	require.Equal(t, "first", string(o.Body))
	require.Empty(t, leftovers(t, path))
}

// noPrivilegeProcess expects that it may do what args say, and that anything else is refused for
// good, with a word on permissions.
func noPrivilegeProcess(path string, args []string) error {
	if os.Getuid() == 0 { // which may do everything
		if err := errors.Join(syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
			return err
		}
	}
	d := New(path, limit)
	o, readErr := d.Get(context.Background(), key)
	_, writeErr := d.PutIfMatch(context.Background(), key, nil, o.ETag)
	if readErr != nil {
		_, writeErr = d.PutIfNoneMatch(context.Background(), "locks/b", nil)
	}
	for what, err := range map[string]error{"read": readErr, "write": writeErr} {
		may := strings.Contains(args[0], what)
		refused := errors.Is(err, storeapi.ErrPermanent) &&
			strings.Contains(err.Error(), "needs read, write and search permission")
		if may && err != nil || !may && !refused {
			return fmt.Errorf("it may %q, but %s ends with: %v", args[0], what, err)
		}
	}
	return nil
}

func TestPermissions(t *testing.T) {
	base, err := os.MkdirTemp("", "leasehold") // not t.TempDir, which only its owner may enter
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	require.NoError(t, os.Chmod(base, 0o755))
	for name, c := range map[string]struct {
		dir, object os.FileMode
		may         string
	}{
		"shared":           {0o777, 0o444, "read write"},
		"to look at":       {0o555, 0o444, "read"},
		"strict umask":     {0o777, 0, "write"},
		"sticky":           {0o777 | os.ModeSticky, 0o444, "read"},
		"private":          {0, 0o444, ""},
		"not to be listed": {0o111, 0o444, ""},
	} {
		if name == "sticky" && os.Getuid() != 0 { // that takes two users
			continue
		}
		path := filepath.Join(base, name)
		require.NoError(t, os.Mkdir(path, 0o700))
		require.NoError(t, os.Chmod(path, c.dir|0o700))
		_, err := New(path, limit).PutIfNoneMatch(t.Context(), key, nil)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(filepath.Join(path, file), c.object))
		require.NoError(t, os.Chmod(path, c.dir))
		require.NoError(t, process(t, "no privilege", path, c.may).Run(), name)
		require.NoError(t, os.Chmod(path, 0o700))
		require.Empty(t, leftovers(t, path), name)
	}
}

// replaceProcess writes over the object. args are its umask, in base 8, and the number of its user,
// if it may choose.
func replaceProcess(path string, args []string) error {
	umask, err := strconv.ParseInt(args[0], 8, 32)
	if err != nil {
		return err
	}
	syscall.Umask(int(umask))
	if user, err := strconv.Atoi(args[1]); err != nil {
		return err
	} else if os.Getuid() == 0 {
		if err := errors.Join(syscall.Setgid(user), syscall.Setuid(user)); err != nil {
			return err
		}
	}
	d := New(path, limit)
	o, err := d.Get(context.Background(), key)
	if err != nil {
		return err
	}
	_, err = d.PutIfMatch(context.Background(), key, []byte(args[0]), o.ETag)
	return err
}

// A writer with a strict umask leaves the object to those who could read it before: an object keeps
// its mode, and if root writes, its owner.
func TestStrictUmaskLocksNobodyOut(t *testing.T) {
	base, err := os.MkdirTemp("", "leasehold") // not t.TempDir, which only its owner may enter
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	require.NoError(t, os.Chmod(base, 0o777))
	_, err = New(base, limit).PutIfNoneMatch(t.Context(), key, nil)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(filepath.Join(base, file), 0o644))
	for _, user := range []string{"65534", "65533", "65534"} {
		require.NoError(t, process(t, "replace", base, "077", user).Run())
		info, err := os.Lstat(filepath.Join(base, file))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o644), info.Mode())
	}

	require.NoError(t, os.Chmod(filepath.Join(base, file), 0o600)) // all processes of one user, and an administrator
	require.NoError(t, process(t, "replace", base, "022", "0").Run())
	info, err := os.Lstat(filepath.Join(base, file))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.NoError(t, process(t, "replace", base, "077", "65534").Run())
}
