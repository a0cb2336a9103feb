// Command binaries builds the program leasehold for the systems that it runs on, as one file each
// that needs no library, and a file of their checksums, as sha256sum reads it. For a release each
// also gets an SBOM, and those for Linux become packages of Debian.
//
//	binaries [-version VERSION] DIRECTORY [SYSTEM/ARCHITECTURE ...]
//	binaries -compile    compiles the program for each of these systems, and links nothing
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// maxSize is the limit of the size of each published program, in bytes. The largest is for
// darwin/amd64: 37.0 MB. With azblob v1.8.1 or later it has 5.3 MB more, because these bring Apache
// Arrow for lists of blobs in a format that this program does not ask for.
const maxSize = 40 << 20

var platforms = []string{
	"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "freebsd/amd64", "freebsd/arm64",
	"netbsd/amd64", "netbsd/arm64",
	"openbsd/amd64", "openbsd/arm64",
}

func main() {
	compileOnly := flag.Bool("compile", false, "compile the program for each system, and link nothing")
	version := flag.String("version", "", "a release: fail unless the programs say that this is their version")
	flag.Parse()
	var err error
	switch {
	case *compileOnly:
		err = compileAll()
	case flag.NArg() == 0:
		fmt.Fprintln(os.Stderr, "usage: binaries [-version VERSION] DIRECTORY [SYSTEM/ARCHITECTURE ...]")
		os.Exit(2)
	default:
		err = build(flag.Arg(0), flag.Args()[1:], *version)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "binaries:", err)
		os.Exit(1)
	}
}

// build builds the program for these platforms, or for all if there are none. With a version each
// must say that it is of this version, and gets what a release has in addition.
func build(dir string, on []string, version string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if len(on) == 0 {
		on = platforms
	}
	var files []string
	for _, platform := range on {
		file, err := compile(dir, platform)
		if err := cmp.Or(err, check(file, version)); err != nil {
			return err
		}
		files = append(files, file)
	}
	if version != "" {
		beside, err := pack(dir, files, version)
		if err != nil {
			return err
		}
		files = append(files, beside...)
	}
	var sums strings.Builder
	for _, file := range files {
		sum, err := digest(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum, filepath.Base(file))
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// compile builds the program for a platform, and returns its file.
func compile(dir, platform string) (string, error) {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return "", fmt.Errorf("%q is no platform: use one such as linux/amd64", platform)
	}
	file := filepath.Join(dir, "leasehold-"+system+"-"+arch)
	cmd := program("build", system, arch)
	cmd.Args = append(cmd.Args, "-trimpath", "-ldflags=-s -w", "-o", file)
	// In a repository go gives the program its version, or fails. The files of an archive have no
	// version, and go does not know git's linked worktrees.
	if info, err := os.Stat(".git"); err == nil && info.IsDir() {
		cmd.Args = append(cmd.Args, "-buildvcs=true")
	}
	cmd.Args = append(cmd.Args, ".")
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building %s: %w", platform, err)
	}
	if system != "linux" { // the programs of macOS and OpenBSD always need the system's libc
		return file, nil
	}
	return file, static(file)
}

// check refuses a program that is too large, or is not of the version that is asked for, if one is.
func check(file, version string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	stat, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Printf("%6.1f MB  %s %s\n", float64(stat.Size())/1e6, filepath.Base(file), info.Main.Version)
	if version != "" && info.Main.Version != version {
		return fmt.Errorf("%s says that it is %s, not %s: build it from that tag, in a repository and not in a linked "+
			"worktree", file, info.Main.Version, version)
	}
	if stat.Size() > maxSize {
		return fmt.Errorf("%s has %d bytes, over the limit of %d: see maxSize for what weighs", file,
			stat.Size(), maxSize)
	}
	return nil
}

// program is a go command about the program on a system. Arguments may be added to it.
func program(verb, system, arch string) *exec.Cmd {
	cmd := exec.Command("go", "-C", filepath.Join("cmd", "leasehold"), verb, "-tags=disable_grpc_modules")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	return cmd
}

// compileAll compiles the program for each system, on one architecture, without its tests, of which
// some use what only Linux and macOS have. It links nothing.
func compileAll() error {
	seen := map[string]bool{runtime.GOOS: true} // which the tests compile
	for _, platform := range platforms {
		system, arch, _ := strings.Cut(platform, "/")
		if seen[system] {
			continue
		}
		seen[system] = true
		began := time.Now()
		cmd := program("list", system, arch)
		cmd.Args = append(cmd.Args, "-export", `-f={{""}}`, ".")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("compiling for %s: %w", platform, err)
		}
		fmt.Printf("%4.0f s  %s\n", time.Since(began).Seconds(), platform)
	}
	return nil
}

func digest(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}

// static refuses a program for Linux that needs a library or a loader of the system.
func static(file string) error {
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
