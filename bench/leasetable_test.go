package bench

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// The lease table is the algorithm of Amazon's Kinesis Client Library (KCL) 1 and 2, as one would bring it to a bucket. Each shard has
// an object with its owner and a counter, which the owner raises at each renewal. Every worker looks at all leases in intervals. It
// takes those that nobody owns or that were not renewed for the failover time, up to its fair share. If there are none and it has too
// few, it steals from the worker that has the most. After
// https://github.com/awslabs/amazon-kinesis-client/blob/master/docs/lease-lifecycle.md, and in that repository DynamoDBLeaseTaker.java
// (computeLeasesToTake, chooseLeasesToSteal), DynamoDBLeaseRenewer.java and DynamoDBLeaseCoordinator.java. The defaults are those of
// https://docs.aws.amazon.com/streams/latest/dev/kcl-configuration.html. In KCL 3 a leader assigns leases by the load of the workers.
//
// What is better here than in KCL: a scan reads only objects whose ETag has changed since the last one, takes are sent 64 at a time and
// not one after the other, a worker that leaves gives its leases back (asked for in issue 845 of that repository), and
// enablePriorityLeaseAssignment is off, by which a worker takes more than its share of leases that have been free for long.
type leaseTable struct {
	failover time.Duration
	renew    time.Duration // interval of the renewals
	scan     time.Duration // mean interval of the scans
	steal    int           // leases at one time: maxLeasesToStealAtOneTime
}

// bestLeaseTable scans as often as a member of package shards reads the plan.
var bestLeaseTable = leaseTable{failover: defaultTTL, renew: defaultRenew, scan: defaultPoll, steal: 1000}

// defaultLeaseTable has the intervals that KCL derives from the failover time, and steals as it does by default.
var defaultLeaseTable = leaseTable{
	failover: defaultTTL, renew: defaultRenew - kclEpsilon, scan: 2 * (defaultTTL + kclEpsilon), steal: 1,
}

const kclEpsilon = 25 * time.Millisecond // epsilonMillis

// row is the lease of a shard, as it stands in the bucket.
type row struct {
	Owner   string `json:"owner,omitempty"`
	Counter uint64 `json:"counter"`
}

// seenRow is a row as a worker has read or written it.
type seenRow struct {
	row
	etag  string
	since time.Time // of this counter
}

func (t leaseTable) expired(r seenRow) bool { return time.Since(r.since) >= t.failover }

// leaseWorker is one worker.
type leaseWorker struct {
	leaseTable
	name       string
	store      *link
	begin, end func(shard string) // of the processing of a shard
	table      map[string]seenRow // by shard, since the last scan; of the goroutine that scans

	mu    sync.Mutex
	owned map[string]seenRow // by shard
}

const leasePrefix = "leases/"

// createLeases makes the rows, as the first worker does.
func createLeases(ctx context.Context, store leasehold.Store, shards []string) error {
	for _, shard := range shards {
		body, _ := json.Marshal(row{})
		if _, err := store.PutIfNoneMatch(ctx, leasePrefix+shard, body); err != nil {
			return err
		}
	}
	return nil
}

// run works until ctx ends, and then gives the leases back.
func (t leaseTable) run(ctx context.Context, store *link, name string, begin, end func(shard string)) {
	w := &leaseWorker{
		leaseTable: t, name: name, store: store, begin: begin, end: end,
		table: make(map[string]seenRow), owned: make(map[string]seenRow),
	}
	var loops sync.WaitGroup
	loops.Go(func() {
		renewals := time.NewTicker(t.renew)
		defer renewals.Stop()
		for ctx.Err() == nil {
			w.renewAll(ctx)
			select {
			case <-renewals.C:
			case <-ctx.Done():
			}
		}
	})
	loops.Go(func() {
		for ctx.Err() == nil {
			if w.look(ctx) == nil {
				w.takeAll(ctx, w.choose())
			}
			_ = wait(ctx, time.Duration(float64(t.scan)*(0.9+0.2*rand.Float64())))
		}
	})
	loops.Wait()
	w.giveBack(ctx)
}

// put replaces the row of a shard that this worker has seen.
func (w *leaseWorker) put(ctx context.Context, shard, owner string, old seenRow) (seenRow, error) {
	r := row{Owner: owner, Counter: old.Counter + 1}
	body, err := json.Marshal(r)
	if err != nil {
		return seenRow{}, err
	}
	etag, err := w.store.PutIfMatch(ctx, leasePrefix+shard, body, old.etag)
	return seenRow{r, etag, time.Now()}, err
}

