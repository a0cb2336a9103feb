package azblobstore_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/fencedtest"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/storetest"
)

const (
	object = "data/report.json"
	large  = 9 << 20 // two blocks
)

func openFenced(t *testing.T, client *azblob.Client, opts ...fenced.Option) *fenced.Store {
	t.Helper()
	s, err := azblobstore.NewFencedStore(client, container, opts...)
	require.NoError(t, err)
	return s
}

func TestFencedStoreKeepsItsPromises(t *testing.T) {
	for _, refused := range []int{404, 412} {
		t.Run(fmt.Sprint("missing is ", refused), func(t *testing.T) {
			server := &fakeAzure{files: true, missingRefused404: refused == 404, createRefused412: refused == 412}
			fencedtest.Run(t, fencedtest.Backend{
				Open: func(opts ...fenced.Option) *fenced.Store {
					return openFenced(t, newWire(t, server).client, opts...)
				},
				Plant: func(key, body string) { server.plant(key, []byte(body), nil) },
				Large: large,
			})
		})
	}
}

func TestFencedBackendConforms(t *testing.T) {
	for _, refused := range []int{404, 412} {
		t.Run(fmt.Sprint("missing is ", refused), func(t *testing.T) {
			server := &fakeAzure{files: true, missingRefused404: refused == 404, createRefused412: refused == 412}
			w := newWire(t, server)
			storetest.RunFenced(t, func(*testing.T) fenced.Backend {
				return azblobstore.NewFencedBackend(w.client, container)
			}, large)
		})
	}
}

func TestFencedBackendConformsOnAzurite(t *testing.T) {
	a := startAzurite(t, testserver.AnyAPIVersion)
	a.newContainer()
	client, _ := a.connect(nil)
	storetest.RunFenced(t, func(*testing.T) fenced.Backend {
		return azblobstore.NewFencedBackend(client, container)
	}, large)
}

func TestFencedStoreKeepsItsPromisesOnAzurite(t *testing.T) {
	a := startAzurite(t, testserver.AnyAPIVersion)
	a.newContainer()
	open := func() *azblob.Client {
		client, _ := a.connect(nil)
		return client
	}
	fencedtest.Run(t, fencedtest.Backend{
		Open: func(opts ...fenced.Option) *fenced.Store { return openFenced(t, open(), opts...) },
		Plant: func(key, body string) {
			_, err := open().UploadBuffer(t.Context(), container, key, []byte(body), nil)
			require.NoError(t, err)
		},
		Large: large,
	})
}

func TestFencedWritesCostWhatIsSaid(t *testing.T) {
	w := newWire(t, &fakeAzure{files: true})
	s, ctx := openFenced(t, w.client), t.Context()
	from := w.Count()
	sent := func() []string {
		methods := w.Methods(from)
		from += len(methods)
		return methods
	}
	put := func(token uint64, size int) error {
		return s.Put(ctx, token, object, bytes.NewReader(make([]byte, size)))
	}
	require.NoError(t, put(1, 1))
	require.Equal(t, []string{"PUT", "HEAD", "DELETE", "HEAD", "PUT"}, sent(), "the check comes first")
	require.NoError(t, s.Put(ctx, 1, "data/another", strings.NewReader("x")))
	require.Equal(t, []string{"HEAD", "PUT"}, sent())
	fencedtest.Read(t, s, object)
	require.Equal(t, []string{"GET"}, sent())
	require.NoError(t, s.Seal(ctx, 2, object))
	require.Equal(t, []string{"HEAD", "PUT"}, sent())
	require.NoError(t, s.Seal(ctx, 2, object))
	require.Equal(t, []string{"HEAD"}, sent(), "claimed already")
	require.ErrorIs(t, put(1, 1), leasehold.ErrFenced)
	require.Equal(t, []string{"HEAD"}, sent())
	require.NoError(t, s.Delete(ctx, 2, object))
	require.Equal(t, []string{"HEAD", "PUT"}, sent())
	require.NoError(t, put(2, 8<<20))
	require.Equal(t, []string{"HEAD", "PUT"}, sent())
	require.NoError(t, put(2, large))
	require.Equal(t, []string{"HEAD", "PUT", "PUT", "PUT"}, sent(), "two blocks, and their list")
	require.NoError(t, s.Seal(ctx, 3, object))
	require.Equal(t, []string{"HEAD", "PUT"}, sent(), "whatever the size")
}

