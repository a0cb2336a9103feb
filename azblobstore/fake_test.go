package azblobstore_test

import (
	"cmp"
	"crypto/fips140"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"hash/crc64"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	account   = "leaseholdtest"
	container = "locks"
)

var accountKey = []byte("the key of an account in memory")

// fakeAzure is Azure Blob Storage as far as a Store uses it, after Microsoft's pages. It refuses
// whatever they do not describe, so a request that Azure might understand in another way fails
// here. It needs no socket, so it works in a synctest bubble.
//
// The pages are named by the last part of their address, which begins with
// https://learn.microsoft.com/rest/api/storageservices/.
type fakeAzure struct {
	// Pages and reports disagree about some answers. These choose the other one.
	createRefused412  bool // create over a blob: 412 ConditionNotMet, in place of 409 BlobAlreadyExists
	missingRefused404 bool // conditional write without a blob: 404 BlobNotFound, in place of 412 ConditionNotMet

	files   bool   // it also does what fenced writes need: other headers, metadata, blocks
	goingUp string // the name of a blob whose first Put Blob has begun and not ended

	ahead  time.Duration // how far its clock is ahead of this machine's
	noDate bool

	mu       sync.Mutex
	blobs    map[string]*fakeBlob
	blocks   map[string]map[string][]byte // that are not committed, by name of the blob and ID
	versions uint64                       // written so far
	replies  uint64
}

type fakeBlob struct {
	body    []byte
	etag    string
	written time.Time

	header http.Header // that a write has named: the content type, and metadata

	leased, endless, immutable, snapshots bool   // endless: so is the lease
	kind                                  string // "": BlockBlob
}

// plant stores a blob without a request, or changes the one that is there.
func (f *fakeAzure) plant(name string, body []byte, change func(*fakeBlob)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.blobs[name]
	if b == nil {
		b = f.write(name, body)
	}
	if change != nil {
		change(b)
	}
}

func (f *fakeAzure) write(name string, body []byte) *fakeBlob {
	if f.blobs == nil {
		f.blobs = map[string]*fakeBlob{}
	}
	// versioning-for-the-azure-storage-services: since version 2011-08-18 an ETag is in quotes.
	f.versions++
	b := &fakeBlob{
		body:    body,
		etag:    fmt.Sprintf(`"0x8DE%012X"`, f.versions*0x10001),
		written: time.Now().Add(f.ahead),
		header:  http.Header{},
	}
	f.blobs[name] = b
	delete(f.blocks, name) // put-block: whatever writes the blob removes its blocks that are not committed
	return b
}

// known are the request headers of the operations that a Store sends: put-blob, get-blob,
// delete-blob. Azure ignores what it does not know. Here it is refused, so that nothing is sent in
// the belief that it has an effect. Connection is for HTTP itself.
var known = []string{
	"Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Length", "Content-Md5", "Content-Type",
	"Expect", "If-Match", "If-None-Match", "User-Agent",
	"X-Ms-Blob-Cache-Control", "X-Ms-Blob-Content-Type", "X-Ms-Blob-Type", "X-Ms-Client-Request-Id",
	"X-Ms-Content-Crc64", "X-Ms-Date",
	"X-Ms-Return-Client-Request-Id", "X-Ms-Version",
}

// denial is an answer that refuses a request.
type denial struct {
	status        int
	code, message string
}

func deny(status int, code, message string) *denial { return &denial{status, code, message} }

func (f *fakeAzure) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// put-blob, get-blob, delete-blob, "Response headers": every reply has an ID, the version that
	// served it, and a date.
	f.replies++
	w.Header().Set("X-Ms-Request-Id", fmt.Sprintf("%08x-301e-0042-6a55-f2c1d4000000", f.replies))
	w.Header().Set("X-Ms-Version", r.Header.Get("X-Ms-Version"))
	w.Header().Set("Server", "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0")
	if w.Header()["Date"] = nil; !f.noDate {
		w.Header().Set("Date", time.Now().Add(f.ahead).UTC().Format(http.TimeFormat))
	}
	if d := f.serve(w, r); d != nil {
		refuse(w, d)
	}
}

// refuse answers as status-and-error-codes2 says: an XML document, and since version 2017-07-29 the
// code in a header.
func refuse(w http.ResponseWriter, d *denial) {
	h := w.Header()
	if h.Get("X-Ms-Request-Id") == "" {
		h.Set("X-Ms-Request-Id", "5e0a1c2b-301e-0042-6a55-f2c1d4000000")
	}
	h.Set("X-Ms-Error-Code", d.code)
	document := fmt.Sprintf("\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>%s</Code>"+
		"<Message>%s\nRequestId:%s\nTime:2026-11-22T17:00:00.0000000Z</Message></Error>",
		d.code, d.message, h.Get("X-Ms-Request-Id"))
	h.Set("Content-Type", "application/xml")
	h.Set("Content-Length", strconv.Itoa(len(document)))
	w.WriteHeader(d.status)
	_, _ = io.WriteString(w, document)
}

