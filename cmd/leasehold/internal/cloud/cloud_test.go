package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/doctor"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/fencedtest"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/storetest"
)

// TestCloud is what make cloud runs. Without a bucket there is nothing to do: TestOnServers has
// buckets.
func TestCloud(t *testing.T) {
	c := here
	if c == nil {
		return
	}
	c.part(t, "check", c.check)
	if t.Failed() {
		return // it is no place for locks
	}
	c.part(t, "conformance", c.conformance)
	c.part(t, "contention", c.contention)
	c.part(t, "lost and repeated replies", c.lostReplies)
	c.part(t, "takeover", c.takeover)
	if !c.at.CreateOnly { // they need If-Match
		c.part(t, "fenced writes", c.fencedWrites)
	}
	c.part(t, "doctor", c.doctor)
}

// part runs one part, and says what it has seen and sent.
func (c *run) part(t *testing.T, name string, f func(*testing.T) string) {
	fmt.Printf("%-26s", name)
	p, began, before := part{Name: name}, time.Now(), c.total()
	p.Passed = t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) { p.Seen = f(t) })
	sent := c.total()
	p.Seconds = time.Since(began).Seconds()
	p.Sent = sent.Reads + sent.Writes + sent.Deletes - before.Reads - before.Writes - before.Deletes
	if c.why() != nil {
		fmt.Println("ended")
		select {} // the run ends by itself, and what its tests say of that is of no interest
	}
	result := "ok"
	if !p.Passed {
		result = "FAILED"
	}
	fmt.Printf("%-6s %5.1f s %6d requests  %s\n", result, p.Seconds, p.Sent, p.Seen)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Parts = append(c.report.Parts, p)
}

// ttl is that of all locks, but at least what the store takes.
func (c *run) ttl() time.Duration {
	return max(testsize.Pick(2*time.Second, 6*time.Second), c.store.Describe().MinTTL)
}

