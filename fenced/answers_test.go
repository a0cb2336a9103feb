package fenced_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// operation names the S3 operation of a request.
func operation(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case q.Has("uploads"):
		return "CreateMultipartUpload"
	case q.Has("partNumber"):
		return "UploadPart"
	case q.Has("uploadId") && r.Method == http.MethodPost:
		return "CompleteMultipartUpload"
	case q.Has("uploadId"):
		return "AbortMultipartUpload"
	}
	return r.Method
}

// middleman stands between a client and a fakes3, and gives its own answer to some requests.
type middleman struct {
	server http.Handler
	// answer returns nil to pass the request on.
	answer func(r *http.Request, forward func() *http.Response) *http.Response
}

func (m *middleman) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	defer func() { // of stall
		if p := recover(); p == http.ErrAbortHandler {
			resp, err = nil, r.Context().Err()
		} else if p != nil {
			panic(p)
		}
	}()
	forward := func() *http.Response {
		resp, err := fakes3.Transport{Handler: m.server}.RoundTrip(r)
		if err != nil {
			panic(err)
		}
		return resp
	}
	if r.URL.Path == "/page" { // where some answers point to: a page, which has an ETag as static files have
		return strangersPage(r, 200, http.Header{"Etag": {`"page"`}}, loginPage), nil
	}
	if m.answer != nil {
		if resp := m.answer(r, forward); resp != nil {
			return resp, nil
		}
	}
	return forward(), nil
}

const loginPage = "<!DOCTYPE html><html><head><title>Sign in</title></head><body><p>Please sign in</p></body></html>"

// strangersPage is an answer that is not the server's.
func strangersPage(r *http.Request, status int, header http.Header, body string) *http.Response {
	if r.Method == http.MethodHead {
		body = ""
	}
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "text/html")
	header.Set("Content-Length", fmt.Sprint(len(body)))
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// unsized takes the length off an answer, as a chunked one has it.
func unsized(resp *http.Response) *http.Response {
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	return resp
}

// cut has the second half of the body missing; with an error, as net/http has it if it can know.
func cut(resp *http.Response, err error) *http.Response {
	body, _ := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), failing{err}))
	return resp
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

var ids = regexp.MustCompile(`<(UploadId|ETag)>[^<]*</(UploadId|ETag)>`)

