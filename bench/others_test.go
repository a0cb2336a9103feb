package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// otherServers are those of the peers that do not lock in a bucket, by their addresses. Redis and
// PostgreSQL have none where they are not installed.
type otherServers struct {
	etcd, redis, postgres string
	versions              []report.Version
}

func startOthers(t *testing.T) otherServers {
	t.Helper()
	o := otherServers{etcd: startEtcd(t)}
	for _, s := range []struct {
		name   string
		start  func(testing.TB) (testserver.Database, error)
		addr   *string
		client string // the module of its peer
	}{
		{report.OnRedis, testserver.StartRedis, &o.redis, "github.com/bsm/redislock"},
		{report.OnPostgres, testserver.StartPostgres, &o.postgres, "github.com/jackc/pgx/v5"},
	} {
		server, err := s.start(t)
		if err != nil {
			_, _ = fmt.Fprintf(os.Stderr, "bench: NOT RUN: %s: %v\n", s.name, err)
			continue
		}
		*s.addr = server.Addr
		o.versions = append(o.versions, report.Version{Name: s.name, Version: server.Version},
			report.Version{Name: s.client, Version: moduleVersion(t, s.client)})
	}
	return o
}

// noteVersions adds those of the servers and of their peers to what a run describes.
func (o otherServers) noteVersions(d *report.Data) {
	for _, v := range o.versions {
		d.Versions = slices.DeleteFunc(d.Versions, func(old report.Version) bool { return old.Name == v.Name })
		d.Versions = append(d.Versions, v)
	}
}

// reach lets a place use the servers, through what by makes of their addresses.
func (o otherServers) reach(t *testing.T, p *place, by func(addr string) string) {
	t.Helper()
	p.etcd = newEtcdClient(t, by(o.etcd))
	if o.redis != "" {
		p.redis = redis.NewClient(&redis.Options{Addr: by(o.redis), PoolSize: 256})
		t.Cleanup(func() { _ = p.redis.Close() })
	}
	if o.postgres != "" {
		p.postgres = by(o.postgres)
	}
}

// redislock

type redisLock struct {
	client *redislock.Client
	key    string
	s      settings
}

type redisTerm struct {
	*redislock.Lock
	s settings
}

func newRedislock(_ *testing.T, p *place, key, _ string, s settings) candidate {
	return redisLock{redislock.New(p.redis), key, s}
}

// retries is a strategy of redislock with the same jitter as that of the others.
type retries settings

func (s retries) NextBackoff() time.Duration { return settings(s).jittered(s.poll) }

func (c redisLock) acquire(ctx context.Context) (term, error) {
	lock, err := c.client.Obtain(ctx, c.key, c.s.ttl, &redislock.Options{RetryStrategy: retries(c.s)})
	return redisTerm{lock, c.s}, err
}

func (l redisTerm) renew(ctx context.Context) error   { return l.Refresh(ctx, l.s.ttl, nil) }
func (l redisTerm) release(ctx context.Context) error { return l.Release(ctx) }
func (redisTerm) crash()                              {}

// PostgreSQL's advisory locks

type advisory struct {
	p   *place
	key string
}

// session is a lock that ends with its connection.
type session struct {
	*pgx.Conn
	key string
}

// connectPostgres returns a connection that needs one round trip for each query.
func (p *place) connectPostgres(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, "postgres://postgres@"+p.postgres+
		"/postgres?sslmode=disable&default_query_exec_mode=exec")
}

func newAdvisory(_ *testing.T, p *place, key, _ string, _ settings) candidate {
	return advisory{p, key}
}

func (c advisory) acquire(ctx context.Context) (term, error) {
	conn, err := c.p.connectPostgres(ctx)
	if err != nil {
		return nil, err
	}
	l := session{conn, c.key}
	if _, err = conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", c.key); err != nil {
		l.crash()
	}
	return l, err
}

func (l session) renew(ctx context.Context) error { return l.Ping(ctx) }

// release also ends the connection, after its return.
func (l session) release(ctx context.Context) error {
	_, err := l.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", l.key)
	go l.crash()
	return err
}

// crash closes the connection as the kernel does for a process that was killed.
func (l session) crash() { _ = l.PgConn().Conn().Close() }
