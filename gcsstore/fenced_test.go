package gcsstore_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/storage"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/gcsstore"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/fencedtest"
	"github.com/leasehold-go/leasehold/internal/testkit/storehttptest"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/storetest"
)

const object = "data/report.json"

func openFenced(t *testing.T, client *storage.Client, bucket string, opts ...fenced.Option) *fenced.Store {
	t.Helper()
	s, err := gcsstore.NewFencedStore(client, bucket, opts...)
	require.NoError(t, err)
	return s
}

func TestFencedStoreKeepsItsPromises(t *testing.T) {
	run := func(t *testing.T, open func() *storage.Client, bucket string, large int) {
		fencedtest.Run(t, fencedtest.Backend{
			Open: func(opts ...fenced.Option) *fenced.Store { return openFenced(t, open(), bucket, opts...) },
			Plant: func(key, body string) {
				w := open().Bucket(bucket).Object(key).NewWriter(t.Context())
				_, err := w.Write([]byte(body))
				require.NoError(t, errors.Join(err, w.Close()))
			},
			Large: large,
		})
	}
	const large = 20 << 20 // two chunks
	t.Run("fake-gcs-server", func(t *testing.T) {
		w := newWire(t, nil)
		run(t, func() *storage.Client { return w.client }, w.createBucket(t), large)
	})
	t.Run("fake-gcs-server, XML", func(t *testing.T) {
		w := newWire(t, nil)
		run(t, func() *storage.Client { return w.xml(t) }, w.createBucket(t), 0)
	})
	t.Run("strict server", func(t *testing.T) {
		w := newWire(t, &fakeGCS{files: true})
		run(t, func() *storage.Client { return w.client }, bucket, 0)
	})
}

func TestFencedBackendConforms(t *testing.T) {
	w := newWire(t, nil)
	name := w.createBucket(t)
	storetest.RunFenced(t, func(*testing.T) fenced.Backend { return gcsstore.NewFencedBackend(w.client, name) }, 20<<20)
}

func TestFencedWritesCostWhatIsSaid(t *testing.T) {
	w := newWire(t, nil)
	s, ctx := openFenced(t, w.client, w.createBucket(t)), t.Context()
	from := w.Count()
	sent := func() []string {
		methods := w.Methods(from)
		from += len(methods)
		return methods
	}
	require.NoError(t, s.Put(ctx, 1, object, strings.NewReader("x")))
	require.Equal(t, []string{"POST", "GET", "DELETE", "GET", "POST"}, sent(), "the check comes first")
	require.NoError(t, s.Put(ctx, 1, "data/another", strings.NewReader("x")))
	require.Equal(t, []string{"GET", "POST"}, sent())
	fencedtest.Read(t, s, object)
	require.Equal(t, []string{"GET", "GET"}, sent())
	require.NoError(t, s.Seal(ctx, 2, object))
	require.Equal(t, []string{"GET", "GET", "GET", "POST"}, sent())
	require.NoError(t, s.Seal(ctx, 2, object))
	require.Equal(t, []string{"GET"}, sent(), "claimed already")
	require.ErrorIs(t, s.Put(ctx, 1, object, strings.NewReader("late")), leasehold.ErrFenced)
	require.Equal(t, []string{"GET"}, sent())
	require.NoError(t, s.Delete(ctx, 2, object))
	require.Equal(t, []string{"GET", "POST"}, sent())
	require.NoError(t, s.Put(ctx, 2, object, bytes.NewReader(make([]byte, 16<<20))))
	require.Equal(t, []string{"GET", "POST"}, sent())
	require.NoError(t, s.Put(ctx, 2, object, bytes.NewReader(make([]byte, 20<<20))))
	require.Equal(t, []string{"GET", "POST", "POST", "POST"}, sent(), "a session, and two chunks")
}

// A token that is hidden must not be taken for none, by an adoption least of all.
func TestFencedStoreNeedsItsMetadata(t *testing.T) {
	hidden := regexp.MustCompile(`"metadata":`)
	hides := map[string]func(server http.Handler) http.Handler{
		"in requests": func(server http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				body = hidden.ReplaceAll(body, []byte(`"contexts":`)) // of the same length
				r.Body = io.NopCloser(bytes.NewReader(body))
				server.ServeHTTP(w, r)
			})
		},
		"in answers": func(server http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				whole := httptest.NewRecorder()
				server.ServeHTTP(whole, r)
				maps.Copy(w.Header(), whole.Header())
				w.WriteHeader(whole.Code)
				_, _ = w.Write(hidden.ReplaceAll(whole.Body.Bytes(), []byte(`"metedata":`)))
			})
		},
	}
	synctest.Test(t, func(t *testing.T) {
		server := &fakeGCS{files: true}
		fencedtest.NeedsMetadata(t, server, hides, func(server http.Handler, opts ...fenced.Option) *fenced.Store {
			return openFenced(t, newWire(t, server).client, bucket, opts...)
		}, func() map[string]string {
			stored := make(map[string]string)
			for name, o := range server.objects {
				stored[name] = strconv.FormatInt(o.generation, 10)
			}
			return stored
		})
	})
}

