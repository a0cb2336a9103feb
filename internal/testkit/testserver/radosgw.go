package testserver

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//go:embed radosgw.sh
var radosgwScript string

// Radosgw starts Ceph's S3 gateway for one test, with a separate cluster in memory. Its programs
// come from Debian's packages: see "make radosgw". Where they are not installed, the test is
// [Missing] a radosgw.
func Radosgw(tb testing.TB) S3 {
	tb.Helper()
	SkipIfShort(tb)
	if _, err := exec.LookPath("radosgw"); err != nil {
		Missing(tb, "radosgw", fmt.Errorf("it needs Ceph's gateway, which make radosgw installs on Debian: %w", err))
	}
	parent, err := os.MkdirTemp("/tmp", "rgw-") // sockets need a short name
	if err != nil {
		tb.Fatal(err)
	}
	dir := filepath.Join(parent, "d")
	tb.Cleanup(func() {
		killAll(dir)
		_ = os.RemoveAll(parent)
	})
	var failures []error
	for range 3 { // the two ports above the free one may be taken
		addr, err := freeAddr()
		if err != nil {
			tb.Fatal(err)
		}
		cmd := exec.Command("bash", "-c", radosgwScript, "radosgw.sh", dir, addr[strings.LastIndex(addr, ":")+1:])
		out, err := cmd.Output()
		if err == nil {
			return S3{
				Name:      "radosgw",
				Endpoint:  strings.TrimSpace(string(out)),
				AccessKey: "AKTEST",
				SecretKey: "SKTEST",
				Region:    region,
			}
		}
		log, _ := os.ReadFile(filepath.Join(dir, "start.log"))
		failures = append(failures, fmt.Errorf("%w\n%s", err, tail(log)))
		killAll(dir)
		_ = os.RemoveAll(dir)
	}
	tb.Fatalf("testserver: radosgw: %v", errors.Join(failures...))
	return S3{}
}

// killAll ends the daemons of a cluster.
func killAll(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "run", "*.pid"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid > 1 {
			if daemon, err := os.FindProcess(pid); err == nil {
				_ = daemon.Kill()
			}
		}
	}
}

// Missing skips a test for want of what the word names. It adds the test to the file
// LEASEHOLD_SKIPPED, whose content is the last thing that make test says. If LEASEHOLD_NEEDS has
// the word, the test fails instead.
func Missing(tb testing.TB, word string, why error) {
	tb.Helper()
	if slices.Contains(strings.Fields(os.Getenv("LEASEHOLD_NEEDS")), word) {
		tb.Fatal(why)
	}
	if skipped := os.Getenv("LEASEHOLD_SKIPPED"); skipped != "" {
		f, err := os.OpenFile(skipped, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintln(f, tb.Name())
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	tb.Skip(why)
}
