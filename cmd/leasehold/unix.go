//go:build !unix

package main

var _ = leasehold_needs_a_Unix_system // process groups and signals
