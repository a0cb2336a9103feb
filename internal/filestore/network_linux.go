package filestore

import (
	"os"
	"syscall"
)

// networks are the types, as statfs(2) reports them, of file systems that several machines can
// share, or may share: the server of a FUSE may be anything. The numbers come from linux/magic.h,
// or from GNU stat if it has none.
var networks = map[uint32]string{
	0x00006969: "NFS",
	0x0000517b: "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x0000564c: "NCP",
	0x01021997: "9P",
	0x00c36400: "Ceph",
	0x65735546: "FUSE",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x19830326: "BeeGFS",
	0xaad7aaea: "PanFS",
	0x7461636f: "OCFS2",
	0x01161970: "GFS2",
	0x61636673: "ACFS",
	0x013111a8: "IBRIX",
	0xbeefdead: "StorNext",
	0x786f4256: "VirtualBox shared folders",
	0xbacbacbc: "VMware shared folders",
	0x7c7c6673: "Parallels shared folders",
}

// networkFS names the network file system that a directory is on. It is "" if there is none.
func networkFS(dir *os.File) (string, error) {
	var s syscall.Statfs_t
	err := again(func() error { return syscall.Fstatfs(int(dir.Fd()), &s) })
	return networks[uint32(s.Type)], os.NewSyscallError("fstatfs", err)
}
