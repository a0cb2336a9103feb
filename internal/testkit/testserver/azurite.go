package testserver

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// Azurite is Microsoft's emulator of Azure Blob Storage, as a process.
type Azurite struct {
	Endpoint string // URL of the account, such as http://127.0.0.1:10000/leaseholdtest
	Account  string
	Key      string // of the account, in base64
}

// AnyAPIVersion is a flag of Azurite. The SDK may be newer than Azurite, and then sends a version
// of the API that Azurite refuses without it.
const AnyAPIVersion = "--skipApiVersionCheck"

// StartAzurite starts an Azurite for one test, in memory, with a separate account. Azurite is a
// Node package: npm install -g azurite. Where it is not installed, the test is [Missing] an
// azurite.
func StartAzurite(tb testing.TB, flags ...string) Azurite {
	tb.Helper()
	SkipIfShort(tb)
	program, err := exec.LookPath("azurite-blob")
	if err != nil {
		Missing(tb, "azurite", fmt.Errorf("it needs Azurite, which npm install -g azurite installs: %w", err))
	}
	a := Azurite{
		Account: "leaseholdtest",
		Key:     base64.StdEncoding.EncodeToString([]byte("the key of an account in memory")),
	}
	cmd := exec.Command(program, append([]string{"--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence",
		"--disableTelemetry", "--silent"}, flags...)...)
	cmd.Dir = tb.TempDir()
	cmd.Env = append(cmd.Environ(), "AZURITE_ACCOUNTS="+a.Account+":"+a.Key)
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	run(tb, cmd)
	// "Azurite Blob service successfully listens on http://127.0.0.1:49152"
	for said := bufio.NewScanner(out); said.Scan(); {
		if _, address, ok := strings.Cut(said.Text(), " listens on http"); ok &&
			strings.Contains(said.Text(), "success") {
			a.Endpoint = "http" + strings.TrimSpace(address) + "/" + a.Account
			return a
		}
	}
	tb.Fatal("testserver: Azurite did not say where it listens")
	return a
}

// run starts a server, which ends with the test, or with this process.
func run(tb testing.TB, cmd *exec.Cmd) {
	tb.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = childAttr()
	}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // on Linux the server ends with the thread that has started it
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
}

// ConnectionString is what AZURE_STORAGE_CONNECTION_STRING takes.
func (a Azurite) ConnectionString() string {
	protocol, _, _ := strings.Cut(a.Endpoint, ":")
	return "DefaultEndpointsProtocol=" + protocol + ";AccountName=" + a.Account + ";AccountKey=" + a.Key +
		";BlobEndpoint=" + a.Endpoint
}
