package leasehold

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/filestore"
)

// NewFileStore returns a [Store] in the directory dir of a local file system, for any number of
// processes of one machine, even in containers that share the directory. It works on Linux, macOS
// and FreeBSD. It is safe for concurrent use. The page
// https://github.com/leasehold-go/leasehold/blob/main/docs/stores.md has the permissions that the
// store needs, and what happens when the disk is full or a writer is stopped.
//
// Each object is one file. Its name is the key with every byte but a-z, 0-9, "-", "_" and "."
// escaped: "locks/a" is in locks%2fa.object. A write goes to a temporary file and to the disk, and
// then replaces the object's file by a rename under the advisory lock (flock) of .leasehold-lock.
// Only users who may write in the directory can open that file. A reader therefore sees the old or
// the new version whole, even if a writer is killed. A write that has succeeded survives a power
// loss if the disk obeys a flush. If flushing the directory fails, or ctx ends during the flush,
// the outcome of the write is unknown. Get returns no version that a power loss may undo: it first
// flushes, once, what another process has written.
//
// The store refuses network file systems that it recognises, and everything mounted by FUSE or 9P,
// because their locks may not reach other machines. On a network file system that it does not
// recognise, two processes may lead.
//
// The directory must exist, because a new directory instead of an old one starts the tokens again.
// So does a reboot, for a directory in a tmpfs such as /run. Delete no files in the directory, and
// lock none with flock(1). A later process removes the files of killed writers, .leasehold-*.tmp,
// after an hour. Writes are refused with [ErrPermanent] if .leasehold-lock is not a regular file,
// such as a link or a pipe, or if its owner may not write in the directory and is neither root nor
// the user of this process.
//
// On Linux, Get returns an [Object]'s Age by CLOCK_BOOTTIME, which all processes share and which
// cannot be set, so a candidate that has just started takes over as soon as a crashed holder's last
// renewal is a TTL old. Age is 0 after a reboot, between time namespaces, and on other systems.
//
// NewFileStore does not touch the directory. [NewLock] and every method of the store report a
// directory that cannot be used. The error matches [ErrPermanent] if the directory does not exist,
// may not be read, or is on a network file system. Another error, such as too many open files, may
// be temporary. If a file is not an object of such a store, the error of Get matches
// [ErrCorruptRecord]. ETag and Body are set, so [Lock.Break] can repair an object that was a lock.
func NewFileStore(dir string) Store { return &fileStore{filestore.New(dir, MaxObjectSize)} }

type fileStore struct{ *filestore.Dir }

func (s *fileStore) Describe() StoreInfo {
	return StoreInfo{Err: s.Validate(), TellsAge: filestore.TellsAge(), Conditional: true}
}

func (s *fileStore) Get(ctx context.Context, key string) (Object, error) {
	o, err := s.Dir.Get(ctx, key)
	return Object(o), err
}
