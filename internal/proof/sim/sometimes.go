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

// Situations of locks.
const (
	acquisitionsMeet = iota
	creationsMeet
	ghostTwoTerms
	ghostLands
	repeatAfterTerm
	takeoverAnswered5xx
	takeoverInOutage
	reclaimed
	ownLeftover
	tornAcquisition
	tornVersionReplaced
	waiterGranted
	acquisitionRefused
	renewalReplyLost
	renewalRefused
	renewalFindsBreak
	releaseReplyLost
	releaseRepeated
	releaseFindsTerm
	crashWhileLeading
	suspendedPastExpiry
	pausedPastTakeover
	stopsWhileWriting
	clockJump
	partitionedTerm
	fencedOff
	functionOutlives
	brokenTerm
	resignWhileWriting
	readOvertaken
	pageForWrite
	foreignTakeover
	messageToFrozen
	abandonedInFunction
	abandonedWhileWriting
	abandonedThenReleased
	abandonedRunsOut
	readerSeesExpiry
	writeTooSoon
	createBesideUpload
	ledAfterOutage
	wokenFromBackoff
	triedInAWait
	triedBesideAWrite
	copyTakesOver
	restoredTaken
	resumedAbandoned
	resumedWhileHeld
	resumedTooLate
	resumedAgain
	resumedWithOtherTTL
	otherTTLTaken
	visitorOutlasts
	visitorRefused
	foreignKeepsTerm
	heirMeetsForeign
	fooledByETag
	offerHeard
	offerTaken
	offerRefused
	releaseAfterOffer
	createdTooLate
	createdBySleeper
	lateDelete
	veryLateDelete
	deletedBeforeRead
	readTooLate
	lockSituations // their number
)

// LockSituations are those of TestSeeds.
var LockSituations = allSituations[:createdTooLate]

// CreateOnlySituations are those of TestCreateOnlySeeds, which come after them.
var CreateOnlySituations = allSituations[createdTooLate:]

