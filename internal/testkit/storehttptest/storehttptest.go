// Package storehttptest has what every Store over HTTP must make of its server, its network and its
// arguments. A store gives a way to open itself, and what its server says.
package storehttptest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

// Key is the key of the objects.
const Key = "locks/service"

// Store is a Store under test.
type Store struct {
	// New returns a store on a client that repeats failed requests, unless the store forbids that.
	// A slack is for the option WithServerClock, and 0 means that it is not given.
	New func(t *testing.T, endpoint string, over http.RoundTripper, slack time.Duration) leasehold.Store
	// Server returns a strict server without objects, and what writes one there by another way.
	Server func() (server http.Handler, plant func(key string, body []byte))
	// Exists answers a create as the server does if there is an object.
	Exists http.HandlerFunc
	ETag   string // that the server could have given
	Hint   string // of the error for a reply that is not the server's
	Lines  bool   // the client's errors may have several lines
}

const inProcess = "http://store.test"

// wire opens the store on a strict server in this process.
func (s Store) wire(t *testing.T, slack time.Duration) (leasehold.Store, *faultproxy.Transport,
	func(key string, body []byte)) {
	server, plant := s.Server()
	w := &faultproxy.Transport{Base: fakes3.Transport{Handler: server}}
	return s.New(t, inProcess, w, slack), w, plant
}

// Calls are the four methods of a Store. The key to create is another one.
var Calls = map[string]func(ctx context.Context, s leasehold.Store, etag string) (newETag string, err error){
	"Get": func(ctx context.Context, s leasehold.Store, _ string) (string, error) {
		o, err := s.Get(ctx, Key)
		return o.ETag, err
	},
	"PutIfNoneMatch": func(ctx context.Context, s leasehold.Store, _ string) (string, error) {
		return s.PutIfNoneMatch(ctx, Key+"-new", []byte("{}"))
	},
	"PutIfMatch": func(ctx context.Context, s leasehold.Store, etag string) (string, error) {
		return s.PutIfMatch(ctx, Key, []byte("{}"), etag)
	},
	"DeleteIfMatch": func(ctx context.Context, s leasehold.Store, etag string) (string, error) {
		return "", s.DeleteIfMatch(ctx, Key, etag)
	},
}

// in reports whether a list, whose members are separated by spaces, has a name.
func in(list, name string) bool { return strings.Contains(" "+list+" ", " "+name+" ") }

// RequireOnly checks that err matches want, what want itself matches, and no other sentinel that a
// lock acts on. A nil want means a temporary error.
func RequireOnly(t *testing.T, want, err error) {
	t.Helper()
	require.Error(t, err)
	for _, sentinel := range []error{
		leasehold.ErrNotExist, leasehold.ErrPreconditionFailed, leasehold.ErrPermanent, leasehold.ErrUnsafeStore,
		leasehold.ErrCorruptRecord,
	} {
		require.Equal(t, errors.Is(want, sentinel), errors.Is(err, sentinel), "%v: %v", sentinel, err)
	}
}

// RequireText checks the form of a store's error text: one line, which begins with what was being
// done, without the package's name and the text of a sentinel that only marks.
func RequireText(t *testing.T, err error) {
	t.Helper()
	require.NotContains(t, err.Error(), "leasehold:")
	require.NotContains(t, err.Error(), leasehold.ErrPermanent.Error())
	require.NotContains(t, err.Error(), "\n")
	require.Regexp(t, `^(reading|creating|writing|deleting) "`, err.Error())
}

