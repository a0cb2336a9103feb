package itest_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/createonly"
	"github.com/leasehold-go/leasehold/internal/testkit/testprocess"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/itest"
)

// holderEnv returns the environment of a process that uses the server.
func holderEnv(server testserver.S3, bucket string) []string {
	return append(os.Environ(), "HOLDER_BUCKET="+bucket, "HOLDER_ENDPOINT="+server.Endpoint,
		"HOLDER_ACCESS="+server.AccessKey,
		"HOLDER_SECRET="+server.SecretKey, "HOLDER_REGION="+server.Region)
}

func serverFromEnv() testserver.S3 {
	return testserver.S3{
		Endpoint: os.Getenv("HOLDER_ENDPOINT"), AccessKey: os.Getenv("HOLDER_ACCESS"),
		SecretKey: os.Getenv("HOLDER_SECRET"), Region: os.Getenv("HOLDER_REGION"),
	}
}

// storeFromEnv is the store of such a process, on S3, on one that can only create, or on Azure.
func storeFromEnv() leasehold.Store {
	if connection := os.Getenv("HOLDER_AZURE"); connection != "" {
		client, err := azblob.NewClientFromConnectionString(connection, nil)
		fatal(err)
		return azblobstore.New(client, os.Getenv("HOLDER_BUCKET"))
	}
	client, bucket := serverFromEnv().Client(), os.Getenv("HOLDER_BUCKET")
	if os.Getenv("HOLDER_CREATEONLY") != "" {
		return createonly.New(createonly.NewS3(client, bucket))
	}
	return leasehold.NewS3Store(client, bucket)
}

// fatal ends such a process if err is not nil.
func fatal(err error) {
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

const holderTTL = 2 * time.Second

// asHolder is the test binary's main function when it runs as a separate holder. It holds the lock
// and prints a line for each step.
func asHolder() {
	ttl, err := time.ParseDuration(cmp.Or(os.Getenv("HOLDER_TTL"), holderTTL.String()))
	fatal(err)
	opts := []leasehold.Option{leasehold.WithTTL(ttl), leasehold.WithPollInterval(holderTTL / 5)}
	if os.Getenv("HOLDER_MANUAL") != "" {
		opts = append(opts, leasehold.WithManualRenewal())
	}
	lock, err := leasehold.NewLock(storeFromEnv(), "locks/core", opts...)
	fatal(err)
	lease, err := lock.Acquire(context.Background())
	fatal(err)
	last := time.Now() // before the line that lets the parent stop this process
	fmt.Println("token", lease.Token())
	for ; ; last = time.Now() {
		time.Sleep(10 * time.Millisecond)
		if time.Since(last) > holderTTL { // this process was stopped, and this is its first check
			fmt.Println("woke", lease.Valid())
			fmt.Println("renew", lease.Renew(context.Background()))
			<-lease.Context().Done()
			fmt.Println("cause", context.Cause(lease.Context()))
			fmt.Println("release", lease.Release(context.Background()))
			return
		}
	}
}

// A process that is stopped for longer than its TTL knows that its lease is over before it does
// anything else. Without automatic renewals nothing but its clocks can tell it: a renewal that is
// due when it wakes may be refused first.
func TestSuspendedProcess(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		for name, env := range map[string]string{
			"automatic renewal": "HOLDER_MANUAL=",
			"manual renewal":    "HOLDER_MANUAL=1",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				bucket := server.Bucket(t)
				suspend(t, leasehold.NewS3Store(server.Client(), bucket), append(holderEnv(server, bucket), env))
			})
		}
	})
}

