package main_test

import (
	"log/slog"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// place is a lock in a new directory.
type place struct {
	t        testing.TB
	dir, url string
}

func newPlace(t testing.TB) place {
	dir := t.TempDir()
	return place{t, dir, "file://" + dir + "/a"}
}

func (p place) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), program, args...)
	cmd.Env = plainEnviron()
	return cmd
}

// lock is the same lock for this process.
func (p place) lock(opts ...leasehold.Option) *leasehold.Lock {
	lock, err := leasehold.NewLock(leasehold.NewFileStore(p.dir), "a",
		append([]leasehold.Option{leasehold.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(p.t, err)
	return lock
}

// put writes a record, or whatever body is, as another client would.
func (p place) put(key string, body []byte) {
	p.t.Helper()
	_, err := leasehold.NewFileStore(p.dir).PutIfNoneMatch(p.t.Context(), key, body)
	require.NoError(p.t, err)
}

func (p place) record(key string, r leasehold.Record) {
	p.t.Helper()
	body, err := r.MarshalJSON()
	require.NoError(p.t, err)
	p.put(key, body)
}
