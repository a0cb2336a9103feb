package cloud

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/doctor"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

const (
	testTime   = 11 * time.Minute // of the parts
	removeTime = 3 * time.Minute
	totalTime  = 15 * time.Minute // with what answers late
	inFlight   = 30 * time.Second // for requests that are under way at the end
	longestKey = 300              // what comes behind the prefix
)

// here is the run in the bucket that LEASEHOLD_CLOUD_URL names; nil if it names none.
var here *run

func TestMain(m *testing.M) {
	url := os.Getenv("LEASEHOLD_CLOUD_URL")
	switch role := os.Getenv("LEASEHOLD_CLOUD_ROLE"); {
	case role != "":
		os.Exit(asProcess(role, url))
	case url != "":
		os.Exit(tryBucket(m, url))
	}
	os.Exit(testserver.Main(m))
}

// run is one run in a bucket. All its objects are below at.Key, which ends with a slash.
type run struct {
	*meter
	at     place.Location
	bucket bucket
	store  *place.Store
	began  time.Time
	ctx    context.Context // ends when the run is stopped
	cancel context.CancelFunc

	mu     sync.Mutex
	report report
	ended  sync.Once
	code   int
}

// report is the JSON file.
type report struct {
	Version string    `json:"version"`
	Date    time.Time `json:"date"`
	URL     string    `json:"url"`
	Server  string    `json:"server"`
	Region  string    `json:"region,omitempty"`
	Outcome string    `json:"outcome"` // "passed", "failed", or why it was stopped
	Parts   []part    `json:"parts"`

	CreateOnly    bool            `json:"create_only,omitempty"`
	Deletes       string          `json:"conditional_deletes,omitempty"` // "honoured", "ignored" or "denied"
	UpdateMissing string          `json:"update_of_a_missing_object,omitempty"`
	Terms         int             `json:"contended_terms,omitempty"`
	Takeovers     []float64       `json:"takeovers_in_ttls,omitempty"`
	Doctor        []*doctor.Check `json:"doctor,omitempty"`

	Requests count    `json:"requests"`
	Dollars  float64  `json:"dollars"`
	Seconds  float64  `json:"seconds"`
	Left     []string `json:"left,omitempty"` // keys of objects that could not be removed
	Row      string   `json:"row,omitempty"`
}

// part is one of the things that are tried.
type part struct {
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Seen    string  `json:"seen,omitempty"`
	Seconds float64 `json:"seconds"`
	Sent    int64   `json:"requests"`
}

// tryBucket is the main function of make cloud.
func tryBucket(m *testing.M, url string) int {
	fail := func(err error) int {
		fmt.Fprintf(os.Stderr, "make cloud: %s\n", exit.Message(err))
		return exit.Code(err)
	}
	c, err := open(url)
	if err != nil {
		return fail(err)
	}
	p := pricesOf[c.at.Scheme]
	fmt.Printf("objects: only below %s\nbound:   %s, %.2f dollars at list prices, %v\n", c.at, bound,
		bound.dollars(p), totalTime)
	if err := c.reachable(); err != nil {
		c.cancel()
		return fail(err)
	}
	here = c
	for name, value := range map[string]string{"test.run": "^TestCloud$", "test.timeout": "0"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case <-signals:
			c.stop(errors.New("interrupted"))
		case <-time.After(testTime):
			c.stop(fmt.Errorf("not done within %v", testTime))
		}
		for s := range signals {
			if s == syscall.SIGINT { // again
				fmt.Fprintf(os.Stderr, "make cloud: left as it is: remove what is below %s\n", c.at)
				os.Exit(exit.Signal + int(syscall.SIGINT))
			}
		}
	}()
	if m.Run() == 0 {
		return c.end(nil)
	}
	return c.end(errFailed)
}

var errFailed = errors.New("failed")

