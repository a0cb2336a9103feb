package storehttp_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/storehttp"
)

func TestAnAgeThatCannotBeIsUnknown(t *testing.T) {
	now := time.Date(2026, 10, 6, 12, 0, 10, 0, time.UTC)
	for name, c := range map[string]struct {
		now, written time.Time
		age          time.Duration
	}{
		"ten seconds":           {now, now.Add(-10 * time.Second), 8 * time.Second},
		"less than the slack":   {now, now.Add(-time.Second), 0},
		"in the future":         {now, now.Add(time.Hour), 0},
		"in the year 9999":      {now, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), 0},
		"now in the year 9999":  {time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), now, 0},
		"at the epoch":          {now, time.Unix(0, 0), 0},
		"at no time":            {now, time.Time{}, 0},
		"and it is now at none": {time.Time{}, now, 0},
	} {
		require.Equal(t, c.age, storehttp.Age(c.now, c.written, 2*time.Second), name)
	}
}