func (s Store) requireText(t *testing.T, err error) {
	t.Helper()
	if s.Lines {
		err = errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	RequireText(t, err)
}

// OneRequest checks that no call is repeated below the store, whatever becomes of it.
func (s Store) OneRequest(t *testing.T) {
	for name, fault := range map[string]faultproxy.Fault{
		"no fault":             {},
		"429":                  {Kind: faultproxy.Answer, Status: http.StatusTooManyRequests},
		"500":                  {Kind: faultproxy.Answer, Status: http.StatusInternalServerError},
		"503":                  {Kind: faultproxy.Answer, Status: http.StatusServiceUnavailable},
		"500 though applied":   {Kind: faultproxy.AnswerAfter, Status: http.StatusInternalServerError},
		"503 though applied":   {Kind: faultproxy.AnswerAfter, Status: http.StatusServiceUnavailable},
		"reply lost":           {Kind: faultproxy.DropReply},
		"connection refused":   {Kind: faultproxy.Refuse},
		"precondition failed":  {Kind: faultproxy.Answer, Status: http.StatusPreconditionFailed},
		"authorization failed": {Kind: faultproxy.Answer, Status: http.StatusForbidden},
	} {
		for call, do := range Calls {
			t.Run(name+"/"+call, func(t *testing.T) {
				t.Parallel()
				store, w, _ := s.wire(t, 0)
				etag, err := store.PutIfNoneMatch(t.Context(), Key, []byte("{}"))
				require.NoError(t, err)
				// before the first update, a refused one may be followed by questions
				etag, err = store.PutIfMatch(t.Context(), Key, []byte("{ }"), etag)
				require.NoError(t, err)
				before := w.Count()
				w.Decide = func(*http.Request) faultproxy.Fault { return fault }
				_, err = do(t.Context(), store, etag)
				require.Equal(t, 1, w.Count()-before, "%v", err)
				switch fault.Status {
				case http.StatusPreconditionFailed, http.StatusForbidden: // whose these are, is not the question
					require.Error(t, err)
				default:
					if fault.Kind == faultproxy.Pass {
						require.NoError(t, err)
						return
					}
					RequireOnly(t, nil, err)
				}
				if fault.Kind == faultproxy.Refuse {
					require.ErrorContains(t, err, "is the server running?")
					require.ErrorIs(t, err, syscall.ECONNREFUSED)
				}
			})
		}
	}
}

// Answer checks what the store makes of its server's answer to some calls, whose names are
// separated by spaces, or to all. Want is as for [RequireOnly].
func (s Store) Answer(t *testing.T, name string, server http.Handler, calls string, want error, says string) {
	for call, do := range Calls {
		if calls != "" && !in(calls, call) {
			continue
		}
		t.Run(name+"/"+call, func(t *testing.T) {
			etag, err := do(t.Context(), s.New(t, inProcess, fakes3.Transport{Handler: server}, 0), s.ETag)
			RequireOnly(t, want, err)
			require.Empty(t, etag)
			require.ErrorContains(t, err, says)
			require.ErrorContains(t, err, Key)
			s.requireText(t, err)
		})
	}
}

// Deadline checks that a request whose context has no deadline gets one of 10 s.
func (s Store) Deadline(t *testing.T) {
	hangs := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	synctest.Test(t, func(t *testing.T) {
		for call, do := range Calls {
			store := s.New(t, inProcess, fakes3.Transport{Handler: hangs}, 0)
			began := time.Now()
			_, err := do(context.Background(), store, s.ETag)
			RequireOnly(t, nil, err)
			require.ErrorIs(t, err, context.DeadlineExceeded, call)
			require.Equal(t, 10*time.Second, time.Since(began), call)

			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began = time.Now()
			_, err = do(ctx, store, s.ETag)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, call)
			require.Equal(t, time.Second, time.Since(began), "the caller's own deadline comes first")
		}
	})
}

// BadArgument checks that a store with an argument that cannot work says so to everybody who is
// given it. If the key decides, or the store is a nil pointer, only calls say it.
func (s Store) BadArgument(t *testing.T, name string, store leasehold.Store, says string, onlyCalls bool) {
	t.Run(name, func(t *testing.T) {
		for call, do := range Calls {
			_, err := do(t.Context(), store, s.ETag)
			RequireOnly(t, leasehold.ErrPermanent, err)
			require.ErrorContains(t, err, says, call)
			if onlyCalls {
				continue
			}
			require.EqualError(t, err, leasehold.Describe(store).Err.Error(), call)
			want := "leasehold: " + err.Error()
			_, err = leasehold.CheckStore(t.Context(), store, "check")
			require.EqualError(t, err, want)
			RequireOnly(t, leasehold.ErrPermanent, err)
			_, err = leasehold.NewLock(store, Key)
			require.EqualError(t, err, want)
		}
	})
}

// WrongETags checks that ETags that no version can have are refused, each with its error, and that
// no request is sent for them.
func (s Store) WrongETags(t *testing.T, etags map[string]error) {
	store, w, _ := s.wire(t, 0)
	for etag, want := range etags {
		_, err := store.PutIfMatch(t.Context(), Key, []byte("{}"), etag)
		RequireOnly(t, want, err)
		RequireOnly(t, want, store.DeleteIfMatch(t.Context(), Key, etag))
	}
	require.Zero(t, w.Count())
}

// TooLarge checks that an object that is no lock, because it is too large, is left alone, and that
// such an object is not written.
func (s Store) TooLarge(t *testing.T) {
	store, w, plant := s.wire(t, 0)
	body := bytes.Repeat([]byte("x"), leasehold.MaxObjectSize+1)
	_, err := store.PutIfNoneMatch(t.Context(), Key, body)
	RequireOnly(t, leasehold.ErrPermanent, err)
	_, err = store.PutIfMatch(t.Context(), Key, body, s.ETag)
	RequireOnly(t, leasehold.ErrPermanent, err)
	require.Zero(t, w.Count())

	plant(Key, body)
	o, err := store.Get(t.Context(), Key)
	RequireOnly(t, leasehold.ErrCorruptRecord, err)
	require.NotEmpty(t, o.ETag)
	require.Empty(t, o.Body)
	lock, err := leasehold.NewLock(store, Key)
	require.NoError(t, err)
	_, err = lock.TryAcquire(t.Context())
	require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
	err = lock.Break(t.Context(), 41)
	require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
	require.ErrorContains(t, err, "larger than 1048576 bytes")
	_, err = lock.TryAcquire(t.Context())
	require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
}
