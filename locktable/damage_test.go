package locktable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/locktable"
)

const ttl = 15 * time.Second // by default

var errLost = errors.New("the reply was lost")

// read returns the table as it is.
func read(t *testing.T, store leasehold.Store) (tab *tables.Table, etag string) {
	t.Helper()
	obj, err := store.Get(t.Context(), key)
	require.NoError(t, err)
	tab, err = tables.Decode(obj.Body)
	require.NoError(t, err)
	return tab, obj.ETag
}

// rewrite changes the table by hand, and nothing else in it.
func rewrite(t *testing.T, store leasehold.Store, change func(*tables.Table)) {
	t.Helper()
	tab, etag := read(t, store)
	change(tab)
	_, err := store.PutIfMatch(t.Context(), key, tab.Encode(), etag)
	require.NoError(t, err)
}

// edit changes the table by hand, as a member would write it.
func edit(t *testing.T, store leasehold.Store, change func(*tables.Table)) {
	t.Helper()
	rewrite(t, store, func(tab *tables.Table) {
		change(tab)
		tab.Finish("by hand", 0)
	})
}

// dropHeld removes all rows that hold something.
func dropHeld(tab *tables.Table) {
	for r := range tab.Held() {
		tab.Drop(r.ID)
	}
}

// overwrite writes the table's object whatever it holds.
func overwrite(t *testing.T, store leasehold.Store, body []byte) {
	t.Helper()
	obj, err := store.Get(t.Context(), key)
	require.NoError(t, err)
	_, err = store.PutIfMatch(t.Context(), key, body, obj.ETag)
	require.NoError(t, err)
}

// within requires that something becomes true in this time.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(100 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "not within %v: %s", limit, what)
	}
}

// A grant whose reply is lost is found by the next read, and nothing is asked for twice.
func TestLostReplies(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		time.Sleep(time.Second)
		var n atomic.Int64
		store.set(nil, func(op, of string) error {
			if of == key && n.Add(1)%2 == 1 {
				return errLost
			}
			return nil
		})
		for i := range 10 {
			lease := acquire(t, a.Lock("x"))
			state := inspect(t, a)
			require.Len(t, state.Held, 1, i)
			require.Equal(t, lease.Token(), state.Held[0].Token)
			require.NoError(t, lease.Release(t.Context()))
		}
		state := inspect(t, a)
		require.Empty(t, state.Held)
	})
}

// A write of a caller that has given up may land later. It must not hold anything by nobody's will.
func TestLateWriteOfACancelledCaller(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		var fails atomic.Bool
		var first atomic.Pointer[teststore.Request] // of the writes that fail
		late := teststore.New(store, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Op != teststore.Update || r.Key != key || !fails.Load() {
				return r.Send(ctx)
			}
			first.CompareAndSwap(nil, &r)
			return leasehold.Object{}, errLost
		})
		late.Info = store.Info
		a, b := start(t, late), start(t, store)
		time.Sleep(time.Second)
		require.NoError(t, acquire(t, a.Lock("warm")).Release(t.Context())) // it knows the current version now
		fails.Store(true)
		ctx := testctx.Within(t, time.Second)
		_, err := a.Lock("x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		within(t, time.Minute, "the write is under way", func() bool { return first.Load() != nil })
		fails.Store(false)
		within(t, time.Minute, "another write has followed", func() bool {
			now, err := store.Get(t.Context(), key)
			require.NoError(t, err)
			return now.ETag != first.Load().ETag
		})
		_, err = first.Load().Send(t.Context())
		require.ErrorIs(t, err, leasehold.ErrPreconditionFailed)
		time.Sleep(time.Second)
		_, err = b.Lock("x").TryAcquire(soon(t))
		require.NoError(t, err)
	})
}