func (w *leaseWorker) mine() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]string, 0, len(w.owned))
	for shard := range w.owned {
		list = append(list, shard)
	}
	return list
}

func (w *leaseWorker) mineNow(shard string) (seenRow, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, found := w.owned[shard]
	return r, found
}

func (w *leaseWorker) keep(shard string, r seenRow) {
	w.mu.Lock()
	w.owned[shard] = r
	w.mu.Unlock()
}

// lose ends the processing of a shard.
func (w *leaseWorker) lose(shard string) {
	w.mu.Lock()
	delete(w.owned, shard)
	w.mu.Unlock()
	w.end(shard)
}

// renewAll renews all leases. So it learns, too, which ones were stolen.
func (w *leaseWorker) renewAll(ctx context.Context) {
	mine := w.mine()
	atOnce(inFlight, len(mine), func(i int) {
		shard := mine[i]
		r, _ := w.mineNow(shard)
		if w.expired(r) { // another worker may have it
			w.lose(shard)
			return
		}
		switch next, err := w.put(ctx, shard, w.name, r); {
		case err == nil:
			w.keep(shard, next)
		case errors.Is(err, leasehold.ErrPreconditionFailed):
			w.lose(shard)
		}
	})
}

// look lists the leases and reads those that have changed.
func (w *leaseWorker) look(ctx context.Context) error {
	etags, err := w.store.list(ctx, leasePrefix)
	if err != nil {
		return err
	}
	var changed []string
	for shard, etag := range etags {
		if _, mine := w.mineNow(shard); !mine && w.table[shard].etag != etag {
			changed = append(changed, shard)
		}
	}
	var mu sync.Mutex
	atOnce(inFlight, len(changed), func(i int) {
		obj, getErr := w.store.Get(ctx, leasePrefix+changed[i])
		var r row
		if getErr == nil {
			getErr = json.Unmarshal(obj.Body, &r)
		}
		mu.Lock()
		defer mu.Unlock()
		if getErr != nil {
			err = getErr
			return
		}
		w.table[changed[i]] = seenRow{r, obj.ETag, time.Now()}
	})
	return err
}

// choose returns the leases to take now.
func (w *leaseWorker) choose() []string {
	mine := 0
	held := map[string][]string{w.name: nil} // by worker, without its leases that have expired
	var free []string
	for shard, r := range w.table {
		_, ok := w.mineNow(shard)
		switch {
		case ok:
			mine++
		case r.etag == "": // it was this worker's until just now
		case r.Owner == "" || w.expired(r):
			free = append(free, shard)
		default:
			held[r.Owner] = append(held[r.Owner], shard)
		}
	}
	target := (len(w.table) + len(held) - 1) / len(held)
	need := target - mine
	if need <= 0 {
		return nil
	}
	if len(free) > 0 {
		return some(free, need)
	}
	var most []string
	for _, shards := range held {
		if len(shards) > len(most) {
			most = shards
		}
	}
	over := len(most) - target
	if over == 0 && need > 1 {
		over = 1
	}
	return some(most, max(min(need, over, w.steal), 0))
}

// some returns n of the list, or all if there are fewer.
func some(list []string, n int) []string {
	list = shuffled(list)
	return list[:min(n, len(list))]
}

func (w *leaseWorker) takeAll(ctx context.Context, shards []string) {
	atOnce(inFlight, len(shards), func(i int) {
		shard := shards[i]
		r, err := w.put(ctx, shard, w.name, w.table[shard])
		if err != nil {
			return // another worker was faster, or the owner has renewed it: at the next scan
		}
		w.keep(shard, r)
		w.begin(shard)
	})
	for _, shard := range shards {
		if _, ok := w.mineNow(shard); ok {
			w.table[shard] = seenRow{} // read it again when it is lost
		}
	}
}

// giveBack clears the owner of all leases of this worker.
func (w *leaseWorker) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.failover)
	defer cancel()
	mine := w.mine()
	rows := make([]seenRow, len(mine))
	for i, shard := range mine {
		rows[i], _ = w.mineNow(shard)
		w.lose(shard)
	}
	atOnce(inFlight, len(mine), func(i int) { _, _ = w.put(ctx, mine[i], "", rows[i]) })
}
