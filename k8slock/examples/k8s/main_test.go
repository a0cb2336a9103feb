package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/exampletest"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

func TestMain(m *testing.M) { exampletest.Main(main, m) }

func TestExample(t *testing.T) {
	server := testserver.MinIO(t)
	exampletest.Credentials(t, server)
	flags := []string{"-bucket", server.Bucket(t), "-endpoint", server.Endpoint, "-lease", "5s"}
	first := exampletest.Start(t, flags...)
	first.Says(t, "^leading with token 1")
	second := exampletest.Start(t, flags...)
	second.Says(t, "^leader: ")
	require.NoError(t, first.Kill()) // a real crash
	second.Says(t, "^leading with token 2")
	third := exampletest.Start(t, flags...)
	third.Says(t, "^leader: ")
	require.NoError(t, second.Signal(os.Interrupt))
	second.Says(t, "^stopped")
	third.Says(t, "^leading with token 3")
}
