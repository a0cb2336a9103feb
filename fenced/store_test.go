package fenced_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/fencedtest"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
)

const object = "data/report.json"

// s3Store is a store on a wire, after the check of the first write.
type s3Store struct {
	*fenced.Store
	wire   *fakes3.Wire
	server *fakes3.Server
	mode   fenced.ETagMode
	from   int
}

// openFenced is a store in the fake's bucket.
func openFenced(t *testing.T, client *s3.Client, mode fenced.ETagMode, opts ...fenced.Option) *fenced.Store {
	t.Helper()
	s, err := fenced.NewS3Store(client, fakes3.Bucket, mode, opts...)
	require.NoError(t, err)
	return s
}

func newFenced(t *testing.T, server *fakes3.Server, mode fenced.ETagMode, opts ...fenced.Option) *s3Store {
	t.Helper()
	f := &s3Store{wire: fakes3.NewWire(server), server: server, mode: mode}
	f.Store = openFenced(t, fakes3.NewClient(f.wire), mode, opts...)
	require.NoError(t, f.Put(t.Context(), 1, "data/first", strings.NewReader("x")))
	f.sent()
	return f
}

// sent returns the requests since the last call.
func (f *s3Store) sent() []string {
	m := f.wire.Methods(f.from)
	f.from += len(m)
	return m
}

// onBoth runs a test on both kinds of servers that can be sealed on.
func onBoth(t *testing.T, test func(t *testing.T, f *s3Store)) {
	for name, server := range map[string]*fakes3.Server{"UniqueETags": {RandomETags: true}, "PaddedBodies": {}} {
		bubble.Run(t, name, func(t *testing.T) {
			mode := fenced.PaddedBodies
			if server.RandomETags {
				mode = fenced.UniqueETags
			}
			f := newFenced(t, server, mode)
			test(t, f)
			f.wire.Wait()
		})
	}
}

func TestFencedStoreKeepsItsPromises(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		var m fenced.MemBackend
		fencedtest.Run(t, fencedtest.Backend{
			Open: func(opts ...fenced.Option) *fenced.Store { return fenced.NewStore(&m, opts...) },
			Plant: func(key, body string) {
				require.NoError(t, m.Put(t.Context(), key, fenced.Version{}, fenced.Version{}, strings.NewReader(body)))
			},
		})
	})
	for name, server := range map[string]*fakes3.Server{
		"UniqueETags":  {RandomETags: true, MinPartSize: 1},
		"PaddedBodies": {MinPartSize: 1},
	} {
		t.Run(name, func(t *testing.T) {
			mode := map[string]fenced.ETagMode{
				"UniqueETags":  fenced.UniqueETags,
				"PaddedBodies": fenced.PaddedBodies,
			}[name]
			fencedtest.Run(t, fencedtest.Backend{
				Open: func(opts ...fenced.Option) *fenced.Store {
					return openFenced(t, fakes3.NewClient(fakes3.Transport{Handler: server}), mode,
						append(opts, withPartSize())...)
				},
				Plant: func(key, body string) { server.Put(key, []byte(body)) },
				Large: 3*testPart + 1,
			})
			require.Zero(t, server.Uploads())
		})
	}
}

func TestFencedWritesCostWhatIsSaid(t *testing.T) {
	onBoth(t, func(t *testing.T, f *s3Store) {
		ctx := t.Context()
		require.NoError(t, f.Put(ctx, 1, object, strings.NewReader(`{"n":1}`)))
		require.Equal(t, []string{"HEAD", "PUT"}, f.sent())
		require.Equal(t, `{"n":1}`, strings.TrimRight(string(f.server.Body(object)), " \t"), "plain for any reader")
		body, _ := fencedtest.Read(t, f.Store, object)
		require.Equal(t, `{"n":1}`, body)
		require.Equal(t, []string{"GET"}, f.sent())
		require.NoError(t, f.Seal(ctx, 2, object))
		require.Equal(t, []string{"HEAD", "GET", "PUT"}, f.sent())
		require.NoError(t, f.Seal(ctx, 2, object))
		require.Equal(t, []string{"HEAD"}, f.sent(), "claimed already")
		require.ErrorIs(t, f.Put(ctx, 1, object, strings.NewReader("late")), leasehold.ErrFenced)
		require.Equal(t, []string{"HEAD"}, f.sent())
		require.NoError(t, f.Delete(ctx, 2, object))
		require.Equal(t, []string{"HEAD", "HEAD", "PUT"}, f.sent(), "it replaces an object")
		require.Empty(t, strings.Trim(string(f.server.Body(object)), " \t"))
		require.NoError(t, f.Seal(ctx, 2, "data/not-yet"))
		require.Equal(t, []string{"HEAD", "PUT"}, f.sent())
	})
}

