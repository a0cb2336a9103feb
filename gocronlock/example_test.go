package gocronlock_test

import (
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gocronlock"
)

// The README has the first lines of schedule, and docs/integrations.md has scheduleOnLeader, word
// for word.

func schedule(store leasehold.Store, report func()) (gocron.Scheduler, error) {
	locker, err := gocronlock.NewLocker(store, "jobs", 30*time.Second) // half the shortest interval
	if err != nil {
		return nil, err
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return nil, err
	}
	_, err = scheduler.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(report), gocron.WithName("report"))
	return scheduler, err
}

func scheduleOnLeader(elector *leasehold.Elector) (gocron.Scheduler, error) {
	return gocron.NewScheduler(gocron.WithDistributedElector(gocronlock.NewElector(elector)))
}

func Example() {
	scheduler, err := schedule(leasehold.NewMemStore(), func() {})
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler.Start()
	defer scheduler.Shutdown()
	fmt.Println(scheduler.Jobs()[0].Name())
	// Output: report
}

func ExampleNewElector() {
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), "leaders/scheduler")
	if err != nil {
		fmt.Println(err)
		return
	}
	elector, err := leasehold.NewElector(lock, leasehold.Callbacks{}) // go elector.Run(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler, err := scheduleOnLeader(elector)
	fmt.Println(err)
	scheduler.Shutdown()
	// Output: <nil>
}
