package place

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
)

// azureAccount is what is known of a storage account. Where it has no key and no signature,
// Microsoft Entra's credentials are used.
type azureAccount struct{ name, endpoint, key, signature string }

// developmentStorage is the account that every Azurite has. Microsoft publishes its key.
var developmentStorage = azureAccount{
	name: "devstoreaccount1", endpoint: "http://127.0.0.1:10000/devstoreaccount1",
	key: "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
}

// azureAccount finds the account as az storage does. The URL is stronger than the environment.
func (l Location) azureAccount() (azureAccount, error) {
	const variable = "AZURE_STORAGE_CONNECTION_STRING"
	var a azureAccount
	if text := os.Getenv(variable); text != "" {
		a = parseConnection(text)
		if a.name == "" && a.endpoint == "" {
			return a, exit.Errorf(exit.Config, "%s names neither an AccountName nor a BlobEndpoint", variable)
		}
		if a.name != "" && l.account != "" && a.name != l.account {
			return a, exit.Errorf(exit.Config, "%s names the account %q, and the URL names %q (remove one of them)",
				variable, a.name, l.account)
		}
	} else {
		a.name, a.key, a.signature = os.Getenv("AZURE_STORAGE_ACCOUNT"), os.Getenv("AZURE_STORAGE_KEY"),
			os.Getenv("AZURE_STORAGE_SAS_TOKEN")
		if l.account != "" {
			a.name = l.account
		}
	}
	if l.Endpoint != "" {
		a.endpoint = l.Endpoint
	}
	switch {
	case a.name == "" && a.endpoint == "":
		return a, exit.Errorf(exit.Config, "there is no storage account (set AZURE_STORAGE_ACCOUNT, or add "+
			"?account=NAME to the URL)")
	case a.endpoint == "":
		a.endpoint = "https://" + a.name + ".blob.core.windows.net"
	case a.name == "":
		a.name = accountOf(a.endpoint)
	}
	return a, nil
}

// accountOf is the account in an endpoint: the host's first label, or of an emulator the first part
// of the path.
func accountOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	if path := strings.Trim(u.Path, "/"); path != "" || net.ParseIP(u.Hostname()) != nil {
		name, _, _ := strings.Cut(path, "/")
		return name
	}
	name, _, _ := strings.Cut(u.Hostname(), ".")
	return name
}

// parseConnection reads a connection string.
func parseConnection(text string) azureAccount {
	part := map[string]string{}
	for field := range strings.SplitSeq(text, ";") {
		if name, value, ok := strings.Cut(strings.TrimSpace(field), "="); ok {
			part[strings.ToLower(name)] = value
		}
	}
	if strings.EqualFold(part["usedevelopmentstorage"], "true") {
		return developmentStorage
	}
	a := azureAccount{part["accountname"], strings.TrimSuffix(part["blobendpoint"], "/"), part["accountkey"],
		part["sharedaccesssignature"]}
	if suffix := part["endpointsuffix"]; a.endpoint == "" && suffix != "" && a.name != "" {
		protocol := part["defaultendpointsprotocol"]
		if protocol == "" {
			protocol = "https"
		}
		a.endpoint = protocol + "://" + a.name + ".blob." + suffix
	}
	return a
}

// AzureClient is a client of the storage account that the URL or the environment names, which
// repeats no request. If there is none, or no credentials, the error is of the code exit.Config.
func (l Location) AzureClient() (*azblob.Client, error) {
	a, err := l.azureAccount()
	if err != nil {
		return nil, err
	}
	options := &azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}}
	if l.Through != nil {
		options.Transport = doer{l.Through(newTransport())}
	}
	switch {
	case a.key != "":
		credential, err := azblob.NewSharedKeyCredential(a.name, a.key)
		if err != nil {
			return nil, exit.Errorf(exit.Config, "the key of the account %q is not valid: %w", a.name, err)
		}
		return azblob.NewClientWithSharedKeyCredential(a.endpoint, credential, options)
	case a.signature != "":
		return azblob.NewClientWithNoCredential(a.endpoint+"?"+strings.TrimPrefix(a.signature, "?"), options)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, exit.Errorf(exit.Config, "reading Azure's credentials: %w", err)
	}
	return azblob.NewClient(a.endpoint, credential, options)
}

func (l Location) openAzure() (*Store, error) {
	client, err := l.AzureClient()
	if err != nil {
		return nil, err
	}
	page := func(ctx context.Context, prefix, token string) (objects []Object, next string, err error) {
		options := &azblob.ListBlobsFlatOptions{Prefix: &prefix}
		if token != "" {
			options.Marker = &token
		}
		out, err := client.NewListBlobsFlatPager(l.Bucket, options).NextPage(ctx)
		switch {
		case err != nil:
			return nil, "", l.listFailed(err)
		case out.Segment == nil: // a web page, say
			return nil, "", notAList("Azure Blob Storage")
		}
		for _, blob := range out.Segment.BlobItems {
			if blob.Name != nil {
				objects = append(objects, Object{Key: *blob.Name})
			}
		}
		if out.NextMarker != nil {
			next = *out.NextMarker
		}
		return objects, next, nil
	}
	return NewStore(azblobstore.New(client, l.Bucket, azblobstore.WithServerClock(ServerSlack)), page, func() {}), nil
}

// listFailed is the error of a list in one line.
func (l Location) listFailed(err error) error {
	reply, ok := errors.AsType[*azcore.ResponseError](err)
	switch {
	case !ok:
		return err
	case reply.StatusCode == http.StatusNotFound:
		return exit.Errorf(exit.Config, "there is no container %q (create it, or correct its name or the endpoint)",
			l.Bucket)
	case exit.Denied(err):
		return exit.Errorf(exit.Permission, "listing the container %q: HTTP %d %s (check the credentials: they "+
			"need the right to list blobs, l of a SAS)", l.Bucket, reply.StatusCode, reply.ErrorCode)
	}
	return exit.Errorf(exit.Store, "listing the container %q: HTTP %d %s (try again later)", l.Bucket,
		reply.StatusCode, reply.ErrorCode)
}