func TestFencedWriteWhoseAnswerIsLost(t *testing.T) {
	onBoth(t, func(t *testing.T, f *s3Store) {
		for i, fault := range []faultproxy.Fault{
			{Kind: faultproxy.DropReply},
			{Kind: faultproxy.AnswerAfter, Status: http.StatusPreconditionFailed},
			{Kind: faultproxy.AnswerAfter, Status: http.StatusInternalServerError},
			{Kind: faultproxy.AnswerAfter, Status: http.StatusConflict},
		} {
			f.wire.Fail(http.MethodHead, faultproxy.Fault{})
			f.wire.Fail(http.MethodPut, fault)
			looks := []string{"HEAD", "HEAD"}[:min(i+1, 2)] // one for a new object
			require.NoError(t, f.Put(t.Context(), 1, object, strings.NewReader("1")))
			require.Equal(t, append(looks, "PUT", "HEAD"), f.sent(),
				"%+v: known by its nonce, not written again", fault)
		}
	})
}

// The reply is lost, and a new leader writes before the old one asks: the outcome of the old write
// stays unknown.
func TestFencedWriteLostBelowANewOne(t *testing.T) {
	onBoth(t, func(t *testing.T, f *s3Store) {
		next := newFenced(t, f.server, f.mode)
		f.wire.Fail(http.MethodHead, faultproxy.Fault{})
		f.wire.Fail(http.MethodPut, faultproxy.Fault{Kind: faultproxy.DropReply, After: time.Second})
		done := make(chan error)
		go func() { done <- f.Put(t.Context(), 1, object, strings.NewReader("old")) }()
		time.Sleep(time.Second / 2)
		require.NoError(t, next.Put(t.Context(), 2, object, strings.NewReader("new")))
		err := <-done
		require.ErrorIs(t, err, leasehold.ErrFenced)
		require.ErrorContains(t, err, "an earlier attempt may have landed")
		next.wire.Wait()
	})
}

// A HEAD that shows the former token with the new ETag lets no lower token write.
func TestFencedTornHeads(t *testing.T) {
	for name, late := range map[string]func(ctx context.Context, s *fenced.Store) error{
		"Put": func(ctx context.Context, s *fenced.Store) error {
			return s.Put(ctx, 1, object, strings.NewReader("late"))
		},
		"Put in parts": func(ctx context.Context, s *fenced.Store) error {
			return s.Put(ctx, 1, object, strings.NewReader(oldBody))
		},
		"Delete": func(ctx context.Context, s *fenced.Store) error { return s.Delete(ctx, 1, object) },
	} {
		for _, mode := range []fenced.ETagMode{fenced.UniqueETags, fenced.PaddedBodies} {
			bubble.Run(t, fmt.Sprint(name, "/", mode), func(t *testing.T) {
				server := &fakes3.Server{RandomETags: mode == fenced.UniqueETags, TornHeads: true, MinPartSize: 1}
				f := newFenced(t, server, mode, withPartSize())
				require.NoError(t, f.Put(t.Context(), 1, object, strings.NewReader("former")))
				require.NoError(t, f.Put(t.Context(), 2, object, strings.NewReader("leader's")))
				require.ErrorIs(t, late(t.Context(), f.Store), leasehold.ErrFenced)
				body, _ := fencedtest.Read(t, f.Store, object)
				require.Equal(t, "leader's", body)
			})
		}
	}
}

func TestFencedBadInputSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, &fakes3.Server{}, fenced.PaddedBodies)
		put := func(token uint64, key string, metadata map[string]string) error {
			return f.Put(t.Context(), token, key, strings.NewReader("x"), fenced.WithMetadata(metadata))
		}
		require.ErrorContains(t, put(0, object, nil), "token 0")
		require.ErrorContains(t, put(1, "", nil), "key")
		require.ErrorContains(t, put(1, object, map[string]string{"Author": "x"}), "lower case")
		require.ErrorContains(t, put(1, object, map[string]string{"leasehold-token": "99"}), "lower case")
		require.ErrorContains(t, put(1, object, map[string]string{"a b": "x"}), "lower case")
		require.ErrorContains(t, put(1, object, map[string]string{"a": "ü"}), "ASCII")
		require.ErrorContains(t, put(1, object, map[string]string{"a": "x "}), "a space at an end")
		require.ErrorContains(t, f.Put(t.Context(), 1, object, strings.NewReader("x"),
			fenced.WithContentType("a/b\r\nX-C: d")), "control character")
		require.ErrorContains(t, f.Seal(t.Context(), 0, object), "token 0")
		require.ErrorContains(t, f.Delete(t.Context(), 1, "a//b"), "empty path segment")
		require.ErrorContains(t, put(1, "data/\ufffe", nil), "no list of keys can show")
		_, err := f.Get(t.Context(), "")
		require.ErrorContains(t, err, "key")
		distinct := newFenced(t, f.server, fenced.DistinctBodies)
		require.ErrorContains(t, distinct.Seal(t.Context(), 1, object), "DistinctBodies")
		require.Empty(t, distinct.sent())
		require.Empty(t, f.sent())
	})
}