// suspend stops a holder with that environment until another has taken over, and wants it to know
// that when it goes on.
func suspend(t *testing.T, store leasehold.Store, env []string) {
	cmd := exec.CommandContext(minute(t), os.Args[0], "-test.run=^$")
	cmd.Env = env
	cmd.Stderr = os.Stderr
	holder := testprocess.Start(t, cmd)
	// 1, unless this machine is so busy that a term is over before its write is answered.
	var token uint64
	_, err := fmt.Sscanf(holder.Says(t, ""), "token %d", &token)
	require.NoError(t, err)
	require.NoError(t, holder.Signal(syscall.SIGSTOP))

	lock := newLock(t, store, leasehold.WithPollInterval(holderTTL/5)) // a TTL that a busy machine keeps
	lease, err := lock.Acquire(minute(t))
	require.NoError(t, err)
	require.Equal(t, token+1, lease.Token())
	var fence leasehold.Fence
	require.NoError(t, fence.Check(lease.Token()))

	require.NoError(t, holder.Signal(syscall.SIGCONT))
	require.Equal(t, "woke false", holder.Says(t, ""))
	require.Contains(t, holder.Says(t, ""), leasehold.ErrLost.Error())
	require.Regexp(t, "^cause .*"+leasehold.ErrLost.Error(), holder.Says(t, ""))
	require.Regexp(t, "^release .*"+leasehold.ErrLost.Error(), holder.Says(t, ""))
	holder.Ends(t)
	require.ErrorIs(t, fence.Check(token), leasehold.ErrFenced)
	require.True(t, lease.Valid())
	rec, err := lock.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, token+1, rec.Token)
	require.False(t, rec.Released())
	require.NoError(t, lease.Release(t.Context()))
}

// The permissions in the README are sufficient, and an error names a missing one at once. (MinIO
// answers 404 for a missing object even without s3:ListBucket. The root module tests how leasehold
// handles S3's 403.)
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	for _, server := range itest.Servers(t) {
		if !strings.HasPrefix(server.Name, "minio") {
			continue // accounts of VersityGW have no policies
		}
		bucket := server.Bucket(t)
		with := func(actions ...string) *leasehold.S3Store {
			quoted := `"` + strings.Join(actions, `", "`) + `"`
			policy := fmt.Sprintf(`{"Version": "2012-10-17", "Statement": [
				{"Effect": "Allow", "Action": [%s], "Resource": ["arn:aws:s3:::%s/*", "arn:aws:s3:::%s"]}]}`,
				quoted, bucket, bucket)
			credentials := assumeRole(t, server, policy)
			return leasehold.NewS3Store(server.Client(func(o *s3.Options) { o.Credentials = credentials }), bucket)
		}
		store := with("s3:GetObject", "s3:PutObject", "s3:ListBucket")
		lease, err := newLock(t, store).Acquire(minute(t))
		require.NoError(t, err)
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Release(t.Context()))
		report, err := leasehold.CheckStore(t.Context(), store, "locks/check")
		require.NoError(t, err)
		require.True(t, report.ConditionalPuts)
		require.False(t, report.ConditionalDeletes)
		require.NotEmpty(t, report.Leftover, "it has no permission to delete")

		_, err = newLock(t, with("s3:GetObject", "s3:ListBucket")).Acquire(minute(t))
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "s3:PutObject")
		_, err = newLock(t, with("s3:PutObject")).Acquire(minute(t))
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "s3:GetObject")
	}
}

// assumeRole asks MinIO for temporary credentials that have one policy.
func assumeRole(t *testing.T, server testserver.S3, policy string) aws.CredentialsProvider {
	t.Helper()
	form := url.Values{
		"Action":          {"AssumeRole"},
		"Version":         {"2011-06-15"},
		"DurationSeconds": {"900"},
		"Policy":          {policy},
	}.Encode()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.Endpoint+"/", strings.NewReader(form))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	sum := sha256.Sum256([]byte(form))
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	root := aws.Credentials{AccessKeyID: server.AccessKey, SecretAccessKey: server.SecretKey}
	require.NoError(t, v4.NewSigner().SignHTTP(t.Context(), root, req, hash, "sts", server.Region, time.Now()))
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, "%s", body)
	var answer struct {
		Credentials struct{ AccessKeyId, SecretAccessKey, SessionToken string } `xml:"AssumeRoleResult>Credentials"`
	}
	require.NoError(t, xml.Unmarshal(body, &answer))
	c := answer.Credentials
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{
			AccessKeyID:     c.AccessKeyId,
			SecretAccessKey: c.SecretAccessKey,
			SessionToken:    c.SessionToken,
		}, nil
	})
}
