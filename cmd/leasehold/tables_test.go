package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tableView is what status prints of a table as JSON.
type tableView struct {
	Key, State string
	Token      uint64
	Table      struct {
		Bytes   int
		Members []struct {
			Name, Key, State string
			Metadata         map[string]string
		}
		Held, Waiting []struct {
			Locks         []string
			Member, State string
			Token         uint64
		}
	}
}

func statusOfTable(t *testing.T, url string) (v tableView) {
	t.Helper()
	r := offline(t, "status", "-o", "json", url)
	r.succeeds(t)
	require.NoError(t, json.Unmarshal([]byte(r.out), &v), r.out)
	require.Equal(t, "table", v.State)
	return v
}

// holder is a run of a command that holds a lock of a table until its standard input ends. It
// returns when the command has started.
func startHolder(t *testing.T, args ...string) (holder *started, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append(append([]string{"run"}, args...), "--", "sh", "-c",
		"echo started; read line")...)
	cmd.Env = plainEnviron()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	holder = start(t, cmd)
	line, err := bufio.NewReader(holder.out).ReadString('\n')
	require.NoError(t, err, "%s", holder.stderr.String())
	require.Equal(t, "started\n", line)
	return holder, func() {
		require.NoError(t, in.Close())
		require.Contains(t, []int{0, 1}, holder.wait(t), "%s", holder.stderr.String()) // read has seen the end
	}
}

func TestRunInATable(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir() + "/imports"
	r := offline(t, "run", "--slots", "2", url, "--", "sh", "-c", "echo $LEASEHOLD_KEY $LEASEHOLD_LOCK; exit 3")
	require.Equal(t, 3, r.code, "%s", r.stderr)
	require.Equal(t, "imports run\n", r.out)
	require.Empty(t, r.stderr)
	require.Empty(t, statusOfTable(t, url).Table.Members)
	offline(t, "status", "--exit-code", url).succeeds(t)

	_, endA := startHolder(t, "--slots", "2", "--holder", "ada", url)
	_, endB := startHolder(t, "--slots", "2", "--metadata", "team=red", url)
	offline(t, "run", "-n", "--slots", "2", url, "--", "true").complains(t, 75, "held")
	r = offline(t, "run", "-n", "--slots", "2", "--held-code", "0", url, "--", "true")
	r.succeeds(t)
	offline(t, "run", "-n", "--slots", "3", url, "--", "true").succeeds(t) // a new release counts one more
	offline(t, "run", "-n", "--shared", url, "--", "true").complains(t, 64, "the same --slots, or none")
	r = offline(t, "run", "--slots", "2", "--wait", "1s", url, "--", "true")
	require.Equal(t, 75, r.code, "%s", r.stderr)
	offline(t, "run", "--lock", "other", url, "--", "true").succeeds(t)

	v := statusOfTable(t, url)
	require.Len(t, v.Table.Members, 2)
	require.Equal(t, "ada", v.Table.Members[0].Metadata["holder"])
	require.Equal(t, "red", v.Table.Members[1].Metadata["team"])
	require.NotEmpty(t, v.Table.Members[1].Metadata["holder"])
	require.Len(t, v.Table.Held, 2)
	require.Empty(t, v.Table.Waiting)
	require.Equal(t, []string{"run (1 of 2)"}, v.Table.Held[0].Locks)
	require.Less(t, v.Table.Held[0].Token, v.Table.Held[1].Token)
	require.LessOrEqual(t, v.Table.Held[1].Token, v.Token)
	r = offline(t, "status", "--exit-code", url)
	require.Equal(t, 75, r.code)
	for _, want := range []string{
		`(?m)^file:\S+ +table +\d+ +2 members, 2 held, 0 waiting +- `,
		`(?m)^  ` + v.Table.Members[0].Name + ` +held +1 +ada +30s +- +20\S+ \S+ [+-]\d{4} +\d+s$`,
		`(?m)^  run \(1 of 2\) +held +` + strconv.FormatUint(v.Table.Held[0].Token, 10) + ` +` +
			v.Table.Members[0].Name + ` \(ada\) `,
	} {
		require.Regexp(t, want, r.out)
	}
	r = offline(t, "list", url)
	r.succeeds(t)
	require.Regexp(t, `(?m)^imports +table +\d+ +2 members, 2 held, 0 waiting`, r.out)
	require.Regexp(t, `(?m)^imports.members/[-.\w]+ +held `, r.out)
	require.Equal(t, 4, strings.Count(r.out, "\n"), r.out)

	offline(t, "break", "--token", fmt.Sprint(v.Token), url).complains(t, 64, "is a table of locks")
	heartbeat := url + ".members%2F" + v.Table.Members[0].Name
	offline(t, "break", "--token", "2", heartbeat).complains(t, 64, "it is in term 1 of")
	for _, args := range [][]string{{"run", "-n", url, "--", "true"}, {"run", url, "--", "true"},
		{"elect", url, "--", "true"}, {"acquire", "-n", url}, {"watch", url}} {
		offline(t, args...).complains(t, 78,
			`it is a table of locks, not a lock ("leasehold run" with --slots N, --shared or --lock NAME takes a lock `+
				`in it)`)
	}
	require.Equal(t, v, statusOfTable(t, url))
	endA()
	offline(t, "run", "--slots", "2", url, "--", "true").succeeds(t)
	endB()
	require.Empty(t, statusOfTable(t, url).Table.Members)
}

