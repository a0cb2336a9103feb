//go:build unix

// Command fencedwriter shows what a fencing token is for. Two processes, alice and bob, write one
// object, each only while it leads. Just before her write alice is stopped (SIGSTOP) until her
// lease has expired, so that bob leads and writes. Then she continues. Without fencing her late
// write destroys his; a fenced.Store refuses it.
//
//	go run ./examples/fencedwriter
//	go run ./examples/fencedwriter -s3 http://127.0.0.1:9000 -bucket scratch
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/stage"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

const ttl = time.Second

func main() { stage.Main("fencedwriter", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fencedwriter", flag.ContinueOnError)
	where := storeflag.Add(flags, "Fencedwriter shows how a fencing token stops the late write of a former leader "+
		"whose process was paused.")
	writer := flags.String("writer", "", "`name` of a writer; used by the program itself, which runs each writer as "+
		"a process of its own")
	fenced := flags.Bool("fenced", false, "with -writer: write through a fenced.Store")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *writer != "" {
		return write(ctx, where, *writer, *fenced)
	}
	if _, err := where.Open(ctx); err != nil {
		return err
	}
	if where.InMemory() { // an S3 server in this process, for the two writers
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: &fakes3.Server{}, ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(listener) }()
		defer func() { _ = server.Close() }()
		args = append(args, "-s3", "http://"+listener.Addr().String(), "-bucket", fakes3.Bucket)
		for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
			if err := os.Setenv(name, "any"); err != nil {
				return err
			}
		}
		if err := flags.Parse(args); err != nil {
			return err
		}
	}
	client, err := where.Client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	unfenced, err := play(ctx, client, where.Bucket(), args, false, out)
	if err != nil {
		return err
	}
	right, err := play(ctx, client, where.Bucket(), args, true, out)
	if err != nil {
		return err
	}
	if !strings.Contains(unfenced, "alice") || !strings.Contains(right, "bob") {
		return fmt.Errorf("unexpected outcome: the object says %q without fencing, which alice should have "+
			"written last, "+
			"and %q with it, which only bob should have written", unfenced, right)
	}
	_, err = fmt.Fprintln(out, "\nWithout fencing, the late write of a former leader destroyed its successor's. The "+
		"fenced.Store refused it.")
	return err
}

// key is that of the object; the lock beside it is key + ".lock".
func key(fenced bool) string {
	return map[bool]string{false: "examples/fencedwriter/unfenced", true: "examples/fencedwriter/fenced"}[fenced]
}

// play starts both writers, stops alice between her check and her write, and returns what the
// object holds at the end.
func play(ctx context.Context, client *s3.Client, bucket string, args []string, fenced bool,
	out io.Writer) (string, error) {
	fmt.Fprintf(out, "\n%s\n", map[bool]string{false: "WITHOUT FENCING", true: "WITH FENCING"}[fenced])
	began := time.Now()
	say := func(format string, a ...any) {
		fmt.Fprintf(out, "%7.3fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, a...))
	}
	alice, err := start(ctx, "alice", args, fenced)
	if err != nil {
		return "", err
	}
	defer alice.kill()
	say("%s", alice.hear())
	if err := alice.Process.Signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	say("         alice's process is stopped, and her lease expires: its TTL is %v", ttl)

	bob, err := start(ctx, "bob", args, fenced)
	if err != nil {
		return "", err
	}
	defer bob.kill()
	say("%s", bob.hear())
	bob.goOn()
	say("%s", bob.hear())

	alice.goOn()
	if err := alice.Process.Signal(syscall.SIGCONT); err != nil {
		return "", err
	}
	say("         alice's process continues with her write, after her check of the lease")
	say("%s", alice.hear())

	got, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: aws.String(key(fenced))})
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(got.Body)
	text := strings.TrimSpace(string(body))
	say("         in the object: %q: %s", text, map[bool]string{
		true:  "right",
		false: "WRONG, because bob leads",
	}[strings.Contains(text, "bob")])
	return text, errors.Join(err, got.Body.Close())
}

// process is one of the writers.
type process struct {
	*exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func start(ctx context.Context, name string, args []string, fenced bool) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"-writer", name, fmt.Sprint("-fenced=", fenced)},
		args...)...)
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		return nil, err
	}
	return &process{cmd, in, bufio.NewScanner(out)}, nil
}

// hear waits for the next line that the process prints.
func (p *process) hear() string {
	if !p.lines.Scan() {
		return "(the process has ended early)"
	}
	return p.lines.Text()
}

func (p *process) goOn() { _, _ = io.WriteString(p.in, "\n") }

func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// write is what a writer does: become the leader, wait for a line on standard input, write once.
func write(ctx context.Context, where *storeflag.Flags, name string, guarded bool) error {
	client, err := where.Client()
	if err != nil {
		return err
	}
	bucket, key := where.Bucket(), key(guarded)
	lock, err := leasehold.NewLock(leasehold.NewS3Store(client, bucket), key+".lock", leasehold.WithTTL(ttl),
		leasehold.WithHolder(name),
		// because this program tells what happens; keep the log in a program of your own
		leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	lease, err := lock.Acquire(ctx)
	if err != nil {
		return err
	}
	files, err := fenced.NewS3Store(client, bucket, fenced.PaddedBodies)
	if err != nil {
		return err
	}
	if guarded { // a new leader claims what it is about to write
		if err := files.Seal(ctx, lease.Token(), key); err != nil {
			return err
		}
	}
	fmt.Printf("token %d: %s leads, checks the lease (valid: %v), and is about to write\n",
		lease.Token(), name, lease.Valid())
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	body := []byte("written by " + name)
	if guarded {
		err = files.Put(ctx, lease.Token(), key, bytes.NewReader(body))
	} else {
		_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)})
	}
	if refused, ok := errors.AsType[*leasehold.FencedError](err); ok {
		fmt.Printf("token %d: %s's write is refused, because a leader with token %d has written\n", lease.Token(),
			name, refused.Highest)
	} else if err != nil {
		return err
	} else {
		fmt.Printf("token %d: %s's write is accepted\n", lease.Token(), name)
	}
	_, err = io.Copy(io.Discard, os.Stdin) // leads until it is killed
	return err
}
