package membership

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Break ends the term of a member by force, if its object is in exactly the term with this token. A
// later term is left alone, and the error matches leasehold.ErrPreconditionFailed. A term that is
// over already is no error.
//
// It writes what leasehold.Lock.Break does, but under another object id. So the member loses its
// lease in the same way, and to others the term is not released: it is over when that record has
// been in its place for a TTL (see question.answer). By then the lease has run out, also that of a
// member which has not read its object since.
//
// It repairs a record that was damaged as well, and nothing else. Then token is recorded as the
// last one issued.
func (g *Group) Break(ctx context.Context, key string, token uint64) error {
	if _, err := g.lock(key); err != nil {
		return err
	}
	if token > leasehold.MaxToken {
		return fmt.Errorf("token %d is over 2^53-1, the highest that a term can have", token)
	}
	var err error
	for range maxBreaks {
		var rec leasehold.Record
		var etag string
		if rec, etag, err = g.last(ctx, key, token); err != nil {
			return err
		}
		if rec.Token != token {
			return fmt.Errorf("%w: it is in term %d of %q, not %d", leasehold.ErrPreconditionFailed, rec.Token,
				rec.Holder, token)
		}
		if rec.Released() && rec.ObjectID != "" {
			return nil
		}
		if rec.Token == leasehold.MaxToken { // which no term follows
			rec.Token = 0
		}
		rec.ExpiresAt, rec.ObjectID, rec.Nonce = time.Time{}, rand.Text()[:16], rand.Text()[:16]
		// After any error, the next round's read tells: if this write has landed, the record is
		// released.
		if err = g.replace(ctx, key, rec, etag); err == nil {
			return nil
		}
	}
	if errors.Is(err, leasehold.ErrPreconditionFailed) {
		err = errors.New("the member renewed it before every attempt: try again")
	}
	return err
}

// maxBreaks is how many writes a Break tries. A member renews every third of its TTL, so that two
// in a row are hardly outrun.
const maxBreaks = 4

// last is the record in a member's object; one with this token and no more if it was damaged.
func (g *Group) last(ctx context.Context, key string, token uint64) (rec leasehold.Record, etag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.s.Attempt())
	defer cancel()
	obj, err := g.store.Get(ctx, key)
	if err != nil && (obj.Body == nil || !errors.Is(err, leasehold.ErrCorruptRecord)) {
		return rec, "", err
	}
	if err != nil || rec.UnmarshalJSON(obj.Body) != nil {
		rec = leasehold.Record{Token: token}
		err = wire.Misplaced(wire.Lock, obj.Body)
	}
	return rec, obj.ETag, err
}

func (g *Group) replace(ctx context.Context, key string, rec leasehold.Record, etag string) error {
	body, err := rec.MarshalJSON()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, g.s.Attempt())
	defer cancel()
	_, err = g.store.PutIfMatch(ctx, key, body, etag)
	return err
}
