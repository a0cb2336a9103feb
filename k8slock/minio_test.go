package k8slock_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// lease is short, but leaves a slow machine two seconds for a request.
const lease = 6 * time.Second

// behind returns a store with its own connection to the server, through a proxy with faults. decide
// may be nil.
func behind(t *testing.T, server testserver.S3, bucket string,
	decide func(*http.Request) faultproxy.Fault) (leasehold.Store, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.Start(t, server.Endpoint, decide)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	client := server.Client(func(o *s3.Options) {
		o.BaseEndpoint = aws.String(proxy.URL())
		o.HTTPClient = &http.Client{Transport: base}
	})
	return leasehold.NewS3Store(client, bucket), proxy
}

func TestElectionThroughABucket(t *testing.T) {
	t.Parallel()
	server := testserver.MinIO(t)
	bucket, ref := server.Bucket(t), &referee{t: t}
	type member struct {
		*candidate
		cut *atomic.Bool
	}
	join := func(name string) member {
		cut := new(atomic.Bool)
		store, _ := behind(t, server, bucket, func(*http.Request) faultproxy.Fault {
			if cut.Load() {
				return faultproxy.Fault{Kind: faultproxy.Refuse}
			}
			return faultproxy.Fault{}
		})
		return member{stand(t, ref, name, newLock(t, store, lease)), cut}
	}
	members := []member{join("a"), join("b"), join("c")}
	leader := func(within time.Duration) (member, uint64) {
		var all []*candidate
		for _, m := range members {
			all = append(all, m.candidate)
		}
		c, token := next(t, within, all...)
		for _, m := range members {
			if m.candidate == c {
				return m, token
			}
		}
		panic("unreachable")
	}
	for round := range 4 {
		began := time.Now()
		m, token := leader(5 * lease)
		require.EqualValues(t, round+1, token)
		t.Logf("round %d: %s leads after %v", round, ref.terms[round], time.Since(began).Round(time.Millisecond))
		require.Eventually(t, func() bool {
			return m.lock.Lease().Record().RenewedAt.After(m.lock.Lease().Record().AcquiredAt)
		},
			lease, lease/100, "renewed")
		require.Equal(t, token, m.lock.Token())
		if round%2 == 0 {
			m.stop() // releases
		} else {
			m.cut.Store(true) // to the others it is dead
		}
		receive(t, m.ended, lease, "the end of leading")
		if round%2 == 1 {
			receive(t, m.stopped, 3*lease, "the elector's own end")
		}
		members = append(members, join(fmt.Sprint("d", round)))
	}
}

// lossy applies the fault to the nth writes of a candidate, counted from 1.
func lossy(fault faultproxy.Fault, nth ...int64) func(*http.Request) faultproxy.Fault {
	var writes atomic.Int64
	return func(r *http.Request) faultproxy.Fault {
		if r.Method == http.MethodPut {
			n := writes.Add(1)
			for _, i := range nth {
				if n == i {
					return fault
				}
			}
		}
		return faultproxy.Fault{}
	}
}

func TestRepliesThatAreLost(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault faultproxy.Fault
	}{
		{"dropped", faultproxy.Fault{Kind: faultproxy.DropReply}},
		{"500", faultproxy.Fault{Kind: faultproxy.AnswerAfter, Status: 500}},
		{"412 to its own write", faultproxy.Fault{Kind: faultproxy.AnswerAfter, Status: 412}},
		{"409", faultproxy.Fault{Kind: faultproxy.Answer, Status: 409}},
		{"ghost", faultproxy.Fault{Kind: faultproxy.Ghost, Before: 100 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testserver.MinIO(t)
			ref := &referee{t: t}
			store, proxy := behind(t, server, server.Bucket(t), lossy(c.fault, 1, 3, 5))
			pod := stand(t, ref, "pod", newLock(t, store, lease))
			_, token := next(t, 2*lease, pod)
			require.Eventually(t, func() bool { return proxy.Count(http.MethodPut) >= 7 }, 4*lease, lease/100)
			require.Equal(t, token, pod.lock.Token(), "client-go noticed nothing")
			require.Empty(t, pod.ended)
			pod.stop()
			receive(t, pod.stopped, lease, "the elector's end")
			require.Len(t, ref.terms, 1)
			rec, err := inspect(t, store)
			require.NoError(t, err)
			require.True(t, rec.Released())
			require.Equal(t, token, rec.Token)
			if c.name != "ghost" && c.name != "409" { // resolved at once, by one read
				require.EqualValues(t, 1, token)
			}
		})
	}
}

// TestGhostIsAdopted lets the first acquisition land after client-go was told that it failed.
func TestGhostIsAdopted(t *testing.T) {
	t.Parallel()
	server := testserver.MinIO(t)
	ref := &referee{t: t}
	store, proxy := behind(t, server, server.Bucket(t), lossy(faultproxy.Fault{
		Kind:   faultproxy.Ghost,
		Before: 1500 * time.Millisecond,
	}, 1))
	lock := newLock(t, store, lease)
	began := time.Now()
	_, token := next(t, 2*lease, stand(t, ref, "pod", lock))
	took := time.Since(began)
	t.Logf("leads with token %d after %v", token, took.Round(time.Millisecond))
	require.Less(t, took, lease, "it must not wait for its own late write to expire")
	proxy.Wait()
	require.Eventually(t, func() bool {
		return lock.Lease().Record().RenewedAt.After(lock.Lease().Record().AcquiredAt)
	}, lease, lease/100)
	require.Equal(t, token, lock.Token())
}

func TestMissingBucketIsReported(t *testing.T) {
	t.Parallel()
	server := testserver.MinIO(t)
	store, _ := behind(t, server, "no-such-bucket-here", nil)
	lock := newLock(t, store, lease)
	err := lock.Create(t.Context(), asked(lock, lease))
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, "create the bucket")
	server.SecretKey = "wrong"
	store, _ = behind(t, server, "no-such-bucket-here", nil)
	_, _, err = newLock(t, store, lease).Get(t.Context())
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, "wrong secret key")
}

func inspect(t *testing.T, store leasehold.Store) (leasehold.Record, error) {
	t.Helper()
	lock, err := leasehold.NewLock(store, key)
	require.NoError(t, err)
	return lock.Inspect(t.Context())
}
