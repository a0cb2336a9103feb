package gcsstore_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/storage"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gcsstore"
)

const (
	page = "<!DOCTYPE html><html><body><p>Please log in.</body></html>"
	hint = "is this Cloud Storage?"
)

// over returns a client for a server on a real socket. It reads by the JSON API, as a client of
// NewClient does, or by the XML API.
func over(t *testing.T, endpoint, reads string) *storage.Client {
	connections := &http.Transport{}
	opts := []option.ClientOption{option.WithoutAuthentication(),
		option.WithHTTPClient(&http.Client{Transport: gcsstore.Transport(connections)}),
		option.WithEndpoint(endpoint + "/storage/v1/")}
	if reads == "JSON" {
		opts = append(opts, storage.WithJSONReads())
	}
	client, err := storage.NewClient(t.Context(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close(); connections.CloseIdleConnections() })
	return client
}

// A reply from a proxy or a web site says nothing about the object: it is neither a success, nor
// "absent", nor "refused", nor "unsafe".
func TestRepliesThatAreNotCloudStorages(t *testing.T) {
	object := `{"generation":"5","crc32c":"` + checksum([]byte("{}")) + `"}`
	generation := func(w http.ResponseWriter) { w.Header().Set("X-Goog-Generation", "5") }
	type answer = func(w http.ResponseWriter, r *http.Request)
	redirect := func(status int) answer {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/elsewhere" {
				http.Redirect(w, r, "/elsewhere", status)
				return
			}
			generation(w)
			_, _ = io.WriteString(w, object)
		}
	}
	status := func(status int, body string) answer {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = io.WriteString(w, body) }
	}
	cutOff := func(status int, length string) answer { // an error document that ends early
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=UTF-8")
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":{"message":"`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	for name, c := range map[string]struct {
		answer answer
		fine   string // operations for which it is a valid answer
		told   bool   // the error is temporary and has no hint
	}{
		"a page": {answer: status(200, page)},
		"a page with a generation": {answer: func(w http.ResponseWriter, _ *http.Request) {
			generation(w)
			_, _ = io.WriteString(w, page)
		}},
		"a page in chunks": {answer: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, page)
			w.(http.Flusher).Flush()
		}},
		"text":                           {answer: status(200, "OK"), fine: "DeleteIfMatch"},
		"nothing":                        {answer: status(200, ""), fine: "DeleteIfMatch", told: true},
		"an object without a generation": {answer: status(200, "{}"), fine: "DeleteIfMatch", told: true},
		"204":                            {answer: status(204, ""), fine: "DeleteIfMatch", told: true},
		"206": {answer: func(w http.ResponseWriter, _ *http.Request) {
			generation(w)
			w.Header().Set("Content-Range", "bytes 0-1/100")
			w.WriteHeader(206)
			_, _ = io.WriteString(w, "{}")
		}, told: true},
		"304":                {answer: status(304, "")},
		"302 to nowhere":     {answer: status(302, "")},
		"302 to an object":   {answer: redirect(302)},
		"303 to an object":   {answer: redirect(303)},
		"307 to an object":   {answer: redirect(307)},
		"404 page":           {answer: status(404, page)},
		"403 page":           {answer: status(403, page)},
		"403 cut off":        {answer: cutOff(403, "1000"), told: true}, // its reason might have been a rate limit
		"403 chunks cut off": {answer: cutOff(403, ""), told: true},
		"400 cut off":        {answer: cutOff(400, "1000"), told: true},
		"407 page":           {answer: status(407, page)},
		"412 page":           {answer: status(412, page)},
		// there the error says "create the bucket, or correct the endpoint"
		"404 of a Go server": {answer: status(404, "404 page not found\n"), fine: "PutIfNoneMatch PutIfMatch"},
	} {
		for call, do := range storeCalls {
			if strings.Contains(" "+c.fine+" ", " "+call+" ") {
				continue
			}
			for _, reads := range []string{"JSON", "XML"} {
				if reads == "XML" && name == "404 of a Go server" && call == "Get" {
					continue // by the XML API the client reports only that it was a 404
				}
				t.Run(name+"/"+call+"/"+reads, func(t *testing.T) {
					t.Parallel()
					var sound atomic.Bool // at first the server answers as Cloud Storage does
					sound.Store(true)
					server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if sound.Load() {
							refuse(w, http.StatusPreconditionFailed, "conditionNotMet", "Precondition Failed")
							return
						}
						c.answer(w, r)
					}))
					t.Cleanup(server.Close)
					s := gcsstore.New(over(t, server.URL, reads), bucket)
					_, err := s.PutIfNoneMatch(t.Context(), key, nil)
					requireOnly(t, leasehold.ErrPreconditionFailed, err)
					sound.Store(false)
					for range 5 {
						err := do(t.Context(), s, "5")
						requireOnly(t, nil, err)
						requireText(t, err)
						if !c.told {
							require.ErrorContains(t, err, hint)
						}
					}
					if c.told {
						return
					}
					s = gcsstore.New(over(t, server.URL, reads), bucket)
					for i := range 3 {
						err = do(t.Context(), s, "5")
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
			"http://gcs.invalid",
			[]string{"no such host", `the host "gcs.invalid" is unknown: check the endpoint`},
		},
		"no such port": {"http://127.0.0.1:99999", []string{"invalid port", "is not an address"}},
		"https for http": {
			"https" + strings.TrimPrefix(plain.URL, "http"),
			[]string{"server gave HTTP response to HTTPS client", "this port speaks http, not https"},
		},
		"http for https": {
			"http" + strings.TrimPrefix(secure.URL, "https"),
			[]string{"Client sent an HTTP request to an HTTPS server", "does this port expect https?"},
		},
		"gs://": {
			"gs://bucket",
			[]string{"unsupported protocol scheme", "the endpoint must begin with http:// or https://"},
		},
		"a web site": {plain.URL, []string{"the answer is a web page", hint}},
	} {
		t.Run(name, func(t *testing.T) {
			s := gcsstore.New(over(t, c.endpoint, "JSON"), bucket)
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
	s := gcsstore.New(w.client, bucket)
	_, err := s.Get(t.Context(), key)
	requireOnly(t, nil, err)
	w.Base = lost{}
	_, err = s.Get(t.Context(), key)
	requireOnly(t, nil, err)
	require.ErrorContains(t, err, "no such host")
	_, err = gcsstore.New(w.client, bucket).Get(t.Context(), key)
	requireOnly(t, leasehold.ErrPermanent, err)
}

// lost is a network whose resolver does not find the host.
type lost struct{}

func (lost) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = "gone.invalid"
	return (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
}
