package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/benbjohnson/litestream"
	litestreams3 "github.com/benbjohnson/litestream/s3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/leaderhttp"
)

// place is where locks live: a bucket whose requests are counted, and perhaps other servers.
type place struct {
	name     string
	bucket   string
	client   *s3.Client
	requests *atomic.Int64 // number of requests to the bucket, at the HTTP level
	etcd     *clientv3.Client
	redis    *redis.Client
	postgres string                        // address; "" without one
	shared   leasehold.Store               // that of candidates of one process
	written  func(key string) time.Time    // when the server wrote the object last; nil if it does not tell
	pushed   func(key string, wake func()) // calls wake soon after each write of the object; nil without a push channel
	apart    time.Duration                 // round trip between two processes
}

func newPlace(t *testing.T, server testserver.S3) *place {
	t.Helper()
	p := &place{name: server.Name, bucket: server.Bucket(t), requests: new(atomic.Int64)}
	// All candidates share one pool, and none of them has to wait for a connection.
	pool := &http.Transport{MaxIdleConns: 0, MaxIdleConnsPerHost: 256}
	t.Cleanup(pool.CloseIdleConnections)
	p.client = server.Client(func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: counted{pool, p.requests}}
	})
	p.shared = leasehold.NewS3Store(p.client, p.bucket)
	return p
}

func newPlaceOnMinIO(t *testing.T, option func(*s3.Options)) *place {
	t.Helper()
	testserver.SkipIfShort(t)
	server := testserver.MinIO(t)
	return &place{
		name:     server.Name,
		bucket:   server.Bucket(t),
		client:   server.Client(option),
		requests: new(atomic.Int64),
	}
}

// countDials counts connections.
func countDials(n *atomic.Int64) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}

type counted struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// settings are the same for all peers.
type settings struct {
	ttl, poll time.Duration
}

// jittered is the time to the next poll. A candidate that knows when the lease expires reads then,
// plus up to a twentieth of the poll interval, as leasehold does.
func (s settings) jittered(untilExpiry time.Duration) time.Duration {
	poll := time.Duration(float64(s.poll) * (0.9 + 0.2*rand.Float64()))
	return min(poll, max(untilExpiry, 0)+time.Duration(rand.Float64()*float64(s.poll)/20))
}

// candidate is one process that wants the lock.
type candidate interface {
	acquire(ctx context.Context) (term, error) // waits until acquired
}

// term is held until release or crash is called.
type term interface {
	renew(ctx context.Context) error
	release(ctx context.Context) error
	crash() // end without a release
}

// selfRenewing is a term that renews by itself.
type selfRenewing interface {
	written() time.Time // when its last write was sent
	lost() bool
}

type peer struct {
	name   string
	open   func(t *testing.T, p *place, key, name string, s settings) candidate
	elects bool   // an elector with its own loop, so renew cannot be called
	prefix string // of its keys
}

const us = report.Leasehold

// unaided is leasehold without anything that wakes a candidate.
var unaided = peer{name: us, open: newLeasehold}

var peers = []peer{
	unaided,
	{name: report.SafePlain, open: newSafePlain},
	{name: report.Plain, open: newPlain},
	{name: report.Litestream, open: newLitestream},
	{name: report.ClientGo, open: newClientGo, elects: true},
	{name: report.Election, open: newEtcdElection},
	{name: report.Mutex, open: newEtcdMutex},
}

// others are measured in takeovers and hand-overs alone.
var others = []peer{
	{name: report.Redislock, open: newRedislock},
	{name: report.Advisory, open: newAdvisory},
}

// variants of leasehold, for the sections in which they differ.
var (
	together = peer{name: report.Together, open: newTogether}
	pushed   = peer{name: report.Pushed, open: newPushed, prefix: pushPrefix}
	pushNew  = peer{name: report.PushedNew, open: newPushedNew, prefix: pushPrefix}
	clocked  = peer{name: report.Clocked, open: newClocked}
	followed = peer{name: report.Followed, open: newFollowed}
)

// on is the server that it needs; "" for the bucket.
func (p peer) on() string { return report.Server(p.name) }

