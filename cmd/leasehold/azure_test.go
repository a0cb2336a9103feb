package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

const azureContainer = "leasehold-cmd"

// newAzure starts an Azurite with a container, and returns what prepares a run of the program
// there. env is added to the environment.
func newAzure(t *testing.T) (
	server testserver.Azurite, client *azblob.Client, command func(env []string, args ...string) *exec.Cmd,
) {
	server = testserver.StartAzurite(t, testserver.AnyAPIVersion)
	client, err := azblob.NewClientFromConnectionString(server.ConnectionString(), nil)
	require.NoError(t, err)
	_, err = client.CreateContainer(t.Context(), azureContainer, nil)
	require.NoError(t, err)
	return server, client, func(env []string, args ...string) *exec.Cmd {
		return azureCommand(t, env, args...)
	}
}

// azureCommand prepares a run of the program with no credentials of Azure but those in env.
func azureCommand(t *testing.T, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), program, args...)
	for _, v := range plainEnviron() {
		if !strings.HasPrefix(v, "AZURE_") && !strings.HasPrefix(v, "IDENTITY_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

func TestAzure(t *testing.T) {
	t.Parallel()
	server, _, command := newAzure(t)
	env := []string{"AZURE_STORAGE_CONNECTION_STRING=" + server.ConnectionString()}
	az := func(args ...string) result { return finish(t, command(env, args...)) }
	url := "azblob://" + azureContainer + "/locks/a"
	r := az("run", url, "--", "sh", "-c", "echo $LEASEHOLD_TOKEN; exit 3")
	require.Equal(t, 3, r.code, "%s", r.stderr)
	require.Equal(t, "1\n", r.out)
	for says, args := range map[string][]string{
		"2":        {"elect", url, "--", "sh", "-c", "echo $LEASEHOLD_TOKEN; exec sleep 60"},
		"released": {"watch", url},
	} {
		cmd := command(env, args...)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, says)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait()
	}
	r = az("acquire", url)
	r.succeeds(t)
	handle := strings.TrimSpace(r.out)
	az("renew", handle).succeeds(t)
	az("run", "--no-wait", url, "--", "true").complains(t, 75, "is held by")
	r = az("list", "-o", "json", "azblob://"+azureContainer+"/locks/")
	r.succeeds(t)
	all := views(t, r.out)
	require.Len(t, all, 1)
	require.Equal(t, []any{"locks/a", "held"}, []any{all[0].Key, all[0].State})
	token := all[0].Token
	require.Equal(t, 0, az("break", "--token", fmt.Sprint(token), "--yes", url).code)
	require.NotEqual(t, 0, az("renew", handle).code)
	r = az("status", "-o", "json", url)
	r.succeeds(t)
	require.Equal(t, "released", views(t, r.out)[0].State)
	r = az("bench", "-o", "json", "--rounds", "2", "--ttl", benchTTL.String(), url)
	require.Equal(t, 0, r.code, "%s", r.stderr)
	benchRows(t, r.out, 2, benchTTL)
	az("run", strings.Replace(url, azureContainer, "no-such-container", 1), "--", "true").complains(t, 78,
		"create the container")
	az("list", "azblob://no-such-container/").complains(t, 78, "create it")
}

// Credentials are found as az storage finds them.
func TestAzureCredentials(t *testing.T) {
	t.Parallel()
	server, client, command := newAzure(t)
	at := "?endpoint=" + server.Endpoint
	signature, err := client.ServiceClient().GetSASURL(sas.AccountResourceTypes{Object: true},
		sas.AccountPermissions{Read: true}, time.Now().Add(time.Hour), nil)
	require.NoError(t, err)
	_, signature, _ = strings.Cut(signature, "?")
	for name, c := range map[string]struct {
		env        []string
		parameters string
		code       int
		text       string
	}{
		"connection string": {
			[]string{"AZURE_STORAGE_CONNECTION_STRING=" + server.ConnectionString()},
			"",
			0,
			"",
		},
		"of another account": {
			[]string{"AZURE_STORAGE_CONNECTION_STRING=" + server.ConnectionString()},
			"?account=other",
			78,
			"remove one of them",
		},
		"of no account": {
			[]string{"AZURE_STORAGE_CONNECTION_STRING=AccountKey=eA=="},
			"",
			78,
			"names neither",
		},
		"key": {[]string{"AZURE_STORAGE_KEY=" + server.Key}, at, 0, ""},
		"account and key": {
			[]string{"AZURE_STORAGE_ACCOUNT=" + server.Account, "AZURE_STORAGE_KEY=" + server.Key},
			at,
			0,
			"",
		},
		"a key that is none": {[]string{"AZURE_STORAGE_KEY=%"}, at, 78, "is not valid"},
		"wrong key":          {[]string{"AZURE_STORAGE_KEY=d3Jvbmc="}, at, 77, "check the account key"},
		"SAS that may only read": {
			[]string{"AZURE_STORAGE_SAS_TOKEN=" + signature},
			at,
			77,
			"right to create and write blobs",
		},
		"nothing":                      {nil, "", 78, "set AZURE_STORAGE_ACCOUNT, or add ?account=NAME"},
		"Microsoft Entra, without TLS": {nil, at, 78, "check the credentials"},
		"an Azurite that is not there": {
			[]string{"AZURE_STORAGE_CONNECTION_STRING=UseDevelopmentStorage=true"},
			"?endpoint=http://" + testserver.FreeAddr(t) + "/devstoreaccount1",
			69,
			"cannot reach the store",
		},
		"a secondary region": {
			[]string{"AZURE_STORAGE_KEY=" + server.Key},
			"?account=a&endpoint=https://a-secondary.blob.core.windows.net",
			78,
			"secondary region",
		},
		"a parameter of another scheme": {nil, "?region=x", 64, "only account, endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := finish(t, command(c.env, "run", "--wait", "1s", "azblob://"+azureContainer+"/locks/"+
				strings.ReplaceAll(name, " ", "-")+c.parameters, "--", "true"))
			require.Equal(t, c.code, r.code, "%s", r.stderr)
			require.Contains(t, r.stderr, c.text)
		})
	}
}

