package locktable_test

import (
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/createonly"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/locktest"
)

// A table needs nothing of a store that a lock does not need.
func TestOnTheStoresOfTheModule(t *testing.T) {
	client := fakes3.NewClient(fakes3.Transport{Handler: &fakes3.Server{}})
	creates := fakes3.NewClient(fakes3.Transport{Handler: &fakes3.Server{CreateOnly: true}})
	for name, store := range map[string]leasehold.Store{
		"memory":               leasehold.NewMemStore(),
		"directory":            leasehold.NewFileStore(t.TempDir()),
		"S3":                   leasehold.NewS3Store(client, fakes3.Bucket),
		"S3 that only creates": createonly.New(createonly.NewS3(creates, fakes3.Bucket)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Table(t, store)
		})
	}
}