var allSituations = Situations{
	acquisitionsMeet: {
		"two candidates write at once",
		"an acquisition is refused, because another was written while it was under way",
		30,
	},
	creationsMeet: {
		"two candidates create at once",
		"a lock that was missing is there when a candidate creates it",
		90,
	},
	ghostTwoTerms: {
		"a ghost after two terms",
		"a write arrives when the token is higher by two than when it was sent",
		40,
	},
	ghostLands: {"a ghost lands", "a write lands when its sender has ceased to wait", 30},
	repeatAfterTerm: {
		"a write repeated in another term",
		"the network's repetition of a write arrives when the token is higher",
		80,
	},
	takeoverAnswered5xx: {"a takeover answered 5xx", "a takeover lands and is answered 500 or 503", 14},
	takeoverInOutage: {
		"a takeover during a 503",
		"a takeover lands while another process is answered 503 only",
		60,
	},
	reclaimed:   {"a reclaim", "a process takes the unexpired term of an earlier process of its name", 200},
	ownLeftover: {"an own leftover", "a process takes its own term that it did not release", 540},
	tornAcquisition: {
		"a torn read at an acquisition",
		"a read has the body of a new term and the ETag of the version before",
		90,
	},
	tornVersionReplaced: {"a write by a torn read", "a write arrives that names the ETag of a torn read", 80},
	waiterGranted: {
		"a cancelled waiter granted",
		"an acquisition lands whose caller has ceased to wait for the lock",
		11,
	},
	acquisitionRefused: {"an own acquisition refused", "an acquisition lands and is answered 409, 412 or 404", 40},
	renewalReplyLost:   {"a renewal without a reply", "a renewal lands and its reply is lost", 520},
	renewalRefused:     {"an own renewal refused", "a renewal lands and is answered 409, 412 or 404", 240},
	renewalFindsBreak: {
		"a renewal after a break",
		"a renewal is refused because an administrator has ended the term",
		50,
	},
	releaseReplyLost: {
		"a release without a reply",
		"a release lands and its reply is lost or says that it failed",
		21,
	},
	releaseRepeated:     {"a release repeated", "a release lands after an earlier try was lost", 20},
	releaseFindsTerm:    {"a release after a takeover", "a release is refused because another term has begun", 80},
	crashWhileLeading:   {"a crash while leading", "a process crashes while its function runs", 450},
	suspendedPastExpiry: {"a suspend across an expiry", "a suspended leader wakes when its record has run out", 190},
	pausedPastTakeover: {
		"a holder returns after a takeover",
		"a leader whose clocks all stood still wakes in another's term",
		110,
	},
	stopsWhileWriting: {
		"a stop while writing",
		"a machine is suspended or paused while it waits for the answer to a write",
		70,
	},
	clockJump:       {"a clock jump during a term", "the wall clock of a leader is stepped", 60},
	partitionedTerm: {"a partitioned leader", "a leader behind a partition loses its lease", 210},
	fencedOff: {
		"a write fenced off",
		"the resource refuses a leader's write, because it has seen a higher token",
		270,
	},
	functionOutlives: {"a function outlives its term", "a function returns when another term has begun", 550},
	brokenTerm:       {"a broken term", "an administrator ends a term whose function runs", 210},
	resignWhileWriting: {
		"a resignation while writing",
		"an elector is to resign while its process waits for the answer to a write",
		22,
	},
	readOvertaken: {
		"a read overtaken",
		"the object is replaced before a reader has the reply that shows it",
		1300,
	},
	pageForWrite: {"a page for a write that landed", "a write lands and is answered by a page", 140},
	foreignTakeover: {
		"a foreign takeover",
		"a client that knows only expires_at takes a lock that has run out",
		13,
	},
	abandonedInFunction: {"abandoned in its function", "a lease is abandoned while its function runs", 290},
	abandonedWhileWriting: {
		"abandoned during a renewal",
		"a lease is abandoned while its process waits for the answer to a write",
		130,
	},
	abandonedThenReleased: {"abandoned, then released", "the release of an abandoned lease lands", 150},
	abandonedRunsOut: {
		"an abandoned term runs out",
		"a term follows one that was abandoned and not released",
		220,
	},
	readerSeesExpiry: {"a reader sees an expiry", "Watch yields that a term has run out", 76},
	writeTooSoon:     {"a write too soon", "a store that accepts one write a second refuses a write", 240},
	createBesideUpload: {
		"a create beside a slow one",
		"a create is refused while another is going up, and reads find nothing",
		210,
	},
	ledAfterOutage: {
		"led after an outage",
		"at a TTL of an hour or a day, somebody leads soon after an outage in which the lock was released",
		33,
	},
	wokenFromBackoff: {"woken from a back-off", "Wake makes somebody lead at once after that outage", 9},
	triedInAWait: {
		"the store tried in a wait",
		"a process that waits for the lock tries the store on another's record",
		520,
	},
	triedBesideAWrite: {
		"the store tried beside a write",
		"what tries the store carries a record that has been replaced meanwhile",
		140,
	},
	copyTakesOver: {"a takeover from a copy", "a process takes over from one on a copy of its machine", 100},
	restoredTaken: {
		"a restored version taken",
		"a process takes a restored version and knows of a later term",
		60,
	},
	resumedAbandoned: {
		"an abandoned term resumed",
		"a process goes on with a term that another one has abandoned",
		180,
	},
	resumedWhileHeld: {
		"a term resumed while it is held",
		"a process goes on with a term whose function still runs in another one",
		85,
	},
	resumedTooLate: {
		"a term resumed too late",
		"Resume finds that the term is over",
		19,
	},
	resumedAgain: {
		"a term resumed again",
		"a process goes on with a term that another one has resumed",
		50,
	},
	resumedWithOtherTTL: {
		"a term resumed with another TTL",
		"a process goes on with a term, and its TTL is not that of the process before",
		40,
	},
	foreignKeepsTerm: {
		"a foreign client keeps the term",
		"a client that knows only expires_at takes a lock and changes nothing else of the record",
		30,
	},
	heirMeetsForeign: {
		"an heir meets a foreign client",
		"Resume finds its term in the record, which a client that keeps all other members has taken",
		5,
	},
	visitorOutlasts: {
		"a visitor outlasts a holder that is gone",
		"a process that asks once takes a term that has run out",
		150,
	},
	visitorRefused: {
		"a visitor refused at once",
		"TryAcquire of a process that asks once finds a holder that lives",
		90,
	},
	otherTTLTaken: {
		"a takeover from another TTL",
		"a process takes a term that has run out, and whose TTL is not its own",
		200,
	},
	fooledByETag: {
		"a restored version not seen as new",
		"a process reads a restored version whose ETag it has last read before that was replaced",
		35,
	},
	offerHeard: {"an offer heard", "a candidate gets a note that proves that it may replace a version", 100},
	offerTaken: {"an offer taken", "a candidate replaces a version that its holder has not released", 100},
	offerRefused: {
		"an offer refused",
		"a write over a version that was offered finds another one",
		20,
	},
	releaseAfterOffer: {
		"a release after a taken offer",
		"a holder that has offered the lock releases it, and another term has begun",
		20,
	},
	messageToFrozen: {
		"a message to a frozen machine",
		"a message that the object has changed finds the machine stopped",
		250,
	},
	createdTooLate: {
		"create-only: a create too late",
		"a create lands in the place of a version that has been removed, when its sender has ceased to wait",
		600,
	},
	createdBySleeper: {
		"create-only: a create by a sleeper",
		"a create lands in the place of a version that has been removed, and its sender waits for the answer",
		680,
	},
	lateDelete: {"create-only: a late delete", "a delete lands when its sender has ceased to wait", 47},
	veryLateDelete: {
		"create-only: a delete after many versions",
		"a delete lands when the highest version is higher by twice the number that is kept",
		800,
	},
	deletedBeforeRead: {
		"create-only: deleted before it is read",
		"a version that a LIST has shown is removed before it is read",
		1170,
	},
	readTooLate: {
		"create-only: a read of a late create",
		"a read finds what was created too late, in the place of a version that has been removed",
		19,
	},
}

