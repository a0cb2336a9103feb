// Command cron is one of several schedulers that share a job: "cron -bucket my-bucket". Start it
// twice, and every slot of the job runs in one of the two processes. It takes AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY and AWS_REGION from the environment.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gocronlock"
)

func main() {
	bucket := flag.String("bucket", "", "`name` of an existing bucket; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "+
		"AWS_REGION must be set, too")
	endpoint := flag.String("endpoint", "", "`URL` of the S3 server (default Amazon S3)")
	every := flag.Int("every", 10, "seconds between two slots; must divide 60")
	flag.Parse()
	if *bucket == "" {
		log.Fatal("-bucket is missing: name an existing bucket")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bucket, *endpoint, *every); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, bucket, endpoint string, every int) error {
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
	spacing := time.Duration(every) * time.Second / 2
	locker, err := gocronlock.NewLocker(leasehold.NewS3Store(client, bucket), "examples/cron", spacing)
	if err != nil {
		return err
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	_, err = scheduler.NewJob(gocron.CronJob(fmt.Sprintf("*/%d * * * * *", every), true), gocron.NewTask(func() {
		fmt.Println("run", time.Now().UTC().Format(time.TimeOnly), "with token", locker.Lease("report").Token())
	}), gocron.WithName("report"), gocron.WithEventListeners(gocron.AfterLockError(skipped)))
	if err != nil {
		return err
	}
	scheduler.Start()
	<-ctx.Done()
	return scheduler.Shutdown()
}

// skipped logs why a run did not start here, unless another process has it, because gocron says
// nothing by itself.
func skipped(_ uuid.UUID, job string, err error) {
	if !errors.Is(err, gocronlock.ErrAlreadyRan) && !errors.Is(err, leasehold.ErrHeld) {
		log.Printf("job %q does not run: %v", job, err)
	}
}