func TestMemBackendSharesNoMetadata(t *testing.T) {
	ctx, author := t.Context(), func(v fenced.Version) string { return v.Metadata["author"] }
	var m fenced.MemBackend
	ours := fenced.Version{Metadata: map[string]string{"author": "alice"}}
	require.NoError(t, m.Put(ctx, object, fenced.Version{}, ours, strings.NewReader("x")))
	ours.Metadata["author"] = "bob"
	v, err := m.Head(ctx, object)
	require.NoError(t, err)
	require.Equal(t, "alice", author(v))
	v.Metadata["author"] = "bob"
	v, _, err = m.Get(ctx, object)
	require.NoError(t, err)
	require.Equal(t, "alice", author(v))
	v.Metadata["author"] = "bob"
	v, err = m.Head(ctx, object)
	require.NoError(t, err)
	require.Equal(t, "alice", author(v))
}

// The names that some servers have for 412.
func TestFencedCreateThatIsRefusedByAnotherName(t *testing.T) {
	for _, code := range []string{"FileAlreadyExists", "ObjectAlreadyExists"} {
		synctest.Test(t, func(t *testing.T) {
			server := &fakes3.Server{}
			w := fakes3.NewWire(server)
			w.Decide = func(r *http.Request) faultproxy.Fault {
				_, key, _ := strings.Cut(r.URL.Path[1:], "/")
				if r.Header.Get("If-None-Match") != "" && slices.Contains(server.Keys(), key) {
					return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusConflict, Code: code}
				}
				return faultproxy.Fault{}
			}
			s := openFenced(t, fakes3.NewClient(w), fenced.PaddedBodies)
			require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("x")), code)
		})
	}
}

func TestFencedStoreChecksTheServer(t *testing.T) {
	for name, tc := range map[string]struct {
		server *fakes3.Server
		mode   fenced.ETagMode
		body   string
		says   string
	}{
		"conditions ignored": {&fakes3.Server{IgnoreConditions: true}, fenced.PaddedBodies, "x",
			"ignores If-None-Match"},
		"ETags that repeat": {&fakes3.Server{}, fenced.UniqueETags, "x", "SSE-KMS"},
		"creates only":      {&fakes3.Server{CreateOnly: true}, fenced.PaddedBodies, "x", "does not implement"},
		"no multipart upload": {&fakes3.Server{NoMultipart: true}, fenced.PaddedBodies, strings.Repeat("x", 8<<20),
			"does not implement"},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			w := fakes3.NewWire(tc.server)
			s := openFenced(t, fakes3.NewClient(w), tc.mode)
			err := s.Put(t.Context(), 1, object, strings.NewReader(tc.body))
			require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
			require.ErrorContains(t, err, tc.says)
			require.Empty(t, tc.server.Keys(), "nothing is written, nothing left behind")
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := fakes3.NewWire(&fakes3.Server{})
		s := openFenced(t, fakes3.NewClient(w), fenced.PaddedBodies)
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("x")))
		require.Equal(t, []string{"DELETE", "PUT", "GET", "PUT", "PUT", "HEAD", "PUT", "DELETE", "HEAD", "PUT"},
			w.Methods(0))
		for _, r := range w.Requests() {
			require.True(t, strings.HasPrefix(r.Path, "/"+fakes3.Bucket+"/data/"),
				"%s: permissions are often given by prefix", r.Path)
		}
	})
}

// On a server that takes one write of an object a second, the check takes its time, once.
func TestFencedWritesAreCheckedOnARateLimitedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{WriteInterval: time.Second, MinPartSize: 1}
		w := fakes3.NewWire(server)
		s := openFenced(t, fakes3.NewClient(w), fenced.PaddedBodies, withPartSize())
		began := time.Now()
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("x")))
		require.Less(t, time.Since(began), 10*time.Second)
		require.Equal(t, []string{object}, server.Keys(), "nothing is left behind")
		sent := w.Count()
		require.NoError(t, s.Put(t.Context(), 1, "other/object", strings.NewReader("x")))
		require.Equal(t, 2, w.Count()-sent, "the check is done once")
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader(newBody)), "in parts")
		require.Equal(t, []string{object, "other/object"}, server.Keys())
		require.Zero(t, server.Uploads())
	})
}

