package main_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// completed is what a shell gets when TAB is pressed after these arguments, and what it does then.
func completed(t *testing.T, cmd *exec.Cmd) (values []string, directive string) {
	t.Helper()
	r := finish(t, cmd)
	require.Equal(t, 0, r.code)
	require.Regexp(t, `^Completion ended with directive: \w+(, \w+)*\n$`, r.stderr, "cobra's, which no shell shows")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

const noFiles, noFilesNoSpace, files = ":4", ":6", ":0"

func TestCompletionOfFlags(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for args, want := range map[string][]string{
		"run --on-crash ":         {"release", "keep", noFiles},
		"elect --on-crash=":       {"release", "keep", noFiles},
		"status -o ":              {"text", "json", noFiles},
		"run --ttl ":              {noFiles},
		"run --margin ":           {noFiles},
		"run --holder ":           {noFiles},
		"run --slots ":            {noFiles},
		"acquire --wait ":         {noFiles},
		"hold --while ":           {noFiles},
		"doctor --endpoint ":      {noFiles},
		"acquire --handle-file ":  {files},
		"elect --on-new-leader ":  {files},
		"break --token 7 --yes x": {noFiles},
	} {
		values, directive := completed(t, p.command(append([]string{"__complete"}, strings.Split(args, " ")...)...))
		require.Equal(t, want, append(values, directive), "%q", args)
	}
}

// The keys of the store complete a URL, and a store that does not answer in time none.
func TestCompletionOfKeys(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, key := range []string{"alpha", "alpine", "beta", "jobs/x"} {
		p.record(key, leasehold.Record{Token: 1, Holder: "h", Nonce: "x"})
	}
	require.NoError(t, os.WriteFile(p.dir+"/%0a.object", []byte("x"), 0o600))
	there := "file://" + p.dir + "/"
	for begun, want := range map[string][]string{
		"al":    {there + "alpha", there + "alpine", noFiles},
		"alpi":  {there + "alpine", noFiles},
		"":      {there + "alpha", there + "alpine", there + "beta", there + "jobs%2Fx", noFiles},
		"gamma": {noFiles},
	} {
		for _, command := range strings.Fields("status watch break run elect acquire doctor bench list") {
			values, directive := completed(t, p.command("__complete", command, there+begun))
			require.Equal(t, want, append(values, directive), "%s %q", command, begun)
		}
	}
	values, directive := completed(t, p.command("__complete", "status", there+"beta", there+"alpi"))
	require.Equal(t, []string{there + "alpine", noFiles}, append(values, directive), "one more")
	values, directive = completed(t, p.command("__complete", "watch", there+"beta", there+"alpi"))
	require.Equal(t, []string{noFiles}, append(values, directive))
	values, directive = completed(t, p.command("__complete", "watch", ""))
	require.Equal(t, []string{"s3://", "gs://", "azblob://", "file:///", noFilesNoSpace}, append(values, directive))

	nobody := httptest.NewServer(nil)
	nobody.Close()
	began := time.Now()
	completed(t, p.command("__complete", "status", ""))
	start := time.Since(began) // of a process that asks nobody
	for _, endpoint := range []string{silentServer(t), nobody.URL} {
		for _, url := range []string{"s3://b/lo", "gs://b/lo", "azblob://c/lo", "file:///no/such/directory/lo"} {
			cmd := p.command("__complete", "status", url)
			cmd.Env = append(cmd.Env, "AWS_ENDPOINT_URL="+endpoint, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b",
				"AWS_REGION=x", "AZURE_STORAGE_ACCOUNT=a", "STORAGE_EMULATOR_HOST="+endpoint,
				"AZURE_STORAGE_CONNECTION_STRING=BlobEndpoint="+endpoint+"/a;AccountName=a;AccountKey=YQ==")
			began = time.Now()
			values, directive := completed(t, cmd)
			require.Equal(t, []string{noFiles}, append(values, directive), url)
			require.Less(t, time.Since(began), 3*time.Second+4*start, "%s: a second, and no request's whole time", url)
		}
	}
}

func TestCompletionOfKeysOnAServer(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	b.putObject("locks/report", "x")
	b.putObject("other", "x")
	cmd := b.command("__complete", "status", "s3://"+b.name+"/lo")
	cmd.Env = append(cmd.Env, "AWS_ENDPOINT_URL="+b.server.Endpoint, "AWS_REGION=us-east-1")
	for deadline := time.Now().Add(hangs); ; { // a busy machine may need more than the second that a try has
		again := exec.CommandContext(t.Context(), cmd.Path, cmd.Args[1:]...)
		again.Env = cmd.Env
		values, directive := completed(t, again)
		require.Equal(t, noFiles, directive)
		if len(values) > 0 || time.Now().After(deadline) {
			require.Equal(t, []string{"s3://" + b.name + "/locks/report"}, values)
			return
		}
	}
}
