package filestore

import (
	"maps"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A type of file system in the list is refused before anything is read or written. Here the list
// has that of the test's own directory.
func TestNetworkFileSystemsAreRefused(t *testing.T) {
	path := t.TempDir()
	d := New(path, limit)
	etag, err := d.PutIfNoneMatch(t.Context(), key, nil)
	require.NoError(t, err)
	var s syscall.Statfs_t
	require.NoError(t, syscall.Statfs(path, &s))
	all := networks
	defer func() { networks = all }()
	networks = maps.Clone(all)
	networks[uint32(s.Type)] = "Dropbox"
	const text = " is on Dropbox, whose locks may not reach other machines (use a directory on a local file system"
	permanent(t, d.Validate(), text)
	_, err = d.Get(t.Context(), key)
	permanent(t, err, text)
	_, err = d.PutIfMatch(t.Context(), key, nil, etag)
	permanent(t, err, text)
}

// The numbers are those that users' machines have: see statfs(2).
func TestFileSystemsByNumber(t *testing.T) {
	for number, name := range map[uint32]string{
		0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x01021997: "9P",
		0x65735546: "FUSE", 0xc36400: "Ceph",
		// ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS
		0xef53: "", 0x58465342: "", 0x9123683e: "", 0x01021994: "", 0x794c7630: "", 0x2fc12fc1: "",
	} {
		require.Equal(t, name, networks[number], "%#x", number)
	}
}
