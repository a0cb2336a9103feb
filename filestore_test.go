//go:build linux || darwin || freebsd

package leasehold_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/storetest"
)

// memoryDir is a directory in memory, where the system has one, because the suite would wait for a
// slow disk.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "leasehold")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestFileStoreConforms(t *testing.T) {
	for name, c := range map[string]struct {
		dir    string
		rounds int
	}{"in memory": {memoryDir(t), testsize.Pick(30, 200)}, "on disk": {t.TempDir(), 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // for one check waits in real time
			plant := func(key string, body []byte) error {
				if _, err := leasehold.NewFileStore(c.dir).PutIfNoneMatch(t.Context(), key, nil); err != nil {
					return err
				}
				files, err := filepath.Glob(filepath.Join(c.dir, "*-planted.object"))
				if err != nil || len(files) != 1 {
					return fmt.Errorf("%v: %w", files, err)
				}
				return os.WriteFile(files[0], body, 0o600)
			}
			storetest.Run(t, func(*testing.T) leasehold.Store { return leasehold.NewFileStore(c.dir) },
				storetest.Rounds(c.rounds), storetest.Plant(plant))
		})
	}
}

func TestFileStorePassesCheckStore(t *testing.T) {
	dir := t.TempDir()
	store := leasehold.NewFileStore(dir)
	report, err := leasehold.CheckStore(t.Context(), store, "locks/check")
	require.NoError(t, err)
	require.True(t, report.ConditionalPuts && report.ConditionalDeletes)
	require.Equal(t, map[bool]leasehold.ClockVerdict{
		true:  leasehold.ClockConsistent,
		false: leasehold.ClockNotUsed,
	}[leasehold.Describe(store).TellsAge], report.ServerClock)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, ".leasehold-lock", entries[0].Name())
}

func TestFileStoreThatCannotWorkIsRefusedByNewLock(t *testing.T) {
	dir := t.TempDir()
	for text, store := range map[string]leasehold.Store{
		"leasehold: the directory has no name": leasehold.NewFileStore(""),
		"leasehold: opening directory " + strconv.Quote(filepath.Join(dir, "missing")) + ": stat " +
			filepath.Join(dir, "missing") +
			": no such file or directory (create the directory": leasehold.NewFileStore(filepath.Join(dir, "missing")),
	} {
		_, err := leasehold.NewLock(store, key)
		require.ErrorContains(t, err, text)
		require.True(t, strings.HasPrefix(err.Error(), text), err)
	}
	_, err := leasehold.NewLock(leasehold.NewFileStore(dir), key)
	require.NoError(t, err)
}

func TestFileStoresErrorsSayWhatWasBeingDone(t *testing.T) {
	dir := t.TempDir()
	s := leasehold.NewFileStore(dir)
	_, err := s.Get(t.Context(), key)
	requireOnly(t, leasehold.ErrNotExist, err)
	require.EqualError(t, err, fmt.Sprintf("reading %q in directory %q: no such object", key, dir))
	_, err = s.PutIfMatch(t.Context(), key, nil, "x")
	requireOnly(t, leasehold.ErrNotExist, err)
	etag, err := s.PutIfNoneMatch(t.Context(), key, nil)
	require.NoError(t, err)
	_, err = s.PutIfNoneMatch(t.Context(), key, nil)
	requireOnly(t, leasehold.ErrPreconditionFailed, err)
	require.EqualError(t, err, fmt.Sprintf("writing %q in directory %q: precondition failed: it exists", key, dir))
	err = s.DeleteIfMatch(t.Context(), key, etag+"x")
	requireOnly(t, leasehold.ErrPreconditionFailed, err)
	require.EqualError(t, err, fmt.Sprintf("deleting %q in directory %q: precondition failed: it has changed",
		key, dir))
	_, err = s.PutIfMatch(t.Context(), key, make([]byte, leasehold.MaxObjectSize+1), etag)
	requireOnly(t, leasehold.ErrPermanent, err)
	require.EqualError(t, err, fmt.Sprintf("writing %q in directory %q: 1048577 bytes exceed the limit of 1048576",
		key, dir))
}

