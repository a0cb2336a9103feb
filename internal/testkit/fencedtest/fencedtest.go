// Package fencedtest checks what every fenced.Store promises, on any backend.
package fencedtest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
)

// Backend is what a test runs on. Its stores write to the same objects, each through a client of
// its own.
type Backend struct {
	Open  func(opts ...fenced.Option) *fenced.Store
	Plant func(key, body string) // writes an object as another client does
	Large int                    // the size of a body that the backend sends in several requests; 0: it never does

	Prefix string // of all keys
	Rounds int    // of races; 0: the default
}

// sizes returns the given sizes, and Large if there is one.
func (b Backend) sizes(small ...int) []int {
	if b.Large > 0 {
		return append(small, b.Large)
	}
	return small
}

// Run runs all checks. The backend must have nothing below the prefix.
func Run(t *testing.T, b Backend) {
	t.Run("life of an object", b.life)
	t.Run("bodies", b.bodies)
	t.Run("adoption", b.adoption)
	t.Run("late writes", b.lateWrites)
	t.Run("races", b.races)
}

// Read returns the body of an object, and what else Get returns of it.
func Read(t *testing.T, s *fenced.Store, key string) (string, *fenced.Object) {
	t.Helper()
	o, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	body, err := io.ReadAll(o.Body)
	require.NoError(t, err)
	require.NoError(t, o.Body.Close())
	return string(body), o
}

// requireFenced checks that every write of token is refused because of highest.
func requireFenced(t *testing.T, s *fenced.Store, key string, token, highest uint64) {
	t.Helper()
	for name, err := range map[string]error{
		"put":    s.Put(t.Context(), token, key, strings.NewReader("late")),
		"delete": s.Delete(t.Context(), token, key),
		"seal":   s.Seal(t.Context(), token, key),
	} {
		require.ErrorIs(t, err, leasehold.ErrFenced, name)
		refused, ok := errors.AsType[*leasehold.FencedError](err)
		require.True(t, ok, name)
		require.Equal(t, leasehold.FencedError{Key: key, Token: token, Highest: highest}, *refused, name)
	}
}

func (b Backend) life(t *testing.T) {
	ctx, s, key := t.Context(), b.Open(), b.Prefix+"life/report.json"
	metadata := map[string]string{"author": "alice"}
	require.NoError(t, s.Put(ctx, 1, key, strings.NewReader(`{"n":1}`), fenced.WithContentType("application/json"),
		fenced.WithMetadata(metadata)))
	requireObject := func(token uint64) {
		t.Helper()
		body, o := Read(t, s, key)
		require.Equal(t, `{"n":1}`, body)
		require.Equal(t, []any{int64(7), token, "application/json", metadata},
			[]any{o.Size, o.Token, o.ContentType, o.Metadata})
		require.NotEmpty(t, o.ETag)
	}
	requireObject(1)

	next := b.Open()
	require.NoError(t, next.Seal(ctx, 2, key))
	requireObject(2)
	requireFenced(t, s, key, 1, 2)
	require.NoError(t, next.Seal(ctx, 2, key), "claimed already")

	require.NoError(t, next.Delete(ctx, 2, key))
	_, err := s.Get(ctx, key)
	require.ErrorIs(t, err, leasehold.ErrNotExist)
	requireFenced(t, s, key, 1, 2) // the tombstone remembers the token
	require.NoError(t, next.Seal(ctx, 3, key), "a tombstone")
	requireFenced(t, s, key, 2, 3)
	require.NoError(t, next.Put(ctx, 3, key, strings.NewReader("new")))
	body, o := Read(t, s, key)
	require.Equal(t, "new", body)
	require.Empty(t, o.Metadata)

	require.NoError(t, next.Seal(ctx, 3, b.Prefix+"life/not-yet", b.Prefix+"life/nor-this"))
	requireFenced(t, s, b.Prefix+"life/not-yet", 2, 3)
	_, err = s.Get(ctx, b.Prefix+"life/not-yet")
	require.ErrorIs(t, err, leasehold.ErrNotExist)
	_, err = s.Get(ctx, b.Prefix+"life/never")
	require.ErrorIs(t, err, leasehold.ErrNotExist)
	require.NoError(t, s.Delete(ctx, 1, b.Prefix+"life/never"), "a tombstone without an object")
}

func (b Backend) bodies(t *testing.T) {
	s := b.Open()
	for _, size := range b.sizes(0, 1, 100_000) {
		key := fmt.Sprint(b.Prefix, "bodies/", size)
		want := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		require.NoError(t, s.Put(t.Context(), 1, key, strings.NewReader(want)))
		for token := uint64(1); token <= 2; token++ {
			body, o := Read(t, s, key)
			require.True(t, want == body, "token %d: %d bytes, want %d", token, len(body), size)
			require.EqualValues(t, size, o.Size)
			require.Equal(t, token, o.Token)
			require.NoError(t, s.Seal(t.Context(), token+1, key))
		}
	}
}

