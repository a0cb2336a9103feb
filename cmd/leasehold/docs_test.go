package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/leasehold-go/leasehold"
)

func page(t *testing.T) string {
	body, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	return string(body)
}

// snippet is the code of the page that is marked as of this language and has the text.
func snippet(t *testing.T, language, with string) string {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page(t), -1) {
		if strings.Contains(m[1], with) {
			return m[1]
		}
	}
	require.Fail(t, "no such snippet", "%s with %s", language, with)
	return ""
}

func TestExitCodesOnThePage(t *testing.T) {
	_, table, ok := strings.Cut(page(t), "| exit code | meaning |\n| --- | --- |\n")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n\n")
	help := offline(t, "help", "exit-codes").out
	help = strings.ReplaceAll(help, "\n"+strings.Repeat(" ", 17), " ") // lines that go on
	rows := regexp.MustCompile(`(?m)^  (\S.{14})(.*)$`).FindAllStringSubmatch(help, -1)
	require.Greater(t, len(rows), 10)
	var want strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&want, "| %s | %s |\n", strings.TrimSpace(r[1]), r[2])
	}
	require.Equal(t, strings.TrimSpace(want.String()), strings.ReplaceAll(table, "`", `"`))
}

func TestCommandsOnThePage(t *testing.T) {
	help := offline(t, "help").out
	_, table, _ := strings.Cut(page(t), "| command | does |\n| --- | --- |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	found := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([a-z]+)").FindAllStringSubmatch(m[1], -1) {
			require.Regexp(t, `(?m)^  `+name[1]+` `, help)
			found[name[1]] = true
		}
	}
	_, listed, _ := strings.Cut(help, "Available Commands:\n")
	listed, _, _ = strings.Cut(listed, "\n\n")
	require.Len(t, found, strings.Count(listed, "\n")+1, "all commands are on the page")
}

// workshop is where snippets of the page run: with the program, the other programs that they name,
// and a bucket.
type workshop struct {
	bucket
	dir string
	env []string
}

func newWorkshop(t *testing.T) workshop {
	w := workshop{newBucket(t), t.TempDir(), nil}
	require.NoError(t, os.Symlink(program, filepath.Join(w.dir, "leasehold")))
	w.env = append(w.environ(), "PATH="+w.dir+":"+os.Getenv("PATH"), "AWS_ENDPOINT_URL="+w.server.Endpoint, "LOG="+
		filepath.Join(w.dir, "log"))
	return w
}

// provide writes a program that appends its name, and what the lock says at that time, to the log.
func (w workshop) provide(name, script string) {
	require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, name),
		[]byte("#!/bin/sh\necho "+name+" $LEASEHOLD_TOKEN $* >>$LOG\n"+script), 0o700))
}

func (w workshop) log() string {
	body, _ := os.ReadFile(filepath.Join(w.dir, "log"))
	return string(body)
}

// here is a snippet with the names of this place.
func (w workshop) here(text string) string {
	text = strings.ReplaceAll(text, "s3://my-bucket/", "s3://"+w.name+"/")
	return strings.ReplaceAll(text, "/usr/local/bin/", w.dir+"/")
}

func (w workshop) shell(script string) *exec.Cmd {
	cmd := exec.CommandContext(w.t.Context(), "bash", "-e", "-c", w.here(script))
	cmd.Env, cmd.Dir = w.env, w.dir
	return cmd
}

func (w workshop) released(key string, token int) {
	rec, err := w.lock(key).Inspect(w.t.Context())
	require.NoError(w.t, err)
	require.True(w.t, rec.Released())
	require.EqualValues(w.t, token, rec.Token)
}

func TestFirstSnippet(t *testing.T) {
	w := newWorkshop(t)
	w.provide("make", "")
	_, command, ok := strings.Cut(snippet(t, "sh", "go install"), "\n")
	require.True(t, ok)
	finish(t, w.shell(command)).succeeds(t)
	require.Equal(t, "make 1 report\n", w.log())
}

func TestCronSnippet(t *testing.T) {
	w := newWorkshop(t)
	w.provide("backup", "")
	lines := strings.Split(strings.TrimSpace(snippet(t, "cron", "")), "\n")
	require.Regexp(t, `^AWS_REGION=\S+$`, lines[0])
	// cron takes % for a line break
	job := regexp.MustCompile(`^(?:[0-9*/,-]+ ){5}([a-z]+) ([^%]+)$`).FindStringSubmatch(lines[1])
	require.NotNil(t, job, lines[1])
	require.Equal(t, "backup", job[1], "the user")
	finish(t, w.shell(job[2])).succeeds(t)
	require.Equal(t, "backup 1\n", w.log())
	lease, err := w.lock("locks/backup").Acquire(t.Context())
	require.NoError(t, err)
	finish(t, w.shell(job[2])).succeeds(t)
	require.Equal(t, "backup 1\n", w.log(), "the others are content")
	require.NoError(t, lease.Release(t.Context()))
}

