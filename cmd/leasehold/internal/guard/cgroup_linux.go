package guard

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is the directory of a control group for the command, below leasehold's control group.
// Everything that the command starts is in it, and the system kills it all in one step. It is empty
// where none can be made.
type cgroup string

// newCgroup makes one. The error says why there is none.
func newCgroup() (cgroup, error) {
	own, err := ownCgroup()
	if err != nil {
		return "", err
	}
	c := cgroup(fmt.Sprintf("%s/leasehold-%d-%s", own, os.Getpid(), rand.Text()[:8]))
	if err := os.Mkdir(string(c), 0o755); err != nil {
		return "", err
	}
	kind, err := os.ReadFile(c.file("cgroup.type"))
	if err == nil && string(kind) != "domain\n" {
		err = fmt.Errorf("the type of %s is %q", c, strings.TrimSpace(string(kind)))
	}
	if err == nil {
		err = unix.Access(c.file("cgroup.kill"), unix.W_OK) // before Linux 5.14 there is none
	}
	if err != nil {
		c.remove()
		return "", err
	}
	return c, nil
}

// ownCgroup is the directory of the control group that this process is in.
func ownCgroup() (string, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(groups)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return cgroupDirectory(path, string(mounts))
		}
	}
	return "", errors.New("this system has no cgroup2")
}

// cgroupDirectory finds the directory of a control group. A mount need not be of the whole
// hierarchy.
func cgroupDirectory(path, mounts string) (string, error) {
	plain := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mounts) { // number parent device root point options, a dash, type
		mount, kind, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 || !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		root, point := plain.Replace(fields[3]), plain.Replace(fields[4])
		if below, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(below) {
			return filepath.Join(point, below), nil
		}
	}
	return "", fmt.Errorf("the control group %s of leasehold is not mounted", path)
}

func (c cgroup) file(name string) string { return string(c) + "/" + name }

// start starts a program in the control group.
func (c cgroup) start(path string, args []string) (pid int, err error) {
	dir, err := unix.Open(string(c), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	attr := commandAttr()
	attr.UseCgroupFD, attr.CgroupFD = true, dir
	return forkExec(path, args, attr)
}

// kill kills everything in it, even what leasehold itself may not kill.
func (c cgroup) kill() {
	if c != "" {
		_ = os.WriteFile(c.file("cgroup.kill"), []byte("1"), 0)
	}
}

// populated reports whether any process is in it, or below it.
func (c cgroup) populated() bool {
	if c == "" {
		return false
	}
	events, _ := os.ReadFile(c.file("cgroup.events"))
	return strings.Contains(string(events), "populated 1")
}

// remove removes it, and the control groups below it that the command has made. A process that was
// just killed may be in it for a moment.
func (c cgroup) remove() {
	if c == "" {
		return
	}
	var all []string
	_ = filepath.WalkDir(string(c), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	for _, path := range slices.Backward(all) {
		for range 100 {
			if !errors.Is(unix.Rmdir(path), syscall.EBUSY) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}
