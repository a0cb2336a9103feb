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

// ready checks the server before the first write and before the first large one: does it enforce
// what their safety rests on?
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
	if err := b.checkServer(ctx, key, large); err != nil {
		return fmt.Errorf("checking bucket %q for fenced writes: %w", b.Name, err)
	}
	b.checked = [2]bool{true, b.checked[1] || large}
	return nil
}

// checkServer checks the server with an object in the same folder as key, because permissions are
// often given by prefix. It removes the object again. Without the permission, all checks use one
// object, which stays.
func (b *s3Backend) checkServer(ctx context.Context, key string, large bool) error {
	shared := key[:strings.LastIndex(key, "/")+1] + storeapi.OwnNames + "check"
	c := &serverCheck{s3Backend: b, ctx: ctx, key: shared + "-" + b.suffix, large: large}
	removes := b.checked[0] && b.removes
	if !b.checked[0] {
		var err error
		if removes, err = b.mayRemove(ctx, c.key); err != nil {
			return err
		}
	}
	if !removes {
		c.key = shared
	}
	err := c.create()
	if err == nil || errors.Is(err, leasehold.ErrPreconditionFailed) {
		err = c.run()
	}
	if removes {
		b.remove(ctx, c.key, c.last)
	}
	b.removes = removes
	return err
}

// mayRemove reports whether objects can be removed. It asks with a key that has none, with a
// condition and without, as remove does.
func (b *s3Backend) mayRemove(ctx context.Context, key string) (bool, error) {
	noVersion := `"0123456789abcdef0123456789abcdef"`
	for _, ifMatch := range []*string{&noVersion, nil} {
		err := b.deleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.Name, Key: &key, IfMatch: ifMatch})
		if err == nil || storeapi.Refused(err) || errors.Is(err, storeapi.ErrConflict) {
			return true, nil
		}
		if !storeapi.Permanent(err) {
			return false, err
		}
	}
	return false, nil
}

// remove tries to delete the check's object. The first try has a condition, because a bucket policy
// can demand one. The second has none, because some servers do not know the condition, and after a
// failed check the ETag may be unknown.
func (b *s3Backend) remove(ctx context.Context, key, etag string) {
	ctx = context.WithoutCancel(ctx)
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

// serverCheck tries each condition that writes rely on, in the kind of request that will carry it,
// on an object that other processes may check with too.
type serverCheck struct {
	*s3Backend
	ctx   context.Context
	key   string
	large bool
	first string // ETag of the version that it has created, until others have been written
	body  string // of that version
	last  string // ETag that it wrote last
}

// tries limits how often a request of the check is sent while it fails temporarily. Some servers
// take one write of an object a second.
const tries = 4

// put sends a write of its own body.
func (c *serverCheck) put(body string, ifMatch, ifNoneMatch *string) (etag string, err error) {
	err = storeapi.Patiently(c.ctx, tries, func(bool) error {
		etag, err = c.s3Backend.put(c.ctx, s3Write{
			key:         c.key,
			ifMatch:     ifMatch,
			ifNoneMatch: ifNoneMatch,
		}, []byte(body))
		return err
	})
	if err == nil {
		c.last = etag
	}
	return etag, err
}

func (c *serverCheck) create() (err error) {
	c.body = rand.Text()
	c.first, err = c.put(c.body, nil, aws.String("*"))
	return err
}

var errDisturbed = errors.New("other processes check the bucket with the same object all the time")

// run checks until no other process has come in between.
func (c *serverCheck) run() error {
	for try := 1; ; try++ {
		err := c.once()
		c.first = ""
		if !errors.Is(err, errDisturbed) || try == attempts {
			return err
		}
		if err := storeapi.Rest(c.ctx, 1); err != nil {
			return err
		}
	}
}

func (c *serverCheck) once() error {
	if c.first == "" {
		if err := c.takeOver(); err != nil {
			return err
		}
	}
	_, err := c.put("create", nil, aws.String("*"))
	if errors.Is(err, storeapi.ErrConflict) { // some servers refuse a create so
		err = leasehold.ErrPreconditionFailed
	}
	if err := mustFail(err, "the server ignores If-None-Match: a PUT with it replaced an object"); err != nil {
		return err
	}
	body := c.body
	if c.mode != UniqueETags {
		body = rand.Text()
	}
	second, err := c.put(body, &c.first, nil)
	if err != nil {
		return disturbed(err)
	}
	if c.first == second {
		return unsafeServer("UniqueETags: the same body has the same ETag again: encrypt the bucket with SSE-KMS, or " +
			"choose PaddedBodies")
	}
	_, err = c.put("stale", &c.first, nil)
	if errors.Is(err, leasehold.ErrNotExist) {
		return disturbed(err)
	}
	if err := mustFail(err, "the server ignores If-Match: a PUT with it replaced another version"); err != nil ||
		!c.large {
		return err
	}
	for _, w := range []struct {
		condition string
		s3Write
	}{{
		"If-Match",
		s3Write{key: c.key, ifMatch: &c.first},
	}, {"If-None-Match", s3Write{key: c.key, ifNoneMatch: aws.String("*")}}} {
		err := storeapi.Patiently(c.ctx, tries, func(bool) error {
			return c.putParts(c.ctx, w.s3Write, strings.NewReader("5"), 1)
		})
		if err != nil && !errors.Is(err, leasehold.ErrPreconditionFailed) { // Ceph's gateway answers without an ETag
			if now, headErr := c.head(c.ctx, c.key); headErr == nil && now.ID != c.last && now.Size == 1 {
				err = nil
			}
		}
		err = mustFail(err, fmt.Sprintf("the server ignores %s of CompleteMultipartUpload: bodies over %d bytes "+
			"cannot be fenced here", w.condition, c.partSize-padding))
		if err != nil {
			return err
		}
	}
	return nil
}

// takeOver begins with the version that another process has written.
func (c *serverCheck) takeOver() error {
	var now Version
	err := storeapi.Patiently(c.ctx, tries, func(bool) (err error) {
		now, err = c.head(c.ctx, c.key)
		return err
	})
	if err != nil {
		return err
	}
	if now.ID == "" {
		return disturbed(c.create())
	}
	c.body = rand.Text()
	c.first, err = c.put(c.body, &now.ID, nil)
	return disturbed(err)
}

// disturbed marks the refusal of a write that must not be refused.
func disturbed(err error) error {
	if storeapi.Refused(err) || errors.Is(err, storeapi.ErrConflict) {
		return fmt.Errorf("%w: %v", errDisturbed, err)
	}
	return err
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

func unsafeServer(what string) error {
	return &storeapi.Error{Kind: leasehold.ErrUnsafeStore, Cause: errors.New(what)}
}
