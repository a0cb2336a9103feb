// Command service shows an HTTP service with several instances: each of them answers requests, and
// one of them does the background work.
//
//	go run ./examples/service
//	go run ./examples/service -addr 127.0.0.1:8080 -for 0 -s3 http://127.0.0.1:9000 -bucket locks
//	go run ./examples/service -addr 127.0.0.1:8081 -for 0 -s3 http://127.0.0.1:9000 -bucket locks
//
// The first command runs one instance, which calls its own endpoints and stops after five seconds.
// The others run two instances, each in its own terminal.
//
// GET /healthz fails if this instance still works although its lease is over, or if the store has
// not answered for too long: restart it then. GET /leader says which instance leads. On SIGTERM an
// instance first stops its background work and releases the lock, so that the next instance leads
// within a poll interval; then it finishes its HTTP requests.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
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
	where := storeflag.Add(flags, "Service shows an HTTP service of which one instance, the leader, does the "+
		"background work.")
	addr := flags.String("addr", "127.0.0.1:0", "`address` to listen on, which /leader tells others; port 0 is any "+
		"free port")
	limit := flags.Duration("for", 5*time.Second, "how long to run; 0 means until SIGTERM or Ctrl-C")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store, err := where.Open(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if *limit > 0 {
		defer time.AfterFunc(*limit, cancel).Stop()
	}
	log := slog.New(slog.NewTextHandler(out, nil))

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	lock, err := leasehold.NewLock(store, "examples/service",
		leasehold.WithMetadata(map[string]string{"url": url}), // how the others find the leader
		leasehold.WithLogger(log),
	)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	elector, err := leasehold.NewElector(lock, leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) { work(ctx, lease, log) },
		OnNewLeader: func(r leasehold.Record) {
			log.Info("new leader", "url", r.Metadata["url"], "token", r.Token)
		},
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}

	server := &http.Server{Handler: handler(elector), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(listener)
		cancel() // an instance that cannot serve should not lead either
	}()
	log.Info("listening", "url", url, "lock", where.Place())
	if *limit > 0 {
		go callItself(ctx, url, log)
	}

	// until ctx ends; then the lock is released, so that another instance leads while this one
	// shuts down
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
		log.Info("background work", "token", lease.Token()) // pass the token to whatever is written to
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func handler(elector *leasehold.Elector) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := elector.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
		record, ok := elector.Leader()
		if !ok {
			http.Error(w, "this instance has not seen a leader yet", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"leader": record.Metadata["url"], "token": record.Token, "this_instance_leads": elector.IsLeader(),
		})
	})
	return mux
}

// callItself shows what the two endpoints answer.
func callItself(ctx context.Context, url string, log *slog.Logger) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return
	}
	for _, path := range []string{"/healthz", "/leader"} {
		res, err := http.Get(url + path)
		if err != nil {
			log.Error("GET "+path, "err", err)
			return
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		log.Info("GET "+path, "status", res.StatusCode, "body", strings.TrimSpace(string(body)))
	}
}
