// Command metrics runs an elector, serves its metrics, prints one scrape of them and exits. With
// -addr 127.0.0.1:9464 it serves them until it is interrupted.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/promlock"
)

func main() {
	addr := flag.String("addr", "", "serve the metrics on this `address` until interrupted (default: print one "+
		"scrape and exit)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, stop, *addr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, stop func(), addr string, out io.Writer) error {
	metrics, registry := promlock.New(), prometheus.NewRegistry()
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), "examples/metrics", leasehold.WithObserver(metrics.Observe))
	listener, listenErr := net.Listen("tcp", cmp.Or(addr, "127.0.0.1:0"))
	if err := errors.Join(err, listenErr, registry.Register(metrics)); err != nil {
		return err
	}
	server := &http.Server{
		Handler:           promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		ReadHeaderTimeout: 5 * time.Second,
	}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	elector, err := leasehold.NewElector(lock, leasehold.Callbacks{OnStartedLeading: func(context.Context,
		*leasehold.Lease) {
		if addr == "" {
			defer stop()
		}
		if reply, getErr := http.Get("http://" + listener.Addr().String() + "/metrics"); getErr != nil {
			err = getErr
		} else {
			_, err = io.Copy(out, reply.Body)
			_ = reply.Body.Close()
		}
	}})
	if err != nil {
		return err
	}
	ran := elector.Run(ctx) // returns after OnStartedLeading, which sets err
	return errors.Join(ran, err)
}