// foreign are answers that are not the server's, or not all of it. Those that forward are given
// after the request was carried out.
var foreign = []struct {
	name      string
	permanent bool // no retry heals it, as far as anybody can know
	padded    bool // a reader can know it only by the padding
	answer    func(r *http.Request, forward func() *http.Response) *http.Response
}{
	{name: "a page", answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return strangersPage(r, 200, nil, loginPage)
	}},
	{name: "a page, chunked", answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return unsized(strangersPage(r, 200, nil, loginPage))
	}},
	{name: "a page, after the fact", answer: func(r *http.Request, forward func() *http.Response) *http.Response {
		forward()
		return strangersPage(r, 200, nil, loginPage)
	}},
	{
		name:   "nothing",
		answer: func(r *http.Request, _ func() *http.Response) *http.Response { return strangersPage(r, 200, nil, "") },
	},
	{name: "nothing, chunked", answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return unsized(strangersPage(r, 200, nil, ""))
	}},
	{name: "nothing, after the fact", answer: func(r *http.Request, forward func() *http.Response) *http.Response {
		forward()
		return strangersPage(r, 200, nil, "")
	}},
	{
		name:   "204",
		answer: func(r *http.Request, _ func() *http.Response) *http.Response { return strangersPage(r, 204, nil, "") },
	},
	{name: "an error in a 200", answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return strangersPage(r, 200, nil, fakes3.Error("InternalError", "We encountered an internal error. Please "+
			"try again."))
	}},
	{name: "no ETag or upload ID", answer: func(_ *http.Request, forward func() *http.Response) *http.Response {
		resp := forward()
		resp.Header.Del("ETag")
		body, _ := io.ReadAll(resp.Body)
		if strings.HasPrefix(string(body), "<?xml") {
			body = ids.ReplaceAll(body, nil)
			resp.ContentLength = int64(len(body))
			resp.Header.Set("Content-Length", fmt.Sprint(len(body)))
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		return resp
	}},
	{name: "a page that says 404", answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return strangersPage(r, 404, nil, loginPage)
	}},
	{name: "a page that says 404, after the fact", answer: func(r *http.Request,
		forward func() *http.Response) *http.Response {
		forward()
		return strangersPage(r, 404, nil, loginPage)
	}},
	{name: "a page that says 502", answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return strangersPage(r, 502, nil, loginPage)
	}},
	{name: "301 to nowhere", permanent: true, answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return strangersPage(r, 301, nil, loginPage)
	}},
	{name: "302 to nowhere", answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return strangersPage(r, 302, nil, loginPage)
	}},
	{name: "301 to a page", answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return strangersPage(r, 301, http.Header{"Location": {"http://s3.test/page"}}, "")
	}},
	{name: "302 to a page", answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return strangersPage(r, 302, http.Header{"Location": {"http://s3.test/page"}}, "")
	}},
	{name: "302 to a page, after the fact", answer: func(r *http.Request,
		forward func() *http.Response) *http.Response {
		forward()
		return strangersPage(r, 302, http.Header{"Location": {"http://s3.test/page"}}, "")
	}},
	{name: "303 to a page", answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return strangersPage(r, 303, http.Header{"Location": {"http://s3.test/page"}}, "")
	}},
	{name: "307 to nowhere", permanent: true, answer: func(r *http.Request, _ func() *http.Response) *http.Response {
		return strangersPage(r, 307, nil, loginPage)
	}},
	{name: "cut off", answer: func(_ *http.Request, forward func() *http.Response) *http.Response {
		return cut(forward(), io.ErrUnexpectedEOF)
	}},
	{name: "cut off in silence", answer: func(_ *http.Request, forward func() *http.Response) *http.Response {
		return cut(forward(), io.EOF)
	}},
	{
		name:   "chunked",
		answer: func(_ *http.Request, forward func() *http.Response) *http.Response { return unsized(forward()) },
	},
	{name: "chunked and cut off", answer: func(_ *http.Request, forward func() *http.Response) *http.Response {
		return unsized(cut(forward(), io.ErrUnexpectedEOF))
	}},
	{name: "without length and cut off in silence", padded: true,
		answer: func(_ *http.Request, forward func() *http.Response) *http.Response {
			return unsized(cut(forward(), io.EOF))
		}},
	{name: "a part only", answer: func(r *http.Request, forward func() *http.Response) *http.Response {
		resp := forward()
		if r.Method != http.MethodGet {
			return resp
		}
		body, _ := io.ReadAll(resp.Body)
		half := body[:len(body)/2]
		resp.StatusCode, resp.ContentLength, resp.Body = 206, int64(len(half)), io.NopCloser(bytes.NewReader(half))
		resp.Header.Set("Content-Length", fmt.Sprint(len(half)))
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(half)-1, len(body)))
		return resp
	}},
}

var (
	oldBody = strings.Repeat("0123456789abcdef", 40) // two parts and a half
	newBody = strings.Repeat("fedcba9876543210", 37)
)

const testPart = 256

// A bucket with Object Lock and a default retention refuses writes and parts without a checksum.
func TestFencedWritesToABucketWithADefaultRetention(t *testing.T) {
	s := newFenced(t, &fakes3.Server{DefaultRetention: true, MinPartSize: 1}, fenced.PaddedBodies, withPartSize())
	for _, size := range []int{1, 2*testPart + 1} {
		require.NoError(t, s.Put(t.Context(), 1, "data/a", bytes.NewReader(make([]byte, size))))
	}
}

// withPartSize has bodies over testPart bytes go in parts.
func withPartSize() fenced.Option { return testopt.WithPartSize(testPart) }

