package itest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/itest"
)

// cluster is three electors in containers, on their own network, with a server and the link to it.
type cluster struct {
	t      *testing.T
	bucket string
	server testserver.S3 // with the endpoint for this machine
	store  *itest.Container
	link   *itest.Container
	nodes  []*itest.Container
}

// line is a line of output of testdata/node.
type line struct {
	At    int64
	Event string
	Token uint64
	Text  string
	node  int
}

const clusterTTL = 4 * time.Second // and of testdata/node

func newCluster(t *testing.T) *cluster {
	t.Helper()
	itest.NeedDocker(t)
	network := itest.NewNetwork(t)
	c := &cluster{t: t}
	c.server, c.store = itest.StartMinIO(t, network, "store")
	c.bucket = c.server.Bucket(t)
	c.link = itest.Run(t, itest.Spec{
		Image: itest.BuildImage(t, "./testdata/link"), Env: map[string]string{"UPSTREAM": "http://store:9000"},
		Network: network, Alias: "link",
	})
	image := itest.BuildImage(t, "./testdata/node")
	for i := range 3 {
		c.nodes = append(c.nodes, itest.Run(t, itest.Spec{Image: image, Network: network, Alias: fmt.Sprint("node", i),
			Env: map[string]string{
				"NAME": fmt.Sprint("node", i), "ENDPOINT": "http://link:9000", "BUCKET": c.bucket,
				"ACCESS": c.server.AccessKey, "SECRET": c.server.SecretKey, "REGION": c.server.Region,
			}}))
	}
	return c
}

// lines returns the lines of all nodes, sorted by their time. All nodes use the host's clock.
func (c *cluster) lines() (all []line) {
	c.t.Helper()
	for i, n := range c.nodes {
		log, err := n.Logs(c.t.Context())
		require.NoError(c.t, err)
		for text := range strings.Lines(log) {
			l := line{node: i}
			if !strings.HasPrefix(text, "{") || !strings.HasSuffix(text, "\n") {
				continue // an incomplete line, or none of ours
			}
			require.NoError(c.t, json.Unmarshal([]byte(text), &l), "%s", text)
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return int(a.At - b.At) })
	return all
}

// await waits for a line.
func (c *cluster) await(what string, ok func(line) bool) (found line) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		for _, l := range c.lines() {
			if ok(l) {
				found = l
				return true
			}
		}
		return false
	}, time.Minute, 50*time.Millisecond, "%s", what)
	return found
}

// leader waits for a line, later than after, that shows a valid lease on a node that is not in but.
func (c *cluster) leader(after time.Time, but ...int) line {
	c.t.Helper()
	return c.await("a leader", func(l line) bool {
		return l.Event == "valid" && l.At > after.UnixNano() && !slices.Contains(but, l.node)
	})
}

// oneAtATime counts the terms. It returns an error if two terms were valid at once, if the context
// of one was still open when the next was valid, or if a later term's token is not higher.
func oneAtATime(lines []line) (terms int, err error) {
	var last line
	for _, l := range lines {
		if l.Event == "open" && l.Token < last.Token {
			return terms, fmt.Errorf("the context of node%d with token %d was open at %d, after node%d was valid "+
				"with token %d at %d",
				l.node, l.Token, l.At, last.node, last.Token, last.At)
		}
		if l.Event != "valid" {
			continue
		}
		if l.Token != last.Token || l.node != last.node {
			if l.Token <= last.Token {
				return terms, fmt.Errorf("node%d was valid with token %d at %d, after node%d with token %d at %d",
					l.node, l.Token, l.At, last.node, last.Token, last.At)
			}
			terms++
		}
		last = l
	}
	return terms, nil
}

// stays wants the leader of a line to lead on for two TTLs.
func (c *cluster) stays(leader line, after string) {
	c.t.Helper()
	until := time.Unix(0, leader.At).Add(2 * clusterTTL)
	last := c.await("a line of two TTLs later", func(l line) bool {
		return l.Event == "valid" && l.At > until.UnixNano()
	})
	require.Equal(c.t, leader.Token, last.Token, "%s: leadership changed without a cause", after)
}

func TestTwoAtATimeAreSeen(t *testing.T) {
	t.Parallel()
	_, err := oneAtATime([]line{{At: 1, Event: "valid", Token: 1}, {At: 2, Event: "valid", Token: 2, node: 1},
		{At: 3, Event: "valid", Token: 1}})
	require.Error(t, err, "the leases overlap")
	_, err = oneAtATime([]line{{At: 1, Event: "valid", Token: 1}, {At: 2, Event: "valid", Token: 1, node: 1}})
	require.Error(t, err, "the token was issued twice")
	_, err = oneAtATime([]line{{At: 1, Event: "valid", Token: 1}, {At: 2, Event: "valid", Token: 2, node: 1},
		{At: 3, Event: "open", Token: 1}})
	require.Error(t, err, "the first context ended too late")
	_, err = oneAtATime([]line{{At: 1, Event: "valid", Token: 1}, {At: 2, Event: "open", Token: 1},
		{At: 3, Event: "valid", Token: 2, node: 1}})
	require.NoError(t, err)
}

