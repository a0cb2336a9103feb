// Command binaries builds the program leasehold for the systems that it runs on, as one file each that needs no library, and a file of their
// checksums, as sha256sum reads it.
//
//	binaries DIRECTORY [SYSTEM/ARCHITECTURE ...]
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// maxSize is the size of the largest program that is published, in bytes.
const maxSize = 40 << 20

var platforms = []string{
	"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "freebsd/amd64", "freebsd/arm64", "netbsd/amd64", "netbsd/arm64",
	"openbsd/amd64", "openbsd/arm64",
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: binaries DIRECTORY [SYSTEM/ARCHITECTURE ...]")
		os.Exit(2)
	}
	if err := build(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "binaries:", err)
		os.Exit(1)
	}
}

// build builds the program for these platforms, or for all if there are none.
func build(dir string, on []string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if len(on) == 0 {
		on = platforms
	}
	var sums strings.Builder
	for _, platform := range on {
		system, arch, ok := strings.Cut(platform, "/")
		if !ok {
			return fmt.Errorf("%q is no platform: use one such as linux/amd64", platform)
		}
		file := filepath.Join(dir, "leasehold-"+system+"-"+arch)
		cmd := exec.Command("go", "build", "-trimpath", "-tags=disable_grpc_modules", "-ldflags=-s -w", "-o", file, ".")
		cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join("cmd", "leasehold"), os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building %s: %w", platform, err)
		}
		size, sum, err := digest(file)
		if err := cmp.Or(err, static(system, file)); err != nil {
			return err
		}
		fmt.Printf("%6.1f MB  %s\n", float64(size)/1e6, filepath.Base(file))
		if size > maxSize {
			return fmt.Errorf("%s has %d bytes, over the limit of %d", file, size, maxSize)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum, filepath.Base(file))
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

func digest(file string) (size int64, sum []byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return size, h.Sum(nil), err
}

// static refuses a program for Linux that needs a library or a loader of the system. Those of macOS and OpenBSD always need the system's libc.
func static(system, file string) error {
	if system != "linux" {
		return nil
	}
	f, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New(file + " needs a loader, so it is not static")
		}
	}
	return nil
}
