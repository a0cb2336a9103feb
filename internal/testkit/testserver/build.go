package testserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// program is a server that is built from its Go module. A tools module of this repository pins its
// version.
type program struct {
	tool   string // directory under internal/tools
	module string
	pkg    string
}

var programs = map[string]program{
	"minio":           {"minio", "github.com/minio/minio", "github.com/minio/minio"},
	"versitygw":       {"versitygw", "github.com/versity/versitygw", "github.com/versity/versitygw/cmd/versitygw"},
	"fake-gcs-server": {"fakegcs", "github.com/fsouza/fake-gcs-server", "github.com/fsouza/fake-gcs-server"},
}

// Programs lists the names that [Build] accepts.
func Programs() []string { return []string{"minio", "versitygw", "fake-gcs-server"} }

// Build returns the path of a server program for the given operating system and the architecture of
// this machine. It builds without cgo, so that the program runs in an empty container, and once for
// each set of pinned versions and each Go version. Later calls use the cache in LEASEHOLD_CACHE, by
// default the directory "leasehold" in [os.UserCacheDir]. Concurrent calls, also from other
// processes, build a program once.
func Build(ctx context.Context, goos, name string) (string, error) {
	p, ok := programs[name]
	if !ok {
		return "", fmt.Errorf("testserver: no program %q: choose one of %q", name, Programs())
	}
	root, err := repository()
	if err != nil {
		return "", err
	}
	tool := filepath.Join(root, "internal", "tools", p.tool)
	key, err := cacheKey(tool, p.module)
	if err != nil {
		return "", err
	}
	bin, err := binDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(bin, fmt.Sprintf("%s-%s-%s-%s", name, key, goos, runtime.GOARCH))
	if exists(path) {
		return path, nil
	}

	// "go test ./..." tests packages in parallel processes. One of them builds, the others wait.
	var out output
	stop := progress(name, &out)
	defer stop()
	unlock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return "", fmt.Errorf("testserver: waiting for the build of %s: %w", name, err)
	}
	defer unlock()
	if exists(path) {
		return path, nil
	}
	tmp := path + ".tmp"
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-ldflags=-s -w", "-o", tmp, p.pkg)
	cmd.Dir = tool
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that the go command stops its compilers
	cmd.WaitDelay = 10 * time.Second
	// The tools modules are outside the workspace, and flags for this module's tests must not reach
	// them, because the server must be the one that its authors released.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+runtime.GOARCH)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("testserver: building %s: %w\n%s", name, errors.Join(err, ctx.Err()), tail(out.text))
	}
	return path, os.Rename(tmp, path) // so that the file is complete whenever it exists
}

// Version returns the pinned version of a program's module.
func Version(name string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	p := programs[name]
	mod, err := os.ReadFile(filepath.Join(root, "internal", "tools", p.tool, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("testserver: %w", err)
	}
	return required(mod, p.module)
}

func required(mod []byte, module string) (string, error) {
	for line := range strings.Lines(string(mod)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && f[0] == module {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("testserver: the tools module's go.mod does not require %s", module)
}

// cacheKey has the version for people to read, and a hash of everything that determines the
// program.
func cacheKey(tool, module string) (string, error) {
	mod, err := os.ReadFile(filepath.Join(tool, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("testserver: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(tool, "go.sum"))
	if err != nil {
		return "", fmt.Errorf("testserver: %w", err)
	}
	version, err := required(mod, module)
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(slices.Concat(mod, sum, []byte(runtime.Version())))
	return fmt.Sprintf("%s-%x", version, hash[:4]), nil
}

func binDir() (string, error) {
	dir := os.Getenv("LEASEHOLD_CACHE")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("testserver: no cache directory: set LEASEHOLD_CACHE: %w", err)
		}
		dir = filepath.Join(cache, "leasehold")
	}
	dir = filepath.Join(dir, "bin")
	return dir, os.MkdirAll(dir, 0o755)
}

// repository finds the root of the checkout from the working directory, which is the package's
// directory in a test.
func repository() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "internal", "tools", "minio", "go.mod")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("testserver: %s is not in a checkout of leasehold: no parent directory has "+
				"internal/tools", start)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// output is what a go command has said. Its methods are safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	return len(b), nil
}

// String counts the lines about modules, and the others, which "go build -v" prints for packages.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	modules := bytes.Count(o.text, []byte("go: downloading "))
	packages := bytes.Count(o.text, []byte("\n")) - modules
	return fmt.Sprintf("%d modules downloaded, %d packages compiled", modules, packages)
}

// progress says that a build has begun, and every 15 seconds how far it is.
func progress(name string, out *output) (stop func()) {
	fmt.Fprintf(os.Stderr, "testserver: building %s: minutes, once\n", name)
	start := time.Now()
	tick := time.NewTicker(15 * time.Second)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-tick.C:
				took := time.Since(start).Round(time.Second)
				fmt.Fprintf(os.Stderr, "testserver: building %s for %s: %v\n", name, took, out)
			case <-done:
				return
			}
		}
	}()
	return func() { tick.Stop(); close(done) }
}

// tail is the end of a log, as much as fits on a screen.
func tail(log []byte) []byte {
	const most = 4 << 10
	if len(log) > most {
		log = log[len(log)-most:]
	}
	return log
}
