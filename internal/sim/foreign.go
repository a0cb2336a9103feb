package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold"
)

// foreignClient is another program that uses the lock. It knows only expires_at and token, and takes only a released lock.
func (w *world) foreignClient(ctx context.Context) {
	r := w.rng("foreign")
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.Int64N(int64(2 * w.cfg.TTL))))
		if w.faultsOn() {
			w.foreignAcquire(r)
		}
	}
}

// foreignAcquire writes the two members that it knows. One time in three it leaves out the token as well, one time in three
// it keeps all members that it read.
func (w *world) foreignAcquire(r *rand.Rand) {
	got := w.store.apply(nil, request{kind: "get"})
	var rec leasehold.Record
	if got.err != nil || json.Unmarshal(got.obj.Body, &rec) != nil || !rec.Released() {
		return
	}
	expires := time.Now().Add(time.Duration(r.Int64N(int64(w.cfg.TTL)))).UnixMilli()
	body := fmt.Sprintf(`{"expires_at": %d.%03d, "token": %d}`, expires/1000, expires%1000, rec.Token+1)
	if r.IntN(3) == 0 {
		w.mu.Lock()
		w.tokenErased = true
		w.mu.Unlock()
		body = fmt.Sprintf(`{"expires_at": %d.%03d}`, expires/1000, expires%1000)
	}
	if r.IntN(3) == 0 {
		members := map[string]any{}
		_ = json.Unmarshal(got.obj.Body, &members)
		until := time.Now().Add(time.Duration(r.Int64N(int64(w.cfg.TTL / 2))))
		members["token"], members["expires_at"] = rec.Token+1, float64(until.UnixMilli())/1000
		kept, _ := json.Marshal(members)
		body = string(kept)
		w.mu.Lock()
		w.foreignUntil = until
		w.mu.Unlock()
	}
	put := w.store.apply(nil, request{kind: "update", body: []byte(body), ifMatch: got.obj.ETag})
	_ = json.Unmarshal([]byte(body), &rec)
	w.log("foreign", "acquires token %d until %v: %v", rec.Token, rec.ExpiresAt.Sub(w.began), put.err)
}
