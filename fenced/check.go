package fenced

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/probe"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// gate lets callers pass once a check has succeeded. One of them runs it, and the others wait.
type gate struct {
	turn chan struct{} // has an element while a caller checks
	open bool          // guarded by turn
}

func newGate() gate { return gate{turn: make(chan struct{}, 1)} }

func (g *gate) pass(ctx context.Context, check func() error) error {
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for the check of the store: %w", ctx.Err())
	}
	if g.open {
		return nil
	}
	if err := check(); err != nil {
		return fmt.Errorf("checking the store for fenced writes: %w", err)
	}
	g.open = true
	return nil
}

// cleaner is a Backend that can remove the object of a check, if it has the permission.
type cleaner interface {
	// mayRemove reports whether objects can be removed. It asks with a key that has none.
	mayRemove(ctx context.Context, key string) (bool, error)
	// remove tries to remove an object. id is the ID of its version, or "".
	remove(ctx context.Context, key, id string)
}

// describer is a Backend that is also a leasehold.Store, such as the backends of gcsstore and
// azblobstore.
type describer interface {
	leasehold.Describer
	DeleteIfMatch(ctx context.Context, key, etag string) error
}

// check tries what the safety of writes depends on, with an object next to key: that an object
// keeps its token, and, unless the server is known to enforce them, all conditions.
//
// If the object can be removed, it is. On a server that may ignore the condition of a delete, each
// Store then has a separate key, so that no check removes the object of another check. Otherwise
// all checks use one object, which remains.
func (s *Store) check(ctx context.Context, key string) error {
	t := &trial{Store: s, ctx: ctx, key: probe.Near(key, "check")}
	t.write = func(w *write, old, next Version, body string) error {
		next.Size = int64(len(body))
		return s.send(ctx, w, current{Version: old}, next, strings.NewReader(body))
	}
	remove := func(context.Context, string, string) {}
	switch b := s.backend.(type) {
	case cleaner:
		own := t.key + "-" + s.suffix
		may, err := b.mayRemove(ctx, own)
		if err != nil {
			return err
		}
		if may {
			t.key, remove = own, b.remove
		}
		t.strict = true
	case describer:
		t.known = b.Describe().Conditional
		t.strict = t.known
		remove = func(ctx context.Context, key, id string) {
			if !t.known || id == "" {
				return
			}
			_ = storeapi.Patiently(ctx, tries, func(bool) error { return b.DeleteIfMatch(ctx, key, id) })
		}
	}
	err := probe.Undisturbed(ctx, t.once)
	remove(context.WithoutCancel(ctx), t.key, t.last)
	return err
}

// tries limits how often a request of the check is sent while it fails temporarily. Some servers
// take one write of an object a second.
const tries = 4

// trial is a check of a backend, with an object that other processes may check with too.
type trial struct {
	*Store
	ctx    context.Context
	key    string
	known  bool   // the server is known to enforce conditions
	strict bool   // the backend says of a refusal that it is one
	last   string // ID of the version that it has written last, as far as it is known
	// write sends one write over old, whose ID is empty if there is no object.
	write func(w *write, old, next Version, body string) error
}

func (t *trial) once() error {
	first, body := newWrite(1, t.key), rand.Text()
	if _, err := t.begin(first, body); err != nil {
		return err
	}
	if t.known { // whatever Get shows, a write goes by Head
		_, err := t.look(first, body)
		return err
	}
	v, err := t.get(first, body)
	if err != nil {
		return err
	}
	again := newWrite(1, t.key)
	err = t.put(again, Version{}, Version{}, "create")
	if errors.Is(err, storeapi.ErrConflict) { // some servers refuse a create so
		err = leasehold.ErrPreconditionFailed
	}
	if err := t.mustRefuse(again, first, err, "a create replaced an object: the server ignores If-None-Match, or the "+
		"Backend its Put of a zero Version"); err != nil {
		return err
	}
	if t.noSeal != nil { // because the same body must not be written twice
		body = rand.Text()
	}
	second := newWrite(1, t.key)
	if _, err := t.must(second, v, Version{Settings: v.Settings}, body); err != nil {
		return err
	}
	now, err := t.look(second, body)
	if err != nil {
		return err
	}
	if now.ID == v.ID {
		return probe.Unsafe("two versions with the same body have the same ID: on S3, encrypt the bucket with " +
			"SSE-KMS, or choose PaddedBodies")
	}
	stale := newWrite(1, t.key)
	err = t.put(stale, v, Version{Settings: v.Settings}, "stale")
	if err := t.mustRefuse(stale, second, err, "a write over a former version replaced another version: the server "+
		"ignores If-Match, or the Backend the Version that it is to replace"); err != nil {
		return err
	}
	if b, ok := t.backend.(MetadataSetter); ok {
		return t.set(b, v, now, second, body)
	}
	return nil
}

// set tries SetMetadata, on a former version and on the present one.
func (t *trial) set(b MetadataSetter, former, now Version, present *write, body string) error {
	stale, next := newWrite(1, t.key), newWrite(1, t.key)
	err := b.SetMetadata(t.ctx, t.key, former, stale.metadata(nil))
	err = t.mustRefuse(stale, present, err, "SetMetadata of a former version changed another version")
	if err != nil {
		return err
	}
	if err := b.SetMetadata(t.ctx, t.key, now, next.metadata(nil)); err != nil {
		return probe.Disturbed(err)
	}
	v, err := t.look(next, body)
	if err == nil && v.ID == now.ID {
		err = probe.Unsafe("SetMetadata leaves a version with the same ID: it must give it a new one")
	}
	return err
}