// What is removed by hand is lost at once, loudly, and never asked for again. Everybody else goes
// on.
func TestEditedByHand(t *testing.T) {
	for name, change := range map[string]func(*tables.Table){
		"entry removed": func(tab *tables.Table) {
			for r := range tab.Held() {
				if r.Claims[0].Name == "x" {
					tab.Drop(r.ID)
				}
			}
		},
		"entry given to another": func(tab *tables.Table) {
			var by, other uint64
			for r := range tab.Held() {
				if r.Claims[0].Name == "x" {
					by = r.Member
					tab.Drop(r.ID)
				}
			}
			for n := range tab.Members() {
				if n != by {
					other = n
				}
			}
			if err := tab.Ask(tables.ID{Member: other, Number: 4711}, []tables.Claim{{Name: "x"}}); err != nil {
				panic(err)
			}
		},
		"member removed": func(tab *tables.Table) {
			for r := range tab.Held() {
				if r.Claims[0].Name == "x" {
					tab.Leave(r.Member)
					return
				}
			}
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newCounting()
			a, b := start(t, store), start(t, store)
			lease, other := acquire(t, a.Lock("x")), acquire(t, b.Lock("y"))
			edit(t, store, change)
			within(t, 10*ttl, "the lease is lost", func() bool { return lease.Context().Err() != nil })
			require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
			require.ErrorContains(t, context.Cause(lease.Context()), "by hand")
			require.False(t, lease.Valid())
			require.ErrorIs(t, lease.Release(t.Context()), leasehold.ErrLost)
			require.True(t, other.Valid())
			next := acquire(t, b.Lock("x"))
			require.Greater(t, next.Token(), lease.Token())
			require.NoError(t, next.Release(t.Context()))
			acquire(t, a.Lock("x"))
		})
	}
}

// What is added by hand for a member that does not want it, it drops. What is removed that waits is
// asked for again, by another number.
func TestAddedByHand(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		lease := acquire(t, a.Lock("x"))
		acquire(t, b.Lock("y"))
		got := queue(t, b, "x")
		var removed tables.ID
		edit(t, store, func(tab *tables.Table) {
			for r := range tab.Waiting() {
				removed = r.ID
				tab.Drop(r.ID)
			}
			for n := range tab.Members() { // in front of b, so that b would wait for ever
				require.NoError(t, tab.Ask(tables.ID{Member: n, Number: 4711}, []tables.Claim{{Name: "x"}}))
			}
		})
		within(t, 2*ttl, "b stands in line again", func() bool {
			tab, _ := read(t, store)
			_, stale := tab.Request(removed)
			require.False(t, stale, "the number has come again")
			_, _, waiting := tab.Counts()
			return waiting > 0 && slices.ContainsFunc(slices.Collect(tab.Waiting()), func(r tables.Request) bool {
				return r.Number != 4711
			})
		})
		require.True(t, lease.Valid())
		require.NoError(t, lease.Release(soon(t)))
		require.True(t, (<-got).Valid())
	})
}

// A member whose own object is deleted or restored by hand loses its term, and says so. Another
// that waits gets the lock when it is sure, and never while the first one still holds it.
func TestMemberWhoseObjectIsDeletedOrRestored(t *testing.T) {
	for name, restored := range map[string]bool{"deleted": false, "restored": true} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newCounting()
			a := start(t, store, locktable.WithMemberName("pod-1"))
			own := key + ".members/pod-1"
			acquire(t, a.Lock("x"))
			old, err := store.Get(t.Context(), own)
			require.NoError(t, err)
			a.stop()
			a = start(t, store, locktable.WithMemberName("pod-1")) // another term of the same name
			b := start(t, store)
			lease := acquire(t, a.Lock("x"))
			got := make(chan bool, 1)
			go func() {
				acquire(t, b.Lock("x"))
				got <- lease.Valid() || lease.Context().Err() == nil
			}()
			within(t, ttl, "b stands in line", func() bool { return len(inspect(t, b).Waiting) == 1 })
			now, err := store.Get(t.Context(), own)
			require.NoError(t, err)
			if restored {
				_, err = store.PutIfMatch(t.Context(), own, old.Body, now.ETag)
			} else {
				err = store.DeleteIfMatch(t.Context(), own, now.ETag)
			}
			require.NoError(t, err)
			within(t, ttl, "the lease is lost", func() bool { return lease.Context().Err() != nil })
			require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
			within(t, 5*ttl, "b holds it", func() bool { return len(got) == 1 })
			require.False(t, <-got)
			acquire(t, a.Lock("y")) // it has healed
			require.NoError(t, a.Check(nil))
			require.NoError(t, b.Check(nil))
		})
	}
}

// The dead holder of one slot of five is found among those that live.
func TestADeadHolderOfASemaphore(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		for range 4 {
			acquire(t, start(t, store).Semaphore("gpu", 5))
		}
		fifth := acquire(t, start(t, cable).Semaphore("gpu", 5))
		next := start(t, store)
		cable.cut(true)
		began := time.Now()
		acquire(t, next.Semaphore("gpu", 5))
		require.Less(t, time.Since(began), ttl*3/2)
		require.False(t, fifth.Valid())
		cable.cut(false)
		time.Sleep(time.Minute)
	})
}

