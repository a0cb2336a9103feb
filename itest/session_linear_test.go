package itest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testserver"
)

// leaningTerm is the state of leaningModel: the last term of the lock.
type leaningTerm struct {
	token    uint64
	released bool
	stray    bool // a session may free the lock, because it has an acquisition of unknown outcome
}

// leaningModel is lockModel for a lock that leans on sessions. Its operations are those of lockModel, and "valid": the lease of token says
// that its holder may act. The end of a session does not change the lock, so it is no operation: it lets others acquire, as the end
// of a TTL does. "inspect" is what the lock's own record says.
var leaningModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{leaningTerm{released: true}} },
	Step: func(state, input, output any) []any {
		in, now := input.(lockCall), state.(leaningTerm)
		next := leaningTerm{token: now.token + 1}
		if output == unknown {
			switch {
			case in.op == "acquire":
				now.stray, next.stray = true, true
				return []any{now, next}
			case in.op == "release" && now.token == in.token:
				return []any{now, leaningTerm{token: in.token, released: true}}
			}
			return []any{now}
		}
		out := output.(lockOutput)
		switch {
		case in.op == "acquire" && out.ok && out.token == next.token:
			return []any{next}
		case in.op == "acquire" && !out.ok && out.token == now.token && !now.released:
			return []any{now}
		case in.op == "renew" && (!out.ok || now.token == in.token && !now.released),
			in.op == "valid" && (!out.ok || now.token == in.token && !now.released),
			in.op == "release" && !out.ok:
			return []any{now}
		case in.op == "release" && now.token == in.token && !now.released:
			return []any{leaningTerm{token: in.token, released: true}}
		case in.op == "inspect" && out.token == now.token && out.ok == now.released:
			return []any{now}
		case in.op == "inspect" && out.token == now.token && out.ok && now.stray:
			return []any{leaningTerm{token: now.token, released: true}}
		}
		return nil
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

func TestLeaningModelCanFail(t *testing.T) {
	op := func(client int, input, output any, call, back int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: input, Output: output, Call: call, Return: back}
	}
	acquire, inspect := lockCall{op: "acquire"}, lockCall{op: "inspect"}
	taken := op(0, acquire, lockOutput{true, 1}, 0, 1)
	for name, ops := range map[string][]porcupine.Operation{
		"token issued twice":      {taken, op(1, acquire, lockOutput{true, 1}, 2, 3)},
		"token skipped":           {taken, op(1, acquire, lockOutput{true, 3}, 2, 3)},
		"two leaders":             {taken, op(1, acquire, lockOutput{true, 2}, 2, 3), op(0, lockCall{"valid", 1}, lockOutput{ok: true}, 4, 5)},
		"valid after the release": {taken, op(0, lockCall{"release", 1}, lockOutput{ok: true}, 2, 3), op(0, lockCall{"valid", 1}, lockOutput{ok: true}, 4, 5)},
		"renewed after the next":  {taken, op(1, acquire, lockOutput{true, 2}, 2, 3), op(0, lockCall{"renew", 1}, lockOutput{ok: true}, 4, 5)},
		"released by nobody":      {taken, op(1, inspect, lockOutput{true, 1}, 2, 3)},
		"released, yet held":      {taken, op(0, lockCall{"release", 1}, lockOutput{ok: true}, 2, 3), op(1, acquire, lockOutput{false, 1}, 4, 5)},
		"freed while led": {
			taken, op(1, acquire, unknown, 2, never), op(1, inspect, lockOutput{true, 1}, 4, 5), op(0, lockCall{"valid", 1}, lockOutput{ok: true}, 6, 7),
		},
	} {
		require.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(leaningModel.ToModel(), ops, time.Minute), name)
	}
	freed := []porcupine.Operation{op(0, acquire, unknown, 0, never), op(1, inspect, lockOutput{true, 1}, 2, 3), op(1, acquire, lockOutput{true, 2}, 4, 5)}
	require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(leaningModel.ToModel(), freed, time.Minute))
}

