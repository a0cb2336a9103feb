package s3api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/storehttptest"
)

// A connection that has fallen silent costs two requests, whatever the client is made of.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	for name, transport := range map[string]func(*tls.Config) s3.HTTPClient{
		"the SDK's own": func(c *tls.Config) s3.HTTPClient {
			return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.TLSClientConfig = c })
		},
		"of net/http": func(c *tls.Config) s3.HTTPClient {
			return &http.Client{Transport: &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}}
		},
		"wrapped": func(c *tls.Config) s3.HTTPClient {
			return &http.Client{Transport: wrapped{&http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}}}
		},
		"HTTP/1.1": func(c *tls.Config) s3.HTTPClient {
			return &http.Client{Transport: &http.Transport{TLSClientConfig: c}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := faultproxy.StartLink(t, &fakes3.Server{RandomETags: true})
			client := s3.New(fakes3.NewClient(nil).Options(), func(o *s3.Options) {
				o.BaseEndpoint = aws.String(link.URL())
				o.HTTPClient = transport(&tls.Config{RootCAs: link.Roots()})
			})
			storehttptest.SilentConnection(t, link, leasehold.NewS3Store(client, fakes3.Bucket))

			files, err := fenced.NewS3Store(client, fakes3.Bucket, fenced.UniqueETags)
			require.NoError(t, err)
			require.NoError(t, files.Put(t.Context(), 1, "file", bytes.NewReader(nil)))
			link.CheckRecovery(t, func(ctx context.Context) error {
				object, err := files.Get(ctx, "file")
				if err == nil {
					err = object.Body.Close()
				}
				return err
			})
		})
	}
}

type wrapped struct{ http.RoundTripper }
