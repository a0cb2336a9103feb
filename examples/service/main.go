// Command service is an HTTP service of which every instance answers requests, and one does the background work.
//
//	go run ./examples/service                  runs for five seconds, asks itself, and leaves
//	go run ./examples/service -addr :8080 -for 0 -s3 http://127.0.0.1:9000 -bucket locks
//
// /healthz fails if this instance works on without a lease or has lost sight of the store: have it restarted then.
// /leader says who leads. SIGTERM steps down first, so that the next instance leads within a poll interval.
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
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "service:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	where := storeflag.Add(flags)
	addr := flags.String("addr", "127.0.0.1:0", "where to listen")
	limit := flags.Duration("for", 5*time.Second, "how long to run; 0 is until SIGTERM")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store, err := where.Open()
	if err != nil {
		return err
	}
	if *limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *limit)
		defer cancel()
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
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}

	server := &http.Server{Handler: handler(elector), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Info("listening", "url", url)
	if *limit > 0 {
		go ask(ctx, url, log)
	}

	err = elector.Run(ctx) // until ctx ends; then the lock is released, so that another leads while this one winds down
	wind, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(wind))
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// work is what only the leader does.
func work(ctx context.Context, lease *leasehold.Lease, log *slog.Logger) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		log.Info("working", "token", lease.Token()) // hand the token to whatever is written to
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
			http.Error(w, "no leader seen yet", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"url": record.Metadata["url"], "token": record.Token, "me": elector.IsLeader(),
		})
	})
	return mux
}

// ask shows what the two endpoints say.
func ask(ctx context.Context, url string, log *slog.Logger) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return
	}
	for _, path := range []string{"/healthz", "/leader"} {
		res, err := http.Get(url + path)
		if err != nil {
			log.Error("asking", "path", path, "err", err)
			return
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		log.Info("asked", "path", path, "status", res.StatusCode, "body", string(body))
	}
}