func TestFencedWriteWhoseAnswerIsLost(t *testing.T) {
	w := newWire(t, nil)
	s := openFenced(t, w.client, w.createBucket(t))
	require.NoError(t, s.Put(t.Context(), 1, "data/first", strings.NewReader("x")), "after the check")
	for _, fault := range []faultproxy.Fault{
		{Kind: faultproxy.DropReply},
		{Kind: faultproxy.AnswerAfter, Status: http.StatusPreconditionFailed},
		{Kind: faultproxy.AnswerAfter, Status: http.StatusServiceUnavailable},
		{Kind: faultproxy.AnswerAfter, Status: http.StatusTooManyRequests},
	} {
		w.Fail(http.MethodPost, fault)
		from := w.Count()
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("1")))
		require.Equal(t, 3, w.Count()-from, "%+v: recognised by its nonce, not written again", fault)
	}
	for _, fault := range []faultproxy.Fault{
		{Kind: faultproxy.Refuse},
		{Kind: faultproxy.Answer, Status: http.StatusTooManyRequests},
		{Kind: faultproxy.Answer, Status: http.StatusConflict},
	} {
		w.Fail(http.MethodPost, fault)
		from := w.Count()
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("1")))
		require.Equal(t, 4, w.Count()-from, "%+v: written again", fault)
	}
}

// A 404 to a chunk is about the upload's session. It does not mean that the bucket is missing.
func TestFencedUploadWhoseSessionIsLost(t *testing.T) {
	w := newWire(t, nil)
	s := openFenced(t, w.client, w.createBucket(t))
	require.NoError(t, s.Put(t.Context(), 1, "data/first", strings.NewReader("x")), "after the check")
	from := w.Count()
	var once sync.Once
	w.Decide = func(r *http.Request) (f faultproxy.Fault) {
		if r.URL.Query().Has("upload_id") {
			once.Do(func() { f = faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusNotFound} })
		}
		return f
	}
	body := strings.Repeat("x", 20<<20)
	require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader(body)))
	require.Equal(t, 2+2+3, w.Count()-from, "attributes, session, a chunk; then attributes, session, two chunks")
	got, _ := fencedtest.Read(t, s, object)
	require.True(t, body == got)
}

func TestFencedSealKeepsWhatIsStoredWithABody(t *testing.T) {
	w := newWire(t, nil)
	name := w.createBucket(t)
	s := openFenced(t, w.client, name, fenced.WithAdoption())
	o := w.client.Bucket(name).Object(object).NewWriter(t.Context())
	o.ContentType, o.ContentLanguage, o.ContentDisposition, o.ContentEncoding = "text/html", "de", "attachment", "br"
	o.CacheControl, o.StorageClass, o.CustomTime, o.Metadata = "no-cache", "NEARLINE", time.Unix(1e9, 0),
		map[string]string{"author": "alice"}
	_, err := o.Write([]byte("theirs"))
	require.NoError(t, errors.Join(err, o.Close()))
	require.NoError(t, s.Seal(t.Context(), 1, object))
	a, err := w.client.Bucket(name).Object(object).Attrs(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"text/html", "de", "attachment", "br", "no-cache", "NEARLINE", "alice", "1"}, []string{
		a.ContentType, a.ContentLanguage, a.ContentDisposition, a.ContentEncoding, a.CacheControl, a.StorageClass,
		a.Metadata["author"], a.Metadata["leasehold-token"],
	})
	require.EqualValues(t, 1e9, a.CustomTime.Unix())
	body, _ := fencedtest.Read(t, s, object)
	require.Equal(t, "theirs", body)
}

// The client decompresses what is stored with gzip. To write that again would store it
// uncompressed, under the same header.
func TestFencedCompressedObjectsAreNotSealed(t *testing.T) {
	w := newWire(t, nil)
	name := w.createBucket(t)
	s := openFenced(t, w.client, name, fenced.WithAdoption())
	o := w.client.Bucket(name).Object(object).NewWriter(t.Context())
	o.ContentEncoding = "gzip"
	z := gzip.NewWriter(o)
	_, err := z.Write([]byte("theirs"))
	require.NoError(t, errors.Join(err, z.Close(), o.Close()))
	body, read := fencedtest.Read(t, s, object)
	require.Equal(t, []any{"theirs", int64(-1)}, []any{body, read.Size})
	err = s.Seal(t.Context(), 1, object)
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, "Content-Encoding gzip")
	require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("ours")))
}

