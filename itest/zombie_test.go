package itest_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// The zombie experiment: processes increment a counter in an object, under a lock. From time to
// time the holder is stopped in the middle of a step for longer than its TTL, so another process
// leads when it resumes. At the end, the counter must contain every acknowledged step. The idea is
// from Jepsen's test of etcd's locks, https://jepsen.io/analyses/etcd-3.4.3, 2020.

const zombieTTL = 2 * time.Second

// guard is how a worker protects the counter against its own late writes.
type guard struct {
	name  string
	valid bool // check the lease before the write
	late  bool // the stop comes after that check
	token bool // a conditional write, refused if the object has a higher token
	store bool // a fenced store, without a check of the lease
	loses bool // acknowledged steps must be lost; otherwise the experiment proves nothing
}

var guards = []guard{
	{name: "the lock alone", loses: true},
	{name: "lease valid", valid: true},
	{name: "lease valid, stopped after the check", valid: true, late: true, loses: true},
	{name: "lease valid and fencing token, stopped after the check", valid: true, late: true, token: true},
	{name: "fenced store, no check of the lease", store: true},
}

// counter is the object. The nonce makes every version different, so no ETag repeats.
type counter struct {
	Value int
	Token uint64
	Nonce string
}

// place is where the zombies count: an object, a fenced store that has it too, and the environment
// of a worker.
type place struct {
	read   func(context.Context) (body []byte, etag string, err error)
	write  func(ctx context.Context, body []byte, etag string) error // of any version if etag is ""
	fenced *fenced.Store
	env    []string
}

const counterKey = "counter"

func placeOnS3(server testserver.S3, bucket string) (p place, err error) {
	client, key := server.Client(), counterKey
	p.env = holderEnv(server, bucket)
	p.read = func(ctx context.Context) ([]byte, string, error) {
		got, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
		if err != nil {
			return nil, "", err
		}
		defer got.Body.Close()
		body, err := io.ReadAll(got.Body)
		return body, *got.ETag, err
	}
	p.write = func(ctx context.Context, body []byte, etag string) error {
		put := &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)}
		if etag != "" {
			put.IfMatch = &etag
		}
		_, err := client.PutObject(ctx, put)
		return err
	}
	p.fenced, err = fenced.NewS3Store(client, bucket, fenced.PaddedBodies, fenced.WithAdoption())
	return p, err
}

func placeOnAzure(connection, container string) (p place, err error) {
	client, err := azblob.NewClientFromConnectionString(connection, nil)
	if err != nil {
		return p, err
	}
	object := client.ServiceClient().NewContainerClient(container).NewBlockBlobClient(counterKey)
	p.env = azureEnv(connection, container)
	p.read = func(ctx context.Context) ([]byte, string, error) {
		got, err := object.DownloadStream(ctx, nil)
		if err != nil {
			return nil, "", err
		}
		defer got.Body.Close()
		body, err := io.ReadAll(got.Body)
		return body, string(*got.ETag), err
	}
	p.write = func(ctx context.Context, body []byte, etag string) error {
		var only blob.ModifiedAccessConditions
		if etag != "" {
			only.IfMatch = to.Ptr(azcore.ETag(etag))
		}
		_, err := object.Upload(ctx, streaming.NopCloser(bytes.NewReader(body)), &blockblob.UploadOptions{
			AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &only},
		})
		return err
	}
	p.fenced, err = azblobstore.NewFencedStore(client, container, fenced.WithAdoption())
	return p, err
}

func placeFromEnv() (place, error) {
	if connection := os.Getenv("HOLDER_AZURE"); connection != "" {
		return placeOnAzure(connection, os.Getenv("HOLDER_BUCKET"))
	}
	return placeOnS3(serverFromEnv(), os.Getenv("HOLDER_BUCKET"))
}

// asZombie is a worker in a separate process. Where it may be stopped, it prints "step" and waits
// for a line. When a step is done, it prints "ack".
func asZombie() {
	ctx := context.Background()
	n, err := strconv.Atoi(os.Getenv("ZOMBIE_GUARD"))
	fatal(err)
	g := guards[n]
	at, err := placeFromEnv()
	fatal(err)
	lock, err := leasehold.NewLock(storeFromEnv(), "locks/counter", leasehold.WithTTL(zombieTTL))
	fatal(err)
	parent := bufio.NewReader(os.Stdin)
	work := func() {
		time.Sleep(10 * time.Millisecond)
		fmt.Println("step")
		_, err := parent.ReadString('\n')
		fatal(err)
	}
	fencedStep := func(lease *leasehold.Lease) error {
		o, err := at.fenced.Get(ctx, counterKey)
		if err != nil {
			return err
		}
		defer o.Body.Close()
		var c counter
		if err := json.NewDecoder(o.Body).Decode(&c); err != nil {
			return err
		}
		work()
		body, err := json.Marshal(counter{Value: c.Value + 1})
		fatal(err)
		return at.fenced.Put(ctx, lease.Token(), counterKey, bytes.NewReader(body))
	}
	step := func(lease *leasehold.Lease) error {
		if g.store {
			return fencedStep(lease)
		}
		body, etag, err := at.read(ctx)
		if err != nil {
			return err
		}
		var c counter
		fatal(json.Unmarshal(body, &c))
		if g.token && c.Token > lease.Token() {
			return leasehold.ErrFenced
		}
		if !g.late {
			work()
		}
		if g.valid && !lease.Valid() {
			return leasehold.ErrLost
		}
		if g.late {
			work()
		}
		body, err = json.Marshal(counter{c.Value + 1, lease.Token(), rand.Text()})
		fatal(err)
		if !g.token {
			etag = ""
		}
		return at.write(ctx, body, etag)
	}
	for {
		lease, err := lock.Acquire(ctx)
		fatal(err)
		if g.store { // seal before anything is read
			if err := at.fenced.Seal(ctx, lease.Token(), counterKey); err != nil {
				fmt.Println("unsealed", err)
				continue
			}
		}
		for i := 0; i < 50 && lease.Context().Err() == nil; i++ {
			if err := step(lease); err != nil {
				fmt.Println("refused", err)
			} else {
				fmt.Println("ack")
			}
		}
		if err := lease.Release(ctx); err != nil && !errors.Is(err, leasehold.ErrLost) {
			fatal(err)
		}
	}
}

