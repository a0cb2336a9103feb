// Package locktable holds many locks in one object of a [leasehold.Store], changed by conditional
// writes alone.
//
// A [Table] is one object that says who holds which lock and who waits, in order. One write takes,
// frees or hands over any number of locks. The processes that use a table are its members. Each
// member has one lock of package leasehold on an object of its own, which [Table.Run] holds and
// renews. All that a member holds in the table lasts as long as that lease.
//
// What the table grants:
//   - exclusive and shared locks, semaphores, and several of them at once, all or none, without a
//     deadlock by the order of names;
//   - first come, first served. Whoever frees a lock hands it over in the same write, so the
//     next holder only has to see it;
//   - a fencing token for each lease: the revision of the table that granted it. The tokens of a
//     lock rise strictly from one exclusive holder to the next. Readers that one write lets in
//     together share a token;
//   - names that leave nothing behind: a lock that nobody holds has no entry.
//
// What it does not grant: two calls of Acquire one after the other, in opposite order in two
// processes, wait for each other as everywhere; ask for both locks with [Table.All]. A process that
// has a shared lock and asks for it again waits behind a writer that came between.
//
// A lease is valid while this process has seen a version of the table that grants it to the present
// term of its member, that term's own lease is valid, and nobody has begun to free it. A request
// leaves the table only by its own process, after the function has returned; or when the member's
// term is over for good, which its own object proves; or by hand. The proof of package leasehold
// carries all of that. Two holders are possible only where the table is damaged by hand: if the
// object is deleted or restored, or an entry is removed, holders believe in what they have until
// they read the table again. Fencing tokens catch that, as long as one process lives that remembers
// the revision, which also lifts it again.
//
// [Table.Detach] and [Resume] move a member, with all that it holds, to another process.
//
// Two copies of one machine, as a snapshot makes them, act under one term until the next renewal
// tells them apart. What either asks for after the copy was made, the other neither takes for its
// own nor frees, unless one of them ends the term first. What was held when it was made is held by
// both until that renewal.
package locktable
