package itest_test

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// history records what concurrent clients have done, in porcupine's format.
type history struct {
	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// never is the return time of an operation whose outcome its client does not know. It may land at
// any time after its call, or not at all.
const never = math.MaxInt64

// record runs an operation and records it. do returns known = false if the operation may or may not
// have happened. One that has written nothing says nothing if its outcome is unknown, and would
// only make the check longer: its output is nothing.
func (h *history) record(client int, input any, do func() (output any, known bool)) {
	sent := int64(time.Since(h.began))
	output, known := do()
	back := int64(time.Since(h.began))
	switch {
	case known:
	case output == any(nothing{}):
		return
	default:
		output, back = unknown, never
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: input, Call: sent, Output: output, Return: back})
}

// unknown is the output of an ambiguous operation.
var unknown any

// nothing is the output of an operation that has written nothing, and has failed.
type nothing struct{}

// check requires that the history is linearizable. It also fails on porcupine's result "Unknown",
// which means that porcupine ran out of time.
func (h *history) check(t *testing.T, model porcupine.NondeterministicModel, name string) (ambiguous int) {
	t.Helper()
	m := model.ToModel()
	result, info := porcupine.CheckOperationsVerbose(m, h.ops, time.Minute)
	if result != porcupine.Ok {
		path := filepath.Join(t.ArtifactDir(), name+".html")
		require.NoError(t, porcupine.VisualizePath(m, info, path))
		for _, op := range h.ops { // log them as well, because the HTML page may not be kept
			t.Logf("client %d, %d to %d: %+v: %v", op.ClientId, op.Call, op.Return, op.Input, op.Output)
		}
		t.Fatalf("history %s: %s; see %s", name, result, path)
	}
	for _, op := range h.ops {
		if op.Return == never {
			ambiguous++
		}
	}
	return ambiguous
}

// call is an operation on an S3 object. All bodies differ, so a body identifies a version.
type call struct {
	op    string // get, create, update
	body  string // to write
	match string // body of the version that update is to replace
}

// found is the body that a get has read; "" means no object.
type found string

// wrote says whether a conditional write was accepted.
type wrote bool