// experiment is what the parent knows about its workers.
type experiment struct {
	mu             sync.Mutex
	acks, refusals int
	stops          int
	woken          int  // stopped workers that have since told the outcome of their step
	stepping       int  // workers that were told to go on with a step and have not told its outcome
	stopNext       bool // stop the worker that takes the next step
	ending         bool // no worker goes on
}

// eventually waits for what the workers print.
func (e *experiment) eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	assert.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return is()
	}, time.Minute, 10*time.Millisecond, what)
}

func (e *experiment) watch(t *testing.T, cmd *exec.Cmd, in io.Writer, out io.Reader) {
	stopped, stepping := false, false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		e.mu.Lock()
		stop, acks := false, 0
		if !strings.HasPrefix(lines.Text(), "step") { // the outcome of a step, if it has begun one
			if stopped {
				e.woken++
			}
			if stepping {
				e.stepping--
			}
			stopped, stepping = false, false
		}
		switch line, _, _ := bytes.Cut(lines.Bytes(), []byte(" ")); string(line) {
		case "ack":
			e.acks++
		case "refused":
			e.refusals++
		case "step": // the worker is stopped before it reads the line that lets it continue
			if stop, e.stopNext = e.stopNext, false; stop {
				e.stops++
				acks = e.acks
				assertNoError(t, cmd.Process.Signal(syscall.SIGSTOP))
				// On a busy machine its threads run on for a while, so wait until they have
				// stopped.
				_, err := syscall.Wait4(cmd.Process.Pid, nil, syscall.WUNTRACED, nil)
				assertNoError(t, err)
			}
			if !e.ending {
				stepping = true
				e.stepping++
				_, _ = io.WriteString(in, "\n") // fails if the worker was killed
			}
		case "error":
			t.Errorf("a worker: %s", lines.Bytes())
		}
		e.mu.Unlock()
		if stop {
			// Until another process leads: each of the two others has one line at most that it
			// wrote before and that is not read yet.
			e.eventually(t, "another leads", func() bool { return e.acks > acks+2 })
			assertNoError(t, cmd.Process.Signal(syscall.SIGCONT))
			stopped = true
		}
	}
}

// TestZombie stops a worker of each guard every 5 s, for 10 s or the duration in the environment
// variable ZOMBIE, and once at short size.
func TestZombie(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		zombies(t, func(t *testing.T) (place, error) { return placeOnS3(server, server.Bucket(t)) })
	})
}

// zombies gets a place of its own for each guard.
func zombies(t *testing.T, newPlace func(*testing.T) (place, error)) {
	duration := testsize.Pick(5*time.Second, 10*time.Second)
	if s := os.Getenv("ZOMBIE"); s != "" {
		var err error
		duration, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	for n, g := range guards {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			at, err := newPlace(t)
			require.NoError(t, err)
			require.NoError(t, at.write(t.Context(), []byte("{}"), ""))

			var e experiment
			var watching sync.WaitGroup
			t.Cleanup(watching.Wait)
			var workers []*exec.Cmd
			for range 3 {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
				cmd.Env = append(at.env, "ZOMBIE_GUARD="+strconv.Itoa(n))
				in, err := cmd.StdinPipe()
				require.NoError(t, err)
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, cmd.Start())
				workers = append(workers, cmd)
				watching.Go(func() { e.watch(t, cmd, in, out) })
			}
			began := time.Now()
			for next := time.Duration(0); next < duration; next += 5 * time.Second {
				time.Sleep(next - time.Since(began))
				e.mu.Lock()
				e.stopNext = true
				stops := e.stops + 1
				e.mu.Unlock()
				e.eventually(t, "a worker is stopped", func() bool { return e.stops == stops })
				e.eventually(t, "it goes on", func() bool { return e.woken == stops })
			}
			e.mu.Lock()
			e.ending = true
			e.mu.Unlock()
			e.eventually(t, "every step has an outcome", func() bool { return e.stepping == 0 })
			for _, cmd := range workers {
				require.NoError(t, cmd.Process.Kill())
			}
			watching.Wait()
			for _, cmd := range workers {
				_ = cmd.Wait() // killed
			}

			body, _, err := at.read(t.Context())
			require.NoError(t, err)
			var c counter
			require.NoError(t, json.NewDecoder(bytes.NewReader(body)).Decode(&c)) // what follows is padding
			lost := e.acks - c.Value
			t.Logf("| %s | %d | %d | %d | %d | %d (%.1f %%) |", g.name, e.stops, e.acks, c.Value, e.refusals,
				max(lost, 0), 100*float64(max(lost, 0))/float64(e.acks))
			if g.loses {
				require.Positive(t, lost, "nothing was lost, so the experiment proves nothing")
			} else {
				// A write without a reply may have been carried out.
				require.LessOrEqual(t, lost, 0)
				require.LessOrEqual(t, -lost, e.refusals)
			}
		})
	}
}
