// Package leaderhttp connects the processes that elect a leader over their existing HTTP servers. A
// candidate learns at once that a term has ended, and the leader answers a request that reaches any
// process. See https://github.com/leasehold-go/leasehold/blob/main/docs/handover.md.
//
//	lock, err := leasehold.NewLock(store, key, // with the URL where the others reach this process
//		leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: "http://10.0.0.7:8080"}))
//	peer, err := leaderhttp.New(lock)
//	elector, err := leasehold.NewElector(lock, peer.Callbacks(leasehold.Callbacks{…}))
//	mux.Handle(leaderhttp.Path, peer)  // what the processes ask each other, and health checks
//	mux.Handle("/", peer.Forward(app)) // app runs in the process that leads
//	server.RegisterOnShutdown(peer.Close)
//
// No answer of a peer decides which process leads. A peer's answer makes a candidate read the lock.
// Only the holder's own signature lets the candidate write, over the version that the signature
// names. A candidate reads up to twice after the end of a term, and once after a failure, which is
// at most once in 25 s. So a peer that lies, floods or hangs costs a few reads, and the hand-over
// then waits for the next poll, as it does without this package.
//
// A leader that steps down passes the lock to one of the candidates that wait, so that no other
// candidate can take it in between. The leader chooses the candidate that [Peer.HandOver] names, or
// the one with the highest priority ([WithPriority]), or the youngest process. So a rolling restart
// changes the leader once. A release takes up to a second longer if the chosen candidate has
// crashed. Candidates without a Peer get the lock only when no candidate with a Peer waits.
//
// Any party that may write to the bucket can set the URL in the lock's record, and each process
// sends requests to that URL. With [Peer.Forward] these are requests of its clients, with their
// credentials. See [WithAllowedHosts].
package leaderhttp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/handover"
	"github.com/leasehold-go/leasehold/internal/warnlog"
)

const (
	// URLKey is the key of the record's metadata ([leasehold.WithMetadata]) that holds the URL
	// where the other processes reach the leader. The URL is http or https and has a host, but no
	// user information, query or fragment. If the URL has a path, the other processes put it before
	// Path and before the path of each forwarded request.
	URLKey = "url"
	// Path is the path at which each process serves its Peer, with all paths below it.
	Path = "/.leasehold/"
)

// Peer is one of the processes that elect a leader by one lock. [New] makes it. It is safe for
// concurrent use.
type Peer struct {
	lock    *leasehold.Lock
	id      string // by which this process recognises its own requests
	client  *http.Client
	allowed func(host string) bool
	log     *slog.Logger
	follows sync.WaitGroup
	closing context.Context
	close   context.CancelFunc

	began    time.Time     // of this Peer, by which the youngest process is found
	priority int           // of this process as the next leader
	preempts bool          // it steps down for a higher priority
	preempt  time.Duration // after that candidate has waited for this time
	patience time.Duration // of requests while there is no leader

	mu      sync.Mutex           // guards what follows
	last    *term                // the last term seen to begin; nil if that has ended
	former  *term                // the last term seen to begin, even if that has ended
	own     *term                // the one of this process, until OnStoppedLeading
	changed chan struct{}        // closed and made again when something of this changes
	waiting []*candidate         // for the end of own
	shunned map[string]time.Time // the names of candidates that have not taken an offer, and when that was
	inVain  time.Time            // when an offer was last not taken
	visitors
}

// Option configures a [Peer].
type Option func(*Peer)

// WithClient sets the client for requests to the leader, for TLS and authentication. Only its
// Transport is used, because redirects must not be followed and a Timeout would end streams. The
// transport must not repeat a request that may have been carried out. [http.Transport] does not
// repeat requests of this package.
//
// The default client gives up a connection that is not made within 5 s. It uses no proxy, whatever
// HTTP_PROXY says, because a proxy would see what clients send, and would choose the destination by
// their Host header. If an HTTP/2 connection has been silent for 5 s, the default client sends a
// ping, and gives the connection up 5 s later. If your own client has no [http.HTTP2Config] in its
// Transport, it keeps the connection to a machine that no longer answers until the system gives it
// up, after minutes.
func WithClient(c *http.Client) Option {
	return func(p *Peer) { p.client = c }
}

// WithAllowedHosts restricts the hosts to which requests are sent. allowed reports whether host,
// from the URL of a leader's record, with the port if the URL has one, is a process of yours. The
// peer waits for allowed, so allowed should return at once. By default every host is allowed.
func WithAllowedHosts(allowed func(host string) bool) Option {
	return func(p *Peer) { p.allowed = allowed }
}