// register models one S3 object. Its state is the body.
var register = porcupine.NondeterministicModel{
	Init: func() []any { return []any{""} },
	Step: func(state, input, output any) []any {
		in, now := input.(call), state.(string)
		if in.op == "get" {
			if output.(found) == found(now) {
				return []any{now}
			}
			return nil
		}
		accepts := now == in.match // "" for create
		switch {
		case output == unknown && accepts:
			return []any{now, in.body}
		case output == unknown, !accepts && !bool(output.(wrote)):
			return []any{now}
		case accepts && bool(output.(wrote)):
			return []any{in.body}
		}
		return nil
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %v", input, output) },
}

// term is the state of lockModel: the last term of the lock.
type term struct {
	token    uint64
	released bool
	known    bool // its holder knows of it
}

// lockCall is an operation on a lock, by the holder of token if it has one.
type lockCall struct {
	op    string // acquire, renew, release, inspect, undo
	token uint64
}

// lockOutput is the outcome of a lockCall.
type lockOutput struct {
	ok    bool
	token uint64 // acquired or seen
}

// lockModel has no notion of time. Other tests check when a held lock may be taken over. Tokens
// rise by one. A Lock whose acquisition has an unknown outcome, and has landed, may release it
// later: see withUndos.
var lockModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{term{}} },
	Step: func(state, input, output any) []any {
		in, now := input.(lockCall), state.(term)
		if output == unknown {
			next := []any{now}
			switch {
			case in.op == "acquire":
				next = append(next, term{token: now.token + 1})
			case in.op == "release" && now.token == in.token, in.op == "undo" && !now.known:
				next = append(next, term{now.token, true, now.known})
			}
			return next
		}
		out := output.(lockOutput)
		switch in.op {
		case "acquire":
			if out.ok && out.token == now.token+1 {
				return []any{term{token: out.token, known: true}}
			}
			if !out.ok && out.token == now.token && !now.released {
				return []any{now}
			}
		case "renew":
			if !out.ok || now.token == in.token && !now.released {
				return []any{now}
			}
		case "release":
			if !out.ok {
				return []any{now}
			}
			if now.token == in.token && !now.released {
				return []any{term{in.token, true, true}}
			}
		case "inspect":
			if out.token == now.token && out.ok == now.released {
				return []any{now}
			}
		}
		return nil
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// withUndos adds to acquisitions of unknown outcome that they may be undone. It makes the check
// longer, so it is for histories that need it.
func (h *history) withUndos(model porcupine.NondeterministicModel) {
	if porcupine.CheckOperationsTimeout(model.ToModel(), h.ops, time.Minute) != porcupine.Illegal {
		return
	}
	for _, op := range h.ops {
		if op.Input.(lockCall).op == "acquire" && op.Return == never {
			op.Input = lockCall{op: "undo"}
			h.ops = append(h.ops, op)
		}
	}
}

// TestModelsCanFail checks that the models reject histories that must not happen.
func TestModelsCanFail(t *testing.T) {
	t.Parallel()
	op := func(client int, input, output any, call, back int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: input, Output: output, Call: call, Return: back}
	}
	create := func(body string) call { return call{op: "create", body: body} }
	get := call{op: "get"}
	for name, ops := range map[string][]porcupine.Operation{
		"two creators": {op(0, create("a"), wrote(true), 0, 10), op(1, create("b"), wrote(true), 0, 10)},
		"stale read":   {op(0, create("a"), wrote(true), 0, 10), op(1, get, found(""), 20, 30)},
		"two updates of one": {op(0, create("a"), wrote(true), 0, 1),
			op(0, call{"update", "b", "a"}, wrote(true), 2, 9), op(1, call{"update", "c", "a"}, wrote(true), 2, 9)},
		"lost write": {op(0, create("a"), wrote(true), 0, 1), op(0, call{"update", "b", "a"}, wrote(true), 2, 3),
			op(1, get, found("a"), 4, 5)},
		"refused without reason": {op(0, create("a"), wrote(false), 0, 1)},
		"undone": {op(0, create("a"), unknown, 0, never), op(1, get, found("a"), 2, 3),
			op(1, get, found(""), 4, 5)},
	} {
		require.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(register.ToModel(), ops, time.Minute),
			name)
	}
	acquire := lockCall{op: "acquire"}
	for name, ops := range map[string][]porcupine.Operation{
		"token issued twice": {op(0, acquire, lockOutput{true, 1}, 0, 1), op(1, acquire, lockOutput{true, 1}, 2, 3)},
		"token goes back": {op(0, acquire, lockOutput{true, 1}, 0, 1), op(0, acquire, lockOutput{true, 2}, 2, 3),
			op(1, acquire, lockOutput{true, 1}, 4, 5)},
		"renewed after the next": {op(0, acquire, lockOutput{true, 1}, 0, 1),
			op(1, acquire, lockOutput{true, 2}, 2, 3), op(0, lockCall{"renew", 1}, lockOutput{ok: true}, 4, 5)},
		"undone under its holder": {op(0, acquire, lockOutput{true, 1}, 0, 1),
			op(1, lockCall{op: "undo"}, unknown, 0, never),
			op(1, lockCall{op: "inspect"}, lockOutput{true, 1}, 4, 5)},
		"released, yet held": {op(0, acquire, lockOutput{true, 1}, 0, 1),
			op(0, lockCall{"release", 1}, lockOutput{ok: true}, 2, 3), op(1, acquire, lockOutput{false, 1}, 4, 5)},
	} {
		require.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(lockModel.ToModel(), ops, time.Minute),
			name)
	}
	undone := &history{ops: []porcupine.Operation{
		op(0, acquire, unknown, 0, never),
		op(1, lockCall{op: "inspect"}, lockOutput{false, 1}, 2, 3),
		op(1, lockCall{op: "inspect"}, lockOutput{true, 1}, 4, 5),
	}}
	undone.withUndos(lockModel)
	require.Len(t, undone.ops, 4)
	undone.check(t, lockModel, "undone")
}

// opened returns a store on which one request in eight goes wrong, for another client of the same
// objects.
type opened func(seed uint64) leasehold.Store

// onS3 opens stores in a new bucket.
func onS3(t *testing.T, server testserver.S3) opened {
	bucket := server.Bucket(t)
	return func(seed uint64) leasehold.Store {
		l := newLink(t, server, bucket, func(o *s3.Options) { o.RetryMaxAttempts = 1 })
		l.Decide = lossy(seed, l.decide)
		return l.store
	}
}