// open reads the URL and makes the clients. It sends no request to the bucket.
func open(url string) (*run, error) {
	at, err := place.ParsePrefix(url)
	if err != nil {
		return nil, err
	}
	if at.Scheme == "file" {
		return nil, exit.Errorf(exit.Usage, "%q is a directory: name a bucket by s3://, gs:// or azblob://",
			place.WithoutSecrets(url))
	}
	if at.Key != "" && !strings.HasSuffix(at.Key, "/") {
		at.Key += "/"
	}
	now := time.Now().UTC()
	at.Key += "leasehold-cloud-" + now.Format("20060102-150405-") + strings.ToLower(rand.Text()[:10]) + "/"
	if why := storeapi.BadKey(at.Key + strings.Repeat("x", longestKey)); why != "" {
		return nil, exit.Errorf(exit.Usage, "%q has a prefix with which a key of the run %s",
			place.WithoutSecrets(url), why)
	}
	c := &run{began: time.Now()}
	c.meter = &meter{stop: c.stop}
	c.at = through(at, c.counted)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.report = report{
		Version: cmp.Or(os.Getenv("LEASEHOLD_CLOUD_VERSION"), "unknown"), Date: now.Truncate(time.Second),
		URL: at.String(), CreateOnly: at.CreateOnly, Region: os.Getenv("LEASEHOLD_CLOUD_REGION"),
	}
	if c.store, err = c.at.Open(c.ctx); err == nil {
		c.bucket, err = openBucket(c.ctx, c.at)
	}
	return c, err
}

func (c *run) counted(base http.RoundTripper) http.RoundTripper { return c.through(base, false) }

// reachable looks for credentials and the bucket, and writes nothing.
func (c *run) reachable() error {
	ctx, cancel := context.WithTimeout(c.ctx, inFlight)
	defer cancel()
	if c.at.Scheme == "s3" {
		client, err := c.at.S3Client(ctx)
		if err == nil {
			_, err = client.Options().Credentials.Retrieve(ctx)
		}
		if err != nil {
			return exit.Errorf(exit.Config, "there are no credentials: set AWS_ACCESS_KEY_ID and "+
				"AWS_SECRET_ACCESS_KEY, choose a profile, or give the machine a role: %w", err)
		}
	}
	for _, err := range c.store.Objects(ctx, c.at.Key) {
		if err != nil {
			return err
		}
		return exit.Errorf(exit.Store, "the server lists objects below %s, where nobody has written any", c.at)
	}
	switch _, err := c.store.Get(ctx, c.at.Key+"nothing"); {
	case errors.Is(err, leasehold.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return exit.Errorf(exit.Store, "the server has an object below %s, where nobody has written any", c.at)
}

// stop ends the run before its tests do: nothing more is sent, and what was written is removed.
func (c *run) stop(why error) {
	c.stopNow(why)
	go func() { os.Exit(c.end(why)) }()
}

// end removes all objects, and prints and writes the report. It returns the exit code.
func (c *run) end(why error) int {
	c.ended.Do(func() {
		if stopped := c.why(); stopped != nil {
			why = stopped
		}
		server := c.serverName()
		region := ""
		if why == nil {
			region = c.bucket.region(c.ctx)
		}
		c.stopNow(errors.New("the run is over"))
		c.cancel() // ends the processes
		c.landed(inFlight)
		left, failed := c.removeAll()

		c.mu.Lock()
		defer c.mu.Unlock()
		r := &c.report
		r.Server, r.Requests, r.Seconds, r.Left = server, c.total(), time.Since(c.began).Seconds(), left
		r.Dollars = r.Requests.dollars(pricesOf[c.at.Scheme])
		r.Region, r.Outcome = cmp.Or(r.Region, region), "passed"
		switch {
		case why != nil:
			r.Outcome = why.Error()
		case failed != nil:
			r.Outcome = "passed, and not all objects could be removed"
		}
		if why == nil {
			r.Row = r.row()
		}
		c.code = c.say(failed)
	})
	return c.code
}

func (c *run) serverName() string {
	c.meter.mu.Lock()
	defer c.meter.mu.Unlock()
	return serverName(c.server, c.at)
}

// say prints the report, writes it to its file, and returns the exit code.
func (c *run) say(failed error) int {
	r := c.report
	code := 0
	fmt.Printf("sent:    %s, %.4f dollars at list prices, %.0f s\n", r.Requests, r.Dollars, r.Seconds)
	if failed != nil {
		code = 1
		fmt.Fprintf(os.Stderr, "make cloud: %d objects could not be removed (%s):\n", len(r.Left), exit.Message(failed))
		for _, key := range r.Left {
			fmt.Fprintln(os.Stderr, " ", exit.Printable(key))
		}
		if len(r.Left) == 0 {
			fmt.Fprintln(os.Stderr, "  what is below", c.at)
		}
	} else {
		fmt.Println("removed: all objects")
	}
	switch {
	case r.Outcome == "interrupted":
		code = exit.Signal + int(syscall.SIGINT)
	case r.Row == "":
		code = 1
	}
	if r.Row == "" {
		fmt.Fprintf(os.Stderr, "make cloud: %s\n", r.Outcome)
	} else {
		fmt.Printf("row for docs/stores.md:\n%s\n", r.Row)
	}
	name := cmp.Or(os.Getenv("LEASEHOLD_CLOUD_REPORT"), "cloud.json")
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, append(text, '\n'), 0o644))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "make cloud: the report cannot be written: %v\n", err)
		return exit.Output
	}
	fmt.Printf("report:  %s\n", name)
	return code
}

