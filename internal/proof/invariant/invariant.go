// Package invariant has the protocol as two state machines, one of a lock and one of a table, in
// files that are read twice. As proof obligations: [Spec.Obligations] is what z3 must find
// impossible, so that each step keeps the invariant, for any number of processes, writes and leases
// and any real time. As machines that run: [Machine] follows a trace, step by step, and refuses a
// step whose guard says no. So what is proven is what the simulation is held to.
//
// A file has sorts, functions that never change (rigid), functions of the state (var), axioms, the
// first state, actions, and the parts of the invariant. An action has parameters, guards, each
// marked by who answers for it, and updates, which all see the state before the step. Terms are
// those of SMT-LIB.
package invariant

import _ "embed"

// LeaseText is the protocol of one lock.
//
//go:embed lease.spec
var LeaseText string

// TablesText is the protocol of one exclusive lock in a table of locks.
//
//go:embed tables.spec
var TablesText string