// lossy makes one request in eight go wrong, in most cases after it has landed. inner says what
// happens to the others.
func lossy(seed uint64, inner func(*http.Request) faultproxy.Fault) func(*http.Request) faultproxy.Fault {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	faults := []faultproxy.Fault{
		{Kind: faultproxy.DropReply}, {
			Kind:  faultproxy.DropReply,
			After: 20 * time.Millisecond,
		}, {Kind: faultproxy.AnswerAfter, Status: 500},
		{
			Kind:   faultproxy.AnswerAfter,
			Status: 503,
		}, {Kind: faultproxy.Refuse}, {
			Kind:   faultproxy.Ghost,
			Before: 30 * time.Millisecond,
		}, {Before: 20 * time.Millisecond},
	}
	return func(r *http.Request) faultproxy.Fault {
		if f := inner(r); f != (faultproxy.Fault{}) {
			return f
		}
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(8) > 0 {
			return faultproxy.Fault{}
		}
		return faults[random.IntN(len(faults))]
	}
}

// torn reports whether an object's ETag does not belong to its body. The servers' ETags are MD5
// sums.
func torn(obj leasehold.Object) bool { return obj.ETag != etagOf(string(obj.Body)) }

func etagOf(body string) string { return fmt.Sprintf(`"%x"`, md5.Sum([]byte(body))) }

// tornForward reports whether the ETag of a torn read belongs to an older version than its body.
// Such an ETag makes a conditional write fail, which is safe. With a newer ETag, a decision about
// an old body would replace a new one.
func tornForward(ops []porcupine.Operation, obj leasehold.Object) bool {
	replaced := map[string]string{} // by body
	for _, op := range ops {
		if in := op.Input.(call); in.op == "update" {
			replaced[in.body] = in.match
		}
	}
	for body := replaced[string(obj.Body)]; body != ""; body = replaced[body] {
		if etagOf(body) == obj.ETag {
			return true
		}
	}
	return false
}

func TestLinearizableRegister(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		// VersityGW reads an object's ETag before it opens the file, so a GET may return the ETag
		// of the previous version.
		linearizableRegister(t, server.Name, server.Name == "versitygw", onS3(t, server))
	})
}

func linearizableRegister(t *testing.T, server string, mayTear bool, open opened) {
	const clients, rounds = 6, 20
	keys := testsize.Pick(6, 30)
	busy(t)
	ops, ambiguous, tears := 0, 0, 0
	for key := range keys {
		h := &history{began: time.Now()}
		name := fmt.Sprint("registers/", key)
		var wg sync.WaitGroup
		var etags sync.Map // ETag by body
		var mu sync.Mutex
		var torns []leasehold.Object
		for c := range clients {
			store := open(uint64(key*clients + c))
			random := rand.New(rand.NewPCG(uint64(key), uint64(c)))
			wg.Go(func() {
				seen, ctx := "", context.Background()
				for round := range rounds {
					body := fmt.Sprintf("%d by client %d of %s", round, c, name)
					switch etag, ok := etags.Load(seen); {
					case random.IntN(3) == 0, seen != "" && !ok:
						h.record(c, call{op: "get"}, func() (any, bool) {
							obj, err := store.Get(ctx, name)
							if err == nil {
								seen = string(obj.Body)
								if mayTear && torn(obj) {
									mu.Lock()
									torns = append(torns, obj)
									mu.Unlock()
								} else {
									etags.Store(seen, obj.ETag)
								}
								return found(seen), true
							}
							if seen = ""; !errors.Is(err, leasehold.ErrNotExist) {
								return nothing{}, false
							}
							return found(""), true
						})
					case seen == "":
						h.record(c, call{op: "create", body: body}, func() (any, bool) {
							etag, err := store.PutIfNoneMatch(ctx, name, []byte(body))
							return landed(&etags, &seen, body, etag, err)
						})
					default:
						h.record(c, call{"update", body, seen}, func() (any, bool) {
							etag, err := store.PutIfMatch(ctx, name, []byte(body), etag.(string))
							return landed(&etags, &seen, body, etag, err)
						})
					}
				}
			})
		}
		wg.Wait()
		ambiguous += h.check(t, register, fmt.Sprintf("%s-register-%d", server, key))
		ops, tears = ops+len(h.ops), tears+len(torns)
		for _, obj := range torns {
			require.True(t, tornForward(h.ops, obj), "the body %q did not come with the ETag of an older version",
				obj.Body)
		}
	}
	require.NotZero(t, ambiguous, "no operation was ambiguous, so the test proves little")
	t.Logf("%d histories of %d operations in all, %d of them ambiguous, %d of them reads with an older ETag, are "+
		"linearizable", keys, ops, ambiguous, tears)
}