// TestLinearizableLeaningLock is TestLinearizableLock for locks of sessions, one for each client, whose own requests fail as well.
func TestLinearizableLeaningLock(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		const keys, clients = 6, 4
		bucket := server.Bucket(t)
		ops, ambiguous, terms, valid := 0, 0, uint64(0), 0
		var histories [keys]history
		var wg sync.WaitGroup
		for key := range keys {
			h := &histories[key]
			h.began = time.Now()
			for c := range clients {
				seed := uint64(2000 + key*clients + c)
				client := &leaningClient{
					t: t, h: h, id: c, lock: fmt.Sprint("locks/linear", key), session: fmt.Sprintf("sessions/%d of linear%d", c, key),
					random: rand.New(rand.NewPCG(seed, 0)), link: func() *link { return lossyLink(t, server, bucket, seed) },
				}
				wg.Go(client.run)
			}
		}
		wg.Wait()
		for key := range histories {
			h := &histories[key]
			ambiguous += h.check(t, leaningModel, fmt.Sprintf("%s-leaning-lock-%d", server.Name, key))
			ops += len(h.ops)
			for _, op := range h.ops {
				if op.Input.(lockCall).op == "valid" {
					valid++
				}
				if out, ok := op.Output.(lockOutput); ok {
					terms = max(terms, out.token)
				}
			}
		}
		require.NotZero(t, ambiguous, "no operation was ambiguous, so the test proves little")
		t.Logf("%d histories of %d operations in all, %d of them ambiguous and %d looks at a valid lease, up to %d terms each, are linearizable",
			keys, ops, ambiguous, valid, terms)
	})
}

// leaningClient is a process that acquires a lock of its session again and again.
type leaningClient struct {
	t             *testing.T
	h             *history
	id            int
	lock, session string // keys
	random        *rand.Rand
	link          func() *link
	network       *link
	running       *leasehold.Session
	end           func() error // of the session
	locked        *leasehold.Lock
}

// start starts the process anew.
func (c *leaningClient) start() {
	var err error
	c.network = c.link()
	c.running, err = leasehold.NewSession(c.network.store, c.session, leasehold.WithTTL(time.Second), leasehold.WithLogger(nil))
	assertNoError(c.t, err)
	c.locked, err = c.running.Lock(c.lock)
	assertNoError(c.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- c.running.Run(ctx) }()
	c.end = sync.OnceValue(func() error {
		cancel()
		return <-ran
	})
}

// look records a look at the lease, and returns what it says.
func (c *leaningClient) look(lease *leasehold.Lease) (valid bool) {
	c.h.record(c.id, lockCall{"valid", lease.Token()}, func() (any, bool) {
		valid = lease.Valid()
		return lockOutput{ok: valid}, true
	})
	return valid
}

func (c *leaningClient) run() {
	c.start()
	defer func() { _ = c.end() }()
	ctx := context.Background()
	for range 12 {
		for i := 0; !c.running.Held() && i < 1000; i++ {
			time.Sleep(10 * time.Millisecond)
		}
		var lease *leasehold.Lease
		c.h.record(c.id, lockCall{op: "acquire"}, func() (any, bool) {
			var err error
			if lease, err = c.locked.TryAcquire(ctx); err == nil {
				return lockOutput{true, lease.Token()}, true
			}
			held, ok := errors.AsType[*leasehold.HeldError](err)
			if !ok {
				return nil, false
			}
			return lockOutput{false, held.Record.Token}, true
		})
		if lease == nil {
			c.h.record(c.id, lockCall{op: "inspect"}, func() (any, bool) {
				o, err := c.network.store.Get(ctx, c.lock)
				var rec leasehold.Record
				if err == nil {
					err = rec.UnmarshalJSON(o.Body)
				}
				return lockOutput{rec.Released(), rec.Token}, err == nil
			})
			time.Sleep(time.Duration(c.random.IntN(300)) * time.Millisecond)
			continue
		}
		for range c.random.IntN(3) {
			c.h.record(c.id, lockCall{"renew", lease.Token()}, func() (any, bool) {
				err := lease.Renew(ctx)
				return lockOutput{ok: err == nil}, true
			})
			c.look(lease)
		}
		switch c.random.IntN(6) {
		case 0: // is cut off, and acts for as long as it may
			c.network.cut(true)
			for c.look(lease) {
				time.Sleep(20 * time.Millisecond)
			}
			_ = c.end()
			c.start()
		case 1: // ends its session
			go func() { _ = c.end() }()
			for c.look(lease) {
				time.Sleep(time.Millisecond)
			}
			_ = c.end()
			c.start()
		default:
			c.h.record(c.id, lockCall{"release", lease.Token()}, func() (any, bool) {
				err := lease.Release(ctx)
				return lockOutput{ok: true}, err == nil
			})
			c.look(lease)
		}
	}
}
