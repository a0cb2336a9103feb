package fenced

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// settings are what S3 stores with a body and a rewrite must keep.
type settings struct {
	ContentType, ContentEncoding, ContentLanguage, ContentDisposition, CacheControl, redirect *string
	expires                                                                                   *time.Time
	class                                                                                     types.StorageClass
	encryption                                                                                types.ServerSideEncryption
	kmsKey                                                                                    *string
	bucketKey                                                                                 *bool
}

// keep returns the settings of an object for a rewrite, or an error that says what a rewrite would
// lose.
func (b *s3Backend) keep(out *s3.GetObjectOutput) (settings, error) {
	s := settings{
		out.ContentType, out.ContentEncoding, out.ContentLanguage, out.ContentDisposition, out.CacheControl,
		out.WebsiteRedirectLocation,
		nil, out.StorageClass, out.ServerSideEncryption, out.SSEKMSKeyId, out.BucketKeyEnabled,
	}
	if s.encryption == types.ServerSideEncryptionAes256 {
		s.encryption = "" // with UniqueETags, the bucket's own is better: its ETags never repeat
	}
	lost := ""
	if text := aws.ToString(out.ExpiresString); text != "" {
		expires, err := http.ParseTime(text)
		if err != nil {
			lost = fmt.Sprintf("the header Expires: %q, which is not a date", text)
		}
		s.expires = &expires
	}
	switch {
	case aws.ToInt32(out.TagCount) > 0:
		lost = fmt.Sprintf("%d tags", *out.TagCount)
	case out.ObjectLockLegalHoldStatus == types.ObjectLockLegalHoldStatusOn:
		lost = "a legal hold"
	case out.ObjectLockMode != "" || out.ObjectLockRetainUntilDate != nil:
		lost = "a retention period"
	case aws.ToInt32(out.MissingMeta) > 0:
		lost = "metadata that S3 cannot show in headers"
	}
	if lost != "" {
		return s, fmt.Errorf("the object has %s, which a rewrite would lose", lost)
	}
	switch encoding := strings.ToLower(aws.ToString(out.ContentEncoding)); encoding {
	case "", "identity", "aws-chunked":
	default:
		if b.mode == PaddedBodies {
			return s, fmt.Errorf("the object has Content-Encoding %q, and white space after a compressed body breaks "+
				"its readers (use a store with UniqueETags, or Put it with DistinctBodies)", encoding)
		}
	}
	return s, nil
}