func (b Backend) adoption(t *testing.T) {
	ctx, s, key := t.Context(), b.Open(), b.Prefix+"adoption/report"
	b.Plant(key, "theirs")
	for name, err := range map[string]error{
		"put":    s.Put(ctx, 1, key, strings.NewReader("ours")),
		"delete": s.Delete(ctx, 1, key),
		"seal":   s.Seal(ctx, 1, key),
	} {
		require.ErrorIs(t, err, fenced.ErrUnfenced, name)
		require.ErrorContains(t, err, "WithAdoption", name)
	}
	body, o := Read(t, s, key)
	require.Equal(t, []any{"theirs", uint64(0)}, []any{body, o.Token}, "anybody may read")

	require.NoError(t, b.Open(fenced.WithAdoption()).Seal(ctx, 1, key))
	body, o = Read(t, s, key)
	require.Equal(t, []any{"theirs", uint64(1)}, []any{body, o.Token})
	require.NoError(t, s.Put(ctx, 1, key, strings.NewReader("ours")))
}

// late is the body of a write that is overtaken: it runs a function after the Store has looked at
// the object and before it writes.
type late struct {
	*strings.Reader
	overtake func()
}

func (l *late) Read(p []byte) (int, error) {
	if l.overtake != nil {
		l.overtake()
		l.overtake = nil
	}
	return l.Reader.Read(p)
}

// A former leader has looked at the object, and a new one acts before the former leader's request:
// its condition must fail, even if the new version has the same body as the old one.
func (b Backend) lateWrites(t *testing.T) {
	for _, size := range b.sizes(10) {
		body := strings.Repeat("x", size)
		for name, overtake := range map[string]func(next *fenced.Store, key string) error{
			"seal": func(next *fenced.Store, key string) error { return next.Seal(t.Context(), 2, key) },
			"put": func(next *fenced.Store, key string) error {
				return next.Put(t.Context(), 2, key, strings.NewReader(body))
			},
			"delete": func(next *fenced.Store, key string) error { return next.Delete(t.Context(), 2, key) },
		} {
			for _, exists := range []bool{true, false} {
				key := fmt.Sprintf("%slate/%d-%s-%v", b.Prefix, size, name, exists)
				former, next := b.Open(), b.Open()
				// the check of the first write
				require.NoError(t, former.Put(t.Context(), 1, b.Prefix+"late/warm", strings.NewReader(body)))
				if exists {
					require.NoError(t, former.Put(t.Context(), 1, key, strings.NewReader(body)))
				}
				err := former.Put(t.Context(), 1, key, &late{strings.NewReader(body), func() {
					require.NoError(t, overtake(next, key))
				}})
				require.ErrorIs(t, err, leasehold.ErrFenced, key)
				o, err := next.Get(t.Context(), key)
				if errors.Is(err, leasehold.ErrNotExist) {
					require.NotEqual(t, "put", name)
					continue
				}
				require.NoError(t, err, key)
				require.NoError(t, o.Body.Close())
				require.EqualValues(t, 2, o.Token, key)
			}
		}
	}
}

// Writers of many tokens at once on one key: a lower token never replaces a higher one, and no
// answer is wrong.
func (b Backend) races(t *testing.T) {
	const writers = 8
	for _, size := range b.sizes(10) {
		rounds := cmp.Or(b.Rounds, 25)
		if size > 10 {
			rounds = 3
		}
		key := fmt.Sprint(b.Prefix, "races/", size)
		s := b.Open()
		body := bytes.Repeat([]byte("x"), size) // the same from all
		require.NoError(t, s.Put(t.Context(), 1, key, bytes.NewReader(body)))
		var mu sync.Mutex
		highest, refused := uint64(1), 0
		for round := range rounds {
			var wg sync.WaitGroup
			for i := range writers {
				token := uint64(round*writers/2 + i + 1) // half of them come again in the next round
				wg.Go(func() {
					mu.Lock()
					before := highest
					mu.Unlock()
					err := s.Put(t.Context(), token, key, bytes.NewReader(body))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil && token < before:
						t.Errorf("token %d wrote after %d", token, before)
					case err == nil:
						highest = max(highest, token)
					case errors.Is(err, leasehold.ErrFenced):
						refused++
					default:
						t.Log(err) // given up: too many others
					}
				})
			}
			wg.Wait()
			o, err := s.Get(t.Context(), key)
			require.NoError(t, err)
			require.NoError(t, o.Body.Close())
			require.GreaterOrEqual(t, o.Token, highest)
		}
		require.Positive(t, refused)
		t.Logf("%d bytes: %d writes, %d fenced off", size, rounds*writers, refused)
	}
}
