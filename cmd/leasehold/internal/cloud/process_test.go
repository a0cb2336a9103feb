package cloud

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

// A process of its own runs this test binary in one of two roles, with a lock's URL, and prints
// lines. Before each request it prints the request's class, so that the parent counts also those of
// a process that it kills. It says that it is ready, begins when it is told a line, and ends when
// its parent does.

const (
	processTime = 10 * time.Minute      // the longest that one lives
	termTime    = 50 * time.Millisecond // of those who contend
)

func asProcess(role, url string) int {
	say("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return 3
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // until the parent has gone
		os.Exit(3)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), processTime)
	defer cancel()
	if err := play(ctx, role, url); err != nil {
		say("error", err)
		return 1
	}
	return 0
}

var saying sync.Mutex

func say(word string, args ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(append([]any{word}, args...)...)
}

func play(ctx context.Context, role, url string) error {
	at, err := place.ParseLock(url)
	if err != nil {
		return err
	}
	m := &meter{stop: func(error) {}, told: func(c class) { say("sent", int(c)) }}
	at = through(at, func(base http.RoundTripper) http.RoundTripper { return m.through(base, false) })
	store, err := at.Open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	ttl, err := time.ParseDuration(os.Getenv("LEASEHOLD_CLOUD_TTL"))
	if err != nil {
		return err
	}
	lock, err := newLock(store, at.Key, ttl)
	if err != nil {
		return err
	}
	if role == "holder" {
		lease, err := lock.Acquire(ctx)
		if err != nil {
			return err
		}
		say("leads", lease.Token())
		<-lease.Context().Done()
		return context.Cause(lease.Context())
	}
	terms, err := strconv.Atoi(os.Getenv("LEASEHOLD_CLOUD_TERMS"))
	if err != nil {
		return err
	}
	for range terms {
		if err := lock.Do(ctx, contend); err != nil {
			return err
		}
		time.Sleep(rand.N(termTime)) // or the others would have their terms later
	}
	return nil
}

func newLock(store leasehold.Store, key string, ttl time.Duration) (*leasehold.Lock, error) {
	return leasehold.NewLock(store, key, leasehold.WithTTL(ttl), leasehold.WithPollInterval(ttl/10),
		leasehold.WithLogger(slog.New(slog.DiscardHandler)))
}

// contend is a term: a file that only one process can have stands for what must be done by one at
// a time. Who finds it there says so, and its owner says whether its lease was still valid then.
func contend(_ context.Context, lease *leasehold.Lease) error {
	name, token := os.Getenv("LEASEHOLD_CLOUD_FILE"), fmt.Sprint(lease.Token())
	own := name + "-" + token
	if err := os.WriteFile(own, []byte(token), 0o600); err != nil {
		return err
	}
	defer os.Remove(own)
	for {
		err := os.Link(own, name)
		if err == nil {
			defer os.Remove(name)
			break
		}
		if !errors.Is(err, os.ErrExist) {
			return err
		}
		if owner, err := os.ReadFile(name); err == nil {
			say("met", string(owner))
			break
		}
	}
	time.Sleep(termTime)
	say("term", token, lease.Valid())
	return nil
}

// process is a started one.
type process struct {
	*exec.Cmd
	begin io.WriteCloser // takes the line that it waits for
	lines chan []string  // what it prints, apart from requests; closed at its end
}

// start starts a process for the lock at this key. It is killed when the run is stopped.
func (c *run) start(t *testing.T, role, key string, env ...string) process {
	t.Helper()
	at := c.at
	at.Key = key
	p := process{Cmd: exec.CommandContext(c.ctx, os.Args[0], "-test.run=^$"), lines: make(chan []string, 1000)}
	p.Env = append(append(os.Environ(), "LEASEHOLD_CLOUD_ROLE="+role, "LEASEHOLD_CLOUD_URL="+at.String()), env...)
	p.Stderr = os.Stderr
	var err error
	p.begin, err = p.StdinPipe()
	require.NoError(t, err)
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	go func() {
		defer close(p.lines)
		for said := bufio.NewScanner(out); said.Scan(); {
			words := strings.Fields(said.Text())
			if len(words) == 2 && words[0] == "sent" {
				n, _ := strconv.Atoi(words[1])
				c.sentByChild(class(n))
				continue
			}
			p.lines <- words
		}
	}()
	require.Equal(t, []string{"ready"}, <-p.lines)
	return p
}

// tell lets a process begin.
func (p process) tell(t *testing.T) {
	_, err := fmt.Fprintln(p.begin)
	require.NoError(t, err)
}

// sentByChild counts a request that another process sends.
func (c *run) sentByChild(k class) {
	if c.add(k, false) == nil {
		c.meter.mu.Lock()
		c.flying--
		c.meter.mu.Unlock()
	}
}
