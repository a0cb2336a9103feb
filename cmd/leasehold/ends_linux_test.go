package main_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// clouds are URLs of a prefix on a server, and credentials for it. The server need not be what it
// is taken for.
func clouds(endpoint string) map[string]func(*exec.Cmd) string {
	return map[string]func(*exec.Cmd) string{
		"s3": func(cmd *exec.Cmd) string {
			cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b")
			return "s3://bucket/locks/?endpoint=" + endpoint
		},
		"gs": func(*exec.Cmd) string { return "gs://bucket/locks/?endpoint=" + endpoint },
		"azblob": func(cmd *exec.Cmd) string {
			cmd.Env = append(cmd.Env, "AZURE_STORAGE_KEY=c2VjcmV0")
			return "azblob://container/locks/?account=account&endpoint=" + endpoint
		},
	}
}

// onCloud runs a command on each kind of cloud. The arguments have PREFIX for the URL of a prefix,
// and LOCK for that of a lock.
func onCloud(t *testing.T, cloud, endpoint string, args ...string) result {
	t.Helper()
	cmd := place{t: t}.command()
	prefix := clouds(endpoint)[cloud](cmd)
	names := strings.NewReplacer("PREFIX", prefix, "LOCK", strings.Replace(prefix, "/?", "/a?", 1))
	for _, arg := range args {
		cmd.Args = append(cmd.Args, names.Replace(arg))
	}
	return finish(t, cmd)
}

// Every request is under a limit: what never comes to an end is a store that does not answer.
func TestEveryRequestEnds(t *testing.T) {
	silent := silentServer(t)
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(busy.Close)
	for name, endpoint := range map[string]string{"silent": silent, "busy": busy.URL} {
		for cloud := range clouds(endpoint) {
			for _, args := range [][]string{{"list", "PREFIX"}, {"status", "LOCK"}, {"doctor", "LOCK"}} {
				t.Run(strings.Join([]string{name, cloud, args[0]}, " "), func(t *testing.T) {
					t.Parallel()
					began := time.Now()
					r := onCloud(t, cloud, endpoint, args...)
					require.Equal(t, 69, r.code, "%s%s", r.out, r.stderr)
					require.Less(t, time.Since(began), 40*time.Second)
				})
			}
		}
	}
	t.Run("credentials", func(t *testing.T) {
		t.Parallel()
		lock, prefix := "s3://bucket/locks/a?endpoint="+busy.URL, "s3://bucket/locks/?endpoint="+busy.URL
		for _, args := range [][]string{{"doctor", lock}, {"list", prefix}, {"status", lock}} {
			cmd := place{t: t}.command(args...)
			cmd.Env = append(cmd.Env, "AWS_CONTAINER_CREDENTIALS_FULL_URI="+silent+"/credentials")
			r := finish(t, cmd)
			require.Equal(t, 69, r.code, "%s: %s%s", args, r.out, r.stderr)
		}
	})
}

// silentServer accepts connections and never answers.
func silentServer(t *testing.T) (endpoint string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String()
}

// A web page is no answer of a store, though it comes with 200.
func TestAWebPageIsNoStore(t *testing.T) {
	t.Parallel()
	for kind, page := range map[string]string{
		"text/html":        "<!DOCTYPE html><html><head><title>Welcome</title></head><body>It works!</body></html>",
		"application/xml":  "<html><body>It works!</body></html>",
		"application/json": "[]",
		"text/plain":       "",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, page)
		}))
		t.Cleanup(server.Close)
		for cloud := range clouds(server.URL) {
			t.Run(cloud+" "+kind, func(t *testing.T) {
				r := onCloud(t, cloud, server.URL, "list", "PREFIX")
				require.Equal(t, 69, r.code, "%s%s", r.out, r.stderr)
				require.Empty(t, r.out)
				plain(t, r.stderr, 1)
				for _, args := range [][]string{
					{"status", "LOCK"}, {"run", "-n", "LOCK", "--", "true"}, {"doctor", "LOCK"},
				} {
					r := onCloud(t, cloud, server.URL, args...)
					require.NotContains(t, []int{-1, 0, 2, 70}, r.code, "%s: %s%s", args, r.out, r.stderr)
					require.NotContains(t, r.stderr, "goroutine", "%s", args)
				}
			})
		}
	}
}

