// Package leasehold elects leaders and locks critical sections with an object store alone: S3, any
// server that speaks its protocol and enforces conditional writes, or a [Store] of your own.
//
// An [Elector] campaigns for a [Lock], calls back while it leads, and campaigns again. [Lock.Do]
// runs a function under the lock. Both use a [Lease], which renews itself and has a fencing token,
// higher than the token of every earlier lease.
//
// # Guarantee
//
// At any time at most one [Lease] of a lock is valid ([Lease.Valid]), and the context of each lease
// ends before the next lease begins. Within one process, the function of a lost term has returned
// before the next term of the same [Lock] begins. Tokens are unique and rise, even if clocks are
// arbitrarily wrong. The guarantee has three conditions:
//
//   - The store is linearizable and enforces conditional writes. Each process checks this before
//     its first lease with two writes that must be refused, unless the store states its guarantees
//     ([StoreInfo]). If the store carries one out, the call fails with [ErrUnsafeStore].
//   - No machine's clock measures the time of one TTL wrongly by more than [WithClockDrift] and
//     [WithSafetyMargin] allow. No wall clock has to be right. The store's clock counts only with
//     [WithServerClock].
//   - No person and no other program deletes or overwrites the lock object. [Lock.Break] is the
//     tool for that.
//
// These are not promised:
//
//   - A process that is paused between [Lease.Valid] and its write may write late. Pass the token
//     to the resource, and let the resource refuse lower tokens.
//   - After a suspend of the machine, the context of an expired lease ends up to a fifth of the TTL
//     after waking. [Lease.Valid] is false at once.
//   - A takeover in less than a TTL: a candidate takes a lock that is released, or whose holder it
//     has not seen renew for the TTL plus the drift allowance, by its own monotonic clock.
//   - Rising tokens, if a client of another make writes records without a token: tokens then start
//     again. A candidate that remembers a higher token continues above it once it has seen one
//     version for a TTL. Until then other processes may have lower tokens. See [WithSkewAllowance]
//     for clients without TTL.
//
// The page https://github.com/leasehold-go/leasehold/blob/main/docs/concepts.md has pictures and
// the glossary. In the same directory, why-it-is-safe.md has the argument, and protocol.md the
// rules for clients in other languages.
//
// # Fencing
//
//   - [Lease.Commit] writes a small state into the lock object itself. No former leader's commit
//     ever succeeds.
//   - Package fenced writes ordinary objects: once a token has written or sealed a key, no lower
//     token ever writes it again through that package. Reads by a former leader, several objects at
//     once and writers that send no condition are not covered.
//   - [Fence] is the check for resources in memory, and package fencehttp has it for HTTP services.
//
// # Stores
//
// [NewS3Store] takes your own *s3.Client. [NewFileStore] is for the processes of one machine.
// [NewMemStore] is for tests and for use within one process. [CheckStore] checks whether a server
// enforces its preconditions. Package storetest is the full conformance suite for authors of a
// [Store].
package leasehold
