package azblobstore_test

import (
	"bytes"
	"context"
	"crypto/fips140"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/storehttptest"
	"github.com/leasehold-go/leasehold/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key      = storehttptest.Key
	endpoint = "http://" + account + ".blob.core.windows.net"
	someETag = `"0x8DE000000010001"`
)

// wire is the real client's connection to a server, with faults and a log of requests in between.
type wire struct {
	*fakes3.Wire
	client *azblob.Client
}

// newWire connects a client of the SDK, with its default retries, to a server in this process.
func newWire(t *testing.T, server http.Handler) *wire {
	t.Helper()
	w := &wire{Wire: fakes3.NewWire(canonical(server))}
	w.client = newClient(t, endpoint, &http.Client{Transport: w})
	return w
}

// canonical is a server behind what is no socket. The SDK writes names of headers in lower case,
// which net/http mends only on a socket.
func canonical(server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := http.Header{}
		for name, values := range r.Header {
			header[http.CanonicalHeaderKey(name)] = values
		}
		r.Header = header
		server.ServeHTTP(w, r)
	})
}

// overHTTP is what the store has in common with others.
var overHTTP = storehttptest.Store{
	New: func(t *testing.T, endpoint string, over http.RoundTripper, slack time.Duration) leasehold.Store {
		var opts []azblobstore.Option
		if slack != 0 {
			opts = append(opts, azblobstore.WithServerClock(slack))
		}
		client := newClient(t, endpoint+"/"+account, &http.Client{Transport: over})
		return azblobstore.New(client, container, opts...)
	},
	Server: func() (http.Handler, func(key string, body []byte)) {
		server := &fakeAzure{}
		return canonical(server), func(key string, body []byte) { server.plant(key, body, nil) }
	},
	Exists: func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, deny(http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists."))
	},
	ETag: someETag, Hint: hint,
}

var (
	storeCalls  = storehttptest.Calls
	requireOnly = storehttptest.RequireOnly
	requireText = storehttptest.RequireText
)

func TestEveryCallIsOneRequest(t *testing.T)           { overHTTP.OneRequest(t) }
func TestAgeIsByTheServersClock(t *testing.T)          { overHTTP.Ages(t) }
func TestObjectThatIsTooLargeIsLeftAlone(t *testing.T) { overHTTP.TooLarge(t) }
func TestARequestHasADeadline(t *testing.T)            { overHTTP.Deadline(t) }

// newClient makes a client that signs with the account's key.
func newClient(t *testing.T, endpoint string, over *http.Client) *azblob.Client {
	t.Helper()
	credential, err := azblob.NewSharedKeyCredential(account, encodedKey())
	require.NoError(t, err)
	client, err := azblob.NewClientWithSharedKeyCredential(endpoint, credential,
		&azblob.ClientOptions{ClientOptions: azcore.ClientOptions{
			// as the user's other code may want
			Transport: over, Retry: policy.RetryOptions{MaxRetries: 5, RetryDelay: time.Millisecond}}})
	require.NoError(t, err)
	return client
}

func TestConformsOnStrictServer(t *testing.T) {
	conforms := func(server *fakeAzure, opts ...storetest.Option) func(*testing.T) {
		return func(t *testing.T) {
			store := azblobstore.New(newWire(t, server).client, container, azblobstore.WithKeyPrefix("some/prefix/"))
			plant := func(key string, body []byte) error { server.plant("some/prefix/"+key, body, nil); return nil }
			storetest.Run(t, func(*testing.T) leasehold.Store { return store }, append(opts, storetest.Plant(plant))...)
		}
	}
	t.Run("409 to a create over a blob", conforms(&fakeAzure{}, storetest.MissingIsPreconditionFailed()))
	t.Run("412 to a create over a blob", conforms(&fakeAzure{createRefused412: true},
		storetest.MissingIsPreconditionFailed(), storetest.Rounds(20)))
	t.Run("404 to a write without a blob", conforms(&fakeAzure{missingRefused404: true}, storetest.Rounds(20)))
}