// can returns those of the peers that can run at this place.
func (p *place) can(peers []peer) (list []peer) {
	for _, peer := range peers {
		if p.has(peer.on()) && (peer.prefix == "" || p.pushed != nil) {
			list = append(list, peer)
		}
	}
	return list
}

func (p *place) has(server string) bool {
	switch server {
	case report.OnEtcd:
		return p.etcd != nil
	case report.OnRedis:
		return p.redis != nil
	case report.OnPostgres:
		return p.postgres != ""
	}
	return true
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leasehold

type ours struct {
	lock   *leasehold.Lock
	store  *mortal
	peer   *leaderhttp.Peer // of one that follows the leader
	server *httptest.Server // of the peer
}

// open makes a candidate as a process of its own has it, with a store of its own.
func open(t *testing.T, p *place, key, name string, s settings, opts ...leasehold.Option) ours {
	return openOn(t, leasehold.NewS3Store(p.client, p.bucket), key, name, s, opts...)
}

func openOn(t *testing.T, store leasehold.Store, key, name string, s settings, opts ...leasehold.Option) ours {
	m := newMortal(store)
	lock, err := leasehold.NewLock(m, key, append(opts, leasehold.WithHolder(name), leasehold.WithTTL(s.ttl),
		leasehold.WithPollInterval(s.poll), leasehold.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	return ours{lock: lock, store: m}
}

func newLeasehold(t *testing.T, p *place, key, name string, s settings) candidate {
	return open(t, p, key, name, s)
}

func newClocked(t *testing.T, p *place, key, name string, s settings) candidate {
	return openOn(t, leasehold.NewS3Store(p.client, p.bucket, leasehold.WithServerClock(2*time.Second)), key, name, s)
}

// newTogether makes candidates that share a store value, and so wake each other.
func newTogether(t *testing.T, p *place, key, name string, s settings) candidate {
	lock, err := leasehold.NewLock(p.shared, key, leasehold.WithHolder(name), leasehold.WithTTL(s.ttl),
		leasehold.WithPollInterval(s.poll), leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	return ours{lock: lock, store: new(mortal)}
}

func newPushed(t *testing.T, p *place, key, name string, s settings) candidate {
	c := open(t, p, key, name, s)
	p.pushed(key, c.lock.Wake)
	return c
}

// newFollowed makes candidates that follow the leader over HTTP, as electors.
func newFollowed(t *testing.T, p *place, key, name string, s settings) candidate {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	url := "http://" + slowProxy(t, server.Listener.Addr().String(), p.apart)
	c := open(t, p, key, name, s, leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: url}))
	var err error
	c.peer, err = leaderhttp.New(c.lock)
	require.NoError(t, err)
	mux.Handle(leaderhttp.Path, c.peer)
	c.server = server
	return c
}

// end ends what newFollowed has begun.
func (c ours) end() {
	if c.peer != nil {
		c.peer.Close()
		c.server.Close()
	}
}

// elector is an elector of this candidate, which the others hear of if they follow.
func (c ours) elector(cb leasehold.Callbacks) (*leasehold.Elector, error) {
	if c.peer != nil {
		cb = c.peer.Callbacks(cb)
	}
	return leasehold.NewElector(c.lock, cb)
}

// newcomer is a candidate that looks at the lock only when it is notified, so that its process has
// not waited for a lock before.
type newcomer struct {
	ours
	woken chan struct{}
}

func newPushedNew(t *testing.T, p *place, key, name string, s settings) candidate {
	c := newcomer{open(t, p, key, name, s), make(chan struct{}, 1)}
	p.pushed(key, func() {
		select {
		case c.woken <- struct{}{}:
		default:
		}
	})
	return c
}

func (c newcomer) acquire(ctx context.Context) (term, error) {
	for {
		lease, err := c.lock.TryAcquire(ctx)
		if !errors.Is(err, leasehold.ErrHeld) {
			return ourTerm{lease, c.store}, err
		}
		select {
		case <-c.woken:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// knows has the process of c try its store, as it does once in its life.
func (c ours) knows(ctx context.Context) error {
	lock, err := leasehold.NewLock(c.store, "known", leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	return lock.Do(ctx, func(context.Context, *leasehold.Lease) error { return nil })
}

type ourTerm struct {
	*leasehold.Lease
	store *mortal
}

func (c ours) acquire(ctx context.Context) (term, error) {
	lease, err := c.lock.Acquire(ctx)
	return ourTerm{lease, c.store}, err
}

func (l ourTerm) renew(ctx context.Context) error   { return l.Renew(ctx) }
func (l ourTerm) release(ctx context.Context) error { return l.Release(ctx) }
func (l ourTerm) crash()                            { l.store.dead.Store(true) }
func (l ourTerm) written() time.Time                { return l.store.written() }
func (l ourTerm) lost() bool                        { return errors.Is(context.Cause(l.Context()), leasehold.ErrLost) }

// mortal is the store of a process that can crash.
type mortal struct {
	*teststore.Store
	dead atomic.Bool
	last atomic.Int64 // when the last write was sent
}

var errDead = errors.New("crashed")

func newMortal(s leasehold.Store) *mortal {
	m := new(mortal)
	m.Store = teststore.Known(s, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if m.dead.Load() {
			return leasehold.Object{}, errDead
		}
		sent := time.Now().UnixNano()
		o, err := r.Send(ctx)
		if r.Puts() && err == nil {
			m.last.Store(sent)
		}
		return o, err
	})
	return m
}

func (m *mortal) written() time.Time { return time.Unix(0, m.last.Load()) }

// plain is the protocol as one might write it in an afternoon: read, put on a condition. Its
// candidates wait until the lease that they have read expires. A plain loop compares its own wall
// clock with the record's. A safe one counts the TTL plus 2 % on its own monotonic clock since it
// first saw the version.
type plain struct {
	p    *place
	key  string
	name string
	s    settings
	safe bool
	seen string // ETag of the version seen last
	from time.Time
}

type plainRecord struct {
	Holder  string
	Expires time.Time
	Nonce   int64
}

type plainTerm struct {
	*plain
	etag string
}

func newPlain(_ *testing.T, p *place, key, name string, s settings) candidate {
	return &plain{p: p, key: key, name: name, s: s}
}

func newSafePlain(_ *testing.T, p *place, key, name string, s settings) candidate {
	return &plain{p: p, key: key, name: name, s: s, safe: true}
}

func (c *plain) put(ctx context.Context, expires time.Time, match, noneMatch *string) (string, error) {
	body, err := json.Marshal(plainRecord{c.name, expires, rand.Int64()})
	if err != nil {
		return "", err
	}
	out, err := c.p.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &c.p.bucket, Key: &c.key, Body: bytes.NewReader(body), IfMatch: match, IfNoneMatch: noneMatch,
	})
	if err != nil {
		return "", err
	}
	return *out.ETag, nil
}

func (c *plain) acquire(ctx context.Context) (term, error) {
	for {
		pause, lease, err := c.try(ctx)
		if lease != nil {
			return lease, nil
		}
		if err != nil && ctx.Err() == nil {
			pause = c.s.poll
		}
		if err := wait(ctx, c.s.jittered(pause)); err != nil {
			return nil, err
		}
	}
}

// try returns a term, or how long to wait.
func (c *plain) try(ctx context.Context) (pause time.Duration, lease term, err error) {
	var rec plainRecord
	var match, noneMatch *string
	out, err := c.p.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &c.p.bucket, Key: &c.key})
	if _, missing := errors.AsType[*types.NoSuchKey](err); missing {
		noneMatch = aws.String("*")
	} else if err != nil {
		return 0, nil, err
	} else {
		match = out.ETag
		err = json.NewDecoder(out.Body).Decode(&rec)
		_ = out.Body.Close()
		if err != nil {
			return 0, nil, err
		}
		pause = time.Until(rec.Expires)
		if c.safe && !rec.Expires.IsZero() {
			if *match != c.seen {
				c.seen, c.from = *match, time.Now()
			}
			pause = time.Until(c.from.Add(c.s.ttl * 102 / 100))
		}
	}
	if pause > 0 {
		return pause, nil, nil
	}
	etag, err := c.put(ctx, time.Now().Add(c.s.ttl), match, noneMatch)
	if err != nil {
		return c.s.poll, nil, err
	}
	return 0, &plainTerm{c, etag}, nil
}

func (l *plainTerm) renew(ctx context.Context) error {
	etag, err := l.put(ctx, time.Now().Add(l.s.ttl), &l.etag, nil)
	if err == nil {
		l.etag = etag
	}
	return err
}

func (l *plainTerm) release(ctx context.Context) error {
	_, err := l.put(ctx, time.Time{}, &l.etag, nil)
	return err
}

func (*plainTerm) crash() {}

// Litestream

type theirs struct {
	*litestreams3.Leaser
	s settings
}

type theirTerm struct {
	theirs
	lease *litestream.Lease
}

func newLitestream(_ *testing.T, p *place, key, name string, s settings) candidate {
	l := litestreams3.NewLeaser()
	l.SetLogger(slog.New(slog.DiscardHandler))
	l.Bucket, l.Path, l.Owner, l.TTL = p.bucket, key, name, s.ttl
	l.SetClient(p.client)
	return theirs{l, s}
}

// acquire is the loop that a caller of AcquireLease writes. The error tells when the lease expires.
func (c theirs) acquire(ctx context.Context) (term, error) {
	for {
		lease, err := c.AcquireLease(ctx)
		if err == nil {
			return &theirTerm{c, lease}, nil
		}
		pause := c.s.poll
		if exists, ok := errors.AsType[*litestream.LeaseExistsError](err); ok && !exists.ExpiresAt.IsZero() {
			pause = time.Until(exists.ExpiresAt)
		}
		if err := wait(ctx, c.s.jittered(pause)); err != nil {
			return nil, err
		}
	}
}

func (l *theirTerm) renew(ctx context.Context) error {
	lease, err := l.RenewLease(ctx, l.lease)
	if err == nil {
		l.lease = lease
	}
	return err
}

func (l *theirTerm) release(ctx context.Context) error { return l.ReleaseLease(ctx, l.lease) }
func (*theirTerm) crash()                              {}

// client-go

type clientGo struct {
	lock *bucketLock
	s    settings
}

func newClientGo(_ *testing.T, p *place, key, name string, s settings) candidate {
	return &clientGo{&bucketLock{
		store: newMortal(leasehold.NewS3Store(p.client, p.bucket)),
		key:   key,
		name:  name,
	}, s}
}

type clientGoTerm struct {
	lock   *bucketLock
	cancel context.CancelFunc
	ended  chan struct{}
}

func (c *clientGo) acquire(ctx context.Context) (term, error) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	led := make(chan struct{})
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		// client-go waits for 1 to 2.2 retry periods, 1.6 on average.
		Lock: c.lock, LeaseDuration: c.s.ttl, RenewDeadline: c.s.ttl * 2 / 3, RetryPeriod: c.s.poll * 10 / 16,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(led) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	l := &clientGoTerm{c.lock, cancel, make(chan struct{})}
	go func() {
		defer close(l.ended)
		e.Run(running)
	}()
	select {
	case <-led:
		return l, nil
	case <-ctx.Done():
		cancel()
		<-l.ended
		return nil, ctx.Err()
	}
}

