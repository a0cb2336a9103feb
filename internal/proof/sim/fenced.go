package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
)

// FencedConfig describes one world of leaders that write to a resource, each with the token of its
// term, long after their terms are over: no lease is looked at, so that whatever clocks do is among
// the schedules. Of Config it uses the seed, the nodes, which are the leaders, and the share of
// requests that go wrong.
type FencedConfig struct {
	Config
	Mode     fenced.ETagMode // of one S3; or inMemory, a backend in memory
	PartSize int64           // the size from which on bodies go in parts
}

// NewFencedConfig draws the world of a seed.
func NewFencedConfig(seed uint64) *FencedConfig {
	c, _ := drawFenced(seed)
	return c
}

// drawFenced draws the world of a seed. What is left of the random source is of its network.
func drawFenced(seed uint64) (*FencedConfig, *rand.Rand) {
	r := rand.New(rand.NewPCG(seed, 1))
	c := &FencedConfig{Config: Config{Seed: seed, Nodes: 4}, Mode: fenced.ETagMode(1 + r.IntN(4)), PartSize: 8 << 20}
	c.RequestFaults = []float64{0, 0.05, 0.2, 0.4}[r.IntN(4)]
	if r.IntN(3) == 0 { // then nearly all bodies go in two or three parts
		c.PartSize = map[fenced.ETagMode]int64{
			fenced.UniqueETags:    1,
			fenced.PaddedBodies:   40,
			fenced.DistinctBodies: 2,
		}[c.Mode]
	}
	return c, r
}

// fencedWorld is a run in progress.
type fencedWorld struct {
	journal // its mu is locked last
	cfg     *FencedConfig
	server  *fakes3.Server
	memory  fenced.MemBackend
	writing sync.Mutex // of memory, so that landed is called in the order of the writes

	state     sync.Mutex // guards what follows
	rand      *rand.Rand // of the network
	objects   map[string]*fencedObject
	lostReply map[uint64]bool // a reply to a write of this token was lost since it last began one
	sentAt    map[sending]int // versions of an object when a leader last sent a write of it
	steps     int             // of the counter that were acknowledged
}

// sending is a leader and the object that it writes.
type sending struct {
	token uint64
	key   string
}

// fencedObject is the history of one key.
type fencedObject struct {
	token   uint64 // of the last version
	bodies  []string
	highest uint64 // landed
}

const (
	counter  = "data/counter"
	gone     = "(deleted)"
	inMemory = fenced.DistinctBodies + 1
)

var fencedKeys = []string{counter, "data/a", "data/b"}

// Run runs the world to its end.
func (c *FencedConfig) Run(t *testing.T, trace bool) (out Outcome) {
	InBubble(t, c.Seed, func() {
		w := &fencedWorld{
			journal: newJournal(trace), cfg: c, objects: make(map[string]*fencedObject),
			lostReply: make(map[uint64]bool), sentAt: make(map[sending]int),
		}
		_, w.rand = drawFenced(c.Seed)
		w.server = &fakes3.Server{
			RandomETags: c.Mode == fenced.UniqueETags,
			MinPartSize: 1,
			TornHeads:   c.Seed%2 == 0,
			OnWrite:     w.landed,
		}
		for _, key := range fencedKeys {
			w.objects[key] = &fencedObject{}
		}
		w.run()
		out = w.outcome()
	})
	return out
}

func (w *fencedWorld) run() {
	var leaders sync.WaitGroup
	for token := uint64(1); token <= uint64(w.cfg.Nodes); token++ {
		r := rand.New(rand.NewPCG(w.cfg.Seed, 100+token))
		start := time.Duration(float64(token-1) * (0.5 + r.Float64()) * float64(5*time.Second))
		store, wait := w.open()
		leaders.Go(func() {
			time.Sleep(start)
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			w.lead(ctx, token, r, store)
			wait()
		})
	}
	leaders.Wait()
	if w.cfg.Mode == fenced.DistinctBodies {
		return
	}
	value := 0
	if bodies := w.objects[counter].bodies; len(bodies) > 0 {
		value, _ = strconv.Atoi(bodies[len(bodies)-1])
	}
	if value < w.steps {
		w.violate("%d steps were acknowledged, %d are in the counter", w.steps, value)
	}
}

