package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// broken is a MemStore with some of its methods replaced.
type broken struct {
	leasehold.Store
	get     func(ctx context.Context, key string) (leasehold.Object, error)
	create  func(ctx context.Context, key string, body []byte) (string, error)
	update  func(ctx context.Context, key string, body []byte, etag string) (string, error)
	discard func(ctx context.Context, key, etag string) error
}

func (b *broken) Describe() leasehold.StoreInfo { return leasehold.Describe(b.Store) }

func (b *broken) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if b.get != nil {
		return b.get(ctx, key)
	}
	return b.Store.Get(ctx, key)
}

func (b *broken) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if b.create != nil {
		return b.create(ctx, key, body)
	}
	return b.Store.PutIfNoneMatch(ctx, key, body)
}

func (b *broken) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if b.update != nil {
		return b.update(ctx, key, body, etag)
	}
	return b.Store.PutIfMatch(ctx, key, body, etag)
}

func (b *broken) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if b.discard != nil {
		return b.discard(ctx, key, etag)
	}
	return b.Store.DeleteIfMatch(ctx, key, etag)
}

// overwrite is an unconditional put.
func overwrite(ctx context.Context, m leasehold.Store, key string, body []byte) (string, error) {
	for {
		o, err := m.Get(ctx, key)
		var etag string
		if errors.Is(err, leasehold.ErrNotExist) {
			etag, err = m.PutIfNoneMatch(ctx, key, body)
		} else if err == nil {
			etag, err = m.PutIfMatch(ctx, key, body, o.ETag)
		}
		if !errors.Is(err, leasehold.ErrPreconditionFailed) && !errors.Is(err, leasehold.ErrNotExist) {
			return etag, err
		}
	}
}