func TestConformsOverASocket(t *testing.T) {
	server := httptest.NewServer(&fakeAzure{})
	defer server.Close()
	connections := &http.Transport{MaxIdleConnsPerHost: 64}
	defer connections.CloseIdleConnections()
	store := azblobstore.New(newClient(t, server.URL+"/"+account, &http.Client{Transport: connections}), container)
	storetest.Run(t, func(*testing.T) leasehold.Store {
		return store
	}, storetest.Rounds(40), storetest.MissingIsPreconditionFailed())
}

func TestStrictServerIsStrict(t *testing.T) {
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	del := func(name string) func(*http.Request) { return func(r *http.Request) { r.Header.Del(name) } }
	for name, c := range map[string]struct {
		change func(*http.Request)
		code   string
	}{
		"a request of the SDK":   {func(*http.Request) {}, ""},
		"no version":             {del("X-Ms-Version"), "MissingRequiredHeader"},
		"an old version":         {set("X-Ms-Version", "2009-09-19"), "InvalidHeaderValue"},
		"no credentials":         {del("Authorization"), "NoAuthenticationInformation"},
		"another's signature":    {set("Authorization", "SharedKey "+account+":AAAA"), "AuthenticationFailed"},
		"a header not signed":    {set("Content-Type", "text/plain"), "AuthenticationFailed"},
		"an old date":            {set("X-Ms-Date", "Sun, 06 Nov 1994 08:49:37 GMT"), "AuthenticationFailed"},
		"a header that is noise": {set("X-Ms-If-Match", "*"), "UnsupportedHeader"},
		"another operation": {
			func(r *http.Request) { r.URL.RawQuery = "comp=metadata" },
			"UnsupportedQueryParameter",
		},
		"another verb": {func(r *http.Request) { r.Method = http.MethodPost }, "UnsupportedHttpVerb"},
		"another container": {
			func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/another/"+key, "" },
			"ContainerNotFound",
		},
		"a short body":           {func(r *http.Request) { r.Body = http.NoBody }, "InvalidInput"},
		"a body without length":  {func(r *http.Request) { r.ContentLength = -1 }, "MissingContentLengthHeader"},
		"another body's MD5":     {set("Content-Md5", "1B2M2Y8AsgTpgAmY7PhCfg=="), "Md5Mismatch"},
		"no condition":           {del("If-Match"), "MissingRequiredHeader"},
		"an empty condition":     {set("If-Match", ""), "InvalidHeaderValue"},
		"any version of a blob":  {set("If-Match", "*"), "InvalidHeaderValue"},
		"two ETags":              {set("If-Match", someETag+", "+someETag), "InvalidHeaderValue"},
		"an ETag without quotes": {set("If-Match", strings.Trim(someETag, `"`)), "InvalidHeaderValue"},
		"two conditions":         {set("If-None-Match", "*"), "MultipleConditionHeadersNotSupported"},
		"another ETag":           {set("If-Match", `"0x8DE"`), "ConditionNotMet"},
		"no type of blob":        {del("X-Ms-Blob-Type"), "MissingRequiredHeader"},
		"another type of blob":   {set("X-Ms-Blob-Type", "PageBlob"), "InvalidHeaderValue"},
		"to be cached":           {set("X-Ms-Blob-Cache-Control", "public"), "InvalidHeaderValue"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &fakeAzure{}
			server.plant(key, []byte("{}"), func(b *fakeBlob) { b.etag = someETag })
			w := newWire(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				genuine := r.Header.Get("Authorization")
				c.change(r)
				if r.Header.Get("Authorization") == genuine && name != "a header not signed" {
					r.Header.Set("Authorization", "SharedKey "+account+":"+signature(r))
				}
				server.ServeHTTP(w, r)
			}))
			next, err := azblobstore.New(w.client, container).PutIfMatch(t.Context(), key, []byte("{}"), someETag)
			if c.code != "" {
				require.ErrorContains(t, err, " "+c.code+": ")
				require.Equal(t, someETag, server.blobs[key].etag, "nothing is written")
				return
			}
			require.NoError(t, err)
			require.NotEqual(t, someETag, next)
		})
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	canned := func(status int, code, message string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, deny(status, code, message)) })
	}
	unauthenticated := func(detail string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("x-ms-request-id", "1")
			w.Header().Set("x-ms-error-code", "AuthenticationFailed")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>AuthenticationFailed</Code><Message>Server failed to authenticate "+
				"the request.</Message>"+
				"<AuthenticationErrorDetail>"+detail+"</AuthenticationErrorDetail></Error>")
		})
	}
	const (
		writes = "PutIfNoneMatch PutIfMatch DeleteIfMatch"
		lease  = "There is currently a lease on the blob and no lease ID was specified in the request."
		role   = "such as the role Storage Blob Data Contributor"
	)
	for _, c := range []struct {
		name   string
		server http.Handler
		calls  string // calls to try, separated by spaces; all if empty
		want   error
		say    string
	}{
		{"no such container", canned(404, "ContainerNotFound", "The specified container does not exist."), "",
			leasehold.ErrPermanent, "create the container, or"},
		{"container being deleted", canned(409, "ContainerBeingDeleted", "The specified container is being deleted."),
			"", leasehold.ErrPermanent, "create the container, or"},
		{"no such resource", canned(404, "ResourceNotFound", "The specified resource does not exist."), "",
			leasehold.ErrPermanent, "create the container, or"},
		{"no such blob", canned(404, "BlobNotFound", "The specified blob does not exist."),
			"Get PutIfMatch DeleteIfMatch", leasehold.ErrNotExist, "The specified blob does not exist."},
		{"no such blob to create", canned(404, "BlobNotFound", "The specified blob does not exist."),
			"PutIfNoneMatch", nil, "BlobNotFound"},
		{"another 404", canned(404, "QueueNotFound", "The specified queue does not exist."), "", nil, "QueueNotFound"},
		{"changed",
			canned(412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met."),
			writes, leasehold.ErrPreconditionFailed, "status 412 ConditionNotMet"},
		{"condition of a read",
			canned(412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met."),
			"Get", nil, "ConditionNotMet"},
		{
			"another condition",
			canned(412, "TargetConditionNotMet", "The target condition specified using HTTP conditional header(s) is "+
				"not met."),
			"",
			nil,
			"TargetConditionNotMet",
		},
		{"exists", canned(409, "BlobAlreadyExists", "The specified blob already exists."), "PutIfNoneMatch",
			leasehold.ErrPreconditionFailed, "status 409 BlobAlreadyExists"},
		{"exists, though not created", canned(409, "BlobAlreadyExists", "The specified blob already exists."),
			"Get PutIfMatch DeleteIfMatch", nil, "BlobAlreadyExists"},
		{"exists, with another status", canned(412, "BlobAlreadyExists", "The specified blob already exists."), "",
			nil, "BlobAlreadyExists"},
		{"leased", canned(412, "LeaseIdMissing", lease), "", nil,
			"a client holds an Azure lease on this blob, which locks it for all others: break the lease"},
		{"leased by another", canned(412, "LeaseIdMismatchWithBlobOperation", lease), "", nil, "break the lease"},
		{"leased, 409", canned(409, "LeaseAlreadyPresent", lease), "", nil, "break the lease"},
		{
			"immutable",
			canned(409, "BlobImmutableDueToPolicy", "This operation is not permitted as the blob is immutable due to "+
				"a policy."),
			writes,
			leasehold.ErrPermanent,
			"use a container without immutability policy and legal hold",
		},
		{
			"legal hold",
			canned(409, "BlobImmutableDueToLegalHold", "This operation is not permitted as the blob is immutable due "+
				"to one or more legal holds."),
			writes,
			leasehold.ErrPermanent,
			"without immutability policy and legal hold",
		},
		{"not a block blob", canned(409, "InvalidBlobType", "The blob type is invalid for this operation."), "",
			leasehold.ErrPermanent, "a page or append blob"},
		{
			"a directory",
			canned(400, "OperationNotSupportedOnDirectory", "The requested operation is not supported on a directory."),
			"",
			leasehold.ErrPermanent,
			"use another key",
		},
		{"archived", canned(409, "BlobArchived", "This operation is not permitted on an archived blob."), "",
			leasehold.ErrPermanent, "archive tier"},
		{"snapshots",
			canned(409, "SnapshotsPresent", "This operation is not permitted while the blob has snapshots."),
			"DeleteIfMatch", leasehold.ErrPermanent, "delete the snapshots"},
		{"a SAS that is not valid yet", unauthenticated("Signature not valid in the specified time frame: " +
			"Start [Tue, 06 Oct 2026 12:05:00 GMT] - Expiry [Wed, 07 Oct 2026 12:00:00 GMT] - Current [Tue, 06 Oct " +
			"2026 12:00:00 GMT]"), "", nil, "Start [Tue"},
		{"a SAS that has expired", unauthenticated("Signature not valid in the specified time frame: " +
			"Start [Mon, 05 Oct 2026 12:00:00 GMT] - Expiry [Tue, 06 Oct 2026 11:00:00 GMT] - Current [Tue, 06 Oct " +
			"2026 12:00:00 GMT]"), "", leasehold.ErrPermanent, "its expiry"},
		{"a wrong clock", unauthenticated("Request date header too old: 'Tue, 06 Oct 2026 11:00:00 GMT'"), "", nil,
			"this machine's clock"},
		{
			"another conflict",
			canned(409, "BlobBeingRehydrated", "This operation is not permitted because the blob is being rehydrated."),
			"",
			nil,
			"BlobBeingRehydrated",
		},
		{"no credentials", canned(401, "NoAuthenticationInformation", "Server failed to authenticate the request."),
			"", leasehold.ErrPermanent, role},
		{"wrong key", canned(403, "AuthenticationFailed", "Server failed to authenticate the request."), "",
			leasehold.ErrPermanent, "check the account key, or the SAS and its expiry, and this machine's clock"},
		{
			"may not read",
			canned(403, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation "+
				"using this permission."),
			"Get",
			leasehold.ErrPermanent,
			"to read blobs (r of a SAS), " + role,
		},
		{"may not create", canned(403, "AuthorizationPermissionMismatch", "This request is not authorized."),
			"PutIfNoneMatch", leasehold.ErrPermanent, "to create and write blobs (c and w of a SAS), " + role},
		{"may not write", canned(403, "AuthorizationPermissionMismatch", "This request is not authorized."),
			"PutIfMatch", leasehold.ErrPermanent, "to write blobs (w of a SAS), " + role},
		{"may not delete", canned(403, "AuthorizationPermissionMismatch", "This request is not authorized."),
			"DeleteIfMatch", leasehold.ErrPermanent, "to delete blobs (d of a SAS), " + role},
		{"behind a firewall",
			canned(403, "AuthorizationFailure", "This request is not authorized to perform this operation."), "",
			leasehold.ErrPermanent, "firewall and network rules"},
		{"wrong key, as Azurite says it",
			canned(403, "AuthorizationFailure", "Server failed to authenticate the request."), "",
			leasehold.ErrPermanent, "check the account key, or the SAS and its expiry"},
		{"an API that the server does not know",
			canned(400, "InvalidHeaderValue", "The API version 2026-12-06 is not supported by Azurite."), "",
			leasehold.ErrPermanent, "--skipApiVersionCheck"},
		{"a feature that the server does not have",
			canned(500, "FeatureNotSupported", "The feature is not supported."), "", leasehold.ErrPermanent,
			"does not have what a lock needs"},
		{"account disabled", canned(403, "AccountIsDisabled", "The specified account is disabled."), "",
			leasehold.ErrPermanent, "The specified account is disabled."},
		{"bad request", canned(400, "InvalidUri", "The requested URI does not represent any resource on the server."),
			"", leasehold.ErrPermanent, "check container, key and endpoint"},
		{"damaged on the way", canned(400, "Md5Mismatch", "The MD5 value specified in the request did not match."),
			"PutIfNoneMatch PutIfMatch", nil, "Md5Mismatch"},
		{"damaged on the way, in FIPS mode",
			canned(400, "Crc64Mismatch", "The CRC64 value specified in the request did not match."),
			"PutIfNoneMatch PutIfMatch", nil, "Crc64Mismatch"},
		{
			"busy",
			canned(503, "ServerBusy", "The server is currently unable to receive requests. Please retry your request."),
			"",
			nil,
			"status 503 ServerBusy: The server is currently unable to receive requests. Please retry your request., " +
				"request 5e0a1c2b-",
		},
		{"timed out",
			canned(500, "OperationTimedOut", "The operation could not be completed within the permitted time."), "",
			nil, "OperationTimedOut"},
		{"internal error",
			canned(500, "InternalError", "The server encountered an internal error. Please retry the request."), "",
			nil, "InternalError"},
		{"a refusal with 500", canned(500, "ConditionNotMet", ""), "", nil, "ConditionNotMet"},
		{"throttled", canned(429, "TooManyRequests", "Too many requests."), "", nil, "TooManyRequests"},
		{"not modified", canned(304, "ConditionNotMet", ""), "", nil, ""}, // nothing asks for it
		{
			"connection closed",
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
			"",
			nil,
			"EOF",
		},
	} {
		overHTTP.Answer(t, c.name, c.server, c.calls, c.want, c.say)
	}
}

func TestErrorsKeepTheSDKs(t *testing.T) {
	_, err := azblobstore.New(newWire(t, &fakeAzure{}).client, "another").Get(t.Context(), key)
	requireOnly(t, leasehold.ErrPermanent, err)
	sdk, ok := errors.AsType[*azcore.ResponseError](err)
	require.True(t, ok)
	require.Equal(t, "ContainerNotFound", sdk.ErrorCode)
}

// A lock whose blob is leased, immutable or of another type is neither free nor lost: the error
// says what is wrong.
func TestBlobsThatCannotBeWritten(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakeBlob)
		want   error
		say    string
	}{
		"leased":    {func(b *fakeBlob) { b.leased = true }, nil, "break the lease"},
		"immutable": {func(b *fakeBlob) { b.immutable = true }, leasehold.ErrPermanent, "without immutability policy"},
		"append":    {func(b *fakeBlob) { b.kind = "AppendBlob" }, leasehold.ErrPermanent, "page or append blob"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &fakeAzure{}
			store := azblobstore.New(newWire(t, server).client, container)
			etag, err := store.PutIfNoneMatch(t.Context(), key, []byte("{}"))
			require.NoError(t, err)
			server.plant(key, nil, c.change)
			_, err = store.PutIfMatch(t.Context(), key, []byte("{}"), etag)
			requireOnly(t, c.want, err)
			require.ErrorContains(t, err, c.say)
			o, err := store.Get(t.Context(), key)
			if name == "append" {
				requireOnly(t, leasehold.ErrPermanent, err)
				require.ErrorContains(t, err, c.say)
			} else {
				require.NoError(t, err, "reads go on")
				require.Equal(t, etag, o.ETag)
			}
			_, err = store.PutIfNoneMatch(t.Context(), key, []byte("{}"))
			requireOnly(t, leasehold.ErrPreconditionFailed, err)
		})
	}
	t.Run("snapshots", func(t *testing.T) {
		server := &fakeAzure{}
		store := azblobstore.New(newWire(t, server).client, container)
		etag, err := store.PutIfNoneMatch(t.Context(), key, []byte("{}"))
		require.NoError(t, err)
		server.plant(key, nil, func(b *fakeBlob) { b.snapshots = true })
		requireOnly(t, leasehold.ErrPermanent, store.DeleteIfMatch(t.Context(), key, etag))
		_, err = store.PutIfMatch(t.Context(), key, []byte("{}"), etag)
		require.NoError(t, err, "locks do not mind snapshots")
	})
}