// Each exit code of the page is one that the program ends with. For those of run, the page says
// whether the command can have run.
func TestEveryExitCodeOfThePage(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { full.Close() })
	p := newPlace(t)
	p.put("corrupt", []byte("x"))
	there := "file://" + p.dir + "/"
	offline(t, "acquire", there+"held").succeeds(t)
	noInterpreter, noProgram := filepath.Join(p.dir, "no-interpreter"), filepath.Join(p.dir, "no-program")
	require.NoError(t, os.WriteFile(noInterpreter, []byte("#!/no/such/interpreter\n"), 0o755))
	require.NoError(t, os.WriteFile(noProgram, []byte{0x7f, 'E', 'L', 'F', 0, 0, 0, 0}, 0o755))
	plainFile := filepath.Join(p.dir, "plain")
	require.NoError(t, os.WriteFile(plainFile, nil, 0o600))
	deny := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Amz-Request-Id", "1")
		w.WriteHeader(http.StatusForbidden)
		if r.Method != http.MethodHead {
			_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code></Error>")
		}
	}))
	t.Cleanup(deny.Close)
	nobody := httptest.NewServer(nil)
	nobody.Close()
	command := func(args ...string) *exec.Cmd {
		cmd := p.command(args...)
		cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b")
		return cmd
	}
	ran := filepath.Join(p.dir, "ran")
	touch := []string{"--", "touch", ran}
	run := func(url string, more ...string) *exec.Cmd {
		return command(append(append([]string{"run", "-n"}, more...), append([]string{url}, touch...)...)...)
	}
	toFull := func(args ...string) *exec.Cmd {
		cmd := command(args...)
		cmd.Stdout = full
		return cmd
	}
	few := func(args ...string) *exec.Cmd { // too few open files
		cmd := command(args...)
		// Files that the test's own parent has left open would count, too.
		const limited = `exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&-; ulimit -n 9; exec "$0" "$@"`
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", limited, program}, args...)
		return cmd
	}
	metadata := func(args ...string) *exec.Cmd { // a metadata service that refuses
		cmd := p.command(args...)
		cmd.Env = append(cmd.Env, "AWS_EC2_METADATA_DISABLED=false", "AWS_EC2_METADATA_SERVICE_ENDPOINT="+deny.URL)
		return cmd
	}
	none := "s3://bucket/a?endpoint=" + nobody.URL
	provoked := map[string][]*exec.Cmd{
		"0":             {command("run", there+"zero", "--", "true"), command("list", there)},
		"the command's": {command("run", there+"three", "--", "sh", "-c", "exit 3")},
		"64": {
			run("report"), run(there + "x?y=z"), command("completion", "nosuch"), command("urls", "nosuch"),
			command("completion", "bash", "x"),
		},
		"69": {run(none), few("run", "-n", there+"few", "--", "true")},
		"74": {
			toFull("status", there+"held"), toFull("help"), toFull("--version"), toFull("completion", "bash"),
			toFull("completion", "zsh"), toFull("help", "urls"), toFull("run", "--help"), toFull("man"),
			toFull("acquire", there+"full"), toFull("completion"),
		},
		"75": {run(there + "held")},
		"77": {run("s3://bucket/a?endpoint=" + deny.URL), command("list", "s3://bucket/a?endpoint="+deny.URL)},
		"78": {
			run(there + "corrupt"), run("file:///no/such/directory/a"), metadata("status", none),
			metadata("run", "-n", none, "--", "true"),
		},
		"126": {command("run", there+"cannot", "--", plainFile), command("run", there+"format", "--", noProgram)},
		"127": {
			command("run", there+"missing", "--", "no-such-command"),
			command("run", there+"interpreter", "--", noInterpreter),
		},
	}
	for code, cmds := range provoked {
		for i, cmd := range cmds {
			r := finish(t, cmd)
			want := code
			if code == "the command's" {
				want = "3"
			}
			got, err := json.Marshal(r.code)
			require.NoError(t, err)
			require.Equal(t, want, string(got), "%s, %d: %s%s", code, i, r.out, r.stderr)
		}
	}
	require.NoFileExists(t, ran)

	// 70: the guard is killed. 79: the lease is broken. 128+n: by a signal.
	s, _ := ready(t, command("run", there+"guard", "--", "sh", "-c", "echo ready; exec sleep 60"))
	require.NoError(t, syscall.Kill(onlyChild(t, s.Process.Pid), syscall.SIGKILL))
	require.Equal(t, 70, s.wait(t), "%s", &s.stderr)
	s, _ = ready(t, command("run", "--ttl", "3s", there+"broken", "--", "sh", "-c", "echo ready; exec sleep 60"))
	offline(t, "break", "--token", "1", there+"broken").succeeds(t)
	require.Equal(t, 79, s.wait(t), "%s", &s.stderr)
	require.Equal(t, 128+9, finish(t, command("run", there+"signal", "--", "sh", "-c", "kill -9 $$")).code)
	for _, code := range []string{"70", "79", "128+n"} {
		provoked[code] = nil
	}

	_, table, _ := strings.Cut(page(t), "| exit code | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := regexp.MustCompile(`(?m)^\| ([^-].*?) \| `).FindAllStringSubmatch(table, -1)
	require.Len(t, rows, len(provoked))
	for _, row := range rows {
		require.Contains(t, provoked, row[1])
	}

	// A command that turns out under the lock to be none has used a token, and the lock is free
	// again.
	for _, name := range []string{"format", "interpreter"} {
		r := offline(t, "status", "-o", "json", there+name)
		r.succeeds(t)
		require.Equal(t, []any{"free", uint64(1)}, []any{views(t, r.out)[0].State, views(t, r.out)[0].Token}, name)
	}
}

