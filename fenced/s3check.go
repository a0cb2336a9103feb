package fenced

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// ready checks the server before the first write and before the first large one: does it enforce what their safety rests on?
func (b *s3Backend) ready(ctx context.Context, key string, large bool) error {
	select {
	case b.checking <- struct{}{}:
		defer func() { <-b.checking }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for the check of bucket %q: %w", b.Name, ctx.Err())
	}
	if b.checked[0] && (b.checked[1] || !large) {
		return nil
	}
	// In the same folder as the object, because permissions are often given by prefix.
	probe := key[:strings.LastIndex(key, "/")+1] + ".leasehold-check-" + rand.Text()
	etag, err := b.check(ctx, probe, large)
	b.remove(ctx, probe, etag)
	if err != nil {
		return fmt.Errorf("checking bucket %q for fenced writes: %w", b.Name, err)
	}
	b.checked = [2]bool{true, b.checked[1] || large}
	return nil
}

// remove deletes the check's object as far as it may. The first try has a condition, because a bucket policy can demand one. The
// second has none, because some servers do not know the condition, and a failed check may not know the ETag.
func (b *s3Backend) remove(ctx context.Context, key, etag string) {
	ctx, cancel := b.deadline(context.WithoutCancel(ctx), 0)
	defer cancel()
	in := &s3.DeleteObjectInput{Bucket: &b.Name, Key: &key}
	if etag != "" {
		in.IfMatch = b.IfMatch(etag)
	}
	if _, err := b.client.DeleteObject(ctx, in, b.Patient); err != nil && etag != "" {
		in.IfMatch = nil
		_, _ = b.client.DeleteObject(ctx, in, b.Patient)
	}
}

// check tries each condition that writes rely on, in the kind of request that will carry it. It returns the ETag that it wrote last.
func (b *s3Backend) check(ctx context.Context, key string, large bool) (etag string, err error) {
	create := aws.String("*")
	put := func(body string, ifMatch, ifNoneMatch *string) (string, error) {
		written, err := b.put(ctx, s3Write{key: key, ifMatch: ifMatch, ifNoneMatch: ifNoneMatch}, []byte(body))
		if err == nil {
			etag = written
		}
		return written, err
	}
	first, err := put("1", nil, create)
	if err != nil {
		return etag, err
	}
	_, err = put("2", nil, create)
	if err := mustFail(err, "the server ignores If-None-Match: a PUT with it replaced an object"); err != nil {
		return etag, err
	}
	body := "3"
	if b.mode == UniqueETags {
		body = "1"
	}
	second, err := put(body, &first, nil)
	if err != nil {
		return etag, err
	}
	if first == second {
		return etag, unsafeServer("UniqueETags: the same body has the same ETag again: encrypt the bucket with SSE-KMS, or choose PaddedBodies")
	}
	_, err = put("4", &first, nil)
	if err := mustFail(err, "the server ignores If-Match: a PUT with it replaced another version"); err != nil || !large {
		return etag, err
	}
	for _, w := range []struct {
		condition string
		s3Write
	}{{"If-Match", s3Write{key: key, ifMatch: &first}}, {"If-None-Match", s3Write{key: key, ifNoneMatch: create}}} {
		err := b.putParts(ctx, w.s3Write, strings.NewReader("5"), 1)
		if err != nil && !errors.Is(err, leasehold.ErrPreconditionFailed) { // Ceph's gateway answers without an ETag
			if now, headErr := b.head(ctx, key); headErr == nil && now.ID != etag {
				err = nil
			}
		}
		err = mustFail(err, fmt.Sprintf("the server ignores %s of CompleteMultipartUpload: bodies over %d bytes cannot be fenced here", w.condition, b.partSize-padding))
		if err != nil {
			return etag, err
		}
	}
	return etag, nil
}

// mustFail returns nil if err is a refused precondition, and an error that says what the server ignored if err is nil.
func mustFail(err error, ignored string) error {
	if err == nil {
		return unsafeServer(ignored)
	}
	if errors.Is(err, leasehold.ErrPreconditionFailed) {
		return nil
	}
	return err
}

func unsafeServer(what string) error {
	return &storeapi.Error{Kind: leasehold.ErrUnsafeStore, Cause: errors.New(what)}
}