// row is the row of the table in docs/stores.md.
func (r report) row() string {
	where := r.Server
	if r.Region != "" {
		where += ", " + r.Region
	}
	deletes := map[string]string{
		"honoured":     "honours `If-Match` on DELETE",
		honouredAnyway: "honours `If-Match` on DELETE",
		"ignored":      "ignores `If-Match` on DELETE, which leasehold does not need",
		"denied":       "DELETE was denied, and not tried",
	}[r.Deletes]
	takeover := ""
	if n := len(r.Takeovers); n > 0 {
		takeover = fmt.Sprintf("; takeover after %.2f TTL, median of %d",
			slices.Sorted(slices.Values(r.Takeovers))[n/2], n)
	}
	if r.CreateOnly {
		return fmt.Sprintf("| %s | creates only, used with createonly; %d contended terms, exclusive%s | "+
			"`make cloud`, %s, leasehold %s |", where, r.Terms, takeover, r.Date.Format(time.DateOnly), r.Version)
	}
	return fmt.Sprintf("| %s | yes; %s; an update of a missing object is answered %s; %d contended terms, "+
		"exclusive%s | "+
		"`make cloud`, %s, leasehold %s |", where, deletes, r.UpdateMissing, r.Terms, takeover,
		r.Date.Format(time.DateOnly), r.Version)
}

// removeAll removes what is below the prefix. It returns the keys of the objects that are left.
func (c *run) removeAll() (left []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	at := through(c.at, func(base http.RoundTripper) http.RoundTripper { return c.through(base, true) })
	at.CreateOnly = false // each object is removed
	store, err := at.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	b, err := openBucket(ctx, at)
	if err != nil {
		return nil, err
	}
	for range 5 { // a write whose reply was lost may land late
		var keys []string
		for o, err := range store.Objects(ctx, at.Key) {
			if err != nil {
				return keys, err
			}
			keys = append(keys, o.Key)
		}
		if len(keys) == 0 {
			return nil, nil
		}
		if left, err = removeEach(ctx, b, keys); err != nil && len(left) == len(keys) {
			return left, err // it is of no use to try again
		}
	}
	return left, err
}

func removeEach(ctx context.Context, b bucket, keys []string) (left []string, failed error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, key := range keys {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			one, cancel := context.WithTimeout(ctx, place.RequestLimit)
			defer cancel()
			if err := b.remove(one, key); err != nil && exit.HTTPStatus(err) != http.StatusNotFound {
				mu.Lock()
				defer mu.Unlock()
				left, failed = append(left, key), err
			}
		})
	}
	wg.Wait()
	slices.Sort(left)
	return left, failed
}