func (*clientGoTerm) renew(context.Context) error { return errors.New("renews by itself") }

func (l *clientGoTerm) release(context.Context) error {
	l.cancel()
	<-l.ended
	return nil
}

func (l *clientGoTerm) crash() {
	l.lock.store.dead.Store(true)
	l.cancel()
	<-l.ended
}

func (l *clientGoTerm) written() time.Time { return l.lock.store.written() }

func (l *clientGoTerm) lost() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// bucketLock is a minimal resourcelock.Interface for client-go's elector.
type bucketLock struct {
	store     *mortal
	key, name string
	etag      string
}

func (b *bucketLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	o, err := b.store.Get(ctx, b.key)
	if errors.Is(err, leasehold.ErrNotExist) {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "locks"}, b.key)
	}
	if err != nil {
		return nil, nil, err
	}
	b.etag = o.ETag
	var record resourcelock.LeaderElectionRecord
	return &record, o.Body, json.Unmarshal(o.Body, &record)
}

func (b *bucketLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return b.put(record, func(body []byte) (string, error) { return b.store.PutIfNoneMatch(ctx, b.key, body) })
}

func (b *bucketLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return b.put(record, func(body []byte) (string, error) { return b.store.PutIfMatch(ctx, b.key, body, b.etag) })
}