// A file that is not an object keeps everybody out until a person has looked at it. Break repairs
// what is left of a lock, and nothing else.
func TestFileStoreIsRepairedByBreak(t *testing.T) {
	const name = "locks%2ftest.object"
	record := []byte(`{"expires_at":1740151473.2,"token":6,"holder":"a"}`)
	file := func(t *testing.T, dir, key string, body []byte) []byte {
		_, err := leasehold.NewFileStore(dir).PutIfNoneMatch(t.Context(), key, body)
		require.NoError(t, err)
		path := filepath.Join(dir, strings.ReplaceAll(key, "/", "%2f")+".object")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		return data
	}
	whole := file(t, t.TempDir(), key, record)
	for of, c := range map[string]struct {
		data []byte
		says string // by Break; "" if it repairs the object
	}{
		"empty":                 {nil, ""},
		"zeros":                 {make([]byte, 300), ""},
		"cut in the first line": {whole[:12], ""},
		"cut in the second":     {whole[:50], ""},
		"cut in the body":       {whole[:len(whole)-9], ""},
		"changed":               {bytes.Replace(whole, []byte(`"a"`), []byte(`"b"`), 1), ""},
		"of another name":       {file(t, t.TempDir(), "other", record), ""},
		"without a header":      {record, ""},
		"notes":                 {[]byte("notes\n"), `6 bytes of text that begin with "notes\n"`},
		"a table":               {file(t, t.TempDir(), "other", tables.New().Encode()), "a table of package locktable"},
		"too large":             {make([]byte, 1<<21), "larger than 1048576 bytes"},
	} {
		t.Run(of, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), c.data, 0o600))
			lock, err := leasehold.NewLock(leasehold.NewFileStore(dir), key,
				leasehold.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			_, err = lock.TryAcquire(t.Context())
			requireOnly(t, leasehold.ErrCorruptRecord, err)
			require.ErrorContains(t, err, "the file "+name+" is not an object of leasehold: it")
			require.ErrorContains(t, err, "(inspect the file; Lock.Break repairs it if it was a lock)")
			err = lock.Break(t.Context(), 7)
			if c.says != "" {
				requireOnly(t, leasehold.ErrCorruptRecord, err)
				require.ErrorContains(t, err, c.says)
				now, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err)
				require.Equal(t, c.data, now)
				return
			}
			require.NoError(t, err)
			require.NoError(t, lock.Do(t.Context(), func(_ context.Context, lease *leasehold.Lease) error {
				require.Equal(t, uint64(8), lease.Token())
				return nil
			}))
		})
	}
}

// sibling starts the test that calls it as a process of its own, with the path of a directory.
func sibling(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=2m")
	cmd.Env, cmd.Stderr = append(os.Environ(), "LEASEHOLD_TEST_CHILD="+dir), os.Stderr
	return cmd
}

func TestFileStoreLocksOutOtherProcesses(t *testing.T) {
	const processes, each = 3, 5
	if dir := os.Getenv("LEASEHOLD_TEST_CHILD"); dir != "" {
		lock, err := leasehold.NewLock(leasehold.NewFileStore(dir), key,
			leasehold.WithTTL(10*time.Second), leasehold.WithPollInterval(50*time.Millisecond),
			leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		for range each {
			require.NoError(t, lock.Do(t.Context(), func(_ context.Context, lease *leasehold.Lease) error {
				busy, err := os.OpenFile(filepath.Join(dir, "busy"), os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return err
				}
				busy.Close()
				terms, err := os.OpenFile(filepath.Join(dir, "terms"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
				if err != nil {
					return err
				}
				defer terms.Close()
				time.Sleep(time.Millisecond) // so that others come meanwhile
				_, err = fmt.Fprintln(terms, lease.Token())
				return errors.Join(err, os.Remove(filepath.Join(dir, "busy")))
			}))
		}
		return
	}
	dir := memoryDir(t)
	var wg sync.WaitGroup
	var errs [processes]error
	for i := range errs {
		cmd := sibling(t, dir)
		wg.Go(func() { errs[i] = cmd.Run() })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	var want strings.Builder
	for token := range processes * each {
		fmt.Fprintln(&want, token+1)
	}
	got, err := os.ReadFile(filepath.Join(dir, "terms"))
	require.NoError(t, err)
	require.Equal(t, want.String(), string(got))
}

// A candidate that has just started knows by the age of the record that its holder is gone. One
// that starts and ends at once, such as a job of cron, would otherwise never take over.
func TestFileStoreTakeoverByANewcomer(t *testing.T) {
	const ttl = time.Second
	if dir := os.Getenv("LEASEHOLD_TEST_CHILD"); dir != "" {
		lock, err := leasehold.NewLock(leasehold.NewFileStore(dir), key, leasehold.WithTTL(ttl))
		require.NoError(t, err)
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		fmt.Println("holds")
		<-lease.Context().Done()
		return
	}
	dir := memoryDir(t)
	store := leasehold.NewFileStore(dir)
	if !leasehold.Describe(store).TellsAge {
		return // newcomers wait for a TTL
	}
	cmd := sibling(t, dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	o, err := store.Get(t.Context(), key)
	require.NoError(t, err)
	written := time.Now().Add(-o.Age) // or later
	_, _ = io.Copy(io.Discard, out)
	require.Error(t, cmd.Wait())
	for {
		newcomer, err := leasehold.NewLock(store, key) // whose requests have the time that a busy machine needs
		require.NoError(t, err)
		lease, err := newcomer.TryAcquire(t.Context())
		if err == nil {
			require.Equal(t, uint64(2), lease.Token())
			require.NoError(t, lease.Release(t.Context()))
			break
		}
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Less(t, time.Since(written), time.Minute)
		time.Sleep(10 * time.Millisecond)
	}
	require.Greater(t, time.Since(written), ttl)
}

func ExampleNewFileStore() {
	dir, err := os.MkdirTemp("", "locks") // a service has one that stays, such as /var/lib/reports/locks
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	lock, err := leasehold.NewLock(leasehold.NewFileStore(dir), "nightly")
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(context.Background(), func(ctx context.Context, lease *leasehold.Lease) error {
		fmt.Println("the only one on this machine, with token", lease.Token())
		return nil
	})
	fmt.Println(err)
	// Output:
	// the only one on this machine, with token 1
	// <nil>
}
