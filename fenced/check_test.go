package fenced_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

// hideMetadata takes the metadata off the headers of a request or an answer.
func hideMetadata(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		return strings.HasPrefix(strings.ToLower(name), "x-amz-meta-")
	})
}

// writes are those of a Store.
var writes = map[string]func(ctx context.Context, s *fenced.Store, token uint64) error{
	"Put": func(ctx context.Context, s *fenced.Store, token uint64) error {
		return s.Put(ctx, token, object, strings.NewReader("late"))
	},
	"Put in parts": func(ctx context.Context, s *fenced.Store, token uint64) error {
		return s.Put(ctx, token, object, strings.NewReader(newBody))
	},
	"Seal": func(ctx context.Context, s *fenced.Store, token uint64) error {
		return s.Seal(ctx, token, object)
	},
	"Delete": func(ctx context.Context, s *fenced.Store, token uint64) error {
		return s.Delete(ctx, token, object)
	},
}

// requireMetadataDropped checks the error of a store whose metadata does not come through.
func requireMetadataDropped(t *testing.T, err error, what string) {
	t.Helper()
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore, what)
	require.NotErrorIs(t, err, fenced.ErrUnfenced, what)
	for _, says := range []string{"drops", "x-amz-meta-*", "x-ms-meta-*"} {
		require.ErrorContains(t, err, says, what)
	}
	require.NotContains(t, err.Error(), "WithAdoption", what)
}

// The token is in the metadata. Where that does not come through, a lower token must not take an
// object for one without a token, and a write must not leave an object without a token behind.
func TestFencedStoreNeedsItsMetadata(t *testing.T) {
	for hides, answer := range map[string]func(r *http.Request, forward func() *http.Response) *http.Response{
		"a proxy, in answers": func(_ *http.Request, forward func() *http.Response) *http.Response {
			resp := forward()
			hideMetadata(resp.Header)
			return resp
		},
		"a proxy, in answers to HEAD": func(r *http.Request, forward func() *http.Response) *http.Response {
			resp := forward()
			if r.Method == http.MethodHead {
				hideMetadata(resp.Header)
			}
			return resp
		},
		"a proxy, in answers to GET": func(r *http.Request, forward func() *http.Response) *http.Response {
			resp := forward()
			if r.Method == http.MethodGet {
				hideMetadata(resp.Header)
			}
			return resp
		},
		"the server, of PUT": func(r *http.Request, forward func() *http.Response) *http.Response {
			hideMetadata(r.Header)
			return forward()
		},
	} {
		for name, write := range writes {
			for _, opts := range [][]fenced.Option{nil, {fenced.WithAdoption()}} {
				for _, mode := range []fenced.ETagMode{fenced.UniqueETags, fenced.PaddedBodies} {
					what := fmt.Sprintf("%s: %s, mode %d, %d options", hides, name, mode, len(opts))
					synctest.Test(t, func(t *testing.T) {
						server := &fakes3.Server{RandomETags: mode == fenced.UniqueETags, MinPartSize: 1}
						leader := newFenced(t, server, mode)
						require.NoError(t, leader.Put(t.Context(), 7, object, strings.NewReader("leader's")))
						before, keys := server.Header(object), server.Keys()
						client := fakes3.NewClient(&middleman{server: server, answer: answer})
						s := openFenced(t, client, mode, append(opts, withPartSize())...)
						for range 2 { // it stays unsafe
							requireMetadataDropped(t, write(t.Context(), s, 3), what)
						}
						require.Equal(t, before, server.Header(object), what)
						require.Equal(t, keys, server.Keys(), "%s: nothing is left behind", what)
					})
				}
			}
		}
	}
}

// A server that keeps the metadata of a PUT may drop that of an upload in parts.
func TestFencedLargeWritesNeedTheirMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{MinPartSize: 1}
		s := openFenced(t, fakes3.NewClient(&middleman{server: server,
			answer: func(r *http.Request, forward func() *http.Response) *http.Response {
				if operation(r) == "CreateMultipartUpload" {
					hideMetadata(r.Header)
				}
				return forward()
			}}), fenced.PaddedBodies, withPartSize())
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("small")))
		for range 2 {
			requireMetadataDropped(t, s.Put(t.Context(), 1, object, strings.NewReader(newBody)), "")
		}
		require.Equal(t, "small", strings.TrimRight(string(server.Body(object)), " \t"))
		require.Equal(t, []string{object}, server.Keys(), "nothing is left behind")
		require.Zero(t, server.Uploads())
	})
}

// custom is somebody's own Backend, which breaks one promise.
type custom struct {
	fenced.MemBackend
	head func(fenced.Version) fenced.Version // changes what Head returns, and Get
	put  func(old, next *fenced.Version)     // changes what Put gets
	says error                               // of its refusals, instead of leasehold.ErrPreconditionFailed
}

