//go:build !unix

package guard

var _ = leasehold_needs_a_Unix_system // process groups and signals
