package leaderhttp

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// PublicURLKey is the key of the record's metadata ([leasehold.WithMetadata]) that holds the URL
// where clients reach the leader, for [Peer.Redirect]. The URL has the form of [URLKey], and
// [WithAllowedHosts] restricts it too. Each process needs a separate URL. A URL that all processes
// share, such as the URL of a Service, redirects clients in circles. The log warns of that.
const PublicURLKey = "public_url"

// Redirect returns a handler that runs next if this process leads, as [Peer.Forward] does.
// Otherwise it redirects the client to the leader: 307 Temporary Redirect to the URL that the
// leader's record has under [PublicURLKey], followed by the path and query of the request. While
// there is no leader, requests wait as with Forward: see [WithPatience]. If the leader has no
// usable public URL, the answer is 503 with Retry-After (3 s), and its body and the log say so. A
// request that is redirected was not carried out. A process whose elector does not campaign reads
// the record up to three times a second for Redirect, because nothing else informs it of the end of
// a term.
//
// Any party that may write to the bucket can set the URL in the record. See [WithAllowedHosts].
func (p *Peer) Redirect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.lead(w, r, next, p.redirect) })
}

// refresh reads the record if nothing else would show the end of t: the leader does not refuse what
// a client asks it, and a process that does not campaign does not follow it.
func (p *Peer) refresh(ctx context.Context, t *term) {
	ctx, cancel := context.WithTimeout(ctx, max(p.patience, time.Second))
	defer cancel()
	stale := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !t.follows && time.Since(t.shown) > lookAgain && time.Since(p.looked) > lookAgain
	}
	if !stale() || p.looking.Lock(ctx) != nil {
		return
	}
	defer p.looking.Unlock()
	if stale() {
		p.look(ctx)
	}
}

// redirect is a passing.
func (p *Peer) redirect(t *term, w http.ResponseWriter, r *http.Request, _ *keptBody) (again bool) {
	if p.refresh(r.Context(), t); t.over.Err() != nil {
		return true
	}
	u, err := p.target(PublicURLKey, t.rec.Metadata[PublicURLKey])
	if err != nil {
		t.warned.Do(func() {
			p.log.Warn("leaderhttp: clients cannot be redirected to the leader", "key", p.lock.Key(),
				"token", t.rec.Token, "holder", t.rec.Holder, "err", err)
		})
		later(w, "not carried out: the leader has no public URL; try again")
		return false
	}
	if strings.EqualFold(u.Host, r.Host) {
		t.warned.Do(func() {
			p.log.Warn("leaderhttp: the leader's public URL reaches another process", "key", p.lock.Key(),
				"token", t.rec.Token, "holder", t.rec.Holder, "public_url", u.String(),
				"hint", "give each process a separate public URL")
		})
	}
	// As the client has written the path: an app may treat "a//b" and "a/b" as different.
	to := strings.TrimSuffix(u.String(), "/") + "/" + strings.TrimPrefix(r.URL.EscapedPath(), "/")
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	w.Header().Set("Cache-Control", "no-store")
	//nolint:gosec // the host comes from the record; the client gives path and query
	http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	return false
}
