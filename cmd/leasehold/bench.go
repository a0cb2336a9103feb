package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

func (a *app) bench() *cobra.Command {
	var rounds int
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "bench [flags] URL",
		Short: "Measure the speed of a lock in a bucket",
		Long: `Takes, renews and releases a lock with the key KEY` + benchSuffix + `, where KEY is the key in the URL.
Shows the median and the worst time of each operation, and the requests that it sent on average, as
the server gets them. In a directory, they are calls of the store. The lock KEY is neither read nor
written.

Then it measures one takeover: a holder renews its lease for two TTLs and stops at a random moment. A
candidate that has watched the lock takes over. The time is from before the last renewal to the
candidate's lease. REQUESTS are the candidate's.

Requests cost money: 4 for each round, and about 35 for the takeover and the rest. On Cloud Storage,
bench waits a second before each write, because an object there takes one write a second. The object
is removed at the end. Without the permission to delete it stays, and the next bench uses it again.`,
		Example:           `  leasehold bench --rounds 100 s3://bucket/locks/report`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: keys,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if rounds < 1 {
				return exit.Errorf(exit.Usage, "--rounds %d is below 1", rounds)
			}
			return a.measure(ctx, args[0], rounds, ttl)
		}),
	}
	cmd.Flags().IntVar(&rounds, "rounds", 20, "number of times to acquire, renew and release")
	cmd.Flags().DurationVar(&ttl, "ttl", 6*time.Second, "TTL of the measured lock; the takeover takes about three "+
		"TTLs")
	return cmd
}

const (
	benchSuffix  = "-bench"
	benchPurpose = "leasehold bench" // in the metadata of the record, so that no other object is overwritten or removed
	benchPause   = time.Second       // between two writes, where a store accepts no more of one object
)

// benched is one row of the result.
type benched struct {
	Operation string  `json:"operation"`
	Rounds    int     `json:"rounds,omitempty"`
	Median    float64 `json:"median_seconds,omitempty"`
	Worst     float64 `json:"worst_seconds,omitempty"`
	TTLs      float64 `json:"worst_ttls,omitempty"` // the worst time in TTLs
	Requests  float64 `json:"requests"`             // of one round, on average
}

const benchHeader = "OPERATION\tROUNDS\tMEDIAN\tWORST\tREQUESTS"

func (b benched) cells() []string {
	if b.Rounds == 0 {
		return []string{b.Operation, "-", "-", "-", fmt.Sprintf("%.0f", b.Requests)}
	}
	ttls := ""
	if b.TTLs > 0 {
		ttls = fmt.Sprintf(" (%.2f TTL)", b.TTLs)
	}
	return []string{
		b.Operation, strconv.Itoa(b.Rounds), rounded(b.Median).String(), rounded(b.Worst).String() + ttls,
		strconv.FormatFloat(b.Requests, 'g', 3, 64),
	}
}