// A lock that cannot be read is shown among the others.
func TestStatusOfSeveralLocks(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	other, missing := "file://"+p.dir+"/b", "file://"+p.dir+"/none/c"
	offline(t, "run", p.url, "--", "true").succeeds(t)
	r := offline(t, "status", p.url, missing, other)
	require.Equal(t, 78, r.code, "%s", r.stderr)
	require.Regexp(t, `(?m)^`+regexp.QuoteMeta(missing)+` +unknown +0 +.*create the directory`, r.out)
	require.Regexp(t, `(?m)^`+regexp.QuoteMeta(other)+` +free `, r.out)
	r = offline(t, "status", "-o", "json", p.url, missing, other)
	require.Equal(t, 78, r.code, "%s", r.stderr)
	all := views(t, r.out)
	require.Len(t, all, 3)
	require.Equal(t, []string{missing, "unknown"}, []string{all[1].URL, all[1].State})
	require.Contains(t, all[1].Error, "create the directory")
}

// No message has a password or a signature that somebody has put into a URL.
func TestNoSecretOfAURLIsPrinted(t *testing.T) {
	for _, url := range []string{
		"s3://bucket/a?endpoint=http://user:hunter2@host", "s3://bucket/a?endpoint=http%3A%2F%2Fuser%3Ahunter2%40host",
		"s3://bucket/a?endpoint=http://user:hunter2/x@host", "s3://bucket/a?region=x&endpoint=ftp://user:hunter2@host",
		"s3://user:hunter2@bucket/a", "s3://user:/hunter2@bucket/a", "s3:user:hunter2@bucket/a",
		"s4://user:hunter2@bucket/a", "https://user:hunter2@host/bucket/a",
		"s3://bucket/a?colour=red&endpoint=http://user:hunter2@host", "s3://bucket/a?http://user:hunter2@host",
		"azblob://c/a?endpoint=https://account.example/?sig=hunter2",
		"azblob://c/a?endpoint=https%3A%2F%2Faccount.example%2F%3Fsig%3Dhunter2",
		"file:///dir/a?http://user:hunter2@host", "s3://bucket/?endpoint=http://user:hunter2@host",
	} {
		for _, args := range [][]string{
			{"status", url}, {"list", url}, {"run", url, "--", "true"}, {"renew", url},
			{"renew", url + "#term=1-ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
			{"doctor", "--endpoint", strings.TrimPrefix(url, "s3://bucket/a?endpoint="), "s3://bucket/a"},
		} {
			r := offline(t, args...)
			require.Equal(t, 64, r.code, "%s: %s", args, r.stderr)
			require.NotContains(t, r.stderr+r.out, "hunter2", "%s", args)
		}
	}
}

// A store that is down is one line, though each of its answers has another number.
func TestWatchComplainsOnce(t *testing.T) {
	t.Parallel()
	answered := make(chan struct{}, 100)
	var numbers atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		number := int(numbers.Add(1))
		w.Header().Set("X-Amz-Request-Id", strings.Repeat("7", number))
		w.WriteHeader(http.StatusServiceUnavailable)
		text := strings.Repeat("x", number)
		_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code><Message>"+text+"</Message></Error>")
		answered <- struct{}{}
	}))
	t.Cleanup(server.Close)
	b := bucket{t: t, server: testserver.S3{Endpoint: server.URL, AccessKey: "a", SecretKey: "b"}, name: "bucket"}
	s := start(t, b.command("watch", "--interval", "50ms", b.url("a")))
	for range 10 {
		<-answered
	}
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	s.wait(t)
	require.Equal(t, 1, strings.Count(s.stderr.String(), "\n"), "%s", &s.stderr)
}
