package shards

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold"
)

// A plan that does not fit into the planner's lock is cut into pieces, an object each. The lock says how many there are, and what
// their digest is. Each piece has the fencing token of the planner that wrote it, so a planner that was deposed stops at the first one
// of its successor. What a planner overwrites in spite of that, its successor finds within a TTL: see readPlan.

const (
	maxInline = 32 << 10 // the limit of a payload
	maxPiece  = 45 << 10 // with base64 below the limit of an object
)

// piece is one piece as JSON.
type piece struct {
	Token uint64 `json:"token"`
	Data  []byte `json:"data"`
}

// writePieces writes a plan of a planner with this token, and returns what to write into its lock. A piece with a higher token is of its
// successor, or is older than the planner's lock, if that was deleted, because then tokens begin again. So before it is overwritten,
// confirm has to ask the store whether the planner still holds its lock.
func (g *Group) writePieces(ctx context.Context, token uint64, body []byte, confirm func(context.Context) error) (payload []byte, err error) {
	digest := sha256.Sum256(body)
	o := planObject{Digest: digest[:]}
	for ; len(body) > 0; o.Pieces++ {
		data := body[:min(len(body), maxPiece)]
		body = body[len(data):]
		_, err := g.edit(ctx, g.pieceKey(o.Pieces), func(old []byte) ([]byte, error) {
			var there piece
			_ = json.Unmarshal(old, &there) // what is damaged is replaced
			if there.Token == token && bytes.Equal(there.Data, data) {
				return old, nil
			}
			if there.Token > token {
				if err := confirm(ctx); err != nil {
					return nil, fmt.Errorf("there is a piece of a planner with a higher token: %w", err)
				}
			}
			return json.Marshal(piece{token, data})
		})
		if err != nil {
			return nil, fmt.Errorf("writing the plan: %w", err)
		}
	}
	return json.Marshal(o)
}

// decodePlan returns the plan of a planner's lock. There is none, without an error, if the payload is empty.
func (g *Group) decodePlan(ctx context.Context, payload []byte) (*plan, error) {
	if len(payload) == 0 {
		return nil, nil
	}
	var o planObject
	if err := json.Unmarshal(payload, &o); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadPlan, err)
	}
	if o.Pieces > 0 {
		body, err := g.readPieces(ctx, o)
		if err != nil {
			return nil, err
		}
		o = planObject{}
		if err := json.Unmarshal(body, &o); err != nil {
			return nil, fmt.Errorf("%w: %w", errBadPlan, err)
		}
	}
	return o.plan()
}

func (g *Group) readPieces(ctx context.Context, o planObject) ([]byte, error) {
	var body []byte
	for i := range o.Pieces {
		obj, err := g.get(ctx, g.pieceKey(i))
		switch {
		case errors.Is(err, leasehold.ErrNotExist), errors.Is(err, leasehold.ErrCorruptRecord):
			return nil, fmt.Errorf("%w: piece %d: %w", errBadPlan, i, err)
		case err != nil:
			return nil, fmt.Errorf("reading piece %d of the plan: %w", i, err)
		}
		var p piece
		if err := json.Unmarshal(obj.Body, &p); err != nil {
			return nil, fmt.Errorf("%w: piece %d: %w", errBadPlan, i, err)
		}
		body = append(body, p.Data...)
	}
	if digest := sha256.Sum256(body); !bytes.Equal(digest[:], o.Digest) {
		return nil, fmt.Errorf("%w: its pieces are of another plan, which the planner may be writing just now", errBadPlan)
	}
	return body, nil
}

// edit reads an object and replaces it by what change returns. If that is the same, nothing is written. It returns what is there
// then. If somebody else was faster, the error matches [leasehold.ErrPreconditionFailed].
func (g *Group) edit(ctx context.Context, key string, change func(old []byte) ([]byte, error)) ([]byte, error) {
	obj, err := g.get(ctx, key)
	missing := errors.Is(err, leasehold.ErrNotExist)
	if err != nil && !missing && (obj.ETag == "" || !errors.Is(err, leasehold.ErrCorruptRecord)) { // too large: it is replaced
		return nil, err
	}
	now, err := change(obj.Body)
	if err != nil || !missing && bytes.Equal(now, obj.Body) {
		return now, err
	}
	ctx, cancel := g.attempt(ctx)
	defer cancel()
	if missing {
		_, err = g.store.PutIfNoneMatch(ctx, key, now)
	} else {
		_, err = g.store.PutIfMatch(ctx, key, now, obj.ETag)
	}
	if errors.Is(err, leasehold.ErrNotExist) { // it is gone
		err = leasehold.ErrPreconditionFailed
	}
	return now, err
}

// get reads an object.
func (g *Group) get(ctx context.Context, key string) (leasehold.Object, error) {
	ctx, cancel := g.attempt(ctx)
	defer cancel()
	return g.store.Get(ctx, key)
}
