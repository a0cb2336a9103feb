package fenced_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/faultproxy"
)

const object = "data/report.json"

// fenced is a FencedStore on a wire whose first check is over.
type fenced struct {
	*fenced.Store
	wire     *wire
	server   *fakes3.Server
	versions fenced.Versions
	from     int
}

// openFenced is a store in the fake's bucket.
func openFenced(t *testing.T, client *s3.Client, versions fenced.Versions, opts ...fenced.Option) *fenced.Store {
	t.Helper()
	s, err := fenced.NewS3Store(client, fakes3.Bucket, versions, opts...)
	require.NoError(t, err)
	return s
}

func newFenced(t *testing.T, server *fakes3.Server, versions fenced.Versions, opts ...fenced.Option) *fenced {
	t.Helper()
	f := &fenced{wire: newWire(server), server: server, versions: versions}
	f.FencedStore = openFenced(t, fakes3.NewClient(f.wire), versions, opts...)
	require.NoError(t, f.Put(t.Context(), 1, "data/first", strings.NewReader("x")))
	f.sent()
	return f
}

// sent returns the requests since the last call.
func (f *fenced) sent() []string {
	m := f.wire.methods(f.from)
	f.from += len(m)
	return m
}

func (f *fenced) read(t *testing.T, key string) (string, *fenced.Object) {
	t.Helper()
	o, err := f.Get(t.Context(), key)
	require.NoError(t, err)
	body, err := io.ReadAll(o.Body)
	require.NoError(t, err)
	require.NoError(t, o.Body.Close())
	return string(body), o
}

// onBoth runs a test on both kinds of servers that can be sealed on.
func onBoth(t *testing.T, test func(t *testing.T, f *fenced)) {
	for name, server := range map[string]*fakes3.Server{"UniqueETags": {RandomETags: true}, "PaddedBodies": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				versions := fenced.PaddedBodies
				if server.RandomETags {
					versions = fenced.UniqueETags
				}
				f := newFenced(t, server, versions)
				test(t, f)
				f.wire.Wait()
			})
		})
	}
}

func TestFencedWrites(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fenced) {
		ctx := t.Context()
		require.NoError(t, f.Put(ctx, 1, object, strings.NewReader(`{"n":1}`),
			fenced.WithContentType("application/json"), fenced.WithMetadata(map[string]string{"author": "alice"})))
		require.Equal(t, []string{"HEAD", "PUT"}, f.sent(), "two requests")
		require.Equal(t, `{"n":1}`, strings.TrimRight(string(f.server.Body(object)), " \t"), "plain for any reader")
		body, o := f.read(t, object)
		require.Equal(t, []string{"GET"}, f.sent())
		require.Equal(t, `{"n":1}`, body)
		require.Equal(t, []any{int64(7), uint64(1), "application/json", map[string]string{"author": "alice"}},
			[]any{o.Size, o.Token, o.ContentType, o.Metadata})
		require.NotEmpty(t, o.ETag)

		require.NoError(t, f.Seal(ctx, 2, object))
		require.Equal(t, []string{"HEAD", "GET", "PUT"}, f.sent())
		require.NoError(t, f.Seal(ctx, 2, object))
		require.Equal(t, []string{"HEAD"}, f.sent(), "claimed already")
		body, o = f.read(t, object)
		require.Equal(t, []any{`{"n":1}`, uint64(2), "application/json", map[string]string{"author": "alice"}},
			[]any{body, o.Token, o.ContentType, o.Metadata}, "nothing but the token is new")
		f.sent()

		for name, write := range map[string]func() error{
			"put":    func() error { return f.Put(ctx, 1, object, strings.NewReader("late")) },
			"delete": func() error { return f.Delete(ctx, 1, object) },
			"seal":   func() error { return f.Seal(ctx, 1, object) },
		} {
			err := write()
			require.ErrorIs(t, err, leasehold.ErrFenced, name)
			fenced, ok := errors.AsType[*leasehold.FencedError](err)
			require.True(t, ok)
			require.Equal(t, leasehold.FencedError{Key: object, Token: 1, Highest: 2}, *fenced)
			require.Equal(t, []string{"HEAD"}, f.sent())
		}

		require.NoError(t, f.Delete(ctx, 2, object))
		_, err := f.Get(ctx, object)
		require.ErrorIs(t, err, leasehold.ErrNotExist)
		require.Empty(t, strings.Trim(string(f.server.Body(object)), " \t"))
		require.ErrorIs(t, f.Put(ctx, 1, object, strings.NewReader("late")), leasehold.ErrFenced, "the tombstone remembers")
		require.NoError(t, f.Put(ctx, 3, object, strings.NewReader("new")))
		body, _ = f.read(t, object)
		require.Equal(t, "new", body)

		require.NoError(t, f.Seal(ctx, 3, "data/not-yet", "data/nor-this"))
		require.ErrorIs(t, f.Put(ctx, 2, "data/not-yet", strings.NewReader("late")), leasehold.ErrFenced)
		_, err = f.Get(ctx, "data/not-yet")
		require.ErrorIs(t, err, leasehold.ErrNotExist)
	})
}

