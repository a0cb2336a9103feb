package main

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/leaderhttp"
)

const (
	// maxConnections bounds the files that the server can take from what renews the lease.
	maxConnections = 500
	// maxWaiting leaves some of them for health checks and for /leader.
	maxWaiting = 400
	// shutdownLimit bounds the answers to requests that wait for the end of the term.
	shutdownLimit = time.Second
	// answersIn bounds the time in which a client takes an answer.
	answersIn = 10 * time.Second
)

// web is the server of a command with --listen, and its exchange with the other candidates. Without
// --listen it has only its flags, and its methods do nothing. They are for one goroutine.
type web struct {
	addr, advertise string
	priority        int
	admin           admin // of elect

	listener net.Listener
	peer     *leaderhttp.Peer
	server   *http.Server
	served   chan struct{} // closed when the server has ended
}

func (w *web) flags(flags *pflag.FlagSet) {
	flags.StringVar(&w.addr, "listen", "", "`HOST:PORT` of an HTTP server: /leader is 200 while the command runs and "+
		"else 503, /healthz is for health checks, and candidates with this flag get the lock without a poll")
	flags.StringVar(&w.advertise, "advertise", "", "`URL` at which other candidates reach --listen (default "+
		"http://HOST:PORT)")
	flags.IntVar(&w.priority, "priority", 0, "rank of this candidate, with --listen: at the end of the command, the "+
		"lock passes to the highest priority, and among equals to the candidate that started last")
}

// check checks the flags, and does not listen yet.
func (w *web) check(metadata map[string]string, flags *pflag.FlagSet) error {
	if w.addr == "" {
		switch {
		case w.advertise != "":
			return exit.Errorf(exit.Usage, "--advertise needs --listen, the server that the URL names")
		case flags.Changed("priority"):
			return exit.Errorf(exit.Usage, "--priority needs --listen, because otherwise the first candidate that "+
				"reads a released lock gets it")
		}
		return w.admin.check(w.addr)
	}
	host, port, err := net.SplitHostPort(w.addr)
	if err != nil || port == "" {
		return exit.Errorf(exit.Usage, "--listen %.100q is not HOST:PORT (give one such as 10.0.0.7:8080)", w.addr)
	}
	if _, ok := metadata[leaderhttp.URLKey]; ok {
		return exit.Errorf(exit.Usage, "--listen and --metadata %s=… exclude each other (give the URL by --advertise)",
			leaderhttp.URLKey)
	}
	if err := w.admin.check(w.addr); err != nil {
		return err
	}
	if w.advertise != "" {
		return checkAdvertised(w.advertise)
	}
	if everywhere(host) {
		return exit.Errorf(exit.Usage, "--listen %s is every address of this machine (add --advertise "+
			"http://HOST:PORT, where other candidates reach it)", w.addr)
	}
	return nil
}

// everywhere reports whether host means all addresses of a machine.
func everywhere(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// checkAdvertised checks a URL as the readers of the lock's record do.
func checkAdvertised(text string) error {
	u, err := url.Parse(text)
	switch {
	case strings.Contains(text, "@"): // without the text, which may have a password
		return exit.Errorf(exit.Usage, "--advertise has user information, which every reader of the lock would see "+
			"(leave out all up to the @)")
	case err == nil && u.Host != "" && everywhere(u.Hostname()):
		return exit.Errorf(exit.Usage, "--advertise %.100q names no machine (give the host where other candidates "+
			"reach this process)", text)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" ||
		u.ForceQuery || u.Fragment != "" || !validPort(u.Port()):
		return exit.Errorf(exit.Usage, "--advertise %.100q is not http(s)://HOST[:PORT][/PATH], where other "+
			"candidates reach this process", text)
	}
	return nil
}

func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

// listen opens the socket, which nothing answers yet, and returns the metadata with the URL. The
// runtime opens it so that no command inherits it.
func (w *web) listen(ctx context.Context, metadata map[string]string) (map[string]string, error) {
	if w.addr == "" {
		return metadata, nil
	}
	var err error
	if w.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", w.addr); err != nil {
		return nil, exit.Errorf(exit.Usage, "--listen %.100q: %v (choose another host or port)", w.addr, err)
	}
	if err := w.admin.listen(ctx); err != nil {
		return nil, err
	}
	at := w.advertise
	if at == "" {
		host, _, _ := net.SplitHostPort(w.addr)
		_, port, _ := net.SplitHostPort(w.listener.Addr().String()) // chosen by the system, if it was 0
		at = (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}).String()
		if err := checkAdvertised(at); err != nil {
			return nil, err
		}
	}
	with := map[string]string{leaderhttp.URLKey: at}
	maps.Copy(with, metadata)
	return with, nil
}

