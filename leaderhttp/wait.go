package leaderhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/handover"
)

const (
	maxWait    = 50 * time.Second // until a request that waits is answered, and is sent again
	maxAnswer  = 60 * time.Second // until its answer is given up
	maxWaiting = 1000             // requests that wait
	maxPlace   = 16               // in the line that is worth a timer
	maxBody    = 128 << 10        // of an answer: a note has the whole record, in base64
)

// answer is the reply to a request that has waited.
type answer struct {
	Over  bool           `json:"over"`
	Place int            `json:"place"`
	Note  *handover.Note `json:"note,omitempty"`
}

// ServeHTTP answers the requests that the processes send each other. The last element of the path
// is the kind of request:
//
//   - leader: 200 and {"leading":true} if this process leads, else 503 and {"leading":false}, for
//     the health checks of load balancers, which may use GET, HEAD or OPTIONS, as HAProxy does by
//     default. The answer says nothing else, because every client of a public port can send this
//     request.
//   - wait?key=K&token=N&term=ID&holder=H&priority=P&up=S: if this process leads the term of the
//     lock K with this token and ID, the answer comes when that term has ended: 200 and
//     {"over":true,"place":P,"note":…}. One candidate may get its answer before the release: its
//     note is the holder's signature that the version that it names may be replaced. The other
//     candidates get their answers when the release has landed or failed, or the lock was taken. P
//     is the place in the line of candidates that have waited, from 0: they read the lock one after
//     the other. The first one may get a note of the released version. After 50 s the answer is
//     {"over":false}. H is the candidate's holder name, P its priority, and S the seconds since its
//     Peer was made. Without S a candidate gets no note. The answer is 409 at once if this process
//     does not lead that term, and 503 if 1,000 requests wait. The ID is term_id in the lock's
//     record, so a client that cannot read the record takes no place from the candidates.
//   - taken?key=K&token=N&term=ID, by POST: a candidate says that it has taken the lock by its
//     note. It makes the leader read the lock, three times at most. The answer is 204, or 409 if
//     this process does not lead that term.
//
// Requests that wait end with their context. They lift the server's WriteTimeout for themselves, if
// no middleware hides the server's ResponseWriter.
func (p *Peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	methods := map[string][]string{
		"leader": {http.MethodGet, http.MethodHead, http.MethodOptions},
		"wait":   {http.MethodGet},
		"taken":  {http.MethodPost},
	}[name]
	switch {
	case methods == nil:
		http.NotFound(w, r)
	case !slices.Contains(methods, r.Method):
		w.Header().Set("Allow", methods[0])
		http.Error(w, "use "+methods[0], http.StatusMethodNotAllowed)
	case name == "wait":
		p.serveWait(w, r)
	case name == "taken":
		p.serveTaken(w, r)
	default:
		status := http.StatusServiceUnavailable
		_, own := p.known()
		if own.leads() {
			status = http.StatusOK
		}
		_ = reply(w, status, map[string]bool{"leading": status == http.StatusOK})
	}
}

func reply(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(body)
}

// notThatTerm answers a request that names a term that this process does not lead.
func notThatTerm(w http.ResponseWriter) {
	http.Error(w, "this process does not lead the term that key=K&token=N&term=ID name", http.StatusConflict)
}

// asked returns how r names a term.
func (p *Peer) asked(r *http.Request) string {
	q := r.URL.Query()
	return nameOf(q.Get("key"), q.Get("token"), q.Get("term"))
}

