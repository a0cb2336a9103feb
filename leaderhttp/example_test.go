package leaderhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/leaderhttp"
)

// A service of two replicas, of which one leads. A client may ask either.
func Example() {
	store := leasehold.NewMemStore() // in production NewS3Store
	first, err := start(store)
	if err != nil {
		log.Fatal(err)
	}
	defer first.stop()
	first.waitUntilItLeads()
	second, err := start(store)
	if err != nil {
		log.Fatal(err)
	}
	defer second.stop()

	for _, url := range []string{first.url, second.url} {
		res, err := http.Get(url + "/hello") // the second sends it to the first
		for err == nil && res.StatusCode == http.StatusServiceUnavailable {
			res.Body.Close()
			res, err = http.Get(url + "/hello")
		}
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			log.Fatal(err)
		}
		res.Body.Close()
		fmt.Println(res.Status, string(body))
	}
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// 200 OK hello from the leader, whose token is 1
	// 200 OK hello from the leader, whose token is 1
}

// Before maintenance, the leader passes the lock to the replica that you choose.
func ExamplePeer_HandOver() {
	store := leasehold.NewMemStore()
	first, err := start(store)
	if err != nil {
		log.Fatal(err)
	}
	defer first.stop()
	first.waitUntilItLeads()
	second, err := start(store)
	if err != nil {
		log.Fatal(err)
	}
	defer second.stop()

	err = first.peer.HandOver(context.Background(), second.name)
	for errors.Is(err, leaderhttp.ErrNotWaiting) { // the second has only just started
		err = first.peer.HandOver(context.Background(), second.name)
	}
	fmt.Println("handed over:", err == nil)
	second.waitUntilItLeads()
	fmt.Println("the second leads")
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// handed over: true
	// the second leads
}

type instance struct {
	name string
	url  string
	peer *leaderhttp.Peer
	led  chan struct{}
	stop func()
}

func (i *instance) waitUntilItLeads() { <-i.led }

// start starts a replica, as main of a service would do it.
func start(store leasehold.Store) (*instance, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a service listens where the others reach it
	if err != nil {
		return nil, err
	}
	i := &instance{url: "http://" + listener.Addr().String(), led: make(chan struct{}, 1)}
	lock, err := leasehold.NewLock(store, "locks/service",
		leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: i.url}))
	if err != nil {
		return nil, err
	}
	peer, err := leaderhttp.New(lock)
	if err != nil {
		return nil, err
	}
	elector, err := leasehold.NewElector(lock, peer.Callbacks(leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) {
			i.led <- struct{}{}
			<-ctx.Done()
		},
	}))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(leaderhttp.Path, peer)
	mux.Handle("/", peer.Forward(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello from the leader, whose token is ", leaderhttp.Lease(r.Context()).Token())
	})))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(peer.Close)
	i.name, i.peer = lock.Holder(), peer
	go func() { _ = server.Serve(listener) }()

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- elector.Run(ctx) }()
	i.stop = func() {
		cancel()
		if err := <-ended; err != nil { // the lock is released, and those who follow are told
			log.Print(err)
		}
		if err := server.Shutdown(context.Background()); err != nil {
			log.Print(err)
		}
		peer.Close() // the idle connections of requests that were forwarded meanwhile
	}
	return i, nil
}
