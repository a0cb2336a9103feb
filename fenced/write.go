package fenced

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lockerr"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

const (
	metaPrefix = "leasehold-"
	metaToken  = metaPrefix + "token"
	metaNonce  = metaPrefix + "nonce"
	metaGone   = metaPrefix + "deleted"

	nonceSize = 8 // bytes
	attempts  = 10
)

// write is one write, however many attempts it takes.
type write struct {
	key   string
	token uint64
	nonce string // distinguishes its own landed write from others
}

func newWrite(token uint64, key string) *write {
	random := make([]byte, nonceSize)
	_, _ = rand.Read(random) // never fails
	return &write{key, token, hex.EncodeToString(random)}
}

// metadata returns m with the Store's own entries.
func (w *write) metadata(m map[string]string) map[string]string {
	all := map[string]string{metaToken: strconv.FormatUint(w.token, 10), metaNonce: w.nonce}
	maps.Copy(all, m)
	return all
}

func (w *write) tooLow(highest uint64) error {
	return &leasehold.FencedError{Key: w.key, Token: w.token, Highest: highest}
}

// current is the current version of a key, with the contents of its metadata.
type current struct {
	Version
	token uint64 // 0: none
	nonce string
	gone  bool // it is a tombstone
}

func parse(key string, v Version) (current, error) {
	c := current{Version: v, nonce: v.Metadata[metaNonce], gone: v.Metadata[metaGone] != ""}
	text, ok := v.Metadata[metaToken]
	if !ok {
		return c, nil
	}
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 || token > storeapi.MaxToken {
		return c, &storeapi.Error{
			Doing: fmt.Sprintf("reading %q", key), Kind: leasehold.ErrCorruptRecord,
			Cause: fmt.Errorf("metadata %s is %q, which is not a token", metaToken, text),
			Hint:  "write the object anew without this metadata, then use WithAdoption",
		}
	}
	c.token = token
	return c, nil
}

// same reports whether w, read after v, is the same version. Both the ID and the nonce must agree,
// because a server may read them one after the other.
func (v Version) same(w Version) bool {
	return v.ID == w.ID && v.Metadata[metaNonce] == w.Metadata[metaNonce]
}

// tombstone is the version that marks a key as deleted.
func tombstone() Version { return Version{Metadata: map[string]string{metaGone: "true"}} }

// users returns the metadata that is not the Store's.
func users(m map[string]string) map[string]string {
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(name, _ string) bool { return strings.HasPrefix(name, metaPrefix) })
	return m
}

// write repeats Head, the decision and send until it knows that the write has landed or cannot
// land.
func (s *Store) write(ctx context.Context, w *write, send func(*write, current) error) error {
	doing := fmt.Sprintf("writing %q with token %d", w.key, w.token)
	var failed error
	for attempt := range attempts + 1 { // the last one only looks
		var now current
		v, err := s.head(ctx, w.key)
		if err == nil {
			now, err = parse(w.key, v)
		}
		if err == nil {
			switch {
			case v.ID != "" && now.nonce == w.nonce: // an attempt whose answer was lost
				return nil
			case now.token > w.token:
				if failed != nil {
					return fmt.Errorf("%w (an earlier attempt may have landed before that: %w)",
						w.tooLow(now.token), failed)
				}
				return w.tooLow(now.token)
			case v.ID != "" && now.token == 0 && !s.adopt:
				return &storeapi.Error{
					Doing: doing,
					Cause: ErrUnfenced,
					Hint:  "another client has written it: use WithAdoption to take it over",
				}
			case attempt == attempts:
				return fmt.Errorf("%s: given up after %d attempts: %w", doing, attempt, failed)
			}
			if err = send(w, now); err == nil {
				return nil
			}
		}
		switch {
		case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
			return fmt.Errorf("%s: %w: %w", doing, lockerr.EndOf(ctx), err)
		case ctx.Err() != nil, storeapi.Permanent(err), attempt == attempts:
			return err
		}
		failed = err
		pause := time.NewTimer(time.Duration(float64(20*time.Millisecond<<min(attempt, 6)) * (0.5 +
			mathrand.Float64())))
		select {
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("%s: %w: %w", doing, lockerr.EndOf(ctx), err)
		case <-pause.C:
		}
	}
	panic("unreachable")
}

// head checks the store before the first write, and returns the version that a write replaces.
func (s *Store) head(ctx context.Context, key string) (Version, error) {
	if err := s.checked.pass(ctx, func() error { return s.check(ctx, key) }); err != nil {
		return Version{}, err
	}
	return s.backend.Head(ctx, key)
}

// send makes one attempt to replace old by next, after the caller has decided that this is allowed.
func (s *Store) send(ctx context.Context, w *write, old current, next Version, body io.Reader) error {
	next.Metadata = w.metadata(next.Metadata)
	if next.Size >= 0 {
		body = &exact{Reader: body, key: w.key, size: next.Size}
	}
	return s.backend.Put(ctx, w.key, old.Version, next, body)
}

// exact is a reader that fails at its end if it did not have size bytes.
type exact struct {
	io.Reader
	key       string
	got, size int64
}

func (e *exact) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	e.got += int64(n)
	if err == io.EOF && e.got != e.size {
		err = fmt.Errorf("the body of %q has %d bytes, not %d: %w", e.key, e.got, e.size, io.ErrUnexpectedEOF)
	}
	return n, err
}

func check(token uint64, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if token == 0 || token > storeapi.MaxToken {
		return fmt.Errorf("writing %q: token %d is not from 1 to 2^53-1, as the tokens of leases are "+
			"(pass lease.Token())", key, token)
	}
	return nil
}

func checkKey(key string) error {
	if why := storeapi.BadKey(key); why != "" {
		return fmt.Errorf("key %.80q %s (use a path such as \"data/report.json\")", key, why)
	}
	return nil
}

// checkHeaders refuses what cannot be the value of an HTTP header, or would come back changed.
func checkHeaders(key string, v Version) error {
	if strings.ContainsFunc(v.ContentType, unicode.IsControl) {
		return fmt.Errorf("writing %q: Content-Type %q has a control character", key, v.ContentType)
	}
	for name, value := range v.Metadata {
		if value != strings.TrimSpace(value) {
			return fmt.Errorf("writing %q: metadata %q: the value %q has a space at an end, which HTTP would cut off",
				key, name, value)
		}
		for _, c := range []byte(name + value) {
			if c < ' ' || c > '~' {
				return fmt.Errorf("writing %q: metadata %q is not printable ASCII", key, name)
			}
		}
		if name == "" || name != strings.ToLower(name) || strings.HasPrefix(name, metaPrefix) ||
			strings.ContainsAny(name, ` ()<>@,;:\"/[]?={}`) {
			return fmt.Errorf("writing %q: metadata name %q (use the letters of an HTTP header in lower case, and "+
				"not %q at the beginning)",
				key, name, metaPrefix)
		}
	}
	return nil
}
