package gcsstore_test

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"encoding/base64"
	"encoding/binary"
)

const bucket = "locks"

// fakeGCS implements the part of the JSON and XML APIs that a Store uses. It is strict where
// fake-gcs-server is lax: it honours the precondition of a DELETE, and with limited set it accepts
// one write per second to one object, as Cloud Storage does. It needs no socket, so it works in a
// synctest bubble.
type fakeGCS struct {
	limited bool
	files   bool          // its objects are not locks: uploads may have any headers
	ahead   time.Duration // how far its clock is ahead of this machine's
	noDate  bool

	mu         sync.Mutex
	generation int64
	objects    map[string]fakeObject
	throttled  int // number of writes answered 429
}

type fakeObject struct {
	body       []byte
	generation int64
	written    time.Time
	resource   map[string]any // as the client has sent it
}

func (f *fakeGCS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().Add(f.ahead)
	if !f.noDate {
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	}
	path := r.URL.EscapedPath()
	upload := strings.HasPrefix(path, "/upload/storage/v1/b/")
	in, name, json := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/upload"), "/storage/v1/b/"), "/o")
	if !json || !strings.HasPrefix(path, "/storage/v1/b/") && !upload {
		in, name, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	}
	name, _ = url.PathUnescape(strings.TrimPrefix(name, "/"))
	if upload {
		name = r.URL.Query().Get("name")
	}
	if in != bucket {
		refuse(w, http.StatusNotFound, "notFound", "The specified bucket does not exist.")
		return
	}
	o, exists := f.objects[name]
	if want := r.URL.Query().Get("ifGenerationMatch"); want != "" && want != strconv.FormatInt(o.generation, 10) {
		refuse(w, http.StatusPreconditionFailed, "conditionNotMet", "At least one of the pre-conditions you "+
			"specified did not hold.")
		return
	}
	switch {
	case upload:
		if f.limited && exists && now.Sub(o.written) < time.Second {
			f.throttled++
			refuse(w, http.StatusTooManyRequests, "rateLimitExceeded", "The object exceeded the rate limit for "+
				"object mutation operations (create, update, and delete). Please reduce your request rate.")
			return
		}
		resource, body, err := media(r)
		if err == nil && !f.files && (resource["cacheControl"] != "no-store" ||
			resource["contentType"] != "application/json") {
			err = fmt.Errorf("metadata %+v", resource)
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, "invalid", err.Error())
			return
		}
		f.write(name, body, resource, now)
		reply(w, http.StatusOK, f.objects[name].attrs(name))
	case !exists, r.URL.Query().Has("generation") && r.URL.Query().Get("generation") != strconv.FormatInt(o.generation,
		10):
		refuse(w, http.StatusNotFound, "notFound", "No such object: "+bucket+"/"+name)
	case r.Method == http.MethodDelete:
		delete(f.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet && json && r.URL.Query().Get("alt") == "json":
		reply(w, http.StatusOK, o.attrs(name))
	case r.Method == http.MethodGet:
		w.Header().Set("X-Goog-Generation", strconv.FormatInt(o.generation, 10))
		w.Header().Set("X-Goog-Hash", "crc32c="+checksum(o.body))
		w.Header().Set("Last-Modified", o.written.UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Length", strconv.Itoa(len(o.body)))
		_, _ = w.Write(o.body)
	default:
		refuse(w, http.StatusMethodNotAllowed, "methodNotAllowed", "")
	}
}

func (f *fakeGCS) write(name string, body []byte, resource map[string]any, now time.Time) {
	f.generation += 1000 // Cloud Storage promises no relation to a clock
	if f.objects == nil {
		f.objects = map[string]fakeObject{}
	}
	f.objects[name] = fakeObject{body, f.generation, now, resource}
}

// attrs is the resource of the JSON API.
func (o fakeObject) attrs(name string) map[string]any {
	attrs := maps.Clone(o.resource)
	maps.Copy(attrs, map[string]any{
		"bucket": bucket, "name": name, "generation": strconv.FormatInt(o.generation, 10),
		"size": strconv.Itoa(len(o.body)), "crc32c": checksum(o.body),
	})
	return attrs
}

// media reads the two parts of a multipart upload, the only kind of upload that this server
// supports.
func media(r *http.Request) (resource map[string]any, body []byte, err error) {
	if kind := r.URL.Query().Get("uploadType"); kind != "multipart" {
		return nil, nil, fmt.Errorf("uploadType %q", kind)
	}
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, nil, err
	}
	parts := multipart.NewReader(r.Body, params["boundary"])
	part, err := parts.NextPart()
	if err != nil {
		return nil, nil, err
	}
	if err := json.NewDecoder(part).Decode(&resource); err != nil {
		return nil, nil, err
	}
	if part, err = parts.NextPart(); err != nil {
		return nil, nil, err
	}
	body, err = io.ReadAll(part)
	return resource, body, err
}

func checksum(body []byte) string {
	sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

func reply(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content)
}

// refuse answers with an error document of the JSON API.
func refuse(w http.ResponseWriter, status int, reason, message string) {
	reply(w, status, map[string]any{"error": map[string]any{
		"code": status, "message": message,
		"errors": []map[string]string{{"message": message, "domain": "global", "reason": reason}},
	}})
}
