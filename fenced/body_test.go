package fenced_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/fencedtest"
)

// onSocket serves a handler on a real socket and returns a client of it, and how many connections
// it has made.
func onSocket(t *testing.T, handler http.Handler) (client *s3.Client, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	o := fakes3.NewClient(transport).Options()
	o.BaseEndpoint = aws.String(server.URL)
	return s3.New(o), connections
}

// chunking is a server whose GETs say no length, as behind proxies that change bodies on the way.
func chunking(server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			server.ServeHTTP(w, r)
			return
		}
		got := httptest.NewRecorder()
		server.ServeHTTP(got, r)
		for name, values := range got.Header() {
			if name != "Content-Length" {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(got.Code)
		w.(http.Flusher).Flush()
		_, _ = got.Body.WriteTo(w)
	})
}

func TestFencedBodiesOfUnknownLength(t *testing.T) {
	for _, mode := range []fenced.ETagMode{fenced.UniqueETags, fenced.PaddedBodies} {
		for name, want := range map[string]string{
			"empty":       "",
			"short":       "short",
			"of one part": oldBody[:testPart],
			"in parts":    oldBody,
		} {
			t.Run(fmt.Sprint(mode, " ", name), func(t *testing.T) {
				server := &fakes3.Server{RandomETags: mode == fenced.UniqueETags, MinPartSize: 1}
				client, _ := onSocket(t, chunking(server))
				s := openFenced(t, client, mode, withPartSize())
				require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader(want)))
				for token := uint64(1); token <= 2; token++ {
					body, o := fencedtest.Read(t, s, object)
					require.EqualValues(t, -1, o.Size)
					require.Equal(t, want, body)
					require.NoError(t, s.Seal(t.Context(), token+1, object))
				}
				require.Equal(t, want, strings.TrimRight(string(server.Body(object)), " \t"))
				require.Zero(t, server.Uploads())
			})
		}
	}
}

// A client that changes an object but keeps its metadata leaves a body without our padding.
func TestFencedPaddingIsOnlyCutIfItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, &fakes3.Server{}, fenced.PaddedBodies)
		require.NoError(t, f.Put(t.Context(), 1, object, strings.NewReader("ours")))
		for _, theirs := range []string{strings.Repeat("their very own words, of which none is padding. ", 3),
			strings.Repeat(" \t", 50), "short"} {
			f.server.PutWith(object, []byte(theirs), f.server.Header(object))
			o, err := f.Get(t.Context(), object)
			if err == nil {
				_, err = io.ReadAll(o.Body)
			}
			require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
			require.ErrorIs(t, f.Seal(t.Context(), 2, object), leasehold.ErrCorruptRecord)
			require.Equal(t, theirs, string(f.server.Body(object)), "never truncated")
		}
	})
}

// VersityGW answers a GET during a replacement with the old headers and the new body. That is not a
// corrupt object.
func TestFencedTornReadsMayPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{}
		m := &middleman{server: server}
		s := openFenced(t, fakes3.NewClient(m), fenced.PaddedBodies)
		other := openFenced(t, fakes3.NewClient(&middleman{server: server}), fenced.PaddedBodies)
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("old")))
		tear := func() {
			torn := false
			m.answer = func(r *http.Request, forward func() *http.Response) *http.Response {
				if r.Method != http.MethodGet || torn {
					return nil
				}
				torn = true
				resp := forward()
				require.NoError(t, other.Put(t.Context(), 1, object, strings.NewReader("new")))
				resp.Body = io.NopCloser(bytes.NewReader(server.Body(object)))
				return resp
			}
		}
		tear()
		o, err := s.Get(t.Context(), object)
		require.NoError(t, err)
		_, err = io.ReadAll(o.Body)
		require.Error(t, err)
		require.NotErrorIs(t, err, leasehold.ErrCorruptRecord)
		require.NoError(t, o.Body.Close())
		tear()
		require.NoError(t, s.Seal(t.Context(), 2, object))
		got, _ := fencedtest.Read(t, s, object)
		require.Equal(t, "new", got)
	})
}

