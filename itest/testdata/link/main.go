// Command link is the network between the electors of the cluster test and their server. SIGUSR1
// makes it slow and lossy, SIGUSR2 makes it good again.
package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

func main() {
	var bad atomic.Bool
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range signals {
			bad.Store(s == syscall.SIGUSR1)
			fmt.Println("bad", bad.Load())
		}
	}()
	upstream, err := url.Parse(os.Getenv("UPSTREAM"))
	if err != nil {
		panic(err)
	}
	t := &faultproxy.Transport{Base: &http.Transport{
		DisableCompression:    true,
		MaxIdleConnsPerHost:   64,
		ResponseHeaderTimeout: 5 * time.Second,
	}}
	t.Decide = func(*http.Request) faultproxy.Fault {
		if !bad.Load() {
			return faultproxy.Fault{}
		}
		f := faultproxy.Fault{Before: rand.N(100 * time.Millisecond), After: rand.N(100 * time.Millisecond)}
		switch rand.IntN(10) {
		case 0:
			f.Kind = faultproxy.Refuse
		case 1:
			f.Kind = faultproxy.DropReply
		case 2:
			f.Kind, f.Before = faultproxy.Ghost, time.Second
		case 3:
			f.Kind, f.Status = faultproxy.AnswerAfter, http.StatusServiceUnavailable
		}
		return f
	}
	server := http.Server{Addr: ":9000", Handler: t.Handler(upstream), ReadHeaderTimeout: 10 * time.Second}
	panic(server.ListenAndServe())
}