// A body that ends early at its source is never stored, not even the part that was read.
func TestFencedPutOfABodyThatFails(t *testing.T) {
	w := newWire(t, nil)
	name := w.createBucket(t)
	s := openFenced(t, w.client, name)
	for _, size := range []int{100, 1 << 20, 20 << 20} {
		ctx := testctx.Within(t, time.Second)
		require.Error(t, s.Put(ctx, 1, object, fencedtest.Shortened(size)))
		_, err := w.client.Bucket(name).Object(object).Attrs(t.Context())
		require.ErrorIs(t, err, storage.ErrObjectNotExist, "%d bytes", size)
	}
}

func TestFencedRequestsHaveTimeLimits(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t, &fakeGCS{files: true})
			s := openFenced(t, w.client, bucket)
			w.Fail(method, faultproxy.Fault{Before: 24 * time.Hour})
			ctx := testctx.Within(t, 24*time.Hour)
			began := time.Now()
			require.NoError(t, s.Put(ctx, 1, object, strings.NewReader("x")))
			require.InDelta(t, time.Minute, time.Since(began), float64(time.Second), method)
			w.FailAlways(faultproxy.Fault{Before: 24 * time.Hour})
			_, err := s.Get(ctx, object)
			late, ok := errors.AsType[net.Error](err)
			require.True(t, ok && late.Timeout(), "%v", err)
		})
	}
}

func TestFencedBodyThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fencedtest.StoppedBody(t, func(wrap func(http.RoundTripper) http.RoundTripper) *fenced.Store {
			w := newWire(t, &fakeGCS{files: true})
			w.Base = wrap(w.Base)
			return openFenced(t, w.client, bucket)
		})
	})
}

// halfway serves half a body to the first read. If replace is nil, no more follows; otherwise the
// body is that of the version before replace, and its connection breaks.
func halfway(t *testing.T, server http.Handler, replace func()) *storage.Client {
	var once sync.Once
	socket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		whole := httptest.NewRecorder()
		server.ServeHTTP(whole, r)
		maps.Copy(w.Header(), whole.Header())
		w.WriteHeader(whole.Code)
		if r.Method == http.MethodGet && r.URL.Query().Get("alt") != "json" {
			once.Do(func() {
				if replace != nil {
					replace()
				}
				_, _ = w.Write(whole.Body.Next(whole.Body.Len() / 2))
				w.(http.Flusher).Flush()
				if replace == nil {
					<-r.Context().Done()
				}
				panic(http.ErrAbortHandler)
			})
		}
		_, _ = whole.Body.WriteTo(w)
	}))
	t.Cleanup(socket.Close)
	return over(t, socket.URL, storehttptest.Network(t), "JSON")
}

// The client asks for the rest of a body that breaks off. If the object has been replaced by then,
// the answer is 404. It says nothing about the upload that reads from that body.
func TestFencedSealOfABodyThatBreaksOff(t *testing.T) {
	server := &fakeGCS{files: true}
	var s *fenced.Store
	s = openFenced(t, halfway(t, server, func() {
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("new")))
	}), bucket)
	require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader(strings.Repeat("old", 1000))))
	require.NoError(t, s.Seal(t.Context(), 2, object))
	require.Equal(t, "new", string(server.objects[object].body))
}

// The race detector judges: the client's reader is not safe for concurrent use.
func TestFencedCloseDuringARead(t *testing.T) {
	s := openFenced(t, halfway(t, &fakeGCS{files: true}, nil), bucket)
	require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader(strings.Repeat("old", 1000))))
	o, err := s.Get(t.Context(), object)
	require.NoError(t, err)
	_, err = io.ReadFull(o.Body, make([]byte, 1500))
	require.NoError(t, err)
	started, ended := make(chan struct{}), make(chan error)
	go func() {
		close(started)
		_, err := o.Body.Read(make([]byte, 1))
		ended <- err
	}()
	<-started
	require.NoError(t, o.Body.Close())
	require.Error(t, <-ended)
}

// endless is a body of a size that nobody sends in a test.
type endless int64

func (e endless) Seek(_ int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		return int64(e), nil
	}
	return 0, nil
}

func (e endless) Read(p []byte) (int, error) { return len(p), nil }

func TestFencedTimeLimitOfAHugeUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openFenced(t, newWire(t, &fakeGCS{files: true}).client, bucket)
		for _, size := range []int64{1 << 30, 10 << 30, 5 << 40} {
			err := s.Put(t.Context(), 1, object, endless(size))
			require.ErrorContains(t, err, `uploadType "resumable"`, "the server's refusal, not the end of the time: "+
				"%d bytes", size)
		}
	})
}

