package fenced

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasehold-go/leasehold/internal/s3api"
)

const maxParts = 10_000

// putParts sends a body that is too large for memory. Only its last request makes it visible, and
// that one has the condition.
func (b *s3Backend) putParts(ctx context.Context, w s3Write, body io.Reader, size int64) error {
	id, err := b.createUpload(ctx, w)
	if err != nil {
		return err
	}
	if err := b.uploadAll(ctx, w, id, body, max(b.partSize, (size+maxParts-1)/maxParts)); err != nil {
		// If the upload has been completed nevertheless, there is nothing left to abort.
		ctx, cancel := b.deadline(context.WithoutCancel(ctx), 0)
		defer cancel()
		_, _ = b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
			Bucket:   &b.Name,
			Key:      &w.key,
			UploadId: id,
		}, b.Patient)
		return err
	}
	return nil
}

func (b *s3Backend) createUpload(ctx context.Context, w s3Write) (id *string, err error) {
	ctx, cancel := b.deadline(ctx, 0)
	defer cancel()
	out, err := b.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &b.Name, Key: &w.key, Metadata: w.meta,
		ContentType: w.ContentType, ContentEncoding: w.ContentEncoding, ContentLanguage: w.ContentLanguage,
		ContentDisposition: w.ContentDisposition, CacheControl: w.CacheControl, Expires: w.expires,
		WebsiteRedirectLocation: w.redirect, StorageClass: w.class,
		ServerSideEncryption: w.encryption, SSEKMSKeyId: w.kmsKey, BucketKeyEnabled: w.bucketKey,
	}, b.Patient)
	if err != nil {
		return nil, b.Explain(err, s3api.Put, w.key)
	}
	if aws.ToString(out.UploadId) == "" {
		return nil, b.NotS3(errors.New("the answer has no upload ID"), s3api.Put, w.key)
	}
	return out.UploadId, nil
}

// uploadAll sends the parts and completes the upload.
func (b *s3Backend) uploadAll(ctx context.Context, w s3Write, id *string, body io.Reader, partSize int64) error {
	var parts []types.CompletedPart
	var buffer bytes.Buffer
	buffer.Grow(int(partSize) + bytes.MinRead)
	for n := partSize; n == partSize; {
		buffer.Reset()
		var err error
		if n, err = buffer.ReadFrom(io.LimitReader(body, partSize)); err != nil {
			return fmt.Errorf("reading the body of %q: %w", w.key, err)
		}
		if n == 0 {
			break
		}
		part := types.CompletedPart{PartNumber: aws.Int32(int32(len(parts) + 1))}
		if part.ETag, err = b.uploadPart(ctx, w.key, id, part.PartNumber, buffer.Bytes()); err != nil {
			return err
		}
		parts = append(parts, part)
	}
	ctx, cancel := b.deadline(ctx, 0)
	defer cancel()
	if w.ifMatch != nil {
		w.ifMatch = b.IfMatch(*w.ifMatch)
	}
	out, err := b.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &b.Name, Key: &w.key, UploadId: id, IfMatch: w.ifMatch, IfNoneMatch: w.ifNoneMatch,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}, b.Once)
	if err != nil {
		return b.Explain(err, s3api.PutIf(w.ifMatch), w.key)
	}
	return b.Genuine(s3api.Put, w.key, out.ETag, out.ResultMetadata)
}

func (b *s3Backend) uploadPart(ctx context.Context, key string, id *string, number *int32,
	body []byte) (etag *string, err error) {
	size := int64(len(body))
	ctx, cancel := b.deadline(ctx, size)
	defer cancel()
	out, err := b.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &b.Name, Key: &key, UploadId: id, PartNumber: number, Body: bytes.NewReader(body), ContentLength: &size,
		ContentMD5: b.MD5(body),
	}, b.Patient)
	if err != nil {
		return nil, b.Explain(err, s3api.Put, key)
	}
	return out.ETag, b.Genuine(s3api.Put, key, out.ETag, out.ResultMetadata)
}