func (b *bucketLock) put(record resourcelock.LeaderElectionRecord, send func([]byte) (string, error)) error {
	// The record's times are in whole seconds, so two versions could otherwise have the same ETag.
	body, err := json.Marshal(struct {
		resourcelock.LeaderElectionRecord
		Written int64
	}{record, time.Now().UnixNano()})
	if err != nil {
		return err
	}
	etag, err := send(body)
	if err == nil {
		b.etag = etag
	}
	return err
}

func (*bucketLock) RecordEvent(string)               {}
func (b *bucketLock) Identity() string               { return b.name }
func (b *bucketLock) Describe() string               { return b.key }
func (*bucketLock) GetObjectKind() schema.ObjectKind { return &metav1.TypeMeta{} }
func (b *bucketLock) DeepCopyObject() runtime.Object { return nil }

// etcd

type etcd struct {
	session *concurrency.Session
	client  *clientv3.Client
	key     string
	name    string
	s       settings
	mutex   bool
}

type etcdTerm struct {
	*etcd
	session  *concurrency.Session
	election *concurrency.Election
	mutex    *concurrency.Mutex
}

func newEtcdElection(t *testing.T, p *place, key, name string, s settings) candidate {
	return newEtcd(t, p, key, name, s, false)
}

func newEtcdMutex(t *testing.T, p *place, key, name string, s settings) candidate {
	return newEtcd(t, p, key, name, s, true)
}

