package sim

import "fmt"

// Situation is something that a simulation must bring about now and then. A simulation that no
// longer does checks less than it did, though no invariant fails.
type Situation struct {
	Name  string
	What  string // happens in a world for it to count
	Least int    // worlds of 10,000 in which it must happen: about a fifth of those in which it did
}

// Situations are those of one kind of world, by number.
type Situations []Situation

// Reached says in how many worlds each situation has happened.
type Reached []int

// enoughWorlds is how many worlds of a situation a run must be due, by Least, for its absence to be
// no chance. Five times as many are expected.
const enoughWorlds = 4

// Missing names the situations that happened in fewer of so many worlds than they must.
func (s Situations) Missing(worlds int, in Reached) (missing []string) {
	for i, at := range s {
		if due := worlds * at.Least / 10_000; due >= enoughWorlds && in[i] < due {
			missing = append(missing, fmt.Sprintf("%s: in %d of %d worlds, not in %d: %s", at.Name, in[i],
				worlds, due, at.What))
		}
	}
	return missing
}

// Lines say in how many worlds each situation has happened.
func (s Situations) Lines(in Reached) (lines []string) {
	for i, at := range s {
		lines = append(lines, fmt.Sprintf("%10d  %s", in[i], at.Name))
	}
	return lines
}

// add adds a situation, and returns its number.
func (s *Situations) add(name, what string, least int) int {
	*s = append(*s, Situation{name, what, least})
	return len(*s) - 1
}

var (
	lockWorlds Situations // of locks, and after them those of stores on which objects can only be created

	TableSituations  Situations // those of TestTableSeeds
	FencedSituations Situations // those of TestFencedSeeds
)