// New returns the peer of this process for lock. It sends no request. From then on, each release of
// lock passes the lock on to a candidate that waits for the end of the elector's term. Make one
// peer for a lock. New refuses a lock that [leasehold.NewLock] did not make, a nil option, client
// or function, and a time that [WithPreemption] or [WithPatience] does not allow.
func New(lock *leasehold.Lock, opts ...Option) (*Peer, error) {
	p := &Peer{
		lock: lock, id: rand.Text(), log: warnlog.New(), began: time.Now(), patience: defaultPatience,
		changed: make(chan struct{}), shunned: make(map[string]time.Time), visitors: newVisitors(),
		allowed: func(string) bool { return true },
		client: &http.Client{Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout: 5 * time.Second, MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second,
			DisableCompression: true, ForceAttemptHTTP2: true,
			HTTP2: &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
		}},
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("leaderhttp: an Option is nil")
		}
		opt(p)
	}
	switch {
	case p.preempts && (p.preempt < 0 || p.preempt >= maxPreempt):
		return nil, fmt.Errorf("leaderhttp: WithPreemption(%v): the time must be at least 0 and below %v, because "+
			"candidates ask again at that interval", p.preempt, maxPreempt)
	case p.patience < 0:
		return nil, fmt.Errorf("leaderhttp: WithPatience(%v): the time must not be negative", p.patience)
	}
	if lock.Key() == "" || p.client == nil || p.allowed == nil {
		return nil, errors.New("leaderhttp: the lock was not made by leasehold.NewLock, or the client or function of " +
			"an option is nil")
	}
	p.client = &http.Client{
		Transport:     p.client.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	p.closing, p.close = context.WithCancel(context.Background())
	heir(lock, p.passOn)
	return p, nil
}

// Close ends the background work of the peer: the peer follows no leader any more, answers the
// requests that wait for the end of a term, and closes idle connections. Requests that are being
// forwarded or wait for a leader continue, and Forward, Redirect and the check of the leader still
// answer. Pass Close to [http.Server.RegisterOnShutdown], because requests that wait would delay a
// shutdown. Shut the server down after [leasehold.Elector.Run] has returned, so that the candidates
// learn of the release. Close may be called more than once.
func (p *Peer) Close() {
	p.mu.Lock()
	p.close() // under mu, so that nothing begins to follow after it
	p.mu.Unlock()
	p.follows.Wait()
	p.client.CloseIdleConnections()
}

// Callbacks returns callbacks that inform the peer of terms and then call the callbacks in cb. Pass
// them to one elector of the peer's lock.
func (p *Peer) Callbacks(cb leasehold.Callbacks) leasehold.Callbacks {
	return leasehold.Callbacks{
		OnNewLeader: func(r leasehold.Record) {
			p.saw(r, true)
			if cb.OnNewLeader != nil {
				cb.OnNewLeader(r)
			}
		},
		OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
			p.started(ctx, lease)
			if cb.OnStartedLeading != nil {
				cb.OnStartedLeading(ctx, lease)
			}
		},
		OnStoppedLeading: func(cause error) {
			p.stopped()
			if cb.OnStoppedLeading != nil {
				cb.OnStoppedLeading(cause)
			}
		},
	}
}

// term is a term that this process knows of.
type term struct {
	rec  leasehold.Record
	url  *url.URL        // of its leader; nil if there is none that can be used
	ours bool            // this process has written rec, so it is about to lead, or has led
	seen time.Time       // when this process first knew of it
	over context.Context // ends when another term has begun, or this one is seen to end
	end  context.CancelFunc
	past context.Context // ends when another term has begun
	pass context.CancelFunc

	shown    time.Time // when the store last showed it; guarded by Peer.mu
	followed bool      // this process has begun to follow its leader; guarded by Peer.mu
	follows  bool      // and still does; guarded by Peer.mu
	warned   sync.Once // that there is no public URL

	// Of a term of this process.
	lease   *leasehold.Lease
	leading context.Context // of OnStartedLeading
	taken   chan struct{}   // has room for one message that the lock was taken
	ended   chan struct{}   // closed by OnStoppedLeading
	passing bool            // HandOver was called; guarded by Peer.mu, like the next two
	chosen  string          // by HandOver, or ""
	heir    string          // the holder of the next term, or ""
	told    string          // the candidate that has the note of the released version, or ""
	yielded string          // the candidate of a higher priority for which it ends, or ""
}

// leads reports whether t is a term of this process in which it may act now.
func (t *term) leads() bool {
	return t != nil && t.lease != nil && t.leading.Err() == nil && t.lease.Valid()
}

// same reports whether r is a record of the term t.
func (t *term) same(r leasehold.Record) bool {
	return t != nil && t.rec.Token == r.Token && t.rec.Holder == r.Holder && t.rec.TermID == r.TermID
}

// spacing is the unit of pauses after the end of a term: about the time of a read and a write.
func (t *term) spacing() time.Duration { return min(t.rec.TTL/150, 100*time.Millisecond) }

