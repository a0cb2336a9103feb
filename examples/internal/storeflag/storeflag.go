// Package storeflag lets an example run on the embedded MemStore or, by flags, in a real bucket.
package storeflag

import (
	"context"
	"errors"
	"flag"
	"net/url"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold"
)

// Flags are what the user chose. Open is valid after the FlagSet has been parsed.
type Flags struct{ endpoint, bucket, region string }

// Add defines the flags.
func Add(set *flag.FlagSet) *Flags {
	f := new(Flags)
	set.StringVar(&f.endpoint, "s3", "", "`URL` of an S3 server; credentials are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (default: in memory)")
	set.StringVar(&f.bucket, "bucket", "", "bucket on that server")
	set.StringVar(&f.region, "region", "us-east-1", "its region")
	return f
}

// InMemory reports whether no server was chosen.
func (f *Flags) InMemory() bool { return f.endpoint == "" }

// Bucket returns the chosen bucket.
func (f *Flags) Bucket() string { return f.bucket }

// Open returns the chosen store.
func (f *Flags) Open() (leasehold.Store, error) {
	if f.InMemory() {
		if f.bucket != "" {
			return nil, errors.New("-bucket needs -s3")
		}
		return leasehold.NewMemStore(), nil
	}
	client, err := f.Client()
	if err != nil {
		return nil, err
	}
	return leasehold.NewS3Store(client, f.bucket), nil
}

// Client returns a client of the chosen server. A program of your own would rather use config.LoadDefaultConfig of
// github.com/aws/aws-sdk-go-v2/config, which knows every source of credentials.
func (f *Flags) Client() (*s3.Client, error) {
	u, err := url.Parse(f.endpoint)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return nil, errors.New("-s3 must be a URL such as http://127.0.0.1:9000")
	case f.bucket == "":
		return nil, errors.New("-s3 needs -bucket")
	case os.Getenv("AWS_ACCESS_KEY_ID") == "" || os.Getenv("AWS_SECRET_ACCESS_KEY") == "":
		return nil, errors.New("-s3 needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	return s3.New(s3.Options{
		BaseEndpoint: &f.endpoint,
		UsePathStyle: true,
		Region:       f.region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{
				AccessKeyID:     os.Getenv("AWS_ACCESS_KEY_ID"),
				SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
				SessionToken:    os.Getenv("AWS_SESSION_TOKEN"),
			}, nil
		}),
	}), nil
}