func TestBadArgumentsAreNamedWithoutARequest(t *testing.T) {
	w := newWire(t, &fakeAzure{})
	secondary := newClient(t, "https://"+account+"-secondary.blob.core.windows.net", &http.Client{Transport: w})
	for _, c := range []struct {
		name  string
		store *azblobstore.Store
		say   string
	}{
		{"URL", azblobstore.New(w.client, endpoint+"/locks/team/a/"),
			"is a URL (give the account's URL to the client, the bare name to New"},
		{"path", azblobstore.New(w.client, "locks/team"), "is not a container's name"},
		{"capitals", azblobstore.New(w.client, "Locks"), "is not a container's name"},
		{"two dashes", azblobstore.New(w.client, "my--locks"), "is not a container's name"},
		{"short", azblobstore.New(w.client, "ab"), "is not a container's name"},
		{"empty", azblobstore.New(w.client, ""), "the container has no name"},
		{"no store", nil, "the Store is nil or empty (make one with New"},
		{"an empty store", &azblobstore.Store{}, "the Store is nil or empty (make one with New"},
		{"a nil option", azblobstore.New(w.client, container, nil), "an Option is nil"},
		{"no client", azblobstore.New(nil, container), "the Azure client is nil"},
		{"secondary region", azblobstore.New(secondary, container),
			`read-only and lags behind (use "` + account + `.blob.core.windows.net"`},
		{"absolute prefix", azblobstore.New(w.client, container, azblobstore.WithKeyPrefix("/locks/")),
			`key prefix "/locks/" has an empty path segment`},
		{"dots", azblobstore.New(w.client, container, azblobstore.WithKeyPrefix("a/../")),
			`key prefix "a/../" has a path segment "." or ".."`},
		{"backslash", azblobstore.New(w.client, container, azblobstore.WithKeyPrefix(`a\`)), "has a backslash"},
		{"small slack", azblobstore.New(w.client, container, azblobstore.WithServerClock(time.Second)),
			"slack 1s is below 2s"},
		{"negative slack", azblobstore.New(w.client, container, azblobstore.WithServerClock(-time.Hour)),
			"slack -1h0m0s is below 2s"},
		{"long prefix", azblobstore.New(w.client, container, azblobstore.WithKeyPrefix(strings.Repeat("p", 1024))),
			"is longer than 1024 bytes"},
		{"long name", azblobstore.New(w.client, container, azblobstore.WithKeyPrefix(strings.Repeat("p", 1023))),
			"use 1 to 1024"},
		{"dot", azblobstore.New(w.client, container, azblobstore.WithKeyPrefix("team./")),
			"a path segment that ends in a dot"},
	} {
		byKey := c.name == "long name" || c.name == "dot"
		overHTTP.BadArgument(t, c.name, c.store, c.say, byKey || c.store == nil)
	}
	overHTTP.WrongETags(t, map[string]error{
		"": leasehold.ErrPermanent,
		// To Azure "*" means any version: a write without a condition.
		"*": leasehold.ErrPreconditionFailed, `"*`: leasehold.ErrPreconditionFailed,
		`""`: leasehold.ErrPreconditionFailed, `"`: leasehold.ErrPreconditionFailed,
		"0x8DE": leasehold.ErrPreconditionFailed, `W/"0x8DE"`: leasehold.ErrPreconditionFailed,
		`"a", "b"`: leasehold.ErrPreconditionFailed,
		`"a,b"`:    leasehold.ErrPreconditionFailed, "\"a\nb\"": leasehold.ErrPreconditionFailed,
	})
	require.Zero(t, w.Count())
}

// credential is a TokenCredential that fails.
type credential struct{ err error }

func (c credential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, c.err
}

func TestCredentialsThatGiveNoToken(t *testing.T) {
	refused := func(status int, body string) error {
		r := httptest.NewRecorder()
		r.Code = status
		r.Body = bytes.NewBufferString(body)
		return &azidentity.AuthenticationFailedError{RawResponse: r.Result()}
	}
	for name, c := range map[string]struct {
		err          error
		first, later error // before and after the server's first answer
		say          string
	}{
		"refused": {refused(401, `{"error":"invalid_client"}`), leasehold.ErrPermanent, leasehold.ErrPermanent,
			"Microsoft Entra refuses a token for these credentials"},
		"transient":  {refused(400, `{"error":"temporarily_unavailable"}`), nil, nil, "check the credentials"},
		"Entra down": {refused(503, ``), nil, nil, "check the credentials"},
		"unavailable": {azidentity.NewCredentialUnavailableError("no credentials here"), leasehold.ErrPermanent, nil,
			"check the credentials"},
		"ended": {context.Canceled, nil, nil, "context canceled"},
	} {
		for call, do := range storeCalls {
			t.Run(name+"/"+call, func(t *testing.T) {
				// The client speaks https, because the SDK sends no token over http.
				var failing atomic.Bool
				failing.Store(true)
				w := fakes3.NewWire(http.HandlerFunc(
					func(w http.ResponseWriter, _ *http.Request) {
						refuse(w, deny(412, "ConditionNotMet", ""))
					}))
				client, err := azblob.NewClient("https://"+account+".blob.core.windows.net",
					switched{credential{c.err}, &failing},
					&azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: w}}})
				require.NoError(t, err)
				store := azblobstore.New(client, container)
				_, err = do(t.Context(), store, someETag)
				requireOnly(t, c.first, err)
				require.ErrorContains(t, err, c.say)
				require.Zero(t, w.Count())
				failing.Store(false)
				_, err = store.PutIfNoneMatch(t.Context(), key, nil)
				requireOnly(t, leasehold.ErrPreconditionFailed, err)
				failing.Store(true)
				_, err = do(t.Context(), store, someETag)
				requireOnly(t, c.later, err)
			})
		}
	}
}

