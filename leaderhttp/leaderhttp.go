// Package leaderhttp lets the processes that elect a leader talk to each other over the HTTP
// servers that they have anyway. A candidate learns at once that a term is over, and a request that
// reaches any process is answered by the leader.
//
//	lock, err := leasehold.NewLock(store, key, // with the URL where the others reach this process
//		leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: "http://10.0.0.7:8080"}))
//	peer, err := leaderhttp.New(lock)
//	elector, err := leasehold.NewElector(lock, peer.Callbacks(leasehold.Callbacks{…}))
//	mux.Handle(leaderhttp.Path, peer)  // what the processes ask each other, and health checks
//	mux.Handle("/", peer.Forward(app)) // app runs in the process that leads
//	server.RegisterOnShutdown(peer.Close)
//
// Nothing that a peer answers decides who leads. The object in the store does, and an answer only
// makes a candidate read it: up to twice after the end of a term, and once after a failure, which
// is at most once in 25 s. So a peer that lies, floods or hangs costs a few reads, and the
// hand-over then waits for the next poll, as it does without this package.
//
// The URL in the lock's record comes from whoever may write the bucket, and each process sends
// requests there. With [Peer.Forward] these are requests of its clients, with their credentials.
// See [WithAllowedHosts].
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
	"github.com/leasehold-go/leasehold/internal/ctxmutex"
	"github.com/leasehold-go/leasehold/internal/warnlog"
)

const (
	// URLKey is the key of the record's metadata ([leasehold.WithMetadata]) that holds the URL
	// where the other processes reach the leader. The URL is http or https and has a host, but no
	// user information, query or fragment. If it has a path, the others put that before Path and
	// before the path of what they forward.
	URLKey = "url"
	// Path is where each process serves its Peer, with all paths below it.
	Path = "/.leasehold/"
)

// Peer is one process among those that elect a leader by one lock. It is made by [New] and is safe
// for concurrent use.
type Peer struct {
	lock    *leasehold.Lock
	id      string // by which this process recognises its own requests
	client  *http.Client
	allowed func(host string) bool
	log     *slog.Logger
	follows sync.WaitGroup
	closing context.Context
	close   context.CancelFunc

	looking ctxmutex.Mutex // guards looked
	looked  time.Time      // when Forward last read the record

	mu      sync.Mutex // guards what follows
	last    *term      // the last term seen to begin; nil if that is over
	own     *term      // the one of this process, until OnStoppedLeading
	waiting []chan int // who waits for the end of own, in line: each gets its place
}

// Option configures a [Peer].
type Option func(*Peer)

// WithClient sets the client for requests to the leader, for TLS and authentication. Only its
// Transport is used, because redirects must not be followed and a Timeout would end streams. The
// transport must not repeat a request that may have been carried out; [http.Transport] does not
// repeat those of this package. By default, a connection that is not made within 5 s is given up,
// and no proxy is used, whatever HTTP_PROXY says: a proxy would see what clients send, and choose
// by their Host header where that goes. An HTTP/2 connection that has been silent for 5 s is tried
// by a ping, and given up 5 s later. Without [http.HTTP2Config] in its Transport, a client of your
// own keeps that of a machine that has fallen silent until the system gives it up, after minutes.
func WithClient(c *http.Client) Option {
	return func(p *Peer) { p.client = c }
}

// WithAllowedHosts restricts the hosts to which requests are sent. allowed reports whether host,
// from the URL of a leader's record, with the port if the URL has one, is a process of yours. The
// peer waits for allowed, so it should return at once. By default every host is allowed.
func WithAllowedHosts(allowed func(host string) bool) Option {
	return func(p *Peer) { p.allowed = allowed }
}