func newEtcd(t *testing.T, p *place, key, name string, s settings, mutex bool) candidate {
	c := &etcd{client: p.etcd, key: "/" + key, name: name, s: s, mutex: mutex}
	require.NoError(t, c.connect())
	t.Cleanup(c.session.Orphan) // its lease expires by itself
	return c
}

func (c *etcd) connect() (err error) {
	c.session, err = concurrency.NewSession(c.client, concurrency.WithTTL(int(c.s.ttl/time.Second)))
	return err
}

func (c *etcd) acquire(ctx context.Context) (term, error) {
	l := &etcdTerm{etcd: c, session: c.session}
	if c.mutex {
		l.mutex = concurrency.NewMutex(c.session, c.key)
		return l, l.mutex.Lock(ctx)
	}
	l.election = concurrency.NewElection(c.session, c.key)
	return l, l.election.Campaign(ctx, c.name)
}

func (l *etcdTerm) renew(ctx context.Context) error {
	_, err := l.client.KeepAliveOnce(ctx, l.session.Lease())
	return err
}

func (l *etcdTerm) release(ctx context.Context) error {
	if l.mutex != nil {
		return l.mutex.Unlock(ctx)
	}
	return l.election.Resign(ctx)
}

// crash stops the keepalives. The lease has just been renewed, by the grant or by hand.
func (l *etcdTerm) crash() { l.session.Orphan() }

// raw sends the bare requests of the SDK, which are the lower limit.
type raw struct {
	p    *place
	key  string
	body []byte
	etag *string
}

func newRaw(t *testing.T, p *place, key string) *raw {
	r := &raw{
		p:   p,
		key: key,
		body: fmt.Appendf(nil, `{"expires_at": %d, "token": 7, "holder": "somebody", "ttl": 15, `+
			`"nonce": "0123456789abcdef", "pad": "%060d"}`, time.Now().Unix(), 0),
	}
	require.NoError(t, r.put(t.Context()))
	return r
}

// put is conditional from the second call on. Bodies differ, so that ETags do, too.
func (r *raw) put(ctx context.Context) error {
	copy(r.body[len(r.body)-22:], fmt.Sprintf("%020d", time.Now().UnixNano()))
	out, err := r.p.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:  &r.p.bucket,
		Key:     &r.key,
		Body:    bytes.NewReader(r.body),
		IfMatch: r.etag,
	})
	if err != nil {
		return err
	}
	r.etag = out.ETag
	return nil
}

func (r *raw) get(ctx context.Context) error {
	out, err := r.p.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &r.p.bucket, Key: &r.key})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, out.Body)
	return errors.Join(err, out.Body.Close())
}

// refused reports whether the store has refused a conditional write.
func refused(err error) bool {
	status, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err)
	return ok && (status.HTTPStatusCode() == http.StatusPreconditionFailed ||
		status.HTTPStatusCode() == http.StatusConflict)
}
