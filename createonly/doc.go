// Package createonly is a store for locks on servers where objects can only be created: servers
// that have no If-Match, but enforce If-None-Match on PUT or a vendor's header that forbids
// overwriting.
//
// A [Store] is a [leasehold.Store], so locks, electors and everything else that takes a
// leasehold.Store work on it. If the server enforces If-Match too, use [leasehold.NewS3Store],
// because it needs fewer requests.
//
//	client := s3.NewFromConfig(cfg)
//	store := createonly.New(createonly.NewS3(client, "my-bucket"))
//
// # The rule
//
// Version n of a key is a separate object, which is written once. Its name counts down as n counts
// up, so that a LIST in the order of names shows the highest version first. A delete is a version
// too, a tombstone, so numbers never start again. Let K be [Keep].
//
//  1. A write over version n creates version n+1. If version n+1 exists, the write is refused, and
//     this outcome is certain. The same holds, before the create, if version n does not exist or
//     has another body than the ETag says.
//  2. Otherwise a LIST follows. The write counts only if the highest version is now below n+1+K. If
//     not, its outcome is unknown, as after a lost reply, and a lock reads the object to find out.
//  3. A read uses the highest version that a LIST shows, say n. The read counts only if the highest
//     version that another LIST shows afterwards is below n+K. If not, the read starts again.
//  4. Versions at or below the highest minus K may be deleted: at any time, by any process, however
//     late.
//
// # Why it is right
//
// That n+1 could be created does not prove that n was the highest version. Its writer may have
// slept since its read, while others wrote n+1 and many more, and n+1 was deleted again. But n+1 is
// deleted only once the highest is at least n+1+K, and the highest never falls. So if a LIST after
// the create shows less, n+1 had not been deleted before. Then it had never existed, because it
// could be created. And no process writes n+2 without n+1. So n was the highest version, and the
// write replaced it.
//
// The same holds for a read. Between its LIST and its GET, version n may have been deleted, and a
// sleeping writer may have created it again.
//
// The argument needs no clock and no distance in time. Two rules look right and are wrong: that
// version n still exists, because its delete may be late, and a bound that is higher by one. Tests
// search all schedules of three writers and two late deletes for small K. They confirm the rule,
// and refute these two rules and others.
//
// # What it needs
//
// A create that does not overwrite must be atomic, and LIST must be strongly consistent: it shows
// all objects that were created before it began, in any order. If a LIST does not show a write's
// own version, the write fails with [leasehold.ErrUnsafeStore], so [leasehold.CheckStore] finds
// stores whose LIST lags, as far as a lag shows within its time. The page
// https://github.com/leasehold-go/leasehold/blob/main/docs/stores.md says what servers document.
//
// Do not delete objects of a lock, neither by hand nor by a lifecycle rule. If a version that must
// exist is missing, each read fails with [leasehold.ErrPermanent], and no lock writes without a
// read. If all versions are deleted, numbers start again, so first stop all processes that use the
// lock. If such a process still runs, its write is refused, because the version that it knows is
// missing or has changed, unless the deletion happens between its GET and its create. Use a bucket
// without versioning, where a LIST need not pass over deleted objects.
//
// An error of the LIST after a create leaves the outcome unknown, whatever it is. Only a LIST
// without the new version is final.
//
// # Requests
//
// A read, such as a poll, is a LIST, a GET and a LIST. A write of a known version, such as a
// renewal or a release, is a GET, a PUT, a LIST, and a DELETE of the version that is K older. An
// acquisition is a read and a write. The DELETE is sent in the background and may be lost:
// later writes make up for it. A write that finds more than 2K versions waits for its deletes, and
// a warning by [log/slog.Default] says once why they fail. If LIST is not in the order of names and
// more than [Listed] versions are left, [S3.List] reads all pages.
package createonly