// A version that has the size of the one before is another one all the same.
func TestEditedToTheSameSize(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		lease := acquire(t, a.Lock("x"))
		time.Sleep(10 * ttl) // so that it has read its own write
		require.True(t, lease.Valid())
		before, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		edit(t, store, dropHeld)
		after, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		overwrite(t, store, append(after.Body, bytes.Repeat([]byte(" "), len(before.Body)-len(after.Body))...))
		within(t, 10*ttl, "the lease is lost", func() bool { return lease.Context().Err() != nil })
		require.ErrorContains(t, context.Cause(lease.Context()), "by hand")
	})
}

// A table that is deleted or restored goes on above the highest revision that anybody remembers.
func TestDeletedOrRestored(t *testing.T) {
	for name, restored := range map[string]bool{"deleted": false, "restored": true} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newCounting()
			a, b := start(t, store), start(t, store)
			acquire(t, b.Lock("before"))
			old, err := store.Get(t.Context(), key)
			require.NoError(t, err)
			for range 10 {
				require.NoError(t, acquire(t, a.Lock("x")).Release(t.Context()))
			}
			lease := acquire(t, a.Lock("x"))
			if restored {
				overwrite(t, store, old.Body)
			} else {
				obj, err := store.Get(t.Context(), key)
				require.NoError(t, err)
				require.NoError(t, store.DeleteIfMatch(t.Context(), key, obj.ETag))
			}
			within(t, 10*ttl, "the lease is lost", func() bool { return lease.Context().Err() != nil })
			require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
			next := acquire(t, a.Lock("x"))
			require.Greater(t, next.Token(), lease.Token())
			acquire(t, b.Lock("z"))
			require.NoError(t, a.Check(nil))
			require.NoError(t, b.Check(nil))
		})
	}
}

// While the table is damaged, holders go on, and say so. Nothing is overwritten.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(good []byte) []byte{
		"truncated": func(good []byte) []byte { return good[:len(good)/2] },
		"empty":     func([]byte) []byte { return nil },
		"of a later version": func(good []byte) []byte {
			return bytes.Replace(good, []byte(`"table":1`), []byte(`"table":2`), 1)
		},
		"the lock object of package leasehold": func([]byte) []byte { return []byte(`{"expires_at":0,"token":7}`) },
	} {
		t.Run(name, func(t *testing.T) { testDamaged(t, damage) })
	}
}

func testDamaged(t *testing.T, damage func(good []byte) []byte) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		lease := acquire(t, a.Lock("x"))
		good, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		bad := damage(bytes.Clone(good.Body))
		overwrite(t, store, bad)
		ctx := testctx.Within(t, 20*ttl)
		_, err = a.Lock("y").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, lease.Valid())
		require.ErrorIs(t, a.Check(nil), leasehold.ErrCorruptRecord)
		_, err = a.Inspect(t.Context())
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
		now, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, string(bad), string(now.Body))
		overwrite(t, store, good.Body)
		acquire(t, a.Lock("y"))
		require.True(t, lease.Valid())
		require.NoError(t, a.Check(nil))
	})
}

// One failure after damage that has lasted, or during it, ends no term: no other member could have
// made more of the table.
func TestAFailureAfterDamage(t *testing.T) {
	for name, op := range map[string]string{"of a read": "get", "of the first write": "put"} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newCounting()
			a := start(t, store)
			lease, freed := acquire(t, a.Lock("x")), acquire(t, a.Lock("y"))
			good, err := store.Get(t.Context(), key)
			require.NoError(t, err)
			overwrite(t, store, nil)
			require.ErrorIs(t, freed.Release(testctx.Within(t, time.Second)), context.DeadlineExceeded)
			time.Sleep(10 * ttl)
			var failed atomic.Bool
			store.set(func(o, of string) error {
				if of == key && o == op && failed.CompareAndSwap(false, true) {
					return errCut
				}
				return nil
			}, nil)
			time.Sleep(2 * ttl)
			require.True(t, lease.Valid())
			overwrite(t, store.Store, good.Body)
			acquire(t, a.Lock("z"))
			require.True(t, failed.Load())
			require.True(t, lease.Valid())
		})
	}
}

