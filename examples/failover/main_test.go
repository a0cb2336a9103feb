package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Main(m)) }

func TestInMemory(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-ttl", "1s"}, &out), "%s", &out)
	require.Contains(t, out.String(), "saw two leaders 0 times. Tokens: [1 2 3 4].")
}

func TestOnServers(t *testing.T) {
	for _, s := range []testserver.S3{testserver.MinIO(t), testserver.VersityGW(t)} {
		t.Run(s.Name, func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", s.AccessKey)
			t.Setenv("AWS_SECRET_ACCESS_KEY", s.SecretKey)
			var out bytes.Buffer
			args := []string{"-s3", s.Endpoint, "-bucket", s.Bucket(t), "-ttl", "2s"}
			require.NoError(t, run(t.Context(), args, &out), "%s", &out)
			t.Logf("\n%s", &out)
		})
	}
}

func TestBadInput(t *testing.T) {
	for _, args := range [][]string{{"-s3", "foo"}, {"-bucket", "b"}, {"-s3", "http://127.0.0.1:1"}, {"-ttl", "0s", "-key", ""}, {"-x"}} {
		require.Error(t, run(t.Context(), args, new(bytes.Buffer)), "%v", args)
	}
}