// landed checks each version as the server puts it in place.
func (w *fencedWorld) landed(key string, h http.Header, body []byte) {
	o, ours := w.objects[key]
	if !ours {
		return // that of the store's own check
	}
	w.state.Lock()
	defer w.state.Unlock()
	w.counts(func(s *Stats) { s.Writes++ })
	token, _ := strconv.ParseUint(h.Get("X-Amz-Meta-Leasehold-Token"), 10, 64)
	text := strings.TrimRight(string(body), " \t")
	n := len(o.bodies)
	w.markIf(n > 0 && o.bodies[n-1] == gone && token > o.token, "a deleted object written")
	if h.Get("X-Amz-Meta-Leasehold-Deleted") != "" {
		text = gone
	}
	w.log(key, "token %d writes %q", token, text)
	if token < o.token {
		w.violate("%s: token %d wrote over token %d", key, token, o.token)
	}
	o.token, o.highest = token, max(o.highest, token)
	o.bodies = append(o.bodies, text)
}

// writes reports whether a request writes an object of the leaders, which one, and with which
// token.
func (w *fencedWorld) writes(r *http.Request) (s sending, ok bool) {
	s.key = strings.TrimPrefix(r.URL.Path, "/"+fakes3.Bucket+"/")
	s.token, _ = strconv.ParseUint(r.Header.Get("X-Amz-Meta-Leasehold-Token"), 10, 64)
	return s, r.Method == http.MethodPut && s.token > 0 && w.objects[s.key] != nil
}

// arrives notes a write that reaches the store.
func (w *fencedWorld) arrives(s sending) {
	w.state.Lock()
	defer w.state.Unlock()
	o := w.objects[s.key]
	w.markIf(o.highest > s.token, "a lower token late")
	w.markIf(len(o.bodies) > w.sentAt[s] && o.token != s.token, "two leaders write at once")
}

// arrivals is the server, which notes the writes that reach it.
type arrivals struct {
	fakes3.Transport
	w *fencedWorld
}

func (a arrivals) RoundTrip(r *http.Request) (*http.Response, error) {
	if s, ok := a.w.writes(r); ok {
		a.w.arrives(s)
	}
	return a.Transport.RoundTrip(r)
}

// networkFault is what the network does to a request.
func (w *fencedWorld) networkFault(r *http.Request) faultproxy.Fault {
	s, isWrite := w.writes(r)
	w.state.Lock()
	f := w.drawFault()
	w.state.Unlock()
	if isWrite {
		w.sends(s, f)
	}
	return f
}

// sends notes a write that meets a fault.
func (w *fencedWorld) sends(s sending, f faultproxy.Fault) {
	w.state.Lock()
	defer w.state.Unlock()
	w.sentAt[s] = len(w.objects[s.key].bodies)
	if f.Kind == faultproxy.DropReply || f.Kind == faultproxy.AnswerAfter {
		w.lostReply[s.token] = true
	}
}

// drawFault draws what the network does to a request. The caller holds w.state.
func (w *fencedWorld) drawFault() faultproxy.Fault {
	w.counts(func(s *Stats) { s.Requests++ })
	f := faultproxy.Fault{
		Before: below(w.rand, 50*time.Millisecond),
		After:  below(w.rand, 50*time.Millisecond),
	}
	if w.rand.Float64() >= w.cfg.RequestFaults {
		return f
	}
	late := time.Duration(w.rand.ExpFloat64() * float64(3*time.Second))
	status := []int{500, 503, 409, 412}[w.rand.IntN(4)]
	switch w.rand.IntN(7) {
	case 0: // a slow network, or a process that stood still before its request
		f.Before += late
	case 1:
		f.After += late
	case 2:
		f.Kind = faultproxy.Refuse
	case 3:
		f.Kind, f.Status = faultproxy.Answer, []int{500, 503, 409}[w.rand.IntN(3)]
	case 4:
		f.Kind = faultproxy.DropReply
	case 5:
		f.Kind, f.Status = faultproxy.AnswerAfter, status
	case 6:
		f.Kind, f.Before = faultproxy.Ghost, f.Before+late
	}
	return f
}