// landed records the outcome of a write. Only a refusal by the condition proves that the write has
// not landed. If a client retried, it could not know which of its own tries was refused, but a
// store's call is a single request.
func landed(etags *sync.Map, seen *string, body, etag string, err error) (any, bool) {
	switch {
	case err == nil:
		etags.Store(body, etag)
		*seen = body
		return wrote(true), true
	case errors.Is(err, leasehold.ErrPreconditionFailed), errors.Is(err, leasehold.ErrNotExist):
		return wrote(false), true
	}
	return nil, false
}

func TestLinearizableLock(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) { linearizableLock(t, server.Name, onS3(t, server)) })
}

func linearizableLock(t *testing.T, server string, open opened) {
	const clients = 4
	keys := testsize.Pick(3, 6)
	ops, ambiguous, terms := 0, 0, uint64(0)
	histories := make([]history, keys)
	var wg sync.WaitGroup
	for key := range keys {
		h := &histories[key]
		h.began = time.Now()
		for c := range clients {
			store := open(uint64(1000 + key*clients + c))
			random := rand.New(rand.NewPCG(uint64(key), uint64(c)))
			wg.Go(func() { lockClient(t, h, c, store, fmt.Sprint("locks/linear", key), random) })
		}
	}
	wg.Wait()
	for key := range histories {
		h := &histories[key]
		h.withUndos(lockModel)
		ambiguous += h.check(t, lockModel, fmt.Sprintf("%s-lock-%d", server, key))
		ops += len(h.ops)
		for _, op := range h.ops {
			if out, ok := op.Output.(lockOutput); ok {
				terms = max(terms, out.token)
			}
		}
	}
	t.Logf("%d histories of %d operations in all, %d of them ambiguous, up to %d terms each, are linearizable", keys,
		ops, ambiguous, terms)
}

// lockClient acquires a lock again and again, and then renews, releases or abandons it.
func lockClient(t *testing.T, h *history, c int, store leasehold.Store, key string, random *rand.Rand) {
	ctx := context.Background()
	counted := teststore.Known(store, nil)
	writes := func() int { return counted.Sent(teststore.Puts...) }
	start := func() *leasehold.Lock {
		lock, err := leasehold.NewLock(counted, key, leasehold.WithTTL(time.Second), leasehold.WithManualRenewal())
		assertNoError(t, err)
		return lock
	}
	lock := start()
	for range 12 {
		var lease *leasehold.Lease
		h.record(c, lockCall{op: "acquire"}, func() (any, bool) {
			var err error
			before := writes()
			if lease, err = lock.TryAcquire(ctx); err == nil {
				return lockOutput{true, lease.Token()}, true
			}
			held, ok := errors.AsType[*leasehold.HeldError](err)
			switch {
			case ok:
				return lockOutput{false, held.Record.Token}, true
			case writes() == before:
				return nothing{}, false
			}
			return nil, false
		})
		if lease == nil {
			h.record(c, lockCall{op: "inspect"}, func() (any, bool) {
				rec, err := lock.Inspect(ctx)
				if err != nil {
					return nothing{}, false
				}
				return lockOutput{rec.Released() || rec.Token == 0, rec.Token}, true
			})
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			continue
		}
		for range random.IntN(3) {
			h.record(c, lockCall{"renew", lease.Token()}, func() (any, bool) {
				err := lease.Renew(ctx)
				return lockOutput{ok: err == nil}, true
			})
		}
		if random.IntN(3) == 0 { // crashes; the restarted client has to wait like any other
			lock = start()
			continue
		}
		h.record(c, lockCall{"release", lease.Token()}, func() (any, bool) {
			err := lease.Release(ctx)
			return lockOutput{ok: true}, err == nil
		})
	}
}
