// Package leasehold elects leaders and locks critical sections with nothing but an object store:
// S3, any server that speaks its protocol and enforces conditional writes, or a [Store] of your
// own.
//
// An [Elector] campaigns for a [Lock], calls back while it leads, and campaigns again. [Lock.Do]
// runs a function under the lock. Both use a [Lease], which renews itself. Its fencing token is
// higher than the token of every earlier lease.
//
// # Promise
//
// At any time at most one [Lease] of a lock is valid ([Lease.Valid]), and the context of each lease
// ends before the next lease begins. Within one process, the function of a lost term has returned
// before the next term of the same [Lock] begins. No wall clock has to be right. Those of the store
// and of proxies count only for users who opt in. The promise holds as long as the store is
// linearizable, the lock object is neither deleted nor broken by hand, and no machine's clock
// measures the time of one TTL wrongly by more than [WithClockDrift] and [WithSafetyMargin] allow.
// Tokens are unique and rise even if clocks are arbitrarily wrong.
//
// # Protocol
//
//   - One object is one lock: JSON with an expiry, a token, a TTL, and a nonce that is new in every
//     write ([Record]).
//   - Acquire: read, decide, and one conditional write that raises the token. Two requests, or one
//     if the version is known.
//   - A process tries each store once, unless its conditions are known, by two writes that must be
//     refused: while it waits for a lock, or else in its first acquisition. See [StoreInfo]. If one
//     is carried out, nothing is lost, and the call fails with [ErrUnsafeStore].
//   - Renew: one conditional write. Release: one conditional write that keeps the token. Wait: one
//     read per poll interval, timed to come soon after a renewal.
//   - A candidate may take a lock that is released, or whose current version it knows to be older
//     than the TTL and the drift allowance, by its own monotonic clock since the reply that first
//     showed it this version. So a newcomer waits a TTL for a holder that is gone. If the user
//     trusts the store's clock ([WithServerClock]), the age that the store told in that same reply
//     is added, but never more than the time since this process last saw another version.
//   - A lease is timed from just before its request, and ends one safety margin before the TTL.
//     Go's monotonic clock stops while a machine sleeps, so what the wall clock and, on Linux,
//     CLOCK_BOOTTIME have counted beyond it is added.
//   - A write that ends in 409, 412, 404, 5xx, a reset or a time-out may have landed. The nonce
//     that is read back tells.
//   - To end: cancel the context, wait for the user's code while still renewing, release, call
//     OnStoppedLeading.
//   - The object is never deleted, so the token outlives every release.
//
// # What is not promised
//
//   - A process that is paused between [Lease.Valid] and its write may write late. Pass the token
//     to the resource, and let the resource refuse lower ones: see Fencing.
//   - After a suspend of the machine, the context of a lease that has run out ends up to a fifth of
//     the TTL after waking. [Lease.Valid] is false at once.
//   - Writes that carry no token, reads by a former leader, and side effects outside of fenced
//     resources are not stopped.
//   - If the lock object is deleted, or [Lock.Break] ends a living term, two may lead until the
//     holder's next renewal. A new object starts tokens from 1, except for candidates that remember
//     a higher one.
//   - A foreign client that writes records without a token resets it. A candidate that remembers a
//     higher one then waits for a TTL, even after a release, and goes on above it. A foreign client
//     that writes no TTL is trusted to keep its wall clock within [WithSkewAllowance].
//   - With [WithServerClock], a candidate that has not read the lock for a while believes the
//     store's clock. If that clock is stepped, or a proxy writes its own dates, two may lead.
//   - On a server that ignores conditions, two may lead as long as it answers these two writes with
//     a 429, a 5xx or nothing at all, because these prove nothing. Each acquisition then asks
//     again.
//
// # Fencing
//
//   - [Lease.Commit] writes a small state into the lock object itself. No former leader's commit
//     ever succeeds.
//   - Package fenced writes ordinary objects: once a token has written or sealed a key, no lower
//     token ever writes it again through that package. Simulation of the real code and tests on
//     real servers show this. Not covered are reads by a former leader, several objects at once,
//     and writers that send no condition.
//   - [Fence] is the check for resources in memory, and package fencehttp has it for HTTP services.
//
// # Stores
//
// [NewS3Store] takes your own *s3.Client. [NewFileStore] is for the processes of one machine.
// [NewMemStore] is for tests and for use within one process. [CheckStore] finds out whether a
// server enforces its preconditions. Package storetest is the full conformance suite for authors of
// a [Store].
package leasehold