// A token that is hidden must not be taken for none, by an adoption least of all. nginx drops
// request headers with an underscore unless it is told otherwise. Where they are signed, Azure
// refuses the request; under a SAS it takes it, and the blob has no token.
func TestFencedStoreNeedsItsMetadata(t *testing.T) {
	hide := func(h http.Header) {
		maps.DeleteFunc(h, func(name string, _ []string) bool {
			return strings.HasPrefix(http.CanonicalHeaderKey(name), "X-Ms-Meta-")
		})
	}
	server := &fakeAzure{files: true}
	fencedtest.NeedsMetadata(t, server, map[string]func(http.Handler) http.Handler{
		"in requests": func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				server.ServeHTTP(w, r)
				for name, blob := range server.blobs {
					if strings.HasSuffix(r.URL.Path, name) && r.Method == http.MethodPut {
						hide(blob.header)
					}
				}
			})
		},
		"in answers": func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				whole := httptest.NewRecorder()
				server.ServeHTTP(whole, r)
				hide(whole.Header())
				maps.Copy(w.Header(), whole.Header())
				w.WriteHeader(whole.Code)
				_, _ = w.Write(whole.Body.Bytes())
			})
		},
	}, func(server http.Handler, opts ...fenced.Option) *fenced.Store {
		return openFenced(t, newWire(t, server).client, opts...)
	}, func() map[string]string {
		stored := make(map[string]string)
		for name, blob := range server.blobs {
			stored[name] = blob.etag
		}
		return stored
	})
}

// The checks of several processes share an object, which the last one removes.
func TestFencedChecksAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeAzure{files: true}
		var wg sync.WaitGroup
		for i := range 8 {
			w := newWire(t, server)
			w.Decide = func(*http.Request) faultproxy.Fault { // others come in between
				return faultproxy.Fault{Before: rand.N(30 * time.Millisecond), After: rand.N(30 * time.Millisecond)}
			}
			s := openFenced(t, w.client)
			wg.Go(func() {
				assert.NoError(t, s.Put(t.Context(), 1, fmt.Sprint("data/", i), strings.NewReader("x")))
			})
		}
		wg.Wait()
		require.Len(t, server.blobs, 8)
	})
}

func TestFencedWriteWhoseAnswerIsLost(t *testing.T) {
	w := newWire(t, &fakeAzure{files: true})
	s := openFenced(t, w.client)
	require.NoError(t, s.Put(t.Context(), 1, "data/first", strings.NewReader("x")), "after the check")
	for name, write := range map[string]func() error{
		"put":  func() error { return s.Put(t.Context(), 1, object, strings.NewReader("1")) },
		"seal": func() error { return s.Seal(t.Context(), 1, "another") },
	} {
		for _, fault := range []faultproxy.Fault{
			{Kind: faultproxy.DropReply}, {Kind: faultproxy.AnswerAfter, Status: http.StatusPreconditionFailed},
			{Kind: faultproxy.AnswerAfter, Status: http.StatusServiceUnavailable},
		} {
			if name == "seal" && fault.Kind != faultproxy.DropReply {
				continue // it is claimed already
			}
			w.Fail(http.MethodPut, fault)
			from := w.Count()
			require.NoError(t, write())
			require.Equal(t, 3, w.Count()-from, "%s, %+v: recognised by its nonce, not written again", name, fault)
		}
	}
	for _, fault := range []faultproxy.Fault{{Kind: faultproxy.Refuse},
		{Kind: faultproxy.Answer, Status: http.StatusConflict}} {
		w.Fail(http.MethodPut, fault)
		from := w.Count()
		require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("1")))
		require.Equal(t, 4, w.Count()-from, "%+v: written again", fault)
	}
}

// What an upload leaves behind when it breaks off is nobody's, and goes with the next write of the
// key.
func TestFencedUploadThatBreaksOff(t *testing.T) {
	run := func(t *testing.T, s *fenced.Store, left func() int, removes bool) {
		for _, exists := range []bool{false, true} {
			if exists {
				require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("old")))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			require.Error(t, s.Put(ctx, 1, object, fencedtest.Shortened(large)))
			cancel()
			require.Positive(t, left())
			if exists {
				body, _ := fencedtest.Read(t, s, object)
				require.Equal(t, "old", body)
			} else {
				_, err := s.Get(t.Context(), object)
				require.ErrorIs(t, err, leasehold.ErrNotExist)
			}
			require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("new")))
			if removes {
				require.Zero(t, left())
			}
			require.NoError(t, s.Delete(t.Context(), 1, object))
		}
	}
	t.Run("strict server", func(t *testing.T) {
		server := &fakeAzure{files: true}
		w := newWire(t, server)
		run(t, openFenced(t, w.client), func() int {
			server.mu.Lock()
			defer server.mu.Unlock()
			return len(server.blocks[object])
		}, true)
	})
	t.Run("Azurite", func(t *testing.T) {
		a := startAzurite(t, testserver.AnyAPIVersion)
		a.newContainer()
		client, _ := a.connect(nil)
		blob := client.ServiceClient().NewContainerClient(container).NewBlockBlobClient(object)
		run(t, openFenced(t, client), func() int {
			list, err := blob.GetBlockList(t.Context(), blockblob.BlockListTypeUncommitted, nil)
			require.NoError(t, err)
			return len(list.UncommittedBlocks)
		}, false) // Azurite keeps them
	})
}

// Another write that ends while the blocks go up removes them. The list is refused, and the upload
// starts again.
func TestFencedUploadWhoseBlocksAreRemoved(t *testing.T) {
	server := &fakeAzure{files: true}
	w := newWire(t, server)
	s, other := openFenced(t, w.client), openFenced(t, newWire(t, server).client)
	require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("old")))
	var once sync.Once
	w.Decide = func(r *http.Request) (f faultproxy.Fault) {
		if r.URL.Query().Get("comp") == "blocklist" {
			once.Do(func() {
				server.mu.Lock()
				defer server.mu.Unlock()
				clear(server.blocks)
			})
		}
		return f
	}
	body := strings.Repeat("x", large)
	require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader(body)))
	got, _ := fencedtest.Read(t, other, object)
	require.True(t, body == got)
}

