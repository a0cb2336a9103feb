package sim

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
)

var err429 = errors.New("429 TooManyRequests")

// drawStores draws whether the store accepts one write of an object a second, as R2 and Cloud
// Storage do, whether creates take up to a TTL, as a Put Blob of Azure may, and whether the locks
// know that it enforces conditions. If not, they try it.
func (c *Config) drawStores() {
	r := c.rng("stores")
	c.OneWriteASecond, c.SlowCreates, c.Tried = r.IntN(8) == 0, r.IntN(8) == 0, r.IntN(4) == 0
}

// tries reports whether a write tries the store: it carries white space behind the record.
func (r request) tries() bool { return r.writes() && len(bytes.TrimSpace(r.body)) < len(r.body) }

// tried notes a write that tries the store and is refused. The caller holds s.mu.
func (s *store) tried(sender *process, r request) {
	var rec leasehold.Record
	if r.kind != "update" || rec.UnmarshalJSON(r.body) != nil {
		return
	}
	s.w.markIf(rec.Holder != sender.identity, "the store tried in a wait")
	s.w.markIf(rec.Holder != sender.identity && rec.Nonce != s.rec.Nonce, "the store tried beside a write")
}

// tooSoon refuses a write that follows the last one of the object within a second. The caller holds
// s.mu.
func (s *store) tooSoon() error {
	if !s.w.cfg.OneWriteASecond || !s.exists || time.Since(s.writtenAt) >= time.Second {
		return nil
	}
	s.w.mark("a write too soon")
	if s.versions%2 == 0 {
		return err503
	}
	return err429
}

// upload is how long a create goes up, and whether it breaks off then.
type upload struct {
	lasts     time.Duration
	breaksOff bool
}

// drawUpload draws the upload of a create.
func (c *client) drawUpload() (u upload) {
	if !c.p.w.cfg.SlowCreates || !c.p.w.faultsOn() {
		return u
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return upload{below(c.rand, c.p.w.cfg.shortest()), c.rand.IntN(4) == 0}
}

// create carries out a create. Until it has gone up, other creates are refused, and reads find
// nothing.
func (s *store) create(sender *process, r request, u upload) reply {
	s.mu.Lock()
	switch {
	case u == upload{} && !s.creating, s.exists:
		s.mu.Unlock()
		return s.apply(sender, r)
	case s.creating:
		s.mu.Unlock()
		s.w.mark("a create beside a slow one")
		return reply{err: leasehold.ErrPreconditionFailed}
	}
	s.creating = true
	s.mu.Unlock()
	time.Sleep(u.lasts)
	s.mu.Lock()
	s.creating = false
	s.mu.Unlock()
	if u.breaksOff {
		sender.client.loses(r)
		return reply{err: errReset}
	}
	return s.apply(sender, r)
}

// checkLog wants that a process which has lost the race to create the object, in a world of slow
// creates, is told that the lock is held, and not that the store is broken.
func (p *process) checkLog(text string) {
	w := p.w
	if w.token.Load() > 0 || time.Since(w.began) > w.cfg.shortest()/2 {
		return
	}
	// no store says so to a create
	falsified := strings.Contains(text, leasehold.ErrNotExist.Error()) || strings.Contains(text, "StatusCode: 404")
	if strings.Contains(text, "refused a write although the object had not changed") && !falsified {
		w.violate("%s lost the race to create the object, and was told: %s", p.name, text)
	}
}

// listener is a slog.Handler that is told each text of a log: messages and values.
type listener func(text string)

func (listener) Enabled(context.Context, slog.Level) bool { return true }
func (l listener) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l listener) WithGroup(string) slog.Handler          { return l }

func (l listener) Handle(_ context.Context, r slog.Record) error {
	l(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		l(a.Value.String())
		return true
	})
	return nil
}
