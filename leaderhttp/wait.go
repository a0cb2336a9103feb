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
)

const (
	maxWait    = 50 * time.Second // until a request that waits is answered, and is sent again
	maxAnswer  = 60 * time.Second // until its answer is given up
	maxWaiting = 1000             // requests that wait
	maxPlace   = 16               // in the line that is worth a timer
)

// answer is the reply to a request that has waited.
type answer struct {
	Over  bool `json:"over"`
	Place int  `json:"place"`
}

// ServeHTTP answers what processes ask each other. The last element of the path is the question:
//
//   - leader: 200 and {"leading":true} if this process leads, else 503 and {"leading":false}, for
//     the health checks of load balancers, which may use GET, HEAD or OPTIONS, as HAProxy does by
//     default. It says nothing else, because every client of a public port may ask.
//   - wait?key=K&token=N&term=ID: if this process leads the term of the lock K with this token and
//     ID, the answer comes when that term is over and its release has landed or failed: 200 and
//     {"over":true,"place":P}. P is the place in the line of those who have waited, from 0: they
//     read the lock one after the other. After 50 s the answer is {"over":false}. It is 409 at once
//     if this process does not lead that term, and 503 if 1,000 requests wait. The ID is term_id in
//     the lock's record, so whoever cannot read that takes no place from the candidates.
//
// Requests that wait end with their context. They lift the server's WriteTimeout for themselves, if
// no middleware hides the server's ResponseWriter.
func (p *Peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch {
	case name != "leader" && name != "wait":
		http.NotFound(w, r)
	case r.Method != http.MethodGet &&
		(name == "wait" || r.Method != http.MethodHead && r.Method != http.MethodOptions):
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
	case name == "wait":
		p.serveWait(w, r)
	default:
		status := http.StatusServiceUnavailable
		_, own := p.known()
		if own.leads() {
			status = http.StatusOK
		}
		reply(w, status, map[string]bool{"leading": status == http.StatusOK})
	}
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (p *Peer) serveWait(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("from") == p.id {
		http.Error(w, "this process asks itself: "+p.id, http.StatusMisdirectedRequest)
		return
	}
	line := make(chan int, 1)
	p.mu.Lock()
	mine := p.own != nil && nameOf(q.Get("key"), q.Get("token"), q.Get("term")) == p.name(p.own)
	full := len(p.waiting) >= maxWaiting || p.closing.Err() != nil
	if mine && !full {
		p.waiting = append(p.waiting, line)
	}
	p.mu.Unlock()
	switch {
	case !mine:
		http.Error(w, "this process does not lead the term of wait?key=K&token=N&term=ID", http.StatusConflict)
		return
	case full:
		later(w, "too many requests wait, or the server shuts down")
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	limit := time.NewTimer(maxWait)
	defer limit.Stop()
	var got answer
	select {
	case got.Place = <-line:
		got.Over = true
	case <-limit.C:
	case <-p.closing.Done():
	case <-r.Context().Done():
	}
	p.mu.Lock()
	p.waiting = slices.DeleteFunc(p.waiting, func(waiter chan int) bool { return waiter == line })
	p.mu.Unlock()
	if len(line) > 0 { // the term is over, too
		got = answer{true, <-line}
	}
	reply(w, http.StatusOK, got)
}

// follow asks the leader of t for the end of its term, again and again, until another term has
// begun. At the end, and after the first failure in a row, it makes the candidate read the lock.
func (p *Peer) follow(t *term) {
	ctx, cancel := context.WithCancel(t.over)
	defer cancel()
	defer context.AfterFunc(p.closing, cancel)()
	failures, told := 0, false
	// A leader knows of its term a little later than those who read its record.
	for pause := t.spread(); clock.System.Sleep(ctx, pause) == nil; {
		began := time.Now()
		over, place, err := p.ask(ctx, t)
		waited := time.Since(began) >= maxWait/2
		if waited {
			failures = 0
		}
		switch {
		case ctx.Err() != nil:
			return
		case over:
			p.readInLine(ctx, t, place)
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
		itself := errors.Is(err, errItself)
		// A failure at once may be that of a leader that does not know of its term yet.
		if !told && (itself || waited || failures == 1) {
			told = true
			p.log.Warn("leaderhttp: following the leader failed, so a hand-over waits for a poll", "key", p.lock.Key(),
				"token", t.rec.Token, "url", t.url.String(), "err", err)
		}
		if itself {
			return
		}
		pause = clock.Backoff(clock.System, &failures, min(t.rec.TTL/20, time.Second), 30*time.Second)
	}
}

// readInLine makes the candidate read after the end of t, and once more if that has not shown the
// next term. The pause doubles with each place in the line. So few candidates read before the
// winner's write has landed, and most find the next term by their polls. If the first in line have
// gone too, the next one is not far.
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

var errItself = errors.New("it is the URL of this process: give each process one of its own")

// ask sends one request to the leader of t, which waits for the end of its term.
func (p *Peer) ask(ctx context.Context, t *term) (over bool, place int, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxAnswer)
	defer cancel()
	u := t.url.JoinPath(Path, "wait")
	u.RawQuery = p.name(t) + "&from=" + p.id
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return false, 0, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return false, 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	var got answer
	switch {
	case err != nil:
		return false, 0, err
	case res.StatusCode == http.StatusMisdirectedRequest && bytes.Contains(body, []byte(p.id)):
		return false, 0, errItself
	case res.StatusCode != http.StatusOK:
		return false, 0, fmt.Errorf("the answer is %s", res.Status)
	case json.Unmarshal(body, &got) != nil || got.Place < 0:
		return false, 0, errors.New("the answer is not that of a Peer: serve it at " + Path)
	}
	return got.Over, got.Place, nil
}

// name names t to other processes: in a query, and in the mark of what is forwarded. Only those who
// can read the record know the ID of the term.
func (p *Peer) name(t *term) string {
	return nameOf(p.lock.Key(), strconv.FormatUint(t.rec.Token, 10), t.rec.TermID)
}

func nameOf(key, token, id string) string {
	return url.Values{"key": {key}, "token": {token}, "term": {id}}.Encode()
}