// New returns the peer of this process for lock. It sends no request. It refuses a lock that
// [leasehold.NewLock] did not make, and a nil option, client or function.
func New(lock *leasehold.Lock, opts ...Option) (*Peer, error) {
	p := &Peer{
		lock: lock, id: rand.Text(), log: warnlog.New(), looking: ctxmutex.New(),
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
	if lock.Key() == "" || p.client == nil || p.allowed == nil {
		return nil, errors.New("leaderhttp: the lock was not made by leasehold.NewLock, or the client or function of " +
			"an option is nil")
	}
	p.client = &http.Client{
		Transport:     p.client.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	p.closing, p.close = context.WithCancel(context.Background())
	return p, nil
}

// Close ends the background work of the peer: it follows no leader any more, answers the requests
// that wait, and closes idle connections. Requests that are being forwarded go on, and Forward and
// the check of the leader still answer. Pass Close to [http.Server.RegisterOnShutdown], because
// requests that wait would delay a shutdown. Shut the server down after [leasehold.Elector.Run] has
// returned, so that the candidates hear of the release. Close may be called more than once.
func (p *Peer) Close() {
	p.mu.Lock()
	p.close() // under mu, so that nothing begins to follow after it
	p.mu.Unlock()
	p.follows.Wait()
	p.client.CloseIdleConnections()
}

// Callbacks returns callbacks that tell the peer about terms and then call those of cb. Pass them
// to one elector of the peer's lock.
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
	rec     leasehold.Record
	url     *url.URL        // of its leader; nil if there is none that can be used
	over    context.Context // ends when another term has begun, or this one is seen to be over
	end     context.CancelFunc
	lease   *leasehold.Lease // of this process, else nil
	leading context.Context  // of OnStartedLeading
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

// known returns the last term seen to begin, or nil if that is over, and the term of this process.
func (p *Peer) known() (last, own *term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.own
}

// saw takes a record that was read from the store. inOrder says that it comes from the elector,
// whose records come in order. Another record may be older than what is known.
func (p *Peer) saw(r leasehold.Record, inOrder bool) {
	// Both call code of the user, for which nobody else may wait: so neither is under mu.
	u, err := p.target(r.Metadata[URLKey])
	if p.takes(r, inOrder, u) && err != nil {
		p.log.Warn("leaderhttp: the leader cannot be reached, so a hand-over waits for a poll", "key", p.lock.Key(),
			"token", r.Token, "holder", r.Holder, "err", err)
	}
}

// takes is saw with the URL of the leader, which is nil if there is none that can be used. It
// reports whether a term has begun that was not known.
func (p *Peer) takes(r leasehold.Record, inOrder bool, leader *url.URL) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.own.same(r), p.last.same(r) && !r.Released(), !inOrder && p.last != nil && r.Token < p.last.rec.Token:
		return false
	case r.Released():
		p.replace(nil)
		return false
	}
	t := &term{rec: r, url: leader}
	p.replace(t)
	if leader != nil && p.closing.Err() == nil {
		p.follows.Go(func() { p.follow(t) })
	}
	return true
}

// replace makes t the last term seen. The caller holds p.mu.
func (p *Peer) replace(t *term) {
	if p.last != nil {
		p.last.end()
	}
	if p.last = t; t != nil {
		t.over, t.end = context.WithCancel(context.Background())
	}
}

func (p *Peer) started(ctx context.Context, lease *leasehold.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = &term{rec: lease.Record(), lease: lease, leading: ctx}
	p.replace(p.own)
}

// stopped tells all who wait that the term of this process is over.
func (p *Peer) stopped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == p.own {
		p.replace(nil)
	}
	p.own = nil
	for place, waiter := range p.waiting {
		waiter <- place
	}
	p.waiting = nil
}

// target returns the URL of a leader, or why it cannot be used.
func (p *Peer) target(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return nil, errors.New(`its record has no URL: set "url" by leasehold.WithMetadata`)
	case err == nil && u.User != nil: // without the text, which may have a password
		return nil, errors.New("the URL in its record has user information, which anyone who reads the record sees")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" ||
		u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("the URL in its record, %.100q, is not http(s)://host[:port][/path]", text)
	case !p.allowed(u.Host):
		return nil, fmt.Errorf("WithAllowedHosts does not allow %q, the host in its record", u.Host)
	}
	return u, nil
}
