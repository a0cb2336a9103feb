// Command cron is one of several schedulers that share a job: "cron -bucket my-bucket". Start it twice, and every slot of the
// job runs in one of the two processes. It takes AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION from the environment.
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
	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gocronlock"
)

func main() {
	bucket := flag.String("bucket", "", "bucket that holds the locks")
	endpoint := flag.String("endpoint", "https://s3.amazonaws.com", "URL of the S3 server")
	every := flag.Int("every", 10, "seconds between two slots; must divide 60")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bucket, *endpoint, *every); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, bucket, endpoint string, every int) error {
	client := s3.New(s3.Options{ // a service would use aws-sdk-go-v2/config instead
		BaseEndpoint: aws.String(endpoint), UsePathStyle: true, Region: os.Getenv("AWS_REGION"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}, nil
		}),
	})
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
	}), gocron.WithName("report"))
	if err != nil {
		return err
	}
	scheduler.Start()
	<-ctx.Done()
	return scheduler.Shutdown()
}