func (c *custom) Head(ctx context.Context, key string) (fenced.Version, error) {
	v, err := c.MemBackend.Head(ctx, key)
	if c.head != nil {
		v = c.head(v)
	}
	return v, err
}

func (c *custom) Get(ctx context.Context, key string) (fenced.Version, io.ReadCloser, error) {
	v, body, err := c.MemBackend.Get(ctx, key)
	if c.head != nil {
		v = c.head(v)
	}
	return v, body, err
}

func (c *custom) Put(ctx context.Context, key string, old, next fenced.Version, body io.Reader) error {
	if c.put != nil {
		if now, err := c.MemBackend.Head(ctx, key); err == nil && old.ID == "" && now.ID != "" {
			next.Settings = "over an object"
		} else if err == nil && old.ID != now.ID {
			next.Settings = "over another version"
		}
		c.put(&old, &next)
		if old.ID == "whatever there is" {
			old, _ = c.MemBackend.Head(ctx, key)
		}
	}
	err := c.MemBackend.Put(ctx, key, old, next, body)
	if errors.Is(err, leasehold.ErrPreconditionFailed) && c.says != nil {
		return c.says
	}
	return err
}

// setter is a custom Backend that can change metadata.
type setter struct {
	custom
	conditional, renews bool
	ids                 map[string]string // of versions whose metadata was changed
	now                 string
}

func (s *setter) SetMetadata(ctx context.Context, key string, old fenced.Version, metadata map[string]string) error {
	v, body, err := s.Get(ctx, key)
	switch {
	case err != nil:
		return err
	case s.conditional && v.ID != old.ID:
		return leasehold.ErrPreconditionFailed
	}
	shown := v.ID
	v, err = s.MemBackend.Head(ctx, key)
	if err != nil {
		return err
	}
	if err := s.MemBackend.Put(ctx, key, v, fenced.Version{Metadata: metadata}, body); err != nil || s.renews {
		return err
	}
	v, err = s.MemBackend.Head(ctx, key)
	if s.ids == nil {
		s.ids = map[string]string{}
		s.put = func(old, next *fenced.Version) {
			if now := s.ids[s.now]; now != "" && now == old.ID {
				old.ID = s.now
			}
		}
		s.head = func(v fenced.Version) fenced.Version {
			if shown := s.ids[v.ID]; shown != "" {
				v.ID = shown
			}
			return v
		}
	}
	s.ids[v.ID], s.now = shown, v.ID
	return err
}

// Whoever writes a Backend learns at its first write which promise it breaks.
func TestFencedStoreChecksEveryBackend(t *testing.T) {
	unconditional := func(which string) func(old, next *fenced.Version) {
		return func(old, next *fenced.Version) {
			if next.Settings == which {
				old.ID = "whatever there is"
			}
		}
	}
	for says, backend := range map[string]fenced.Backend{
		"drops the metadata: Put": &custom{put: func(_, next *fenced.Version) { next.Metadata = nil }},
		"drops the metadata: Head": &custom{head: func(v fenced.Version) fenced.Version {
			v.Metadata = nil
			return v
		}},
		"drops the metadata: the nonce alone": &custom{put: func(_, next *fenced.Version) {
			delete(next.Metadata, "leasehold-nonce")
		}},
		"drops the metadata: the token alone": &custom{put: func(_, next *fenced.Version) {
			delete(next.Metadata, "leasehold-token")
		}},
		"a create replaced an object":        &custom{put: unconditional("over an object")},
		"replaced another version":           &custom{put: unconditional("over another version")},
		"SetMetadata of a former version":    &setter{renews: true},
		"the same ID: SetMetadata leaves it": &setter{conditional: true},
		"the same ID": &custom{
			put: unconditional("over another version"),
			head: func(v fenced.Version) fenced.Version {
				if v.ID != "" {
					v.ID = "1"
				}
				return v
			},
		},
	} {
		bubble.Run(t, says, func(t *testing.T) {
			for _, opts := range [][]fenced.Option{nil, {fenced.WithAdoption()}} {
				s := fenced.NewStore(backend, opts...)
				says, _, _ := strings.Cut(says, ":")
				for _, write := range writes {
					err := write(t.Context(), s, 3)
					require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
					require.ErrorContains(t, err, says)
					require.NotContains(t, err.Error(), "WithAdoption")
				}
				_, err := s.Get(t.Context(), object)
				require.ErrorIs(t, err, leasehold.ErrNotExist, "nothing is written")
			}
		})
	}
	for name, backend := range map[string]fenced.Backend{
		"memory":                 &fenced.MemBackend{},
		"any error is a refusal": &custom{says: errors.New("it has changed")},
		"metadata can be set":    &setter{conditional: true, renews: true},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			for range 2 { // what is left of the first check does not keep the next one from it
				s := fenced.NewStore(backend)
				for _, write := range writes {
					require.NoError(t, write(t.Context(), s, 3))
				}
			}
		})
	}
}