// Azure answers so to a token that is not for storage:
// https://github.com/Azure/AzureStor/issues/119.
func TestTokensThatAzureRefuses(t *testing.T) {
	w := fakes3.NewWire(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate",
				"Bearer authorization_uri=https://login.microsoftonline.com/tenant/oauth2/authorize "+
					"resource_id=https://storage.azure.com")
			w.Header().Set("x-ms-request-id", "5e0a1c2b")
			w.Header().Set("x-ms-error-code", "InvalidAuthenticationInfo")
			w.WriteHeader(http.StatusUnauthorized)
			if r.Method != http.MethodHead {
				_, _ = io.WriteString(w, "<Error><Code>InvalidAuthenticationInfo</Code><Message>Server failed to "+
					"authenticate the request.\nRequestId:5e0a1c2b</Message>"+
					"<AuthenticationErrorDetail>Audience validation failed. Audience did not match.\nWhat follows is "+
					"long.</AuthenticationErrorDetail></Error>")
			}
		}))
	client, err := azblob.NewClient("https://"+account+".blob.core.windows.net", token("t"),
		&azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: w}}})
	require.NoError(t, err)
	for call, do := range storeCalls {
		_, err := do(t.Context(), azblobstore.New(client, container), someETag)
		requireOnly(t, leasehold.ErrPermanent, err)
		require.ErrorContains(t, err, "Server failed to authenticate the request. Audience validation failed. "+
			"Audience did not match., request 5e0a1c2b", call)
		require.ErrorContains(t, err, "check that the token is for https://storage.azure.com and comes from the "+
			"account's tenant", call)
		requireText(t, err)
	}
}

