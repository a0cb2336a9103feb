// Package locktable holds many locks in one object of a [leasehold.Store], changed by conditional
// writes alone.
//
// A [Table] is one object that lists the holder of each lock and, in order, the requests that wait.
// One write takes, releases or hands over any number of locks. The processes that use a table are
// its members. Each member has one lock of package leasehold on a separate object, which
// [Table.Run] holds and renews. All leases of a member in the table last as long as the lease of
// that lock. See https://github.com/leasehold-go/leasehold/blob/main/docs/tables.md.
//
// What the table grants:
//   - Exclusive and shared locks, semaphores, and several of them at once, all or none, without a
//     deadlock by the order of names.
//   - First come, first served. The write that releases a lock also hands it over, so the next
//     holder only has to read the table.
//   - A fencing token for each lease: the revision of the table that granted it. The tokens of a
//     lock rise strictly from one exclusive holder to the next. Readers that one write grants
//     together share a token.
//   - Names that leave nothing behind: a lock without a holder or a request has no entry.
//
// A table does not prevent every deadlock. Two calls of Acquire one after the other, in opposite
// order in two processes, wait for each other, as with any locks. Ask for both locks with
// [Table.All] instead. A process that has a shared lock and asks for it again waits behind a writer
// that asked in between.
//
// A lease is valid while three conditions hold. This process has seen a version of the table that
// grants the lease to the current term of its member. The lease of the member's own lock is valid
// in that term. The release of the lease has not begun.
//
// A request is removed from the table only by its own process, after the function has returned, or
// when the member's term has ended for good, which the member's object proves, or by hand. The
// safety of all this follows from the guarantee of package leasehold.
//
// Two holders are possible only if the table is damaged by hand. If the object is deleted or
// restored, or an entry is removed, holders act on their leases until they read the table again.
// Fencing tokens catch that if an entry was removed. After a deletion or a restore, tokens continue
// from the older revision, so two holders may have the same token, until a running process that
// remembers a higher revision reads the table, and raises its revision again.
//
// [Table.Detach] and [Resume] move a member, with all its leases, to another process.
//
// Two copies of one machine, as a snapshot makes them, act under one term until the next renewal
// distinguishes them. A copy neither uses nor releases a lock that the other copy has asked for
// after the snapshot, unless one of them ends the term first. Both copies have the locks that were
// held at the snapshot until that renewal.
package locktable
