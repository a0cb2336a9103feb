// Command deb makes Debian's package of a program leasehold that has been built.
//
//	deb PROGRAM ARCHITECTURE VERSION TIME DIRECTORY PACKAGE
//
// The directory has the files leasehold.1, LICENSE and the completions leasehold.bash,
// leasehold.zsh and leasehold.fish. TIME is the time of all files of the package, as in RFC 3339,
// so that the same program gives the same package.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: deb PROGRAM ARCHITECTURE VERSION TIME DIRECTORY PACKAGE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]); err != nil {
		fmt.Fprintln(os.Stderr, "deb:", err)
		os.Exit(1)
	}
}

func write(program, arch, version, stamp, dir, target string) error {
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return err
	}
	file := func(from, to string, mode os.FileMode) *files.Content {
		return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: at}}
	}
	page := func(name, to string) *files.Content { return file(filepath.Join(dir, name), to, 0o644) }
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "leasehold", Arch: arch, Platform: "linux", Version: version, MTime: at,
		Section: "admin", Priority: "optional", License: "MIT",
		Maintainer: "The leasehold authors <leasehold-go@users.noreply.github.com>",
		Homepage:   "https://github.com/leasehold-go/leasehold",
		Description: "leader election and locks on object storage\n" +
			"Runs a command, or a step of a script, under a lock in a bucket of S3, Google Cloud\n" +
			"Storage or Azure, or in a directory.",
		Overridables: nfpm.Overridables{Contents: files.Contents{
			file(program, "/usr/bin/leasehold", 0o755),
			page("leasehold.1", "/usr/share/man/man1/leasehold.1"),
			page("LICENSE", "/usr/share/doc/leasehold/copyright"),
			page("leasehold.bash", "/usr/share/bash-completion/completions/leasehold"),
			page("leasehold.zsh", "/usr/share/zsh/vendor-completions/_leasehold"),
			page("leasehold.fish", "/usr/share/fish/vendor_completions.d/leasehold.fish"),
		}},
	})
	out, err := os.Create(target)
	if err != nil {
		return err
	}
	return errors.Join(deb.Default.Package(info, out), out.Close())
}
