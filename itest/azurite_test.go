package itest_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testprocess"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// azureClient returns a client with connections of its own. decide makes requests go wrong.
func azureClient(t *testing.T, server testserver.Azurite, decide func(*http.Request) faultproxy.Fault) *azblob.Client {
	t.Helper()
	base := &http.Transport{MaxIdleConnsPerHost: 64}
	network := &faultproxy.Transport{Base: base, Decide: decide}
	t.Cleanup(func() {
		network.Close()
		base.CloseIdleConnections()
	})
	return azureClientOver(t, server, network)
}

func azureClientOver(t *testing.T, server testserver.Azurite, network http.RoundTripper) *azblob.Client {
	t.Helper()
	client, err := azblob.NewClientFromConnectionString(server.ConnectionString(),
		&azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: network}}})
	require.NoError(t, err)
	return client
}

// asAzure makes answers of the fault proxy Azure's own, if Azure has such answers. The others stay
// those of a stranger.
type asAzure struct{ http.RoundTripper }

func (a asAzure) RoundTrip(r *http.Request) (*http.Response, error) {
	reply, err := a.RoundTripper.RoundTrip(r)
	if err == nil && reply.Header.Get("x-ms-request-id") == "" {
		code := map[int]bloberror.Code{
			http.StatusConflict: bloberror.BlobAlreadyExists, http.StatusPreconditionFailed: bloberror.ConditionNotMet,
			http.StatusInternalServerError: bloberror.InternalError,
			http.StatusServiceUnavailable:  bloberror.ServerBusy,
		}[reply.StatusCode]
		if code != "" {
			reply.Header.Set("x-ms-request-id", "faultproxy")
			reply.Header.Set("x-ms-error-code", string(code))
		}
	}
	return reply, err
}

// azureEnv returns the environment of a process that uses the container.
func azureEnv(connection, container string) []string {
	return append(os.Environ(), "HOLDER_AZURE="+connection, "HOLDER_BUCKET="+container)
}

func sound(*http.Request) faultproxy.Fault { return faultproxy.Fault{} }

// TestAzurite runs on Azurite, Microsoft's emulator of Azure Blob Storage, what other tests run on
// S3 servers. Those that need no other test's tools are with azblobstore.
func TestAzurite(t *testing.T) {
	t.Parallel()
	server := testserver.StartAzurite(t, testserver.AnyAPIVersion)
	run := func(name string, test func(t *testing.T, container string)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			container := strings.ReplaceAll(name, " ", "-")
			_, err := azureClient(t, server, sound).CreateContainer(t.Context(), container, nil)
			require.NoError(t, err)
			test(t, container)
		})
	}
	open := func(t *testing.T, container string) opened {
		return func(seed uint64) leasehold.Store {
			return azblobstore.New(azureClient(t, server, lossy(seed, sound)), container)
		}
	}
	env := func(container string) []string { return azureEnv(server.ConnectionString(), container) }
	run("linearizable register", func(t *testing.T, container string) {
		linearizableRegister(t, "azurite", false, open(t, container))
	})
	run("linearizable lock", func(t *testing.T, container string) {
		linearizableLock(t, "azurite", open(t, container))
	})
	run("suspended process", func(t *testing.T, container string) {
		suspend(t, azblobstore.New(azureClient(t, server, sound), container), append(env(container), "HOLDER_MANUAL=1"))
	})
	run("ambiguous writes", func(t *testing.T, container string) {
		ambiguousWrites(t, func(t *testing.T) func() *link {
			prefix := rand.Text() + "/"
			return func() *link {
				l := unlinked(t)
				l.store = azblobstore.New(azureClientOver(t, server, asAzure{l.Transport}), container,
					azblobstore.WithKeyPrefix(prefix))
				return l
			}
		})
	})
	run("zombie", func(t *testing.T, container string) {
		zombies(t, func(t *testing.T) (place, error) {
			own := container + strings.ToLower(rand.Text())
			if _, err := azureClient(t, server, sound).CreateContainer(t.Context(), own, nil); err != nil {
				return place{}, err
			}
			return placeOnAzure(server.ConnectionString(), own)
		})
	})
	run("elections of processes", func(t *testing.T, container string) { elections(t, env(container)) })
}

// asCandidate is the test binary's main function when it runs as a candidate in an election. It
// prints its terms. While its lease is valid, no higher token may be in the file.
func asCandidate() {
	lock, err := leasehold.NewLock(storeFromEnv(), "locks/core", leasehold.WithTTL(holderTTL),
		leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	fatal(err)
	path := os.Getenv("CANDIDATE_FILE")
	tokens, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	fatal(err)
	elector, err := leasehold.NewElector(lock, leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
			_, err := fmt.Fprintln(tokens, lease.Token())
			fatal(err)
			fmt.Println("leads", lease.Token())
			for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
				if !lease.Valid() {
					continue
				}
				all, err := os.ReadFile(path)
				fatal(err)
				for line := range strings.Lines(string(all)) {
					token, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
					fatal(err)
					if token > lease.Token() && lease.Valid() { // still, so this process was not just slow
						fatal(fmt.Errorf("token %d is valid beside token %d", lease.Token(), token))
					}
				}
			}
		},
		OnStoppedLeading: func(cause error) { fmt.Println("stopped", cause) },
	})
	fatal(err)
	fatal(elector.Run(context.Background()))
}

// elections kills and stops the leaders of an election among three processes, in turn.
func elections(t *testing.T, env []string) {
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	type event struct {
		from *testprocess.Process
		text string
	}
	events := make(chan event, 64)
	start := func() {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		cmd.Env = append(env, "CANDIDATE_FILE="+file)
		cmd.Stderr = os.Stderr
		candidate := testprocess.Start(t, cmd)
		go func() {
			for line := range candidate.Lines() {
				events <- event{candidate, line}
			}
		}()
	}
	// next waits for a line with that first word, and fails at any other.
	next := func(word string) event {
		t.Helper()
		e := receive(t, events, word)
		require.Regexp(t, "^"+word+" ", e.text)
		return e
	}
	for range 3 {
		start()
	}
	tokenOf := func(leads event) int {
		token, err := strconv.Atoi(strings.TrimPrefix(leads.text, "leads "))
		require.NoError(t, err)
		return token
	}
	leader := next("leads")
	token := tokenOf(leader) // 1, unless an acquisition took longer than a TTL and was given back
	for round := range testsize.Pick(4, 20) {
		if round%2 == 0 {
			require.NoError(t, leader.from.Kill())
			start()
		} else {
			require.NoError(t, leader.from.Signal(syscall.SIGSTOP))
		}
		successor := next("leads")
		require.NotSame(t, leader.from, successor.from)
		now := tokenOf(successor)
		require.Greater(t, now, token)
		token = now
		if round%2 == 1 {
			require.NoError(t, leader.from.Signal(syscall.SIGCONT))
			over := next("stopped")
			require.Same(t, leader.from, over.from)
			require.Contains(t, over.text, leasehold.ErrLost.Error())
		}
		leader = successor
	}
	t.Logf("token %d", token)
}
