package storehttptest

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

// Page is a page as a proxy or a web site sends it.
const Page = "<!DOCTYPE html><html><body><p>Please log in.</body></html>"

// Reply is one that is not the server's, or not known to be.
type Reply struct {
	Answer http.HandlerFunc
	Fine   string // calls for which it is a good answer, separated by spaces
	Passes bool   // the endpoint may be right: the error has no hint, and is never final
}

// Status is an answer with this status and body.
func Status(status int, body string) http.HandlerFunc { return Headed(status, nil, body) }

// Headed is an answer with these headers.
func Headed(status int, header map[string]string, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// CutOff is an answer that ends early.
func CutOff(status int, header map[string]string, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		Headed(status, header, body)(w, r)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

// Redirect sends a request to another answer.
func Redirect(status int, there http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			there(w, r)
			return
		}
		http.Redirect(w, r, "/elsewhere", status)
	}
}

// replies are those that no store takes for its server's.
func replies() map[string]Reply {
	return map[string]Reply{
		"a page": {Answer: Status(200, Page)},
		"a page in chunks": {Answer: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, Page)
			w.(http.Flusher).Flush()
		}},
		"text":               {Answer: Status(200, "OK")},
		"nothing":            {Answer: Status(200, "")},
		"204":                {Answer: Status(204, "")},
		"304":                {Answer: Status(304, "")},
		"302 to nowhere":     {Answer: Status(302, "")},
		"307 to nowhere":     {Answer: Status(307, "")},
		"400 page":           {Answer: Status(400, Page)},
		"403 page":           {Answer: Status(403, Page)},
		"404 page":           {Answer: Status(404, Page)},
		"404 of a Go server": {Answer: http.NotFound},
		"407 page":           {Answer: Status(407, Page)},
		"412 page":           {Answer: Status(412, Page)},
	}
}

// ForeignReplies checks that a reply from a proxy or a web site says nothing about the object: it
// is neither a success, nor "absent", nor "refused", nor "unsafe". The error passes, unless there
// have been three such replies and no other. More are replies for this store alone, and those that
// it takes in another way.
func (s Store) ForeignReplies(t *testing.T, more map[string]Reply) {
	all := replies()
	maps.Copy(all, more)
	for name, c := range all {
		for call, do := range Calls {
			if in(c.Fine, call) {
				continue
			}
			t.Run(name+"/"+call, func(t *testing.T) {
				t.Parallel()
				var sound atomic.Bool // at first the store's own server answers
				sound.Store(true)
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if sound.Load() {
						s.Exists(w, r)
						return
					}
					c.Answer(w, r)
				}))
				t.Cleanup(server.Close)
				store := s.New(t, server.URL, Network(t), 0)
				_, err := store.PutIfNoneMatch(t.Context(), Key, nil)
				RequireOnly(t, leasehold.ErrPreconditionFailed, err)
				sound.Store(false)
				for range 5 { // what has worked once can heal, however long this lasts
					etag, err := do(t.Context(), store, s.ETag)
					RequireOnly(t, nil, err)
					s.requireText(t, err)
					require.Empty(t, etag)
					if !c.Passes {
						require.ErrorContains(t, err, s.Hint)
					}
				}
				if c.Passes {
					return
				}
				store = s.New(t, server.URL, Network(t), 0)
				for i := range 3 {
					_, err = do(t.Context(), store, s.ETag)
					require.ErrorContains(t, err, s.Hint)
					if i < 2 {
						RequireOnly(t, nil, err)
					}
				}
				RequireOnly(t, leasehold.ErrPermanent, err)
			})
		}
	}
}

// Network is one with sockets, which are closed when the test ends.
func Network(t *testing.T) http.RoundTripper {
	connections := &http.Transport{}
	t.Cleanup(connections.CloseIdleConnections)
	return connections
}

// Endpoints checks that mistakes in the settings are reported at once, with the cause and what to
// do. If http is spoken to a port of https, the error says httpsPort. More are endpoints that
// cannot work, and what the errors say.
func (s Store) Endpoints(t *testing.T, httpsPort string, more map[string][]string) {
	plain := httptest.NewServer(Status(200, Page))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	cases := map[string][]string{
		"http://store.invalid":   {"no such host", `the host "store.invalid" is unknown: check the endpoint`},
		"http://127.0.0.1:99999": {"invalid port", `"99999" is not an address: check the endpoint`},
		"https" + strings.TrimPrefix(plain.URL, "http"): {
			"server gave HTTP response to HTTPS client", "this port speaks http, not https",
		},
		"http" + strings.TrimPrefix(secure.URL, "https"): {httpsPort},
		plain.URL: {"the answer is a web page", s.Hint},
	}
	maps.Copy(cases, more)
	for endpoint, says := range cases {
		store := s.New(t, endpoint, Network(t), 0)
		var err error
		for range 3 { // a strange answer is a matter of three
			if _, err = store.Get(t.Context(), Key); errors.Is(err, leasehold.ErrPermanent) {
				break
			}
		}
		RequireOnly(t, leasehold.ErrPermanent, err)
		s.requireText(t, err)
		for _, text := range says {
			require.ErrorContains(t, err, text, endpoint)
		}
	}
}

// lost is a network whose resolver does not find the host, while it is off.
type lost struct {
	http.RoundTripper
	off bool
}

func (l *lost) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.off {
		r = r.Clone(r.Context())
		r.URL.Host = "gone.invalid"
	}
	return l.RoundTripper.RoundTrip(r)
}

// MachineFaults checks that what keeps a request from being sent is final, until the server has
// answered for the first time.
func (s Store) MachineFaults(t *testing.T) {
	busy := httptest.NewServer(Status(http.StatusServiceUnavailable, ""))
	defer busy.Close()
	for call, do := range Calls {
		way := &lost{RoundTripper: Network(t), off: true}
		store := s.New(t, busy.URL, way, 0)
		_, err := do(t.Context(), store, s.ETag)
		RequireOnly(t, leasehold.ErrPermanent, err)
		way.off = false
		_, err = do(t.Context(), store, s.ETag)
		RequireOnly(t, nil, err)
		way.off = true
		_, err = do(t.Context(), store, s.ETag)
		RequireOnly(t, nil, err)
		require.ErrorContains(t, err, "no such host", call)
	}
}

// SilentConnection checks that a connection of the link that has fallen silent costs two requests.
func SilentConnection(t *testing.T, link *faultproxy.Link, store leasehold.Store) {
	_, err := store.PutIfNoneMatch(t.Context(), Key, []byte("{}"))
	require.NoError(t, err)
	link.CheckRecovery(t, func(ctx context.Context) error {
		_, err := store.Get(ctx, Key)
		return err
	})
	link.CheckRecovery(t, func(ctx context.Context) error {
		_, err := store.PutIfNoneMatch(ctx, Key, []byte("{}"))
		if errors.Is(err, leasehold.ErrPreconditionFailed) {
			return nil
		}
		return err
	})
}
