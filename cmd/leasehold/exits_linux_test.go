package main_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// exitsOnThePage has the exit codes of each command as the page's second table of them lists them,
// and the names in its table of commands.
func exitsOnThePage(t *testing.T) (codes map[string][]string, commands []string) {
	codes = make(map[string][]string)
	name := regexp.MustCompile("`([a-z]+)")
	table := func(header string) [][]string {
		_, table, found := strings.Cut(page(t), header+"\n| --- | --- |\n")
		require.True(t, found, header)
		table, _, _ = strings.Cut(table, "\n\n")
		return regexp.MustCompile(`(?m)^\| (.*?) \| (.*) \|$`).FindAllStringSubmatch(table, -1)
	}
	for _, row := range table("| command | exit codes, except 0, 64 and a bug |") {
		for _, command := range name.FindAllStringSubmatch(row[1], -1) {
			codes[command[1]] = strings.Split(row[2], ", ")
		}
	}
	for _, row := range table("| command | does |") {
		for _, command := range name.FindAllStringSubmatch(row[1], -1) {
			commands = append(commands, command[1])
		}
	}
	return codes, commands
}

// The program ends each command with each code that the page lists for it, and the page lists all
// that can be provoked here.
func TestExitCodesOfEachCommandOfThePage(t *testing.T) {
	t.Parallel()
	onPage, commands := exitsOnThePage(t)
	require.ElementsMatch(t, commands, slices.Collect(maps.Keys(onPage)), "each command has a row of exit codes")

	p := newPlace(t)
	there := "file://" + p.dir + "/"
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
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { full.Close() })
	plainFile := filepath.Join(p.dir, "plain")
	require.NoError(t, os.WriteFile(plainFile, nil, 0o600))
	handle := func(key string) string {
		r := offline(t, "acquire", there+key)
		r.succeeds(t)
		return strings.TrimSpace(r.out)
	}
	lost := handle("lost")
	offline(t, "break", "--token", "1", there+"lost").succeeds(t)
	offline(t, "run", there+"lost", "--", "true").succeeds(t)
	for _, key := range []string{"held", "broken"} {
		offline(t, "acquire", there+key).succeeds(t)
	}
	// As another bench of that lock takes it.
	offline(t, "acquire", "--metadata", "purpose=leasehold bench", there+"measured-bench").succeeds(t)
	fill := strings.NewReplacer(
		"HELD", there+"held", "MEASURED", there+"measured", "NEW", there+"new", "BROKEN", there+"broken", "LOST", lost,
		"RENEWED", handle("renewed"), "RELEASED", handle("released"), "KEPT", handle("kept"),
		"PLAIN", plainFile, "THERE", there,
		"REFUSED", "s3://bucket/a?endpoint="+nobody.URL,
		"UNKNOWN", "s3://bucket/a?endpoint=http://no-such-host.invalid",
		"DENIED", "s3://bucket/a?endpoint="+deny.URL, "MISSING", "file:///no/such/directory/a",
		"TERM", "#term=7-ABCDEFGHIJKLMNOPQRSTUVWXYZ",
	)
	// everywhere are the commands that read a store, in one that fails.
	everywhere := func(url string) map[string]string {
		return map[string]string{
			"run": "-n " + url + " -- true", "elect": "--ttl 2s " + url + " -- true", "acquire": "-n " + url,
			"renew": url + "TERM", "release": url + "TERM", "hold": "--for 1s " + url + "TERM", "status": url,
			"list": url, "watch": url, "break": "--token 1 " + url, "doctor": url, "bench": url,
		}
	}
	provoked := map[string]map[string]string{
		"the command's": {"run": "NEW -- sh -c exit${IFS}69"},
		"69":            everywhere("REFUSED"),
		"74": {
			"acquire": "NEW", "renew": "RENEWED", "release": "RELEASED", "hold": "KEPT", "status": "NEW",
			"list": "THERE", "watch": "NEW", "break": "--token 1 BROKEN", "doctor": "NEW",
			"bench": "--rounds 1 --ttl 1s NEW", "man": "", "completion": "bash", "help": "", "version": "",
		},
		"75":  {"run": "-n HELD -- true", "acquire": "-n HELD", "status": "--exit-code HELD", "bench": "MEASURED"},
		"77":  everywhere("DENIED"),
		"78":  everywhere("MISSING"),
		"79":  {"renew": "LOST", "release": "LOST", "hold": "LOST"},
		"126": {"run": "NEW -- PLAIN", "elect": "NEW -- PLAIN"},
		"127": {"run": "NEW -- no-such-command", "elect": "NEW -- no-such-command"},
		"64":  {},
	}
	provoked["69"]["elect"] = "--ttl 2s UNKNOWN -- true" // after a TTL
	provoked["69"]["watch"] = "UNKNOWN"                  // after 30 s
	for _, command := range commands {
		provoked["64"][command] = "--frob"
	}
	got := make(map[string][]string)
	t.Run("codes", func(t *testing.T) {
		for code, of := range provoked {
			for command, args := range of {
				if code != "64" {
					got[command] = append(got[command], code)
				}
				t.Run(code+" "+command, func(t *testing.T) {
					t.Parallel()
					cmd := p.command(append([]string{command}, strings.Fields(fill.Replace(args))...)...)
					cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b")
					if code == "74" {
						cmd.Stdout = full
					}
					want := code
					if code == "the command's" {
						want = "69"
					}
					r := finish(t, cmd)
					require.Equal(t, want, strconv.Itoa(r.code), "%s: %s%s", cmd.Args, r.out, r.stderr)
				})
			}
		}
	})

	// The guard is killed, and the lease of run is broken.
	for _, command := range []string{"run", "elect"} {
		s, _ := ready(t, p.command(command, there+"guard-"+command, "--", "sh", "-c", "echo ready; exec sleep 60"))
		require.NoError(t, syscall.Kill(onlyChild(t, s.Process.Pid), syscall.SIGKILL))
		require.Equal(t, 70, s.wait(t), "%s", &s.stderr)
		got[command] = append(got[command], "70")
	}
	s, _ := ready(t, p.command("run", "--ttl", "3s", there+"cut", "--", "sh", "-c", "echo ready; exec sleep 60"))
	offline(t, "break", "--token", "1", there+"cut").succeeds(t)
	require.Equal(t, 79, s.wait(t), "%s", &s.stderr)
	got["run"] = append(got["run"], "79")
	for args, code := range map[string]int{
		"run HELD -- true": 128 + 15, "acquire HELD": 128 + 15, "hold KEPT": 128 + 15, "watch HELD": 128 + 15,
		"elect HELD -- true": 0,
	} {
		s := start(t, p.command(append([]string{"-v"}, strings.Fields(fill.Replace(args))...)...))
		if strings.HasPrefix(args, "hold") || strings.HasPrefix(args, "watch") {
			_, err := s.out.Read(make([]byte, 1))
			require.NoError(t, err)
		} else {
			require.Eventually(t, func() bool { return strings.Contains(s.stderr.String(), "held by another") }, hangs,
				10*time.Millisecond, "%s", args)
		}
		require.NoError(t, s.Process.Signal(syscall.SIGTERM))
		require.Equal(t, code, s.wait(t), "%s: %s", args, &s.stderr)
	}
	all := map[string]bool{"0": true, "64": true, "128+n": true} // which the loops above have shown
	for command := range onPage {
		require.ElementsMatch(t, onPage[command], got[command], "%s", command)
		for _, code := range got[command] {
			all[code] = true
		}
	}
	_, table, _ := strings.Cut(page(t), "| exit code | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([^-].*?) \| `).FindAllStringSubmatch(table, -1) {
		listed = append(listed, row[1])
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(all)), listed)
}
