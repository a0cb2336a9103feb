//go:build !linux

package filestore

// now has no clock that all processes share and that is never set.
func now() stamp { return stamp{} }

// TellsAge reports whether there is a clock for the age of objects.
func TellsAge() bool { return false }
