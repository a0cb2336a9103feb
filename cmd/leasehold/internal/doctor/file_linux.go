package doctor

import "golang.org/x/sys/unix"

// inMemory reports whether a directory is on a file system that is empty after a boot.
func inMemory(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && (uint32(s.Type) == unix.TMPFS_MAGIC || uint32(s.Type) == unix.RAMFS_MAGIC)
}
