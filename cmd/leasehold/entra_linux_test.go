package main_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// Without key and signature the command gets a token from Microsoft Entra. Go reads SSL_CERT_FILE
// on Linux only.
func TestAzureByMicrosoftEntra(t *testing.T) {
	t.Parallel()
	server, certificate := testserver.StartAzuriteForTokens(t, testserver.AnyAPIVersion)
	roots := x509.NewCertPool()
	public, err := os.ReadFile(certificate)
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(public))
	network := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(network.CloseIdleConnections)
	client, err := azblob.NewClientFromConnectionString(server.ConnectionString(),
		&azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: network}}})
	require.NoError(t, err)
	_, err = client.CreateContainer(t.Context(), azureContainer, nil)
	require.NoError(t, err)

	by := func(audience string) []string {
		env := []string{"SSL_CERT_FILE=" + certificate}
		for name, value := range testserver.ManagedIdentity(t, audience) {
			env = append(env, name+"="+value)
		}
		return env
	}
	at := "?endpoint=" + server.Endpoint
	url := "azblob://" + azureContainer + "/locks/a" + at
	entra := by("https://storage.azure.com")
	az := func(args ...string) result { return finish(t, azureCommand(t, entra, args...)) }
	r := az("run", url, "--", "sh", "-c", "echo $LEASEHOLD_TOKEN")
	require.Equal(t, "1\n", r.out, "%s", r.stderr)
	elect := azureCommand(t, entra, "elect", url, "--", "sh", "-c", "echo $LEASEHOLD_TOKEN; exec sleep 60")
	out, err := elect.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, elect.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "2\n", line)
	require.NoError(t, elect.Process.Signal(syscall.SIGTERM))
	_ = elect.Wait()
	r = az("list", "-o", "json", "azblob://"+azureContainer+"/locks/"+at)
	r.succeeds(t)
	require.Equal(t, "released", views(t, r.out)[0].State)
	doctor(t, 0, azureCommand(t, entra, "doctor", url)).finds("credentials", "ok", "accepted", "")

	entra = by("https://management.azure.com/")
	const cure = "check that the token is for https://storage.azure.com"
	az("run", "--wait", "1s", url, "--", "true").complains(t, 77, cure)
	az("list", "azblob://"+azureContainer+"/locks/"+at).complains(t, 77, "check the credentials")
	doctor(t, 77, azureCommand(t, entra, "doctor", url)).finds("credentials", "failed",
		"HTTP 403 AuthenticationFailed", cure)
}
