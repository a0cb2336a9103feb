package storetest

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
)

func TestFencedBackends(t *testing.T) {
	for name, newBackend := range map[string]func(t *testing.T) fenced.Backend{
		"in memory":           func(*testing.T) fenced.Backend { return &fenced.MemBackend{} },
		"metadata can be set": func(*testing.T) fenced.Backend { return &brokenSetter{} },
	} {
		t.Run(name, func(t *testing.T) { RunFenced(t, newBackend, 1<<20) })
	}
}

// brokenBackend is a MemBackend with some of its methods changed.
type brokenBackend struct {
	fenced.MemBackend
	show func(*fenced.Version) // what Head and Get return
	head func(*fenced.Version) // what Head alone returns
	put  func(*fenced.Version) // what Put is given as next
	over func(ctx context.Context, key string, old, next *fenced.Version)
	read func(content []byte, err error) ([]byte, error) // the body that Put is given
	fail func(error) error                               // what Put returns
	hash func(ctx context.Context, key string) string    // the ID that Head and Get show
	any  bool                                            // contexts that have ended count for nothing
}

func (b *brokenBackend) live(ctx context.Context) context.Context {
	if b.any {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (b *brokenBackend) Head(ctx context.Context, key string) (fenced.Version, error) {
	v, err := b.MemBackend.Head(b.live(ctx), key)
	if b.hash != nil {
		v.ID = b.hash(ctx, key)
	}
	for _, change := range []func(*fenced.Version){b.show, b.head} {
		if change != nil && v.ID != "" {
			change(&v)
		}
	}
	return v, err
}

func (b *brokenBackend) Get(ctx context.Context, key string) (fenced.Version, io.ReadCloser, error) {
	v, body, err := b.MemBackend.Get(b.live(ctx), key)
	if b.hash != nil {
		v.ID = b.hash(ctx, key)
	}
	if b.show != nil && err == nil {
		b.show(&v)
	}
	return v, body, err
}

func (b *brokenBackend) Put(ctx context.Context, key string, old, next fenced.Version, body io.Reader) error {
	content, err := io.ReadAll(body)
	if b.read != nil {
		content, err = b.read(content, err)
	}
	if err != nil {
		return err
	}
	next.Metadata = maps.Clone(next.Metadata)
	if b.over != nil {
		b.over(ctx, key, &old, &next)
	}
	if b.put != nil {
		b.put(&next)
	}
	err = b.MemBackend.Put(b.live(ctx), key, old, next, bytes.NewReader(content))
	if b.fail != nil && err != nil {
		err = b.fail(err)
	}
	return err
}

// brokenSetter is a MetadataSetter, which is broken if its fields say so.
type brokenSetter struct {
	fenced.MemBackend
	unconditional, forgetsBody bool
}

func (b *brokenSetter) SetMetadata(ctx context.Context, key string, old fenced.Version,
	metadata map[string]string) error {
	v, body, err := b.Get(ctx, key)
	if err != nil {
		return err
	}
	if b.unconditional {
		old = v
	}
	if b.forgetsBody {
		body = io.NopCloser(bytes.NewReader(nil))
	}
	v.Metadata = metadata
	return b.Put(ctx, key, old, v, body)
}

// Each kind of broken backend must fail exactly the checks that cover its fault.
func TestBrokenBackendsFail(t *testing.T) {
	butSetMetadata := []string{"metadata", "bodies", "create", "replace", "ids", "cut", "context", "missing", "store"}
	overwrites := func(b *brokenBackend, which func(old, now fenced.Version) bool) {
		b.over = func(ctx context.Context, key string, old, _ *fenced.Version) {
			if now, err := b.MemBackend.Head(ctx, key); err == nil && which(*old, now) {
				old.ID = now.ID
			}
		}
	}
	for name, c := range map[string]struct {
		break_ func(b *brokenBackend)
		fails  []string
	}{
		"nothing is broken": {break_: func(*brokenBackend) {}},
		"Put drops the metadata": {
			break_: func(b *brokenBackend) { b.put = func(next *fenced.Version) { next.Metadata = nil } },
			fails:  butSetMetadata,
		},
		"Put drops the token": {
			break_: func(b *brokenBackend) {
				b.put = func(next *fenced.Version) { delete(next.Metadata, "leasehold-token") }
			},
			fails: butSetMetadata,
		},
		"Head and Get hide the metadata": {
			break_: func(b *brokenBackend) { b.show = func(v *fenced.Version) { v.Metadata = nil } },
			fails:  butSetMetadata,
		},
		"Head hides the metadata": {
			break_: func(b *brokenBackend) { b.head = func(v *fenced.Version) { v.Metadata = nil } },
			fails:  butSetMetadata,
		},
		"metadata is kept from the version before": {
			break_: func(b *brokenBackend) {
				b.over = func(ctx context.Context, key string, _, next *fenced.Version) {
					now, _ := b.MemBackend.Head(ctx, key)
					for name, value := range now.Metadata {
						if _, ok := next.Metadata[name]; !ok {
							next.Metadata[name] = value
						}
					}
				}
			},
			fails: []string{"metadata"},
		},
		"a create overwrites": {
			break_: func(b *brokenBackend) {
				overwrites(b, func(old, _ fenced.Version) bool { return old.ID == "" })
			},
			fails: []string{"create", "store"},
		},
		"a replacement overwrites": {
			break_: func(b *brokenBackend) {
				overwrites(b, func(old, _ fenced.Version) bool { return old.ID != "" })
			},
			fails: []string{"missing", "replace", "store"},
		},
		"the ID is a hash of the body": {
			break_: func(b *brokenBackend) {
				shown := func(ctx context.Context, key string) string {
					_, body, err := b.MemBackend.Get(ctx, key)
					if err != nil {
						return ""
					}
					content, _ := io.ReadAll(body)
					sum := md5.Sum(content)
					return hex.EncodeToString(sum[:])
				}
				b.over = func(ctx context.Context, key string, old, _ *fenced.Version) {
					if old.ID != "" && old.ID == shown(ctx, key) {
						now, _ := b.MemBackend.Head(ctx, key)
						old.ID = now.ID
					}
				}
				b.hash = shown
			},
			fails: []string{"replace", "ids", "store"},
		},
		"a body that breaks off is written": {
			break_: func(b *brokenBackend) {
				b.read = func(content []byte, _ error) ([]byte, error) { return content, nil }
			},
			fails: []string{"cut"},
		},
		"a refusal is permanent": {
			break_: func(b *brokenBackend) {
				b.fail = func(err error) error { return fmt.Errorf("%w: %w", leasehold.ErrPermanent, err) }
			},
			fails: []string{"missing", "create", "replace", "context"},
		},
		"any error is a refusal": {
			break_: func(b *brokenBackend) { b.fail = func(error) error { return errors.New("it has changed") } },
		},
		"contexts are ignored": {
			break_: func(b *brokenBackend) { b.any = true },
			fails:  []string{"context"},
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			b := &brokenBackend{}
			c.break_(b)
			requireFails(t, c.fails, b)
		})
	}
	for name, c := range map[string]struct {
		backend fenced.Backend
		fails   []string
	}{
		"metadata is set without a condition": {&brokenSetter{unconditional: true}, []string{"set-metadata", "store"}},
		"the body is lost":                    {&brokenSetter{forgetsBody: true}, []string{"set-metadata", "store"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { requireFails(t, c.fails, c.backend) })
		})
	}
}

func requireFails(t *testing.T, want []string, b fenced.Backend) {
	t.Helper()
	var failed []string
	for _, check := range fencedChecks(nil) {
		if err := check.run(t.Context(), b); err != nil {
			t.Logf("%s: %v", check.name, err)
			failed = append(failed, check.name)
		}
	}
	require.ElementsMatch(t, want, failed)
}
