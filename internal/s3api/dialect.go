package s3api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold/internal/probe"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/storehttp"
)

// dialect is how a server wants the ETag of a condition. By RFC 9110 (8.8.3) quotes belong to it,
// and most servers take it as their answers have it. Ceph's gateway 16 compares it without the
// quotes and so refuses every update. Other servers refuse it without.
type dialect = int32

const (
	unknown    dialect = iota
	asReceived         // an update has succeeded
	bare               // without quotes
)

// BareETags reports whether the server is known to want the ETag of a condition without its quotes.
func (b *Bucket) BareETags() bool { return b.dialect.Load() == bare }

// IfMatch is the condition on a version.
func (b *Bucket) IfMatch(etag string) *string {
	if b.BareETags() {
		etag = unquoted(etag)
	}
	return &etag
}

// unquoted is an ETag without its quotes, unless it would mean something else then.
func unquoted(etag string) string {
	if text := strings.Trim(etag, `"`); text != "" && text != "*" {
		return text
	}
	return etag
}

// Update replaces the version that etag names, by a write that carries the condition that it is
// given. It learns the dialect.
//
// A condition on a weak ETag never holds (RFC 9110, 13.1.1). S3 has none, but a proxy that
// compresses makes weak ones. The refusal then says so.
//
// A server that refuses an update although the object still has the ETag is asked for its dialect,
// with a separate object. A refusal for any other reason stays one. Once an update has succeeded,
// nothing more is asked.
func (o Objects) Update(ctx context.Context, key, etag string, write func(ifMatch *string) error) error {
	err := o.update(ctx, key, etag, write)
	if strings.HasPrefix(etag, "W/") && errors.Is(err, storeapi.ErrPreconditionFailed) {
		return &storehttp.Error{Cause: err, Hint: fmt.Sprintf("the ETag %s is weak, so no condition on it can hold: a "+
			"proxy in front of the server compresses or changes answers; let it pass them as they are", etag)}
	}
	return err
}

func (o Objects) update(ctx context.Context, key, etag string, write func(ifMatch *string) error) error {
	known := o.dialect.Load()
	err := write(o.IfMatch(etag))
	switch {
	case err == nil:
		o.dialect.CompareAndSwap(unknown, asReceived)
		return nil
	// which is refused in any form
	case known != unknown || !errors.Is(err, storeapi.ErrPreconditionFailed) || unquoted(etag) == noVersion:
		return err
	}
	learnt, why := o.ask(ctx, key, etag)
	switch {
	case why != nil && ctx.Err() != nil:
		return &storehttp.Error{Doing: o.Doing(Put, key), Cause: fmt.Errorf("%s%w", learning, ctx.Err())}
	case why != nil: // its kind speaks of another object, and of nothing that the refused write may still do
		return &storehttp.Error{Doing: o.Doing(Put, key), Cause: errors.New(learning + why.Error())}
	case learnt != bare:
		return err
	}
	return write(o.IfMatch(etag))
}

const learning = "it is refused, and finding out whether the server wants other ETags failed: "

// ask finds out why an update was refused. It returns bare only if that was for the quotes of its
// ETag.
func (o Objects) ask(ctx context.Context, key, etag string) (dialect, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if still, err := o.still(ctx, key, etag); !still {
		return asReceived, err
	}
	if err := o.learning.Lock(ctx); err != nil {
		return unknown, err
	}
	defer o.learning.Unlock()
	if known := o.dialect.Load(); known != unknown {
		return known, nil
	}
	return o.learn(ctx, key)
}

// still reports whether the object has the ETag. It discards the body, because this read must not
// count as the first sight of a version: a lock that trusts ages trusts that answer. Ceph's gateway
// 16 reads on ETags with quotes.
func (o Objects) still(ctx context.Context, key, etag string) (bool, error) {
	out, err := o.Client.GetObject(ctx, &s3.GetObjectInput{Bucket: &o.Name, Key: o.Key(key), IfMatch: &etag}, o.Once)
	if err != nil {
		if err = o.Explain(err, Get, key); storeapi.Refused(err) {
			return false, nil
		}
		return false, err
	}
	_ = out.Body.Close()
	if err := o.Genuine(Get, key, out.ETag, out.ResultMetadata); err != nil {
		return false, err
	}
	return *out.ETag == etag, nil
}

// question is how far the server has been asked. An attempt that runs out of time is taken up by
// the next one.
type question struct {
	there bool   // the object that it is asked with was there
	etag  string // of that object; "" if it is not known
	// number of forms that it has answered: as received, wrong without quotes, right without
	// quotes, wrong once more
	asked int
}

// etagMark is shorter than what is written, because another version may ask with other words.
var etagMark = probe.Mark{Begins: "How does this server", Whose: "leasehold's"}

// learn asks the server for its dialect, with an object next to key that stays. A condition that
// the server ignores must not meet an object that matters. The caller holds o.learning.
func (o Objects) learn(ctx context.Context, key string) (dialect, error) {
	own := probe.Near(key, "etag")
	body := []byte(etagMark.Begins + " want ETags? leasehold has asked it, and needs this object no more.")
	q := &o.question
	if q.etag == "" && !q.there {
		etag, err := o.put(ctx, own, body, nil, aws.String("*"))
		q.etag, q.there = etag, errors.Is(err, storeapi.ErrPreconditionFailed) // since another has asked
		if err != nil && !q.there {
			return unknown, err
		}
	}
	if q.etag == "" {
		object, err := o.Get(ctx, own)
		if err == nil {
			err = etagMark.Own(own, object.Body)
		}
		if err != nil {
			q.there = !errors.Is(err, storeapi.ErrNotExist)
			return unknown, err
		}
		q.etag, q.there = object.ETag, true
	}
	forms := []string{q.etag, noVersion, unquoted(q.etag), noVersion}
	for ; q.asked < len(forms); q.asked++ {
		_, err := o.put(ctx, own, body, &forms[q.asked], nil)
		refused := errors.Is(err, storeapi.ErrPreconditionFailed)
		switch {
		case errors.Is(err, storeapi.ErrNotExist):
			*q = question{}
			return unknown, err
		case err != nil && !refused:
			return unknown, err
		case q.asked == 0 && !refused:
			o.dialect.Store(asReceived)
			return asReceived, nil
		case q.asked == 2 && refused:
			*q = question{}
			return asReceived, nil // as far as can be seen: it takes neither
		case forms[q.asked] == noVersion && !refused:
			*q = question{}
			return unknown, errors.New("the server takes a wrong ETag if it has no quotes: it is not safe")
		}
	}
	// the refusal of the wrong one before it may have had another reason, so it has been asked
	// twice
	o.dialect.Store(bare)
	return bare, nil
}

// noVersion has no quotes, so that it is wrong in either form.
var noVersion = unquoted(probe.NoVersion)