// Who was killed is shown as such, with its name, and so is what it holds or waits for.
func TestStatusOfADeadMember(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir() + "/imports"
	dead, _ := startHolder(t, "--slots", "2", "--holder", "ada", "--ttl", "2s", url)
	other, end := startHolder(t, "--slots", "2", "--holder", "bob", "--ttl", "1h", url)
	require.NoError(t, other.Process.Signal(syscall.SIGSTOP)) // or it would soon remove the dead member
	require.NoError(t, dead.Process.Kill())
	<-dead.ended
	var out string
	for deadline := time.Now().Add(hangs); !strings.Contains(out, "1 expired"); {
		require.True(t, time.Now().Before(deadline), out)
		r := offline(t, "status", url)
		r.succeeds(t)
		out = r.out
	}
	require.Regexp(t, `(?m)^file:\S+ +table +\d+ +2 members, 2 held, 0 waiting, 1 expired +- `, out)
	require.Regexp(t, `(?m)^  [-.\w]+ +expired +1 +ada +2s +- +20.* +\d+s$`, out)
	require.Regexp(t, `(?m)^  run \(1 of 2\) +expired +\d+ +[-.\w]+ \(ada\) `, out)
	require.Regexp(t, `(?m)^  [-.\w]+ +held +1 +bob +1h0m0s `, out)
	require.Regexp(t, `(?m)^  run \(1 of 2\) +held +\d+ +[-.\w]+ \(bob\) `, out)
	for v, i := statusOfTable(t, url).Table, 0; i < 2; i++ {
		want := map[string]string{"ada": "expired", "bob": "held"}[v.Members[i].Metadata["holder"]]
		require.Equal(t, want, v.Members[i].State, "as in the text")
		for _, row := range v.Held {
			require.True(t, row.Member != v.Members[i].Name || row.State == want, "%v", v)
		}
	}
	require.NoError(t, other.Process.Signal(syscall.SIGCONT))
	end()
}

// After a break, the lock of a member is released, so the member is not shown as its holder.
func TestStatusOfABrokenMember(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir() + "/imports"
	holder, _ := startHolder(t, "--slots", "2", "--ttl", "1h", url)
	require.NoError(t, holder.Process.Signal(syscall.SIGSTOP)) // or its command would be ended soon
	member := statusOfTable(t, url).Table.Members[0]
	require.Equal(t, "held", member.State)
	offline(t, "break", "--token", "1", url+".members%2F"+member.Name).succeeds(t)
	table := statusOfTable(t, url).Table
	require.Equal(t, "expired", table.Members[0].State)
	require.Equal(t, "expired", table.Held[0].State)
	require.NoError(t, holder.Process.Kill())
	<-holder.ended
}