// token is a credential that has one already.
type token string

func (c token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(c), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// switched is a credential that can be made to work. Its tokens are to be renewed at once.
type switched struct {
	credential
	failing *atomic.Bool
}

func (c switched) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if c.failing.Load() {
		return c.credential.GetToken(ctx, o)
	}
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(-time.Second)}, nil
}

func TestTokenIsNotSentInTheClear(t *testing.T) {
	var failing atomic.Bool
	client, err := azblob.NewClient(endpoint, switched{failing: &failing},
		&azblob.ClientOptions{ClientOptions: azcore.ClientOptions{
			Transport: &http.Client{Transport: fakes3.Transport{Handler: &fakeAzure{}}}}})
	require.NoError(t, err)
	_, err = azblobstore.New(client, container).Get(t.Context(), key)
	requireOnly(t, leasehold.ErrPermanent, err)
	require.ErrorContains(t, err, "not permitted for non-TLS")
}

func TestBodyThatBreaksOffOrIsDamagedIsNotAnAnswer(t *testing.T) {
	for name, send := range map[string]func(w http.ResponseWriter){
		"breaks off": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("half"))
		},
		"has a header that is no date": func(w http.ResponseWriter) {
			w.Header().Set("Last-Modified", "yesterday")
			_, _ = w.Write(make([]byte, 1<<20))
		},
		"damaged": func(w http.ResponseWriter) {
			w.Header().Set("Content-Md5", "1B2M2Y8AsgTpgAmY7PhCfg==") // of nothing
			_, _ = w.Write([]byte("half"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				w.Header().Set("X-Ms-Request-Id", "1")
				w.Header().Set("ETag", someETag)
				send(w)
			}))
			defer server.Close()
			connections := &http.Transport{}
			defer connections.CloseIdleConnections()
			_, err := azblobstore.New(newClient(t, server.URL+"/"+account, &http.Client{Transport: connections}),
				container).Get(t.Context(), key)
			requireOnly(t, nil, err)
			requireText(t, err)
			require.EqualValues(t, 1, requests.Load(), "nothing is read a second time")
		})
	}
}

