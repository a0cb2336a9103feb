// Package storeflag lets an example run in memory or, by flags and environment variables, in a
// bucket of an S3 server.
package storeflag

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold"
)

// environment ends the help text of every example.
const environment = `
Without -s3 and -bucket the example runs in memory. For a bucket it reads these environment variables:
  AWS_ENDPOINT_URL        URL of the S3 server, such as http://127.0.0.1:9000, unless -s3 is given;
                          without both it is Amazon S3
  AWS_ACCESS_KEY_ID       access key; required
  AWS_SECRET_ACCESS_KEY   secret key; required
  AWS_SESSION_TOKEN       session token, with temporary credentials only
  AWS_REGION              region of the bucket, unless -region is given
`

// answerWithin bounds the first request to a server, so that a wrong address is reported soon.
const answerWithin = 3 * time.Second

// Flags are the user's choices. They are valid after the FlagSet has been parsed.
type Flags struct{ endpoint, bucket, region string }

// Add defines the flags, and a help text that begins with the sentence that tells what the example
// shows.
func Add(set *flag.FlagSet, shows string) *Flags {
	f := new(Flags)
	set.StringVar(&f.endpoint, "s3", "", "`URL` of an S3 server, if it is not Amazon S3; needs -bucket")
	set.StringVar(&f.bucket, "bucket", "", "`name` of an existing bucket")
	set.StringVar(&f.region, "region", cmp.Or(os.Getenv("AWS_REGION"), "us-east-1"), "`name` of the bucket's region")
	set.Usage = func() {
		fmt.Fprintf(set.Output(), "%s\n\nUsage: %s [flags]\n\n", shows, set.Name())
		set.PrintDefaults()
		fmt.Fprint(set.Output(), environment)
	}
	return f
}

// InMemory reports whether the user chose no bucket.
func (f *Flags) InMemory() bool { return f.endpoint == "" && f.bucket == "" }

// Bucket returns the name of the chosen bucket.
func (f *Flags) Bucket() string { return f.bucket }

// Place names the chosen store, for the example's output.
func (f *Flags) Place() string {
	if f.InMemory() {
		return "in memory"
	}
	return fmt.Sprintf("in bucket %q at %s", f.bucket, cmp.Or(f.server(), "Amazon S3 in "+f.region))
}

// Open returns the chosen store. It sends one request to a server, so that a wrong address, bucket
// or key is reported at once.
func (f *Flags) Open(ctx context.Context) (leasehold.Store, error) {
	if f.InMemory() {
		return leasehold.NewMemStore(), nil
	}
	client, err := f.Client()
	if err != nil {
		return nil, err
	}
	store := leasehold.NewS3Store(client, f.bucket)
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, fmt.Errorf("no answer within %v", answerWithin))
	defer cancel()
	if _, err := store.Get(ctx, "examples/any"); err != nil && !errors.Is(err, leasehold.ErrNotExist) {
		return nil, f.unusable(ctx, err)
	}
	return store, nil
}

// unusable says what to do about the error of a first request.
func (f *Flags) unusable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if network, ok := errors.AsType[*url.Error](err); ok {
		err = network.Err
	} else {
		return err // the server's answer, for which the store says what to do
	}
	return fmt.Errorf("cannot reach an S3 server at %s: %w (start the server, or correct -s3 or AWS_ENDPOINT_URL)",
		cmp.Or(f.server(), "Amazon"), err)
}

// server is the URL of the server, or "" for Amazon S3.
func (f *Flags) server() string { return cmp.Or(f.endpoint, os.Getenv("AWS_ENDPOINT_URL")) }

// missing lists what the user has not given but a bucket needs.
func (f *Flags) missing() (names []string) {
	for _, need := range []struct{ name, value string }{
		{"-bucket", f.bucket},
		{"AWS_ACCESS_KEY_ID", os.Getenv("AWS_ACCESS_KEY_ID")},
		{"AWS_SECRET_ACCESS_KEY", os.Getenv("AWS_SECRET_ACCESS_KEY")},
	} {
		if need.value == "" {
			names = append(names, need.name)
		}
	}
	return names
}

// Client returns a client of the chosen server. A program of your own would rather use
// config.LoadDefaultConfig of github.com/aws/aws-sdk-go-v2/config, which knows every source of
// credentials.
func (f *Flags) Client() (*s3.Client, error) {
	if names := f.missing(); len(names) > 0 {
		return nil, fmt.Errorf("to use a bucket, also set %s", strings.Join(names, ", "))
	}
	options := s3.Options{
		Region: f.region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{
				AccessKeyID:     os.Getenv("AWS_ACCESS_KEY_ID"),
				SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
				SessionToken:    os.Getenv("AWS_SESSION_TOKEN"),
			}, nil
		}),
	}
	server := f.server()
	if server == "" {
		return s3.New(options), nil
	}
	if u, err := url.Parse(server); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("the server's address %q is not a URL such as http://127.0.0.1:9000 (correct -s3 or "+
			"AWS_ENDPOINT_URL)", server)
	}
	options.BaseEndpoint, options.UsePathStyle = &server, true
	return s3.New(options), nil
}
