package main_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// TestScript runs the scripts of testdata/script: command lines, and the exit code and the text
// that each of them ends with. Besides the commands of testscript, a script has:
//
//	code N PROGRAM ARGS…          ends with this exit code
//	succeeds PROGRAM ARGS…        ends with 0, and nothing on standard error
//	refuses N TEXT PROGRAM ARGS…  ends with N, and prints nothing but one line of leasehold's
//	                              with TEXT, in words of the command
//	each FILE COMMAND ARGS…       runs COMMAND for each line of FILE. The cells of the line,
//	                              separated by "|", replace {1}, {2} and so on
//	plain N                       standard output has N lines, and nothing that a terminal obeys
//	save NAME                     puts the standard output into a variable
//	bucket [versitygw|gcs]        makes a bucket, $BUCKET. A URL in it is $B/key$Q
//	put KEY BODY                  writes an object into the bucket, or without one into $WORK. The
//	                              BODY "stdout" is the last standard output
//	version KEY                   prints what a write of the bucket's object would change
//	server NAME KIND              puts the URL of a server into NAME, and HOST:PORT into
//	                              NAME_ADDR. There are none, silent, hangup, and a status, with a
//	                              BODY or without one. The first request makes a file asked-NAME
//	server FILE unix              makes a socket
func TestScript(t *testing.T) {
	t.Parallel()
	commands := map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"code": exitCode, "succeeds": succeeds, "refuses": refused, "plain": plainOutput, "save": save,
		"version": version, "bucket": makeBucket, "put": putLock, "server": serve,
	}
	commands["each"] = func(ts *testscript.TestScript, neg bool, args []string) {
		for line := range strings.Lines(ts.ReadFile(args[0])) {
			cells := strings.Split(os.Expand(line, ts.Getenv), "|")
			var fill []string
			for i, cell := range cells {
				fill = append(fill, "{"+strconv.Itoa(i+1)+"}", strings.TrimSpace(cell))
			}
			var filled []string
			for _, arg := range args[2:] {
				filled = append(filled, strings.NewReplacer(fill...).Replace(arg))
			}
			commands[args[1]](ts, neg, filled)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Condition: func(name string) (bool, error) {
			if name != "root" {
				return false, fmt.Errorf("there is no condition %q", name)
			}
			return os.Getuid() == 0, nil
		},
		Cmds: commands,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(program)+":"+os.Getenv("PATH"))
			env.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			env.Setenv("GOVERSION", runtime.Version())
			env.Setenv("PLATFORM", runtime.GOOS+"/"+runtime.GOARCH)
			env.Values[theTest{}] = env.T()
			return nil
		},
	})
}

// theTest is the key of a script's testing.TB.
type theTest struct{}

// run runs a program and returns its exit code.
func run(ts *testscript.TestScript, args []string) int {
	err := ts.Exec(args[0], args[1:]...)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return shellCode(ended.ProcessState)
	}
	ts.Check(err)
	return 0
}

func exitCode(ts *testscript.TestScript, _ bool, args []string) {
	if got := run(ts, args[1:]); args[0] != strconv.Itoa(got) {
		ts.Fatalf("%q ended with %d, not %s", args[1:], got, args[0])
	}
}

func succeeds(ts *testscript.TestScript, _ bool, args []string) {
	exitCode(ts, false, append([]string{"0"}, args...))
	if ts.ReadFile("stderr") != "" {
		ts.Fatalf("%q complained", args)
	}
}

func refused(ts *testscript.TestScript, _ bool, args []string) {
	exitCode(ts, false, append([]string{args[0]}, args[2:]...))
	line := ts.ReadFile("stderr")
	if !strings.HasPrefix(line, "leasehold: ") || strings.Index(line, "\n") != len(line)-1 {
		ts.Fatalf("%q: not one line of leasehold's: %q", args[2:], line)
	}
	if !strings.Contains(line, args[1]) || goWords.MatchString(line) {
		ts.Fatalf("%q: %q is not in %q, or it has words of Go", args[2:], args[1], line)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("%q: it wrote %q", args[2:], out)
	}
}

func plainOutput(ts *testscript.TestScript, _ bool, args []string) {
	out := ts.ReadFile("stdout")
	if strconv.Itoa(strings.Count(out, "\n")) != args[0] || strings.ContainsFunc(out, func(r rune) bool {
		return r == unicode.ReplacementChar || r != '\n' && !unicode.IsPrint(r)
	}) {
		ts.Fatalf("not %s plain lines: %q", args[0], out)
	}
}

func save(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

func makeBucket(ts *testscript.TestScript, _ bool, args []string) {
	t := ts.Value(theTest{}).(testing.TB)
	server := testserver.MinIO
	switch strings.Join(args, "") {
	case "gcs":
		name := "script-" + ts.Name()
		endpoint := newGCSBucket(t, name)
		ts.Setenv("B", "gs://"+name)
		ts.Setenv("Q", "?endpoint="+endpoint)
		return
	case "versitygw":
		server = testserver.VersityGW
	}
	s := server(t)
	ts.Setenv("AWS_ACCESS_KEY_ID", s.AccessKey)
	ts.Setenv("AWS_SECRET_ACCESS_KEY", s.SecretKey)
	ts.Setenv("BUCKET", s.Bucket(t))
	ts.Setenv("B", "s3://"+ts.Getenv("BUCKET"))
	ts.Setenv("Q", "?endpoint="+s.Endpoint)
}

func putLock(ts *testscript.TestScript, _ bool, args []string) {
	t := ts.Value(theTest{}).(testing.TB)
	store := leasehold.NewFileStore(ts.Getenv("WORK"))
	if name := ts.Getenv("BUCKET"); name != "" {
		store = leasehold.NewS3Store(testserver.MinIO(t).Client(), name)
	}
	body := args[1]
	if body == "stdout" {
		body = ts.ReadFile(body)
	}
	_, err := store.PutIfNoneMatch(t.Context(), args[0], []byte(body))
	ts.Check(err)
}

func version(ts *testscript.TestScript, _ bool, args []string) {
	t := ts.Value(theTest{}).(testing.TB)
	_, err := io.WriteString(ts.Stdout(), bucket{t, testserver.MinIO(t), ts.Getenv("BUCKET")}.object(args[0]))
	ts.Check(err)
}

func serve(ts *testscript.TestScript, _ bool, args []string) {
	addr := testserver.FreeAddr(ts.Value(theTest{}).(testing.TB))
	listener, err := net.Listen("tcp", addr)
	ts.Check(err)
	ts.Setenv(args[0], "http://"+addr)
	ts.Setenv(args[0]+"_ADDR", addr)
	status := 0
	switch args[1] {
	case "none":
		ts.Check(listener.Close())
		return
	case "silent":
		ts.Defer(func() { listener.Close() })
		return
	case "unix":
		ts.Check(listener.Close())
		listener, err = net.Listen("unix", ts.MkAbs(args[0]))
		ts.Check(err)
		ts.Defer(func() { listener.Close() })
		return
	case "hangup":
	default:
		status, err = strconv.Atoi(args[1])
		ts.Check(err)
	}
	body, asked := strings.Join(args[2:], ""), ts.MkAbs("asked-"+args[0])
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = os.WriteFile(asked, nil, 0o600)
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		if status < http.StatusInternalServerError {
			w.Header().Set("X-Amz-Request-Id", "1")
		}
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			_, _ = io.WriteString(w, body)
		}
	}))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	ts.Defer(server.Close)
}