// Situations of locks.
var (
	acquisitionsMeet = lockWorlds.add("two candidates write at once",
		"an acquisition is refused, because another was written while it was under way", 30)
	creationsMeet = lockWorlds.add("two candidates create at once",
		"a lock that was missing is there when a candidate creates it", 90)
	ghostTwoTerms = lockWorlds.add("a ghost after two terms",
		"a write arrives when the token is higher by two than when it was sent", 40)
	ghostLands      = lockWorlds.add("a ghost lands", "a write lands when its sender has ceased to wait", 30)
	repeatAfterTerm = lockWorlds.add("a write repeated in another term",
		"the network's repetition of a write arrives when the token is higher", 80)
	takeoverAnswered5xx = lockWorlds.add("a takeover answered 5xx", "a takeover lands and is answered 500 or 503", 14)
	takeoverInOutage    = lockWorlds.add("a takeover during a 503",
		"a takeover lands while another process is answered 503 only", 60)
	reclaimed = lockWorlds.add("a reclaim",
		"a process takes the unexpired term of an earlier process of its name", 200)
	ownLeftover     = lockWorlds.add("an own leftover", "a process takes its own term that it did not release", 540)
	tornAcquisition = lockWorlds.add("a torn read at an acquisition",
		"a read has the body of a new term and the ETag of the version before", 90)
	tornVersionReplaced = lockWorlds.add("a write by a torn read",
		"a write arrives that names the ETag of a torn read", 80)
	waiterGranted = lockWorlds.add("a cancelled waiter granted",
		"an acquisition lands whose caller has ceased to wait for the lock", 11)
	acquisitionRefused = lockWorlds.add("an own acquisition refused",
		"an acquisition lands and is answered 409, 412 or 404", 40)
	renewalReplyLost = lockWorlds.add("a renewal without a reply", "a renewal lands and its reply is lost", 520)
	renewalRefused   = lockWorlds.add("an own renewal refused",
		"a renewal lands and is answered 409, 412 or 404", 240)
	renewalFindsBreak = lockWorlds.add("a renewal after a break",
		"a renewal is refused because an administrator has ended the term", 50)
	releaseReplyLost = lockWorlds.add("a release without a reply",
		"a release lands and its reply is lost or says that it failed", 21)
	releaseRepeated  = lockWorlds.add("a release repeated", "a release lands after an earlier try was lost", 20)
	releaseFindsTerm = lockWorlds.add("a release after a takeover",
		"a release is refused because another term has begun", 80)
	crashWhileLeading   = lockWorlds.add("a crash while leading", "a process crashes while its function runs", 450)
	suspendedPastExpiry = lockWorlds.add("a suspend across an expiry",
		"a suspended leader wakes when its record has run out", 190)
	pausedPastTakeover = lockWorlds.add("a holder returns after a takeover",
		"a leader whose clocks all stood still wakes in another's term", 110)
	stopsWhileWriting = lockWorlds.add("a stop while writing",
		"a machine is suspended or paused while it waits for the answer to a write", 70)
	clockJump       = lockWorlds.add("a clock jump during a term", "the wall clock of a leader is stepped", 60)
	partitionedTerm = lockWorlds.add("a partitioned leader", "a leader behind a partition loses its lease", 210)
	fencedOff       = lockWorlds.add("a write fenced off",
		"the resource refuses a leader's write, because it has seen a higher token", 270)
	functionOutlives = lockWorlds.add("a function outlives its term",
		"a function returns when another term has begun", 550)
	brokenTerm         = lockWorlds.add("a broken term", "an administrator ends a term whose function runs", 210)
	resignWhileWriting = lockWorlds.add("a resignation while writing",
		"an elector is to resign while its process waits for the answer to a write", 22)
	readOvertaken = lockWorlds.add("a read overtaken",
		"the object is replaced before a reader has the reply that shows it", 1300)
	pageForWrite    = lockWorlds.add("a page for a write that landed", "a write lands and is answered by a page", 140)
	foreignTakeover = lockWorlds.add("a foreign takeover",
		"a client that knows only expires_at takes a lock that has run out", 13)
	messageToFrozen = lockWorlds.add("a message to a frozen machine",
		"a message that the object has changed finds the machine stopped", 250)
	abandonedInFunction = lockWorlds.add("abandoned in its function",
		"a lease is abandoned while its function runs", 290)
	abandonedWhileWriting = lockWorlds.add("abandoned during a renewal",
		"a lease is abandoned while its process waits for the answer to a write", 130)
	abandonedThenReleased = lockWorlds.add("abandoned, then released", "the release of an abandoned lease lands", 150)
	abandonedRunsOut      = lockWorlds.add("an abandoned term runs out",
		"a term follows one that was abandoned and not released", 220)
	readerSeesExpiry = lockWorlds.add("a reader sees an expiry", "Watch yields that a term has run out", 76)
	writeTooSoon     = lockWorlds.add("a write too soon",
		"a store that accepts one write a second refuses a write", 240)
	createBesideUpload = lockWorlds.add("a create beside a slow one",
		"a create is refused while another is going up, and reads find nothing", 210)
	ledAfterOutage = lockWorlds.add("led after an outage",
		"at a TTL of an hour or a day, somebody leads soon after an outage in which the lock was released", 33)
	wokenFromBackoff = lockWorlds.add("woken from a back-off",
		"Wake makes somebody lead at once after that outage", 9)
	triedInAWait = lockWorlds.add("the store tried in a wait",
		"a process that waits for the lock tries the store on another's record", 520)
	triedBesideAWrite = lockWorlds.add("the store tried beside a write",
		"what tries the store carries a record that has been replaced meanwhile", 140)
	copyTakesOver = lockWorlds.add("a takeover from a copy",
		"a process takes over from one on a copy of its machine", 100)
	restoredTaken = lockWorlds.add("a restored version taken",
		"a process takes a restored version and knows of a later term", 60)
	resumedAbandoned = lockWorlds.add("an abandoned term resumed",
		"a process goes on with a term that another one has abandoned", 180)
	resumedWhileHeld = lockWorlds.add("a term resumed while it is held",
		"a process goes on with a term whose function still runs in another one", 85)
	resumedTooLate = lockWorlds.add("a term resumed too late", "Resume finds that the term is over", 19)
	resumedAgain   = lockWorlds.add("a term resumed again",
		"a process goes on with a term that another one has resumed", 50)
	resumedWithOtherTTL = lockWorlds.add("a term resumed with another TTL",
		"a process goes on with a term, and its TTL is not that of the process before", 40)
	otherTTLTaken = lockWorlds.add("a takeover from another TTL",
		"a process takes a term that has run out, and whose TTL is not its own", 200)
	visitorOutlasts = lockWorlds.add("a visitor outlasts a holder that is gone",
		"a process that asks once takes a term that has run out", 150)
	visitorRefused = lockWorlds.add("a visitor refused at once",
		"TryAcquire of a process that asks once finds a holder that lives", 90)
	foreignKeepsTerm = lockWorlds.add("a foreign client keeps the term",
		"a client that knows only expires_at takes a lock and changes nothing else of the record", 30)
	heirMeetsForeign = lockWorlds.add("an heir meets a foreign client",
		"Resume finds its term in the record, which a client that keeps all other members has taken", 5)
	fooledByETag = lockWorlds.add("a restored version not seen as new",
		"a process reads a restored version whose ETag it has last read before that was replaced", 35)
	offerHeard = lockWorlds.add("an offer heard",
		"a candidate gets a note that proves that it may replace a version", 100)
	offerTaken = lockWorlds.add("an offer taken",
		"a candidate replaces a version that its holder has not released", 100)
	offerRefused = lockWorlds.add("an offer refused",
		"a write over a version that was offered finds another one", 20)
	releaseAfterOffer = lockWorlds.add("a release after a taken offer",
		"a holder that has offered the lock releases it, and another term has begun", 20)
)

