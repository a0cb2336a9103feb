package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// StartAzuriteForTokens is [StartAzurite] with TLS, so that it takes the tokens of Microsoft Entra.
// It compares their times, issuer and audience, and no signature. certificate is the file with its
// certificate, which it has signed itself.
func StartAzuriteForTokens(tb testing.TB, flags ...string) (a Azurite, certificate string) {
	tb.Helper()
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must(err)
	dir := tb.TempDir()
	certificate, key := filepath.Join(dir, "azurite.crt"), filepath.Join(dir, "azurite.key")
	must(os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public}), 0o600))
	must(os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return StartAzurite(tb, append(flags, "--oauth", "basic", "--cert", certificate, "--key", key)...), certificate
}

// EntraToken is a token for that audience, good for a day. Its signature is none.
func EntraToken(audience string) string {
	now := time.Now()
	header, _ := json.Marshal(map[string]string{"alg": "RS256", "typ": "JWT"})
	claims, _ := json.Marshal(map[string]any{
		"aud": audience, "iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000000/",
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(24 * time.Hour).Unix(),
	})
	return base64.RawURLEncoding.EncodeToString(header) + "." +
		base64.RawURLEncoding.EncodeToString(claims) + ".unsigned"
}

// ManagedIdentity starts an endpoint that gives a token for that audience to every client that
// wants one for storage, as Azure's App Service has one. It returns the environment in which
// Azure's SDK finds it.
func ManagedIdentity(tb testing.TB, audience string) map[string]string {
	const secret, resource = "the secret of an identity", "https://storage.azure.com"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Identity-Header") != secret || r.URL.Query().Get("resource") != resource {
			http.Error(w, "a request of another kind", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{
			"access_token": EntraToken(audience), "resource": resource, "token_type": "Bearer",
			"expires_on": fmt.Sprint(time.Now().Add(24 * time.Hour).Unix()),
		})
	}))
	tb.Cleanup(server.Close)
	return map[string]string{"IDENTITY_ENDPOINT": server.URL + "/msi/token", "IDENTITY_HEADER": secret}
}