func (f *fakeAzure) serve(w http.ResponseWriter, r *http.Request) *denial {
	for name := range r.Header {
		if !slices.Contains(known, name) && (!f.files || !strings.HasPrefix(name, "X-Ms-Meta-")) {
			return deny(400, "UnsupportedHeader", "One of the HTTP headers specified in the request is not supported: "+
				name)
		}
	}
	// versioning-for-the-azure-storage-services: a request with Shared Key must name its version.
	if version := r.Header.Get("X-Ms-Version"); version == "" {
		return deny(400, "MissingRequiredHeader", "An HTTP header that's mandatory for this request is not "+
			"specified: x-ms-version")
	} else if !regexp.MustCompile(`^20\d\d-\d\d-\d\d$`).MatchString(version) || version < "2019-02-02" {
		// the first with CRC64
		return deny(400, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format: "+
			"x-ms-version")
	}
	if d := authorize(r); d != nil {
		return d
	}
	if r.URL.RawQuery != "" && !f.files { // another operation than put-blob, get-blob and delete-blob
		return deny(400, "UnsupportedQueryParameter", "One of the query parameters specified in the request URI is "+
			"not supported")
	}
	// The account is in the host's name or, as with an emulator, the first part of the path:
	// put-blob, "Emulated storage service".
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	if !strings.HasPrefix(r.Host, account+".blob.") {
		_, path, _ = strings.Cut(path, "/")
	}
	in, escaped, _ := strings.Cut(path, "/")
	name, err := url.PathUnescape(escaped)
	// naming-and-referencing-containers--blobs--and-metadata: 1 to 1,024 characters, and none of
	// some.
	if err != nil || name == "" || utf8.RuneCountInString(name) > 1024 || strings.ContainsAny(name, "\x00\x1f\\") {
		return deny(400, "InvalidUri", "The requested URI does not represent any resource on the server.")
	}
	if in != container {
		return deny(404, "ContainerNotFound", "The specified container does not exist.")
	}
	switch {
	case r.Method == http.MethodHead && f.files: // get-blob-properties
		if f.blobs[name] == nil {
			w.Header().Set("X-Ms-Error-Code", "BlobNotFound")
			w.WriteHeader(http.StatusNotFound)
			return nil
		}
		return f.get(w, name)
	case r.Method == http.MethodPut && r.URL.RawQuery != "":
		return f.putPart(w, r, name)
	}
	switch r.Method {
	case http.MethodGet:
		return f.get(w, name)
	case http.MethodPut:
		return f.put(w, r, name)
	case http.MethodDelete:
		return f.remove(w, r, name)
	}
	return deny(405, "UnsupportedHttpVerb", "The resource doesn't support specified Http Verb.")
}

// authorize checks the signature as authorize-with-shared-key describes it, for version 2009-09-19
// and later.
func authorize(r *http.Request) *denial {
	if r.Header.Get("Authorization") == "" { // common-rest-api-error-codes
		return deny(401, "NoAuthenticationInformation", "Server failed to authenticate the request. Please refer to "+
			"the information in the www-authenticate header.")
	}
	failed := deny(403, "AuthenticationFailed", "Server failed to authenticate the request. Make sure the value of "+
		"the Authorization header is formed correctly including the signature.")
	// "The storage services ensure that a request is no older than 15 minutes."
	if sent, err := http.ParseTime(r.Header.Get("X-Ms-Date")); err != nil || time.Since(sent).Abs() > 15*time.Minute {
		return failed
	}
	if r.Header.Get("Authorization") != "SharedKey "+account+":"+signature(r) {
		return failed
	}
	return nil
}

func signature(r *http.Request) string {
	length := r.Header.Get("Content-Length")
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	if length == "0" { // since version 2015-02-21
		length = ""
	}
	lines := []string{r.Method, "", "", length, r.Header.Get("Content-Md5"), r.Header.Get("Content-Type"), "", "",
		r.Header.Get("If-Match"), r.Header.Get("If-None-Match"), "", ""}
	var canonical []string
	for name, values := range r.Header {
		if name := strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			canonical = append(canonical, name+":"+strings.Join(values, ","))
		}
	}
	slices.SortFunc(canonical, func(a, b string) int {
		a, _, _ = strings.Cut(a, ":")
		b, _, _ = strings.Cut(b, ":")
		return cmp.Compare(a, b)
	})
	lines = append(append(lines, canonical...), "/"+account+r.URL.EscapedPath())
	for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
		lines = append(lines, name+":"+strings.Join(r.URL.Query()[name], ","))
	}
	mac := hmac.New(sha256.New, accountKey)
	_, _ = io.WriteString(mac, strings.Join(lines, "\n"))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func (f *fakeAzure) get(w http.ResponseWriter, name string) *denial {
	b := f.blobs[name]
	if b == nil { // blob-service-error-codes
		return deny(404, "BlobNotFound", "The specified blob does not exist.")
	}
	f.describe(w, b)
	maps.Copy(w.Header(), b.header)
	// get-blob: Put Blob sets a block blob's MD5 even if the request had none, and a full read
	// returns it.
	if !fips140.Enforced() { // where this server cannot compute it
		sum := md5.Sum(b.body)
		w.Header().Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(b.body)))
	w.Header().Set("X-Ms-Blob-Type", cmp.Or(b.kind, "BlockBlob"))
	if b.leased { // get-blob, get-blob-properties
		w.Header().Set("X-Ms-Lease-Duration", map[bool]string{false: "fixed", true: "infinite"}[b.endless])
	}
	_, _ = w.Write(b.body)
	return nil
}