// Each kind of broken store must fail exactly the checks that cover its fault.
func TestBrokenStoresFail(t *testing.T) {
	refused := func(err error) bool {
		return errors.Is(err, leasehold.ErrPreconditionFailed) || errors.Is(err, leasehold.ErrNotExist)
	}
	for name, c := range map[string]struct {
		break_ func(b *broken)
		opts   []Option
		fails  []string
	}{
		"nothing is broken": {break_: func(*broken) {}},
		"create overwrites": {
			break_: func(b *broken) {
				b.create = func(ctx context.Context, key string, body []byte) (string, error) {
					return overwrite(ctx, b.Store, key, body)
				}
			},
			fails: []string{"create", "create-race", "errors"},
		},
		"update overwrites": {
			break_: func(b *broken) {
				b.update = func(ctx context.Context, key string, body []byte, _ string) (string, error) {
					return overwrite(ctx, b.Store, key, body)
				}
			},
			fails: []string{"missing", "update", "update-race", "errors", "etags", "counters"},
		},
		"check, then put": {
			break_: func(b *broken) {
				b.create = func(ctx context.Context, key string, body []byte) (string, error) {
					if _, err := b.Store.Get(ctx, key); err == nil {
						return "", leasehold.ErrPreconditionFailed
					}
					time.Sleep(time.Nanosecond) // virtual: until all others wait too
					return overwrite(ctx, b.Store, key, body)
				}
				b.update = func(ctx context.Context, key string, body []byte, etag string) (string, error) {
					o, err := b.Store.Get(ctx, key)
					if err != nil {
						return "", err
					}
					if o.ETag != etag {
						return "", leasehold.ErrPreconditionFailed
					}
					time.Sleep(time.Nanosecond) // virtual: until all others wait too
					return overwrite(ctx, b.Store, key, body)
				}
			},
			fails: []string{"create-race", "update-race", "counters"},
		},
		"refusals are swallowed": {
			break_: func(b *broken) {
				b.create = func(ctx context.Context, key string, body []byte) (string, error) {
					etag, err := b.Store.PutIfNoneMatch(ctx, key, body)
					if refused(err) {
						return `"made up"`, nil
					}
					return etag, err
				}
				b.update = func(ctx context.Context, key string, body []byte, etag string) (string, error) {
					next, err := b.Store.PutIfMatch(ctx, key, body, etag)
					if refused(err) {
						return `"made up"`, nil
					}
					return next, err
				}
			},
			fails: []string{"missing", "create", "update", "create-race", "update-race", "errors", "etags", "counters"},
		},
		"the ETag is the body's length": {
			break_: func(b *broken) {
				var mu sync.Mutex
				etagOf := func(body []byte) string { return fmt.Sprintf(`"%d"`, len(body)) }
				b.get = func(ctx context.Context, key string) (leasehold.Object, error) {
					o, err := b.Store.Get(ctx, key)
					if err == nil {
						o.ETag = etagOf(o.Body)
					}
					return o, err
				}
				b.create = func(ctx context.Context, key string, body []byte) (string, error) {
					_, err := b.Store.PutIfNoneMatch(ctx, key, body)
					return etagOf(body), err
				}
				b.update = func(ctx context.Context, key string, body []byte, etag string) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					o, err := b.Store.Get(ctx, key)
					if err != nil {
						return "", err
					}
					if etagOf(o.Body) != etag {
						return "", leasehold.ErrPreconditionFailed
					}
					_, err = b.Store.PutIfMatch(ctx, key, body, o.ETag)
					return etagOf(body), err
				}
				b.discard = func(ctx context.Context, key, etag string) error {
					o, err := b.Store.Get(ctx, key)
					if err != nil {
						return err
					}
					if etagOf(o.Body) != etag {
						return leasehold.ErrPreconditionFailed
					}
					return b.Store.DeleteIfMatch(ctx, key, o.ETag)
				}
			},
			fails: []string{"update-race", "etags", "counters"},
		},
		"a write's ETag is not the one that is read": {
			break_: func(b *broken) {
				b.create = func(ctx context.Context, key string, body []byte) (string, error) {
					etag, err := b.Store.PutIfNoneMatch(ctx, key, body)
					return "W/" + etag, err
				}
			},
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
			break_: func(b *broken) {
				b.get = func(ctx context.Context, key string) (leasehold.Object, error) {
					o, err := b.Store.Get(ctx, key)
					o.Age = time.Since(time.Unix(0, 0))
					return o, err
				}
			},
			fails: []string{"age"},
		},
		"Age is over by a second": {
			break_: func(b *broken) {
				b.get = func(ctx context.Context, key string) (leasehold.Object, error) {
					o, err := b.Store.Get(ctx, key)
					o.Age += time.Second
					return o, err
				}
			},
			fails: []string{"age"},
		},
		"Age counts from the object's creation": {
			break_: func(b *broken) {
				created := time.Now()
				b.get = func(ctx context.Context, key string) (leasehold.Object, error) {
					o, err := b.Store.Get(ctx, key)
					o.Age = time.Since(created) - time.Second
					o.Age = max(o.Age, 0)
					return o, err
				}
			},
			fails: []string{"age"},
		},
		"Age is negative": {
			break_: func(b *broken) {
				b.get = func(ctx context.Context, key string) (leasehold.Object, error) {
					o, err := b.Store.Get(ctx, key)
					o.Age = -1
					return o, err
				}
			},
			fails: []string{"age"},
		},
		"a missing object reads as a changed one": {
			break_: func(b *broken) {
				b.update = func(ctx context.Context, key string, body []byte, etag string) (string, error) {
					next, err := b.Store.PutIfMatch(ctx, key, body, etag)
					if errors.Is(err, leasehold.ErrNotExist) {
						err = leasehold.ErrPreconditionFailed
					}
					return next, err
				}
			},
			fails: []string{"errors"},
		},
		"a missing object returns ErrNotExist, though the option says otherwise": {
			break_: func(*broken) {},
			opts:   []Option{MissingIsPreconditionFailed()},
			fails:  []string{"errors"},
		},
		"deleting a missing object is refused, though the option says otherwise": {
			break_: func(*broken) {},
			opts:   []Option{DeletesMissing()},
			fails:  []string{"errors"},
		},
		"errors do not match sentinels": {
			break_: func(b *broken) {
				b.get = func(ctx context.Context, key string) (leasehold.Object, error) {
					o, err := b.Store.Get(ctx, key)
					if errors.Is(err, leasehold.ErrNotExist) {
						err = errors.New("404")
					}
					return o, err
				}
			},
			fails: []string{"missing", "errors", "etags", "limit", "context"},
		},
		"errors match several sentinels": {
			break_: func(b *broken) {
				b.create = func(ctx context.Context, key string, body []byte) (string, error) {
					etag, err := b.Store.PutIfNoneMatch(ctx, key, body)
					if refused(err) {
						err = errors.Join(err, leasehold.ErrPermanent)
					}
					return etag, err
				}
			},
			fails: []string{"errors"},
		},
		"delete ignores its condition": {
			break_: func(b *broken) { b.discard = b.deleteAnyway },
			fails:  []string{"delete", "errors"},
		},
		"delete ignores its condition, and the option says so": {
			break_: func(b *broken) { b.discard = b.deleteAnyway },
			opts:   []Option{IgnoresDeleteCondition()},
		},
		"delete honours its condition, though the option says otherwise": {
			break_: func(*broken) {},
			opts:   []Option{IgnoresDeleteCondition()},
			fails:  []string{"delete-ignored"},
		},
		"delete is denied, and the option says so": {
			break_: func(b *broken) {
				b.discard = func(ctx context.Context, _, _ string) error {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					return fmt.Errorf("403: %w", leasehold.ErrPermanent)
				}
			},
			opts: []Option{DeniesDelete()},
		},
		"delete is allowed, though the option says otherwise": {
			break_: func(*broken) {},
			opts:   []Option{DeniesDelete()},
			fails:  []string{"errors"},
		},
		"the context is ignored": {
			break_: func(b *broken) {
				b.update = func(ctx context.Context, key string, body []byte, etag string) (string, error) {
					return b.Store.PutIfMatch(context.WithoutCancel(ctx), key, body, etag)
				}
			},
			fails: []string{"context"},
		},
		"a write goes on after its context": {
			break_: func(b *broken) {
				b.update = func(ctx context.Context, key string, body []byte, etag string) (string, error) {
					next, err := b.Store.PutIfMatch(context.WithoutCancel(ctx), key, body, etag)
					if ctx.Err() != nil {
						return "", ctx.Err()
					}
					return next, err
				}
			},
			fails: []string{"context"},
		},
		"an ended context is noticed late": {
			break_: func(b *broken) {
				b.get = func(ctx context.Context, key string) (leasehold.Object, error) {
					if ctx.Err() != nil {
						time.Sleep(time.Minute)
					}
					return b.Store.Get(ctx, key)
				}
			},
			fails: []string{"context"},
		},
		"an empty ETag matches any version": {
			break_: func(b *broken) {
				b.update = func(ctx context.Context, key string, body []byte, etag string) (string, error) {
					if etag == "" {
						return overwrite(ctx, b.Store, key, body)
					}
					return b.Store.PutIfMatch(ctx, key, body, etag)
				}
			},
			fails: []string{"etags"},
		},
		"bodies are text": {
			break_: func(b *broken) {
				b.get = func(ctx context.Context, key string) (leasehold.Object, error) {
					o, err := b.Store.Get(ctx, key)
					o.Body = bytes.ToValidUTF8(o.Body, []byte("?"))
					return o, err
				}
			},
			fails: []string{"create", "bodies"},
		},
		"bodies are shared memory": {
			break_: func(b *broken) {
				var mu sync.Mutex
				read := map[string]leasehold.Object{}
				b.get = func(ctx context.Context, key string) (leasehold.Object, error) {
					mu.Lock()
					defer mu.Unlock()
					o, err := b.Store.Get(ctx, key)
					if cached := read[key]; err == nil && cached.ETag == o.ETag {
						o.Body = cached.Body
					}
					read[key] = o
					return o, err
				}
			},
			fails: []string{"bodies"},
		},
		"keys are unescaped": {
			break_: func(b *broken) {
				b.create = func(ctx context.Context, key string, body []byte) (string, error) {
					return b.Store.PutIfNoneMatch(ctx, string(bytes.ReplaceAll([]byte(key), []byte("+"), []byte(" "))),
						body)
				}
			},
			fails: []string{"keys"},
		},
		"large bodies are written": {
			break_: func(b *broken) {
				b.update = func(ctx context.Context, key string, body []byte, etag string) (string, error) {
					return b.Store.PutIfMatch(ctx, key, body[:min(len(body), leasehold.MaxObjectSize)], etag)
				}
			},
			fails: []string{"limit"},
		},
		"large bodies are read": {
			break_: func(b *broken) {
				large := []byte{}
				b.get = func(ctx context.Context, key string) (leasehold.Object, error) {
					if bytes.HasSuffix([]byte(key), []byte("-planted")) {
						return leasehold.Object{Body: large, ETag: "x"}, nil
					}
					return b.Store.Get(ctx, key)
				}
			},
			opts:  []Option{Plant(func(string, []byte) error { return nil })},
			fails: []string{"limit"},
		},
		"a refused update is carried out": {
			break_: func(b *broken) {
				b.update = func(ctx context.Context, key string, body []byte, etag string) (string, error) {
					next, err := b.Store.PutIfMatch(ctx, key, body, etag)
					if err == nil && bytes.HasPrefix(body, []byte("[")) { // as if a proxy had retried it
						return "", leasehold.ErrPreconditionFailed
					}
					return next, err
				}
			},
			fails: []string{"counters"},
		},
		"an update gets lost": {
			break_: func(b *broken) {
				var n int
				var mu sync.Mutex
				b.update = func(ctx context.Context, key string, body []byte, etag string) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					if n++; n%10 == 0 && bytes.HasPrefix(body, []byte("[")) {
						return etag, nil
					}
					return b.Store.PutIfMatch(ctx, key, body, etag)
				}
			},
			fails: []string{"counters"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var failed []string
			for _, check := range newSuite(append([]Option{Rounds(20)}, c.opts...)).checks() {
				synctest.Test(t, func(t *testing.T) {
					b := &broken{Store: testopt.NewMemStore(false, true)}
					c.break_(b)
					if err := check.run(t.Context(), b, t.Logf); err != nil {
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
	down := errors.New("the server is down")
	for name, c := range map[string]struct {
		break_ func(b *broken)
		passes []string
	}{
		"every update is refused": {
			break_: func(b *broken) {
				b.update = func(context.Context, string, []byte, string) (string, error) {
					return "", leasehold.ErrPreconditionFailed
				}
			},
			passes: []string{"missing", "create", "create-race", "limit", "keys"},
		},
		"every create is refused": {
			break_: func(b *broken) {
				b.create = func(context.Context, string, []byte) (string, error) {
					return "", leasehold.ErrPreconditionFailed
				}
			},
			passes: []string{"missing"},
		},
		"every update but the first is refused": {
			break_: func(b *broken) {
				var mu sync.Mutex
				updated := map[string]bool{}
				b.update = func(ctx context.Context, key string, body []byte, etag string) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					if updated[key] {
						return "", leasehold.ErrPreconditionFailed
					}
					next, err := b.Store.PutIfMatch(ctx, key, body, etag)
					updated[key] = err == nil
					return next, err
				}
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
			break_: func(b *broken) {
				b.get = func(context.Context, string) (leasehold.Object, error) { return leasehold.Object{}, down }
				b.create = func(context.Context, string, []byte) (string, error) { return "", down }
				b.update = func(context.Context, string, []byte, string) (string, error) { return "", down }
				b.discard = func(context.Context, string, string) error { return down }
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var passed []string
			for _, check := range newSuite(nil).checks() {
				synctest.Test(t, func(t *testing.T) {
					b := &broken{Store: leasehold.NewMemStore()}
					c.break_(b)
					s := &counting{Store: b}
					began := time.Now()
					if check.run(t.Context(), s, t.Logf) == nil {
						passed = append(passed, check.name)
					}
					require.LessOrEqual(t, time.Since(began), 10*time.Second, check.name)
					require.LessOrEqual(t, s.requests.Load(), int64(10_000), check.name)
				})
			}
			require.ElementsMatch(t, c.passes, passed)
		})
	}
}

// counting counts requests.
type counting struct {
	leasehold.Store
	requests atomic.Int64
}

func (s *counting) Get(ctx context.Context, key string) (leasehold.Object, error) {
	s.requests.Add(1)
	return s.Store.Get(ctx, key)
}

func (s *counting) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	s.requests.Add(1)
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

func (b *broken) deleteAnyway(ctx context.Context, key, _ string) error {
	o, err := b.Store.Get(ctx, key)
	if errors.Is(err, leasehold.ErrNotExist) {
		return nil
	}
	return b.Store.DeleteIfMatch(ctx, key, o.ETag)
}