// faultyBackend is one leader's way to the backend in memory, through the network of the world.
type faultyBackend struct {
	*fenced.MemBackend
	w      *fencedWorld
	ghosts sync.WaitGroup
}

// send does to a request what the network does.
func (b *faultyBackend) send(request func() error) error {
	b.w.state.Lock()
	f := b.w.drawFault()
	b.w.state.Unlock()
	if f.Kind == faultproxy.Ghost {
		b.ghosts.Go(func() {
			time.Sleep(f.Before)
			_ = request()
		})
		return os.ErrDeadlineExceeded
	}
	time.Sleep(f.Before)
	if f.Kind == faultproxy.Refuse || f.Kind == faultproxy.Answer {
		return errors.New("not sent")
	}
	err := request()
	time.Sleep(f.After)
	switch {
	case f.Kind == faultproxy.AnswerAfter && f.Status == http.StatusPreconditionFailed:
		return leasehold.ErrPreconditionFailed
	case f.Kind == faultproxy.AnswerAfter, f.Kind == faultproxy.DropReply:
		return io.EOF
	}
	return err
}

func (b *faultyBackend) Head(ctx context.Context, key string) (fenced.Version, error) {
	v := make(chan fenced.Version, 1) // a ghost writes it when nobody reads it any more
	err := b.send(func() error {
		got, err := b.MemBackend.Head(ctx, key)
		v <- got
		return err
	})
	if err != nil {
		return fenced.Version{}, err
	}
	return <-v, nil
}

func (b *faultyBackend) Put(_ context.Context, key string, old, next fenced.Version, body io.Reader) error {
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return b.send(func() error {
		b.w.writing.Lock()
		defer b.w.writing.Unlock()
		err := b.MemBackend.Put(context.Background(), key, old, next, bytes.NewReader(content))
		if err == nil {
			h := http.Header{}
			for name, value := range next.Metadata {
				h.Set("X-Amz-Meta-"+name, value)
			}
			b.w.landed(key, h, content)
		}
		return err
	})
}

// open returns the store of one leader, and what to wait for in the end.
func (w *fencedWorld) open() (store *fenced.Store, wait func()) {
	if w.cfg.Mode == inMemory {
		b := &faultyBackend{MemBackend: &w.memory, w: w}
		return fenced.NewStore(b), b.ghosts.Wait
	}
	transport := &faultproxy.Transport{Base: arrivals{fakes3.Transport{Handler: w.server}, w}, Decide: w.networkFault}
	parts := testopt.WithPartSize(w.cfg.PartSize)
	store, err := fenced.NewS3Store(fakes3.NewClient(transport), fakes3.Bucket, w.cfg.Mode, parts)
	if err != nil {
		panic(err)
	}
	return store, transport.Wait
}

