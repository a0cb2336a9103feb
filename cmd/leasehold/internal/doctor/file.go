package doctor

import (
	"context"
	"io/fs"
	"os"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

func examineFile(ctx context.Context, at place.Location) Report {
	r := newReport("directory", "list", "get", "put", "delete", "conditions", "latency", "disk")
	store, err := at.Open(ctx)
	if err == nil {
		err = store.Describe().Err
	}
	if err != nil {
		r.broke("directory", err, "create the directory, or choose another one")
		return r
	}
	defer store.Close()
	r.ok("directory", "%s is on a file system of this machine", at.Bucket)
	switch dir, err := os.Stat(at.Bucket); {
	case err != nil:
	case dir.Mode()&fs.ModeSticky != 0:
		r.warn("directory", "choose another directory, unless one user takes all its locks",
			"%s is sticky: no user can replace what another has written", at.Bucket)
	case dir.Mode().Perm()&0o002 != 0:
		r.warn("directory", "chmod o-w, and put the users of the locks into a group that may write (chmod 2770)",
			"every user of this machine may write in %s, and so can end each lease in it", at.Bucket)
	}
	if inMemory(at.Bucket) {
		r.warn("disk", "choose a directory on a disk, unless what checks tokens forgets them at a boot, too",
			"in memory: after a boot, tokens start from 1")
	} else {
		r.ok("disk", "not in memory")
	}
	const everything = "give the user read, write and search permission for the directory, which must not be sticky"
	p := newExam(r, at, store, permissions{
		list: everything, get: everything, put: everything, delete: "write permission for the directory",
		other: "choose another directory, on a disk that works",
	})
	err = p.look(ctx)
	if err != nil && !exit.Denied(err) {
		r.broke("get", err, everything)
		return r
	}
	if p.admitted(ctx, err) {
		found := p.conditions(ctx)
		p.latency(ctx)
		p.remove(ctx, found.Leftover)
	}
	return r
}
