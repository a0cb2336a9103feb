package azblobstore_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/internal/testserver"
	"github.com/leasehold-go/leasehold/storetest"
)

// Azurite is a Node package: npm install -g azurite. Where it is not installed, the test is named in the file LEASEHOLD_SKIPPED,
// whose content is the last thing that make test says. If LEASEHOLD_NEEDS has the word azurite, the test fails instead.
func TestConformsOnAzurite(t *testing.T) {
	testserver.SkipIfShort(t)
	program, err := exec.LookPath("azurite-blob")
	if err != nil {
		if slices.Contains(strings.Fields(os.Getenv("LEASEHOLD_NEEDS")), "azurite") {
			t.Fatalf("needs Azurite: %v", err)
		}
		if skipped := os.Getenv("LEASEHOLD_SKIPPED"); skipped != "" {
			f, err := os.OpenFile(skipped, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			require.NoError(t, err)
			_, err = fmt.Fprintln(f, t.Name())
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		t.Skipf("NOT RUN: needs Azurite: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent")
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Environ(), "AZURITE_ACCOUNTS="+account+":"+encodedKey())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	endpoint := ""
	for said := bufio.NewScanner(out); endpoint == "" && said.Scan(); { // "Azurite Blob service successfully listens on http://127.0.0.1:49152"
		if _, address, ok := strings.Cut(said.Text(), "http://"); ok && strings.Contains(said.Text(), "success") {
			endpoint = "http://" + strings.TrimSpace(address) + "/" + account
		}
	}
	require.NotEmpty(t, endpoint, "Azurite did not say where it listens")

	connections := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(connections.CloseIdleConnections)
	client := newClient(t, endpoint, &http.Client{Transport: connections})
	_, err = client.CreateContainer(t.Context(), container, nil)
	require.NoError(t, err)
	store := azblobstore.New(client, container, azblobstore.WithServerClock(2*time.Second))
	storetest.Run(t, func(*testing.T) leasehold.Store { return store }, storetest.Rounds(40), storetest.MissingIsPreconditionFailed())
	_, err = azblobstore.New(client, "another").Get(t.Context(), key)
	requireOnly(t, leasehold.ErrPermanent, err)
}