func TestFencedGetsReuseConnections(t *testing.T) {
	for name, read := range map[string]func(o *fenced.Object) error{
		"to the end": func(o *fenced.Object) error { _, err := io.ReadAll(o.Body); return err },
		"to its size": func(o *fenced.Object) error {
			_, err := io.ReadFull(o.Body, make([]byte, o.Size))
			return err
		},
		"the first line": func(o *fenced.Object) error {
			_, err := bufio.NewReaderSize(o.Body, 16).ReadByte()
			return err
		},
		"nothing": func(*fenced.Object) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			client, connections := onSocket(t, &fakes3.Server{})
			s := openFenced(t, client, fenced.PaddedBodies)
			require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader(strings.Repeat("line\n", 400))))
			require.NoError(t, s.Put(t.Context(), 1, "data/small", strings.NewReader("small")))
			for range 50 {
				for _, key := range []string{object, "data/small"} {
					o, err := s.Get(t.Context(), key)
					require.NoError(t, err)
					require.NoError(t, read(o))
					require.NoError(t, o.Body.Close())
				}
			}
			// One, and few more: net/http takes a connection back in the background, perhaps after
			// the next request has looked for one.
			require.LessOrEqual(t, connections.Load(), int64(5), "for 100 reads")
		})
	}
}

// A body that is left early is not read to its end, however much is left: its connection goes.
func TestFencedCloseDoesNotReadEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &middleman{server: &fakes3.Server{}}
		s := openFenced(t, fakes3.NewClient(m), fenced.PaddedBodies)
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader(strings.Repeat("x", 1<<20))))
		require.NoError(t, s.Put(t.Context(), 1, "data/small", strings.NewReader("small")))
		for key, slow := range map[string]bool{object: false, "data/small": true} {
			var read atomic.Int64
			m.answer = func(r *http.Request, forward func() *http.Response) *http.Response {
				resp := forward()
				resp.Body = &trickling{ReadCloser: resp.Body, ctx: r.Context(), read: &read, hang: slow}
				return resp
			}
			o, err := s.Get(t.Context(), key)
			require.NoError(t, err)
			began := time.Now()
			require.NoError(t, o.Body.Close())
			require.Less(t, read.Load(), int64(300<<10), key)
			require.Less(t, time.Since(began), time.Second, key)
		}
	})
}

// A Read that is under way must not end the time limit of Close.
func TestFencedCloseDuringARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &middleman{server: &fakes3.Server{}}
		s := openFenced(t, fakes3.NewClient(m), fenced.DistinctBodies)
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("0123456789")))
		m.answer = func(r *http.Request, forward func() *http.Response) *http.Response {
			resp := forward()
			resp.Body = &trickling{ReadCloser: resp.Body, ctx: r.Context(), pause: 50 * time.Millisecond, most: 1}
			return resp
		}
		o, err := s.Get(t.Context(), object)
		require.NoError(t, err)
		ended := make(chan error)
		go func() {
			_, err := io.ReadAll(o.Body)
			ended <- err
		}()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, o.Body.Close())
		require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, o.Body.Close(), "again")
	})
}

// trickling is a body with pauses, which heeds its request's context as one of net/http does.
type trickling struct {
	io.ReadCloser
	ctx   context.Context
	pause time.Duration
	hang  bool
	most  int
	read  *atomic.Int64
}

