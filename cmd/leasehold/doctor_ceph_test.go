package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

func TestDoctorOnCeph(t *testing.T) {
	server := testserver.Radosgw(t)
	b := bucket{t, server, server.Bucket(t)}
	doctor(t, 0, b.command("doctor", b.url("locks/report"))).finds("etag", "ok", "taken only without quotes", "")
	require.Equal(t, 3, b.run("run", "-n", "--ttl", "6s", b.url("locks/report"), "--", "sh", "-c",
		"sleep 8; exit 3").code)
}
