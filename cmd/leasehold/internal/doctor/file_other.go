//go:build !linux

package doctor

func inMemory(string) bool { return false }