func (b *trickling) Read(p []byte) (int, error) {
	if b.hang {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	select {
	case <-time.After(b.pause):
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
	if b.most > 0 {
		p = p[:min(b.most, len(p))]
	}
	n, err := b.ReadCloser.Read(p)
	if b.read != nil {
		b.read.Add(int64(n))
	}
	return n, err
}

// stall never answers.
func stall(r *http.Request, _ func() *http.Response) *http.Response {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

func TestFencedRequestsHaveTimeLimits(t *testing.T) {
	newStore := func(t *testing.T) (*fenced.Store, *middleman) {
		m := &middleman{server: &fakes3.Server{MinPartSize: 1}}
		s := openFenced(t, fakes3.NewClient(m), fenced.PaddedBodies, withPartSize())
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader(oldBody)))
		return s, m
	}
	const day = 24 * time.Hour
	limit := func(t *testing.T) context.Context { // a deadline of the caller's own does not replace ours
		ctx, cancel := context.WithTimeout(t.Context(), day)
		t.Cleanup(cancel)
		return ctx
	}
	for _, op := range []string{"HEAD", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload",
		"AbortMultipartUpload"} {
		bubble.Run(t, op+" that hangs once", func(t *testing.T) {
			s, m := newStore(t)
			hung := false
			m.answer = func(r *http.Request, forward func() *http.Response) *http.Response {
				if op == "AbortMultipartUpload" && operation(r) == "UploadPart" && !hung {
					return strangersPage(r, 502, nil, "")
				}
				if operation(r) != op || hung {
					return nil
				}
				hung = true
				return stall(r, forward)
			}
			began := time.Now()
			require.NoError(t, s.Put(limit(t), 1, object, strings.NewReader(newBody)))
			require.Less(t, time.Since(began), 2*time.Minute)
			require.True(t, hung)
		})
	}
	bubble.Run(t, "GET that is not answered", func(t *testing.T) {
		s, m := newStore(t)
		m.answer = stall
		began := time.Now()
		_, err := s.Get(limit(t), object)
		require.ErrorContains(t, err, "no answer")
		require.NotErrorIs(t, err, leasehold.ErrNotExist)
		require.Equal(t, time.Minute, time.Since(began))
	})
	body := func(m *middleman, b trickling) {
		m.answer = func(r *http.Request, forward func() *http.Response) *http.Response {
			resp := forward()
			if r.Method == http.MethodGet {
				b := b
				b.ReadCloser, b.ctx = resp.Body, r.Context()
				resp.Body = &b
			}
			return resp
		}
	}
	bubble.Run(t, "a body that stops", func(t *testing.T) {
		s, m := newStore(t)
		body(m, trickling{hang: true})
		o, err := s.Get(limit(t), object)
		require.NoError(t, err)
		began := time.Now()
		_, err = io.ReadAll(o.Body)
		require.ErrorContains(t, err, "nothing came for 1m0s")
		require.NotErrorIs(t, err, context.Canceled)
		require.Equal(t, time.Minute, time.Since(began))
		require.NoError(t, o.Body.Close())
		synctest.Wait()
		closes, hang := false, m.answer
		m.answer = func(r *http.Request, forward func() *http.Response) *http.Response {
			closes = closes || r.Close
			return hang(r, forward)
		}
		require.Error(t, s.Seal(limit(t), 2, object))
		require.Less(t, time.Since(began), time.Hour)
		require.True(t, closes, "the silent connection is given up")
	})
	bubble.Run(t, "a slow body, and a slow reader", func(t *testing.T) {
		s, m := newStore(t)
		body(m, trickling{pause: 50 * time.Second, most: 100})
		o, err := s.Get(limit(t), object)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		got := make([]byte, 10)
		_, err = io.ReadFull(o.Body, got)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		rest, err := io.ReadAll(o.Body)
		require.NoError(t, err)
		require.Equal(t, oldBody, string(got)+string(rest))
		require.NoError(t, o.Body.Close())
	})
	bubble.Run(t, "the caller's own end comes first", func(t *testing.T) {
		s, m := newStore(t)
		body(m, trickling{hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o, err := s.Get(ctx, object)
		require.NoError(t, err)
		_, err = io.ReadAll(o.Body)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, o.Body.Close())
	})
}

// A server that honours only one of the two conditions of CompleteMultipartUpload is refused,
// before a large body is written.
func TestFencedLargeWritesNeedBothConditions(t *testing.T) {
	for name, server := range map[string]*fakes3.Server{
		"If-Match":      {IgnoreCompleteMatch: true, MinPartSize: 1},
		"If-None-Match": {IgnoreCompleteNoneMatch: true, MinPartSize: 1},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			f := newFenced(t, server, fenced.PaddedBodies, withPartSize())
			require.NoError(t, f.Put(t.Context(), 2, object, strings.NewReader("short")))
			for _, key := range []string{object, "data/new"} {
				err := f.Put(t.Context(), 2, key, strings.NewReader(newBody))
				require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
				require.ErrorContains(t, err, "CompleteMultipartUpload")
				require.ErrorContains(t, err, name)
			}
			require.Equal(t, "short", strings.TrimRight(string(server.Body(object)), " \t"))
			require.Equal(t, []string{"data/first", object}, server.Keys(), "nothing is left behind")
			require.Zero(t, server.Uploads())
		})
	}
}