// A check that a failure interrupts goes on with the same object, and an answer that is lost proves
// nothing.
func TestFencedCheckAmongFailures(t *testing.T) {
	for _, f := range []faultproxy.Fault{
		{
			Kind:   faultproxy.Answer,
			Status: 503,
		}, {Kind: faultproxy.AnswerAfter, Status: 500}, {Kind: faultproxy.DropReply}, {Kind: faultproxy.Refuse},
	} {
		for n := range 6 {
			synctest.Test(t, func(t *testing.T) {
				server := &fakes3.Server{}
				w := fakes3.NewWire(server)
				keys, i := map[string]bool{}, 0
				w.Decide = func(r *http.Request) faultproxy.Fault {
					if strings.Contains(r.URL.Path, ".leasehold-check") {
						keys[r.URL.Path] = true
						if i++; i == n+1 && r.Method == "PUT" {
							return f
						}
					}
					return faultproxy.Fault{}
				}
				s := openFenced(t, fakes3.NewClient(w), fenced.PaddedBodies)
				require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("x")), "%+v %d", f, n)
				require.Len(t, keys, 1)
				require.Equal(t, []string{object}, server.Keys())
				w.Wait()
			})
		}
	}
}

// Without the permission to delete, the checks of all processes use one object.
func TestFencedCheckWithoutThePermissionToDelete(t *testing.T) {
	for name, server := range map[string]*fakes3.Server{"UniqueETags": {RandomETags: true}, "PaddedBodies": {}} {
		synctest.Test(t, func(t *testing.T) {
			mode := fenced.PaddedBodies
			if server.RandomETags {
				mode = fenced.UniqueETags
			}
			open := func() *fenced.Store {
				w := fakes3.NewWire(server)
				w.Decide = func(r *http.Request) faultproxy.Fault {
					time.Sleep(rand.N(3 * time.Millisecond)) // others come in between
					if r.Method == "DELETE" {
						return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusForbidden}
					}
					return faultproxy.Fault{}
				}
				return openFenced(t, fakes3.NewClient(w), mode)
			}
			for range 3 {
				require.NoError(t, open().Put(t.Context(), 1, object, strings.NewReader("x")), name)
				require.Equal(t, []string{"data/.leasehold-check", object}, server.Keys())
			}
			var wg sync.WaitGroup // at the same time
			for i := range 4 {
				wg.Go(func() {
					assert.NoError(t, open().Put(t.Context(), 1, fmt.Sprintf("data/%d", i), strings.NewReader("x")),
						name)
				})
			}
			wg.Wait()
			require.Equal(t, []string{"data/.leasehold-check", "data/0", "data/1", "data/2", "data/3", object},
				server.Keys())

			server.IgnoreConditions = true // what is left makes the next check not blind
			require.ErrorIs(t, open().Put(t.Context(), 1, object, strings.NewReader("x")), leasehold.ErrUnsafeStore)
		})
	}
}

func TestFencedObjectWithABadToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, &fakes3.Server{}, fenced.PaddedBodies, fenced.WithAdoption())
		for _, name := range []string{"leasehold-token", "leasehold-padding"} {
			for _, value := range []string{"many", "-1", "99999999999999999999"} {
				f.server.PutWith(object, []byte("theirs"),
					http.Header{"X-Amz-Meta-" + http.CanonicalHeaderKey(name): {value}})
				_, err := f.Get(t.Context(), object)
				require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
				require.ErrorContains(t, err, value)
				if name == "leasehold-token" {
					require.ErrorIs(t, f.Put(t.Context(), 7, object, strings.NewReader("ours")),
						leasehold.ErrCorruptRecord)
				}
				require.ErrorIs(t, f.Seal(t.Context(), 7, object), leasehold.ErrCorruptRecord)
				require.Equal(t, "theirs", string(f.server.Body(object)), "never overwritten")
			}
		}
	})
}

// shrinking is a body that has less than it said.
type shrinking struct{ *strings.Reader }

func (shrinking) Read([]byte) (int, error) { return 0, io.EOF }

func TestFencedWriteGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, &fakes3.Server{}, fenced.PaddedBodies)
		require.ErrorIs(t, f.Put(t.Context(), 1, object, shrinking{strings.NewReader("four")}), io.ErrUnexpectedEOF)
		require.Nil(t, f.server.Body(object))

		f.wire.FailAlways(faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusForbidden})
		f.sent()
		require.ErrorIs(t, f.Put(t.Context(), 1, object, strings.NewReader("x")), leasehold.ErrPermanent)
		require.Len(t, f.sent(), 1, "no waiting heals that")

		f.wire.FailAlways(faultproxy.Fault{Kind: faultproxy.Ghost, Before: time.Hour})
		ctx := testctx.Within(t, time.Second)
		began := time.Now()
		require.ErrorIs(t, f.Put(ctx, 1, object, strings.NewReader("x")), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		f.wire.Close()
	})
}

// outOfTime fails for a reason of its own, after it has ended the caller's context.
type outOfTime struct {
	fenced.MemBackend
	end func()
}

func (f *outOfTime) Head(context.Context, string) (fenced.Version, error) {
	f.end()
	return fenced.Version{}, errors.New("503 SlowDown")
}

func TestFencedErrorsAfterTheEndOfCtxMatchIt(t *testing.T) {
	why := errors.New("the shift is over")
	for name, do := range map[string]func(ctx context.Context, s *fenced.Store) error{
		"Put": func(ctx context.Context, s *fenced.Store) error {
			return s.Put(ctx, 1, object, strings.NewReader("x"))
		},
		"Delete": func(ctx context.Context, s *fenced.Store) error { return s.Delete(ctx, 1, object) },
		"Seal":   func(ctx context.Context, s *fenced.Store) error { return s.Seal(ctx, 1, object) },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		err := do(ctx, fenced.NewStore(&outOfTime{end: func() { cancel(why) }}))
		require.ErrorIs(t, err, context.Canceled, name)
		require.ErrorIs(t, err, why, name)
		require.ErrorContains(t, err, "503 SlowDown", name)
	}
}

// A store that cannot work says so at its first call.
func TestFencedStoresThatAreNone(t *testing.T) {
	for says, s := range map[string]*fenced.Store{
		"the Backend is nil":                  fenced.NewStore(nil),
		"the Backend is nil: a pointer":       fenced.NewStore((*fenced.MemBackend)(nil)),
		"an Option is nil":                    fenced.NewMemStore(nil),
		"the fenced.Store is nil or empty":    nil,
		"the fenced.Store is nil or empty (m": {},
	} {
		_, err := s.Get(t.Context(), object)
		for _, err := range []error{
			err, s.Put(t.Context(), 1, object, strings.NewReader("x")), s.Seal(t.Context(), 1, object),
			s.Delete(t.Context(), 1, object),
		} {
			require.ErrorIs(t, err, leasehold.ErrPermanent)
			require.ErrorContains(t, err, strings.TrimSuffix(says, ": a pointer"))
		}
	}
	require.ErrorContains(t, fenced.NewMemStore().Put(t.Context(), 1, object, strings.NewReader("x"), nil),
		"a PutOption is nil")
	require.ErrorContains(t, fenced.NewMemStore().Put(t.Context(), 1, object, nil), "the body is nil")
}

func TestNewFencedStoreRefusesAtOnce(t *testing.T) {
	client := fakes3.NewClient(fakes3.Transport{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request")
	})})
	for says, open := range map[string]func() (*fenced.Store, error){
		"client is nil": func() (*fenced.Store, error) {
			return fenced.NewS3Store(nil, fakes3.Bucket, fenced.PaddedBodies)
		},
		"S3 client is nil": func() (*fenced.Store, error) {
			return fenced.NewS3Store((*s3.Client)(nil), fakes3.Bucket, fenced.PaddedBodies)
		},
		"no name": func() (*fenced.Store, error) {
			return fenced.NewS3Store(client, "", fenced.PaddedBodies)
		},
		"an Option is nil": func() (*fenced.Store, error) {
			return fenced.NewS3Store(client, fakes3.Bucket, fenced.PaddedBodies, nil)
		},
		`"a/b"`: func() (*fenced.Store, error) {
			return fenced.NewS3Store(client, "a/b", fenced.PaddedBodies)
		},
		"UniqueETags, PaddedBodies or DistinctBodies": func() (*fenced.Store, error) {
			return fenced.NewS3Store(client, fakes3.Bucket, 0)
		},
		"ETag mode 4 is not UniqueETags, PaddedB": func() (*fenced.Store, error) {
			return fenced.NewS3Store(client, fakes3.Bucket, 4)
		},
	} {
		s, err := open()
		require.Nil(t, s, says)
		require.ErrorIs(t, err, leasehold.ErrPermanent, says)
		require.ErrorContains(t, err, says)
		require.True(t, strings.HasPrefix(err.Error(), "leasehold: fenced.NewS3Store: "), err)
	}
}
