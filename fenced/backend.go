package fenced

import (
	"context"
	"io"
)

// Backend stores the objects of a [Store]. You need a Backend only for storage that this project
// has no backend for: see [NewS3Store], [NewMemStore], and NewFencedStore of the packages gcsstore
// and azblobstore.
//
// The first write of a Store checks its Backend with a separate object. The check reads the
// metadata back by Head and Get, and tries each promise of Put and SetMetadata. If the Backend
// breaks a promise, the error matches [leasehold.ErrUnsafeStore]. The object of the check remains,
// because a Backend cannot delete. If the Backend also has the methods Describe and DeleteIfMatch
// of a [leasehold.Store], and its StoreInfo says Conditional, the check covers only the metadata,
// and deletes the object. Package storetest is the full conformance suite for a Backend.
//
// Implementations must be safe for concurrent use, and must limit the time of their requests,
// except in Get. An error that matches [leasehold.ErrPermanent] ends a write. After any other error
// the Store calls Head again and repeats the write if it has not landed.
type Backend interface {
	// Head returns the current version of key without its body. If there is no object, it returns
	// the zero Version. If Head may return the ID of one version with the Metadata of another, Put
	// must detect that before it writes.
	Head(ctx context.Context, key string) (Version, error)
	// Get returns the current version of key and its body, or an error that matches
	// leasehold.ErrNotExist. The end of ctx must end Get and each Read of the body. The Store
	// cancels ctx when it closes the body. If Get has not returned after a minute, or if no data
	// has come for a minute, the Store also cancels ctx, with a cause that matches
	// os.ErrDeadlineExceeded. The Store compares the length of the body with the Size of the
	// Version. If the Size is unknown, reading a body that ends early must fail.
	Get(ctx context.Context, key string) (Version, io.ReadCloser, error)
	// Put atomically replaces old, as Head or Get has returned it, with next and this body. If old
	// is not the current version at that moment, Put must change nothing and return an error. If
	// reading the body fails, Put must not write.
	Put(ctx context.Context, key string, old, next Version, body io.Reader) error
}

// MetadataSetter is a [Backend] that can change the metadata of an object without sending its body.
// [Store.Seal] then uses SetMetadata.
type MetadataSetter interface {
	Backend
	// SetMetadata atomically replaces old, as Head has returned it, with a version that has this
	// metadata, a new ID, and everything else of old. What Put promises about old, SetMetadata must
	// promise too.
	SetMetadata(ctx context.Context, key string, old Version, metadata map[string]string) error
}

// Version describes one version of an object.
type Version struct {
	// ID differs between all versions that a key ever has, even if their bodies are equal. It is
	// empty if there is no object. Put ignores the ID of next.
	ID          string
	Size        int64 // of the body in bytes; -1 if unknown
	ContentType string
	Metadata    map[string]string // the Store's own names begin with "leasehold-"
	// Settings is everything else that the backend stores with a body. [Store.Seal] passes to Put
	// the Settings that Get returned. Other writes pass nil.
	Settings any
}