// A server that wants ETags without quotes is told apart by the check, and takes small and large
// writes.
func TestFencedWritesWithoutQuotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{BareIfMatch: true, MinPartSize: 1}
		f := newFenced(t, server, fenced.PaddedBodies, withPartSize())
		for _, body := range []string{"short", newBody, oldBody, "short"} {
			require.NoError(t, f.Put(t.Context(), 2, object, strings.NewReader(body)))
			require.Equal(t, body, strings.TrimRight(string(server.Body(object)), " \t"))
		}
		require.NoError(t, f.Seal(t.Context(), 3, object))
		require.ErrorIs(t, f.Put(t.Context(), 2, object, strings.NewReader("late")), leasehold.ErrFenced)
		require.Equal(t, []string{"data/.leasehold-etag", "data/first", object}, server.Keys())
	})
}

func TestFencedChecksCostWhatIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, &fakes3.Server{MinPartSize: 1}, fenced.PaddedBodies, withPartSize())
		// of three parts, with the padding
		require.NoError(t, f.Put(t.Context(), 1, object, strings.NewReader(newBody)))
		require.Len(t, f.sent(), 1+14+1+3+1, "HEAD, the check, create, parts, complete")
		require.NoError(t, f.Put(t.Context(), 1, object, strings.NewReader(newBody)))
		require.Len(t, f.sent(), 2+1+3+1, "two HEADs, because it replaces an object")
	})
}

// A large write of a former leader that comes to its last request after a new one has sealed the
// object.
func TestFencedLargeWriteComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{MinPartSize: 1}
		m := &middleman{server: server}
		s := openFenced(t, fakes3.NewClient(m), fenced.PaddedBodies, withPartSize())
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader(oldBody)))
		sealed := false
		m.answer = func(r *http.Request, _ func() *http.Response) *http.Response {
			if operation(r) == "CompleteMultipartUpload" && !sealed {
				sealed = true
				next := openFenced(t, fakes3.NewClient(&middleman{server: server}), fenced.PaddedBodies, withPartSize())
				require.NoError(t, next.Seal(t.Context(), 2, object))
			}
			return nil
		}
		require.ErrorIs(t, s.Put(t.Context(), 1, object, strings.NewReader(newBody)), leasehold.ErrFenced)
		require.Equal(t, oldBody, strings.TrimRight(string(server.Body(object)), " \t"))
		require.Zero(t, server.Uploads())
	})
}

// What S3 keeps with a body stays when it is written again, or the rewrite is refused.
func TestFencedSealLosesNothing(t *testing.T) {
	const redirect, kms = "X-Amz-Website-Redirect-Location", "X-Amz-Server-Side-Encryption"
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range []fenced.ETagMode{fenced.UniqueETags, fenced.PaddedBodies} {
			for _, body := range []string{"short", oldBody} {
				server := &fakes3.Server{RandomETags: mode == fenced.UniqueETags, MinPartSize: 1}
				f := newFenced(t, server, mode, fenced.WithAdoption(), withPartSize())
				kept := http.Header{
					"Content-Type": {"text/csv"}, "Content-Language": {"de"}, "Content-Disposition": {"attachment"},
					"Cache-Control": {"no-cache"},
					"Expires":       {"Wed, 21 Oct 2026 07:28:00 GMT"}, redirect: {"/other"},
					"X-Amz-Storage-Class": {"STANDARD_IA"},
					kms:                   {"aws:kms"}, kms + "-Aws-Kms-Key-Id": {"key"}, kms +
						"-Bucket-Key-Enabled": {"true"},
					"X-Amz-Meta-Author": {"alice"},
				}
				if mode == fenced.UniqueETags {
					kept.Set("Content-Encoding", "gzip")
				}
				server.PutWith(object, []byte(body), kept)
				require.NoError(t, f.Seal(t.Context(), 1, object))
				for name, values := range kept {
					require.Equal(t, values, server.Header(object)[name], "%s", name)
				}
				got, _ := fencedtest.Read(t, f.Store, object)
				require.Equal(t, body, got)

				for says, h := range map[string]http.Header{
					"2 tags":                       {"X-Amz-Tagging-Count": {"2"}},
					"a legal hold":                 {"X-Amz-Object-Lock-Legal-Hold": {"ON"}},
					"a retention period":           {"X-Amz-Object-Lock-Mode": {"GOVERNANCE"}},
					"metadata that S3 cannot show": {"X-Amz-Missing-Meta": {"1"}},
					`Expires: "0"`:                 {"Expires": {"0"}},
				} {
					etag := server.PutWith(object, []byte(body), h)
					err := f.Seal(t.Context(), 3, object)
					require.ErrorContains(t, err, says)
					require.ErrorContains(t, err, "lose")
					require.Equal(t, body, string(server.Body(object)))
					got, err := f.Get(t.Context(), object)
					require.NoError(t, err)
					require.NoError(t, got.Body.Close())
					require.Equal(t, etag, got.ETag, "not written again")
				}
			}
		}
	})
}

