package leasehold

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/filestore"
)

// NewFileStore returns a [Store] in the directory dir of a local file system, for any number of
// processes of one machine, also in containers that share the directory. It is safe for concurrent
// use. It works on Linux, macOS and FreeBSD.
//
// Each object is one file, whose name is the key with every byte but a-z, 0-9, "-", "_" and "."
// escaped: "locks/a" is in locks%2fa.object. The body follows two lines of its own. A write goes to
// a temporary file and to the disk, and then replaces the object's file by a rename under the
// advisory lock of the directory (flock). Therefore a reader sees the old or the new version whole,
// also if a writer is killed, and a write that has succeeded survives a power loss if the disk does
// what it says. If the last step fails, which is to write the directory to the disk, or if ctx ends
// meanwhile, the outcome of the write is unknown. Get answers with no version that a power loss may
// undo: what another process has written it flushes once, at first sight.
//
// Network file systems are refused, because their locks may not reach other machines: NFS, SMB,
// Ceph, Lustre and others that it recognises, and everything that is mounted by FUSE or 9P, whose
// server may be anywhere. On those that it does not recognise, two may lead.
//
// The directory must exist, because one that is created in place of another starts the tokens
// again. The same happens after every boot in a directory of a tmpfs, such as /run. Do not lock the
// directory with flock(1), and delete no files in it. Those of killed writers, .leasehold-*.tmp,
// are removed by a later process, after an hour. A process that is stopped in the short time
// between the lock and the rename holds up all writers of the directory until it goes on or is
// killed.
//
// Everyone who uses the locks needs read, write and search permission for the directory, which must
// not be sticky, as /tmp is. Files are created with the permissions that the umask leaves (0644 in
// most cases), and everyone needs to read them. A write over an object keeps its permissions, and
// its owner and group as far as the writer may set them.
//
// On Linux, Get tells an [Object]'s Age by CLOCK_BOOTTIME, which all processes share and nobody
// sets, so a candidate that has just started takes over at once from a holder that is gone. Age is
// 0 after a reboot, between time namespaces, and on other systems.
//
// NewFileStore does not touch the directory. One that cannot be used is reported by [NewLock] and
// by every method of the store. The error matches [ErrPermanent] if the directory does not exist,
// may not be read, or is on a network file system. Another error, such as too many open files, may
// pass. If a file is not an object that such a store has written, the error of Get matches
// [ErrCorruptRecord], and the ETag is filled in: [Lock.Break] repairs it.
func NewFileStore(dir string) Store { return &fileStore{filestore.New(dir, MaxObjectSize)} }

type fileStore struct{ *filestore.Dir }

func (s *fileStore) Describe() StoreInfo {
	return StoreInfo{Err: s.Validate(), TellsAge: filestore.TellsAge(), Conditional: true}
}

func (s *fileStore) Get(ctx context.Context, key string) (Object, error) {
	o, err := s.Dir.Get(ctx, key)
	return Object(o), err
}