func (f *fakeAzure) describe(w http.ResponseWriter, b *fakeBlob) {
	w.Header().Set("ETag", b.etag)
	w.Header().Set("Last-Modified", b.written.UTC().Format(http.TimeFormat))
}

func (f *fakeAzure) put(w http.ResponseWriter, r *http.Request, name string) *denial {
	// put-blob: Content-Length and x-ms-blob-type are required.
	if r.ContentLength < 0 {
		return deny(411, "MissingContentLengthHeader", "The Content-Length header was not specified.")
	}
	kind := r.Header.Get("X-Ms-Blob-Type")
	switch {
	case kind == "":
		return deny(400, "MissingRequiredHeader", "An HTTP header that's mandatory for this request is not "+
			"specified: x-ms-blob-type")
	case kind != "BlockBlob": // the only type that has its content after one Put Blob
		return deny(400, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format: "+
			"x-ms-blob-type")
	case f.files:
	// a rule of these tests
	case r.Header.Get("X-Ms-Blob-Content-Type") != "application/json" ||
		r.Header.Get("X-Ms-Blob-Cache-Control") != "no-store":
		return deny(400, "InvalidHeaderValue", "A lock has the content type application/json, and is not to be cached.")
	}
	body, named, sum, d := intact(r)
	if d != nil {
		return d
	}
	if d := f.mayWrite(r, name); d != nil {
		return d
	}
	b := f.write(name, body)
	b.take(r)
	f.describe(w, b)
	w.Header().Set(named, sum)
	w.Header().Set("X-Ms-Request-Server-Encrypted", "true")
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusCreated)
	return nil
}

// take keeps the headers that a write has named. Those of the blob before are gone.
func (b *fakeBlob) take(r *http.Request) {
	for name, values := range r.Header {
		if strings.HasPrefix(name, "X-Ms-Meta-") {
			b.header[name] = values
		}
	}
	if kind := r.Header.Get("X-Ms-Blob-Content-Type"); kind != "" {
		b.header.Set("Content-Type", kind)
	}
}

// putPart is a PUT with a query.
func (f *fakeAzure) putPart(w http.ResponseWriter, r *http.Request, name string) *denial {
	query := r.URL.Query()
	done := func(status int, b *fakeBlob) *denial {
		if b != nil {
			f.describe(w, b)
		}
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(status)
		return nil
	}
	switch query.Get("comp") {
	case "block": // put-block: it has no conditions, and no blob need be there
		body, _, _, d := intact(r)
		if d != nil {
			return d
		}
		id := query.Get("blockid")
		for other := range f.blocks[name] {
			if len(other) != len(id) {
				return deny(400, "InvalidBlobOrBlock", "The specified blob or block content is invalid.")
			}
		}
		if f.blocks == nil {
			f.blocks = map[string]map[string][]byte{}
		}
		if f.blocks[name] == nil {
			f.blocks[name] = map[string][]byte{}
		}
		f.blocks[name][id] = body
		return done(http.StatusCreated, nil)
	case "metadata": // set-blob-metadata: replaces all metadata, and the ETag; the rest stays
		if d := f.mayWrite(r, name); d != nil {
			return d
		}
		old := f.blobs[name]
		b := f.write(name, old.body)
		b.take(r)
		b.header.Set("Content-Type", old.header.Get("Content-Type"))
		return done(http.StatusOK, b)
	case "blocklist": // put-block-list
		var list struct{ Latest []string }
		if err := xml.NewDecoder(r.Body).Decode(&list); err != nil {
			return deny(400, "InvalidXmlDocument", "XML specified is not syntactically valid.")
		}
		if d := f.mayWrite(r, name); d != nil {
			return d
		}
		var body []byte
		for _, id := range list.Latest {
			block, ok := f.blocks[name][id]
			if !ok {
				return deny(400, "InvalidBlockList", "The specified block list is invalid.")
			}
			body = append(body, block...)
		}
		b := f.write(name, body)
		b.take(r)
		return done(http.StatusCreated, b)
	}
	return deny(400, "InvalidQueryParameterValue", "Value for one of the query parameters specified in the request "+
		"URI is invalid.")
}

