package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/testserver"
)

// inFlight is how many acquisitions of a session are under way at most, and so the concurrency of bare requests for each process.
const inFlight = 64

// many is a trial: a process that has many locks ends, and two others take over all of them.
type many struct {
	t      *testing.T
	n      manySize
	server testserver.S3
	bucket string
	etcd   string // address
	prefix string // of all keys
	relay  *relay // of the survivors
}

// relay notes when each lock is led again.
type relay struct {
	mu    sync.Mutex
	led   []bool
	count int
	first time.Time
	last  time.Time
	done  chan struct{}
}

func newRelay(locks int) *relay { return &relay{led: make([]bool, locks), done: make(chan struct{})} }

func (r *relay) leads(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.led[i] {
		return
	}
	now := time.Now()
	if r.led[i], r.count = true, r.count+1; r.count == 1 {
		r.first = now
	}
	if r.last = now; r.count == len(r.led) {
		close(r.done)
	}
}

func (r *relay) wait(t *testing.T) {
	select {
	case <-r.done:
	case <-time.After(5 * time.Minute):
		t.Fatalf("after five minutes only %d of %d locks are led", r.count, len(r.led))
	}
}

// process has a session, a network of its own, and an elector for each lock.
type process struct {
	network *network
	stopped atomic.Int64 // Unix nanoseconds: when the last of its functions returned
	end     func()       // gracefully
}

func (m *many) start(name string, r *relay) *process {
	pool := &http.Transport{MaxIdleConns: 0, MaxIdleConnsPerHost: 256}
	p := &process{network: &network{base: pool, own: m.prefix + "/sessions/" + name}}
	client := m.server.Client(func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: p.network} })
	store := leasehold.NewS3Store(client, m.bucket)
	session, err := leasehold.NewSession(store, p.network.own, leasehold.WithTTL(m.n.ttl), leasehold.WithLogger(nil))
	require.NoError(m.t, err)
	ctx, cancel := context.WithCancel(m.t.Context())
	campaigns, endCampaigns := context.WithCancel(m.t.Context())
	var running sync.WaitGroup
	for i := range m.n.locks {
		e, err := leasehold.NewElector(sessionLock(m.t, session, m.key(i)), leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) {
				r.leads(i)
				<-ctx.Done()
				p.stopped.Store(time.Now().UnixNano())
			},
		})
		require.NoError(m.t, err)
		running.Go(func() { _ = e.Run(campaigns) })
	}
	over := make(chan struct{})
	go func() { _ = session.Run(ctx); close(over) }()
	p.end = func() { // as the guide tells
		cancel()
		<-over
		endCampaigns()
		running.Wait()
		pool.CloseIdleConnections()
	}
	return p
}

func (m *many) key(i int) string { return fmt.Sprintf("%s/locks/%d", m.prefix, i) }

// run makes a trial with leasehold.
func (m *many) run(dies bool) report.EndTrial {
	t, began := m.t, newRelay(m.n.locks)
	holder := m.start("holder", began)
	began.wait(t)
	m.relay = newRelay(m.n.locks)
	survivors := []*process{m.start("survivor-0", m.relay), m.start("survivor-1", m.relay)}
	for _, s := range survivors {
		for s.network.traffic().lockGets < m.n.locks { // until it waits for all
			time.Sleep(10 * time.Millisecond)
		}
	}
	time.Sleep(2*m.n.ttl + time.Duration(rand.Int64N(int64(m.n.ttl/3))))
	require.Zero(t, m.relay.count, "the holder lost locks before it ended: the machine is too busy")
	before := []traffic{survivors[0].network.traffic(), survivors[1].network.traffic(), holder.network.traffic()}
	from, ended := time.Now(), make(chan struct{})
	var trial report.EndTrial
	if dies {
		holder.network.cut.Store(true)
		close(ended)
	} else {
		go func() { holder.end(); close(ended) }()
	}
	m.relay.wait(t)
	<-ended
	if dies {
		time.Sleep(m.n.ttl / 10)
		from = holder.network.lastRenewed()
	} else {
		trial.Own = holder.network.traffic().since(before[2]).puts()
	}
	for i, s := range survivors {
		trial.Requests += s.network.traffic().since(before[i]).puts() + s.network.traffic().since(before[i]).gets()
	}
	trial.First, trial.All = m.relay.first.Sub(from).Seconds(), m.relay.last.Sub(from).Seconds()
	trial.Ahead = m.relay.first.Sub(time.Unix(0, holder.stopped.Load())).Seconds()
	if dies {
		holder.end()
	}
	var all sync.WaitGroup
	for _, s := range survivors {
		all.Go(s.end)
	}
	all.Wait()
	trial.Bare = m.bare().Seconds()
	return trial
}

// bare reads each lock's object and replaces it by itself, with the concurrency of two sessions.
func (m *many) bare() time.Duration {
	pools := []*http.Transport{{MaxIdleConnsPerHost: 256}, {MaxIdleConnsPerHost: 256}}
	var clients []*s3.Client
	for _, pool := range pools {
		defer pool.CloseIdleConnections()
		clients = append(clients, m.server.Client(func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: pool} }))
	}
	began := time.Now()
	atOnce(2*inFlight, m.n.locks, func(i int) {
		client, key, ctx := clients[i%2], m.key(i), m.t.Context()
		out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &m.bucket, Key: &key})
		if err != nil {
			m.t.Error(err)
			return
		}
		body, err := io.ReadAll(out.Body)
		_ = out.Body.Close()
		if err == nil {
			_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: &m.bucket, Key: &key, Body: strings.NewReader(string(body)), IfMatch: out.ETag})
		}
		if err != nil {
			m.t.Error(err)
		}
	})
	return time.Since(began)
}

