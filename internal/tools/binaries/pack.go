package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// pack makes what a release has in addition to the programs: an SBOM in the form of CycloneDX for
// each, of the modules that are in that very program, and Debian's package of each that is for
// Linux. It returns the files.
func pack(dir string, programs []string, version string) ([]string, error) {
	tmp, err := os.MkdirTemp("", "pack")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	cyclonedx, err := tool(tmp, "sbom", "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod")
	if err != nil {
		return nil, err
	}
	debian, err := tool(tmp, "deb", ".")
	if err != nil {
		return nil, err
	}
	// The same commit gives the same files, so nothing in them is random or of this moment.
	made, err := output("git", "log", "-1", "--format=%cI")
	if err != nil {
		return nil, err
	}
	if err := pages(tmp); err != nil {
		return nil, err
	}
	var files []string
	for _, file := range programs {
		sbom := file + ".cdx.json"
		if _, err := output(cyclonedx, "bin", "-json", "-std", "-noserial", "-notimestamp", "-version="+version,
			"-output="+sbom, file); err != nil {
			return nil, err
		}
		files = append(files, sbom)
		arch, ok := strings.CutPrefix(filepath.Base(file), "leasehold-linux-")
		if !ok {
			continue
		}
		deb := filepath.Join(dir, fmt.Sprintf("leasehold_%s_%s.deb", strings.TrimPrefix(version, "v"), arch))
		if _, err := output(debian, file, arch, version, strings.TrimSpace(made), tmp, deb); err != nil {
			return nil, err
		}
		files = append(files, deb)
	}
	return files, nil
}

// pages writes what a package has in addition to the program: its manual page, completions and
// licence.
func pages(dir string) error {
	here, err := compile(dir, runtime.GOOS+"/"+runtime.GOARCH)
	if err != nil {
		return err
	}
	for name, args := range map[string][]string{
		"leasehold.1":    {"man"},
		"leasehold.bash": {"completion", "bash"},
		"leasehold.zsh":  {"completion", "zsh"},
		"leasehold.fish": {"completion", "fish"},
	} {
		text, err := output(here, args...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "LICENSE"), licence, 0o644)
}

// tool builds a program of a module in internal/tools in its pinned version, as its authors shipped
// it, and returns its file.
func tool(dir, module, pkg string) (string, error) {
	file := filepath.Join(dir, module+".tool")
	cmd := exec.Command("go", "-C", filepath.Join("internal", "tools", module), "build", "-o", file, pkg)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the tool %s: %w\n%s", module, err, out)
	}
	return file, nil
}

// output runs a command and returns what it prints. An error has what it said.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, said.String())
	}
	return string(out), nil
}