// put sends a write, and again while it fails temporarily, unless that may be a refusal.
func (t *trial) put(w *write, old, next Version, body string) error {
	times := tries
	if !t.strict {
		times = 1
	}
	return storeapi.Patiently(t.ctx, times, func(bool) error { return t.write(w, old, next, body) })
}

func (t *trial) head() (v Version, err error) {
	err = storeapi.Patiently(t.ctx, tries, func(bool) (err error) {
		v, err = t.backend.Head(t.ctx, t.key)
		return err
	})
	return v, err
}

// must sends a write that must not be refused. It knows one that has landed although the answer was
// lost. If it fails, now is the version that is there, if there is one and it can be read.
func (t *trial) must(w *write, old, next Version, body string) (now Version, err error) {
	if err = t.put(w, old, next, body); err == nil || storeapi.Permanent(err) {
		return Version{}, err
	}
	now, headErr := t.head()
	if headErr != nil {
		return Version{}, err
	}
	if now.Metadata[metaNonce] == w.nonce {
		return now, nil
	}
	return now, probe.Disturbed(err)
}

// begin writes a version of this check: a new object, or over what another check has left. now is
// that version if a read has shown it.
func (t *trial) begin(w *write, body string) (now Version, err error) {
	if !t.strict { // where the refusal of a create could be any failure
		if now, err = t.head(); err != nil {
			return now, err
		}
	}
	if now, err = t.must(w, now, Version{}, body); err != nil && now.ID != "" {
		now, err = t.must(w, now, Version{}, body)
	}
	return now, err
}

// get reads the version of w, with Get.
func (t *trial) get(w *write, body string) (Version, error) {
	v, got, err := t.read()
	switch {
	case err != nil:
		return v, err
	case got != body: // another process has written it
		return v, probe.ErrDisturbed
	}
	t.last = v.ID
	return v, shows("Get", v, w)
}

func (t *trial) read() (v Version, body string, err error) {
	err = storeapi.Patiently(t.ctx, tries, func(bool) error {
		got, raw, err := t.open(t.ctx, t.key)
		if err != nil {
			return probe.Disturbed(err)
		}
		content, err := io.ReadAll(io.LimitReader(raw, drainSize))
		_ = raw.Close()
		v, body = got, strings.TrimRight(string(content), " \t") // where the metadata of the padding is missing
		return err
	})
	return v, body, err
}

// look is lookFor for a body that shows whose the object is.
func (t *trial) look(w *write, body string) (Version, error) {
	v, err := t.lookFor(w, "Head")
	if errors.Is(err, leasehold.ErrUnsafeStore) { // unless another process has replaced it, whose metadata is dropped
		if _, got, readErr := t.read(); readErr != nil || got != body {
			return v, errors.Join(probe.ErrDisturbed, readErr)
		}
	}
	t.last = v.ID
	return v, err
}

// lookFor reads the version of w, with Head. The first HEAD after a write may show the new ETag
// with the metadata of the version before.
func (t *trial) lookFor(w *write, method string) (v Version, err error) {
	for range 2 {
		if v, err = t.head(); err == nil {
			err = shows(method, v, w)
		}
		if !errors.Is(err, probe.ErrDisturbed) {
			break
		}
	}
	return v, err
}

// shows reports whether v has the metadata of w.
func shows(method string, v Version, w *write) error {
	token, nonce := v.Metadata[metaToken], v.Metadata[metaNonce]
	switch {
	case token != "" && nonce == w.nonce:
		return nil
	case v.ID == "", token != "" && nonce != "": // of another process
		return probe.ErrDisturbed
	}
	return &storeapi.Error{
		Kind: leasehold.ErrUnsafeStore,
		Cause: fmt.Errorf("an object was written with a token, and %s shows it without: the server, the Backend, or a "+
			"proxy drops the metadata of objects", method),
		Hint: "let every proxy pass the headers x-amz-meta-* on S3, x-ms-meta-* on Azure, in requests and answers, " +
			"or go around it; a server that keeps no metadata cannot have fenced writes",
	}
}

// mustRefuse returns nil if err is the refusal of w, before which present was written.
func (t *trial) mustRefuse(w, present *write, err error, ignored string) error {
	switch {
	case err == nil:
		return probe.Unsafe("%s", ignored)
	case errors.Is(err, leasehold.ErrPreconditionFailed):
		return nil
	case errors.Is(err, leasehold.ErrNotExist): // another process has removed it
		return probe.Disturbed(err)
	case storeapi.Permanent(err), t.ctx.Err() != nil:
		return err
	}
	now, headErr := t.head() // a Backend may refuse with any error, and an answer may be lost
	switch {
	case now.Metadata[metaNonce] == w.nonce:
		return probe.Unsafe("%s", ignored)
	case t.strict:
		return err
	case headErr != nil:
		return headErr
	case now.Metadata[metaNonce] != present.nonce:
		return probe.ErrDisturbed
	}
	return nil
}
