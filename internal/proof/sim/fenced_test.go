package sim_test

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
	"github.com/leasehold-go/leasehold/internal/proof/sim"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// fencedWorld is one S3, or a backend in memory, and leaders that write to it, each with the token
// of its term, long after their terms are over: no lease is looked at, so that whatever clocks do
// is among the schedules.
type fencedWorld struct {
	mode   fenced.ETagMode // or inMemory
	parts  fenced.Option   // the size from which on bodies go in parts
	faults float64
	rand   *rand.Rand // of the network
	server *fakes3.Server
	memory fenced.MemBackend

	writing    sync.Mutex // of memory, so that landed is called in the order of the writes
	mu         sync.Mutex
	objects    map[string]*fencedObject
	violations []string
	stats      fencedStats
	trace      []string
	began      time.Time
	reached    sim.Reached
	lostReply  map[uint64]bool // a reply to a write of this token was lost since it last began one
	sentAt     map[sending]int // versions of an object when a leader last sent a write of it
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

type fencedStats struct{ runs, requests, writes, fenced, unknown, steps int }

const (
	counter  = "data/counter"
	gone     = "(deleted)"
	inMemory = fenced.DistinctBodies + 1
)

var fencedKeys = []string{counter, "data/a", "data/b"}

func (w *fencedWorld) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%10.3f  ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

func (w *fencedWorld) violate(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
	w.log("!!!! "+format, args...)
}

// landed checks each version as the server puts it in place.
func (w *fencedWorld) landed(key string, h http.Header, body []byte) {
	o, ours := w.objects[key]
	if !ours {
		return // that of the store's own check
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.writes++
	token, _ := strconv.ParseUint(h.Get("X-Amz-Meta-Leasehold-Token"), 10, 64)
	text := strings.TrimRight(string(body), " \t")
	if n := len(o.bodies); n > 0 && o.bodies[n-1] == gone && token > o.token {
		w.reached[sim.FencedRevived] = 1
	}
	if h.Get("X-Amz-Meta-Leasehold-Deleted") != "" {
		text = gone
	}
	w.log("%s: token %d writes %q", key, token, text)
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
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objects[s.key]
	if o.highest > s.token {
		w.reached[sim.FencedLateArrival] = 1
	}
	if len(o.bodies) > w.sentAt[s] && o.token != s.token {
		w.reached[sim.FencedMeeting] = 1
	}
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
	w.mu.Lock()
	f := w.drawFault()
	w.mu.Unlock()
	if isWrite {
		w.sends(s, f)
	}
	return f
}

// sends notes a write that meets a fault.
func (w *fencedWorld) sends(s sending, f faultproxy.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sentAt[s] = len(w.objects[s.key].bodies)
	if f.Kind == faultproxy.DropReply || f.Kind == faultproxy.AnswerAfter {
		w.lostReply[s.token] = true
	}
}

// drawFault draws what the network does to a request. The caller holds w.mu.
func (w *fencedWorld) drawFault() faultproxy.Fault {
	w.stats.requests++
	f := faultproxy.Fault{
		Before: time.Duration(w.rand.Int64N(int64(50 * time.Millisecond))),
		After:  time.Duration(w.rand.Int64N(int64(50 * time.Millisecond))),
	}
	if w.rand.Float64() >= w.faults {
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
	b.w.mu.Lock()
	f := b.w.drawFault()
	b.w.mu.Unlock()
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
	if w.mode == inMemory {
		b := &faultyBackend{MemBackend: &w.memory, w: w}
		return fenced.NewStore(b), b.ghosts.Wait
	}
	transport := &faultproxy.Transport{Base: arrivals{fakes3.Transport{Handler: w.server}, w}, Decide: w.networkFault}
	store, err := fenced.NewS3Store(fakes3.NewClient(transport), fakes3.Bucket, w.mode, w.parts)
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
		w.mu.Lock()
		defer w.mu.Unlock()
		w.log("token %d: %s %s: %v", token, what, key, err)
		refused, ok := errors.AsType[*leasehold.FencedError](err)
		switch highest := w.objects[key].highest; {
		case err == nil && highest < token:
			w.violate("%s: %s of token %d is said to be done, but the highest that has landed is %d", key,
				what, token, highest)
		case ok && (refused.Token != token || refused.Highest <= token || refused.Highest > highest):
			w.violate("%s: %v, but the highest is %d", key, err, highest)
		case ok:
			w.stats.fenced++
			w.reached[sim.FencedRefused] = 1
			return r.IntN(4) > 0 // some go on regardless
		case err != nil:
			w.stats.unknown++
		case w.lostReply[token]:
			w.reached[sim.FencedReplyLost] = 1
		}
		w.lostReply[token] = false
		return true
	}
	sealed := w.mode == fenced.DistinctBodies // which cannot seal: then nobody counts
	for n := 0; ctx.Err() == nil; n++ {
		pause()
		key := fencedKeys[1+r.IntN(2)]
		switch op := r.IntN(6); {
		case !sealed:
			err := store.Seal(ctx, token, fencedKeys...)
			sealed = err == nil
			if err != nil && !errors.Is(err, leasehold.ErrFenced) {
				w.mu.Lock()
				w.reached[sim.FencedSealCut] = 1
				w.mu.Unlock()
			}
			if errors.Is(err, leasehold.ErrFenced) && r.IntN(2) == 0 {
				return
			}
			for _, key := range fencedKeys {
				if sealed && !acked("seal", key, nil) {
					return
				}
			}
		case op < 3 && w.mode != fenced.DistinctBodies: // read and write with a stop in between
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
				w.mu.Lock()
				w.stats.steps++
				w.mu.Unlock()
			}
			if !acked("count", counter, err) {
				return
			}
		case op < 4:
			body := string(rune('A' + r.IntN(2))) // again and again the same
			if w.mode == fenced.DistinctBodies {
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
	w.mu.Lock()
	first := max(len(w.objects[key].bodies)-1, 0)
	w.mu.Unlock()
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
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.objects[key].bodies[first:]
	if len(seen) > 1 {
		w.reached[sim.FencedReadMoved] = 1
	}
	if !slices.Contains(seen, text) && (text != gone || first > 0) {
		w.violate("%s: read %q; what stood there was %q", key, text, seen)
	}
}

func runFenced(t *testing.T, seed uint64) *fencedWorld {
	w := &fencedWorld{rand: rand.New(rand.NewPCG(seed, 1)), objects: map[string]*fencedObject{},
		reached:   make(sim.Reached, len(sim.FencedSituations)),
		lostReply: map[uint64]bool{}, sentAt: map[sending]int{}}
	w.mode = fenced.ETagMode(1 + w.rand.IntN(4))
	w.faults = []float64{0, 0.05, 0.2, 0.4}[w.rand.IntN(4)]
	partSize := int64(8 << 20)
	if w.rand.IntN(3) == 0 { // then nearly all bodies go in two or three parts
		partSize = map[fenced.ETagMode]int64{
			fenced.UniqueETags:    1,
			fenced.PaddedBodies:   40,
			fenced.DistinctBodies: 2,
		}[w.mode]
	}
	w.parts = testopt.WithPartSize(partSize)
	w.server = &fakes3.Server{
		RandomETags: w.mode == fenced.UniqueETags,
		MinPartSize: 1,
		TornHeads:   seed%2 == 0,
		OnWrite:     w.landed,
	}
	for _, key := range fencedKeys {
		w.objects[key] = &fencedObject{}
	}
	sim.InBubble(t, seed, func() {
		w.began = time.Now()
		var wg sync.WaitGroup
		for token := uint64(1); token <= 4; token++ {
			r := rand.New(rand.NewPCG(seed, 100+token))
			start := time.Duration(float64(token-1) * (0.5 + r.Float64()) * float64(5*time.Second))
			store, wait := w.open()
			wg.Go(func() {
				time.Sleep(start)
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				w.lead(ctx, token, r, store)
				wait()
			})
		}
		wg.Wait()
		if w.mode != fenced.DistinctBodies {
			bodies := w.objects[counter].bodies
			value := 0
			if len(bodies) > 0 {
				value, _ = strconv.Atoi(bodies[len(bodies)-1])
			}
			if value < w.stats.steps {
				w.violate("%d steps were acknowledged, %d are in the counter", w.stats.steps, value)
			}
		}
	})
	return w
}

// TestFencedSeeds runs FENCED worlds of fenced writes (default 50, or 200 at full size), from
// number SEED on, and shows the first that goes wrong.
func TestFencedSeeds(t *testing.T) {
	var mu sync.Mutex
	var total fencedStats
	reached := make(sim.Reached, len(sim.FencedSituations))
	began := time.Now()
	eachSeed(t, env(t, "FENCED", testsize.Pick[uint64](50, 200)), func(t *testing.T, seed uint64) (report string) {
		w := runFenced(t, seed)
		if len(w.violations) > 0 {
			return fmt.Sprintf("seed %d: mode %d, faults %v\nviolations:\n%s\ntimeline:\n%s", seed, w.mode, w.faults,
				strings.Join(w.violations, "\n"), strings.Join(w.trace, "\n"))
		}
		mu.Lock()
		defer mu.Unlock()
		total.runs++
		total.requests += w.stats.requests
		total.writes += w.stats.writes
		total.fenced += w.stats.fenced
		total.unknown += w.stats.unknown
		total.steps += w.stats.steps
		for i, n := range w.reached {
			reached[i] += n
		}
		return ""
	})
	if total.fenced == 0 || total.unknown == 0 || total.steps == 0 {
		t.Errorf("too tame: %+v", total)
	}
	t.Logf("%d worlds in %v: %d requests, %d writes landed, %d fenced off, %d of unknown outcome, %d steps counted",
		total.runs,
		time.Since(began).Round(time.Millisecond), total.requests, total.writes, total.fenced,
		total.unknown, total.steps)
	checkSituations(t, sim.FencedSituations, total.runs, reached)
}