// spread is a pause that keeps several processes from asking or reading at the same moment.
func (t *term) spread() time.Duration {
	return time.Duration(clock.System.Rand() * float64(t.spacing()))
}

// known returns the last term seen to begin, or nil if it has ended, and the term of this process.
func (p *Peer) known() (last, own *term) {
	last, own, _ = p.state()
	return last, own
}

// state is known, with a channel that is closed when that changes.
func (p *Peer) state() (last, own *term, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.own, p.changed
}

// announce wakes the goroutines that wait for a change. The caller holds p.mu.
func (p *Peer) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// saw takes a record that was read from the store. inOrder says that it comes from the elector,
// whose records come in order. Another record may be older than what is known.
func (p *Peer) saw(r leasehold.Record, inOrder bool) {
	// Both call code of the user, for which no other goroutine may wait: so neither is under mu.
	u, err := p.target(URLKey, r.Metadata[URLKey])
	t := &term{rec: r, url: u, ours: wrote(p.lock, r)}
	if t.ours {
		t.url = nil // of this process, which does not ask itself
	}
	if p.takes(t, inOrder) && err != nil {
		p.log.Warn("leaderhttp: leader has no usable URL", "key", p.lock.Key(), "token", r.Token,
			"holder", r.Holder, "err", err, "effect", slowHandOver)
	}
}

// takes is saw with the term of the record. It reports whether that has begun and was not known.
func (p *Peer) takes(t *term, inOrder bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := t.rec
	switch {
	case p.last.same(r) && !r.Released():
		p.last.shown = time.Now()
		if inOrder {
			p.startFollowing(p.last)
		}
		return false
	case p.own.same(r), !inOrder && p.last.succeeds(r):
		return false
	case r.Released():
		if p.last != nil {
			p.replace(nil)
		}
		return false
	}
	p.replace(t)
	p.forgive(r.Holder)
	switch {
	case inOrder:
		p.startFollowing(t)
	case !t.ours: // The elector may rest or have ended. Only a candidate that follows gets an offer.
		p.lock.Wake()
	}
	return true
}

// startFollowing follows the leader of t, unless that has begun. The caller holds p.mu.
func (p *Peer) startFollowing(t *term) {
	if t.url != nil && !t.followed && p.closing.Err() == nil {
		t.followed, t.follows = true, true
		p.follows.Go(func() {
			p.follow(t)
			p.mu.Lock()
			defer p.mu.Unlock()
			t.follows = false
		})
	}
}

// replace makes t the last term seen, or notes that there is none. The caller holds p.mu.
func (p *Peer) replace(t *term) {
	if p.last != nil {
		p.last.end()
	}
	if p.last = t; t != nil {
		now := time.Now()
		t.seen, t.shown = now, now
		t.over, t.end = context.WithCancel(context.Background())
		if p.former.same(t.rec) { // a read that was under way at its end has brought it back
			t.past, t.pass = p.former.past, p.former.pass
		} else {
			if p.former != nil {
				p.former.pass()
			}
			t.past, t.pass = context.WithCancel(context.Background())
		}
		p.former = t
	}
	p.pause = firstLook / 2
	p.announce()
}

// heardEnd notes that the leader of t has reported the end of t.
func (p *Peer) heardEnd(t *term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == t {
		p.replace(nil)
	}
}

func (p *Peer) started(ctx context.Context, lease *leasehold.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = &term{
		rec: lease.Record(), lease: lease, leading: ctx, taken: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	p.replace(p.own)
}

// stopped informs all that wait of the end of the term of this process.
func (p *Peer) stopped() {
	_, own := p.known()
	if own == nil {
		return
	}
	var note *handover.Note
	if n, ok := noteOf(own.lease); ok {
		note = &n
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = nil
	if own.yielded != "" && own.heir != own.yielded { // so it yields to no candidate for some time
		p.inVain = time.Now()
	}
	if p.last == own {
		p.replace(nil)
	}
	p.announce()
	p.answerAll(own, note)
	close(own.ended)
}

// target returns the URL of a leader, which its record has under name, or why it cannot be used.
func (p *Peer) target(name, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case text == "" && name == PublicURLKey:
		return nil, errors.New(`its record has no public URL: set "public_url" by leasehold.WithMetadata`)
	case text == "":
		return nil, errors.New(`its record has no URL: set "url" by leasehold.WithMetadata`)
	case err == nil && u.User != nil: // without the text, which may have a password
		return nil, errors.New("the URL in its record has user information, which every reader of the record sees")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" ||
		u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("the URL in its record, %.100q, is not http(s)://host[:port][/path]", text)
	case !p.allowed(u.Host):
		return nil, fmt.Errorf("WithAllowedHosts does not allow %q, the host in its record", u.Host)
	}
	return u, nil
}