// callbacks returns cb with reports of terms to the other candidates, for an elector of lock.
func (w *web) callbacks(lock *leasehold.Lock, cb leasehold.Callbacks) (leasehold.Callbacks, error) {
	if w.listener == nil {
		return cb, nil
	}
	var err error
	if w.peer, err = leaderhttp.New(lock, leaderhttp.WithPriority(w.priority)); err != nil {
		return cb, err
	}
	return w.peer.Callbacks(cb), nil
}

// serve begins to answer. healthy decides what health checks get.
func (w *web) serve(logger *slog.Logger, healthy func(*http.Request) error) {
	if w.peer == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle(leaderhttp.Path, atMost(maxWaiting, w.peer))
	mux.Handle("/leader", w.peer)
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Cache-Control", "no-store")
		if err := healthy(r); err != nil {
			http.Error(rw, exit.Reword(err.Error()), http.StatusServiceUnavailable)
		}
	})
	w.admin.serve(logger, w.peer)
	all := connections{most: maxConnections}
	w.server = &http.Server{
		Handler: withoutBodies(mux), ErrorLog: slowLog(logger, "--listen"), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: answersIn,
		IdleTimeout: time.Minute,
		ConnState:   all.changed,
	}
	w.server.RegisterOnShutdown(w.peer.Close)
	w.served = make(chan struct{})
	go func() {
		defer close(w.served)
		if err := w.server.Serve(w.listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Warn("the server of --listen has failed", "err", err, "effect",
				notAffected+", hand-overs wait for polls")
		}
	}()
}

// connections are the connections of a server. Above the most that it may have, it closes the one
// that has been idle for longest, so that idle clients keep no health check out.
type connections struct {
	most int
	mu   sync.Mutex
	open int
	idle map[net.Conn]time.Time // since when no request is on it
}

func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.idle, conn)
	switch state {
	case http.StateNew:
		c.open++
		fallthrough
	case http.StateIdle:
		if c.idle == nil {
			c.idle = make(map[net.Conn]time.Time)
		}
		c.idle[conn] = time.Now()
	case http.StateClosed, http.StateHijacked:
		c.open--
	}
	if state == http.StateNew && c.open > c.most {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(c.idle)), func(a, b net.Conn) int {
			return c.idle[a].Compare(c.idle[b])
		})
		delete(c.idle, oldest)
		_ = oldest.Close()
	}
}

// withoutBodies refuses requests with a body, which nothing here needs, and does not wait for it.
// So no client keeps a connection busy for longer than its headers take.
func withoutBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(rw, r)
			return
		}
		_ = http.NewResponseController(rw).SetReadDeadline(time.Now())
		http.Error(rw, "send no body", http.StatusRequestEntityTooLarge)
	})
}

// atMost answers 503 to requests above n at a time.
func atMost(n int, next http.Handler) http.Handler {
	running := make(chan struct{}, n)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
			next.ServeHTTP(rw, r)
		default:
			rw.Header().Set("Retry-After", "3")
			http.Error(rw, "too many processes wait here for the end of the term", http.StatusServiceUnavailable)
		}
	})
}

// end ends the server and all that follows a leader. Requests that wait for the end of the term are
// answered before.
func (w *web) end() {
	if w.listener == nil {
		return
	}
	w.admin.end()
	if w.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
		defer cancel()
		if w.server.Shutdown(ctx) != nil {
			_ = w.server.Close()
		}
		<-w.served
	}
	if w.peer != nil {
		w.peer.Close()
	}
	_ = w.listener.Close() // if the server has not begun
}

// firstOnly logs the errors of a server: the first one as a warning, later ones with --verbose,
// because every client that reaches the port could fill the log.
type firstOnly struct {
	logger *slog.Logger
	flag   string // of the server
	warned atomic.Bool
}

const notAffected = "the lock is not affected"

func slowLog(logger *slog.Logger, flag string) *log.Logger {
	return log.New(&firstOnly{logger: logger, flag: flag}, "", 0)
}

func (f *firstOnly) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if f.warned.Swap(true) {
		level = slog.LevelInfo
	}
	f.logger.Log(context.Background(), level, "error in the server of "+f.flag, "err",
		strings.TrimSpace(string(line)), "effect", notAffected)
	return len(line), nil
}
