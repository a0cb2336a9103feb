package sim

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

// s3Transport speaks S3's HTTP on top of a client, for worlds with the real S3Store.
type s3Transport struct{ c *client }

// bareMatch is the version that a server means which compares ETags without quotes.
func bareMatch(ifMatch string) string {
	if strings.HasPrefix(ifMatch, `"`) {
		return "none"
	}
	return `"` + ifMatch + `"`
}

// ask answers requests on the objects with which a store finds out how the server wants ETags. They
// meet no faults but a partition.
func (t s3Transport) ask(r *http.Request) (*http.Response, error) {
	t.c.p.clock.waitWhileFrozen()
	if t.c.p.crashed.Load() || t.c.p.cut.Load() {
		return nil, errReset
	}
	return fakes3.Transport{Handler: t.c.p.w.asked}.RoundTrip(r)
}

// RoundTrip implements http.RoundTripper.
func (t s3Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	q := request{kind: "get", ifMatch: r.Header.Get("If-Match")}
	switch {
	case strings.HasSuffix(r.URL.Path, ".leasehold-etag"):
		return t.ask(r)
	case r.Method == http.MethodPut && r.Header.Get("If-None-Match") == "*":
		q.kind = "create"
	case r.Method == http.MethodPut && r.Header.Get("If-Match") != "":
		q.kind = "update"
		if t.c.p.w.cfg.BareETags {
			q.ifMatch = bareMatch(q.ifMatch)
		}
	case r.Method != http.MethodGet:
		t.c.p.w.violate("%s sent %s without a condition", t.c.p.name, r.Method)
	}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		q.body = body
	}
	got := t.c.send(r.Context(), q)
	status, code := http.StatusOK, ""
	for _, a := range answers {
		if errors.Is(got.err, a.err) {
			status, code = a.status, a.code
		}
	}
	if got.err != nil && code == "" {
		return nil, got.err
	}
	now := time.Now()
	now = now.Add(t.c.p.w.store.off(now))
	w := httptest.NewRecorder()
	h := w.Header()
	if got.page {
		h.Set("Content-Type", "text/html; charset=utf-8")
	} else {
		h.Set("Date", now.UTC().Format(http.TimeFormat))
		h.Set("X-Amz-Request-Id", "1")
	}
	if code == "" && got.obj.ETag != "" {
		h.Set("ETag", got.obj.ETag)
		if q.kind == "get" {
			age := got.obj.Age
			if t.c.p.w.cfg.Ages == TrustedDates && age < time.Hour { // because S3Store subtracts its allowance again
				age += 2 * time.Second
			}
			h.Set("Last-Modified", now.Add(-age).UTC().Format(http.TimeFormat))
		}
	}
	w.WriteHeader(status)
	if code == "" {
		_, _ = w.Write(got.obj.Body)
	} else {
		_, _ = w.WriteString(fakes3.Error(code, ""))
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// answers are those of S3 to requests that fail.
var answers = []struct {
	err    error
	status int
	code   string
}{
	{leasehold.ErrNotExist, 404, "NoSuchKey"},
	{leasehold.ErrPreconditionFailed, 412, "PreconditionFailed"},
	{err409, 409, "ConditionalRequestConflict"},
	{errConflict, 409, "ConditionalRequestConflict"},
	{err429, 429, "TooManyRequests"},
	{err500, 500, "InternalError"},
	{err503, 503, "SlowDown"},
}
