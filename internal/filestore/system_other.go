//go:build !linux && !darwin && !freebsd

package filestore

import (
	"errors"
	"io/fs"
	"os"
)

// New refuses every directory on this system, so nothing of this is called. Windows cannot rename
// over a file that somebody reads.
const supported = false

func tryLock(*os.File) (bool, error)         { return false, errors.ErrUnsupported }
func unlock(*os.File)                        {}
func networkFS(*os.File) (string, error)     { return "", errors.ErrUnsupported }
func keepAccess(*os.File, fs.FileInfo) error { return errors.ErrUnsupported }
func classify(error) (hint string, _ error)  { return "", nil }