func (p *Peer) serveWait(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("from") == p.id {
		http.Error(w, "this process asks itself: "+p.id, http.StatusMisdirectedRequest)
		return
	}
	c, asked := newCandidate(q), nameOf(q.Get("key"), q.Get("token"), q.Get("term"))
	p.mu.Lock()
	own, last := p.own, p.last
	mine := p.own != nil && asked == p.name(p.own)
	full := len(p.waiting) >= maxWaiting || p.closing.Err() != nil
	if mine && !full {
		p.waiting = append(p.waiting, c)
		p.announce()
	}
	p.mu.Unlock()
	switch {
	case !mine && last != nil && last != own && !last.ours && asked == p.name(last):
		http.Error(w, followsToo, http.StatusConflict)
		return
	case !mine:
		notThatTerm(w)
		return
	case full:
		later(w, "too many requests wait, or the server shuts down")
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	defer p.watchPriority(own, c)()
	got := p.inLine(r.Context(), c)
	gone := r.Context().Err() != nil
	if err := reply(w, http.StatusOK, got); err != nil || gone {
		close(c.lost)
	}
}

// inLine waits for the answer to c.
func (p *Peer) inLine(ctx context.Context, c *candidate) (got answer) {
	limit := time.NewTimer(maxWait)
	defer limit.Stop()
	select {
	case got = <-c.line:
	case <-limit.C:
	case <-p.closing.Done():
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.waiting = slices.DeleteFunc(p.waiting, func(other *candidate) bool { return other == c })
	p.mu.Unlock()
	if len(c.line) > 0 { // the term has ended, too
		got = <-c.line
	}
	return got
}

// answerAll answers all that wait for the end of the own term. The first of them gets the note of
// the released version, if there is one and the lock was not taken. The caller holds p.mu.
func (p *Peer) answerAll(own *term, note *handover.Note) {
	now := time.Now()
	p.sortWaiting(own.chosen, now)
	place := 0
	if own.heir != "" {
		place, note = 1, nil
	}
	for _, c := range p.waiting {
		got := answer{Over: true, Place: place}
		if place == 0 && p.mayGet(c, now) {
			if got.Note = note; note != nil {
				own.told = c.name
			}
		}
		c.line <- got
		place++
	}
	p.waiting = nil
}

// follow asks the leader of t for the end of its term, again and again, until another term has
// begun. At the end, and after the first failure in a row, it makes the candidate read the lock.
func (p *Peer) follow(t *term) {
	ctx, cancel := context.WithCancel(t.past)
	defer cancel()
	defer context.AfterFunc(p.closing, cancel)()
	failures, told := 0, false
	// A leader knows of its term a little later than processes that read its record.
	for pause := t.spread(); clock.System.Sleep(ctx, pause) == nil; {
		began := time.Now()
		got, err := p.ask(ctx, t)
		waited := time.Since(began) >= maxWait/2
		if waited {
			failures = 0
		}
		switch {
		case ctx.Err() != nil:
			return
		case got.Over:
			p.heardEnd(t)
			if !p.take(t, got.Note) {
				p.readInLine(ctx, t, got.Place)
			}
			return
		case t.over.Err() != nil: // as a read of Forward has shown
			p.readInLine(ctx, t, 1)
			return
		case err == nil && waited:
			pause = 0
			continue
		case err == nil:
			err = errors.New("it answers too soon")
		}
		if failures == 0 && clock.System.Sleep(ctx, t.spread()) == nil {
			p.lock.Wake()
		}
		// A failure at once may come from a leader that does not know of its term yet.
		if !told && (errors.Is(err, errItself) || errors.Is(err, errShared) || waited || failures == 1) {
			told = true
			p.log.Warn("leaderhttp: following the leader failed", "key", p.lock.Key(), "token", t.rec.Token,
				"url", t.url.String(), "err", err, "effect", slowHandOver)
		}
		if errors.Is(err, errItself) {
			return
		}
		pause = clock.Backoff(clock.System, &failures, min(t.rec.TTL/20, time.Second), 30*time.Second)
	}
}

// readInLine makes the candidate read after the end of t, and once more if that has not shown the
// next term. The pause doubles with each place in the line. So few candidates read before the
// winner's write has landed, and most find the next term by their polls. If the first in line have
// crashed too, the next one is not far.
func (p *Peer) readInLine(ctx context.Context, t *term, place int) {
	if place > maxPlace {
		return
	}
	pause := t.spacing() * (1<<place - 1)
	for range 2 {
		if clock.System.Sleep(ctx, pause) != nil {
			return
		}
		p.lock.Wake()
		pause = 10 * t.spacing()
	}
}

// slowHandOver is what follows if this process cannot follow the leader.
const slowHandOver = "the hand-over waits for the next poll"

// followsToo is the answer of a process that is asked about a leader that it follows.
const followsToo = "this process follows that term, too, and does not lead it"

// How one URL comes to reach another process than the leader.
const hint = " (the leader has restarted, or a Service or load balancer in front of all processes has this URL)"

var (
	errItself = errors.New("it is the URL of this process: give each process a separate URL" + hint)
	errShared = errors.New("it is the URL of another process that follows: give each process a separate URL" + hint)
)

// ask sends one request to the leader of t, which waits for the end of its term.
func (p *Peer) ask(ctx context.Context, t *term) (got answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxAnswer)
	defer cancel()
	u := t.url.JoinPath(Path, "wait")
	u.RawQuery = p.name(t) + "&" + p.asks()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return answer{}, err
	}
	res, err := p.client.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return answer{}, failed.Err // without the URL, whose query has the ID of the term
	} else if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	switch {
	case err != nil:
		return answer{}, err
	case res.StatusCode == http.StatusMisdirectedRequest && bytes.Contains(body, []byte(p.id)):
		return answer{}, errItself
	case res.StatusCode == http.StatusConflict && bytes.Contains(body, []byte(followsToo)):
		return answer{}, errShared
	case res.StatusCode != http.StatusOK:
		return answer{}, fmt.Errorf("the answer is %s", res.Status)
	case json.Unmarshal(body, &got) != nil || got.Place < 0:
		return answer{}, errors.New("the answer does not come from a Peer: serve one at " + Path)
	}
	return got, nil
}

// name names t to other processes: in a query, and in the mark of what is forwarded. Only processes
// that can read the record know the ID of the term.
func (p *Peer) name(t *term) string {
	return nameOf(p.lock.Key(), strconv.FormatUint(t.rec.Token, 10), t.rec.TermID)
}

func nameOf(key, token, id string) string {
	return url.Values{"key": {key}, "token": {token}, "term": {id}}.Encode()
}