// Situations of tables of locks.
const (
	mixedSlots = iota
	tryOutlasts
	copyKept
	copyDropped
	evictedUnjoined
	wrongClockMet
	overLaterTerm
	overReleased
	overNotRenewed
	overOtherTerm
	overOtherObject
	overUnread
	memberResumed
	resumedAfterTTL
	resumedEvicted
	freedByAnotherHeir
	notDetachable
	lateWriteOfDetached
	tableSituations // their number
)

// TableSituations are those of TestTableSeeds.
var TableSituations = Situations{
	mixedSlots: {
		"tables: different numbers of slots in one line",
		"those who ask for a semaphore with more slots stand in one line with those who know fewer",
		440,
	},
	tryOutlasts: {
		"tables: a try outlived a dead one",
		"TryAcquire gets a lock after more than half a TTL, because somebody in its way has died",
		60,
	},
	copyKept: {
		"tables: a copy's row was left alone",
		"a member leaves in the table what a copy of its machine has asked for under the term of both",
		120,
	},
	copyDropped: {
		"tables: a copy's row was dropped in the end",
		"a member removes what a copy of its machine has left behind two TTLs before",
		90,
	},
	evictedUnjoined: {
		"tables: evicted without a row",
		"a member removes a dead one in the write by which it joins",
		16,
	},
	wrongClockMet: {
		"tables: a visitor met a wrong clock",
		"TryAcquire of a process that asks once finds a member that lives, whose wall clock is wrong by hours",
		95,
	},
	overLaterTerm: {
		"tables: over by a later term",
		"a term is judged over because a later one of its object has begun",
		1000,
	},
	overReleased:   {"tables: over by a release", "a term is judged over because it was released", 200},
	overNotRenewed: {"tables: over by time", "a term is judged over because it was not renewed for its TTL", 1240},
	overOtherTerm: {
		"tables: over by a restored term",
		"a term is judged over because its object has shown another term for its TTL",
		13,
	},
	overOtherObject: {
		"tables: over by another object",
		"a term is judged over because another object has been in its place for its TTL",
		340,
	},
	overUnread: {
		"tables: a member's object is unreadable",
		"a look at a member's object tells nothing, because it fails",
		1460,
	},
	memberResumed: {"tables: a member resumed", "a lease goes on in another process", 200},
	resumedAfterTTL: {
		"tables: resumed after the TTL",
		"a member goes on in another process although its TTL has passed",
		20,
	},
	resumedEvicted: {
		"tables: resumed too late",
		"a member does not go on in another process, because it was evicted after its TTL",
		20,
	},
	freedByAnotherHeir: {
		"tables: freed by another heir",
		"a process frees a lease that another process has by the same handle",
		10,
	},
	notDetachable: {"tables: not detachable", "a member cannot be handed over, as while a function runs", 200},
	lateWriteOfDetached: {
		"tables: a late write of a detached member",
		"a write arrives that was sent before the member was detached",
		10,
	},
}

// Situations of fenced writes.
const (
	FencedRefused = iota
	FencedLateArrival
	FencedMeeting
	FencedSealCut
	FencedReplyLost
	FencedRevived
	FencedReadMoved
	fencedSituations // their number
)

// FencedSituations are those of TestFencedSeeds.
var FencedSituations = Situations{
	FencedRefused: {"fenced: a write refused", "a write is refused, because a higher token has written", 1620},
	FencedLateArrival: {
		"fenced: a lower token late",
		"a write arrives after a higher token has written the object",
		200,
	},
	FencedMeeting: {
		"fenced: two leaders write at once",
		"another leader's write of the object lands while a write is on its way",
		210,
	},
	FencedSealCut: {"fenced: a seal cut off", "sealing fails with an unknown outcome", 330},
	FencedReplyLost: {
		"fenced: a reply lost",
		"a write is done, although the reply to one of its requests was lost",
		440,
	},
	FencedRevived: {
		"fenced: a deleted object written",
		"a higher token writes an object that a lower one has deleted",
		1600,
	},
	FencedReadMoved: {"fenced: a read during a write", "an object is replaced while it is read", 90},
}
