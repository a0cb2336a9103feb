package locktable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/locktable"
)

// hold has a member hold a lock, by a function that returns when its context ends, or without one.
func hold(t *testing.T, l *locktable.Lock, do bool) {
	t.Helper()
	if !do {
		acquire(t, l)
		return
	}
	began := make(chan struct{})
	go func() {
		_ = l.Do(t.Context(), func(ctx context.Context, _ *locktable.Lease) error {
			close(began)
			<-ctx.Done()
			return nil
		})
	}()
	<-began
}

// A graceful end is one read and one write of the table, whatever others have asked meanwhile, and
// whether functions run under the leases or not. The write hands all locks over.
func TestLeavingWhileOthersWait(t *testing.T) {
	for name, do := range map[string]bool{"leases without functions": false, "functions that return at once": true} {
		bubble.Run(t, name, func(t *testing.T) {
			const locks = 1000
			store := newCounting()
			own := alone(store)
			a, b := start(t, own), start(t, store)
			for i := range locks {
				hold(t, a.Lock(fmt.Sprint("x", i)), do)
			}
			got := make(chan time.Time, locks)
			for i := range locks {
				go func() {
					acquire(t, b.Lock(fmt.Sprint("x", i)))
					got <- time.Now()
				}()
			}
			within(t, ttl, "b stands in line", func() bool { return len(inspect(t, b).Waiting) == locks })
			own.forget()
			began := time.Now()
			require.NoError(t, a.stop())
			require.Less(t, time.Since(began), time.Second)
			require.Equal(t, 1, own.count("get"))
			require.Equal(t, 1, own.count("put"))
			require.Len(t, inspect(t, b).Held, locks, "that write has handed all over")
			for range locks {
				require.LessOrEqual(t, (<-got).Sub(began), ttl/5+ttl/50+time.Second)
			}
		})
	}
}

// A leave that cannot be written is tried for a bounded time, and not again if it is refused for
// good. Run says then what is left in the table. The member's object stays, released: if it were
// gone, others would have to wait for a TTL.
func TestAMemberThatCannotLeave(t *testing.T) {
	denied := errDenied
	outage := errors.New("503")
	outrun := leasehold.ErrPreconditionFailed
	for name, c := range map[string]struct {
		fails func(op, of string) error
		want  error         // of Run
		takes time.Duration // at most
		stale bool          // others have written since a's last read
	}{
		"no write, for a while":           {on("put", outage), outage, ttl/2 + ttl/5, false},
		"no write, for good":              {on("put", denied), denied, ttl / 10, false},
		"no read, for good":               {on("get", denied), nil, ttl / 30, false},
		"no read, for a while":            {on("get", outage), nil, ttl / 30, false},
		"no read of what others wrote":    {on("get", denied), denied, ttl / 10, true},
		"nor for a while":                 {on("get", outage), outage, ttl/2 + ttl/5, true},
		"others always write before":      {on("put", outrun), outrun, ttl, true},
		"neither reads nor writes":        {on("", outage), outage, ttl/2 + ttl/5, true},
		"neither reads nor writes at all": {on("", denied), denied, ttl / 10, true},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newCounting()
			own := alone(store)
			a, b := start(t, own), start(t, store)
			acquire(t, b.Lock("b"))
			lease := acquire(t, a.All(a.Lock("x"), a.Lock("y")))
			got := make(chan time.Time, 1)
			if c.stale {
				go func() {
					acquire(t, b.Lock("x"))
					got <- time.Now()
				}()
				within(t, ttl, "b stands in line", func() bool { return len(inspect(t, b).Waiting) == 1 })
			}
			own.set(c.fails, nil)
			a.fails = c.want != nil
			began := time.Now()
			err := a.stop()
			left := time.Now()
			require.LessOrEqual(t, left.Sub(began), c.takes)
			rows := inspect(t, b).Held
			released := lease.Release(t.Context())
			if c.want == nil {
				require.NoError(t, err)
				require.NoError(t, released)
				require.Len(t, rows, 1, "only b is left")
				return
			}
			require.ErrorIs(t, err, c.want)
			require.ErrorIs(t, released, c.want)
			require.NotErrorIs(t, released, leasehold.ErrLost)
			require.ErrorContains(t, err,
				fmt.Sprintf("member %q is still in the table, with \"x\", \"y\"", a.MemberName()))
			require.Len(t, rows, 2)
			if c.stale {
				require.LessOrEqual(t, (<-got).Sub(left), ttl/2)
			}
		})
	}
}

// A member that never got into the table has nothing to leave, whatever its store answers.
func TestLeavingATableThatWasNeverRead(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		store.set(on("", errCut), nil)
		a := start(t, store)
		time.Sleep(ttl)
		began := time.Now()
		require.NoError(t, a.stop())
		require.Less(t, time.Since(began), time.Second)
		_, err := store.Store.Get(t.Context(), key+".members/"+a.MemberName())
		require.ErrorIs(t, err, leasehold.ErrNotExist)
	})
}

// If the member's own lock cannot be released either, Run's error says both.
func TestAMemberThatIsCutOffCannotLeave(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store, locktable.WithSafetyMargin(ttl/100))
		acquire(t, a.Lock("x"))
		a.fails = true
		store.set(func(string, string) error { return errCut }, nil)
		began := time.Now()
		err := a.stop()
		require.LessOrEqual(t, time.Since(began), ttl+ttl/5)
		require.ErrorIs(t, err, errCut)
		require.ErrorContains(t, err, `with "x"`)
		require.ErrorContains(t, err, "was not released")
		store.set(nil, nil)
	})
}

// A member that does not know whether the table names it says so, and leaves its released object,
// by which others see at once that its term has ended.
func TestAMemberThatMayBeInTheTable(t *testing.T) {
	ofTable := func(err error) func(op, k string) error {
		return func(_, k string) error {
			if k == key {
				return err
			}
			return nil
		}
	}
	for name, begin := range map[string]func(t *testing.T, store, cut *counting) *member{
		"resumed, and the table was never read": func(t *testing.T, store, cut *counting) *member {
			a := start(t, store, locktable.WithMemberName("pod"))
			acquire(t, a.Lock("x"))
			cut.set(ofTable(errCut), nil)
			return resume(t, cut, detach(t, a))
		},
		"it has joined, and nothing is read since": func(t *testing.T, _, cut *counting) *member {
			cut.set(nil, func(op, k string) error {
				if k != key {
					return nil
				}
				cut.set(ofTable(errCut), nil)
				return leasehold.ErrPreconditionFailed
			})
			a := start(t, cut, locktable.WithMemberName("pod"))
			_, err := a.Lock("x").Acquire(testctx.Within(t, time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return a
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newCounting()
			other := start(t, store)
			m := begin(t, store, alone(store))
			m.fails = true
			time.Sleep(ttl / 2)
			got := queue(t, other, "x")
			time.Sleep(ttl / 2)
			require.ErrorContains(t, m.stop(), `member "pod" is still in the table`)
			ended := time.Now()
			<-got
			require.LessOrEqual(t, time.Since(ended), ttl/2)
		})
	}
}
