package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// TestVirtualTime watches the age of an object for an hour of virtual time.
func TestVirtualTime(t *testing.T) {
	for name, newStore := range map[string]func() leasehold.Store{
		"MemStore": func() leasehold.Store { return testopt.NewMemStore(false, true) },
		"S3Store": func() leasehold.Store {
			return leasehold.NewS3Store(fakes3.NewClient(fakes3.Transport{Handler: &fakes3.Server{}}), fakes3.Bucket,
				leasehold.WithServerClock(2*time.Second))
		},
	} {
		suite := newSuite([]Option{Rounds(5)})
		suite.wait = time.Hour
		for _, c := range suite.checks() {
			bubble.Run(t, name+"/"+c.name, func(t *testing.T) {
				require.NoError(t, c.run(t.Context(), newStore(), t.Logf))
			})
		}
	}
}

// broken makes a store that answers each request as do says.
func broken(do teststore.Do) func() teststore.Do { return func() teststore.Do { return do } }

// on makes a store that answers the requests of one kind as do says.
func on(op teststore.Op, do teststore.Do) func() teststore.Do {
	return broken(func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if r.Op != op {
			return r.Send(ctx)
		}
		return do(ctx, r)
	})
}

// answered makes a store that changes the answers to the requests of one kind.
func answered(op teststore.Op, change func(o *leasehold.Object, err error) error) func() teststore.Do {
	return on(op, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		o, err := r.Send(ctx)
		err = change(&o, err)
		return o, err
	})
}

