package fenced_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

func ExampleStore() {
	ctx := context.Background()
	files, err := fenced.NewS3Store(fakes3.NewClient(fakes3.Transport{Handler: &fakes3.Server{}}),
		fakes3.Bucket, fenced.PaddedBodies)
	if err != nil {
		fmt.Println(err)
		return
	}
	former, leader := uint64(1), uint64(2) // of their leases

	fmt.Println(files.Put(ctx, former, "report", strings.NewReader("of the former leader")))
	fmt.Println(files.Seal(ctx, leader, "report")) // before reading
	fmt.Println(files.Put(ctx, former, "report", strings.NewReader("late")))
	o, err := files.Get(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer o.Body.Close()
	body, err := io.ReadAll(o.Body)
	fmt.Printf("%s, sealed by %d, %v\n", body, o.Token, err)
	// Output:
	// <nil>
	// <nil>
	// leasehold: fenced off by a newer token: "report": token 1, seen 2
	// of the former leader, sealed by 2, <nil>
}

func ExampleFence() {
	var fence leasehold.Fence // kept with the resource
	fmt.Println(fence.Check(33))
	fmt.Println(fence.Check(34)) // the next leader
	fmt.Println(errors.Is(fence.Check(33), leasehold.ErrFenced))
	// Output:
	// <nil>
	// <nil>
	// true
}