func TestFencedWriteWhoseAnswerIsLost(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fenced) {
		for _, fault := range []faultproxy.Fault{
			{Kind: faultproxy.DropReply},
			{Kind: faultproxy.AnswerAfter, Status: http.StatusPreconditionFailed},
			{Kind: faultproxy.AnswerAfter, Status: http.StatusInternalServerError},
			{Kind: faultproxy.AnswerAfter, Status: http.StatusConflict},
		} {
			f.wire.fail(http.MethodHead, faultproxy.Fault{})
			f.wire.fail(http.MethodPut, fault)
			require.NoError(t, f.Put(t.Context(), 1, object, strings.NewReader("1")))
			require.Equal(t, []string{"HEAD", "PUT", "HEAD"}, f.sent(), "%+v: known by its nonce, not written again", fault)
		}
	})
}

// The reply is lost, and a new leader writes before the old one asks: the outcome of the old write stays unknown.
func TestFencedWriteLostBelowANewOne(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fenced) {
		next := newFenced(t, f.server, f.versions)
		f.wire.fail(http.MethodHead, faultproxy.Fault{})
		f.wire.fail(http.MethodPut, faultproxy.Fault{Kind: faultproxy.DropReply, After: time.Second})
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

func TestFencedObjectsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, &fakes3.Server{}, fenced.PaddedBodies)
		f.server.Put(object, []byte("theirs"))
		for _, write := range []func(*fenced) error{
			func(f *fenced) error { return f.Put(t.Context(), 1, object, strings.NewReader("ours")) },
			func(f *fenced) error { return f.Delete(t.Context(), 1, object) },
			func(f *fenced) error { return f.Seal(t.Context(), 1, object) },
		} {
			err := write(f)
			require.ErrorIs(t, err, fenced.ErrUnfenced)
			require.ErrorContains(t, err, "WithAdoption")
		}
		body, o := f.read(t, object)
		require.Equal(t, []any{"theirs", uint64(0)}, []any{body, o.Token}, "anybody may read")

		adopting := newFenced(t, f.server, fenced.PaddedBodies, fenced.WithAdoption())
		require.NoError(t, adopting.Seal(t.Context(), 1, object))
		body, o = adopting.read(t, object)
		require.Equal(t, []any{"theirs", uint64(1)}, []any{body, o.Token})
		require.NoError(t, f.Put(t.Context(), 1, object, strings.NewReader("ours")))
	})
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
		require.ErrorContains(t, f.Seal(t.Context(), 0, object), "token 0")
		require.ErrorContains(t, f.Delete(t.Context(), 1, "a//b"), "empty path segment")
		_, err := f.Get(t.Context(), "")
		require.ErrorContains(t, err, "key")
		distinct := newFenced(t, f.server, fenced.DistinctBodies)
		require.ErrorContains(t, distinct.Seal(t.Context(), 1, object), "DistinctBodies")
		require.Empty(t, distinct.sent())
		require.Empty(t, f.sent())
	})
}