// lead is one leader's life.
func (w *fencedWorld) lead(ctx context.Context, token uint64, r *rand.Rand, store *fenced.Store) {
	pause := func() { time.Sleep(time.Duration(r.ExpFloat64() * float64(500*time.Millisecond))) }
	// acked notes the outcome of a write, and reports whether to go on.
	acked := func(what, key string, err error) bool {
		w.state.Lock()
		defer w.state.Unlock()
		w.log(fmt.Sprint("token ", token), "%s %s: %v", what, key, err)
		refused, ok := errors.AsType[*leasehold.FencedError](err)
		switch highest := w.objects[key].highest; {
		case errors.Is(err, leasehold.ErrUnsafeStore):
			w.violate("%s: %s of token %d: %v", key, what, token, err)
		case err == nil && highest < token:
			w.violate("%s: %s of token %d is said to be done, but the highest that has landed is %d", key,
				what, token, highest)
		case ok && (refused.Token != token || refused.Highest <= token || refused.Highest > highest):
			w.violate("%s: %v, but the highest is %d", key, err, highest)
		case ok:
			w.counts(func(s *Stats) { s.Fenced++ })
			w.mark("a write refused")
			return r.IntN(4) > 0 // some go on regardless
		case err != nil:
			w.counts(func(s *Stats) { s.Events["a write of unknown outcome"]++ })
		case w.lostReply[token]:
			w.mark("a reply lost")
		}
		w.lostReply[token] = false
		return true
	}
	sealed := w.cfg.Mode == fenced.DistinctBodies // which cannot seal: then nobody counts
	for n := 0; ctx.Err() == nil; n++ {
		pause()
		key := fencedKeys[1+r.IntN(2)]
		switch op := r.IntN(6); {
		case !sealed:
			err := store.Seal(ctx, token, fencedKeys...)
			sealed = err == nil
			if err != nil && !errors.Is(err, leasehold.ErrFenced) {
				w.mark("a seal cut off")
				acked("seal", counter, err)
			}
			if errors.Is(err, leasehold.ErrFenced) && r.IntN(2) == 0 {
				return
			}
			for _, key := range fencedKeys {
				if sealed && !acked("seal", key, nil) {
					return
				}
			}
		case op < 3 && w.cfg.Mode != fenced.DistinctBodies: // read and write with a stop in between
			o, err := store.Get(ctx, counter)
			value := 0
			if err == nil {
				value, err = w.number(o)
			}
			if err != nil && !errors.Is(err, leasehold.ErrNotExist) {
				continue
			}
			pause()
			err = store.Put(ctx, token, counter, strings.NewReader(strconv.Itoa(value+1)))
			if err == nil {
				w.state.Lock()
				w.steps++
				w.counts(func(s *Stats) { s.Events["a step counted"]++ })
				w.state.Unlock()
			}
			if !acked("count", counter, err) {
				return
			}
		case op < 4:
			body := string(rune('A' + r.IntN(2))) // again and again the same
			if w.cfg.Mode == fenced.DistinctBodies {
				body = fmt.Sprint(token, "-", n)
			}
			if !acked("put", key, store.Put(ctx, token, key, strings.NewReader(body))) {
				return
			}
		case op < 5:
			if !acked("delete", key, store.Delete(ctx, token, key)) {
				return
			}
		default:
			w.read(ctx, store, key)
		}
	}
}

func (*fencedWorld) number(o *fenced.Object) (int, error) {
	body, err := io.ReadAll(o.Body)
	if err = errors.Join(err, o.Body.Close()); err != nil {
		return 0, err
	}
	return strconv.Atoi(string(body))
}

// read wants what was there at some moment of the read.
func (w *fencedWorld) read(ctx context.Context, store *fenced.Store, key string) {
	w.state.Lock()
	first := max(len(w.objects[key].bodies)-1, 0)
	w.state.Unlock()
	o, err := store.Get(ctx, key)
	text := gone
	if err == nil {
		var body []byte
		body, err = io.ReadAll(o.Body)
		text = string(body)
		_ = o.Body.Close()
	}
	if err != nil && !errors.Is(err, leasehold.ErrNotExist) {
		return
	}
	w.state.Lock()
	defer w.state.Unlock()
	seen := w.objects[key].bodies[first:]
	w.markIf(len(seen) > 1, "a read during a write")
	if !slices.Contains(seen, text) && (text != gone || first > 0) {
		w.violate("%s: read %q; what stood there was %q", key, text, seen)
	}
}
