package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	for _, e := range []struct {
		err    error
		status int
		code   string
	}{
		{leasehold.ErrNotExist, 404, "NoSuchKey"}, {leasehold.ErrPreconditionFailed, 412, "PreconditionFailed"},
		{
			err409,
			409,
			"ConditionalRequestConflict",
		}, {
			err500,
			500,
			"InternalError",
		}, {
			err503,
			503,
			"SlowDown",
		}, {err429, 429, "TooManyRequests"}, {errConflict, 409, "ConditionalRequestConflict"},
	} {
		if errors.Is(got.err, e.err) {
			status, code = e.status, e.code
		}
	}
	if got.err != nil && code == "" {
		return nil, got.err
	}
	body := got.obj.Body
	if code != "" {
		body = fmt.Appendf(nil, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code></Error>`, code)
	}
	now := time.Now()
	now = now.Add(t.c.p.w.store.off(now))
	header := http.Header{"Date": {now.UTC().Format(http.TimeFormat)}, "X-Amz-Request-Id": {"1"}}
	if got.page {
		header = http.Header{"Content-Type": {"text/html; charset=utf-8"}}
	}
	if code == "" && got.obj.ETag != "" {
		header.Set("ETag", got.obj.ETag)
		if q.kind == "get" {
			age := got.obj.Age
			if t.c.p.w.cfg.Ages == TrustedDates && age < time.Hour { // because S3Store subtracts its allowance again
				age += 2 * time.Second
			}
			header.Set("Last-Modified", now.Add(-age).UTC().Format(http.TimeFormat))
		}
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Header: header,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}, nil
}