// damaging is a network that changes a byte of what goes up.
type damaging struct{ http.RoundTripper }

func (d damaging) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if len(body) > 0 {
			body[0] ^= 1
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return d.RoundTripper.RoundTrip(r)
}

// A body that was damaged on the way is not written, and the write is tried again. FIPS mode
// forbids MD5: then a CRC64 finds it.
func TestBodyDamagedOnTheWayIsNotWritten(t *testing.T) {
	w := newWire(t, &fakeAzure{})
	store := azblobstore.New(w.client, container)
	w.Base = damaging{w.Base}
	_, err := store.PutIfNoneMatch(t.Context(), key, []byte("{}"))
	requireOnly(t, nil, err)
	if fips140.Enforced() {
		require.ErrorContains(t, err, "Crc64Mismatch")
		return
	}
	require.ErrorContains(t, err, "Md5Mismatch")
	_, err = store.Get(t.Context(), key)
	require.ErrorIs(t, err, leasehold.ErrNotExist)
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		"-test.run=^(TestBodyDamagedOnTheWayIsNotWritten|TestConformsOnStrictServer)$")
	cmd.Env = append(cmd.Environ(), "GODEBUG=fips140=only")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// counted is a body that is counted while it is open.
type counted struct {
	io.ReadCloser
	open *atomic.Int32
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.ReadCloser.Close()
}

