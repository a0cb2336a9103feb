package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// commandTTL is half of the command's default, so that trials with a kept lock take half as long.
// Candidates then poll every 3 s.
const commandTTL = 15 * time.Second

// command is the real program on a bucket, from which a proxy keeps it at a distance.
type command struct {
	program, url string // the latter of the bucket, with parameters after a %s for the key
	env          []string
	apart        time.Duration // round trip to the store, and between two processes
}

func newCommand(t *testing.T, server testserver.S3, apart time.Duration) command {
	t.Helper()
	program := filepath.Join(t.TempDir(), "leasehold")
	build := exec.Command("go", "build", "-tags=disable_grpc_modules", "-o", program, ".")
	build.Dir = "../cmd/leasehold"
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	at, err := url.Parse(server.Endpoint)
	require.NoError(t, err)
	return command{
		program: program,
		url:     fmt.Sprintf("s3://%s/%%s?endpoint=http://%s", server.Bucket(t), slowProxy(t, at.Host, apart)),
		env: append(os.Environ(), "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey,
			"AWS_EC2_METADATA_DISABLED=true"),
		apart: apart,
	}
}

// replica is one run of the program, which writes a line when its command starts.
type replica struct {
	*exec.Cmd
	name  string
	leads chan<- led
}

// led says which replica has begun to lead, and when.
type led struct {
	*replica
	at time.Time
}

// start starts a replica. With listens it serves who leads.
func (c command) start(ctx context.Context, t *testing.T, leads chan<- led, sub, key, name string, listens bool,
	flags ...string) (*replica, error) {
	args := append([]string{sub, "--ttl", commandTTL.String(), "--holder", name}, flags...)
	if listens {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		addr := l.Addr().String()
		_ = l.Close()
		args = append(args, "--listen", addr, "--advertise", "http://"+slowProxy(t, addr, c.apart))
	}
	r := &replica{name: name, leads: leads}
	r.Cmd = exec.CommandContext(ctx, c.program, append(args, fmt.Sprintf(c.url, key), "--", "sh", "-c",
		"echo leads; exec sleep 3600")...)
	r.Env = c.env
	r.Cancel = func() error { return r.Process.Signal(syscall.SIGTERM) }
	out, err := r.StdoutPipe()
	if err == nil {
		err = r.Start()
	}
	if err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case leads <- led{r, time.Now()}:
			case <-ctx.Done():
			}
		}
	}()
	return r, nil
}

// next waits for the next replica that leads.
func next(ctx context.Context, leads <-chan led) (led, error) {
	select {
	case l := <-leads:
		return l, nil
	case <-time.After(2 * time.Minute):
		return led{}, errors.New("nobody leads")
	case <-ctx.Done():
		return led{}, ctx.Err()
	}
}

// settled waits until candidates that have just been started wait, and then to a random point of an
// interval.
func settled(interval time.Duration) { time.Sleep(2*time.Second + rand.N(interval)) }

// restart restarts each of three replicas of "elect" in turn, by SIGTERM, and returns for how many
// seconds in all nobody led. The first leads. A leader starts again when the next one leads: a
// process that is back sooner than anybody's poll would take the lock itself.
func (c command) restart(t *testing.T, key string, listens bool) (without float64, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	var replicas [3]*replica
	defer func() {
		cancel()
		for _, r := range replicas {
			if r != nil {
				_ = r.Wait()
			}
		}
	}()
	leads := make(chan led, 10)
	var now led
	for i := range replicas {
		if replicas[i], err = c.start(ctx, t, leads, "elect", key, fmt.Sprint(i), listens); err != nil {
			return 0, err
		}
		if i == 0 {
			if now, err = next(ctx, leads); err != nil {
				return 0, err
			}
		}
	}
	for i := range replicas {
		settled(commandTTL / 5) // of polls
		old, told := replicas[i], time.Now()
		if err = errors.Join(old.Process.Signal(syscall.SIGTERM), old.Wait()); err != nil {
			return 0, err
		}
		if now.replica == old {
			if now, err = next(ctx, leads); err != nil {
				return 0, err
			}
			without += now.at.Sub(told).Seconds()
		}
		if replicas[i], err = c.start(ctx, t, leads, "elect", key, fmt.Sprint(i), listens); err != nil {
			return 0, err
		}
	}
	return without, nil
}

// kill kills a leasehold run by SIGKILL while another one waits, and returns after how many seconds
// the command of that starts.
func (c command) kill(t *testing.T, key string, listens bool, flags ...string) (after float64, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	leads := make(chan led, 2)
	first, err := c.start(ctx, t, leads, "run", key, "first", listens, flags...)
	if err != nil {
		return 0, err
	}
	if _, err = next(ctx, leads); err != nil {
		return 0, err
	}
	second, err := c.start(ctx, t, leads, "run", key, "second", listens, flags...)
	if err != nil {
		return 0, err
	}
	defer func() {
		cancel()
		_ = second.Wait()
	}()
	time.Sleep(commandTTL)  // until it knows when the first renews
	settled(commandTTL / 3) // of renewals
	killed := time.Now()
	_ = first.Process.Kill()
	_ = first.Wait()
	then, err := next(ctx, leads)
	return then.at.Sub(killed).Seconds(), err
}

// measureCommand measures for how long no command runs, when processes of the program end.
func measureCommand(t *testing.T, server testserver.S3, n size) (list []report.Ending) {
	var all []*series
	for _, apart := range n.roundTrips {
		c := newCommand(t, server, apart)
		add := func(what, with string, trial func(key string) (float64, error)) {
			list = append(list, report.Ending{
				RoundTrip: apart.Seconds(), TTL: commandTTL.Seconds(), Case: what, With: with,
			})
			row := len(all) // a lock of its own for each trial of each row
			all = append(all, &series{count: n.endings, trial: func(i int) ([]float64, error) {
				f, err := trial(fmt.Sprintf("command/%v/%d/%d", apart, row, i))
				return []float64{f}, err
			}})
		}
		add(report.Restart, report.ByPolls, func(key string) (float64, error) { return c.restart(t, key, false) })
		add(report.Restart, report.Listens, func(key string) (float64, error) { return c.restart(t, key, true) })
		add(report.Killed, report.Kept, func(key string) (float64, error) {
			return c.kill(t, key, false, "--on-crash", "keep")
		})
		add(report.Killed, report.Freed, func(key string) (float64, error) { return c.kill(t, key, false) })
	}
	runTrials(t, n, n.lanes/8, all)
	for i := range list {
		list[i].Time = report.NewSample(all[i].found[0])
	}
	return list
}
