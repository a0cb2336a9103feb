//go:build race

package shards_test

func init() { raceEnabled = true }