// Nobody can write a table whose revision is the highest. It goes on once a person has repaired it.
func TestTheHighestRevisionIsRepaired(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		lease := acquire(t, a.Lock("x"))
		good, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		rewrite(t, store, func(tab *tables.Table) { tab.Revision, tab.Nonce = leasehold.MaxToken, "by hand" })
		_, err = a.Lock("y").Acquire(testctx.Within(t, 22*ttl/10))
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
		require.ErrorIs(t, a.Check(nil), leasehold.ErrCorruptRecord)
		require.True(t, lease.Valid())
		overwrite(t, store, good.Body)
		_, err = a.Lock("y").Acquire(testctx.Within(t, 13*ttl/10)) // who only holds reads less often
		require.NoError(t, err)
		require.True(t, lease.Valid())
		require.NoError(t, a.Check(nil))
	})
}

// What stands under the key of a table, and of a member, and is none: named for what it is, and
// never overwritten.
func TestWhatIsNoTableIsNamedAndStays(t *testing.T) {
	for body, says := range map[string]string{
		`{"expires_at":0,"token":7}`:             "a lock of package leasehold, not a table (use it by leasehold.",
		`{"expires_at":-1,"token":7,"nonce":"x"`: "a lock of package leasehold, not a table",
		`{"token":7}`:                            "a fencing mark of package fencehttp, not a table (use another key)",
		`{"name":"x"}`:                           `corrupt table, or none at all: a JSON object with the members ["na`,
		`{"table":1,"revision":-1}`:              "corrupt table: at byte 24:",
		`{"table":2,"locks":[]}`:                 "corrupt table: a table of version 2: only a later release can read",
		`{"expires_at":0,"token":7,"x":[true]}`:  "a lock of package leasehold",
	} {
		bubble.Run(t, body, func(t *testing.T) {
			store := newCounting()
			etag, err := store.PutIfNoneMatch(t.Context(), key, []byte(body))
			require.NoError(t, err)
			a := start(t, store)
			time.Sleep(time.Second)
			_, err = a.Lock("x").TryAcquire(soon(t))
			require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
			require.ErrorContains(t, err, says)
			_, err = a.Inspect(t.Context())
			require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
			require.ErrorContains(t, err, says)
			require.NotContains(t, err.Error(), "lock record")
			now, err := store.Get(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, etag, now.ETag)
		})
	}
}

func TestBreakLeavesWhatIsNoMember(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		for body, says := range map[string]string{
			string(tables.New().Encode()): "a table of package locktable, not a lock",
			`{"token":7}`:                 "a fencing mark of package fencehttp, not a lock",
			"notes":                       `5 bytes of text that begin with "notes"`,
		} {
			member := fmt.Sprint("m", len(body))
			own := key + ".members/" + member
			etag, err := store.PutIfNoneMatch(t.Context(), own, []byte(body))
			require.NoError(t, err)
			err = a.Break(t.Context(), member, 7)
			require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
			require.ErrorContains(t, err, says)
			now, err := store.Get(t.Context(), own)
			require.NoError(t, err)
			require.Equal(t, etag, now.ETag)
		}
	})
}

// A dead member whose object cannot be read blocks those that wait for it, who say so. Nobody else
// stands still.
func TestUnreadableMember(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		a := start(t, cable)
		acquire(t, a.Lock("x"))
		b, c := start(t, store), start(t, store)
		acquire(t, b.Lock("b"))
		acquire(t, c.Lock("c"))
		cable.cut(true)
		store.set(onKey("", key+".members/"+a.MemberName(), errDenied), nil)
		got := make(chan *locktable.Lease, 1)
		go func() { got <- acquire(t, b.Lock("x")) }()
		within(t, 10*ttl, "Check says so", func() bool { return b.Check(nil) != nil })
		require.ErrorContains(t, b.Check(nil), a.MemberName())
		require.NoError(t, c.Check(nil))
		acquire(t, c.Lock("y"))
		state := inspect(t, b)
		require.ErrorContains(t, state.Members[0].Err, "AccessDenied")
		require.Empty(t, got)
		store.set(nil, nil)
		<-got
		require.NoError(t, b.Check(nil))
		cable.cut(false)
		time.Sleep(time.Minute)
	})
}

// A process that restarts under the name of one that has died takes its object back after a TTL,
// and its entries go.
func TestRestartUnderTheSameName(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		a := start(t, cable, locktable.WithMemberName("pod-1"))
		acquire(t, a.Lock("x"))
		cable.cut(true)
		b := start(t, store, locktable.WithMemberName("pod-1"))
		acquire(t, b.Lock("x"))
		state := inspect(t, b)
		require.Len(t, state.Members, 1)
		cable.cut(false)
	})
}

