package leasehold_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
)

// What stands under the key of a lock and is no lock: named for what it is, and never overwritten,
// by an administrator neither.
func TestWhatIsNoLockIsNamedAndStays(t *testing.T) {
	table := string(tables.New().Encode())
	for name, c := range map[string]struct{ body, says string }{
		"a table":              {table, "it is a table of package locktable, not a lock (use locks in it by lockta"},
		"a table, cut off":     {table[:40], "it is a table of package locktable"},
		"a table, edited":      {strings.Replace(table, `"revision":0`, `"revision":-1`, 1), "it is a table of"},
		"a later table":        {`{"locks":[],"table":2}`, "it is a table of package locktable"},
		"a mark":               {`{"token":7}`, "it is a fencing mark of package fencehttp, not a lock (use another"},
		"a configuration":      {`{"name":"x","ttl":5}`, `a JSON object with the members ["name" "ttl"]`},
		"credentials":          {`{"token":"ghp_x","expires_at":1740151473}`, `members ["expires_at" "token"]`},
		"credentials in order": {`{"expires_at":1740151473,"token":"ghp_x"}`, `members ["expires_at" "token"]`},
		"credentials, cut off": {`{"expires_at":1740151473,"token":"ghp_x`, "39 bytes of text"},
		"sessions":             {`{"all":[{"expires_at":1,"token":2,"nonce":"x","ttl":3}]}`, `members ["all"]`},
		"many members":         {`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}`, `["a" "b" "c" "d" "e"] and more`},
		"a list":               {`[1]`, `3 bytes of text that begin with "[1]"`},
		"a page":               {"<html>502 Bad Gateway</html>", `28 bytes of text that begin with "<html>502 Bad Ga"`},
		"a picture":            {"\x89PNG\r\n\x1a\n\x00\xff", `10 bytes that are not text and begin with "\x89PNG\r\n`},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			mem := leasehold.NewMemStore()
			handle := acquire(t, newLock(t, leasehold.NewMemStore())).Handle()
			_, err := mem.PutIfNoneMatch(t.Context(), key, []byte(c.body))
			require.NoError(t, err)
			store := newFaultStore(mem)
			l := newLock(t, store)
			for call, f := range map[string]func(ctx context.Context) error{
				"TryAcquire": func(ctx context.Context) error { _, err := l.TryAcquire(ctx); return err },
				"Acquire":    func(ctx context.Context) error { _, err := l.Acquire(ctx); return err },
				"Resume":     func(ctx context.Context) error { _, err := l.Resume(ctx, handle); return err },
				"Inspect":    func(ctx context.Context) error { _, err := l.Inspect(ctx); return err },
				"Break":      func(ctx context.Context) error { return l.Break(ctx, 7) },
				"Watch": func(ctx context.Context) (last error) {
					for _, last = range l.Watch(ctx) {
						require.Error(t, last)
					}
					return last
				},
			} {
				store.count()
				err := f(t.Context())
				require.ErrorIs(t, err, leasehold.ErrCorruptRecord, call)
				require.ErrorContains(t, err, key, call)
				require.ErrorContains(t, err, c.says, call)
				require.NotContains(t, err.Error(), "Break", "it would not help")
				require.NotContains(t, err.Error(), "ghp_", "a value may be a secret")
				require.Equal(t, []string{"get"}, store.count(), call)
			}
		})
	}
}

// What is left of a record after damage is repaired by Break.
func TestBreakRepairsWhatIsLeftOfARecord(t *testing.T) {
	whole := `{"expires_at":1740151473.206179,"token":7,"holder":"a","ttl":15,"nonce":"x","acquired_at":1740151440.1,` +
		`"renewed_at":1740151458.2,"object_id":"JX2MQ7R4T5AVK3W6","term_id":"Q6ZB3NDY7HEO2LCF"}`
	bodies := map[string]string{
		"zeros":              strings.Repeat("\x00", 512),
		"an empty object":    "{}",
		"a negative token":   strings.Replace(whole, ":7,", ":-7,", 1),
		"a token with a dot": strings.Replace(whole, ":7,", ":7.5,", 1),
		"a date":             strings.Replace(whole, "1740151473.206179", `"2026-11-24"`, 1),
		"two points":         strings.Replace(whole, "1740151473.206179", `1740151473..2`, 1),
		"not UTF-8":          strings.Replace(whole, `"a"`, "\"\xff\"", 1),
		"a comma too many":   strings.Replace(whole, `"}`, `",}`, 1),
		"sorted":             `{"acquired_at":1,"nonce":"x","token":"seven","ttl":15}`,
		"marked as UTF-8":    "\ufeff" + whole[:40],
		"over 64 KiB":        whole + strings.Repeat(" ", 64<<10),
		"of a small client":  `{"expires_at":-1}`,
		"and its token":      `{"expires_at":null,"token":7}`,
	}
	for _, end := range []int{0, 1, 2, 9, 13, 14, 20, 32, 33, 35, 39, 40, 41, 42, 60, len(whole) - 1} {
		bodies["cut to "+whole[:end]] = whole[:end]
	}
	for name, body := range bodies {
		bubble.Run(t, name, func(t *testing.T) {
			store := leasehold.NewMemStore()
			_, err := store.PutIfNoneMatch(t.Context(), key, []byte(body))
			require.NoError(t, err)
			_, err = newLock(t, store).TryAcquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
			require.ErrorContains(t, err, "(inspect the object, then repair it with Lock.Break)")
			require.NoError(t, newLock(t, store).Break(t.Context(), 9))
			require.EqualValues(t, 10, acquire(t, newLock(t, store)).Token())
		})
	}
}

// An object that no store reads is not a record, and nothing tells what it is.
func TestBreakLeavesWhatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		large := strings.Repeat(" ", leasehold.MaxObjectSize) + "x"
		server.Put(key, []byte(large))
		store := newWire(server).store
		err := newLock(t, store).Break(t.Context(), 9)
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
		require.ErrorContains(t, err, "larger than 1048576 bytes")
	})
}

// A member of a table that is broken gets another object id, because to other members a released
// term is over at once, while the broken one may still act.
func TestBreakOfAMemberOfATable(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		l, err := leasehold.NewLock(store, "tables/a.members/pod-7")
		require.NoError(t, err)
		lease := acquire(t, l)
		require.NoError(t, l.Break(t.Context(), lease.Token()))
		rec, err := l.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
		require.Equal(t, lease.Token(), rec.Token)
		require.NotEmpty(t, rec.ObjectID)
		require.NotEqual(t, lease.Record().ObjectID, rec.ObjectID)
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
		require.NoError(t, l.Break(t.Context(), lease.Token()), "it is over")
	})
}
