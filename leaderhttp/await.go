package leaderhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/ctxmutex"
)

const (
	defaultPatience = 2 * time.Second
	maxLook         = 10 * time.Second       // for a read of the record
	firstLook       = 20 * time.Millisecond  // between two reads, however many requests want one; doubles
	lookAgain       = 300 * time.Millisecond // until it is this
	maxVisitors     = 1000                   // requests that wait for a leader
	maxLeaders      = 3                      // to which a request is sent
	fresh           = 2 * time.Second        // after its term was seen to begin, a leader may not know of it
)

// WithPatience sets how long a request to [Peer.Forward] or [Peer.Redirect] waits while no leader
// can be reached, before the peer answers 503: default 2 s. With 0 the peer answers after one read
// of the record, or at once if the record was read within the last 300 ms. The time must not be
// negative. A hand-over takes about two requests to the store. After a crash there is no leader for
// about one TTL.
func WithPatience(d time.Duration) Option { return func(p *Peer) { p.patience = d } }

// visitors are the requests that wait for a leader. One goroutine reads the record for all of them.
type visitors struct {
	looking ctxmutex.Mutex // locked by the goroutine that reads

	// Guarded by Peer.mu.
	inside int
	stop   context.CancelFunc // of the goroutine that reads
	looked time.Time          // when the last read ended
	pause  time.Duration      // until the next one, which doubles it
	read   chan struct{}      // closed and made again by each read
}

func newVisitors() visitors {
	return visitors{looking: ctxmutex.New(), pause: firstLook / 2, read: make(chan struct{})}
}

// visit is a request on its way to the leader.
type visit struct {
	*Peer
	w    http.ResponseWriter
	r    *http.Request
	body *keptBody

	vain    *term         // its leader has not carried the request out
	leaders int           // that have not
	pause   time.Duration // until the leader of vain gets it again; 0: never
	due     time.Time     // when that is

	inside bool               // it waits
	until  time.Time          // for as long; zero before it has waited
	end    <-chan struct{}    // closed when it has waited for long enough
	cancel context.CancelFunc // of end
}

// may reports whether the request may be sent to the leader of t now.
func (v *visit) may(t *term) bool {
	switch {
	case t == nil || t.ours:
		return false
	case t == v.vain:
		return v.pause > 0 && !time.Now().Before(v.due)
	}
	return v.leaders < maxLeaders
}

// failed notes that the leader of t has not carried the request out. If the term has only just
// begun, its leader may not know of it yet, so it gets the request again.
func (v *visit) failed(t *term) {
	if t != v.vain {
		v.vain, v.pause = t, firstLook
		v.leaders++
	} else {
		v.pause = min(2*v.pause, lookAgain)
	}
	if time.Since(t.seen) > fresh {
		v.pause = 0
	}
	v.due = time.Now().Add(v.pause)
}

// wait waits until the request may be sent to another leader, or again. It reports false if it has
// answered the request, because there was no leader for too long.
func (v *visit) wait(last *term, changed <-chan struct{}) bool {
	if !v.inside && !v.enter() {
		later(v.w, "not carried out: too many requests wait for a leader; try again")
		return false
	}
	var again <-chan time.Time
	if last != nil && last == v.vain && v.pause > 0 {
		timer := time.NewTimer(time.Until(v.due))
		defer timer.Stop()
		again = timer.C
	}
	end := v.end
	select {
	case <-changed:
		return true
	case <-again:
		return true
	case <-v.r.Context().Done():
	case <-end:
		if v.end = closed; v.patience == 0 && end != closed { // the read that has just ended may have shown a leader
			return true
		}
	}
	later(v.w, "not carried out: there is no leader whom this process can reach; try again")
	return false
}

// closed is a patience that has ended.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// enter makes the request one of those that wait. It reports false if there are too many.
func (v *visit) enter() bool {
	p := v.Peer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inside >= maxVisitors {
		return false
	}
	if p.inside++; p.inside == 1 {
		var ctx context.Context
		ctx, p.stop = context.WithCancel(context.Background())
		go p.lookOut(ctx)
	}
	first := v.until.IsZero()
	if first {
		v.until = time.Now().Add(v.patience)
	}
	patience, cancel := context.WithDeadline(v.r.Context(), v.until)
	v.inside, v.cancel = true, cancel
	switch {
	case v.patience > 0:
		v.end = patience.Done()
	case first && time.Since(p.looked) < p.pause:
		v.end = closed
	case first:
		v.end = p.read
	}
	return true
}

// leave ends the wait, if the request waits.
func (v *visit) leave() {
	if !v.inside {
		return
	}
	v.inside = false
	v.cancel()
	p := v.Peer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inside--; p.inside == 0 {
		p.stop()
	}
}

// lookOut reads the record again and again until ctx ends, because no request waits any more.
func (p *Peer) lookOut(ctx context.Context) {
	if p.looking.Lock(ctx) != nil {
		return
	}
	defer p.looking.Unlock()
	for {
		p.mu.Lock()
		ago := time.Since(p.looked)
		if ago > 10*lookAgain {
			p.pause = firstLook / 2
		}
		pause := p.pause - ago
		p.mu.Unlock()
		if clock.System.Sleep(ctx, pause) != nil {
			return
		}
		p.look(ctx)
	}
}

// look reads the record once.
func (p *Peer) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxLook)
	defer cancel()
	rec, err := p.lock.Inspect(ctx)
	if err == nil {
		p.saw(rec, false)
	}
	if errors.Is(ctx.Err(), context.Canceled) { // then the clients have gone, and the next one has to read
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked, p.pause = time.Now(), min(2*p.pause, lookAgain)
	close(p.read)
	p.read = make(chan struct{})
}
