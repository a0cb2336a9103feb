// Package leasehold elects leaders and locks critical sections with nothing but an object store: S3, anything that speaks
// its protocol and enforces conditional writes, or any [Store] of your own.
//
// An [Elector] campaigns for a [Lock], calls back while it leads, and campaigns again. [Lock.Do] runs a function under the
// lock. Both rest on a [Lease], which renews itself, and has a fencing token that rises with every term and never goes back.
//
// # Promise
//
// At any time at most one [Lease] of a lock is valid ([Lease.Valid]), and the context of each ends before that of the next
// begins. Within one process, the function of a lost term has returned before the next term of the same [Lock] begins. Nobody's
// wall clock has to be right: that of the store and of the proxies before it count only for users who opt in. This holds as
// long as the store is linearizable, the lock object is neither deleted nor broken by hand, and no machine's clock counts the
// time of one TTL wrongly by more than [WithClockDrift] and [WithSafetyMargin] allow. Tokens are unique and rise even if clocks
// are arbitrarily wrong.
//
// # Protocol
//
//   - One object holds one lock: JSON with an expiry, a token, a TTL, and a nonce that is new in every write ([Record]).
//   - Acquire: read, may I take it?, one conditional write that raises the token. Two requests; one when the version is known.
//   - Renew: one conditional write. Release: one conditional write that keeps the token. Wait: one read per poll interval, timed to
//     come soon after a renewal.
//   - A lock may be taken if it is released, or if this candidate knows that the very version it will replace is older than
//     its TTL and the drift allowance: by its own monotonic clock since the reply that first showed it that version. A newcomer
//     therefore waits a TTL for a holder that is gone. A user who trusts the store's clock can have the age that the store told
//     in that very reply added ([WithServerClock]), but never more than the time since this process last saw another version.
//   - A lease is timed from just before its request, and ends one safety margin before the TTL. Whichever clock has advanced
//     furthest decides, because Go's monotonic clock stops while a machine sleeps: what the wall clock and, on Linux,
//     CLOCK_BOOTTIME have counted beyond it is added.
//   - A write that ends in 409, 412, 404, 5xx, a reset or a time-out may have landed: the nonce that is read back tells.
//   - To end: cancel the context, wait for the user's code while still renewing, release, call OnStoppedLeading.
//   - The object is never deleted, so the token outlives every release.
//
// # What is not promised
//
//   - A process that is paused between [Lease.Valid] and its write may write late. Give the token to what is written to, and
//     have it refuse lower ones: see below.
//   - Writes that carry no token, reads by a former leader, and side effects outside of fenced resources are not stopped.
//   - If the lock object is deleted, or [Lock.Break] ends a living term, two may lead until the holder's next renewal. A new
//     object starts tokens from 1, except for candidates that remember a higher one.
//   - A foreign client that writes records without a token resets it; one that writes none of the TTL is trusted to keep its
//     wall clock within [WithSkewAllowance].
//   - With [WithServerClock], a candidate that has not read the lock for a while believes the store's clock: if that is stepped or
//     a proxy writes dates of its own, two may lead.
//
// # Fencing
//
//   - [Lease.Commit] writes a small state into the lock object itself. No former leader's commit ever succeeds.
//   - Package fenced writes ordinary objects: once a token has written or sealed a key, no lower one ever does, among clients
//     that write through a fenced.Store. Shown by simulation of the real code and on real servers. Not promised are reads by a
//     former leader, several objects at once, and anything about writers that send no condition.
//   - fenced.Fence is the check for data in memory; package fencehttp has it for HTTP services.
//
// # Stores
//
// [NewS3Store] takes your own *s3.Client. [NewMemStore] is for tests and for one process. [CheckStore] and [WithStoreCheck]
// find out whether a server enforces its preconditions; package storetest does so at length, for who writes a [Store].
package leasehold
