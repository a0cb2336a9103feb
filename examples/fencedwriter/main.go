//go:build unix

// Command fencedwriter shows what a fencing token is for. Two processes, alice and bob, write one object, each only while it
// leads. Alice is stopped (SIGSTOP) just before her write, past the end of her lease, so that bob leads and writes; then
// she goes on. Without fencing her late write destroys his; with a FencedStore it is refused.
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
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/fakes3"
)

const ttl = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "fencedwriter:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fencedwriter", flag.ContinueOnError)
	where := storeflag.Add(flags)
	writer := flags.String("writer", "", "be the process of this name, as the program starts itself")
	fenced := flags.Bool("fenced", false, "of -writer: write through a FencedStore")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *writer != "" {
		return write(ctx, where, *writer, *fenced)
	}
	if _, err := where.Open(); err != nil {
		return err
	}
	if where.InMemory() { // an S3 in this process, which the two others reach by a socket
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
	unfenced, err := play(ctx, client, where.Bucket(), args, false, out)
	if err != nil {
		return err
	}
	right, err := play(ctx, client, where.Bucket(), args, true, out)
	if err != nil {
		return err
	}
	if !strings.Contains(unfenced, "alice") || !strings.Contains(right, "bob") {
		return errors.New("that is not what should have happened")
	}
	_, err = fmt.Fprintln(out, "\nWithout fencing the late write of a former leader won. With a FencedStore it was refused.")
	return err
}

// key is that of the object; the lock beside it is key + ".lock".
func key(fenced bool) string {
	return map[bool]string{false: "examples/fencedwriter/unfenced", true: "examples/fencedwriter/fenced"}[fenced]
}

// play starts both writers, stops alice at the worst moment, and returns what is in the object in the end.
func play(ctx context.Context, client *s3.Client, bucket string, args []string, fenced bool, out io.Writer) (string, error) {
	fmt.Fprintf(out, "\n%s\n", map[bool]string{false: "WITHOUT FENCING", true: "WITH A FENCED STORE"}[fenced])
	began := time.Now()
	say := func(format string, a ...any) {
		fmt.Fprintf(out, "  %4.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, a...))
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
	say("         alice is stopped, her lease of %v runs out", ttl)

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
	say("         alice wakes up, and goes on where she was")
	say("%s", alice.hear())

	got, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: aws.String(key(fenced))})
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(got.Body)
	text := strings.TrimSpace(string(body))
	say("         in the object: %q: %s", text, map[bool]string{true: "right", false: "WRONG, bob leads"}[strings.Contains(text, "bob")])
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
	cmd := exec.CommandContext(ctx, program, append([]string{"-writer", name, fmt.Sprint("-fenced=", fenced)}, args...)...)
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		return nil, err
	}
	return &process{cmd, in, bufio.NewScanner(out)}, nil
}

// hear waits for the next line that the process says.
func (p *process) hear() string {
	if !p.lines.Scan() {
		return "(it has gone)"
	}
	return p.lines.Text()
}

func (p *process) goOn() { _, _ = io.WriteString(p.in, "\n") }

func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// write is the life of a writer: lead, be told to go on, write once.
func write(ctx context.Context, where *storeflag.Flags, name string, guarded bool) error {
	client, err := where.Client()
	if err != nil {
		return err
	}
	bucket, key := where.Bucket(), key(guarded)
	lock, err := leasehold.NewLock(leasehold.NewS3Store(client, bucket), key+".lock", leasehold.WithTTL(ttl), leasehold.WithIdentity(name))
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
	fmt.Printf("token %d: %s leads, has looked at the lease (valid: %v), and is about to write\n", lease.Token(), name, lease.Valid())
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	body := []byte("written by " + name)
	if guarded {
		err = files.Put(ctx, lease.Token(), key, bytes.NewReader(body))
	} else {
		_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)})
	}
	if err != nil {
		fmt.Printf("token %d: %s is refused: %v\n", lease.Token(), name, err)
	} else {
		fmt.Printf("token %d: %s has written\n", lease.Token(), name)
	}
	_, err = io.Copy(io.Discard, os.Stdin) // leads until it is killed
	return err
}
