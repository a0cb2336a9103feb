package s3api

import (
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Age is the reply's Date minus its Last-Modified: how old the version is by the server's clock alone. Both dates are cut to
// whole seconds (RFC 9110, 5.6.7). Age is 0 if one of them is missing.
func Age(out *s3.GetObjectOutput) time.Duration {
	now, ok := awsmiddleware.GetServerTime(out.ResultMetadata)
	if !ok || now.IsZero() || out.LastModified == nil || out.LastModified.IsZero() {
		return 0
	}
	return now.Sub(*out.LastModified)
}