// rounded is a time with what matters of it.
func rounded(seconds float64) time.Duration {
	d := time.Duration(seconds * float64(time.Second))
	for unit := time.Second; unit > time.Microsecond; unit /= 10 {
		if d >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}

// timings are the times of one operation.
type timings struct {
	operation string
	took      []time.Duration
	requests  int64
}

// time measures one round.
func (t *timings) time(b *place.Store, f func() error) error {
	before, began := b.Requests.Load(), time.Now()
	err := f()
	t.took = append(t.took, time.Since(began))
	t.requests += b.Requests.Load() - before
	return err
}

func (t *timings) row() benched {
	slices.Sort(t.took)
	n := len(t.took)
	median := (t.took[(n-1)/2] + t.took[n/2]) / 2
	return benched{
		Operation: t.operation, Rounds: n, Median: median.Seconds(), Worst: t.took[n-1].Seconds(),
		Requests: float64(t.requests) / float64(n),
	}
}

func (a *app) measure(ctx context.Context, url string, rounds int, ttl time.Duration) error {
	at, err := place.ParseLock(url)
	if err != nil {
		return err
	}
	at.Key += benchSuffix
	if err := at.CheckKey(); err != nil {
		return exit.Errorf(exit.Usage, "bench has no key for its lock: %w", err)
	}
	signals := make(chan os.Signal, 16)
	guard.Catch(signals, guard.ToGroup)
	ctx, stop := untilSignal(ctx, signals)
	defer stop()
	b := &bench{app: a, at: at, ttl: ttl}
	if b.store, err = at.Open(ctx); err != nil {
		return err
	}
	defer b.store.Close()
	if b.other, err = at.Open(ctx); err != nil {
		return err
	}
	defer b.other.Close()
	rows, err := b.run(ctx, rounds)
	if ended, ok := errors.AsType[exit.Interrupted](context.Cause(ctx)); ok {
		return ended
	}
	if errors.Is(err, leasehold.ErrLost) {
		return exit.Errorf(exit.Store, "%w (the store is too slow for a TTL of %v, so try a longer --ttl)", err, ttl)
	}
	if err != nil {
		return err
	}
	table := a.table(benchHeader)
	for _, row := range rows {
		table.add(row, row.cells()...)
	}
	return table.close()
}

// bench is one run of the command.
type bench struct {
	app          *app
	at           place.Location // of the bench's lock
	ttl          time.Duration
	store, other *place.Store // the same, as two processes see it
}

func (b *bench) run(ctx context.Context, rounds int) (rows []benched, err error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	defer func() {
		kept := b.remove(context.WithoutCancel(ctx))
		if kept != nil {
			b.app.log.Warn("removing the object of the bench failed", "key", b.at.Key, "err", kept,
				"effect", "the next bench uses it")
		}
		rows = append(rows, benched{
			Operation: "in all",
			Requests:  float64(b.store.Requests.Load() + b.other.Requests.Load()),
		})
	}()
	steps := []*timings{{operation: "acquire"}, {operation: "renew"}, {operation: "release"}}
	for range rounds {
		if err := b.round(ctx, steps); err != nil {
			return nil, err
		}
	}
	for _, s := range steps {
		rows = append(rows, s.row())
	}
	takeover, err := b.takeOver(ctx)
	return append(rows, takeover), err
}

// lock makes a lock as a separate process would.
func (b *bench) lock(store *place.Store, more ...leasehold.Option) (*leasehold.Lock, error) {
	return newLock(store, b.at.Key, append(more, leasehold.WithTTL(b.ttl),
		leasehold.WithLogger(slog.New(slog.DiscardHandler)),
		leasehold.WithMetadata(map[string]string{"purpose": benchPurpose})))
}

// begin takes the lock for the first time, and refuses a lock that is not a bench's. It also opens
// the connections, which is not measured.
func (b *bench) begin(ctx context.Context) error {
	lock, err := b.lock(b.store)
	if err != nil {
		return err
	}
	for _, store := range []*place.Store{b.other, b.store} {
		look, err := b.lock(store)
		if err != nil {
			return err
		}
		record, err := look.Inspect(ctx)
		switch {
		case errors.Is(err, leasehold.ErrNotExist):
		case err != nil:
			return err
		case record.Metadata["purpose"] != benchPurpose:
			return exit.Errorf(exit.Config, "the object %q is a lock, but not a lock of bench (give another URL)",
				b.at.Key)
		}
	}
	first := campaign{noWait: true} // but it waits for the lease of a bench that was killed
	lease, err := acquire(ctx, &first, b.app, lock.Key(), lock)
	if err != nil {
		return err
	}
	return cmp.Or(b.pause(ctx), lease.Release(ctx))
}

// round is one lease, of a process that knows nothing of the lock yet.
func (b *bench) round(ctx context.Context, steps []*timings) error {
	lock, err := b.lock(b.store, leasehold.WithManualRenewal())
	if err != nil {
		return err
	}
	var lease *leasehold.Lease
	for i, step := range []func() error{
		func() (err error) { lease, err = lock.TryAcquire(ctx); return err },
		func() error { return lease.Renew(ctx) },
		func() error { return lease.Release(ctx) },
	} {
		if err = b.pause(ctx); err == nil {
			err = steps[i].time(b.store, step)
		}
		if err != nil {
			if lease != nil {
				_ = lease.Release(ctx)
			}
			return err
		}
	}
	return nil
}

// takeOver measures how long the lock has no holder after its holder has crashed.
func (b *bench) takeOver(ctx context.Context) (row benched, err error) {
	holder, err := b.lock(b.store)
	if err != nil {
		return row, err
	}
	next, err := b.lock(b.other)
	if err != nil {
		return row, err
	}
	if err := b.pause(ctx); err != nil {
		return row, err
	}
	dying, err := holder.TryAcquire(ctx)
	if err != nil {
		return row, err
	}
	defer func() {
		if err != nil { // so that nothing of it is left
			_ = dying.Release(ctx)
		}
	}()
	type acquired struct {
		lease *leasehold.Lease
		err   error
	}
	leads := make(chan acquired, 1)
	waiting, cancel := context.WithTimeout(ctx, 6*b.ttl)
	defer cancel()
	before := b.other.Requests.Load()
	go func() {
		lease, err := next.Acquire(waiting)
		leads <- acquired{lease, err}
	}()
	select {
	case <-time.After(2*b.ttl + rand.N(b.ttl/3)):
	case <-dying.Context().Done():
		cancel()
	case <-waiting.Done():
	}
	lost := context.Cause(dying.Context())
	dying.Abandon()
	got := <-leads
	took := timings{"take over", []time.Duration{time.Since(dying.Record().RenewedAt)},
		b.other.Requests.Load() - before}
	if got.err == nil {
		got.err = got.lease.Release(ctx)
	}
	row = took.row()
	row.TTLs = row.Worst / b.ttl.Seconds()
	return row, cmp.Or(lost, got.err)
}

// pause waits between the writes of a bench where the store accepts only one at a time.
func (b *bench) pause(ctx context.Context) error {
	if b.at.Scheme != "gs" {
		return ctx.Err()
	}
	select {
	case <-time.After(benchPause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// remove removes the object of the bench, unless another bench has taken it since.
func (b *bench) remove(ctx context.Context) error {
	o, err := b.store.Get(ctx, b.at.Key)
	if errors.Is(err, leasehold.ErrNotExist) {
		return nil
	}
	var record leasehold.Record
	if err == nil {
		err = record.UnmarshalJSON(o.Body)
	}
	switch {
	case err != nil:
		return err
	case record.Metadata["purpose"] != benchPurpose || !record.Released():
		return errors.New("another bench has taken it")
	}
	return b.store.DeleteIfMatch(ctx, b.at.Key, o.ETag)
}
