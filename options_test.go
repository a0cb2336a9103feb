package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

func TestANilLoggerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := logged(t, func() {
			e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore(),
				leasehold.WithLogger(slog.New(slog.DiscardHandler))), leasehold.Callbacks{
				OnStartedLeading: func(context.Context, *leasehold.Lease) { panic("boom") },
			})
			require.NoError(t, err)
			require.Panics(t, func() { _ = e.Run(t.Context()) })
		})
		require.Empty(t, text)
	})
}

// The mistakes of a newcomer that NewLock can know of: each is told before any request, with its
// cause and its cure.
func TestMistakesThatAreToldAtOnce(t *testing.T) {
	mem := leasehold.NewMemStore()
	s3 := teststore.New(mem, nil) // with the least TTL of any that has no MinTTL
	misconfigured := teststore.New(mem, nil)
	misconfigured.Info.Err = errors.New("the bucket has no name")
	for says, mistake := range map[string]struct {
		store leasehold.Store
		opt   leasehold.Option
	}{
		"store is nil":           {nil, nil},
		"the bucket has no name": {misconfigured, nil},
		"an Option is nil":       {mem, leasehold.Option(nil)},
		"TTL 0s is below 1s":     {s3, leasehold.WithTTL(0)},
		"TTL 0s is below 1ms":    {mem, leasehold.WithTTL(0)},
		"write 15*time.Second":   {s3, leasehold.WithTTL(15)},
		"TTL 16ns is below 1ms":  {mem, leasehold.WithTTL(16)},
		"TTL 17ns is below 1ms":  {newFaultStore(mem), leasehold.WithTTL(17)}, // a store whose MinTTL is 0
		"renew interval 0s is below 333.333333ms, a third of the minimum TTL": {s3, leasehold.WithRenewInterval(0)},
		"renew interval 5ns":                     {s3, leasehold.WithRenewInterval(5)},
		"poll interval 0s is below 50ms":         {s3, leasehold.WithPollInterval(0)},
		"poll interval 3ns is below 50ms":        {s3, leasehold.WithPollInterval(3)},
		"write 4*time.Second":                    {s3, leasehold.WithPollInterval(4)},
		"safety margin 0s is below 10ms":         {s3, leasehold.WithSafetyMargin(0)},
		"safety margin -1s is below 10ms":        {s3, leasehold.WithSafetyMargin(-time.Second)},
		"safety margin 3ns is below 10ms":        {s3, leasehold.WithSafetyMargin(3)},
		"skew allowance 5ns is neither 0":        {s3, leasehold.WithSkewAllowance(5)},
		"safety margin 15s is not below the TTL": {s3, leasehold.WithSafetyMargin(15 * time.Second)},
		"WithHolder: the name is empty":          {s3, leasehold.WithHolder("")},
		"WithReclaim needs WithHolder":           {s3, leasehold.WithReclaim()},
		"metadata of 49172 bytes as JSON exceeds": {s3,
			leasehold.WithMetadata(map[string]string{"k": strings.Repeat("\x00", 8<<10)})},
	} {
		var opts []leasehold.Option
		if mistake.opt != nil || says == "an Option is nil" {
			opts = append(opts, mistake.opt)
		}
		_, err := leasehold.NewLock(mistake.store, key, opts...)
		require.ErrorContains(t, err, says)
		require.Regexp(t, `^leasehold: `, err.Error())
		require.Equal(t, 1, strings.Count(err.Error(), "leasehold: "), err.Error())
	}
}

// Durations whose sums and products would overflow.
func TestDurationsOverTenYearsAreRefused(t *testing.T) {
	const longest = 87_600 * time.Hour
	for what, opt := range map[string]func(time.Duration) leasehold.Option{
		"TTL": leasehold.WithTTL, "renew interval": leasehold.WithRenewInterval,
		"poll interval": leasehold.WithPollInterval,
		"safety margin": leasehold.WithSafetyMargin, "skew allowance": leasehold.WithSkewAllowance,
	} {
		for _, d := range []time.Duration{longest + 1, 33 * (longest / 10), 97 * (longest / 10), math.MaxInt64} {
			_, err := leasehold.NewLock(leasehold.NewMemStore(), key, opt(d))
			require.EqualError(t, err, fmt.Sprintf("leasehold: %s %v exceeds ten years (%v)", what, d, longest))
		}
	}
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		all := []leasehold.Option{leasehold.WithTTL(longest), leasehold.WithPollInterval(longest),
			leasehold.WithSkewAllowance(longest)}
		l := newLock(t, process(store), all...)
		lease := acquire(t, l)
		before := lease.Deadline()
		time.Sleep(longest / 2)
		require.Greater(t, lease.Deadline(), before, "it renews")
		waiting := process(store)
		candidate := newLock(t, waiting, all...)
		var done sync.WaitGroup
		done.Go(func() {
			next, err := candidate.Acquire(t.Context())
			if err == nil {
				err = next.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
		time.Sleep(longest / 2)
		require.Less(t, len(waiting.count()), 15)
		require.NoError(t, lease.Release(t.Context()))
		done.Wait()
	})
}

// A nil pointer in an interface is not a nil interface.
func TestStoresThatAreNilPointers(t *testing.T) {
	for says, store := range map[string]leasehold.Store{
		"*leasehold.S3Store":         (*leasehold.S3Store)(nil),
		"*leasehold_test.faultStore": (*faultStore)(nil),
		"store is nil":               nil,
	} {
		_, err := leasehold.NewLock(store, key)
		require.ErrorContains(t, err, says)
		_, err = leasehold.CheckStore(t.Context(), store, key)
		require.ErrorContains(t, err, says)
	}
}
