package azblobstore_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/internal/testkit/storehttptest"
)

const hint = "is this Azure Blob Storage?"

// These would be Azure's if they had all of its headers.
func TestRepliesThatAreNotAzures(t *testing.T) {
	reply, cutOff := storehttptest.Status, storehttptest.CutOff
	headed := func(status int, header ...string) http.HandlerFunc {
		h := map[string]string{}
		for i := 0; i < len(header); i += 2 {
			h[header[i]] = header[i+1]
		}
		return storehttptest.Headed(status, h, "{}")
	}
	const id, tag = "X-Ms-Request-Id", "ETag"
	successful := func(header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { headed(success(r), header...)(w, r) }
	}
	document := func(code string) string {
		return `<?xml version="1.0" encoding="utf-8"?><Error><Code>` + code + `</Code><Message>text</Message></Error>`
	}
	// with Azure's code, in the header or the document, but without its ID
	code := func(status int, code string) http.HandlerFunc {
		return storehttptest.Headed(status, map[string]string{"X-Ms-Error-Code": code}, document(code))
	}
	redirect := func(status int) http.HandlerFunc { // to a reply that would do
		return storehttptest.Redirect(status, successful(id, "1", tag, someETag))
	}
	xml := map[string]string{"Content-Type": "application/xml"}
	xmlOf1000 := map[string]string{"Content-Type": "application/xml", "Content-Length": "1000"}
	const half = `<?xml version="1.0"?><Error><Code>BlobNotFound</Code><Mess`
	replies := map[string]storehttptest.Reply{
		// whose error says more, because a delete needs no ETag
		"an ID, but no ETag":        {Answer: successful(id, "1"), Fine: "DeleteIfMatch"},
		"an ID, but a weak ETag":    {Answer: successful(id, "1", tag, "W/"+someETag), Fine: "DeleteIfMatch"},
		"an ID, but an ETag of any": {Answer: successful(id, "1", tag, "*"), Fine: "DeleteIfMatch"},
	}
	for name, answer := range map[string]http.HandlerFunc{
		"a page with an ETag":         headed(200, tag, someETag, "Content-Type", "text/html"),
		"200 with an ETag":            headed(200, tag, someETag),
		"201":                         reply(201, ""),
		"201 with an ETag":            headed(201, tag, someETag),
		"202":                         reply(202, ""),
		"206 with everything":         headed(206, id, "1", tag, someETag),
		"203 with everything":         headed(203, id, "1", tag, someETag),
		"302 to a blob":               redirect(302),
		"303 to a blob":               redirect(303),
		"307 to a blob":               redirect(307),
		"404 with a code":             code(404, "BlobNotFound"),
		"404 with a code in the body": reply(404, document("BlobNotFound")),
		"404 with an ID, no code":     headed(404, id, "1", tag, someETag),
		"404 cut off":                 cutOff(404, xmlOf1000, half),
		"404 chunks cut off":          cutOff(404, xml, half),
		"403 with a code":             code(403, "AuthenticationFailed"),
		"409 with a code":             code(409, "BlobAlreadyExists"),
		"409 with a code in the body": reply(409, document("BlobAlreadyExists")),
		"412 with a code":             code(412, "ConditionNotMet"),
		"412 with a code in the body": reply(412, document("ConditionNotMet")),
		"412 with an ID, no code":     headed(412, id, "1", tag, someETag),
		"412 with an ID, code in body": storehttptest.Headed(412, map[string]string{id: "1", tag: someETag},
			document("ConditionNotMet")),
		"an ETag and success, no ID":    successful(tag, someETag),
		"success, and nothing of Azure": successful(),
	} {
		replies[name] = storehttptest.Reply{Answer: answer}
	}
	overHTTP.ForeignReplies(t, replies)
}

func TestEndpointsThatCannotWorkAreTold(t *testing.T) { overHTTP.Endpoints(t, hint, nil) }

func TestFaultsOfThisMachineMayPassOnceTheServerHasAnswered(t *testing.T) { overHTTP.MachineFaults(t) }

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
			_, err := call(ctx, azblobstore.New(client, container), someETag)
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
