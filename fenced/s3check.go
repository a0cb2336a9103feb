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
	"github.com/leasehold-go/leasehold/internal/s3api"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// mayRemove implements cleaner. It asks with a condition and without, as remove does. It is the
// first request of a Store, because its answer has an error code, for example for a wrong secret
// key. The answer to a HEAD has none.
func (b *s3Backend) mayRemove(ctx context.Context, key string) (bool, error) {
	noVersion := `"0123456789abcdef0123456789abcdef"`
	for _, ifMatch := range []*string{&noVersion, nil} {
		err := b.deleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.Name, Key: &key, IfMatch: ifMatch})
		if err == nil || storeapi.Refused(err) || errors.Is(err, storeapi.ErrConflict) {
			b.removes = true
			return true, nil
		}
		if !storeapi.Permanent(err) {
			return false, err
		}
	}
	return false, nil
}

// remove implements cleaner. The first try has a condition, because a bucket policy can demand one.
// The second has none, because some servers do not know the condition, and after a failed check the
// ETag may be unknown.
func (b *s3Backend) remove(ctx context.Context, key, etag string) {
	in := &s3.DeleteObjectInput{Bucket: &b.Name, Key: &key}
	if etag != "" {
		in.IfMatch = b.IfMatch(etag)
	}
	if err := b.deleteObject(ctx, in); err != nil && etag != "" {
		in.IfMatch = nil
		_ = b.deleteObject(ctx, in)
	}
}

func (b *s3Backend) deleteObject(ctx context.Context, in *s3.DeleteObjectInput) error {
	return storeapi.Patiently(ctx, tries, func(bool) error {
		ctx, cancel := b.deadline(ctx, 0)
		defer cancel()
		if _, err := b.client.DeleteObject(ctx, in, b.Patient); err != nil {
			return b.Explain(err, s3api.Delete, *in.Key)
		}
		return nil
	})
}

// checkLarge tries whether an upload in parts keeps its token, and both conditions of its
// completion. The check of the Store has come before.
func (b *s3Backend) checkLarge(ctx context.Context, key string) error {
	c := &largeCheck{s3Backend: b, ctx: ctx, key: checkObject(key)}
	if b.removes {
		c.key += "-" + b.suffix
	}
	err := undisturbed(ctx, c.once)
	if b.removes {
		b.remove(context.WithoutCancel(ctx), c.key, c.last)
	}
	return err
}

// largeCheck is a check of uploads in parts, with an object that other processes may check with
// too.
type largeCheck struct {
	*s3Backend
	ctx  context.Context
	key  string
	last string // ETag of the version that it has written last, as far as it is known
}

func (c *largeCheck) once() error {
	former, err := c.begin()
	if err != nil {
		return err
	}
	w, err := c.upload(&former, nil)
	if err != nil {
		return disturbed(err)
	}
	now, err := lookFor(w, "HEAD, after an upload in parts,", c.look)
	c.last = now.ID
	for _, of := range []struct {
		condition            string
		ifMatch, ifNoneMatch *string
	}{{"If-Match", &former, nil}, {"If-None-Match", nil, aws.String("*")}} {
		if err != nil {
			return err
		}
		if _, err = c.upload(of.ifMatch, of.ifNoneMatch); errors.Is(err, leasehold.ErrNotExist) {
			return disturbed(err)
		}
		err = mustFail(err, fmt.Sprintf("the server ignores %s of CompleteMultipartUpload: bodies over %d bytes "+
			"cannot be fenced here", of.condition, c.partSize-padding))
	}
	return err
}

// begin puts a version in place, and returns its ETag.
func (c *largeCheck) begin() (etag string, err error) {
	put := func(ifMatch, ifNoneMatch *string) error {
		return storeapi.Patiently(c.ctx, tries, func(bool) error {
			etag, err = c.put(c.ctx, s3Write{
				key: c.key, ifMatch: ifMatch, ifNoneMatch: ifNoneMatch, meta: newWrite(1, c.key).metadata(nil),
			}, []byte(rand.Text()))
			return err
		})
	}
	err = put(nil, aws.String("*"))
	if storeapi.Refused(err) || errors.Is(err, storeapi.ErrConflict) {
		now, headErr := c.look()
		if headErr != nil || now.ID == "" {
			return "", errors.Join(errDisturbed, headErr)
		}
		err = disturbed(put(&now.ID, nil))
	}
	return etag, err
}

// upload sends a body in parts. If it has landed, the answer does not count: Ceph's gateway answers
// without an ETag.
func (c *largeCheck) upload(ifMatch, ifNoneMatch *string) (w *write, err error) {
	w = newWrite(1, c.key)
	err = storeapi.Patiently(c.ctx, tries, func(bool) error {
		return c.putParts(c.ctx, s3Write{
			key: c.key, ifMatch: ifMatch, ifNoneMatch: ifNoneMatch, meta: w.metadata(nil),
		}, strings.NewReader("5"), 1)
	})
	if err != nil && !storeapi.Refused(err) {
		if now, headErr := c.look(); headErr == nil && now.Metadata[metaNonce] == w.nonce {
			return w, nil
		}
	}
	return w, err
}

func (c *largeCheck) look() (v Version, err error) {
	err = storeapi.Patiently(c.ctx, tries, func(bool) (err error) {
		v, err = c.Head(c.ctx, c.key)
		return err
	})
	return v, err
}

// mustFail returns nil if err is a refused precondition, and an error that says what the server
// ignored if err is nil.
func mustFail(err error, ignored string) error {
	if err == nil {
		return unsafeServer(ignored)
	}
	if errors.Is(err, leasehold.ErrPreconditionFailed) {
		return nil
	}
	return err
}
