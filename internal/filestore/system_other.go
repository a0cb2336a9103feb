//go:build !linux && !darwin && !freebsd

package filestore

import (
	"errors"
	"io/fs"
	"os"
)

// New refuses every directory on this system, so nothing of this is called. Windows cannot rename
// over a file that a process reads.
const (
	supported = false
	nonBlock  = 0
)

func tryLock(*os.File) (bool, error)                      { return false, errors.ErrUnsupported }
func unlock(*os.File)                                     {}
func networkFS(*os.File) (string, error)                  { return "", errors.ErrUnsupported }
func giveAccess(*os.File, fs.FileInfo, fs.FileMode) error { return errors.ErrUnsupported }
func owner(fs.FileInfo) int                               { return 0 }
func classify(error) (hint string, _ error)               { return "", nil }