// Each kind of broken store must fail exactly the checks that cover its fault.
func TestBrokenStoresFail(t *testing.T) {
	refused := func(err error) bool {
		return errors.Is(err, leasehold.ErrPreconditionFailed) || errors.Is(err, leasehold.ErrNotExist)
	}
	overwrite := func(ctx context.Context, r teststore.Request) (leasehold.Object, error) { return r.Overwrite(ctx) }
	deleteAnyway := func(ctx context.Context, r teststore.Request) (o leasehold.Object, err error) {
		o, err = r.Get(ctx)
		if errors.Is(err, leasehold.ErrNotExist) {
			return o, nil
		}
		r.ETag = o.ETag
		return r.Send(ctx)
	}
	for name, c := range map[string]struct {
		broken func() teststore.Do
		opts   []Option
		fails  []string
	}{
		"nothing is broken": {},
		"create overwrites": {
			broken: on(teststore.Create, overwrite),
			fails:  []string{"create", "create-race", "errors"},
		},
		"update overwrites": {
			broken: on(teststore.Update, overwrite),
			fails:  []string{"missing", "update", "update-race", "errors", "etags", "counters"},
		},
		"check, then put": {
			broken: broken(teststore.CheckThenPut),
			fails:  []string{"create-race", "update-race", "counters"},
		},
		"refusals are swallowed": {
			broken: broken(func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				o, err := r.Send(ctx)
				if r.Puts() && refused(err) {
					return leasehold.Object{ETag: `"made up"`}, nil
				}
				return o, err
			}),
			fails: []string{"missing", "create", "update", "create-race", "update-race", "errors", "etags", "counters"},
		},
		"the ETag is the body's length": {
			broken: func() teststore.Do {
				var mu sync.Mutex
				etagOf := func(body []byte) string { return fmt.Sprintf(`"%d"`, len(body)) }
				return func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
					mu.Lock()
					defer mu.Unlock()
					if r.Op == teststore.Update || r.Op == teststore.Delete {
						o, err := r.Get(ctx)
						if err != nil {
							return o, err
						}
						if etagOf(o.Body) != r.ETag {
							return o, leasehold.ErrPreconditionFailed
						}
						r.ETag = o.ETag
					}
					o, err := r.Send(ctx)
					if r.Puts() {
						o.ETag = etagOf(r.Body)
					} else if err == nil {
						o.ETag = etagOf(o.Body)
					}
					return o, err
				}
			},
			fails: []string{"update-race", "etags", "counters"},
		},
		"a write's ETag is not the one that is read": {
			broken: answered(teststore.Create, func(o *leasehold.Object, err error) error {
				o.ETag = "W/" + o.ETag
				return err
			}),
			fails: []string{
				"create",
				"update",
				"update-race",
				"create-race",
				"delete",
				"errors",
				"etags",
				"bodies",
				"limit",
				"keys",
				"context",
				"age",
			},
		},
		"Age is the clock's": {
			broken: answered(teststore.Get, func(o *leasehold.Object, err error) error {
				o.Age = time.Since(time.Unix(0, 0))
				return err
			}),
			fails: []string{"age"},
		},
		"Age is over by a second": {
			broken: answered(teststore.Get, func(o *leasehold.Object, err error) error {
				o.Age += time.Second
				return err
			}),
			fails: []string{"age"},
		},
		"Age counts from the object's creation": {
			broken: func() teststore.Do {
				created := time.Now()
				return answered(teststore.Get, func(o *leasehold.Object, err error) error {
					o.Age = max(time.Since(created)-time.Second, 0)
					return err
				})()
			},
			fails: []string{"age"},
		},
		"Age is negative": {
			broken: answered(teststore.Get, func(o *leasehold.Object, err error) error {
				o.Age = -1
				return err
			}),
			fails: []string{"age"},
		},
		"a missing object reads as a changed one": {
			broken: answered(teststore.Update, func(_ *leasehold.Object, err error) error {
				if errors.Is(err, leasehold.ErrNotExist) {
					err = leasehold.ErrPreconditionFailed
				}
				return err
			}),
			fails: []string{"errors"},
		},
		"a missing object returns ErrNotExist, though the option says otherwise": {
			opts:  []Option{MissingIsPreconditionFailed()},
			fails: []string{"errors"},
		},
		"deleting a missing object is refused, though the option says otherwise": {
			opts:  []Option{DeletesMissing()},
			fails: []string{"errors"},
		},
		"errors do not match sentinels": {
			broken: answered(teststore.Get, func(_ *leasehold.Object, err error) error {
				if errors.Is(err, leasehold.ErrNotExist) {
					err = errors.New("404")
				}
				return err
			}),
			fails: []string{"missing", "errors", "etags", "limit", "context"},
		},
		"errors match several sentinels": {
			broken: answered(teststore.Create, func(_ *leasehold.Object, err error) error {
				if refused(err) {
					err = errors.Join(err, leasehold.ErrPermanent)
				}
				return err
			}),
			fails: []string{"errors"},
		},
		"delete ignores its condition": {
			broken: on(teststore.Delete, deleteAnyway),
			fails:  []string{"delete", "errors"},
		},
		"delete ignores its condition, and the option says so": {
			broken: on(teststore.Delete, deleteAnyway),
			opts:   []Option{IgnoresDeleteCondition()},
		},
		"delete honours its condition, though the option says otherwise": {
			opts:  []Option{IgnoresDeleteCondition()},
			fails: []string{"delete-ignored"},
		},
		"delete is denied, and the option says so": {
			broken: on(teststore.Delete, func(ctx context.Context, _ teststore.Request) (o leasehold.Object, _ error) {
				if ctx.Err() != nil {
					return o, ctx.Err()
				}
				return o, fmt.Errorf("403: %w", leasehold.ErrPermanent)
			}),
			opts: []Option{DeniesDelete()},
		},
		"delete is allowed, though the option says otherwise": {
			opts:  []Option{DeniesDelete()},
			fails: []string{"errors"},
		},
		"the context is ignored": {
			broken: on(teststore.Update, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				return r.Send(context.WithoutCancel(ctx))
			}),
			fails: []string{"context"},
		},
		"a write goes on after its context": {
			broken: on(teststore.Update, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				o, err := r.Send(context.WithoutCancel(ctx))
				if ctx.Err() != nil {
					return o, ctx.Err()
				}
				return o, err
			}),
			fails: []string{"context"},
		},
		"an ended context is noticed late": {
			broken: on(teststore.Get, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				if ctx.Err() != nil {
					time.Sleep(time.Minute)
				}
				return r.Send(ctx)
			}),
			fails: []string{"context"},
		},
		"an empty ETag matches any version": {
			broken: on(teststore.Update, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				if r.ETag == "" {
					return r.Overwrite(ctx)
				}
				return r.Send(ctx)
			}),
			fails: []string{"etags"},
		},
		"bodies are text": {
			broken: answered(teststore.Get, func(o *leasehold.Object, err error) error {
				o.Body = bytes.ToValidUTF8(o.Body, []byte("?"))
				return err
			}),
			fails: []string{"create", "bodies"},
		},
		"bodies are shared memory": {
			broken: func() teststore.Do {
				var mu sync.Mutex
				read := map[string]leasehold.Object{}
				return on(teststore.Get, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
					mu.Lock()
					defer mu.Unlock()
					o, err := r.Send(ctx)
					if cached := read[r.Key]; err == nil && cached.ETag == o.ETag {
						o.Body = cached.Body
					}
					read[r.Key] = o
					return o, err
				})()
			},
			fails: []string{"bodies"},
		},
		"keys are unescaped": {
			broken: on(teststore.Create, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				r.Key = strings.ReplaceAll(r.Key, "+", " ")
				return r.Send(ctx)
			}),
			fails: []string{"keys"},
		},
		"large bodies are written": {
			broken: on(teststore.Update, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				r.Body = r.Body[:min(len(r.Body), leasehold.MaxObjectSize)]
				return r.Send(ctx)
			}),
			fails: []string{"limit"},
		},
		"large bodies are read": {
			broken: on(teststore.Get, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				if strings.HasSuffix(r.Key, "-planted") {
					return leasehold.Object{Body: []byte{}, ETag: "x"}, nil
				}
				return r.Send(ctx)
			}),
			opts:  []Option{Plant(func(string, []byte) error { return nil })},
			fails: []string{"limit"},
		},
		"a refused update is carried out": {
			broken: on(teststore.Update, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				o, err := r.Send(ctx)
				if err == nil && bytes.HasPrefix(r.Body, []byte("[")) { // as if a proxy had retried it
					return o, leasehold.ErrPreconditionFailed
				}
				return o, err
			}),
			fails: []string{"counters"},
		},
		"an update gets lost": {
			broken: func() teststore.Do {
				var n atomic.Int64
				return on(teststore.Update, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
					if n.Add(1)%10 == 0 && bytes.HasPrefix(r.Body, []byte("[")) {
						return leasehold.Object{ETag: r.ETag}, nil
					}
					return r.Send(ctx)
				})()
			},
			fails: []string{"counters"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var failed []string
			for _, check := range newSuite(append([]Option{Rounds(20)}, c.opts...)).checks() {
				synctest.Test(t, func(t *testing.T) {
					store := testopt.NewMemStore(false, true)
					if c.broken != nil {
						store = teststore.Known(store, c.broken())
					}
					if err := check.run(t.Context(), store, t.Logf); err != nil {
						failed = append(failed, check.name)
						t.Logf("%s: %v", check.name, err)
					}
				})
			}
			require.ElementsMatch(t, c.fails, failed)
		})
	}
}

