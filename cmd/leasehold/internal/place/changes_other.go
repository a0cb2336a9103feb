//go:build !linux

package place

import "errors"

// changes does nothing here.
func changes(string, string, func()) (stop func(), err error) { return nil, errors.ErrUnsupported }