// Padding after a compressed body breaks those that read it.
func TestFencedPaddingOfEncodedBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, &fakes3.Server{}, fenced.PaddedBodies, fenced.WithAdoption())
		for _, encoding := range []string{"gzip", "br", "aws-chunked,gzip"} {
			f.server.PutWith(object, []byte("theirs"), http.Header{"Content-Encoding": {encoding}})
			err := f.Seal(t.Context(), 1, object)
			require.ErrorContains(t, err, "Content-Encoding")
			require.ErrorContains(t, err, "UniqueETags")
			require.ErrorContains(t, err, "DistinctBodies")
			require.Equal(t, "theirs", string(f.server.Body(object)))
		}
		f.server.PutWith(object, []byte("theirs"), http.Header{"Content-Encoding": {"identity"}})
		require.NoError(t, f.Seal(t.Context(), 1, object))
		require.NoError(t, f.Put(t.Context(), 1, object, strings.NewReader("ours")))
	})
}

// With unique ETags, the encryption of an old object must not bring back an ETag that repeats.
func TestFencedSealTakesTheBucketsEncryption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, &fakes3.Server{RandomETags: true}, fenced.UniqueETags, fenced.WithAdoption())
		f.server.PutWith(object, []byte("theirs"), http.Header{"X-Amz-Server-Side-Encryption": {"AES256"}})
		require.NoError(t, f.Seal(t.Context(), 1, object))
		require.Empty(t, f.server.Header(object).Get("X-Amz-Server-Side-Encryption"),
			"not asked for, so that the bucket's default applies")
	})
}

func TestFencedTokensThatNoLockIssues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const highest = 1<<53 - 1
		f := newFenced(t, &fakes3.Server{}, fenced.PaddedBodies)
		for name, write := range map[string]func(token uint64) error{
			"put":    func(token uint64) error { return f.Put(t.Context(), token, object, strings.NewReader("x")) },
			"delete": func(token uint64) error { return f.Delete(t.Context(), token, object) },
			"seal":   func(token uint64) error { return f.Seal(t.Context(), token, object) },
		} {
			require.ErrorContains(t, write(highest+1), "2^53-1", name)
			require.Empty(t, f.sent(), name)
		}
		f.server.PutWith(object, []byte(
			"theirs"), http.Header{"X-Amz-Meta-Leasehold-Token": {fmt.Sprint(uint64(highest + 1))}})
		_, err := f.Get(t.Context(), object)
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
		require.ErrorIs(t, f.Put(t.Context(), highest, object, strings.NewReader("x")), leasehold.ErrCorruptRecord)
		require.Equal(t, "theirs", string(f.server.Body(object)))
		require.NoError(t, f.Put(t.Context(), highest, "data/other", strings.NewReader("x")))
	})
}

func TestFencedOptionsAreCloned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, &fakes3.Server{}, fenced.PaddedBodies)
		m := map[string]string{"author": "alice"}
		author := fenced.WithMetadata(m)
		m["author"] = "bob"
		require.NoError(t, f.Put(t.Context(), 1, object, strings.NewReader("x"), author))
		require.Equal(t, "alice", f.server.Header(object).Get("X-Amz-Meta-Author"))
	})
}

// A body that ends early at the source is an error of the write, also in parts, and nothing is
// completed.
func TestFencedPutOfAShrinkingBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, &fakes3.Server{MinPartSize: 1}, fenced.PaddedBodies, withPartSize())
		for _, size := range []int{4, testPart, 3 * testPart} {
			err := f.Put(t.Context(), 1, object, fencedtest.Shortened(size))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, size)
			require.Nil(t, f.server.Body(object))
			require.Zero(t, f.server.Uploads())
		}
		failed := errors.New("disk failed")
		err := f.Put(t.Context(), 1, object, struct {
			io.Reader
			io.Seeker
		}{failing{failed}, strings.NewReader("four")})
		require.ErrorIs(t, err, failed)
	})
}