// intact reads a body, and the checksum that it came with.
func intact(r *http.Request) (body []byte, named, sum string, d *denial) {
	body, err := io.ReadAll(r.Body)
	if err != nil || int64(len(body)) != r.ContentLength {
		return nil, "", "", deny(400, "InvalidInput", "One of the request inputs is not valid.")
	}
	// put-blob: Content-MD5 or x-ms-content-crc64 is checked against what has arrived. A rule of
	// these tests: one of them is there.
	named = "X-Ms-Content-Crc64"
	sum = base64.StdEncoding.EncodeToString(binary.LittleEndian.AppendUint64(nil,
		crc64.Checksum(body, crc64.MakeTable(0x9A6C9329AC4BC9B5))))
	if r.Header.Get("Content-Md5") != "" {
		md5Sum := md5.Sum(body)
		named, sum = "Content-Md5", base64.StdEncoding.EncodeToString(md5Sum[:])
	}
	switch {
	case r.Header.Get(named) == sum:
	case named == "Content-Md5":
		d = deny(400, "Md5Mismatch", "The MD5 value specified in the request did not match with the MD5 value "+
			"calculated by the server.")
	default:
		d = deny(400, "Crc64Mismatch", "The CRC64 value specified in the request did not match with the CRC64 value "+
			"calculated by the server.")
	}
	return body, named, sum, d
}

func (f *fakeAzure) remove(w http.ResponseWriter, r *http.Request, name string) *denial {
	if d := f.mayWrite(r, name); d != nil {
		return d
	}
	if f.blobs[name].snapshots { // delete-blob: without x-ms-delete-snapshots
		return deny(409, "SnapshotsPresent", "This operation is not permitted while the blob has snapshots.")
	}
	delete(f.blobs, name)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusAccepted) // delete-blob
	return nil
}

// mayWrite evaluates the conditional headers of a write as
// specifying-conditional-headers-for-blob-service-operations describes them.
func (f *fakeAzure) mayWrite(r *http.Request, name string) *denial {
	match, none := r.Header["If-Match"], r.Header["If-None-Match"]
	switch {
	case len(match)+len(none) > 1:
		return deny(400, "MultipleConditionHeadersNotSupported", "Multiple condition headers are not supported.")
	case len(match)+len(none) == 0: // a rule of these tests: a lock never writes without a condition
		return deny(400, "MissingRequiredHeader", "A write of a lock has a condition.")
	// The page allows "*" in If-Match, but then it is a write without a condition. One ETag in
	// quotes is also Azure's only form for writes: "Specifying more than one ETag value results in
	// status code 400 (Bad Request)."
	case len(match) == 1 && !regexp.MustCompile(`^"[^", ]+"$`).MatchString(match[0]), len(none) == 1 &&
		(none[0] != "*" || r.Method != http.MethodPut):
		return deny(400, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.")
	}
	unmet := deny(412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
	b := f.blobs[name]
	switch {
	// Users report this answer, while reads say 404, until the upload has ended or has broken off.
	// Azurite: the latter
	case b == nil && len(none) == 1 && (f.goingUp == name || len(f.blocks[name]) > 0 && r.URL.RawQuery == ""):
		return deny(409, "BlobAlreadyExists", "The specified blob already exists.")
	case b == nil && len(none) == 1:
		return nil
	case b == nil && f.missingRefused404:
		return deny(404, "BlobNotFound", "The specified blob does not exist.")
	case b == nil: // the page follows HTTP/1.1: If-Match is false without a representation
		return unmet
	case len(none) == 1 && f.createRefused412: // as the table of response codes has it
		return unmet
	case len(none) == 1: // as blob-service-error-codes has it, and as the service is reported to answer
		return deny(409, "BlobAlreadyExists", "The specified blob already exists.")
	case b.leased: // lease-blob, "Outcomes of use attempts": a write without the ID of the lease fails with 412
		return deny(412, "LeaseIdMissing", "There is currently a lease on the blob and no lease ID was specified in "+
			"the request.")
	case b.etag != match[0]:
		return unmet
	case b.immutable: // blob-service-error-codes
		return deny(409, "BlobImmutableDueToPolicy", "This operation is not permitted as the blob is immutable due "+
			"to a policy.")
	case r.Method == http.MethodPut && cmp.Or(b.kind, "BlockBlob") != "BlockBlob":
		return deny(409, "InvalidBlobType", "The blob type is invalid for this operation.")
	}
	return nil
}

// key of the account as connection strings have it.
func encodedKey() string { return base64.StdEncoding.EncodeToString(accountKey) }
