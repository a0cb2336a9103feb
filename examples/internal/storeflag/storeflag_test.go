package storeflag_test

import (
	"flag"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

func TestOpen(t *testing.T) {
	server := httptest.NewServer(&fakes3.Server{})
	defer server.Close()
	for name, c := range map[string]struct {
		args                []string
		endpoint, accessKey string // of the environment
		place, err          string
	}{
		"in memory":       {place: "in memory"},
		"endpoint unused": {endpoint: server.URL, place: "in memory"},
		"endpoint by flag": {
			args:      []string{"-s3", server.URL, "-bucket", "bucket"},
			accessKey: "any",
			place:     `in bucket "bucket" at ` + server.URL,
		},
		"endpoint by env": {
			args:      []string{"-bucket", "bucket"},
			endpoint:  server.URL,
			accessKey: "any",
			place:     `in bucket "bucket" at ` + server.URL,
		},
		"bucket only": {args: []string{"-bucket", "b"}, err: "also set AWS_ACCESS_KEY_ID"},
		"server only": {args: []string{"-s3", server.URL}, accessKey: "any", err: "also set -bucket"},
		"not a URL": {
			args:      []string{"-s3", "foo", "-bucket", "b"},
			accessKey: "any",
			err:       `"foo" is not a URL`,
		},
		"no such bucket": {
			args:      []string{"-s3", server.URL, "-bucket", "b"},
			accessKey: "any",
			err:       "create the bucket",
		},
		"nothing answers": {
			args:      []string{"-s3", "http://127.0.0.1:9", "-bucket", "b"},
			accessKey: "any",
			err:       "cannot reach an S3 server at http://127.0.0.1:9: ",
		},
		"https is not there": {
			args:      []string{"-s3", "https" + server.URL[len("http"):], "-bucket", "b"},
			accessKey: "any",
			err:       "HTTP response to HTTPS client",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_ENDPOINT_URL", c.endpoint)
			t.Setenv("AWS_ACCESS_KEY_ID", c.accessKey)
			t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
			set := flag.NewFlagSet("example", flag.ContinueOnError)
			where := storeflag.Add(set, "Example shows nothing.")
			require.NoError(t, set.Parse(c.args))
			store, err := where.Open(t.Context())
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.NotNil(t, store)
			require.Equal(t, c.place, where.Place())
		})
	}
}

// Without an endpoint the bucket is one of Amazon S3.
func TestAmazonS3NeedsNoEndpoint(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "")
	t.Setenv("AWS_ACCESS_KEY_ID", "any")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
	set := flag.NewFlagSet("example", flag.ContinueOnError)
	where := storeflag.Add(set, "Example shows nothing.")
	require.NoError(t, set.Parse([]string{"-bucket", "b", "-region", "eu-central-1"}))
	client, err := where.Client()
	require.NoError(t, err)
	require.Nil(t, client.Options().BaseEndpoint)
	require.False(t, client.Options().UsePathStyle)
	require.Equal(t, `in bucket "b" at Amazon S3 in eu-central-1`, where.Place())
}