func TestDoctorOnAzure(t *testing.T) {
	t.Parallel()
	server, client, command := newAzure(t)
	root, _, _ := strings.Cut(strings.TrimPrefix(server.Endpoint, "http://"), "/")
	// behind is a proxy that adds a header to the answers to such requests.
	behind := func(is func(*http.Request) bool, name, value string) string {
		return proxy(t, "http://"+root, nil, nil, func(r *http.Response) {
			if is(r.Request) {
				r.Header.Set(name, value)
			}
		}) + "/" + server.Account
	}
	answering := func(is func(*http.Request) bool, status int, body, code string) string {
		return proxy(t, "http://"+root, nil, func(r *http.Request) *http.Response {
			if !is(r) {
				return nil
			}
			reply := xmlReply(status, body)
			reply.Header.Set("X-Ms-Request-Id", "proxy")
			if code != "" {
				reply.Header.Set("X-Ms-Error-Code", code)
			}
			return reply
		}, nil) + "/" + server.Account
	}
	of := func(kind string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.URL.Query().Get("restype") == kind }
	}
	blob := func(r *http.Request) bool { return r.Method == http.MethodHead && r.URL.RawQuery == "" }
	writes := func(r *http.Request) bool { return r.Method == http.MethodPut }
	const denied = "AuthorizationPermissionMismatch"

	_, err := client.UploadStream(t.Context(), azureContainer, "locks/leased", bytes.NewReader(nil), nil)
	require.NoError(t, err)
	leased, err := lease.NewBlobClient(
		client.ServiceClient().NewContainerClient(azureContainer).NewBlobClient("locks/leased"), nil)
	require.NoError(t, err)
	_, err = leased.AcquireLease(t.Context(), -1, nil)
	require.NoError(t, err)
	for what, c := range map[string]struct {
		endpoint, container, key    string
		code                        int
		check, result, seen, advice string
		except                      []string
	}{
		"good": {server.Endpoint, azureContainer, "", 0, "conditions", "ok", "enforced in", "", nil},
		"no container": {
			server.Endpoint,
			"no-such-container",
			"",
			78,
			"container",
			"failed",
			"no-such-container does not exist",
			"create the container",
			nil,
		},
		"nothing there": {
			"http://" + testserver.FreeAddr(t) + "/a",
			azureContainer,
			"",
			69,
			"endpoint",
			"failed",
			"connection refused",
			"check host and port",
			nil,
		},
		"no create": {
			answering(writes, 403, "", denied),
			azureContainer,
			"",
			77,
			"put",
			"failed",
			"HTTP 403 " + denied,
			"c and w of a SAS",
			[]string{"get"},
		},
		"leased": {
			server.Endpoint,
			azureContainer,
			"leased",
			78,
			"lease",
			"failed",
			"a client holds an Azure lease",
			"break the lease",
			nil,
		},
		"versions": {
			behind(blob, "X-Ms-Version-Id", "2026-11-24T00:00:00Z"),
			azureContainer,
			"",
			78,
			"versioning",
			"warning",
			"each renewal stays",
			"switch blob versioning off",
			nil,
		},
		"immutability": {
			behind(of("container"), "X-Ms-Has-Immutability-Policy", "true"),
			azureContainer,
			"",
			78,
			"immutability",
			"failed",
			"cannot be overwritten",
			"without immutability policy",
			nil,
		},
		"legal hold": {
			behind(of("container"), "X-Ms-Has-Legal-Hold", "true"),
			azureContainer,
			"",
			78,
			"legal hold",
			"failed",
			"cannot be overwritten",
			"clear the legal hold",
			nil,
		},
		"denied": {
			answering(of("container"), 403, "", denied),
			azureContainer,
			"",
			0,
			"legal hold",
			"not checked",
			"HTTP 403 " + denied,
			"containers/read",
			[]string{"immutability"},
		},
		"namespace": {
			behind(of("account"), "X-Ms-Is-Hns-Enabled", "true"),
			azureContainer,
			"",
			78,
			"hierarchical namespace",
			"warning",
			"has not been tried",
			"without one",
			nil,
		},
		"a look denied": {
			answering(of("account"), 403, "", denied),
			azureContainer,
			"",
			0,
			"hierarchical namespace",
			"not checked",
			denied,
			"getInfo",
			nil,
		},
		"soft delete": {
			answering(of("service"), 200, "<StorageServiceProperties><DeleteRetentionPolicy><Enabled>true</Enabled>"+
				"<Days>7</Days></DeleteRetentionPolicy></StorageServiceProperties>", ""),
			azureContainer,
			"",
			78,
			"soft delete",
			"warning",
			"stays for some days",
			"switch soft delete",
			nil,
		},
		"it is not told": {
			answering(of("service"), 403, "", denied),
			azureContainer,
			"",
			0,
			"soft delete",
			"not checked",
			denied,
			"blobServices/read",
			nil,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			key := c.key
			if key == "" {
				key = strings.ReplaceAll(what, " ", "-")
			}
			cmd := command([]string{"AZURE_STORAGE_ACCOUNT=" + server.Account, "AZURE_STORAGE_KEY=" + server.Key},
				"doctor",
				fmt.Sprintf("azblob://%s/locks/%s?endpoint=%s", c.container, key, c.endpoint))
			doctor(t, c.code, cmd).finds(c.check, c.result, c.seen, c.advice, c.except...)
		})
	}
}