// If nothing works on a store, the checks fail within seconds and a bounded number of requests.
// They do not use up all the tries that a contended store gets.
func TestHopelessStoresFailSoon(t *testing.T) {
	refuse := func(context.Context, teststore.Request) (o leasehold.Object, _ error) {
		return o, leasehold.ErrPreconditionFailed
	}
	for name, c := range map[string]struct {
		broken func() teststore.Do
		passes []string
	}{
		"every update is refused": {
			broken: on(teststore.Update, refuse),
			passes: []string{"missing", "create", "create-race", "limit", "keys"},
		},
		"every create is refused": {
			broken: on(teststore.Create, refuse),
			passes: []string{"missing"},
		},
		"every update but the first is refused": {
			broken: func() teststore.Do {
				var mu sync.Mutex
				updated := map[string]bool{}
				return on(teststore.Update, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
					mu.Lock()
					defer mu.Unlock()
					if updated[r.Key] {
						return refuse(ctx, r)
					}
					o, err := r.Send(ctx)
					updated[r.Key] = err == nil
					return o, err
				})()
			},
			passes: []string{
				"missing",
				"create",
				"create-race",
				"update",
				"delete",
				"errors",
				"limit",
				"keys",
				"context",
				"age",
			},
		},
		"everything fails": {
			broken: broken(func(context.Context, teststore.Request) (o leasehold.Object, _ error) {
				return o, errors.New("the server is down")
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var passed []string
			for _, check := range newSuite(nil).checks() {
				synctest.Test(t, func(t *testing.T) {
					var requests atomic.Int64
					do := c.broken()
					store := teststore.New(leasehold.NewMemStore(), func(ctx context.Context, r teststore.Request) (
						leasehold.Object, error) {
						requests.Add(1)
						return do(ctx, r)
					})
					began := time.Now()
					if check.run(t.Context(), store, t.Logf) == nil {
						passed = append(passed, check.name)
					}
					require.LessOrEqual(t, time.Since(began), 10*time.Second, check.name)
					require.LessOrEqual(t, requests.Load(), int64(10_000), check.name)
				})
			}
			require.ElementsMatch(t, c.passes, passed)
		})
	}
}
