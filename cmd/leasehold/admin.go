package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/leaderhttp"
)

// maxOperators bounds the connections of --admin.
const maxOperators = 20

// admin is the server of elect --admin, by which an operator moves the leader. It has a separate
// address, because every client that reaches it can do that.
type admin struct {
	addr     string
	listener net.Listener
	server   *http.Server
	served   chan struct{} // closed when the server has ended
}

func (d *admin) flags(flags *pflag.FlagSet) {
	flags.StringVar(&d.addr, "admin", "", "`HOST:PORT` of an HTTP server for operators, with --listen: POST "+
		"/handover?to=HOLDER ends the command and passes the lock to that candidate, or without \"to\" to the "+
		"first in line. Every client that reaches it can do that, so use a HOST such as 127.0.0.1")
}

// check checks the flag, and does not listen yet. listen is the flag --listen.
func (d *admin) check(listen string) error {
	if d.addr == "" {
		return nil
	}
	if listen == "" {
		return exit.Errorf(exit.Usage, "--admin needs --listen, by which the candidates wait for the lock")
	}
	if host, port, err := net.SplitHostPort(d.addr); err != nil || port == "" || host == "" {
		return exit.Errorf(exit.Usage, "--admin %.100q is not HOST:PORT (give one such as 127.0.0.1:8081; 0.0.0.0 is "+
			"each address of this machine)", d.addr)
	}
	return nil
}

// listen opens the socket, which nothing answers yet.
func (d *admin) listen(ctx context.Context) (err error) {
	if d.addr == "" {
		return nil
	}
	if d.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", d.addr); err != nil {
		return exit.Errorf(exit.Usage, "--admin %.100q: %v (choose another host or port)", d.addr, err)
	}
	return nil
}

// serve begins to answer.
func (d *admin) serve(logger *slog.Logger, peer *leaderhttp.Peer) {
	if d.listener == nil {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /handover", func(rw http.ResponseWriter, r *http.Request) {
		to, named := r.URL.Query().Get("to"), r.URL.Query().Has("to")
		if named && to == "" { // as of a variable of a shell that is not set
			http.Error(rw, "\"to\" is empty (name a candidate, or leave \"to\" out for the first in line)",
				http.StatusBadRequest)
			return
		}
		logger.Info("hand-over requested", "to", to, "from", r.RemoteAddr)
		rw.Header().Set("Cache-Control", "no-store")
		err := peer.HandOver(r.Context(), to) // may take longer than an answer has
		_ = http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(answersIn))
		if err != nil {
			http.Error(rw, strings.TrimPrefix(exit.Reword(err.Error()), "leaderhttp: "), handOverStatus(err))
			return
		}
		fmt.Fprintln(rw, "the lock was passed on")
	})
	all := connections{most: maxOperators}
	d.server = &http.Server{
		Handler:  withoutBrowsers(withoutBodies(mux)),
		ErrorLog: slowLog(logger, "--admin"), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: answersIn,
		IdleTimeout: time.Minute,
		ConnState:   all.changed,
	}
	d.served = make(chan struct{})
	go func() {
		defer close(d.served)
		if err := d.server.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Warn("the server of --admin has failed", "err", err, "effect", notAffected)
		}
	}()
}

// withoutBrowsers refuses what a page in a browser sends, of any origin: a page of a name that was
// made to point to this machine has the same origin (DNS rebinding). A browser sends Origin with
// each POST (fetch.spec.whatwg.org/#append-a-request-origin-header), and programs do not.
func withoutBrowsers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
			http.Error(rw, "refused: the request comes from a browser (use a program such as curl)",
				http.StatusForbidden)
			return
		}
		next.ServeHTTP(rw, r)
	})
}

// handOverStatus is the status for an error of HandOver.
func handOverStatus(err error) int {
	switch {
	case errors.Is(err, leaderhttp.ErrNotLeading):
		return http.StatusConflict
	case errors.Is(err, leaderhttp.ErrNotWaiting):
		return http.StatusNotFound
	}
	return http.StatusBadGateway
}

// end ends the server. Requests that wait for a hand-over are answered before.
func (d *admin) end() {
	if d.listener == nil {
		return
	}
	if d.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
		defer cancel()
		if d.server.Shutdown(ctx) != nil {
			_ = d.server.Close()
		}
		<-d.served
	}
	_ = d.listener.Close() // if the server has not begun
}
