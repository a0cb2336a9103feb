// Command service shows an HTTP service with several replicas, of which one leads. A client may ask
// any of them: those that do not lead send the request to the leader.
//
//	go run ./examples/service
//	go run ./examples/service -addr 127.0.0.1:8080 -s3 http://127.0.0.1:9000 -bucket locks
//	go run ./examples/service -addr 127.0.0.1:8081 -s3 http://127.0.0.1:9000 -bucket locks
//
// The first command runs two replicas in memory, and restarts one after the other under load. The
// others run one replica each, until SIGTERM, in terminals of their own.
//
// GET / is answered by the leader, in whichever term that is. GET /healthz fails if this replica
// still works although its lease is over, or if the store has not answered for too long: restart it
// then. GET /.leasehold/leader is 200 at the leader only, and says who leads. On SIGTERM a replica
// first stops its background work and releases the lock, so that the next one leads a few
// milliseconds later; then it finishes its HTTP requests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
	"github.com/leasehold-go/leasehold/leaderhttp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	where := storeflag.Add(flags, "Service shows an HTTP service of which one replica, the leader, answers all "+
		"requests and does the background work.")
	addr := flags.String("addr", "127.0.0.1:0", "`address` to listen on, where the other replicas reach this one; "+
		"port 0 is any free port")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store, err := where.Open(ctx)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(out, nil))
	if where.InMemory() {
		return rollingRestart(ctx, store, log)
	}
	return serve(ctx, store, *addr, log, nil)
}

// serve is one replica, until ctx ends. It tells ready where it listens.
func serve(ctx context.Context, store leasehold.Store, addr string, log *slog.Logger, ready func(url string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	log = log.With("replica", url)
	lock, err := leasehold.NewLock(store, "examples/service",
		leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: url}), // where the others reach it
		leasehold.WithLogger(log),
	)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	peer, err := leaderhttp.New(lock)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer peer.Close()
	elector, err := leasehold.NewElector(lock, peer.Callbacks(leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) { work(ctx, lease, log) },
		OnNewLeader: func(r leasehold.Record) {
			log.Info("new leader", "url", r.Metadata[leaderhttp.URLKey], "token", r.Token)
		},
	}))
	if err != nil {
		return errors.Join(err, listener.Close())
	}

	mux := http.NewServeMux()
	mux.Handle(leaderhttp.Path, peer)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := elector.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.Handle("/", peer.Forward(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := leaderhttp.Lease(r.Context()).Token() // pass it to whatever is written to
		_, _ = fmt.Fprintf(w, "hello from %s, with token %d\n", url, token)
	})))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(peer.Close)
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(listener)
		cancel() // a replica that cannot serve should not lead either
	}()
	log.Info("listening")
	if ready != nil {
		ready(url)
	}

	// until ctx ends; then the lock is released, so that another replica leads while this one shuts
	// down
	err = elector.Run(ctx)
	drain, cancelDrain := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancelDrain()
	err = errors.Join(err, server.Shutdown(drain))
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	log.Info("stopped")
	return err
}

// work is what only the leader does.
func work(ctx context.Context, lease *leasehold.Lease, log *slog.Logger) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		log.Info("background work", "token", lease.Token())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