// counting is a network that counts the bodies that are open.
type counting struct {
	http.RoundTripper
	open atomic.Int32
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		c.open.Add(1)
		resp.Body = &counted{ReadCloser: resp.Body, open: &c.open}
	}
	return resp, err
}

func TestEveryBodyIsClosed(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"an answer": (&fakeAzure{}).ServeHTTP,
		"a refusal": func(w http.ResponseWriter, _ *http.Request) { refuse(w, deny(412, "ConditionNotMet", "")) },
		"a page":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, storehttptest.Page) },
		"a header that is no date": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Ms-Request-Id", "1")
			w.Header().Set("ETag", someETag)
			w.Header().Set("Last-Modified", "yesterday")
			w.WriteHeader(success(r))
		},
	} {
		for call, do := range storeCalls {
			network := &counting{RoundTripper: newWire(t, answer).Base}
			_, _ = do(t.Context(), azblobstore.New(newClient(t, endpoint, &http.Client{Transport: network}), container),
				someETag)
			require.Zero(t, network.open.Load(), "%s, %s", name, call)
		}
	}
}

// A connection that has fallen silent costs two requests.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	link := faultproxy.StartLink(t, &fakeAzure{})
	credential, err := azblob.NewSharedKeyCredential(account, base64.StdEncoding.EncodeToString(accountKey))
	require.NoError(t, err)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(link.URL(), "https://"))
		},
		TLSClientConfig: &tls.Config{RootCAs: link.Roots(), ServerName: "example.com"}, ForceAttemptHTTP2: true,
	}
	defer transport.CloseIdleConnections()
	client, err := azblob.NewClientWithSharedKeyCredential("https://"+account+".blob.core.windows.net", credential,
		&azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}}})
	require.NoError(t, err)
	storehttptest.SilentConnection(t, link, azblobstore.New(client, container))
}