func TestSharedLockInATable(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir() + "/schema"
	_, endA := startHolder(t, "--shared", url)
	_, endB := startHolder(t, "--shared", url)
	offline(t, "run", "-n", "--lock", "run", url, "--", "true").complains(t, 75, "held")
	endA()
	endB()
	_, end := startHolder(t, "--lock", "run", url)
	offline(t, "run", "-n", "--shared", url, "--", "true").complains(t, 75, "held")
	end()
}

// beats is a command that writes the time to a file, again and again.
func beats(file string) []string {
	return []string{"sh", "-c", `while :; do date +%s%N >>"$0"; sleep 0.01; done`, file}
}

// A leasehold with a lock of a table is stopped or killed, or its term as a member is broken.
// Another one gets the lock, and by then the command of the first must be dead.
func TestTheCommandInATableIsDeadBeforeTheLeaseIs(t *testing.T) {
	send := func(sig syscall.Signal) func(*testing.T, *started, string, tableView) {
		return func(t *testing.T, first *started, _ string, _ tableView) {
			require.NoError(t, first.Process.Signal(sig))
		}
	}
	for name, end := range map[string]func(t *testing.T, first *started, url string, v tableView){
		"stopped": send(syscall.SIGSTOP), "killed": send(syscall.SIGKILL),
		"broken": func(t *testing.T, first *started, url string, v tableView) {
			m := v.Table.Members[0]
			own := url + ".members%2F" + m.Name
			refused := offline(t, "break", "--token", fmt.Sprint(v.Token), url)
			refused.complains(t, 64, "leasehold break --token 1 "+own)
			r := offline(t, "break", "--token", "1", own)
			r.succeeds(t)
			require.Contains(t, r.out, "passes on when its TTL has passed")
			require.Equal(t, 79, first.wait(t), "%s", first.stderr.String())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			url, file := "file://"+dir+"/jobs", filepath.Join(dir, "beats")
			cmd := exec.CommandContext(t.Context(), program,
				append([]string{"run", "--lock", "job", "--ttl", "3s", url, "--"}, beats(file)...)...)
			cmd.Env = plainEnviron()
			first := start(t, cmd)
			require.Eventually(t, func() bool {
				body, _ := os.ReadFile(file)
				return len(body) > 0
			}, hangs, 10*time.Millisecond)
			v := statusOfTable(t, url)
			require.Len(t, v.Table.Held, 1)
			defer first.Process.Kill()
			began := time.Now()
			end(t, first, url, v)
			r := offline(t, "run", "--lock", "job", "--ttl", "3s", "--wait", "50s", url, "--", "sh", "-c",
				"date +%s%N; echo $LEASEHOLD_TOKEN")
			require.Equal(t, 0, r.code, "%s", r.stderr)
			var led int64
			var token uint64
			_, err := fmt.Sscan(r.out, &led, &token)
			require.NoError(t, err)
			require.Greater(t, token, v.Table.Held[0].Token)
			body, err := os.ReadFile(file)
			require.NoError(t, err)
			lines := strings.Fields(string(body))
			last, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
			require.NoError(t, err)
			require.Less(t, last, led, "both commands ran")
			t.Logf("the command was dead %v before the next, which began after %v",
				time.Duration(led-last).Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		})
	}
}