func TestFencedStoreChecksTheServer(t *testing.T) {
	for name, tc := range map[string]struct {
		server   *fakes3.Server
		versions fenced.Versions
		body     string
		says     string
	}{
		"conditions ignored":  {&fakes3.Server{IgnoreConditions: true}, fenced.PaddedBodies, "x", "ignores If-None-Match"},
		"ETags that repeat":   {&fakes3.Server{}, fenced.UniqueETags, "x", "SSE-KMS"},
		"no multipart upload": {&fakes3.Server{NoMultipart: true}, fenced.PaddedBodies, strings.Repeat("x", 8<<20), "does not implement"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(tc.server)
				s := openFenced(t, fakes3.NewClient(w), tc.versions)
				err := s.Put(t.Context(), 1, object, strings.NewReader(tc.body))
				require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
				require.ErrorContains(t, err, tc.says)
				require.Empty(t, tc.server.Keys(), "nothing is written, nothing left behind")
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWire(&fakes3.Server{})
		s := openFenced(t, fakes3.NewClient(w), fenced.PaddedBodies)
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("x")))
		require.Equal(t, []string{"PUT", "PUT", "PUT", "PUT", "DELETE", "HEAD", "PUT"}, w.methods(0))
		for _, r := range w.Requests() {
			require.True(t, strings.HasPrefix(r.Path, "/"+fakes3.Bucket+"/data/"), "%s: permissions are often given by prefix", r.Path)
		}
	})
}

func TestFencedObjectWithABadToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, &fakes3.Server{}, fenced.PaddedBodies, fenced.WithAdoption())
		for _, name := range []string{"leasehold-token", "leasehold-padding"} {
			for _, value := range []string{"many", "-1", "99999999999999999999"} {
				f.server.PutWith(object, []byte("theirs"), http.Header{"X-Amz-Meta-" + http.CanonicalHeaderKey(name): {value}})
				_, err := f.Get(t.Context(), object)
				require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
				require.ErrorContains(t, err, value)
				if name == "leasehold-token" {
					require.ErrorIs(t, f.Put(t.Context(), 7, object, strings.NewReader("ours")), leasehold.ErrCorruptRecord)
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

		f.wire.failAlways(faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusForbidden})
		f.sent()
		require.ErrorIs(t, f.Put(t.Context(), 1, object, strings.NewReader("x")), leasehold.ErrPermanent)
		require.Len(t, f.sent(), 1, "no waiting heals that")

		f.wire.failAlways(faultproxy.Fault{Kind: faultproxy.Ghost, Before: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, f.Put(ctx, 1, object, strings.NewReader("x")), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		f.wire.Close()
	})
}

func TestNewFencedStoreRefusesAtOnce(t *testing.T) {
	client := fakes3.NewClient(fakes3.Transport{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request") })})
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
		`"a/b"`: func() (*fenced.Store, error) {
			return fenced.NewS3Store(client, "a/b", fenced.PaddedBodies)
		},
		"UniqueETags, PaddedBodies, DistinctBodies":  func() (*fenced.Store, error) { return fenced.NewS3Store(client, fakes3.Bucket, 0) },
		"versions 4 is none of UniqueETags, PaddedB": func() (*fenced.Store, error) { return fenced.NewS3Store(client, fakes3.Bucket, 4) },
	} {
		s, err := open()
		require.Nil(t, s, says)
		require.ErrorIs(t, err, leasehold.ErrPermanent, says)
		require.ErrorContains(t, err, says)
		require.True(t, strings.HasPrefix(err.Error(), "leasehold: NewFencedStore: "), err)
	}
}