func TestClusterFaults(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ctx := t.Context()
	first := c.leader(time.Time{})
	t.Logf("node%d leads first, with token %d", first.node, first.Token)

	type fault struct {
		name       string
		begin, end func(leader int) error
		takeover   bool // another must lead before the fault ends
		short      bool // not only at full size
		after      func(leader int, token uint64)
	}
	node := func(do func(*itest.Container, context.Context) error) func(int) error {
		return func(leader int) error { return do(c.nodes[leader], ctx) }
	}
	signal := func(on *itest.Container, name string) func(int) error {
		return func(int) error { return on.Signal(ctx, name) }
	}
	others := func(name string) func(int) error {
		return func(leader int) error {
			for i, n := range c.nodes {
				if i != leader {
					if err := n.Signal(ctx, name); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
	for _, f := range []fault{
		{name: "leader paused", begin: node((*itest.Container).Pause), end: node((*itest.Container).Unpause),
			takeover: true, short: true, after: func(leader int, token uint64) {
				woke := c.await("a line from the paused leader after it woke", func(l line) bool {
					return l.node == leader && l.Event == "woke" && l.Token == token
				})
				require.Equal(t, "valid false", woke.Text, "the first check after waking must say that the "+
					"lease is over")
			}},
		{
			name:     "leader killed (-9)",
			begin:    func(leader int) error { return c.nodes[leader].Signal(ctx, "SIGKILL") },
			end:      node((*itest.Container).Start),
			takeover: true,
		},
		{
			name:     "leader off the network",
			begin:    node((*itest.Container).Disconnect),
			end:      node((*itest.Container).Connect),
			takeover: true,
			short:    true,
		},
		{
			name:  "server killed (-9) and started",
			begin: signal(c.store, "SIGKILL"),
			end:   func(int) error { return c.store.Start(ctx) },
			short: true,
		},
		{
			name:  "server paused",
			begin: func(int) error { return c.store.Pause(ctx) },
			end:   func(int) error { return c.store.Unpause(ctx) },
		},
		{name: "slow and lossy link", begin: signal(c.link, "SIGUSR1"), end: signal(c.link, "SIGUSR2")},
		{
			name:  "leader's wall clock one hour forward",
			begin: func(leader int) error { return c.nodes[leader].Signal(ctx, "SIGUSR1") },
			end:   func(int) error { return nil },
		},
		{
			name:  "leader's wall clock two hours back",
			begin: func(leader int) error { return c.nodes[leader].Signal(ctx, "SIGUSR2") },
			end:   func(int) error { return nil },
		},
		{name: "candidates' wall clocks one hour forward", begin: others("SIGUSR1"), end: others("SIGUSR2")},
	} {
		if !f.short && !testsize.Full() {
			continue
		}
		before := c.leader(time.Now())
		began := time.Now()
		require.NoError(t, f.begin(before.node), f.name)
		if f.takeover {
			next := c.leader(began, before.node)
			lines := c.lines()
			i := slices.IndexFunc(lines, func(l line) bool { return l.Event == "valid" && l.Token == next.Token })
			t.Logf("%s: token %d instead of %d after %.2f TTL", f.name, next.Token, before.Token,
				time.Unix(0, lines[i].At).Sub(began).Seconds()/clusterTTL.Seconds())
		} else {
			time.Sleep(2 * clusterTTL) // the duration of the fault
		}
		require.NoError(t, f.end(before.node), f.name)
		ended := time.Now()
		now := c.leader(ended)
		t.Logf("%s: before token %d, after it token %d, leader seen %v after the end of the fault", f.name,
			before.Token, now.Token, time.Unix(0, now.At).Sub(ended).Round(time.Millisecond))
		if f.after != nil {
			f.after(before.node, before.Token)
		}
		c.stays(now, f.name)
	}
	lines := c.lines()
	terms, err := oneAtATime(lines)
	require.NoError(t, err)
	for _, l := range lines {
		require.NotEqual(t, "ended", l.Event, "node%d: Run ended: %s", l.node, l.Text)
	}
	t.Logf("%d terms, %d checks of a lease, never two valid at once", terms, len(lines))
}

// A full disk does not damage a lock. Renewals fail and the lease expires. When there is space
// again, the next token is higher.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	itest.NeedDocker(t)
	server := itest.StartMinIOOnTmpfs(t, 64<<20)
	bucket := server.Bucket(t)
	store := leasehold.NewS3Store(server.Client(), bucket)
	lock := newLock(t, store, leasehold.WithTTL(clusterTTL))
	lease, err := lock.Acquire(minute(t))
	require.NoError(t, err)
	require.EqualValues(t, 1, lease.Token())

	client := server.Client()
	var filler []string
	for _, size := range []int{8 << 20, 1 << 20, 64 << 10, 1 << 10} {
		for refused := 0; refused < 5; {
			key := fmt.Sprintf("filler/%d", len(filler))
			_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: &bucket,
				Key:    &key,
				Body:   bytes.NewReader(make([]byte, size)),
			},
				func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
			if err != nil {
				refused++
				continue
			}
			filler = append(filler, key)
			require.Less(t, len(filler), 100_000)
		}
	}
	select {
	case <-lease.Context().Done():
		require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
		t.Logf("%d filler objects: %v", len(filler), context.Cause(lease.Context()))
	case <-time.After(time.Minute):
		t.Fatal("the lease was still valid after a minute: is the disk really full?")
	}
	short, cancel := context.WithTimeout(t.Context(), 3*clusterTTL)
	_, err = newLock(t, store, leasehold.WithTTL(clusterTTL)).Acquire(short)
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	t.Logf("acquiring on the full disk: %v", err)

	for _, key := range filler {
		_, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
		require.NoError(t, err)
	}
	next, err := newLock(t, store, leasehold.WithTTL(clusterTTL)).Acquire(minute(t))
	require.NoError(t, err)
	require.Greater(t, next.Token(), lease.Token(), "the token survives the full disk")
	require.NoError(t, next.Release(t.Context()))
}