func TestFencedSealKeepsWhatIsStoredWithABody(t *testing.T) {
	a := startAzurite(t, testserver.AnyAPIVersion)
	a.newContainer()
	client, _ := a.connect(nil)
	s := openFenced(t, client, fenced.WithAdoption())
	_, err := client.UploadBuffer(t.Context(), container, object, []byte("theirs"), &azblob.UploadBufferOptions{
		HTTPHeaders: &blob.HTTPHeaders{BlobContentType: to.Ptr("text/html"), BlobContentLanguage: to.Ptr("de"),
			BlobContentEncoding:    to.Ptr("br"),
			BlobContentDisposition: to.Ptr("attachment"), BlobCacheControl: to.Ptr("no-cache")},
		Metadata: map[string]*string{"Author": to.Ptr("alice")}, Tags: map[string]string{"kind": "report"},
		AccessTier: to.Ptr(blob.AccessTierCool),
	})
	require.NoError(t, err)
	require.NoError(t, s.Seal(t.Context(), 1, object))
	of := client.ServiceClient().NewContainerClient(container).NewBlobClient(object)
	p, err := of.GetProperties(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"text/html", "de", "br", "attachment", "no-cache", "Cool"},
		[]string{*p.ContentType, *p.ContentLanguage, *p.ContentEncoding, *p.ContentDisposition,
			*p.CacheControl, *p.AccessTier})
	require.EqualValues(t, 1, *p.TagCount)
	body, o := fencedtest.Read(t, s, object)
	require.Equal(t, []any{"theirs", uint64(1), map[string]string{"author": "alice"}}, []any{body, o.Token, o.Metadata})
}

func TestFencedMetadataNamesAreIdentifiers(t *testing.T) {
	w := newWire(t, &fakeAzure{files: true})
	s := openFenced(t, w.client)
	for name, says := range map[string]string{
		"build-id":        "C# identifier",
		"2nd":             "C# identifier",
		"leasehold_token": "must not begin",
	} {
		err := s.Put(t.Context(), 1, object, strings.NewReader("x"), fenced.WithMetadata(map[string]string{name: "1"}))
		require.ErrorIs(t, err, leasehold.ErrPermanent, name)
		require.ErrorContains(t, err, says)
	}
	require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader("x"),
		fenced.WithMetadata(map[string]string{"build_id": "1"})))
	_, o := fencedtest.Read(t, s, object)
	require.Equal(t, map[string]string{"build_id": "1"}, o.Metadata)
}

func TestFencedPutOfABodyThatFails(t *testing.T) {
	server := &fakeAzure{files: true}
	s := openFenced(t, newWire(t, server).client)
	for _, size := range []int{100, 1 << 20, large} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		require.Error(t, s.Put(ctx, 1, object, fencedtest.Shortened(size)))
		cancel()
		require.Empty(t, server.blobs, "%d bytes", size)
	}
}

func TestFencedRequestsHaveTimeLimits(t *testing.T) {
	for _, method := range []string{http.MethodHead, http.MethodPut} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t, &fakeAzure{files: true})
			s := openFenced(t, w.client)
			w.Fail(method, faultproxy.Fault{Before: 24 * time.Hour})
			ctx := testctx.Within(t, 24*time.Hour)
			began := time.Now()
			require.NoError(t, s.Put(ctx, 1, object, strings.NewReader("x")))
			require.InDelta(t, time.Minute, time.Since(began), float64(time.Second), method)
			w.FailAlways(faultproxy.Fault{Before: 24 * time.Hour})
			_, err := s.Get(ctx, object)
			require.ErrorContains(t, err, "no answer for 1m0s")
		})
	}
}

func TestFencedBodyThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fencedtest.StoppedBody(t, func(wrap func(http.RoundTripper) http.RoundTripper) *fenced.Store {
			w := newWire(t, &fakeAzure{files: true})
			w.Base = wrap(w.Base)
			return openFenced(t, w.client)
		})
	})
}

func TestFencedStoreRefusesBadArguments(t *testing.T) {
	w := newWire(t, &fakeAzure{files: true})
	fencedtest.BadArguments(t, map[string]func() (*fenced.Store, error){
		"client is nil": func() (*fenced.Store, error) { return azblobstore.NewFencedStore(nil, container) },
		"an Option is nil": func() (*fenced.Store, error) {
			return azblobstore.NewFencedStore(w.client, container, nil)
		},
		"is a URL": func() (*fenced.Store, error) { return azblobstore.NewFencedStore(w.client, "azblob://b") },
	})
	require.Zero(t, w.Count())
	missing, err := azblobstore.NewFencedStore(w.client, "no-such-container")
	require.NoError(t, err)
	err = missing.Put(t.Context(), 1, object, strings.NewReader("x"))
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, "create the container")
}