// soon ends with the run, or when nobody can still be slow.
func (c *run) soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(c.ctx, 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// firstVersion ends the name of the first version of a key where objects are only created.
const firstVersion = "/.leasehold-versions/.leasehold-9999999999999998"

// known is what check has found of what servers do each in their own way.
func (c *run) known() []storetest.Option {
	options := []storetest.Option{
		storetest.Rounds(testsize.Pick(3, 20)),
		storetest.Plant(func(key string, body []byte) error {
			key = c.at.Key + "conformance/" + key
			if c.at.CreateOnly {
				key += firstVersion
			}
			return c.bucket.put(c.ctx, key, body)
		}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.report.Deletes {
	case "denied":
		options = append(options, storetest.DeniesDelete())
	case "ignored":
		options = append(options, storetest.IgnoresDeleteCondition())
	case honouredAnyway:
		options = append(options, storetest.DeletesMissing())
	}
	if c.report.UpdateMissing == "412" {
		options = append(options, storetest.MissingIsPreconditionFailed())
	}
	return options
}

// check asks whether locks are safe here, and how the server answers where servers differ.
func (c *run) check(t *testing.T) string {
	ctx := c.soon(t)
	found, err := leasehold.CheckStore(ctx, c.store, c.at.Key+"check")
	require.NoError(t, err)
	require.True(t, found.ConditionalPuts)
	body := []byte("asked")
	etag, err := c.store.PutIfNoneMatch(ctx, c.at.Key+"asked", body)
	require.NoError(t, err)
	var update, deletes string
	_, err = c.store.PutIfMatch(ctx, c.at.Key+"missing", body, etag)
	switch {
	case errors.Is(err, leasehold.ErrNotExist):
		update = "404"
	case errors.Is(err, leasehold.ErrPreconditionFailed):
		update = "412"
	default:
		require.NoError(t, err)
		require.Fail(t, "an update of a missing object was carried out")
	}
	missing := c.store.DeleteIfMatch(ctx, c.at.Key+"missing", etag)
	allowed := c.bucket.remove(ctx, c.at.Key+"asked")
	switch {
	case exit.Denied(allowed):
		deletes = "denied"
	case allowed != nil:
		require.NoError(t, allowed)
	case c.at.CreateOnly:
		deletes = "allowed"
	case !found.ConditionalDeletes:
		deletes = "ignored"
	case missing == nil:
		deletes = honouredAnyway
	default:
		deletes = "honoured"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.UpdateMissing, c.report.Deletes = update, deletes
	if c.at.CreateOnly {
		return "conditions of creates enforced; DELETE " + deletes
	}
	return "conditions of PUT enforced; If-Match on DELETE " + deletes
}

// honouredAnyway is what check has found where a delete of a missing object succeeds.
const honouredAnyway = "honoured, also of a missing object"

func (c *run) conformance(t *testing.T) string {
	bare := &under{ // which tells ages
		Store: c.store.Store, prefix: c.at.Key + "conformance/", meter: c.meter, writing: make(map[string]int),
	}
	storetest.Run(t, func(*testing.T) leasehold.Store { return bare }, c.known()...)
	return ""
}

// contention has processes contend for one lock. No two of them may lead at a time, and no token
// may be given out twice.
func (c *run) contention(t *testing.T) string {
	processes, terms := 4, testsize.Pick(3, 8)
	file := filepath.Join(t.TempDir(), "busy")
	var mu sync.Mutex
	valid, met := make(map[int]bool), make(map[int]bool) // by token
	var wg sync.WaitGroup
	var all []process
	for range processes {
		p := c.start(t, "contender", c.at.Key+"contention", "LEASEHOLD_CLOUD_TTL="+c.ttl().String(),
			fmt.Sprint("LEASEHOLD_CLOUD_TERMS=", terms), "LEASEHOLD_CLOUD_FILE="+file)
		all = append(all, p)
		wg.Go(func() {
			for line := range p.lines {
				mu.Lock()
				switch word, token := c.read(t, line); {
				case word == "met":
					met[token] = true
				case word == "term" && len(line) == 3:
					if _, again := valid[token]; again {
						t.Errorf("token %d was given out twice", token)
					}
					valid[token] = line[2] == "true"
				default:
					t.Error(strings.Join(line, " "))
				}
				mu.Unlock()
			}
			if err := p.Wait(); err != nil {
				t.Error("a process: ", err)
			}
		})
	}
	for _, p := range all {
		p.tell(t)
	}
	wg.Wait()
	for token := range met {
		if valid[token] {
			t.Errorf("somebody else led while the lease of token %d was valid", token)
		}
	}
	if want := processes * terms; len(valid) != want || valid[0] {
		t.Errorf("%d terms, want %d", len(valid), want)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Terms = len(valid)
	return fmt.Sprintf("%d terms of %d processes, one at a time", len(valid), processes)
}

// read is the first word of a line, and the token behind it.
func (c *run) read(t *testing.T, line []string) (word string, token int) {
	if len(line) < 2 {
		return "", 0
	}
	token, err := strconv.Atoi(line[1])
	if err != nil && line[0] != "error" {
		t.Error(err)
	}
	return line[0], token
}

// lost are faults after which a sender cannot tell from the reply whether its write has landed.
var lost = []struct {
	name  string
	fault faultproxy.Fault
}{
	{"reply lost", faultproxy.Fault{Kind: faultproxy.DropReply}},
	{"answered 503 though applied", faultproxy.Fault{Kind: faultproxy.AnswerAfter, Status: 503}},
	{"lands late", faultproxy.Fault{Kind: faultproxy.Ghost, Before: 500 * time.Millisecond}},
	{"sent twice", faultproxy.Fault{}},
}

// lostReplies harms a write of each kind. The lock must neither be lost nor held twice, and no
// token may be given out twice.
func (c *run) lostReplies(t *testing.T) string {
	steps := []string{"acquire", "renew", "release"}
	t.Run("all", func(t *testing.T) {
		for i, l := range lost {
			for _, during := range steps {
				t.Run(l.name+" on "+during, func(t *testing.T) {
					t.Parallel()
					c.loseReply(t, fmt.Sprintf("%slost/%d-%s", c.at.Key, i, during), during, l.name, l.fault)
				})
			}
		}
	})
	return fmt.Sprintf("%d writes", len(lost)*len(steps))
}

func (c *run) loseReply(t *testing.T, key, during, name string, fault faultproxy.Fault) {
	const ttl = 20 * time.Second // so that a slow network answers in time
	ctx := c.soon(t)
	var harm sync.Mutex
	next := false // the next write is harmed
	faulty := &faultproxy.Transport{Decide: func(r *http.Request) faultproxy.Fault {
		harm.Lock()
		defer harm.Unlock()
		if !next || !writes(r) {
			return faultproxy.Fault{}
		}
		next = false
		return fault
	}}
	repeating := &twice{}
	at := through(c.at, c.counted, func(base http.RoundTripper) http.RoundTripper {
		repeating.base = base
		faulty.Base = repeating
		return faulty
	})
	store, err := at.Open(ctx)
	require.NoError(t, err)
	defer store.Close()
	defer faulty.Close()
	lock, err := newLock(store, key, ttl)
	require.NoError(t, err)
	step := func(of string) {
		if of != during {
			return
		}
		repeating.next.Store(fault == faultproxy.Fault{})
		harm.Lock()
		next = fault != faultproxy.Fault{}
		harm.Unlock()
	}
	used := func() {
		harm.Lock()
		defer harm.Unlock()
		require.False(t, next || repeating.next.Load(), "no write was harmed")
	}
	step("acquire")
	lease, err := lock.Acquire(ctx)
	require.NoError(t, err)
	token := lease.Token()
	if during != "acquire" || fault.Kind != faultproxy.Ghost { // which may land first, and is then a leftover
		require.EqualValues(t, 1, token)
	}
	step("renew")
	require.NoError(t, lease.Renew(ctx))
	require.True(t, lease.Valid())
	step("release")
	require.NoError(t, lease.Release(ctx))
	used()

	other, err := newLock(c.store, key, ttl)
	require.NoError(t, err)
	faulty.Wait() // for what lands late
	rec, err := other.Inspect(ctx)
	require.NoError(t, err)
	require.True(t, rec.Released(), name)
	require.Equal(t, token, rec.Token)
	after, err := other.Acquire(ctx)
	require.NoError(t, err)
	require.Equal(t, token+1, after.Token())
	require.NoError(t, after.Release(ctx))
}

// takeover kills holders in processes of their own. Somebody who waits leads next, a TTL after the
// last renewal at the earliest.
func (c *run) takeover(t *testing.T) string {
	ttl := c.ttl()
	t.Run("all", func(t *testing.T) {
		for i := range testsize.Pick(2, 5) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				ctx, key := c.soon(t), fmt.Sprintf("%stakeover/%d", c.at.Key, i)
				p := c.start(t, "holder", key, "LEASEHOLD_CLOUD_TTL="+ttl.String())
				p.tell(t)
				require.Equal(t, []string{"leads", "1"}, <-p.lines)
				lock, err := newLock(c.store, key, ttl)
				require.NoError(t, err)
				type acquired struct {
					lease *leasehold.Lease
					err   error
				}
				leads := make(chan acquired, 1)
				go func() {
					lease, err := lock.Acquire(ctx)
					leads <- acquired{lease, err}
				}()
				select {
				case <-time.After(ttl + rand.N(ttl/2)): // at any time between two renewals
				case <-leads:
					t.Fatal("somebody led beside a living holder")
				}
				require.NoError(t, p.Process.Kill())
				_ = p.Wait()
				last, err := lock.Inspect(ctx)
				require.NoError(t, err)
				got := <-leads
				require.NoError(t, got.err)
				require.EqualValues(t, 2, got.lease.Token())
				took := got.lease.Record().AcquiredAt.Sub(last.RenewedAt)
				require.GreaterOrEqual(t, took, ttl)
				require.NoError(t, got.lease.Release(ctx))
				c.mu.Lock()
				defer c.mu.Unlock()
				c.report.Takeovers = append(c.report.Takeovers, took.Seconds()/ttl.Seconds())
			})
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("TTL %v, after %.2f TTL", ttl, c.report.Takeovers)
}

// fencedWrites are those of package fenced, late ones and races among them.
func (c *run) fencedWrites(t *testing.T) string {
	fencedtest.Run(t, fencedtest.Backend{
		Open: func(opts ...fenced.Option) *fenced.Store {
			s, err := c.bucket.fenced(opts...)
			require.NoError(t, err)
			return s
		},
		Plant: func(key, body string) { require.NoError(t, c.bucket.put(c.ctx, key, []byte(body))) },

		Prefix: c.at.Key + "fenced/", Rounds: testsize.Pick(3, 8),
	})
	return ""
}

// doctor must find nothing that has failed. Its warnings are about settings of the bucket.
func (c *run) doctor(t *testing.T) string {
	at := c.at
	at.Key += "doctor"
	checks := doctor.Examine(c.soon(t), []place.Location{at})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Doctor = checks
	var warnings []string
	for _, check := range checks {
		switch check.Result {
		case "failed":
			t.Errorf("%s: %s (%s)", check.Name, check.Seen, check.Advice)
		case "warning":
			warnings = append(warnings, check.Name)
		}
	}
	return cmp.Or(strings.Join(append([]string{"warnings:"}[:min(len(warnings), 1)], warnings...), " "), "no warning")
}