// Every operation meets every answer that is not the server's, once and always: no call says what
// is not so, nothing is lost. A short run has every fifth combination.
func TestFencedStoreAmongForeignAnswers(t *testing.T) {
	type call struct {
		name       string
		operations []string // that it sends
		run        func(ctx context.Context, s *fenced.Store) (string, error)
		want       string // stands there if it succeeded
	}
	probe := []string{"PUT", "DELETE"}
	multipart := []string{"CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "AbortMultipartUpload"}
	put := func(body string) func(context.Context, *fenced.Store) (string, error) {
		return func(ctx context.Context, s *fenced.Store) (string, error) {
			return body, s.Put(ctx, 2, object, strings.NewReader(body))
		}
	}
	calls := []call{
		{"Put", append([]string{"HEAD"}, probe...), put("short"), "short"},
		{"Put in parts", append(append([]string{"HEAD"}, probe...), multipart...), put(newBody), newBody},
		{"Seal", append(append([]string{"HEAD", "GET"}, probe...), multipart...),
			func(ctx context.Context, s *fenced.Store) (string, error) {
				return oldBody, s.Seal(ctx, 2, object)
			}, oldBody},
		{"Delete", append([]string{"HEAD"}, probe...), func(ctx context.Context, s *fenced.Store) (string, error) {
			return "", s.Delete(ctx, 2, object)
		}, ""},
		{"Get", []string{"GET"}, func(ctx context.Context, s *fenced.Store) (string, error) {
			o, err := s.Get(ctx, object)
			if err != nil {
				return "", err
			}
			body, err := io.ReadAll(o.Body)
			return string(body), errors.Join(err, o.Body.Close())
		}, oldBody},
	}
	combination := 0
	for _, mode := range []fenced.ETagMode{fenced.UniqueETags, fenced.PaddedBodies} {
		for _, f := range foreign {
			for _, c := range calls {
				if f.padded && c.name == "Get" && mode != fenced.PaddedBodies {
					continue
				}
				for _, op := range c.operations {
					for _, how := range []struct{ once, fresh bool }{{true, true}, {true, false}, {false, false}} {
						once, fresh := how.once, how.fresh
						switch {
						case fresh && (op == "HEAD" || op == "GET"): // which the check does not send
							continue
						case mode == fenced.UniqueETags && (!once || c.name != "Seal" && c.name != "Get"):
							continue
						// as Put and Seal
						case !once && (c.name == "Delete" || c.name == "Put in parts" &&
							op != "CompleteMultipartUpload"):
							continue
						}
						if combination++; combination%testsize.Pick(5, 1) != 0 {
							continue
						}
						name := fmt.Sprintf("%d/%s/%s/%s/once=%v/fresh=%v", mode, f.name, c.name, op, once, fresh)
						t.Run(name, func(t *testing.T) {
							t.Parallel()
							synctest.Test(t, func(t *testing.T) {
								server := &fakes3.Server{RandomETags: mode == fenced.UniqueETags, MinPartSize: 1}
								m := &middleman{server: server}
								client := fakes3.NewClient(m)
								s := openFenced(t, client, mode, withPartSize())
								require.NoError(t, s.Put(t.Context(), 1, object, strings.NewReader(oldBody)))
								before := server.Body(object)
								if fresh {
									s = openFenced(t, client, mode, withPartSize())
								}
								var mu sync.Mutex
								met := 0
								m.answer = func(r *http.Request, forward func() *http.Response) *http.Response {
									mu.Lock()
									defer mu.Unlock()
									if operation(r) != op || once && met > 0 {
										return nil
									}
									met++
									return f.answer(r, forward)
								}
								got, err := c.run(t.Context(), s)
								m.answer = nil
								stands := strings.TrimRight(string(server.Body(object)), " \t")
								if err != nil {
									for _, lie := range []error{
										leasehold.ErrNotExist, leasehold.ErrUnsafeStore, fenced.ErrUnfenced,
										leasehold.ErrFenced, leasehold.ErrCorruptRecord,
									} {
										require.NotErrorIs(t, err, lie, "that is not known")
									}
									require.Equal(t, 1, strings.Count(err.Error(), "leasehold: "), err)
									require.True(t, strings.HasPrefix(err.Error(), "leasehold: "), err)
									if !bytes.Equal(before, server.Body(object)) {
										require.Equal(t, c.want, stands, "neither the old nor the new: %v", err)
									}
									require.False(t, once && c.name != "Get" && !f.permanent,
										"one bad answer is passing: %v", err)
									return
								}
								require.Equal(t, c.want, got)
								require.Equal(t, c.want, stands)
								if c.name == "Get" {
									require.Equal(t, before, server.Body(object))
									return
								}
								require.Equal(t, "2", server.Header(object).Get("X-Amz-Meta-Leasehold-Token"))
								require.ErrorIs(t, s.Put(t.Context(), 1, object, strings.NewReader("late")),
									leasehold.ErrFenced)
							})
						})
					}
				}
			}
		}
	}
}
