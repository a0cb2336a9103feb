package azblobstore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
)

const (
	page = "<!DOCTYPE html><html><body><p>Please log in.</body></html>"
	hint = "is this Azure Blob Storage?"
)

// over returns a client for a server on a real socket.
func over(t *testing.T, endpoint string) *azblob.Client {
	connections := &http.Transport{}
	t.Cleanup(connections.CloseIdleConnections)
	return newClient(t, endpoint+"/"+account, &http.Client{Transport: connections})
}

// A reply from a proxy or a web site says nothing about the blob: it is neither a success, nor
// "absent", nor "refused", nor "unsafe". That holds for statuses and codes that would mean
// something in Azure's own reply.
func TestRepliesThatAreNotAzures(t *testing.T) {
	type answer = func(w http.ResponseWriter, r *http.Request)
	etag := func(w http.ResponseWriter) { w.Header().Set("ETag", someETag) }
	azures := func(w http.ResponseWriter) { w.Header().Set("X-Ms-Request-Id", "1"); etag(w) }
	document := func(code string) string {
		return `<?xml version="1.0" encoding="utf-8"?><Error><Code>` + code + `</Code><Message>text</Message></Error>`
	}
	redirect := func(status int) answer { // to a reply that would do
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/elsewhere" {
				http.Redirect(w, r, "/elsewhere", status)
				return
			}
			azures(w)
			w.WriteHeader(success(r))
			_, _ = io.WriteString(w, "{}")
		}
	}
	status := func(status int, body string) answer {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = io.WriteString(w, body) }
	}
	headed := func(status int, head func(http.ResponseWriter)) answer {
		return func(w http.ResponseWriter, _ *http.Request) {
			head(w)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "{}")
		}
	}
	cutOff := func(status int, length string) answer { // an error document that ends early
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>BlobNotFound</Code><Mess`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	// with Azure's code, in the header or the document, but without its ID
	code := func(status int, code string) answer {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Ms-Error-Code", code)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, document(code))
		}
	}
	for name, answer := range map[string]answer{
		"a page": status(200, page),
		"a page with an ETag": headed(200, func(w http.ResponseWriter) {
			etag(w)
			w.Header().Set("Content-Type", "text/html")
		}),
		"a page in chunks": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, page)
			w.(http.Flusher).Flush()
		},
		"text":                        status(200, "OK"),
		"nothing":                     status(200, ""),
		"200 with an ETag":            headed(200, etag),
		"201":                         status(201, ""),
		"201 with an ETag":            headed(201, etag),
		"202":                         status(202, ""),
		"204":                         status(204, ""),
		"206 with everything":         headed(206, azures),
		"203 with everything":         headed(203, azures),
		"304":                         status(304, ""),
		"302 to nowhere":              status(302, ""),
		"302 to a blob":               redirect(302),
		"303 to a blob":               redirect(303),
		"307 to a blob":               redirect(307),
		"404 page":                    status(404, page),
		"404 of a Go server":          status(404, "404 page not found\n"),
		"404 with a code":             code(404, "BlobNotFound"),
		"404 with a code in the body": status(404, document("BlobNotFound")),
		"404 with an ID, no code":     headed(404, azures),
		"404 cut off":                 cutOff(404, "1000"),
		"404 chunks cut off":          cutOff(404, ""),
		"403 page":                    status(403, page),
		"403 with a code":             code(403, "AuthenticationFailed"),
		"400 page":                    status(400, page),
		"407 page":                    status(407, page),
		"409 with a code":             code(409, "BlobAlreadyExists"),
		"409 with a code in the body": status(409, document("BlobAlreadyExists")),
		"412 page":                    status(412, page),
		"412 with a code":             code(412, "ConditionNotMet"),
		"412 with a code in the body": status(412, document("ConditionNotMet")),
		"412 with an ID, no code":     headed(412, azures),
		"412 with an ID, code in body": func(w http.ResponseWriter, _ *http.Request) {
			azures(w)
			w.WriteHeader(412)
			_, _ = io.WriteString(w, document("ConditionNotMet"))
		},
		"an ID, but no ETag": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Ms-Request-Id", "1")
			w.WriteHeader(success(r))
		},
		"an ID, but a weak ETag": func(w http.ResponseWriter, r *http.Request) {
			azures(w)
			w.Header().Set("ETag", "W/"+someETag)
			w.WriteHeader(success(r))
		},
		"an ID, but an ETag of any": func(w http.ResponseWriter, r *http.Request) {
			azures(w)
			w.Header().Set("ETag", "*")
			w.WriteHeader(success(r))
		},
		"an ETag and success, no ID": func(w http.ResponseWriter, r *http.Request) {
			etag(w)
			w.WriteHeader(success(r))
		},
		"success, and nothing of Azure": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(success(r)) },
	} {
		for call, do := range storeCalls {
			if strings.HasPrefix(name, "an ID, but") && call == "DeleteIfMatch" {
				continue // which needs no ETag
			}
			t.Run(name+"/"+call, func(t *testing.T) {
				t.Parallel()
				var sound atomic.Bool // at first the server answers as Azure does
				sound.Store(true)
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if sound.Load() {
						refuse(w, deny(http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists."))
						return
					}
					answer(w, r)
				}))
				t.Cleanup(server.Close)
				s := azblobstore.New(over(t, server.URL), container)
				_, err := s.PutIfNoneMatch(t.Context(), key, nil)
				requireOnly(t, leasehold.ErrPreconditionFailed, err)
				sound.Store(false)
				for range 5 {
					err := do(t.Context(), s, someETag)
					requireOnly(t, nil, err)
					requireText(t, err)
					require.ErrorContains(t, err, hint)
				}
				s = azblobstore.New(over(t, server.URL), container)
				for i := range 3 {
					err = do(t.Context(), s, someETag)
					require.ErrorContains(t, err, hint)
					if i < 2 {
						requireOnly(t, nil, err)
					}
				}
				requireOnly(t, leasehold.ErrPermanent, err)
			})
		}
	}
}

// success is the status that Azure answers to a request of its kind.
func success(r *http.Request) int {
	switch r.Method {
	case http.MethodPut:
		return http.StatusCreated
	case http.MethodDelete:
		return http.StatusAccepted
	}
	return http.StatusOK
}

// A newcomer's mistakes are reported at once, with the cause and what to do.
func TestEndpointsThatCannotWorkAreTold(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, page)
	}))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	for name, c := range map[string]struct {
		endpoint string
		says     []string
	}{
		"an unknown host": {
			"http://azure.invalid",
			[]string{"no such host", `the host "azure.invalid" is unknown: check the endpoint`},
		},
		"no such port": {"http://127.0.0.1:99999", []string{"invalid port", "is not an address"}},
		"https for http": {
			"https" + strings.TrimPrefix(plain.URL, "http"),
			[]string{"server gave HTTP response to HTTPS client", "this port speaks http, not https"},
		},
		"http for https": {"http" + strings.TrimPrefix(secure.URL, "https"), []string{"status 400", hint}},
		"a web site":     {plain.URL, []string{"the answer is a web page", hint}},
	} {
		t.Run(name, func(t *testing.T) {
			s := azblobstore.New(over(t, c.endpoint), container)
			var err error
			for range 3 {
				if _, err = s.Get(t.Context(), key); errors.Is(err, leasehold.ErrPermanent) {
					break
				}
			}
			requireOnly(t, leasehold.ErrPermanent, err)
			requireText(t, err)
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
}

func TestFaultsOfThisMachineMayPassOnceTheServerHasAnswered(t *testing.T) {
	w := newWire(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	s := azblobstore.New(w.client, container)
	_, err := s.Get(t.Context(), key)
	requireOnly(t, nil, err)
	w.Base = lost{}
	_, err = s.Get(t.Context(), key)
	requireOnly(t, nil, err)
	require.ErrorContains(t, err, "no such host")
	_, err = azblobstore.New(w.client, container).Get(t.Context(), key)
	requireOnly(t, leasehold.ErrPermanent, err)
}

// lost is a network whose resolver does not find the host.
type lost struct{}

func (lost) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = "gone.invalid"
	return (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
}

// Whoever knows a SAS has its rights, and errors end in logs and health checks. The SDK's errors of
// requests without an answer have the URL, and so the SAS.
func TestNoErrorHasTheSignatureOfASAS(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"refused": nil,
		"closed":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"late": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client has gone
			<-r.Context().Done()
		},
		"a loop": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
		},
		"cut off": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Ms-Request-Id", "1")
			w.Header().Set("ETag", someETag)
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(success(r))
			_, _ = io.WriteString(w, "{}")
		},
		"denied": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Ms-Request-Id", "1")
			w.Header().Set("X-Ms-Error-Code", "AuthenticationFailed")
			w.WriteHeader(http.StatusForbidden)
		},
	} {
		endpoint := gone.URL
		if answer != nil {
			server := httptest.NewServer(answer)
			t.Cleanup(server.Close)
			endpoint = server.URL
		}
		connections := &http.Transport{}
		t.Cleanup(connections.CloseIdleConnections)
		client, err := azblob.NewClientWithNoCredential(endpoint+"/"+account+"?sv=2026-02-06&sig=hunter2%2Fx%3D",
			&azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: connections}}})
		require.NoError(t, err)
		check := func(what string, err error) {
			t.Helper()
			require.NotContains(t, err.Error(), "hunter2", "%s: %s", name, what)
			require.NotContains(t, err.Error(), "sig=", "%s: %s", name, what)
		}
		for what, call := range storeCalls {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			err := call(ctx, azblobstore.New(client, container), someETag)
			cancel()
			if name != "cut off" || what == "Get" {
				require.Error(t, err, "%s: %s", name, what)
				check(what, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		files, err := azblobstore.NewFencedStore(client, container)
		require.NoError(t, err)
		_, err = files.Get(ctx, key)
		if err != nil {
			check("fenced Get", err)
		}
		err = files.Put(ctx, 1, key, strings.NewReader("{}"))
		cancel()
		require.Error(t, err)
		check("fenced Put", err)
	}
}
