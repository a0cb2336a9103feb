package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// update builds the nested modules of the last release with the root of this one, as users have
// them who update the root alone. If they do not build, the version must be one that may change the
// API: docs/choose.md#stability. Before the first release, version is taken for the last one. There
// and in a check, whose version is earlier than every other, the new root gets a version that is
// made up.
func (p place) update(tmp, proxy string, mods []module, version string) error {
	before, newRoot := "", version
	tags, err := p.run("git", "tag", "--list", "--merged", "HEAD", "--sort=-version:refname", "v*")
	if err != nil {
		return err
	}
	for tag := range strings.Lines(tags) {
		if tag = strings.TrimSpace(tag); valid.MatchString(tag) && !strings.Contains(tag, "-") {
			before = tag
			break
		}
	}
	promised := before == "" || series.FindString(before) == series.FindString(version)
	if before == "" {
		before = version
	}
	if before == version || version == checked {
		major, _, _ := strings.Cut(before, ".")
		newRoot = major + ".999.0"
		if _, err := p.run("git", "update-ref", "refs/tags/"+newRoot, "refs/tags/"+version); err != nil {
			return err
		}
	}

	var nested []module
	var sums []byte
	get := []string{root + "@" + newRoot}
	for _, m := range mods {
		if !m.published() || m.path == root {
			continue
		}
		tagged, err := p.run("git", "tag", "--list", m.tag(before))
		if err != nil {
			return err
		}
		if tagged == "" { // it is new
			continue
		}
		nested, get = append(nested, m), append(get, m.path+"@"+before)
		body, err := os.ReadFile(filepath.Join(p.dir, m.dir, "go.sum"))
		if err != nil {
			return err
		}
		sums = append(sums, body...)
	}
	if len(nested) == 0 {
		return nil
	}
	if _, err := p.download(proxy, append([]string{root + "@" + before}, get...)); err != nil {
		return err
	}
	outside, err := p.outside(tmp, proxy)
	if err != nil {
		return err
	}
	outside.dir = filepath.Join(tmp, "update")
	outside.env = append(outside.env, "GOFLAGS=-modcacherw -trimpath -buildvcs=false -mod=mod")
	programs, _, err := outside.start(nested, sums, get...)
	if err == nil {
		_, err = outside.run("go", append([]string{"build", "."}, programs...)...)
	}
	what := fmt.Sprintf("the nested modules of %s with the root of %s", before, newRoot)
	switch {
	case err == nil:
		fmt.Fprintf(p.out, "%s: %d modules build\n", what, len(nested))
	case promised:
		return fmt.Errorf("%s: %w", what, err)
	default:
		fmt.Fprintf(p.out, "%s: they do not build, so the next version must be one that may change the API:\n%v\n",
			what, err)
	}
	return nil
}

// series is what versions have in common that may not change the API of each other.
var series = regexp.MustCompile(`^v(0\.\d+|[1-9]\d*)`)
