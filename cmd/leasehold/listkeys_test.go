package main_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// XML has no control characters, so a list of keys that have them comes encoded. One foreign object
// spoils no list.
func TestListWithForeignKeys(t *testing.T) {
	t.Parallel()
	for _, server := range []testserver.S3{testserver.MinIO(t), testserver.VersityGW(t)} {
		t.Run(server.Name, func(t *testing.T) {
			b := bucket{t, server, server.Bucket(t)}
			odd := []string{"locks/a\x01b", "locks/c\x1b[31md", "locks/e f+g%20h"}
			for _, key := range odd {
				_, err := server.Client().PutObject(t.Context(), &s3.PutObjectInput{
					Bucket: &b.name,
					Key:    aws.String(key),
					Body:   strings.NewReader("{}"),
				})
				require.NoError(t, err)
			}
			require.NoError(t, lockOnce(b, "locks/z+ %"))
			r := b.run("list", "-o", "json", b.url("locks/"))
			require.Zero(t, r.code, "%s", r.stderr)
			states := map[string]string{}
			for _, v := range views(t, r.out) {
				states[v.Key] = v.State
			}
			want := map[string]string{"locks/z+ %": "released"}
			for _, key := range odd {
				if server.Name == "versitygw" { // it encodes nothing
					key = strings.Map(func(r rune) rune {
						if unicode.IsControl(r) {
							return utf8.RuneError
						}
						return r
					}, key)
				}
				want[key] = "corrupt"
			}
			require.Equal(t, want, states)
		})
	}
}

func lockOnce(b bucket, key string) error {
	lease, err := b.lock(key).TryAcquire(b.t.Context())
	if err != nil {
		return err
	}
	return lease.Release(b.t.Context())
}
