package bench

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
)

// measureEndurance has ten leaders lead for a long time, with candidates that wait, while requests
// fail. Each lease that is lost is lost wrongly, because the leaders live.
func measureEndurance(t *testing.T, n size) (list []report.Endurance) {
	c := crash{failing: 0.01}
	for _, name := range []string{report.EnduresFailing, report.EnduresOutages} {
		synctest.Test(t, func(t *testing.T) {
			var outage atomic.Bool
			decide := c.decide(&outage)
			if name == report.EnduresOutages {
				decide = crash{}.decide(&outage)
			}
			var failed, renewals, lost, acquired atomic.Int64
			p, end := newVirtualPlace(func(r *http.Request) faultproxy.Fault {
				f := decide(r)
				if f.Kind != faultproxy.Pass {
					failed.Add(1)
				}
				return f
			})
			ctx := testctx.Within(t, n.endurance)
			var running sync.WaitGroup
			const leaders = 10
			for i := range 2 * leaders {
				lock, err := leasehold.NewLock(leasehold.NewS3Store(p.client, p.bucket),
					fmt.Sprint("endurance/", i%leaders), leasehold.WithLogger(slog.New(slog.DiscardHandler)),
					leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
						switch e.Kind {
						case leasehold.EventRenewed:
							renewals.Add(1)
						case leasehold.EventLost:
							lost.Add(1)
						case leasehold.EventAcquired:
							acquired.Add(1)
						}
					}))
				require.NoError(t, err)
				e, err := leasehold.NewElector(lock, leasehold.Callbacks{})
				require.NoError(t, err)
				running.Go(func() { _ = e.Run(ctx) })
				if i == leaders-1 {
					time.Sleep(time.Minute)
				}
			}
			if name == report.EnduresOutages {
				running.Go(func() {
					for wait(ctx, time.Minute+time.Duration(rand.Int64N(int64(time.Minute)))) == nil {
						outage.Store(true)
						time.Sleep(5 * time.Second)
						outage.Store(false)
					}
				})
			}
			running.Wait()
			end()
			require.GreaterOrEqual(t, acquired.Load(), int64(leaders))
			list = append(list, report.Endurance{
				Case: name, Hours: leaders * n.endurance.Hours(), Renewals: int(renewals.Load()),
				Failed: int(failed.Load()), Lost: int(lost.Load()),
			})
		})
	}
	return list
}
