// Command k8s elects a leader with Kubernetes' own elector, but through a bucket: "k8s -bucket
// my-bucket". Start it twice, in two clusters or on one laptop, and stop the leader. It takes
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION from the environment.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/k8slock"
)

func main() {
	bucket := flag.String("bucket", "", "`name` of an existing bucket; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "+
		"AWS_REGION must be set, too")
	endpoint := flag.String("endpoint", "", "`URL` of the S3 server (default Amazon S3)")
	lease := flag.Duration("lease", k8slock.LeaseDuration, "lease duration")
	flag.Parse()
	if *bucket == "" {
		log.Fatal("-bucket is missing: name an existing bucket")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bucket, *endpoint, *lease); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, bucket, endpoint string, lease time.Duration) error {
	options := s3.Options{ // a service would use aws-sdk-go-v2/config instead
		UsePathStyle: true, Region: os.Getenv("AWS_REGION"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{
				AccessKeyID:     os.Getenv("AWS_ACCESS_KEY_ID"),
				SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
			}, nil
		}),
	}
	if endpoint != "" {
		options.BaseEndpoint = &endpoint
	}
	client := s3.New(options)
	lock, err := k8slock.New(leasehold.NewS3Store(client, bucket), "examples/k8s", lease)
	if err != nil {
		return err
	}
	electorConfig := lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: lock.OnStartedLeading(func(ctx context.Context, lease *leasehold.Lease) {
			fmt.Println("leading with token", lease.Token())
			<-ctx.Done() // the leader's work goes here, and ends when ctx does
		}),
		OnStoppedLeading: func() { fmt.Println("stopped") },
		OnNewLeader:      func(identity string) { fmt.Println("leader:", identity) },
	})
	electorConfig.ReleaseOnCancel = true
	elector, err := leaderelection.NewLeaderElector(electorConfig)
	if err != nil {
		return err
	}
	elector.Run(ctx) // until interrupted, or the lease is lost
	return nil
}
