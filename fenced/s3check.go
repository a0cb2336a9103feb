package fenced

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold/internal/probe"
	"github.com/leasehold-go/leasehold/internal/s3api"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// mayRemove implements cleaner. It asks with a condition and without, as remove does. It is the
// first request of a Store, because its answer has an error code, for example for a wrong secret
// key. The answer to a HEAD has none.
func (b *s3Backend) mayRemove(ctx context.Context, key string) (bool, error) {
	noVersion := probe.NoVersion
	for _, ifMatch := range []*string{&noVersion, nil} {
		err := b.deleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.Name, Key: &key, IfMatch: ifMatch})
		if err == nil || probe.Refused(err) {
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
	t := &trial{Store: &Store{backend: b}, ctx: ctx, key: probe.Near(key, "check"), strict: true}
	if b.removes {
		t.key += "-" + b.suffix
	}
	err := probe.Undisturbed(ctx, func() error { return b.checkParts(t) })
	if b.removes {
		b.remove(context.WithoutCancel(ctx), t.key, t.last)
	}
	return err
}

// checkParts is one run of checkLarge.
func (b *s3Backend) checkParts(t *trial) error {
	at := func(w *write, old Version) s3Write { return s3Over(t.key, old.ID, w.metadata(nil)) }
	var former Version
	t.write = func(w *write, old, _ Version, body string) (err error) {
		former.ID, err = b.put(t.ctx, at(w, old), []byte(body))
		return err
	}
	if now, err := t.begin(newWrite(1, t.key), rand.Text()); err != nil {
		return err
	} else if now.ID != "" {
		former = now
	}
	t.write = func(w *write, old, _ Version, body string) error {
		return b.putParts(t.ctx, at(w, old), strings.NewReader(body), int64(len(body)))
	}
	large := newWrite(1, t.key)
	// must knows an upload that has landed: Ceph's gateway answers without an ETag.
	if _, err := t.must(large, former, Version{}, "5"); err != nil {
		return err
	}
	now, err := t.lookFor(large, "HEAD, after an upload in parts,")
	t.last = now.ID
	for _, of := range []struct {
		condition string
		over      Version
	}{{"If-Match", former}, {"If-None-Match", Version{}}} {
		if err != nil {
			return err
		}
		w := newWrite(1, t.key)
		err = t.mustRefuse(w, large, t.put(w, of.over, Version{}, "5"), fmt.Sprintf("the server ignores %s of "+
			"CompleteMultipartUpload: bodies over %d bytes cannot be fenced here", of.condition, b.partSize-padding))
	}
	return err
}