func TestDoctorFromTwoSidesOnAzure(t *testing.T) {
	t.Parallel()
	server, client, command := newAzure(t)
	other, otherClient, _ := newAzure(t)
	two := func(code int, second string) diagnosis {
		return doctor(t, code, command([]string{"AZURE_STORAGE_KEY=" + server.Key}, "doctor", "--endpoint",
			server.Endpoint, "--endpoint", second, "azblob://"+azureContainer+"/locks/a"))
	}
	two(0, strings.Replace(server.Endpoint, "127.0.0.1", "localhost", 1)).finds("sides", "ok",
		"2 endpoints show one bucket", "")
	two(78, other.Endpoint).finds("sides", "failed", "checking that", "use one endpoint for all processes")
	for _, side := range []*azblob.Client{client, otherClient} {
		page, err := side.NewListBlobsFlatPager(azureContainer, nil).NextPage(t.Context())
		require.NoError(t, err)
		require.Empty(t, page.Segment.BlobItems, "nothing stays on either side")
	}
	closed := "http://" + testserver.FreeAddr(t) + "/" + server.Account
	two(69, closed).finds("sides", "failed", closed+": ", "correct the endpoint "+closed)

	request, reply := caching()
	cache := proxy(t, strings.TrimSuffix(server.Endpoint, "/"+server.Account), nil, request, reply)
	two(78, cache+"/"+server.Account).finds("sides", "failed", "endpoint 2 does not show what was written by endpoint",
		"a cache on the way")
}