// The lines of README.md, where one of cron has a comment, which cron would pass to the shell.
func TestReadmeSnippet(t *testing.T) {
	body, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	lines := regexp.MustCompile("(?s)\\(docs/cli.md\\).*?```sh\n  0 3 \\* \\* \\* (leasehold run [^\n]*)\n  " +
		"(leasehold run [^\n]*)\n  ```\n").FindStringSubmatch(string(body))
	require.NotNil(t, lines)
	w := newWorkshop(t)
	w.provide("nightly", "")
	w.provide("make", "")
	for _, line := range lines[1:] {
		finish(t, w.shell(line)).succeeds(t)
	}
	require.Equal(t, "nightly 1\nmake 1 deploy\n", w.log())
	w.released("locks/nightly", 1)
	w.released("locks/deploy", 1)

	// A deployment that fails is seen, and the lock is free, in every shell and whatever the shell
	// does about failures.
	w.provide("make", "exit 3")
	for i, shell := range [][]string{{"sh", "-c"}, {"bash", "-c"}, {"bash", "-e", "-c"}} {
		cmd := w.shell("")
		cmd.Path, _ = exec.LookPath(shell[0])
		cmd.Args = append(shell, w.here(lines[2]))
		require.Equal(t, 3, finish(t, cmd).code)
		w.released("locks/deploy", i+2)
	}
}

func TestSystemdSnippet(t *testing.T) {
	w := newWorkshop(t)
	w.provide("scheduler", "trap 'exit 1' TERM\nwhile :; do sleep 0.05; done\n")
	settings := make(map[string]string)
	section := ""
	for line := range strings.Lines(w.here(snippet(t, "ini", "[Service]"))) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		switch {
		case line == "":
		case strings.HasPrefix(line, "["):
			section = line
		default:
			require.True(t, ok, line)
			settings[section+name] = value
		}
	}
	require.Equal(t, "mixed", settings["[Service]KillMode"])
	command := strings.Fields(settings["[Service]ExecStart"])
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(w.env, settings["[Service]Environment"])
	s := start(t, cmd)
	require.Eventually(t, func() bool { return w.log() == "scheduler 1\n" }, time.Minute, 10*time.Millisecond)
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, s.wait(t), "%s", &s.stderr)
	w.released("leaders/scheduler", 1)
}

func TestPipelineSnippet(t *testing.T) {
	w := newWorkshop(t)
	var workflow struct {
		Jobs map[string]struct {
			RunsOn      string `yaml:"runs-on"`
			Permissions map[string]string
			Env         map[string]string
			Steps       []struct {
				Name, If, Run, Uses string
				With                map[string]string
			}
		}
	}
	decode(t, snippet(t, "yaml", "steps:"), &workflow)
	job := workflow.Jobs["deploy"]
	held := filepath.Join(w.dir, "held")
	w.provide("make", `leasehold status -o json "`+w.here("s3://my-bucket/locks/deploy")+`" >>`+held+"\n")
	for name, value := range job.Env {
		w.env = append(w.env, name+"="+value)
	}
	w.env = append(w.env, "RUNNER_TEMP="+w.dir)
	var lock string
	log := filepath.Join(w.dir, "hold.log")
	for _, step := range job.Steps {
		t.Log(step.Name)
		switch {
		case step.Uses != "" || step.Name == "Install":
			continue
		case step.Name == "Lock":
			lock = step.Run
		}
		finish(t, w.shell(step.Run)).succeeds(t)
		if step.Name == "Lock" { // a hold that begins after the release has nothing to say
			require.Eventually(t, func() bool {
				said, err := os.ReadFile(log)
				return err == nil && len(said) > 0
			}, hangs, 10*time.Millisecond)
		}
	}
	said, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Regexp(t, `^\S+: renewing token 1 until \S+ \S+ [+-]\d{4}\n$`, string(said),
		"hold has nothing to complain about")
	require.Equal(t, "make build\nmake deploy\n", w.log())
	body, err := os.ReadFile(held)
	require.NoError(t, err)
	all := views(t, string(body))
	require.Len(t, all, 2)
	require.Equal(t, "held", all[0].State)
	require.Equal(t, "held", all[1].State)
	require.True(t, all[1].ExpiresAt.After(all[0].ExpiresAt), "it was renewed")
	w.released("locks/deploy", 1)

	// Where the lock is held by another, the first step fails, and the last one, which always runs,
	// does not.
	lease, err := w.lock("locks/deploy", leasehold.WithHolder("another")).Acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, 75, finish(t, w.shell(strings.Replace(lock, "--wait 1h", "--no-wait", 1))).code)
	last := job.Steps[len(job.Steps)-1]
	require.Equal(t, "always()", last.If)
	finish(t, w.shell(last.Run)).succeeds(t)
	require.True(t, lease.Valid())
	require.NoError(t, lease.Release(t.Context()))
}

func TestKubernetesSnippet(t *testing.T) {
	w := newWorkshop(t)
	w.provide("report", "exit 3")
	var job struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			Schedule    string
			JobTemplate struct {
				Spec struct {
					Template struct {
						Spec struct {
							ServiceAccountName            string `yaml:"serviceAccountName"`
							RestartPolicy                 string `yaml:"restartPolicy"`
							TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
							Containers                    []struct {
								Name, Image string
								Command     []string
							}
						}
					}
				}
			} `yaml:"jobTemplate"`
		}
	}
	decode(t, snippet(t, "yaml", "kind: CronJob"), &job)
	require.Equal(t, "batch/v1", job.APIVersion)
	command := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Command
	for i := range command {
		command[i] = w.here(command[i])
	}
	require.Equal(t, "leasehold", command[0])
	cmd := exec.CommandContext(t.Context(), program, command[1:]...)
	cmd.Env = append(w.env, "AWS_REGION=us-east-1")
	require.Equal(t, 3, finish(t, cmd).code)
	require.Equal(t, "report 1\n", w.log())
}

// decode refuses members that the value does not have.
func decode(t *testing.T, text string, value any) {
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	require.NoError(t, d.Decode(value))
}