// The steps of a pipeline go on with a lock of a table as with a lock of its own.
func TestStepsInATable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url, file := "file://"+dir+"/imports", filepath.Join(dir, "lock")
	r := offline(t, "acquire", "--slots", "2", "--holder", "ada", url)
	r.succeeds(t)
	handle := strings.TrimSpace(r.out)
	require.Regexp(t, `^file:.*/imports#member=1-[A-Z2-7]{26}\.[-_A-Za-z0-9]+$`, handle)
	v := statusOfTable(t, url)
	require.Equal(t, "ada", v.Table.Members[0].Metadata["holder"])
	require.Equal(t, []string{"run (1 of 2)"}, v.Table.Held[0].Locks)
	token := v.Table.Held[0].Token
	offline(t, "acquire", "--slots", "2", "--handle-file", file, url).succeeds(t)
	second, err := os.ReadFile(file)
	require.NoError(t, err)
	offline(t, "acquire", "-n", "--slots", "2", url).complains(t, 75, "held")
	r = offline(t, "renew", handle)
	r.succeeds(t)
	require.Contains(t, r.out, fmt.Sprintf("/imports: renewed token %d until ", token))
	offline(t, "renew", "--ttl", "2h", handle).complains(t, 64, "keeps the TTL of acquire")
	require.Equal(t, v.Table.Held[0], statusOfTable(t, url).Table.Held[0], "the table has not changed")

	r = offline(t, "release", handle)
	r.succeeds(t)
	require.Contains(t, r.out, fmt.Sprintf("/imports: released token %d", token))
	require.Len(t, statusOfTable(t, url).Table.Held, 1)
	offline(t, "acquire", "--slots", "2", "--handle-file", file, url).complains(t, 64, "another lease of this table")
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(second), string(after))
	require.Len(t, statusOfTable(t, url).Table.Held, 1, "what was taken was given back")
	offline(t, "release", "--handle-file", file).succeeds(t)
	require.Empty(t, statusOfTable(t, url).Table.Members)
	offline(t, "release", "--handle-file", file).complains(t, 79, "deleted")
	offline(t, "renew", handle).complains(t, 79, "deleted")
	r = offline(t, "release", "--if-held", handle)
	r.succeeds(t)
	require.Empty(t, r.out)

	offline(t, "acquire", "--slots", "2", "--handle-file", file, url).succeeds(t) // over one that has ended
	offline(t, "release", "--handle-file", file).succeeds(t)
	left, err := filepath.Glob(filepath.Join(dir, "imports.members*", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A handle is checked before a request is sent, and no message has the secret.
func TestHandlesOfATable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url, file := "file://"+dir+"/imports", filepath.Join(dir, "lock")
	r := offline(t, "acquire", "--lock", "a", "-o", "json", "--handle-file", file, url)
	r.succeeds(t)
	var got struct {
		Key   string
		Token uint64
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &got))
	require.Equal(t, "imports", got.Key)
	require.Equal(t, statusOfTable(t, url).Table.Held[0].Token, got.Token)
	third, err := os.ReadFile(file)
	require.NoError(t, err)
	_, term, _ := strings.Cut(strings.TrimSpace(string(third)), "#member=")
	for _, wrong := range []string{
		"file://" + dir + "/other#member=" + term, url + "#term=" + term, url + "#member=" + term[:28],
		url + "#member=" + term[:len(term)-1], url + "#member=",
	} {
		for _, command := range []string{"renew", "release", "hold"} {
			r := offline(t, command, wrong)
			r.complains(t, 64, "not complete (pass what acquire has printed)")
			require.NotContains(t, r.stderr, term[5:20])
		}
	}
	offline(t, "release", "--handle-file", file).succeeds(t)
}

func TestHoldInATable(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir() + "/imports"
	r := offline(t, "acquire", "--shared", "--ttl", "5s", url)
	r.succeeds(t)
	handle := strings.TrimSpace(r.out)
	cmd := exec.CommandContext(t.Context(), program, "hold", handle)
	cmd.Env = plainEnviron()
	holder := start(t, cmd)
	line, err := bufio.NewReader(holder.out).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, ": renewing token ")
	time.Sleep(6 * time.Second)
	offline(t, "run", "-n", "--lock", "run", url, "--", "true").complains(t, 75, "held")
	offline(t, "release", handle).succeeds(t)
	require.Equal(t, 0, holder.wait(t), "%s", holder.stderr.String())
	require.Empty(t, statusOfTable(t, url).Table.Members)
}