func TestFencedStoreRefusesBadArguments(t *testing.T) {
	w := newWire(t, http.NotFoundHandler())
	fencedtest.BadArguments(t, map[string]func() (*fenced.Store, error){
		"client is nil": func() (*fenced.Store, error) {
			return gcsstore.NewFencedStore(nil, bucket)
		},
		"an Option is nil": func() (*fenced.Store, error) {
			return gcsstore.NewFencedStore(w.client, bucket, nil)
		},
		`is a URL (give the bare name "b"`: func() (*fenced.Store, error) {
			return gcsstore.NewFencedStore(w.client, "gs://b")
		},
	})
	require.Zero(t, w.Count())
	missing := openFenced(t, newWire(t, nil).client, "no-such-bucket")
	err := missing.Put(t.Context(), 1, object, strings.NewReader("x"))
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, "create the bucket")
}

// Every operation meets every answer that is not Cloud Storage's, once and always: no call says
// what is not so, nothing is lost.
func TestFencedStoreAmongForeignAnswers(t *testing.T) {
	status := func(status int, body string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", http.DetectContentType([]byte(body)))
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	answers := map[string]http.HandlerFunc{
		"a page":                   status(200, storehttptest.Page),
		"a page with a generation": status(200, storehttptest.Page, "X-Goog-Generation", "5"),
		"text of the same size":    status(200, "bad"),
		"nothing":                  status(200, ""),
		"an empty object":          status(200, "{}", "Content-Type", "application/json"),
		"204":                      status(204, ""),
		"206":                      status(206, "{}", "X-Goog-Generation", "1000", "Content-Range", "bytes 0-1/100"),
		"304":                      status(304, ""),
		"302 to nowhere":           status(302, ""),
		"404 page":                 status(404, storehttptest.Page),
		"412 page":                 status(412, storehttptest.Page),
		"502 page":                 status(502, storehttptest.Page),
		"half an answer":           nil, // of the server's own, after the fact
	}
	operation := func(r *http.Request) string {
		switch {
		case r.Method == http.MethodPost:
			return "upload"
		case r.URL.Query().Get("alt") == "json":
			return "attributes"
		}
		return "body"
	}
	calls := map[string]struct {
		run  func(ctx context.Context, s *fenced.Store) (string, error)
		want string
	}{
		"Put": {func(ctx context.Context, s *fenced.Store) (string, error) {
			return "new", s.Put(ctx, 2, object, strings.NewReader("new"))
		}, "new"},
		"Seal": {
			func(ctx context.Context, s *fenced.Store) (string, error) { return "old", s.Seal(ctx, 2, object) },
			"old",
		},
		"Delete": {
			func(ctx context.Context, s *fenced.Store) (string, error) { return "", s.Delete(ctx, 2, object) },
			"",
		},
		"Get": {func(ctx context.Context, s *fenced.Store) (string, error) {
			o, err := s.Get(ctx, object)
			if err != nil {
				return "", err
			}
			body, err := io.ReadAll(o.Body)
			return string(body), errors.Join(err, o.Body.Close())
		}, "old"},
	}
	for name, answer := range answers {
		for call, c := range calls {
			for _, op := range []string{"attributes", "body", "upload"} {
				for _, once := range []bool{true, false} {
					bubble.Run(t, fmt.Sprintf("%s/%s/%s/once=%v", name, call, op, once), func(t *testing.T) {
						server := &fakeGCS{files: true}
						met := 0
						armed := false
						w := newWire(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							if !armed || operation(r) != op || once && met > 0 {
								server.ServeHTTP(w, r)
								return
							}
							if met++; answer != nil {
								answer(w, r)
								return
							}
							whole := httptest.NewRecorder()
							server.ServeHTTP(whole, r)
							maps.Copy(w.Header(), whole.Header())
							_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
						}))
						s := openFenced(t, w.client, bucket)
						require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("old")))
						before := server.objects[object].generation
						armed = true
						got, err := c.run(t.Context(), s)
						armed = false
						stands := server.objects[object]
						if err != nil {
							for _, lie := range []error{
								leasehold.ErrNotExist, leasehold.ErrUnsafeStore, fenced.ErrUnfenced,
								leasehold.ErrFenced, leasehold.ErrCorruptRecord, leasehold.ErrPermanent,
							} {
								require.NotErrorIs(t, err, lie, "that is not known")
							}
							if stands.generation != before {
								require.Equal(t, c.want, string(stands.body),
									"neither the old nor the new: %v", err)
							}
							require.False(t, once && call != "Get", "one bad answer is temporary: %v", err)
							return
						}
						require.Equal(t, []string{c.want, c.want}, []string{got, string(stands.body)})
						if call != "Get" {
							require.Equal(t, "2", stands.resource["metadata"].(map[string]any)["leasehold-token"])
						}
					})
				}
			}
		}
	}
}