// A request for which there is no room fails, and those that are there stay.
func TestFullTable(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store, locktable.WithMaxSize(8<<10))
		var leases []*locktable.Lease
		for i := range 1000 {
			lease, err := a.Lock(fmt.Sprintf("a-rather-long-name-of-a-lock-%d", i)).Acquire(t.Context())
			if err != nil {
				require.ErrorIs(t, err, locktable.ErrFull)
				require.ErrorContains(t, err, "8192")
				break
			}
			leases = append(leases, lease)
		}
		require.Greater(t, len(leases), 50)
		require.Less(t, len(leases), 1000)
		_, err := a.Lock("another").TryAcquire(soon(t))
		require.True(t, err == nil || errors.Is(err, locktable.ErrFull))
		for _, lease := range leases[:10] {
			require.True(t, lease.Valid())
			require.NoError(t, lease.Release(t.Context()))
		}
		acquire(t, a.Lock("a-rather-long-name-of-a-lock-again"))
		require.NoError(t, a.Check(nil))
		runtime.KeepAlive(leases)
	})
}

// A holder learns that somebody waits.
func TestWanted(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		lease := acquire(t, a.Shared("x"))
		wanted := lease.Wanted()
		acquire(t, b.Shared("x"))
		time.Sleep(10 * ttl)
		require.False(t, closed(wanted))
		again := acquire(t, a.Lock("y"))
		time.Sleep(10 * time.Millisecond)
		soonWanted := again.Wanted()
		go func() { _, _ = b.Lock("y").Acquire(t.Context()) }()
		within(t, ttl, "a lease is wanted whose holder has just begun to listen", func() bool {
			return closed(soonWanted)
		})
		go func() {
			next, err := b.Lock("x").Acquire(t.Context())
			if err == nil {
				_ = next.Release(t.Context())
			}
		}()
		within(t, ttl, "it is wanted", func() bool { return closed(wanted) })
		require.NoError(t, lease.Release(t.Context()))
	})
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Without Run, every call says so soon.
func TestNotRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, err := locktable.New(newCounting(), key)
		require.NoError(t, err)
		require.ErrorIs(t, tab.Check(nil), locktable.ErrNotRunning)
		_, err = tab.Lock("x").Acquire(t.Context())
		require.ErrorIs(t, err, locktable.ErrNotRunning)
		require.ErrorContains(t, err, "Table.Run")
	})
}

// A member that an edit has given the object of something else is not judged by it: nothing is
// taken, and nothing is removed.
func TestMemberWithTheKeyOfAnotherObject(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		victim, err := leasehold.NewLock(store, "locks/victim", leasehold.WithLogger(silent))
		require.NoError(t, err)
		lease, err := victim.TryAcquire(soon(t))
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		before, err := store.Get(t.Context(), "locks/victim")
		require.NoError(t, err)

		a := start(t, store)
		acquire(t, a.Lock("warm"))
		edit(t, store, func(tab *tables.Table) {
			rec := lease.Record()
			m := tables.Member{
				Term: tables.Term{Key: "locks/victim", ObjectID: rec.ObjectID, TermID: rec.TermID, Token: 9},
				Name: "mallory",
				TTL:  ttl,
			}
			require.NoError(t, tab.Ask(tables.ID{Member: tab.Join(m), Number: 1}, []tables.Claim{{Name: "x"}}))
		})
		ctx := testctx.Within(t, 10*ttl)
		_, err = a.Lock("x").Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.ErrorContains(t, a.Check(nil), "locks/victim")
		after, err := store.Get(t.Context(), "locks/victim")
		require.NoError(t, err)
		require.Equal(t, before, after)
	})
}

// Reads that succeed do not hide that nothing can be written. Who frees nothing keeps its leases
// meanwhile.
func TestATableThatCannotBeWritten(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		lease := acquire(t, a.Lock("x"))
		store.set(on("put", errLost), nil)
		ctx := testctx.Within(t, 10*ttl)
		_, err := a.Lock("y").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, a.Check(nil), errLost)
		require.True(t, lease.Valid())
		store.set(nil, nil)
		acquire(t, a.Lock("y"))
		require.NoError(t, a.Check(nil))
		require.True(t, lease.Valid())
	})
}

// Somebody removes a row by hand, and leaves the revision as it was. Whoever waits gets the lock.
func TestAnEditThatLeavesTheRevision(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		acquire(t, a.Lock("x"))
		got := queue(t, b, "x")
		time.Sleep(ttl)
		rewrite(t, store, dropHeld)
		within(t, ttl, "b has the lock", func() bool { return len(got) == 1 })
	})
}