const (
	etcdBatch    = 100 // locks of a transaction, of which each is a transaction in it; by default etcd allows 128 operations
	etcdInFlight = 8   // transactions of a process
)

// claimer is a process with a lease of etcd that its keys belong to.
type claimer struct {
	m       *many
	client  *clientv3.Client
	lease   clientv3.LeaseID
	renewed atomic.Int64    // Unix nanoseconds of the last answer to a keepalive
	ctx     context.Context // of the keepalives and the watch
	stop    context.CancelFunc
	running sync.WaitGroup
	txns    atomic.Int64
	slots   chan struct{}
}

func (m *many) claimer() *claimer {
	c := &claimer{m: m, client: newEtcdClient(m.t, m.etcd), slots: make(chan struct{}, etcdInFlight)}
	ctx, cancel := context.WithCancel(m.t.Context())
	c.ctx, c.stop = clientv3.WithRequireLeader(ctx), cancel
	granted, err := c.client.Grant(ctx, int64(m.n.ttl/time.Second))
	require.NoError(m.t, err)
	c.lease = granted.ID
	c.renewed.Store(time.Now().UnixNano())
	answers, err := c.client.KeepAlive(ctx, c.lease)
	require.NoError(m.t, err)
	c.running.Go(func() {
		for range answers {
			c.renewed.Store(time.Now().UnixNano())
		}
	})
	return c
}

// claim takes each key that does not exist, many in one transaction.
func (c *claimer) claim(keys []string, r *relay) {
	var all sync.WaitGroup
	for batch := range slices.Chunk(keys, etcdBatch) {
		c.slots <- struct{}{}
		all.Go(func() {
			defer func() { <-c.slots }()
			ops := make([]clientv3.Op, len(batch))
			for i, key := range batch {
				ops[i] = clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
					[]clientv3.Op{clientv3.OpPut(key, "host-a/4711/K3V9WQ2X", clientv3.WithLease(c.lease))}, nil)
			}
			c.txns.Add(1)
			answer, err := c.client.Txn(c.m.t.Context()).Then(ops...).Commit()
			if err != nil {
				c.m.t.Error(err)
				return
			}
			for i, a := range answer.Responses {
				if a.GetResponseTxn().Succeeded {
					r.leads(c.m.index(batch[i]))
				}
			}
		})
	}
	all.Wait()
}

func (m *many) index(key string) (i int) {
	_, _ = fmt.Sscan(key[strings.LastIndex(key, "/")+1:], &i)
	return i
}

// watch claims keys when they are deleted. The second survivor begins at the other end, so that the two meet in the middle.
func (c *claimer) watch(r *relay, backwards bool) (ready <-chan struct{}) {
	watch := c.client.Watch(c.ctx, c.m.prefix+"/locks/", clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify(), clientv3.WithFragment())
	started := make(chan struct{})
	c.running.Go(func() {
		for events := range watch {
			if events.Created {
				close(started)
			}
			var keys []string
			for _, e := range events.Events {
				keys = append(keys, string(e.Kv.Key))
			}
			if backwards {
				slices.Reverse(keys)
			}
			c.claim(keys, r)
		}
	})
	return started
}

// runEtcd makes a trial with etcd.
func (m *many) runEtcd(dies bool) (trial report.EndTrial) {
	t, began := m.t, newRelay(m.n.locks)
	holder := m.claimer()
	keys := make([]string, m.n.locks)
	for i := range keys {
		keys[i] = m.key(i)
	}
	holder.claim(keys, began)
	began.wait(t)
	m.relay = newRelay(m.n.locks)
	survivors := []*claimer{m.claimer(), m.claimer()}
	for i, s := range survivors {
		<-s.watch(m.relay, i == 1)
	}
	time.Sleep(m.n.ttl + time.Duration(rand.Int64N(int64(m.n.ttl/3))))
	require.Zero(t, m.relay.count, "the holder lost locks before it ended: the machine is too busy")
	from := time.Now()
	if dies {
		require.NoError(t, holder.client.Close())
	} else {
		trial.Own = 1
		_, err := holder.client.Revoke(t.Context(), holder.lease)
		require.NoError(t, err)
	}
	m.relay.wait(t)
	if dies {
		from = time.Unix(0, holder.renewed.Load())
	}
	trial.First, trial.All = m.relay.first.Sub(from).Seconds(), m.relay.last.Sub(from).Seconds()
	for _, c := range append(survivors, holder) {
		c.stop()
		c.running.Wait()
	}
	for _, c := range survivors {
		trial.Requests += int(c.txns.Load())
		_, err := c.client.Revoke(t.Context(), c.lease)
		require.NoError(t, err)
		if err := c.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	return trial
}

// measureEnds makes trials of all kinds in turn.
func measureEnds(t *testing.T, n manySize, progress func(string)) []report.End {
	server := testserver.MinIO(t)
	bucket, etcd := server.Bucket(t), startEtcd(t)
	var list []report.End
	for _, peer := range []string{report.Leasehold, report.EtcdLease} {
		for _, way := range []string{report.Dies, report.EndsGracefully} {
			list = append(list, report.End{Peer: peer, Way: way, TTL: n.ttl.Seconds()})
		}
	}
	for i := range n.trials {
		for at := range list {
			e := &list[at]
			progress(fmt.Sprintf("sessions: %s, %s", e.Peer, e.Way))
			m := &many{t: t, n: n, server: server, bucket: bucket, etcd: etcd, prefix: fmt.Sprintf("many/%d/%d", at, i)}
			run := m.run
			if e.Peer == report.EtcdLease {
				run = m.runEtcd
			}
			e.Trials = append(e.Trials, run(e.Way == report.Dies))
		}
	}
	return list
}