// Situations of create-only stores.
var (
	createdTooLate = lockWorlds.add("create-only: a create too late",
		"a create lands in the place of a version that has been removed, when its sender has ceased to wait", 600)
	createdBySleeper = lockWorlds.add("create-only: a create by a sleeper",
		"a create lands in the place of a version that has been removed, and its sender waits for the answer", 680)
	lateDelete = lockWorlds.add("create-only: a late delete",
		"a delete lands when its sender has ceased to wait", 47)
	veryLateDelete = lockWorlds.add("create-only: a delete after many versions",
		"a delete lands when the highest version is higher by twice the number that is kept", 800)
	deletedBeforeRead = lockWorlds.add("create-only: deleted before it is read",
		"a version that a LIST has shown is removed before it is read", 1170)
	readTooLate = lockWorlds.add("create-only: a read of a late create",
		"a read finds what was created too late, in the place of a version that has been removed", 19)
)

// Those of TestSeeds and of TestCreateOnlySeeds. They must stand after all that lockWorlds has.
var LockSituations, CreateOnlySituations = lockWorlds[:createdTooLate], lockWorlds[createdTooLate:]

// Situations of tables of locks.
var (
	mixedSlots = TableSituations.add("tables: different numbers of slots in one line",
		"those who ask for a semaphore with more slots stand in one line with those who know fewer", 440)
	tryOutlasts = TableSituations.add("tables: a try outlived a dead one",
		"TryAcquire gets a lock after more than half a TTL, because somebody in its way has died", 60)
	copyKept = TableSituations.add("tables: a copy's row was left alone",
		"a member leaves in the table what a copy of its machine has asked for under the term of both", 300)
	copyDropped = TableSituations.add("tables: a copy's row was dropped in the end",
		"a member removes what a copy of its machine has left behind two TTLs before", 170)
	evictedUnjoined = TableSituations.add("tables: evicted without a row",
		"a member removes a dead one in the write by which it joins", 16)
	wrongClockMet = TableSituations.add("tables: a visitor met a wrong clock",
		"TryAcquire of a process that asks once finds a member that lives, whose wall clock is wrong by hours", 95)
	overLaterTerm = TableSituations.add("tables: over by a later term",
		"a term is judged over because a later one of its object has begun", 1000)
	overReleased = TableSituations.add("tables: over by a release",
		"a term is judged over because it was released", 200)
	overNotRenewed = TableSituations.add("tables: over by time",
		"a term is judged over because it was not renewed for its TTL", 1240)
	overOtherTerm = TableSituations.add("tables: over by a restored term",
		"a term is judged over because its object has shown another term for its TTL", 13)
	overOtherObject = TableSituations.add("tables: over by another object",
		"a term is judged over because another object has been in its place for its TTL", 340)
	overUnread = TableSituations.add("tables: a member's object is unreadable",
		"a look at a member's object tells nothing, because it fails", 1460)
	memberResumed   = TableSituations.add("tables: a member resumed", "a lease goes on in another process", 240)
	resumedAfterTTL = TableSituations.add("tables: resumed after the TTL",
		"a member goes on in another process although its TTL has passed", 50)
	resumedEvicted = TableSituations.add("tables: resumed too late",
		"a member does not go on in another process, because it was evicted after its TTL", 75)
	freedByAnotherHeir = TableSituations.add("tables: freed by another heir",
		"a process frees a lease that another process has by the same handle", 10)
	notDetachable = TableSituations.add("tables: not detachable",
		"a member cannot be handed over, as while a function runs", 440)
	lateWriteOfDetached = TableSituations.add("tables: a late write of a detached member",
		"a write arrives that was sent before the member was detached", 150)
)

// Situations of fenced writes.
var (
	FencedRefused = FencedSituations.add("fenced: a write refused",
		"a write is refused, because a higher token has written", 1620)
	FencedLateArrival = FencedSituations.add("fenced: a lower token late",
		"a write arrives after a higher token has written the object", 200)
	FencedMeeting = FencedSituations.add("fenced: two leaders write at once",
		"another leader's write of the object lands while a write is on its way", 210)
	FencedSealCut   = FencedSituations.add("fenced: a seal cut off", "sealing fails with an unknown outcome", 330)
	FencedReplyLost = FencedSituations.add("fenced: a reply lost",
		"a write is done, although the reply to one of its requests was lost", 440)
	FencedRevived = FencedSituations.add("fenced: a deleted object written",
		"a higher token writes an object that a lower one has deleted", 1600)
	FencedReadMoved = FencedSituations.add("fenced: a read during a write",
		"an object is replaced while it is read", 90)
)
