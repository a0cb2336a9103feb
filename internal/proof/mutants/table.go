package main

// mutants are the mistakes that are planted, with the checks that must each catch them alone, and
// the number of the promise in docs/verification.md that they would break. Without a number they
// cost time, or are of a part of which no promise speaks.
var mutants = []mutant{
	{
		"no nonce",
		[]edit{{"internal/wire/nonce.go", `return string(strconv.AppendInt(b, time.Now().UnixNano(), 36))`,
			`return string(strconv.AppendInt(b, time.Now().UnixNano(), 36)[:0])`}},
		[]string{worlds},
		6,
	},
	{"validity of an acquisition counted from the reply",
		[]edit{{"acquire.go", `	return r.newTerm(written, sent, secret), nil, nil`,
			`	return r.newTerm(written, r.clock.Now(), secret), nil, nil`}}, []string{worlds}, 1},
	{
		"validity of a renewal counted from the reply",
		[]edit{{"renewal.go", `		t.landed(ctx, etag, write{rec, sent})`,
			`		t.landed(ctx, etag, write{rec, t.lock.clock.Now()})`}},
		[]string{worlds},
		1,
	},
	{
		"an abandoned lease is renewed once more",
		[]edit{{"renewal.go", `over != nil && !t.frees()`, `errors.Is(over, ErrLost)`}},
		[]string{". -run ^TestARenewalDoesNotWriteAgainAfterAbandon$"}, 0,
	},
	{"412 on a renewal taken as lost at once", []edit{{"renewal.go",
		`	case storeapi.Refused(err), errors.Is(err, ErrConflict):`, `	case errors.Is(err, ErrPreconditionFailed):
		return false, t.lose(err)
	case storeapi.Refused(err), errors.Is(err, ErrConflict):`}}, []string{worlds}, 6},
	{
		"any error on a renewal taken as lost at once",
		[]edit{{"renewal.go", `	return false, err // nothing is known yet`,
			`	return false, t.lose(err) // nothing is known yet`}},
		[]string{worlds},
		6,
	},
	{"404 on a renewal taken as lost at once", []edit{{"renewal.go",
		`	case storeapi.Refused(err), errors.Is(err, ErrConflict):`, `	case errors.Is(err, ErrNotExist):
		return false, t.lose(err)
	case storeapi.Refused(err), errors.Is(err, ErrConflict):`}}, []string{worlds}, 6},
	{
		"412 on an acquisition taken as held by another",
		[]edit{
			{
				"acquire.go",
				`case now.exists && sameWrite(rec, now.rec):`,
				`case now.exists && sameWrite(rec, now.rec) && !errors.Is(err, ErrPreconditionFailed):`,
			},
			{"observe.go", `writtenByUs:  r.memory.owns(v.rec) && !revived,`, `writtenByUs: false,`},
		},
		[]string{". -run ^TestWriteWithItsReplyLostCountsAsOurs$", "./itest -run TestAmbiguousWrites"},
		6,
	},
	{
		"release by DELETE",
		[]edit{{"release.go", `		return t.put(settling, markReleased)`,
			`		return t.lock.store.DeleteIfMatch(ctx, t.lock.key, t.stored.etag)`}},
		[]string{worlds, search},
		15,
	},
	{
		"wall clock in the takeover rule",
		[]edit{{"decide.go", `return max(o.withDrift(r.TTL)-s.age, o.foreign(r, s))`,
			`return r.ExpiresAt.Sub(s.wall)`}},
		[]string{worlds},
		1,
	},
	{
		"token reset at release",
		[]edit{{"release.go", `func markReleased(r *Record) { r.ExpiresAt = time.Time{} }`,
			`func markReleased(r *Record) { r.ExpiresAt, r.Token = time.Time{}, 0 }`}},
		[]string{worlds},
		4,
	},
	{
		"token not raised at a takeover",
		[]edit{{"fencing.go", `return token + 1, nil`, `return max(token, 1), nil`}},
		[]string{worlds, search, "./itest -run TestThousandCycles"},
		4,
	},
	{"the SDK's retryer left on", []edit{{"internal/s3api/bucket.go", `	o.Retryer = aws.NopRetryer{}
`, `	_ = aws.NopRetryer{}
`}}, []string{". -run TestOneStoreCallIsOneRequest"}, 14},
	{
		"takeover without drift allowance",
		[]edit{{"decide.go", `return time.Duration(float64(ttl) * (1 + o.drift))`, `return ttl`}},
		[]string{worlds, search},
		1,
	},
	{
		"no safety margin",
		[]edit{{"term.go", `return t.lock.ttl - t.lock.margin - t.lock`, `return t.lock.ttl - t.lock`}},
		[]string{worlds, search},
		1,
	},
	{
		"released while the function runs",
		[]edit{{"lease.go", `context.AfterFunc(ctx, t.stopRenewingAfterTTL)`,
			`context.AfterFunc(ctx, func() { _ = t.release(context.WithoutCancel(ctx), false) })`}},
		[]string{worlds},
		7,
	},
	{
		"renewals stop when the function is told to",
		[]edit{{"renewal.go", `t.renewUntil = t.lock.clock.Now().Mono + t.lock.ttl`,
			`t.renewUntil = t.lock.clock.Now().Mono`}},
		[]string{worlds},
		7,
	},
	{
		"renewals go on for as long as the function takes",
		[]edit{{"renewal.go", `t.state != held || t.lock.clock.Now().Mono >= t.renewUntil`, `t.state != held`}},
		[]string{". -run TestDoThatDoesNotReturnLosesTheLock|TestCallbackThatNeverReturns"},
		0,
	},
	{
		"BOOTTIME ignored",
		[]edit{{"internal/clock/clock.go", ` + max(r.Boot-start.Boot-d, 0)`, ``}},
		[]string{worlds},
		1,
	},
	{
		"wall clock of the holder ignored",
		[]edit{{"internal/clock/clock.go", ` + max(r.Wall-start.Wall-d, 0)`, ``}},
		[]string{worlds},
		1,
	},
	{
		"only the clock that has counted most believed",
		[]edit{{"internal/clock/clock.go", `d + max(r.Wall-start.Wall-d, 0) + max(r.Boot-start.Boot-d, 0)`,
			`max(d, r.Wall-start.Wall, r.Boot-start.Boot)`}},
		[]string{". -run TestAnyClockEndsALease|TestSuspendedHolderKnowsOnWaking"},
		0,
	},
	{
		"age of one version counted for the next",
		[]edit{{"observe.go", `case v.exists && v.same(last) && `, `case v.exists && last.exists && `}},
		[]string{worlds},
		1,
	},
	{
		"age counted from before the read",
		[]edit{{"observe.go", `v := &version{readBefore: before, readAfter: r.clock.Now().Mono}`,
			`v := &version{readBefore: before, readAfter: r.clock.Now().Mono - r.ttl/10}`}},
		[]string{worlds},
		1,
	},
	{"a lost lease comes back with a late renewal", []edit{{"term.go", `		_ = t.lose(errRanOut)
	}
	return ok && !ranOut`, `		ok = false
	}
	return ok && !ranOut`}, {"term.go", `	if ranOut {
		_ = t.lose(errRanOut)
	}
	if overran`, `	if overran`}}, []string{worlds}, 5},
	{
		"one's own leftover waited out",
		[]edit{{"observe.go", `writtenByUs:  r.memory.owns(v.rec) && !revived,`, `writtenByUs:  false,`}},
		[]string{". -run TestGhostAcquisitionIsTakenOverAtOnce|TestElectorAloneLeadsAgain"},
		6,
	},
	{
		"ownership judged by name",
		[]edit{
			{
				"acquire.go",
				`case now.exists && sameWrite(rec, now.rec):`,
				`case now.exists && rec.Holder == now.rec.Holder:`,
			},
			{"renewal.go", `return sameWrite(w.rec, v.rec) })`, `return w.rec.Holder == v.rec.Holder })`},
		},
		[]string{worlds, search},
		6,
	},
	{
		"ownership judged by the name of the process, which its copies share",
		[]edit{{"observe.go", `writtenByUs:  r.memory.owns(v.rec) && !revived,`,
			`writtenByUs:  r.process.Wrote(wire.Record(v.rec)) && !revived,`}},
		[]string{worlds, ". -run ^TestTwoCopiesOfAMachineDoNotBothLead$"}, 1,
	},
	{
		"equal random bytes make equal nonces",
		[]edit{{"internal/wire/nonce.go", `time.Now().UnixNano()`, `0`}},
		[]string{"./internal/wire -run ^TestNoncesOfEqualRandomBytesDiffer$"},
		1,
	},
	{
		"a Lock remembers all writes of an outage",
		[]edit{{"observe.go", `	if len(m.sent) == maxSent {`, `	if false {`}},
		[]string{". -run ^TestWhatALockRemembers"},
		0,
	},
	{
		"a Lock forgets the first write of an outage",
		[]edit{{"observe.go", `slices.Delete(m.sent, 2, maxSent/2)`, `slices.Delete(m.sent, 1, maxSent/2)`}},
		[]string{". -run ^TestWhatALockRemembers"},
		0,
	},
	{
		"a Lock at rest remembers many writes",
		[]edit{{"observe.go", `if i := m.sentAs(v.rec); i > 0 {`, `if i := m.sentAs(v.rec); i > maxSent {`}},
		[]string{". -run ^TestWhatALockRemembers"},
		0,
	},
	{
		"a create beside an upload taken for a fault",
		[]edit{{"acquire.go", `r.memory.refusesFor(r.ttl); !v.exists`, `r.memory.refusesFor(0); !v.exists`}},
		[]string{worlds, ". -run TestACreateBeside"}, 10,
	},
	{
		"a create at each wake-up beside an upload",
		[]edit{{"observe.go", `creating: r.memory.creating(now.Mono, min(r.poll, r.ttl)*9/10),`, `creating: 0,`}},
		[]string{". -run TestAWakeUpBeside"}, 21,
	},
	{
		"a create at each wake-up on a store that refuses every one",
		[]edit{{"observe.go", `	if m.refusals == nil {
		return 0
	}`, `	if m.refusals == nil || m.refusals.last-m.refusals.first >= 15*time.Second {
		return 0
	}`}},
		[]string{". -run TestAWakeUpBesideEndless"}, 21,
	},
	{
		"an acquisition that came too late stays when the next write fails",
		[]edit{{"lock.go", `		case next == nil:
			return nil, stray, err`, `		case next == nil:
			return nil, nil, err`}},
		[]string{". -run TestWhatComesTooLate"}, 15,
	},
	{
		"an acquisition that came too late is forgotten after a conflict",
		[]edit{{"lock.go", `if v, stray = next, nil; l.leftover(v) {`,
			`if v, stray = next, nil; l.leftover(v) && errors.Is(err, errTooLate) {`}},
		[]string{". -run TestWhatComesTooLate"}, 15,
	},
	{
		"the fourth late acquisition in a row stays",
		[]edit{{"lock.go", `if v, stray = next, nil; l.leftover(v) {`,
			`if v, stray = next, nil; l.leftover(v) && round < maxWritesPerTry {`}},
		[]string{". -run TestWhatComesTooLate"}, 15,
	},
	{
		"what came too late is given back once, whatever the answer",
		[]edit{{"lock.go", `		case !l.leftover(now):
			return nil
`, `		default:
			return nil
`}},
		[]string{". -run TestWhatComesTooLate"}, 15,
	},
	{
		"an endless conflict is a lost race",
		[]edit{{"lock.go", `		case unchanged:
			return nil, stray, l.refusedInVain(v, err)`, `		case unchanged:
			return nil, stray, l.heldVersion(v, l.decide(l.observed(v)))`}},
		[]string{". -run TestAStoreThatRefusesToReplace"}, 14,
	},
	{
		"healthy while a release hangs",
		[]edit{{"elector.go", ` && !l.term.Load().frees():`, `:`}},
		[]string{". -run ^TestCheckDuringAReleaseThatHangs$"},
		0,
	},
	{
		"healthy while a callback hangs",
		[]edit{{"elector.go", `"OnStartedLeading" && now-since > limit:`, `"OnStartedLeading" && limit < 0:`}},
		[]string{". -run ^TestCheckDuringACallback$"},
		0,
	},
	{
		"an elector that cannot acquire a free lock is healthy",
		[]edit{{"elector.go", `case failing != nil && now-max(failing.since, since) > limit:`,
			`case failing != nil && limit < 0:`}},
		[]string{". -run TestAStoreThatRefusesToReplace"}, 0,
	},
	{
		"a store that refuses every create is a race for ever",
		[]edit{{"acquire.go", `r.memory.refusesFor(r.ttl); !v.exists`, `r.memory.refusesFor(1 << 60); !v.exists`}},
		[]string{". -run TestAStoreThatRefusesEveryCreate"}, 10,
	},
	{
		"a lock that nobody has held has a leader",
		[]edit{{"elector.go", `ok && !held.creating() {`, `ok {`}},
		[]string{". -run TestAStoreThatRefusesEveryCreate"},
		0,
	},
	{
		"a wrong read frees an abandoned lease",
		[]edit{{"term.go", `if !ranOut && t.state != abandoned {`, `if !ranOut {`}},
		[]string{". -run TestAWrongReadDoesNotFree"},
		7,
	},
	{
		"reclaim by every namesake",
		[]edit{
			{"decide.go", `case s.sameIdentity && o.reclaim:`, `case s.sameIdentity:`},
			{
				"observe.go",
				`v.rec.Holder == r.identity && byLock(v.rec) && !revived && !r.process.Wrote(wire.Record(v.rec)),`,
				`v.rec.Holder == r.identity,`,
			},
		},
		[]string{". -run TestReclaimTakesItsOwn|TestWhoMayTakeTheLock"},
		0,
	},
	{
		"a reply lost on release forgotten",
		[]edit{{"release.go", `storeapi.Permanent(err) || remaining`,
			`storeapi.Permanent(err) || err != nil || remaining`}},
		[]string{". -run TestReleaseWithoutReplyIsRetried"},
		13,
	},
	{
		"a record of no TTL trusted to the second",
		[]edit{{"decide.go", `r.ExpiresAt.Add(o.skew).Sub(s.wall)`, `r.ExpiresAt.Sub(s.wall)`}},
		[]string{worlds, ". -run TestWhoMayTakeTheLock"},
		19,
	},
	{"a corrupt record taken for free", []edit{{"observe.go", `			err = wire.Advised(`,
		`			return v, nil, nil
			err = wire.Advised(`}}, []string{
		worlds,
		". -run TestCorruptRecordIsNeverOverwritten",
		"./itest -run TestInterference",
	}, 16},
	{
		"Break replaces whatever is there",
		[]edit{{"inspect.go", `wire.Misplaced(wire.Lock, obj.Body)`, `wire.Misplaced(wire.Lock, nil)`}},
		[]string{". -run ^TestWhatIsNoLockIsNamedAndStays$"},
		16,
	},
	{
		"Break replaces what is too large to be read",
		[]edit{{"inspect.go", `(obj.Body == nil || !errors`, `(obj.ETag == "" || !errors`}},
		[]string{". -run ^TestBreakLeavesWhatIsTooLarge$"},
		16,
	},
	{
		"a record that was cut off is not known as one",
		[]edit{{"internal/wire/kind.go", `members == nil && lockBegins.Match(text), ofLock(members)`,
			`ofLock(members)`}},
		[]string{". -run ^TestBreakRepairsWhatIsLeftOfARecord$"},
		0,
	},
	{
		"whatever has an expires_at was a record",
		[]edit{{"internal/wire/kind.go", `members["expires_at"] != nil && (number`,
			`members["expires_at"] != nil && (true || number`}},
		[]string{". -run ^TestWhatIsNoLockIsNamedAndStays$"},
		16,
	},
	{
		"a member of a table is broken as a lock",
		[]edit{{"inspect.go", `ok || rec.Token == MaxToken &&`, `ok && false || rec.Token == MaxToken &&`}},
		[]string{". -run ^TestBreakOfAMemberOfATable$", "./locktable -run ^TestBreak$"},
		43,
	},
	{
		"a table does not name what is none",
		[]edit{{"internal/tables/decode.go", `wire.Misplaced(wire.Table, body)`,
			`wire.Misplaced(wire.Table, []byte("{\"table\":1"))`}},
		[]string{"./locktable -run ^TestWhatIsNoTableIsNamedAndStays$"},
		16,
	},
	{
		"fencehttp: a lock is taken for a mark",
		[]edit{{"fencehttp/fencehttp.go", `kind == wire.Lock || kind == wire.Table`, `kind == wire.Table`}},
		[]string{"./fencehttp -run ^TestStoreMarksEnd$"},
		0,
	},
	{"an empty record taken for free", []edit{{"internal/wire/record.go", `	if expires == nil {
		return corrupt("no expires_at")
	}`, `	if expires == nil {
		expires = new(seconds)
	}`}}, []string{". -run TestBadRecordsAreNeverFree"}, 16},

	// Mistakes that an attack on the code found.
	{
		"an age told later is counted",
		[]edit{{"observe.go", `v.age = max(last.age+v.readAfter-last.readAfter, 0)`,
			`v.age = max(last.age+v.readAfter-last.readAfter, v.age)`}},
		[]string{worlds},
		9,
	},
	{"an age told for a new version is not bounded", []edit{{"observe.go",
		`		v.age = min(v.age, max(v.readAfter-last.readBefore, 0))
`, ``}}, []string{worlds}, 9},
	{"the bound goes back with a late answer", []edit{{"observe.go",
		`		v.readBefore = max(v.readBefore, last.readBefore)
`, ``}}, []string{worlds, ". -run TestALateAnswerDoesNotRaiseTheBoundOfAnAge"}, 9},
	{"a lost term does not wait for its function", []edit{{"term.go", `	case t.guarding():
		return t.lock.poll
`, ``}, {
		"term.go",
		`	case t.state == lost && t.function != returned:`,
		`	case t.state == lost && t.function != returned && !t.guarding():`,
	}}, []string{worlds}, 8},
	{
		"a lost term without a function leaves no margin",
		[]edit{{"term.go", `	case t.state == lost && t.function != returned:`,
			`	case t.state == lost && t.function != returned && t.guarding():`}},
		[]string{". -run TestALostLeaseWithoutAFunction"},
		8,
	},
	{
		"a release under way keeps no sibling out",
		[]edit{{"term.go", `	case t.state == releasing:`, `	case t.state == releasing && t.lock == nil:`}},
		[]string{". -run TestAReleaseUnderWayIsHeldForSiblings"},
		8,
	},
	{
		"a release that has landed is written again",
		[]edit{{"renewal.go", `return ours.rec.Nonce == rec.Nonce || ours.rec.Released(), nil`,
			`return ours.rec.Nonce == rec.Nonce, nil`}},
		[]string{". -run TestAReleaseThatHasLandedIsNotWrittenAgain"},
		6,
	},
	{
		"a release that may have landed is called a loss",
		[]edit{{"renewal.go", `case i < 0 && mayBeReleased:`, `case i < 0 && mayBeReleased && false:`}},
		[]string{". -run TestAReleaseThatHasLandedIsNoLoss"},
		6,
	},
	{
		"our nonce is enough, whoever raised the record",
		[]edit{{"internal/wire/nonce.go", `return a.Nonce != "" && a.Nonce == b.Nonce && a.Token == b.Token &&`,
			`return a.Nonce != "" && a.Nonce == b.Nonce || a.Token < b.Token && a.Token > b.Token &&`}},
		[]string{". -run TestARecordWithOurNonce"},
		6,
	},
	{
		"an answer after the end of a lease counts",
		[]edit{{"renewal.go", `	if over := t.whyOver(); over != nil { // the answer`,
			`	if over := t.whyOver(); over != nil && false { // the answer`}},
		[]string{". -run ^TestAnAnswerAfterTheEndOfALease"}, 5,
	},
	{
		"in a long outage all but the last unconfirmed write are forgotten",
		[]edit{{"renewal.go", `slices.Delete(t.unconfirmed, 1, maxUnconfirmed/2)`,
			`slices.Delete(t.unconfirmed, 0, maxUnconfirmed)`}},
		[]string{". -run ^TestALongOutageCostsNoLease$"}, 6,
	},
	{
		"in a long outage the first unconfirmed write is forgotten",
		[]edit{{"renewal.go", `slices.Delete(t.unconfirmed, 1, maxUnconfirmed/2)`,
			`slices.Delete(t.unconfirmed, 0, maxUnconfirmed/2)`}},
		[]string{". -run ^TestALongOutageCostsNoLease$"}, 6,
	},
	{
		"a release after a takeover says nothing of it",
		[]edit{{"release.go", `	case err == nil, errors.Is(err, errNothingToRelease):`,
			`	case err == nil, errors.Is(err, errNothingToRelease), ended(err):`}},
		[]string{". -run ^TestReleaseOfALeaseThatWasReplaced$"}, 0,
	},
	{
		"a release is tried for up to a TTL too long",
		[]edit{{"release.go", `	until := t.sent.Mono + t.lock.ttl`,
			`	until := t.lock.clock.Now().Mono + t.lock.ttl`}},
		[]string{". -run ^TestAReleaseIsTriedNoLonger"}, 27,
	},
	{
		"a held lock does not end the back-off",
		[]edit{{"campaign.go", `			failures, wait = 0, min(`, `			wait = min(`}},
		[]string{". -run ^TestAHeldLockEndsTheBackOff$"}, 13,
	},
	{
		"refused creates count on when the object was seen",
		[]edit{{"observe.go", `	if v.exists {
		m.refusals = nil
	}
`, ``}},
		[]string{". -run ^TestRefusedCreatesAreForgotten"}, 10,
	},
	{
		"a stopped Run returns the failure of an earlier one",
		[]edit{{"elector.go", `	l.failure.Store(nil)
`, ``}},
		[]string{". -run ^TestAStoppedRunReturnsNoFailure"}, 12,
	},
	{
		"a lost race is an error",
		[]edit{{"lock.go", `			return nil, nil, l.notFree(v, l.decide(l.observed(v)))`,
			`			return nil, nil, ErrPreconditionFailed`}},
		[]string{". -run TestALostRaceIsAlwaysErrHeld"},
		10,
	},
	{
		"no rest after a callback has released",
		[]edit{{"elector.go", `errors.Is(context.Cause(lease.ctx), ErrReleased)`,
			`errors.Is(context.Cause(lease.ctx), ErrReleased) && context.Cause(lease.ctx) != ErrReleased`}},
		[]string{". -run TestACallbackThatReleasesRestsAsAfterResign"},
		0,
	},
	{
		"RunOnce begins without a rest",
		[]edit{{"elector.go", `		if e.letOthersPass(ctx) != nil {`,
			`		if term > 1 && e.letOthersPass(ctx) != nil {`}},
		[]string{". -run TestRunOnceRests"}, 0,
	},
	{
		"work of a former term resigns the present one",
		[]edit{{"elector.go", `	if under && of != term.lease {
		return nil
	}
`, `	under = under && of == term.lease
`}},
		[]string{". -run TestResignUnderTheContextOfAFormerTerm"}, 0,
	},
	{"a read that fails forgets the age", []edit{{"observe.go", `	case err != nil:
		return nil, nil, err
	default:`, `	case err != nil:
		r.memory.mu.Lock()
		r.memory.last = nil
		r.memory.mu.Unlock()
		return nil, nil, err
	default:`}}, []string{". -run TestReadsThatFailForgetNothing"}, 13},
	{"failed tries are not logged", []edit{{"campaign.go", `			if ctx.Err() == nil {
				l.log`, `			if ctx.Err() != nil {
				l.log`}}, []string{". -run TestFailuresAreTold"}, 12},
	{
		"Run forgets why it never led",
		[]edit{{"elector.go", `if ctx.Err() == nil || leftOver || neverAnswered {`,
			`if ctx.Err() == nil || leftOver || neverAnswered && false {`}},
		[]string{". -run TestFailuresAreTold"},
		12,
	},
	{
		"a corrupt record counts as an answer",
		[]edit{{"request.go", `err == nil && op != "get":`, `err == nil:`}},
		[]string{". -run TestRunEndsOnACorruptRecord"},
		0,
	},
	{
		"a failed release of a cut-off acquisition is swallowed",
		[]edit{{"elector.go", `if ctx.Err() == nil || leftOver || neverAnswered {`,
			`if ctx.Err() == nil || leftOver && false || neverAnswered {`}},
		[]string{". -run TestRunReportsARelease"},
		15,
	},
	{
		"a resting elector is unhealthy",
		[]edit{{"elector.go", `	e.since.Store(int64(e.rest))
`, ``}},
		[]string{". -run TestCheckIsHealthyWhileAnElectorRests"}, 0,
	},
	{
		"a token that was repaired away comes back",
		[]edit{{"fencing.go", `highest > token && highest-token < implausible`, `highest > token`}},
		[]string{". -run TestTheLastTokenIsRepairedByBreak"},
		0,
	},
	{
		"unconfirmed writes are never settled",
		[]edit{{"renewal.go", `t.stored, t.sent, t.unconfirmed, t.failure = v, w.sent, nil, nil`,
			`t.stored, t.sent, t.failure = v, w.sent, nil`}},
		[]string{". -run TestUnconfirmedWritesAreSettled"},
		0,
	},
	{
		"an age told without the user's trust",
		[]edit{{"s3store.go", `	if err != nil || !s.serverClock {`, `	if err != nil {`}},
		[]string{". -run TestAgeIsToldByTheServersClockAlone"},
		9,
	},
	{
		"dates in whole seconds taken for exact",
		[]edit{{"internal/s3api/object.go", `aws.ToTime(out.LastModified), o.Slack)`,
			`aws.ToTime(out.LastModified), 0)`}},
		[]string{". -run TestAgeIsToldByTheServersClockAlone"},
		9,
	},
	{
		"a clock that is not the store's passes the check",
		[]edit{{"internal/storecheck/probe.go", `case o.age < 0 || o.age > elapsed:`, `case o.age < 0:`}},
		[]string{". -run TestCheckStoreRefusesAClockThatIsNotTheStores"},
		9,
	},
	{
		"MemStore tells ages unasked",
		[]edit{{"internal/memstore/memstore.go", `if s.TellsAge {`, `if s != nil {`}},
		[]string{". -run TestMemStoreTellsNoAgeByDefault"},
		9,
	},
	{
		"a wrong endpoint is never told",
		[]edit{{"internal/storeapi/server.go", `s.strange.Add(1) >= maxStrange && !s.genuine.Load()`,
			`s.strange.Add(1) < 0`}},
		[]string{". -run TestRepliesThatAreNoS3s"},
		11,
	},
	{
		"strange replies are final after good ones",
		[]edit{{"internal/storeapi/server.go", `>= maxStrange && !s.genuine.Load()`, `>= maxStrange`}},
		[]string{". -run TestRepliesThatAreNoS3s"},
		11,
	},
	{
		"a followed redirect counts",
		[]edit{{"internal/s3api/reply.go", `return reply.Request != nil && reply.Request.Response != nil`,
			`return false`}},
		[]string{". -run TestRepliesThatAreNoS3s"},
		11,
	},
	{
		"a page counts",
		[]edit{{"internal/s3api/errors.go", `case webPage(header) || redirected:`, `case redirected:`}},
		[]string{". -run TestRepliesThatAreNoS3s"},
		11,
	},
	{"any 409 means that another write is under way", []edit{{"internal/s3api/errors.go",
		`status == http.StatusConflict && concurrent[code]:`, `status == http.StatusConflict:`}}, []string{
		". -run TestS3AnswersBecomeTheErrorsOfStore", "./cmd/leasehold -run ^TestALockBelowAnother$",
	}, 10},
	{
		"an unknown host ends a wait at once",
		[]edit{{"campaign.go", `errors.Is(err, ErrUnsent) && (limited`,
			`errors.Is(err, ErrUnsent) && false && (limited`}},
		[]string{". -run TestAClientThatCannotSendYetIsWaitedFor"},
		13,
	},
	{
		"a wait for a client that cannot send ends before ctx",
		[]edit{{"campaign.go", `&& (limited ||`, `&& (limited && false ||`}},
		[]string{". -run TestAClientThatCannotSendYetIsWaitedFor"},
		13,
	},
	{
		"credentials that could not be had are missing",
		[]edit{{"internal/s3api/errors.go", `"give the machine a role", !missing`,
			`"give the machine a role", false && !missing`}},
		[]string{". -run TestAClientThatCannotSendYetIsWaitedFor"},
		13,
	},
	{
		"a name of the library's own is a lock's",
		[]edit{{"internal/storeapi/key.go", `	if strings.HasPrefix(key[strings`,
			`	if false && strings.HasPrefix(key[strings`}},
		[]string{". -run TestTheProbeOfETagsOverwritesNothing"},
		0,
	},
	{
		"the probe of ETags overwrites what is not its own",
		[]edit{{"internal/s3api/dialect.go", `if err == nil && !bytes.HasPrefix(`,
			`if err == nil && false && !bytes.HasPrefix(`}},
		[]string{". -run TestTheProbeOfETagsOverwritesNothing"},
		0,
	},
	{
		"a bucket in several regions is one store",
		[]edit{{"internal/s3api/bucket.go", `case strings.HasSuffix(b.Name, ".mrap"):`,
			`case strings.HasSuffix(b.Name, ".mraps"):`}},
		[]string{". -run TestArgumentsThatCannotWork"},
		1,
	},
	{
		"fenced: the end of ctx is not told",
		[]edit{{"fenced/write.go", `case ctx.Err() != nil && !errors.Is(err, ctx.Err()):`,
			`case ctx.Err() == nil && !errors.Is(err, err):`}},
		[]string{"./fenced -run TestFencedErrorsAfterTheEndOfCtx"},
		0,
	},
	{
		"azblobstore: a SAS that begins later is refused for good",
		[]edit{{"azblobstore/errors.go", `errCurrent == nil && now.Before(begins)`,
			`errCurrent == nil && now.Before(begins) && false`}},
		[]string{"./azblobstore -run TestErrorsSayWhatToDo"},
		0,
	},
	{
		"no checksum for a bucket with a default retention",
		[]edit{{"internal/s3api/object.go", `ContentMD5: o.MD5(body), `, ``}},
		[]string{". -run TestABucketWithADefaultRetention"},
		0,
	},
	{"fenced: no checksum for a bucket with a default retention",
		[]edit{{"fenced/s3parts.go", `		ContentMD5: b.MD5(body),
`, ``}}, []string{"./fenced -run TestFencedWritesToABucketWithADefaultRetention"}, 0},
	{
		"an MD5 for directory buckets",
		[]edit{{"internal/s3api/bucket.go", `strings.HasSuffix(b.Name, "--x-s3")`,
			`strings.HasSuffix(b.Name, "--x-s3s")`}},
		[]string{"./internal/s3api -run TestDirectoryBucketsGetNoMD5"},
		0,
	},
	{
		"304 to a write names a region",
		[]edit{{"internal/s3api/errors.go", `status == http.StatusNotModified) &&`, `status == 0) &&`}},
		[]string{". -run TestS3AnswersBecomeTheErrorsOfStore"},
		0,
	},
	{
		"a throttle that the SDK knows is final",
		[]edit{{"internal/s3api/errors.go", `return throttled || timedOut ||`, `return throttled && timedOut ||`}},
		[]string{". -run TestS3AnswersBecomeTheErrorsOfStore"},
		13,
	},
	{
		"a refusal whose reason is cut off is final",
		[]edit{{"internal/s3api/errors.go", `	case brokenOff(err): // the code`, `	case false: // the code`}},
		[]string{". -run TestRepliesThatAreNoS3s"},
		11,
	},
	{
		"this machine's faults are final for ever",
		[]edit{{"internal/storeapi/server.go", `case s.answered.Load():`, `case false:`}},
		[]string{". -run TestFaultsOfThisMachineMayPass"},
		0,
	},
	{
		"a dead connection is used again",
		[]edit{{"internal/s3api/bucket.go", `ok && b.server.Silent() {`, `ok && false {`}},
		[]string{"./internal/s3api -run TestASilentConnection"},
		0,
	},
	{"a connection is closed after each request, once one was not answered",
		[]edit{{"internal/storeapi/server.go", `	s.silent.Store(false)
`, ``}}, []string{"./internal/s3api -run TestASilentConnection"}, 0},
	{
		"Accept-Encoding is signed",
		[]edit{{"internal/s3api/bucket.go", `"Signing", middleware.After)`, `"Signing", middleware.Before)`}},
		[]string{"./internal/s3api -run TestAcceptEncodingIsNotSigned"},
		0,
	},
	{"answers may be compressed", []edit{{"internal/s3api/bucket.go",
		`	return stack.Finalize.Insert(header, "Signing", middleware.After)`, `	_ = header
	return nil`}}, []string{"./internal/s3api -run TestAcceptEncodingIsNotSigned"}, 0},
	{
		"a credential service's answer is the store's",
		[]edit{{"internal/s3api/errors.go", `ok && !credentials(err) {`, `ok {`}},
		[]string{". -run TestAnswersOfACredentialService"},
		0,
	},
	{
		"checks disturb one another",
		[]edit{{
			"internal/storecheck/probe.go",
			`return p.shared && !bytes.HasPrefix(body, p.body("")) &&
				bytes.HasPrefix(body, []byte(probeMark))`,
			`return false`,
		}},
		[]string{". -run TestCheckStoresAtTheSameTime"},
		0,
	},
	{
		"a check leaves new objects each time",
		[]edit{{"internal/storecheck/storecheck.go", `p.key, p.shared = shared, true`, `_ = shared`}},
		[]string{". -run TestCheckStoreWithCredentialsThatMayNotDelete"},
		0,
	},
	{
		"storetest waits for a store that refuses everything",
		[]edit{{"storetest/storetest.go", `tries > leastTries && progress.stopped()`, `tries > 20_000`}},
		[]string{"./storetest -run TestHopelessStoresFailSoon"},
		0,
	},
	{"an elector's lease runs a second function", []edit{{"term.go", `	if !over && !owned {`,
		`	owned = t.guarding()
	if !over && !owned {`}}, []string{". -run TestAnElectorsLeaseRefusesDo"}, 8},
	{
		"an abandoned lease is released when its function returns",
		[]edit{{"release.go", `	case announced && !asked:`, `	case false && announced && !asked:`}},
		[]string{worlds, search, ". -run TestAbandonInAFunction"},
		7,
	},
	{"a renewal of unknown outcome counts", []edit{{"renewal.go", `	return false, err // nothing is known yet`,
		`	t.mu.Lock()
	t.sent = sent
	t.mu.Unlock()
	return false, err // nothing is known yet`}}, []string{worlds}, 1},
	{"a valid term does not keep its own Lock out", []edit{{"term.go",
		`		return max(t.remaining(), 0) + t.lock.margin`, `		return 0`}}, []string{worlds}, 8},
	{"an abandoned term does not keep its own Lock out", []edit{{"term.go", `	case t.state == abandoned:
		return t.untilRunOut()`, `	case t.state == abandoned:
		return 0`}}, []string{worlds, search}, 7},
	{
		"an abandoned term keeps its own Lock out for the safety margin only",
		[]edit{{"term.go", `max(sent.Mono+t.lock.withDrift(t.stored.rec.TTL)-t.lock.clock.Now().Mono, 0)`,
			`max(t.endedMono+t.lock.margin-t.lock.clock.Now().Mono, 0*sent.Mono)`}},
		[]string{worlds, search},
		7,
	},
	{
		"an abandoned term keeps its own Lock out from its last answer only",
		[]edit{{"term.go", `	if n := len(t.unconfirmed); n > 0 {
		sent`, `	if n := len(t.unconfirmed); n > maxUnconfirmed {
		sent`}},
		[]string{". -run TestAnAbandonedLeaseAfterARenewal"}, 7,
	},
	{
		"an abandoned term is lost besides",
		[]edit{{"term.go", `		case toldEnd:
			return cause
`, `		case toldEnd && false:
			return cause
`}},
		[]string{". -run TestATermEndsOnce"}, 0,
	},
	{
		"a try answers for a holder that is gone",
		[]edit{{"campaign.go", `return (e.SeemsGone || e.creating()) &&`, `return e.creating() &&`}},
		[]string{". -run ^TestAVisitorOutlastsAHolderThatIsGone$"}, 13,
	},
	{
		"a try does not wait for a create",
		[]edit{{"campaign.go", `return (e.SeemsGone || e.creating()) &&`, `return e.SeemsGone &&`}},
		[]string{". -run ^TestAVisitorWaitsForACreate$"}, 10,
	},
	{
		"a try watches a holder that lives",
		[]edit{{"decide.go", `silent > r.TTL+o.skew`, `silent >= 0`}},
		[]string{". -run ^TestAVisitorWaitsForNobodyWhoLives$"}, 0,
	},
	{
		"a holder whose clock is ahead lives for ever",
		[]edit{{"decide.go", `silent < -o.skew || `, ``}},
		[]string{". -run ^TestAVisitorOutlastsAHolderThatIsGone$"}, 13,
	},
	{
		"a try takes a renewal for silence",
		[]edit{{"campaign.go", `now.Nonce != then.Nonce || now.Token != then.Token ||
			!now.ExpiresAt.Equal(then.ExpiresAt)`, `now.Token != then.Token`}},
		[]string{". -run ^TestAVisitorWaitsForNobodyWhoLives$"}, 0,
	},
	{
		"a try watches for as long as the store fails",
		[]edit{{"campaign.go", `storeapi.Permanent(err) || l.clock.Now().Mono >= end`,
			`storeapi.Permanent(err) && end > 0`}},
		[]string{". -run ^TestWhatAVisitorSees$"}, 27,
	},
	{
		"an heir shortens what others wait for",
		[]edit{{"term.go", `rec.TTL = max(r.ttl, former.ttl)`, `rec.TTL = r.ttl`}},
		[]string{". -run ^TestHeirsWithOtherTTLs$"}, 1,
	},
	{
		"an heir keeps the longer TTL for ever",
		[]edit{{"term.go", `if sent.Mono < former.until {`, `if former.until != 0 {`}},
		[]string{". -run ^TestHeirsWithOtherTTLs$"}, 0,
	},
	{
		"Resume takes the lock of a foreign client",
		[]edit{{"decide.go", `wait := o.foreign(r, s)`, `wait := min(o.foreign(r, s), 0)`}},
		[]string{". -run ^TestResumeLeavesAForeignClientsTermAlone$"}, 19,
	},
	{
		"a version that was out of sight is old",
		[]edit{{"observe.go", `v.readBefore-last.readAfter <= limit`, `v.readBefore-last.readAfter <= limit+1<<60`}},
		[]string{". -run ^TestAVersionThatWasOutOfSightIsNotOld$"}, 1,
	},
	{
		"an heir that releases is an administrator",
		[]edit{{"renewal.go", `rec.Holder != t.lock.identity || !renewed(t.stored.rec) &&`,
			`rec.Holder != t.lock.identity || false && !renewed(t.stored.rec) &&`}},
		[]string{". -run ^TestAnHeirOfTheSameNameReleases$"}, 0,
	},
	{
		"a Resume that may have landed says that nothing was written",
		[]edit{{"resume.go", `failure != nil && !storeapi.Refused(failure)`,
			`failure != nil && storeapi.Refused(nil)`}},
		[]string{". -run ^TestResumeThatLandedDoesNotSayThatNothingWasWritten$"}, 0,
	},
	{
		"who takes a lock again and again leaves no turns",
		[]edit{{"internal/turns/turns.go", `return max(t.freed+resting(poll)-now, 0)`, `return 0 * resting(poll)`}},
		[]string{". -run ^TestALoopLeavesTurnsToOthers$"}, 0,
	},
	{
		"who takes a lock now and then rests",
		[]edit{{"internal/turns/turns.go", `if !t.free || now-t.freed >= resting(poll) {`, `if t.began == 0 {`}},
		[]string{". -run ^TestALoopLeavesTurnsToOthers$"}, 0,
	},
	{
		"a free lock that cannot be taken is held",
		[]edit{{"campaign.go", `ok && held.Wait > 0 {`, `ok {`}},
		[]string{". -run ^TestALockThatIsFreeAndCannotBeTakenIsAFailure$"}, 14,
	},
	{
		"pauses grow up to the poll interval",
		[]edit{{"campaign.go", `limit := min(l.ttl, maxBackoff)`, `limit := min(max(l.ttl, l.poll), maxBackoff)`}},
		[]string{". -run ^TestPausesAfterFailuresGrowUpToTheTTL$"}, 27,
	},
	{
		"a release after a suspend pauses for a second",
		[]edit{{"release.go", `t.retry(ctx, remaining, `, `t.retry(ctx, t.validFor, `}},
		[]string{". -run ^TestAReleaseThatOutlastsASuspendBacksOff$"}, 14,
	},
	{
		"handover: a note of whoever can read the lock",
		[]edit{{"internal/handle/handle.go", `idOf(public) == termID && `, ``}},
		[]string{worlds, ". -run ^TestNotesThatProveNothing$"},
		1,
	},
	{
		"handover: a note that was changed on its way",
		[]edit{{"internal/handle/handle.go", `ed25519.Verify(public, text, signature)`, `text != nil`}},
		[]string{". -run ^TestNotesThatProveNothing$"},
		1,
	},
	{
		"handover: a note of another term than the one read last",
		[]edit{{"handover.go", `n.SignedBy(r.key, last.rec.TermID)`, `n.SignedBy(r.key, rec.TermID)`},
			{"handover.go", `	var rec Record
`, `	var rec Record
	_ = rec.UnmarshalJSON(n.Record)
	if last != nil {
		last = &version{exists: last.exists, rec: rec}
	}
`}},
		[]string{". -run ^TestNotesThatProveNothing$"},
		1,
	},
	{
		"handover: a note counts for a later version",
		[]edit{{"handover.go", `etag: n.ETag, rec: rec,`, `etag: last.etag, rec: rec,`}},
		[]string{worlds},
		1,
	},
	{
		"handover: a version that has come back is given away",
		[]edit{{"observe.go", `v.free && !revived`, `v.free`}},
		[]string{". -run ^TestANoteOfAnOldVersion$"},
		1,
	},
	{
		"handover: a note counts more than once",
		[]edit{{"handover.go", `r.offer.Swap(nil)`, `r.offer.Load()`}},
		[]string{". -run ^TestALateNoteCostsOneWrite$"},
		0,
	},
	{
		"handover: a release after an offer that was taken is a loss",
		[]edit{{"renewal.go", `t.offered || slices`, `slices`}},
		[]string{worlds, ". -run ^TestAReleaseAfterAnOfferThatWasTaken$"},
		0,
	},
	{
		"handover: an offer takes the time of the release",
		[]edit{{"release.go", `t.lock.attempt+t.lock.patience()`, `t.lock.attempt`}},
		[]string{". -run ^TestAReleaseHasItsTimeAfterAnOffer$"},
		0,
	},
	{
		"handover: an offer while a write may land",
		[]edit{{"handover.go", `if !settled || err != nil {`, `if err != nil || !settled && false {`}},
		[]string{". -run ^TestNoOfferWhileAWriteIsUnknown$"},
		0,
	},
	{
		"handover: whoever watches counts as a candidate",
		[]edit{{"internal/bell/bell.go", `func(w *Waiter) bool { return w.queue })`,
			`func(*Waiter) bool { return true })`}},
		[]string{". -run ^TestAnOfferToNobody$"},
		0,
	},
	{
		"handover: the payload of the version that was read goes on",
		[]edit{{"handover.go", `	rec.Key = r.key
`, `	rec.Key, rec.Payload = r.key, last.rec.Payload
`}},
		[]string{". -run ^TestALockIsPassedOn$"},
		0,
	},
	{
		"a handle needs no secret",
		[]edit{{"decide.go", `case r.TermID != handle.TermID(r.Key, s.handle.Secret):`, `case false:`}},
		[]string{". -run ^TestBadHandles$"},
		31,
	},
	{
		"a handle is good for a copy under another key",
		[]edit{{"internal/handle/handle.go", `[]byte(lock + "\n" + secret)`, `[]byte(secret)`}},
		[]string{". -run ^TestAHandleIsOfOneKey$", "./docs -run ^TestProtocolHandles$"},
		31,
	},
	{
		"a released term is resumed",
		[]edit{{"decide.go", `	case r.Released():
		return verdict{lost`, `	case false:
		return verdict{lost`}},
		[]string{worlds, ". -run ^TestBadHandles$|^TestATermThatEndsMeanwhile"},
		5,
	},
	{
		"a resumed lease counts from the answer",
		[]edit{{"acquire.go", `t = r.newTerm(written, sent, h.Secret)`,
			`t = r.newTerm(written, r.clock.Now(), h.Secret)`}},
		[]string{". -run ^TestATermGoesOnInAnotherProcess$"},
		1,
	},
	{
		"the renewal of a failed Resume is an own leftover",
		[]edit{{"acquire.go", `	rec.Nonce = r.process.NewNonce()`, `	r.sign(&rec)`}},
		[]string{". -run ^TestTheGhostOfAFailedResumeIsWaitedOut$"},
		1,
	},
	{
		"a former holder goes on with a term that was resumed",
		[]edit{{"renewal.go", `return sameWrite(w.rec, v.rec) })
	var`, `return sameWrite(w.rec, v.rec) || w.rec.TermID == v.rec.TermID })
	var`}},
		[]string{worlds, ". -run ^TestAProcessThatGoesOnLosesAResumedLease$"},
		31,
	},
	{
		"two Locks of a process reclaim from each other",
		[]edit{{"observe.go", `!r.process.Wrote(wire.Record(v.rec))`, `true`}},
		[]string{worlds, ". -run TestOneIdentityIsReclaimedByOneLock|TestAnAbandonedTermIsNotReclaimed"},
		8,
	},
	{
		"Run goes on though it may not write",
		[]edit{{"elector.go", `return storeapi.Permanent(err) && !worked`,
			`return storeapi.Permanent(err) && !worked && l.lastAnswered.Load() < int64(began)`}},
		[]string{". -run TestRunWithReadOnlyCredentials"},
		12,
	},
	{
		"an acquisition that came too late is left behind",
		[]edit{{"lock.go", `l.cutOff(ctx, err, l.giveBack(settling, stray))`, `l.cutOff(ctx, err, nil)`}},
		[]string{". -run TestTooLateAndCutOffLeavesNoStrayLock"},
		15,
	},
	{"a term whose callback returned early leaves no margin",
		[]edit{{"elector.go", `			lease.t.functionEnded(leftAlone)
`, ``}}, []string{". -run TestATermWhoseCallbackReturnedEarly"}, 8},
	{
		"a lost term whose function has returned keeps others out",
		[]edit{{"term.go", `		t.function = as`, `		t.function = leftAlone`}},
		[]string{". -run TestALostTermWhoseFunctionHasReturned"},
		8,
	},
	{
		"a Lock keeps the context of its last term",
		[]edit{{"term.go", `	t.ctx, t.cancel = nil, nil
`, ``}},
		[]string{". -run TestALockKeepsNothing", ". -run TestALockDoesNotKeepALease"}, 0,
	},
	{"stopped without started", []edit{{"elector.go", `		if e.cb.OnNewLeader != nil {
			e.calling("OnNewLeader", func() { e.cb.OnNewLeader(lease.Record()) })
		}
		started = true`, `		started = true
		if e.cb.OnNewLeader != nil {
			e.calling("OnNewLeader", func() { e.cb.OnNewLeader(lease.Record()) })
		}`}}, []string{". -run TestNeverStoppedWithoutStarted"}, 7},
	{
		"never stopped",
		[]edit{{"elector.go", `if started && e.cb.OnStoppedLeading != nil {`,
			`if started && e.cb.OnStoppedLeading != nil && term == nil {`}},
		[]string{worlds},
		7,
	},

	// Fenced writes.
	{
		"fenced: a higher token overwritten",
		[]edit{{"fenced/write.go", `case now.token > w.token:`, `case now.token > w.token && false:`}},
		[]string{fencedWorlds},
		17,
	},
	{
		"fenced: written without a condition",
		[]edit{{"fenced/s3.go", `ifMatch: &old.ID}`, `ifMatch: nil}`}},
		[]string{fencedWorlds, "./itest -run ^TestFencedStore$"},
		17,
	},
	{
		"fenced: created without a condition",
		[]edit{{"fenced/s3.go", `w.ifMatch, w.ifNoneMatch = nil, aws.String("*")`, `w.ifMatch = nil`}},
		[]string{fencedWorlds},
		17,
	},
	{
		"fenced: no padding",
		[]edit{{"fenced/s3.go", `if (b.mode == PaddedBodies || w.meta`, `if (w.meta`}},
		[]string{fencedWorlds},
		17,
	},
	{
		"fenced: all tombstones alike",
		[]edit{{"fenced/s3.go", `(b.mode == PaddedBodies || w.meta[metaGone] != "")`,
			`b.mode == PaddedBodies`}},
		[]string{fencedWorlds},
		17,
	},
	{
		"fenced: seals only what exists",
		[]edit{{"fenced/store.go", `if old.ID != "" && old.token == token {`,
			`if old.ID == "" || old.token == token {`}},
		[]string{fencedWorlds},
		17,
	},
	{
		"fenced: the token and the ETag of one HEAD taken for one version",
		[]edit{{"fenced/s3.go", `if old.ID != "" && next.Settings == nil {`, `if false {`}},
		[]string{fencedWorlds},
		17,
	},
	{
		"fenced: two reads compared by ETag alone",
		[]edit{{"fenced/write.go", `return v.ID == w.ID && v.Metadata[metaNonce] == w.Metadata[metaNonce]`,
			`return v.ID == w.ID`}},
		[]string{fencedWorlds},
		17,
	},
	{"fenced: seals what it read, not what it looked at", []edit{{"fenced/store.go", `		if !old.same(v) {
			return fmt.Errorf("sealing %q: %w", key, storeapi.ErrConflict)
		}
`, `		old.ID = v.ID
`}}, []string{fencedWorlds}, 17},
	{"fenced: seal keeps the old token", []edit{{"fenced/store.go", `		v.Metadata = users(v.Metadata)
`, `		v.Metadata, w = users(v.Metadata), &write{w.key, max(old.token, 1), w.nonce}
`}}, []string{fencedWorlds}, 17},
	{"fenced: a refusal taken as done", []edit{{"fenced/write.go", `		switch {
		case ctx.Err() != nil && !errors`, `		switch {
		case errors.Is(err, leasehold.ErrPreconditionFailed):
			return nil
		case ctx.Err() != nil && !errors`}}, []string{fencedWorlds}, 17},
	{
		"fenced: memory without a condition",
		[]edit{{"fenced/mem.go", `if m.objects[key].ID != old.ID {`, `if false {`}},
		[]string{"./fenced -run TestFencedStoreKeepsItsPromises"},
		17,
	},
	{
		"fenced: own landed write not recognised",
		[]edit{{"fenced/write.go", `case v.ID != "" && now.nonce == w.nonce:`, `case false:`}},
		[]string{"./fenced -run TestFenced"},
		17,
	},
	{
		"fenced: padding shown to readers",
		[]edit{{"fenced/s3padding.go", `pad: white(nonce), doing`, `pad: nil, doing`}},
		[]string{"./fenced -run TestFencedWrites"},
		17,
	},
	{
		"fenced: no length taken for empty",
		[]edit{{"fenced/s3.go", `Size: -1, ContentType`, `Size: 0, ContentType`}},
		[]string{"./fenced -run TestFencedBodiesOfUnknownLength"},
		17,
	},
	{
		"fenced: cut bodies taken for whole",
		[]edit{{"fenced/body.go", `err == io.EOF && (b.size < 0 || b.got == b.size):`, `err == io.EOF:`}},
		[]string{"./fenced -run TestFencedStoreAmongForeignAnswers"},
		17,
	},
	{
		"fenced: padding cut unseen",
		[]edit{{"fenced/s3padding.go", `bytes.Equal(ahead, u.pad):`, `len(ahead) <= len(u.pad):`}},
		[]string{"./fenced -run TestFencedPaddingIsOnlyCut"},
		17,
	},
	{
		"fenced: seal cuts without a look",
		[]edit{{"fenced/store.go", `return s.send(ctx, w, old, v, body)`,
			`return s.send(ctx, w, old, v, io.LimitReader(body, v.Size))`}},
		[]string{"./fenced -run TestFencedPaddingIsOnlyCut"},
		17,
	},
	{
		"fenced: a part taken for the whole",
		[]edit{{"internal/s3api/reply.go", `case !slices.Contains(statuses, reply.StatusCode):`,
			`case !slices.Contains(append(statuses, 206), reply.StatusCode):`}},
		[]string{"./fenced -run TestFencedStoreAmongForeignAnswers"},
		11,
	},
	{"fenced: a completion without ETag counts", []edit{{"fenced/s3parts.go",
		`	return b.Genuine(s3api.Put, w.key, out.ETag, out.ResultMetadata)
`, `	_ = out
	return nil
`}}, []string{"./fenced -run TestFencedStoreAmongForeignAnswers"}, 11},
	{"fenced: an answer without ETag means an unsafe store",
		[]edit{{"internal/s3api/reply.go", `		return b.NotS3(why, op, key)`,
			`		return fmt.Errorf("%w: %w", storeapi.ErrUnsafeStore, b.NotS3(why, op, key))`},
			{"internal/s3api/reply.go", `	smithyhttp "github.com/aws/smithy-go/transport/http"
`, `	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold-go/leasehold/internal/storeapi"
`}}, []string{"./fenced -run TestFencedStoreAmongForeignAnswers"}, 11},
	{"fenced: redirects followed", []edit{{"internal/s3api/reply.go", `	case followed(reply):
`, `	case false:
`}}, []string{"./fenced -run TestFencedStoreAmongForeignAnswers"}, 11},
	{
		"fenced: If-Match of large writes not probed",
		[]edit{{"fenced/s3check.go", `{{"If-Match", &former, nil}, {"If-None-Match"`, `{{"If-None-Match"`}},
		[]string{"./fenced -run TestFencedLargeWritesNeedBoth"},
		17,
	},
	{
		"fenced: If-None-Match of large writes not probed",
		[]edit{{"fenced/s3check.go", `, {"If-None-Match", nil, aws.String("*")}}`, `}`}},
		[]string{"./fenced -run TestFencedLargeWritesNeedBoth"},
		17,
	},
	{
		"fenced: metadata of uploads in parts not read back",
		[]edit{{"fenced/s3check.go", `now, err := lookFor(w, "HEAD, after an upload in parts,", c.look)`,
			`_, now, err := w, Version{}, error(nil)`}},
		[]string{"./fenced -run TestFencedLargeWritesNeedTheirMetadata"},
		17,
	},
	{
		"fenced: metadata not read back by Head",
		[]edit{{"fenced/check.go", `			err = shows(method, v, w)`, `			err = nil`}},
		[]string{"./fenced -run TestFencedStoreNeedsItsMetadata", "./azblobstore -run TestFencedStoreNeedsItsMetadata"},
		17,
	},
	{
		"fenced: metadata not read back by Get",
		[]edit{{"fenced/check.go", `	return v, shows("Get", v, w)`, `	return v, nil`}},
		[]string{"./fenced -run TestFencedStoreNeedsItsMetadata"},
		17,
	},
	{
		"fenced: a server whose conditions are known is not asked for its metadata",
		[]edit{{"fenced/check.go", `		_, err := t.look(first, body)
		return err`, `		return nil`}},
		[]string{"./azblobstore -run TestFencedStoreNeedsItsMetadata",
			"./gcsstore -run TestFencedStoreNeedsItsMetadata"},
		17,
	},
	{
		"fenced: a token that has gone alone not noticed",
		[]edit{{"fenced/check.go", `	case token != "" && nonce == w.nonce:`, `	case nonce == w.nonce:`}},
		[]string{"./fenced -run TestFencedStoreChecksEveryBackend"},
		17,
	},
	{
		"fenced: the conditions of a Backend not tried",
		[]edit{{"fenced/check.go", `	case errors.Is(err, leasehold.ErrPreconditionFailed):
		return nil`, `	case true:
		return nil`}, {"fenced/check.go", `	case err == nil:
		return unsafeServer(ignored)`, `	case false:
		return unsafeServer(ignored)`}},
		[]string{"./fenced -run TestFencedStoreChecksEveryBackend", "./fenced -run TestFencedStoreChecksTheServer"},
		17,
	},
	{
		"fenced: SetMetadata not tried",
		[]edit{{"fenced/check.go", `	if b, ok := t.backend.(MetadataSetter); ok {`,
			`	if b, ok := t.backend.(MetadataSetter); ok && false {`}},
		[]string{"./fenced -run TestFencedStoreChecksEveryBackend"},
		17,
	},
	{
		"fenced: large writes without a condition",
		[]edit{{"fenced/s3parts.go", `UploadId: id, IfMatch: w.ifMatch, IfNoneMatch: w.ifNoneMatch,`, `UploadId: id,`}},
		[]string{"./fenced -run TestFencedLargeWrite"},
		17,
	},
	{"fenced: a body that has stopped is waited for", []edit{{"fenced/body.go", `	b.idle.Reset(patience)
`, `	b.idle.Stop()
`}}, []string{"./fenced -run TestFencedRequestsHaveTimeLimits"}, 17},
	{
		"fenced: requests without a time limit",
		[]edit{{"fenced/s3.go", `return context.WithTimeout(ctx, b.timeout+time.Duration(size)*time.Second/leastRate)`,
			`return context.WithCancel(ctx)`}},
		[]string{"./fenced -run TestFencedRequestsHaveTimeLimits"},
		17,
	},
	{"fenced: the rest of a body not drained", []edit{{"fenced/body.go",
		`		_, _ = io.CopyN(io.Discard, b.raw, drainSize)
`, ``}}, []string{"./fenced -run TestFencedGetsReuseConnections"}, 17},
	{"fenced: tokens that no lock issues read", []edit{{"fenced/write.go", `token == 0 || token > storeapi.MaxToken {
		return c`, `token == 0 {
		return c`}}, []string{"./fenced -run TestFencedTokensThatNoLockIssues"}, 17},
	{
		"fenced: tokens that no lock issues written",
		[]edit{{"fenced/write.go", `	if token == 0 || token > storeapi.MaxToken {`, `	if token == 0 {`}},
		[]string{"./fenced -run TestFencedTokensThatNoLockIssues"},
		17,
	},
	{
		"fenced: tags lost by a seal",
		[]edit{{"fenced/s3settings.go", `case aws.ToInt32(out.TagCount) > 0:`, `case false:`}},
		[]string{"./fenced -run TestFencedSealLosesNothing"},
		17,
	},
	{"fenced: compressed bodies padded", []edit{{"fenced/s3settings.go", `		if b.mode == PaddedBodies {
			return s`, `		if false {
			return s`}}, []string{"./fenced -run TestFencedPaddingOfEncodedBodies"}, 17},
	{"fenced: options share the caller's map", []edit{{"fenced/store.go", `	m = maps.Clone(m)
`, `	_ = maps.Clone(m)
`}}, []string{"./fenced -run TestFencedOptionsAreCloned"}, 17},
	{
		"fencehttp: 200 for a write that did not run",
		[]edit{{
			"fencehttp/fencehttp.go",
			`http.Error(w, "not carried out: "+err.Error()+"; try again",
				http.StatusServiceUnavailable)`,
			``,
		}},
		[]string{"./fencehttp -run TestAWriteThatHasNotRunIs503"},
		23,
	},
	{
		"fencehttp: lower tokens not interrupted",
		[]edit{{"fencehttp/fencehttp.go", `lower.interrupt(highest)`, `_ = lower`}},
		[]string{"./fencehttp -run TestAStoppedUpload"},
		23,
	},
	{
		"fencehttp: a blocked read not interrupted",
		[]edit{{"fencehttp/fencehttp.go", `_ = conn.SetReadDeadline(time.Unix(1, 0))`, ``}},
		[]string{"./fencehttp -run TestAStoppedUpload|TestAHijackedConnection"},
		23,
	},
	{"fencehttp: interrupted without a cause", []edit{{"fencehttp/fencehttp.go",
		`cancel(&leasehold.FencedError{Key: name, Token: token, Highest: highest})`, `_ = leasehold.ErrFenced
	cancel(nil)`}}, []string{"./fencehttp -run TestAStoppedUpload"}, 23},
	{"fencehttp: let in beside a lower token when the wait is over",
		[]edit{{"fencehttp/fencehttp.go", `return 0, errBusy`, `g.inside[v] = false
			return g.highest, nil`}}, []string{"./fencehttp -run TestTheWaitIsBounded"}, 23},
	{
		"fencehttp: no bound of the wait",
		[]edit{{"fencehttp/fencehttp.go", `context.WithTimeout(ctx, f.wait)`, `context.WithCancel(ctx)`}},
		[]string{"./fencehttp -run TestMarksThatFail|TestTheWaitIsBounded"},
		23,
	},
	{"fencehttp: a gate for each method", []edit{{"fencehttp/fencehttp.go", `g := f.of(name)
		defer f.leave(name)`, `g := f.of(r.Method + name)
		defer f.leave(r.Method + name)`}}, []string{"./fencehttp -run TestRoutesOfOneFenceWaitForEachOther"}, 23},
	{
		"fencehttp: tokens that no lock issues",
		[]edit{{"fencehttp/fencehttp.go", `token == 0 || token > leasehold.MaxToken || len(values) > 1`,
			`token == 0 || len(values) > 1`}},
		[]string{"./fencehttp -run TestStatus"},
		23,
	},
	{
		"fencehttp: marks tried without end",
		[]edit{{"fencehttp/fencehttp.go", `case try == raiseTries:`, `case try == 3*raiseTries:`}},
		[]string{"./fencehttp -run TestStoreMarksEnd"},
		23,
	},
	{
		"leaderhttp: a release told before it has landed",
		[]edit{{"leaderhttp/leaderhttp.go", `	p.replace(p.own)
}`, `	p.replace(p.own)
	context.AfterFunc(ctx, p.stopped)
}`}},
		[]string{"./leaderhttp -run TestTheAnswersOfAPeer"},
		21,
	},
	{
		"leaderhttp: all candidates read at once",
		[]edit{{"leaderhttp/wait.go", `pause := t.spacing() * (1<<place - 1)`,
			`pause := t.spacing() * (1<<place - 1) * 0`}},
		[]string{"./leaderhttp -run TestTheReadsOfAHandOver"},
		21,
	},
	{
		"leaderhttp: a read after each failure",
		[]edit{{"leaderhttp/wait.go", `if failures == 0 && clock`, `if clock`}},
		[]string{"./leaderhttp -run TestWhateverALeaderAnswers"},
		21,
	},
	{
		"leaderhttp: redirections followed",
		[]edit{{"leaderhttp/leaderhttp.go", `return http.ErrUseLastResponse`, `return nil`}},
		[]string{"./leaderhttp -run TestWhateverALeaderAnswers"},
		21,
	},
	{
		"leaderhttp: any host asked",
		[]edit{{"leaderhttp/leaderhttp.go", `case !p.allowed(u.Host):`, `case p.allowed == nil:`}},
		[]string{"./leaderhttp -run TestURLsThatCannotBeUsed"},
		21,
	},
	{"leaderhttp: an answer counts whatever its status is", []edit{{"leaderhttp/wait.go",
		`case res.StatusCode != http.StatusOK:`, `case res.StatusCode < http.StatusOK:`}},
		[]string{"./leaderhttp -run ^TestWhateverALeaderAnswers$"}, 21},
	{"leaderhttp: the follower of its own URL goes on", []edit{{"leaderhttp/wait.go",
		`if q.Get("from") == p.id {`, `if q.Get("from") == "" {`}},
		[]string{"./leaderhttp -run ^TestAURLOfTheProcessItself$"}, 21},
	{"leaderhttp: a URL of any scheme is asked", []edit{{"leaderhttp/leaderhttp.go",
		`u.Scheme != "http" && u.Scheme != "https"`, `u.Scheme == ""`}},
		[]string{"./leaderhttp -run ^TestURLsThatCannotBeUsed$"}, 21},
	{"leaderhttp: a read brings back an earlier term", []edit{{"leaderhttp/leaderhttp.go",
		`!inOrder && p.last != nil && r.Token < p.last.rec.Token:`, `!inOrder && r.Token == 0:`}},
		[]string{"./leaderhttp -run ^TestAReadThatIsOvertaken$"}, 0},
	{"leaderhttp: a shutdown hides the end of the term", []edit{{"leaderhttp/wait.go",
		`	if len(c.line) > 0 {`, `	if len(c.line) > 1 {`}},
		[]string{"./leaderhttp -run ^TestCloseAfterTheEndOfATerm$"}, 0},
	{
		"leaderhttp: a shutdown held up by those who wait",
		[]edit{{"leaderhttp/wait.go", `	case <-p.closing.Done():
`, ``}},
		[]string{"./leaderhttp -run TestAServerWithTimeOuts|TestClose"},
		0,
	},
	{
		"leaderhttp: run in another term than the one it was sent for",
		[]edit{{"leaderhttp/forward.go", `marks[0] == p.name(own)`, `marks[0] != ""`}},
		[]string{"./leaderhttp -run TestTheMarkOfForwardedRequests"},
		35,
	},
	{
		"leaderhttp: a forwarded request forwarded again",
		[]edit{{"leaderhttp/forward.go", `marks, ok := r.Header[mark]; ok {`,
			`marks, ok := r.Header[mark]; ok && own.leads() {`}},
		[]string{"./leaderhttp -run TestTheMarkOfForwardedRequests"},
		35,
	},
	{
		"leaderhttp: a request repeated by http.Transport",
		[]edit{{"leaderhttp/forward.go", `				pr.Out.Body = pr.In.Body
`, `				pr.Out.Body = nil
`}},
		[]string{"./leaderhttp -run TestNoRequestRunsTwice"},
		35,
	},
	{
		"leaderhttp: any failure taken for a refusal",
		[]edit{{"leaderhttp/forward.go", `	case !unsent:`, `	case !unsent && failed == nil:`}},
		[]string{"./leaderhttp -run TestForwardOverABadNetwork"},
		35,
	},
	{
		"leaderhttp: what is left of a body sent to the next leader",
		[]edit{{"leaderhttp/forward.go", `case kept.spoilt():`, `case false:`}},
		[]string{"./leaderhttp -run TestARequestGoesToTheNextLeader"},
		35,
	},
	{
		"leaderhttp: a request outlives the lease",
		[]edit{{"leaderhttp/forward.go",
			`	defer context.AfterFunc(t.leading, func() { cancel(context.Cause(t.leading)) })()
`, ``}},
		[]string{"./leaderhttp -run TestTheContextOfARequestEndsWithTheLease"},
		35,
	},
	{
		"leaderhttp: each request reads the record",
		[]edit{{"leaderhttp/await.go", `min(2*p.pause, lookAgain)`, `0`}},
		[]string{"./leaderhttp -run TestRequestsWhileNobodyLeads"},
		0,
	},
	{
		"leaderhttp: requests wait for a leader that hangs",
		[]edit{{"leaderhttp/forward.go", `time.AfterFunc(maxOver, cancel)`, `time.AfterFunc(100*maxOver, cancel)`}},
		[]string{"./leaderhttp -run TestALeaderThatHangs"},
		0,
	},
	{
		"leaderhttp: a request that is carried out still waits",
		[]edit{{"leaderhttp/forward.go", `if v.leave(); !pass`, `if !pass`}},
		[]string{"./leaderhttp -run ^TestARequestThatHasWaited$"}, 0,
	},
	{
		"leaderhttp: a hand-over believed without a read",
		[]edit{{"leaderhttp/handover.go", `err == nil && own.precedes(rec) {`,
			`err == nil {`}},
		[]string{"./leaderhttp -run ^TestForgedTaken"}, 0,
	},
	{
		"leaderhttp: a read for each who says that the lock was taken",
		[]edit{{"leaderhttp/handover.go", `for range maxLooks {`,
			`for range 1000 * maxLooks {`}},
		[]string{"./leaderhttp -run ^TestForgedTaken"}, 0,
	},
	{
		"leaderhttp: those who lie about a hand-over hide the truth",
		[]edit{{"leaderhttp/handover.go", `Sleep(ctx, pause)`,
			`Sleep(ctx, 0*pause)`}},
		[]string{"./leaderhttp -run ^TestForgedTaken"}, 0,
	},
	{
		"leaderhttp: whoever takes no offer gets the next one",
		[]edit{{"leaderhttp/candidates.go", `p.shunned[c.name], p.inVain = now, now`,
			`p.inVain = now`}},
		[]string{"./leaderhttp -run ^TestAnOfferThatIsLost|^TestALiar"}, 0,
	},
	{
		"leaderhttp: each new name makes the leader step down",
		[]edit{{"leaderhttp/candidates.go", ` && now.Sub(p.inVain) >= shunTime`,
			``}},
		[]string{"./leaderhttp -run ^TestALiar"}, 0,
	},
	{
		"leaderhttp: the oldest process leads next",
		[]edit{{"leaderhttp/candidates.go", `b.born.Compare(a.born)`,
			`a.born.Compare(b.born)`}},
		[]string{"./leaderhttp -run ^TestRollingRestart"}, 0,
	},
	{
		"leaderhttp: priorities are ignored",
		[]edit{{"leaderhttp/candidates.go", `			cmp.Compare(b.priority, a.priority),
`,
			``}},
		[]string{"./leaderhttp -run ^TestWhoLeadsNext"}, 0,
	},
	{
		"leaderhttp: a process that has only just come is offered the lock",
		[]edit{{"leaderhttp/candidates.go", `now.Sub(c.born) <= settled`,
			`now.Sub(c.born) < 0`}},
		[]string{"./leaderhttp -run ^TestTheYoungestMay"}, 0,
	},
	{
		"leaderhttp: HandOver chooses nobody",
		[]edit{{"leaderhttp/candidates.go",
			`before(chosen != "" && a.name == chosen, chosen != "" && b.name == chosen),`, ``}},
		[]string{"./leaderhttp -run ^TestANamed|^TestWhoLeads"}, 0,
	},
	{
		"leaderhttp: a note for those who do not know what it is",
		[]edit{{"leaderhttp/candidates.go", `return c.able && now`,
			`return now`}},
		[]string{"./leaderhttp -run ^TestEarlier"}, 0,
	},
	{
		"leaderhttp: a place in line that the heir has had",
		[]edit{{"leaderhttp/wait.go", `place, note = 1, nil`,
			`place, note = 0, nil`}},
		[]string{"./leaderhttp -run ^TestTheAnswersOfAPeer"}, 0,
	},
	{
		"leaderhttp: no note of a release",
		[]edit{{"leaderhttp/wait.go", `			got.Note = note
`,
			`			_ = note
`}},
		[]string{"./leaderhttp -run ^TestAnOfferThatIsLost"}, 0,
	},
	{
		"leaderhttp: whoever does not campaign is offered the lock",
		[]edit{{"leaderhttp/leaderhttp.go", `	switch {
	case inOrder:
`,
			`	switch {
	case true:
`}},
		[]string{"./leaderhttp -run ^TestWhoDoesNotCampaign"}, 0,
	},
	{
		"leaderhttp: a process forwards to itself",
		[]edit{{"leaderhttp/leaderhttp.go", `ours: wrote(p.lock, r)}`,
			`ours: false}`}},
		[]string{"./leaderhttp -run ^TestAReadOfTheOwnTerm"}, 0,
	},
	{
		"leaderhttp: a larger body is kept",
		[]edit{{"leaderhttp/body.go", `n <= maxKept`,
			`n <= maxKept+1`}},
		[]string{"./leaderhttp -run ^TestARequestGoes"}, 0,
	},
	{
		"leaderhttp: a thousand and one requests wait",
		[]edit{{"leaderhttp/await.go", `p.inside >= maxVisitors`,
			`p.inside > maxVisitors`}},
		[]string{"./leaderhttp -run ^TestAThousand"}, 0,
	},
	{
		"leaderhttp: a leader that does not know of its term yet is left",
		[]edit{{"leaderhttp/await.go", `v.vain, v.pause = t, firstLook`,
			`v.vain, v.pause = t, 0`}},
		[]string{"./leaderhttp -run ^TestALeaderThatDoesNotKnow"}, 0,
	},
	{
		"leaderhttp: strangers learn which term a process follows",
		[]edit{{"leaderhttp/wait.go", ` && p.asked(r) == p.name(last)`,
			``}},
		[]string{"./leaderhttp -run ^TestAURLOfAll"}, 0,
	},
	{
		"leaderhttp: a leader steps down for an equal",
		[]edit{{"leaderhttp/candidates.go", `c.priority <= p.priority`,
			`c.priority < p.priority`}},
		[]string{"./leaderhttp -run ^TestPreemption"}, 0,
	},
	{
		"leaderhttp: Redirect names the former leader",
		[]edit{{"leaderhttp/redirect.go", `	if p.refresh(r.Context(), t); t.over`,
			`	if t.over`}},
		[]string{"./leaderhttp -run ^TestRedirectOf"}, 0,
	},
	{
		"leaderhttp: a handler with full duplex leaves a body unread",
		[]edit{{"leaderhttp/forward.go", `	body := kept.reader()
`,
			`	body := kept.reader()
	_ = http.NewResponseController(w).EnableFullDuplex()
`}},
		[]string{"./leaderhttp -run ^TestARequestThatCannot"}, 0,
	},
	{
		"leaderhttp: Redirect decodes the path",
		[]edit{{"leaderhttp/redirect.go", `strings.TrimPrefix(r.URL.EscapedPath(), "/")`,
			`strings.TrimPrefix(r.URL.Path, "/")`}},
		[]string{"./leaderhttp -run ^TestRedirect$"}, 0,
	},

	// Promises that no check proved.
	{"stopped twice", []edit{{
		"elector.go",
		`e.calling("OnStoppedLeading", func() { e.cb.OnStoppedLeading(context.Cause(lease.ctx)) })`,
		`e.calling("OnStoppedLeading", func() { e.cb.OnStoppedLeading(context.Cause(lease.ctx)) })
			e.calling("OnStoppedLeading", func() { e.cb.OnStoppedLeading(context.Cause(lease.ctx)) })`,
	}}, []string{worlds}, 7},
	{
		"polls four times as often",
		[]edit{{"campaign.go", `min(l.untilNextRead(), held.Wait+spread)`,
			`min(l.untilNextRead()/4, held.Wait+spread)`}},
		[]string{worlds, ". -run TestWaitingCandidateReadsTwicePerRenewal"},
		14,
	},
	{
		"polls twice as often",
		[]edit{{"campaign.go", `min(l.untilNextRead(), held.Wait+spread)`,
			`min(l.untilNextRead()/2, held.Wait+spread)`}},
		[]string{worlds},
		14,
	},
	{
		"renews twice as often",
		[]edit{{"renewal.go", `float64(t.lock.renew) * (1`, `float64(t.lock.renew/2) * (1`}},
		[]string{worlds},
		14,
	},
	{
		"Watch reads twice as often",
		[]edit{{"inspect.go", `			wait := clock.Jitter(l.clock, l.poll)`,
			`			wait := clock.Jitter(l.clock, l.poll/2)`}},
		[]string{worlds},
		14,
	},
	{
		"no backoff while the store fails",
		[]edit{{"campaign.go", `wait = l.backoff(&failures)`, `wait = min(l.backoff(&failures), l.attempt/100)`}},
		[]string{worlds, ". -run TestAcquireBacksOffWhileTheStoreFails"},
		14,
	},
	{
		"an attempt as long as the TTL allows",
		[]edit{{"internal/clock/clock.go", `min(max((ttl-margin-renew)/3, time.Millisecond), maxAttempt)`,
			`max((ttl-margin-renew)/3, time.Millisecond)`}},
		[]string{worlds, ". -run TestARequestWithoutAnAnswerAtALongTTL"},
		27,
	},
	{
		"tables have a time of their own for a request",
		[]edit{{"internal/membership/group.go", `clock.Attempt(s.TTL, s.Margin, s.renew())`,
			`clock.Attempt(s.TTL, s.TTL/5, s.renew())`}},
		[]string{"./locktable -run ^TestARequestHasTheTimeThatALockGivesIt$",
			"./internal/membership -run ^TestAGroupsRequestsHaveTheTimeOfALocks$"},
		27,
	},
	{
		"the first pause of a write as long as the TTL allows",
		[]edit{{"renewal.go", `min(t.lock.attempt/8, maxFirstPause)`, `t.lock.attempt / 8`}},
		[]string{". -run TestPausesAtALongTTL"},
		27,
	},
	{
		"the pause after a conflict as long as the TTL allows",
		[]edit{{"request.go", `min(r.attempt/16, maxConflictPause)`, `r.attempt/16`}},
		[]string{". -run TestPausesAtALongTTL"},
		27,
	},
	{
		"candidates back off for as long as the TTL allows",
		[]edit{{"campaign.go", `limit := min(l.ttl, maxBackoff)`, `limit := l.ttl`}},
		[]string{worlds, ". -run TestAfterAnOutageOfAnHourAtALongTTL", "./itest -run TestFaultsAtALongTTL"},
		27,
	},
	{
		"writes back off for as long as the TTL allows",
		[]edit{{"renewal.go", `min(t.lock.renew/2, remaining/4, maxBackoff)`, `min(t.lock.renew/2, remaining/4)`}},
		[]string{". -run TestAfterAnOutageOfAnHourAtALongTTL", ". -run TestRenewalsAfterAnOutageAtALongTTL"},
		27,
	},
	{
		"who backs off is not woken",
		[]edit{{"campaign.go", `wait = l.backoff(&failures)`, `wait, woken = l.backoff(&failures), nil`}},
		[]string{worlds, ". -run TestWakeEndsABackoff"},
		21,
	},
	{
		"Watch is not woken while it backs off",
		[]edit{{"inspect.go", `wait = l.backoff(&failures)`, `wait, woken = l.backoff(&failures), nil`}},
		[]string{". -run TestWakeEndsABackoff"},
		21,
	},
	{
		"writes outlast ctx by twice as long",
		[]edit{{"request.go", `time.AfterFunc(d, cancel)`, `time.AfterFunc(2*d, cancel)`}},
		[]string{". -run TestTheEndOfCtxEndsACallWithinAnAttempt"},
		27,
	},
	{
		"a release waits for a renewal whatever ctx says",
		[]edit{{"release.go", `t.writing.Lock(settling)`, `t.writing.Lock(context.WithoutCancel(ctx))`}},
		[]string{". -run TestTheEndOfCtxEndsACallWithinAnAttempt"},
		27,
	},
	{
		"no time to settle an acquisition whose answer is lost",
		[]edit{{"acquire.go", `outlast(ctx, r.attempt/2)`, `outlast(ctx, r.attempt)`}},
		[]string{". -run TestAnAcquisitionWithoutAnAnswerIsReleasedWithinAnAttempt"},
		15,
	},
	{
		"Do and Run release for as long as the lease would have lasted",
		[]edit{{"lease.go", `outlast(caller, maxParting)`, `context.WithCancel(context.WithoutCancel(caller))`}},
		[]string{". -run TestDoAndRunEndInAnOutage"},
		27,
	},
	{
		"a member as long as the object allows",
		[]edit{{"internal/wire/record.go", `size > m.limit`, `size > MaxSize`}},
		[]string{". -run TestMembersThatAreTooLong"},
		16,
	},
	{
		"a member counted as it was read",
		[]edit{{"internal/wire/record.go", `return len(member) + 3*(`, `return len(member) + 0*(`}},
		[]string{". -run TestMembersThatAreTooLong"},
		16,
	},
	{
		"durations may overflow",
		[]edit{{"options.go", `if set.d > maxDuration {`, `if set.d > 10*maxDuration {`}},
		[]string{". -run TestDurationsOverTenYears"}, 0,
	},
	{
		"the longest TTL is written and not read",
		[]edit{{"internal/wire/record.go", `seconds(math.Nextafter(MaxTTL.Seconds(), math.MaxFloat64))`,
			`seconds(MaxTTL.Seconds())`}},
		[]string{". -run TestTheLongestTTLs"},
		0,
	},
	{
		"a wall clock before 1970 in records",
		[]edit{{"internal/clock/clock.go", `max(r.Wall.Microseconds(), 1)`, `r.Wall.Microseconds()`}},
		[]string{". -run TestWallClocksBefore1970"},
		13,
	},
	{
		"nil pointers are stores",
		[]edit{{"store.go", `v.Kind() == reflect.Pointer && v.IsNil()`, `v.Kind() == reflect.Pointer && false`}},
		[]string{". -run TestStoresThatAreNilPointers"},
		12,
	},
	{
		"each failed renewal is logged",
		[]edit{{"internal/warnlog/warnlog.go", `f.n == 1 || now-f.logged >= interval`, `true`}},
		[]string{". -run TestRenewalsThatFailAreTold"},
		0,
	},
	{
		"only the first of many failed renewals is logged",
		[]edit{{"internal/warnlog/warnlog.go", `f.n == 1 || now-f.logged >= interval`, `f.n == 1`}},
		[]string{". -run TestRenewalsThatFailAreTold"},
		12,
	},
	{
		"the end of an outage is not logged",
		[]edit{{"internal/warnlog/warnlog.go", `return n, n > 0`, `return n, false`}},
		[]string{". -run TestRenewalsThatFailAreTold"},
		12,
	},
	{"each read is sent twice", []edit{{"request.go", `	obj, err := r.store.Get(ctx, r.key)
`, `	_, _ = r.store.Get(ctx, r.key)
	obj, err := r.store.Get(ctx, r.key)
`}}, []string{worlds, "./itest -run TestRequestCounts"}, 14},
	{
		"wake-ups without a bound",
		[]edit{{"wake.go", `l.bell.Request(l.clock, min(l.poll, l.ttl), maxWakes)`, `l.bell.Ring()`}},
		[]string{worlds, ". -run TestAMillionWakeUpsAreFewReads"},
		21,
	},
	{
		"wake-ups wake nobody",
		[]edit{{"wake.go", `		l.bell.Request(l.clock, min(l.poll, l.ttl), maxWakes)`, `		_ = maxWakes`}},
		[]string{worlds, ". -run TestWakeMakesWhoeverWaitsReadNow"},
		21,
	},
	{"a negative age counts", []edit{{"internal/storeapi/age.go", `age < 0 || age > maxAge`, `age > maxAge`}}, []string{
		". -run TestAgeIsToldByTheServersClockAlone", ". -run TestAgesThatCannotBe",
		"./gcsstore -run TestAgeIsByTheServersClock", "./azblobstore -run TestAgeIsByTheServersClock",
	}, 9},
	{
		"an age of centuries counts",
		[]edit{{"internal/storeapi/age.go", `age < 0 || age > maxAge`, `age < 0`}},
		[]string{". -run TestAgesThatCannotBe"},
		9,
	},
	{
		"an answer without ETag counts",
		[]edit{{"request.go", `if err == nil && etag == "" {`, `if err == nil && etag == "" && false {`}},
		[]string{worlds},
		11,
	},
	{
		"expires_at of renewals stays that of the acquisition",
		[]edit{{"term.go", `rec.RenewedAt, rec.ExpiresAt = sent.Time(), sent.Time().Add(rec.TTL)`,
			`rec.RenewedAt, rec.ExpiresAt = sent.Time(), rec.AcquiredAt.Add(rec.TTL)`}},
		[]string{worlds},
		19,
	},
	{
		"a foreign client's term is reclaimed",
		[]edit{{"observe.go", ` && byLock(v.rec) &&`, ` &&`}},
		[]string{". -run TestReclaimLeavesAForeignClientsTermAlone"},
		19,
	},
	{
		"a restored version taken for one's own leftover",
		[]edit{{"observe.go", `writtenByUs:  r.memory.owns(v.rec) && !revived,`,
			`writtenByUs:  r.memory.owns(v.rec),`}},
		[]string{". -run TestARestoredVersionIsWaitedOut"},
		1,
	},
	{
		"a restored release is free",
		[]edit{{"decide.go", `	case r.Released() && !s.revived:`, `	case r.Released():`}},
		[]string{worlds, ". -run TestARestoredVersionIsWaitedOut|TestWhoMayTakeTheLock"},
		1,
	},
	{
		"a restored version is waited out for its own TTL, not for that of a later term",
		[]edit{{"decide.go", `		wait = max(wait, o.lasts(s.later, s))`,
			`		wait = max(wait, o.withDrift(r.TTL)-s.age)`}},
		[]string{". -run TestARestoredVersionIsWaitedOut|TestWhoMayTakeTheLock"}, 1,
	},
	{
		"a restored version without a TTL is free",
		[]edit{{"decide.go", `cmp.Or(s.later.TTL, r.TTL, o.ttl)`, `cmp.Or(s.later.TTL, r.TTL)`}},
		[]string{". -run TestWhoMayTakeTheLock"},
		1,
	},
	{
		"the age told of a restored version counts",
		[]edit{{"observe.go", `		v.age = 0 // the store`, `		// the store`}},
		[]string{". -run ^TestTheAgeOfARestoredVersion"},
		9,
	},
	{
		"a restored release is a new leader",
		[]edit{{"elector.go", `			if !held.revived {`, `			if true {`}},
		[]string{". -run ^TestAnElectorAndARestoredRelease$"},
		0,
	},
	{
		"a record without a token is a restored one",
		[]edit{{"fencing.go", `older && rec.Token > 0 &&`, `older &&`}},
		[]string{". -run ^TestAReleaseWithoutATokenIsFree$"},
		13,
	},
	{
		"a restored version reclaimed",
		[]edit{{"observe.go", `byLock(v.rec) && !revived &&`, `byLock(v.rec) &&`}},
		[]string{". -run TestARestoredVersionIsWaitedOut"},
		1,
	},
	{
		"a term keeps the ID of the last one",
		[]edit{{"acquire.go", `TermID: handle.TermID(r.key, secret),`,
			`TermID: cmp.Or(v.rec.TermID, handle.TermID(r.key, secret)),`},
			{"acquire.go", `	"context"
	"errors"`, `	"cmp"
	"context"
	"errors"`}},
		[]string{worlds, ". -run TestIDsOfObjectsAndTerms"},
		20,
	},
	{
		"terms told apart without their IDs",
		[]edit{{"record.go", ` && mayBeSame(a.TermID, b.TermID)`, ``}},
		[]string{". -run TestATermWithAnotherIDIsAnother"},
		20,
	},
	{
		"Watch misses releases",
		[]edit{{"inspect.go", `return s.State != told.State || !same`, `return !same`}},
		[]string{worlds, ". -run TestWatchYieldsEveryChangeOfTerm"},
		20,
	},
	{
		"Watch keeps failures to itself",
		[]edit{{"inspect.go", `if !yield(Status{}, l.named(err)) || storeapi.Permanent(err) &&`,
			`if storeapi.Permanent(err) &&`}},
		[]string{worlds},
		20,
	},
	{
		"Watch ends where nothing can be sent yet",
		[]edit{{"inspect.go", `storeapi.Permanent(err) && !l.mayPass(ctx, began, err) {`,
			`storeapi.Permanent(err) && (began != 0 || !l.mayPass(ctx, began, err)) {`}},
		[]string{". -run ^TestWatchWaitsForAClientThatCannotSendYet$"},
		13,
	},
	{
		"Watch does not tell another holder of a term",
		[]edit{{"inspect.go", `now.Holder != was.Holder ||`, `now.Holder == "" ||`}},
		[]string{". -run ^TestAResumedTermIsNoNewOne$"},
		20,
	},
	{
		"Watch does not tell other metadata of a term",
		[]edit{{"inspect.go", `!maps.Equal(now.Metadata, was.Metadata)`, `!maps.Equal(was.Metadata, was.Metadata)`}},
		[]string{". -run ^TestAResumedTermIsNoNewOne$"},
		20,
	},
	{
		"an object without a token was never there",
		[]edit{{"observe.go", `(false, v.exists)`, `(false, v.rec.Token > 0)`}},
		[]string{". -run ^TestAnObjectThatWasSeenIsDeleted$"},
		20,
	},
	{
		"a resumed term is a new one",
		[]edit{{"record.go", `(identified || a.Holder`, `(identified && a.Holder == b.Holder || a.Holder`}},
		[]string{". -run ^TestAResumedTermIsNoNewOne$"},
		0,
	},
	{
		"a read that an own write overtakes announces its term",
		[]edit{{"observe.go", ` || overtaken { // a late answer`, ` || overtaken && !v.exists { // a late answer`}},
		[]string{". -run ^TestAReadThatAWriteOvertakesAnnouncesNothing$"},
		0,
	},
	{
		"a restored version announces its term",
		[]edit{{"observe.go", `was.ObjectID != "" { // a restored`, `was.ObjectID == "" { // a restored`}},
		[]string{". -run ^TestARestoredVersionAnnouncesNothing$"},
		0,
	},
	{
		"Watch tells an expiry at once",
		[]edit{{"inspect.go", `case !verdict.free:`, `case !verdict.free && verdict.revived:`}},
		[]string{worlds, ". -run ^TestWatchTellsExpiryByTheRuleForCandidates$"},
		20,
	},
	{
		"Watch counts until the read was answered",
		[]edit{{"inspect.go", `o.age, o.wall = o.age-took, o.wall.Add(-took)`, `_ = took`}},
		[]string{worlds, ". -run ^TestWatchCountsUntilTheReadWasSent$"},
		20,
	},
	{
		"Watch never tells an expiry",
		[]edit{{"inspect.go", `	return StateExpired
}`, `	return StateHeld
}`}},
		[]string{". -run ^TestWatchTellsEachStateOnce$"},
		20,
	},
	{
		"Watch tells an expiry at each read",
		[]edit{{"inspect.go", `return s.State != told.State ||`,
			`return s.State == StateExpired || s.State != told.State ||`}},
		[]string{". -run ^TestWatchTellsEachStateOnce$"},
		20,
	},
	{
		"Watch does not tell a deletion",
		[]edit{{"inspect.go", `				if now.differs(told) {`,
			`				if v.exists && now.differs(told) {`}},
		[]string{". -run ^TestWatchTellsEachStateOnce$"},
		20,
	},
	{
		"Watch takes an overtaken read for a deletion",
		[]edit{{"inspect.go", `o.later = before.revived(v.rec), before.latest`,
			`o.later = before.revived(v.rec), before.latest
	existed = r.existed.Load()`}},
		[]string{". -run ^TestWatchBesideAWriteOfItsOwnLock$"},
		20,
	},
	{
		"Watch takes an overtaken read for a restored version",
		[]edit{{"inspect.go", `o.revived, o.later = before.revived(v.rec), before.latest`, ``}},
		[]string{". -run ^TestWatchBesideAWriteOfItsOwnLock$"},
		20,
	},
	{
		"Watch tells what this Lock alone may take as expired",
		[]edit{{"inspect.go", `o.writtenByUs, o.sameIdentity = false, false //`, `//`}},
		[]string{". -run ^TestWatchOfTheHoldersOwnLock$"},
		20,
	},
	{
		"a fence lets former leaders pass",
		[]edit{{"fencing.go", `if token < f.highest || token == 0 {`, `if token == 0 {`}},
		[]string{worlds},
		3,
	},
	{
		"the context of a lost lease goes on",
		[]edit{{"term.go", `	t.cancel(cause)
	t.ctx`, `	if s != lost {
		t.cancel(cause)
	}
	t.ctx`}},
		[]string{worlds, search, ". -run TestDefinitiveLossEndsTheContextAtOnce"}, 2,
	},
	{"a release sends nothing", []edit{{"release.go", `		return t.put(settling, markReleased)`, `		_ = ctx
		return nil`}}, []string{worlds, search}, 15},
	{
		"an ETag's form that the server may ignore",
		[]edit{{
			"internal/s3api/dialect.go",
			`return unknown, errors.New("the server takes a wrong ETag if it has no quotes: it is not safe")`,
			`o.dialect.Store(bare)`,
		}},
		[]string{". -run TestAnETagsFormIsNeverGuessed"},
		24,
	},
	{
		"a wrong ETag without quotes asked about only once",
		[]edit{{"internal/s3api/dialect.go", `unquoted(q.etag), noVersion}`, `unquoted(q.etag)}`}},
		[]string{". -run TestAnETagsFormIsNeverGuessed"},
		24,
	},
	{"a conflict taken for a matter of form", []edit{{"internal/s3api/dialect.go", `storeapi.Refused(err) {
			return false, nil`, `storeapi.Refused(err) {
			return true, nil`}}, []string{". -run TestTheUsualETagsCostNothing"}, 24},
	{
		"a form taken for learnt though the usual one works",
		[]edit{{"internal/s3api/dialect.go", `			o.dialect.Store(asReceived)`, `			continue`}},
		[]string{". -run TestAnETagsFormIsNeverGuessed"},
		24,
	},
	{
		"any answer shows that the object still has the ETag",
		[]edit{{"internal/s3api/dialect.go", `return *out.ETag == etag, nil`, `return true, nil`}},
		[]string{". -run ^TestTheUsualETagsCostNothing$"}, 24,
	},
	{
		"what learning met counts for the lock",
		[]edit{{"internal/s3api/dialect.go", `Cause: errors.New(learning + why.Error())}`,
			`Cause: fmt.Errorf(learning+"%w", why)}`}},
		[]string{". -run TestErrorsOnTheObjectThatIsAsked"},
		24,
	},
	{"a refusal that nobody has looked into counts", []edit{{"internal/s3api/dialect.go", `!still {
		return asReceived, err`, `!still || err != nil {
		return asReceived, nil`}}, []string{". -run TestErrorsWhileAnETagsFormIsLearnt"}, 24},
	{"each writer learns an ETag's form for itself", []edit{{"internal/s3api/dialect.go",
		`	if known := o.dialect.Load(); known != unknown {
		return known, nil
	}
`, ``}, {
		"internal/s3api/dialect.go",
		`q := &o.question`,
		`q := new(question)`,
	}}, []string{". -run TestManyLearnAnETagsFormOnce"}, 24},
	{
		"each attempt asks for an ETag's form from the beginning",
		[]edit{{"internal/s3api/dialect.go", `for ; q.asked < len(forms)`, `for q.asked = 0; q.asked < len(forms)`}},
		[]string{". -run TestAnETagsFormIsLearntInSeveralAttempts"},
		24,
	},
	{
		"an ETag that means something else without quotes",
		[]edit{{"internal/s3api/dialect.go", `text != "" && text != "*" {`, `text != "?" {`}},
		[]string{". -run TestETagsThatNeedTheirQuotes"},
		24,
	},
	{
		"fenced: bodies in parts with the usual form",
		[]edit{{"fenced/s3parts.go", `w.ifMatch = b.IfMatch(*w.ifMatch)`, `w.ifMatch = aws.String(*w.ifMatch)`}},
		[]string{"./fenced -run TestFencedWritesWithoutQuotes"},
		24,
	},

	// What tries a store, and the checks.
	{
		"canary: no update", []edit{{"internal/canary/trial.go", `		if refused[i] && !readBack {`,
			`		if refused[i] && !readBack || i == update {`}},
		[]string{". -run TestAServerThatIgnoresConditions$", "./itest -run TestServersThatIgnoreConditions"}, 25,
	},
	{
		"canary: no create", []edit{{"internal/canary/trial.go", `		if refused[i] && !readBack {`,
			`		if refused[i] && !readBack || i == create {`}},
		[]string{". -run TestAServerThatIgnoresConditions$", "./itest -run TestServersThatIgnoreConditions"}, 25,
	},
	{
		"canary: a rate limit taken for a refusal",
		[]edit{{"internal/canary/trial.go", `			return false, err
		case i == create`, `			return false, nil
		case i == create`}},
		[]string{". -run TestAnswersThatProveNothing", "./itest -run TestTheFirstAcquisitionTriesARealServer"}, 25,
	},
	{
		"canary: a conflict taken for the refusal of an update",
		[]edit{{"internal/canary/trial.go", `		case i == create && !created && c.conflicted():`,
			`		case !created && c.conflicted():`}},
		[]string{". -run TestConflictsOfTheTwoWrites"}, 25,
	},
	{
		"canary: one conflict taken for the refusal of a create",
		[]edit{{"internal/canary/trial.go", `	return c.conflicts >= conflicts`, `	return c.conflicts > 0`}},
		[]string{". -run TestConflictsOfTheTwoWrites"}, 25,
	},
	{
		"canary: a conflict is not asked again",
		[]edit{{"internal/canary/trial.go", `if try >= tries ||`, `if try >= 1 ||`}},
		[]string{". -run TestConflictsOfTheTwoWrites"}, 25,
	},
	{
		"canary: a refusal of a write that was carried out is a proof",
		[]edit{{"internal/canary/trial.go", `	if readBack {
		switch`, `	if readBack && len(failed) == 0 {
		switch`}},
		[]string{". -run TestRefusalsOfWritesThatWereCarriedOut"}, 25,
	},
	{
		"canary: an acquisition that was refused and has landed is not suspect",
		[]edit{{"acquire.go", `r.tryStore(ctx, written, storeapi.Refused(refusal))`,
			`r.tryStore(ctx, written, storeapi.Refused(refusal) && r.clock == nil)`}},
		[]string{". -run TestRefusalsOfWritesThatWereCarriedOut"}, 25,
	},
	{
		"canary: a renewal that was refused and has landed is not suspect",
		[]edit{{"renewal.go", `	if ours.rec.Nonce == rec.Nonce && storeapi.Refused(refusal) {`,
			`	if ours.rec.Nonce == rec.Nonce && refusal == nil {`}},
		[]string{". -run TestRefusalsOfWritesThatWereCarriedOut"}, 25,
	},
	{
		"canary: each refusal of a write that has landed is suspect",
		[]edit{{"internal/canary/trial.go", `c.readBack, c.doubted = true, false`, `c.doubted = false`}},
		[]string{". -run TestARefusalOfAWriteThatHasLandedIsTriedOnce"}, 25,
	},
	{"canary: the lease is not given back", []edit{{"lock.go", `			return nil, stray, err
		case ctx.Err() != nil:`, `			return nil, nil, err
		case ctx.Err() != nil:`}}, []string{". -run TestAServerThatIgnoresConditions$"}, 25},
	{"canary: other bytes", []edit{{"canary.go", `		record, err := written.rec.MarshalJSON()`,
		`		other := written.rec
		r.sign(&other)
		record, err := other.MarshalJSON()`}}, []string{". -run TestTheFirstAcquisitionTriesTheStore"}, 25},
	{
		"canary: the same bytes",
		[]edit{{"canary.go", `marked := slices.Concat(body, mark)`, `marked := slices.Concat(body)`}},
		[]string{". -run TestRefusalsOfWritesThatWereCarriedOut"},
		25,
	},
	{
		"canary: an object deleted meanwhile makes the store unsafe",
		[]edit{{"internal/canary/trial.go", `		case err == nil && i == create && !created:`,
			`		case err == nil && i == create && !created && try < 0:`}},
		[]string{". -run TestTheObjectIsDeletedWhileTheStoreIsTried"}, 25,
	},
	{
		"canary: the end of ctx cuts off its writes",
		[]edit{{"canary.go", `r.runTrial(context.WithoutCancel(ctx), trial)`, `r.runTrial(ctx, trial)`}},
		[]string{". -run TestTheEndOfCtxCutsOffNoneOfTheTwoWrites"}, 25,
	},
	{
		"canary: a lease that ends meanwhile is given to the user",
		[]edit{{"acquire.go", `	if r.tooLate(sent) {
		return`, `	if r.canary == nil && r.tooLate(sent) {
		return`}},
		[]string{". -run TestASleepWhileTheStoreIsTried"}, 25,
	},
	{
		"canary: those that come meanwhile do not wait",
		[]edit{{"canary.go", `clock.Wait(ctx, r.clock, r.attempt, answered)`, `clock.Wait(ctx, r.clock, 0, answered)`}},
		[]string{". -run TestManyLocksTryTheStoreOnce"},
		25,
	},
	{"canary: each lock asks", []edit{{"internal/canary/canary.go", `	if c == nil {
		c = new(Canary)`, `	if c = new(Canary); true {`}},
		[]string{". -run TestStoresOfOneClientAndBucketAreTriedOnce"}, 25},
	{
		"canary: Run goes on",
		[]edit{{"elector.go", ` || errors.Is(err, canary.ErrIgnored)`,
			` || errors.Is(err, canary.ErrIgnored) && worked && !worked`}},
		[]string{". -run TestAServerThatIgnoresConditionsEndsAWaitingElector"},
		25,
	},
	{
		"canary: who waits tries nothing",
		[]edit{{"internal/canary/canary.go", `	if c.known() || c.asking != nil ||`,
			`	if !c.known() || c.asking != nil ||`}},
		[]string{". -run TestWhoWaitsTriesTheStore"}, 25,
	},
	{
		"canary: who waits writes a record of its own",
		[]edit{{"canary.go", `		trial := r.trial(v, body)
		trial.Suspect`, `		body, _ := v.rec.MarshalJSON()
		trial := r.trial(v, body)
		trial.Suspect`}},
		[]string{". -run TestWhatIsNotTriedOn"}, 25,
	},
	{
		"canary: who waits does not look at what is there",
		[]edit{{"canary.go", `trial.Suspect = true`, `trial.Suspect = v == nil`}},
		[]string{". -run TestWhoWaitsOnAServerThatIgnoresConditions"}, 25,
	},
	{
		"canary: what a trial has read is forgotten",
		[]edit{{"canary.go", `			now, body, err := r.look(ctx)
			if err != nil {
				return false, false, err
			}
			return now.same(v), bytes.HasSuffix(body, mark), nil`, `			obj, err := r.get(ctx)
			return obj.ETag == v.etag, bytes.HasSuffix(obj.Body, mark), err`}},
		[]string{". -run ^TestWhatATrialHasReadIsRemembered$"}, 9,
	},
	{
		"canary: an unsafe store is not told to who waits",
		[]edit{{"canary.go", `			w.end(unsafe)`, `			w.end(nil)`}},
		[]string{". -run TestWhoWaitsOnAServerThatIgnoresConditions"}, 25,
	},
	{
		"canary: a trial delays the next read",
		[]edit{{"canary.go", `	w.trial.Go(func() {`, `	defer w.trial.Wait()
	w.trial.Go(func() {`}},
		[]string{". -run TestATrialDelaysNoWakeUp"}, 21,
	},
	{
		"canary: a trial goes on when the wait is over",
		[]edit{{"canary.go", `r.runTrial(w.ctx, trial)`, `r.runTrial(context.WithoutCancel(w.ctx), trial)`}},
		[]string{". -run TestATrialDelaysNoWakeUp"}, 27,
	},
	{
		"canary: a trial outlives the call",
		[]edit{{"canary.go", `	if w.trial.Wait(); w.panic != nil {`, `	if w.panic != nil {`}},
		[]string{". -run TestATrialDoesNotOutliveTheCall"}, 27,
	},
	{
		"canary: who waits tries without end",
		[]edit{{"internal/canary/canary.go", `const maxAsides = 4`, `const maxAsides = 40`}},
		[]string{". -run TestATrialDoesNotOutliveTheCall"}, 14,
	},
	{
		"canary: who waits tries what does not fit",
		[]edit{{"canary.go", ` || len(body)+canary.MarkSize > wire.MaxSize {`, ` || wire.MaxSize < canary.MarkSize {`}},
		[]string{". -run TestWhatIsNotTriedOn"}, 0,
	},
	{
		"canary: a trial in a wait that has proved nothing is a proof",
		[]edit{{"internal/canary/canary.go", `			if a.err != nil || !a.asided {`,
			`			if a.err != nil || a.asided || !a.asided {`}},
		[]string{". -run TestAnAcquisitionAsksAfterATrialThatProvedNothing"}, 25,
	},
	{
		"an earlier version that comes back ends the term",
		[]edit{{"renewal.go", `	case wentBack:`, `	case wentBack && unchanged:`}},
		[]string{". -run TestAnEarlierVersionOfTheTermComesBack"}, 25,
	},
	{
		"an earlier version that comes back undoes a commit",
		[]edit{{"renewal.go", `		now.rec = t.stored.rec // the next`, `		// the next`}},
		[]string{". -run TestAnEarlierVersionOfTheTermComesBack"}, 25,
	},
	{
		"checks: a rate limit ends the check",
		[]edit{{"internal/storecheck/storecheck.go", `const patience = 10`, `const patience = 1`}},
		[]string{". -run TestCheckStoreOnARateLimitedServer", "./itest -run TestChecksOnARateLimitedServer"},
		26,
	},
	{
		"checks: a write that has landed unseen counts as refused",
		[]edit{{"internal/storecheck/storecheck.go", `if again && storeapi.Refused(err) {`,
			`if again && errors.Is(err, context.Canceled) {`}},
		[]string{". -run TestCheckStoreAmongFailures"},
		26,
	},
	{
		"checks: a race without an answer is lost",
		[]edit{{"internal/storecheck/checks.go", `case winner < 0 && !refused && try < patience:`,
			`case winner < 0 && !refused && try < 1:`}},
		[]string{". -run TestCheckStoreOnARateLimitedServer"},
		26,
	},
	{
		"CheckStore takes a cache for the store",
		[]edit{{"internal/storecheck/checks.go", `	if former == nil && errors.Is(err, storeapi.ErrNotExist) ||`,
			`	if false && errors.Is(err, storeapi.ErrNotExist) || false &&`}},
		[]string{". -run TestCheckStoreFindsACache"},
		0,
	},
	{
		"CheckStore reads nothing that a cache could keep",
		[]edit{{"internal/storecheck/checks.go", `		if err := p.mustShow(first, stale, nil); err != nil {`,
			`		if err := p.mustShow(first, stale, nil); err != nil && false {`},
			{"internal/storecheck/checks.go", `	*p.written = etag
	o, err := p.get()`, `	*p.written = etag
	if former == nil {
		return nil
	}
	o, err := p.get()`}},
		[]string{". -run TestCheckStoreFindsACache"},
		0,
	},
	{
		"a weak ETag is not named",
		[]edit{{"internal/s3api/dialect.go", `	if strings.HasPrefix(etag, "W/") && errors.Is`,
			`	if strings.HasPrefix(etag, "w/") && errors.Is`}},
		[]string{". -run TestAWeakETagIsNamed"},
		0,
	},
	{
		"doctor: a cache taken for a refusal without a reason",
		[]edit{{"cmd/leasehold/internal/doctor/probe.go",
			`	case (errors.Is(err, errOwnETag) || errors.Is(err, errGhost)) && p.behindCache(ctx):`,
			`	case false:`}},
		[]string{"./cmd/leasehold/internal/doctor -run TestADoctorBehindACache"},
		0,
	},
	{
		"doctor: a read that does not show the write before it is overlooked",
		[]edit{{"cmd/leasehold/internal/doctor/probe.go",
			`	case err == nil && p.etag != written && p.behindCache(ctx):`, `	case false:`}, {
			"cmd/leasehold/internal/doctor/probe.go", `	case errors.Is(err, storecheck.ErrStale):
		p.cached = true`, `	case false:
		p.cached = true`}},
		[]string{"./cmd/leasehold/internal/doctor -run TestADoctorBehindACache"},
		0,
	},
	{
		"storetest: a backend that drops metadata passes",
		[]edit{{"storetest/fenced.go", `	case !maps.Equal(v.Metadata, next.Metadata):`, `	case false:`}},
		[]string{"./storetest -run TestBrokenBackendsFail"},
		0,
	},
	{
		"fenced: a rate limit ends the check",
		[]edit{{"fenced/check.go", `const tries = 4`, `const tries = 1`}},
		[]string{"./fenced -run TestFencedWritesAreCheckedOnARateLimitedServer"},
		26,
	},
	{
		"fenced: each check leaves an object",
		[]edit{{"fenced/check.go", `		if may {`, `		if may || !may {`}},
		[]string{"./fenced -run TestFencedCheckWithoutThePermissionToDelete"},
		26,
	},
	{
		"fenced: a token that no term has locks out the others",
		[]edit{{"fencing.go", `	if token > MaxToken {`, `	if token > MaxToken && token < MaxToken {`}},
		[]string{". -run TestFenceOfTokensThatNoTermHas"},
		0,
	},
	{
		"an empty S3Store is used",
		[]edit{{"internal/s3api/object.go", `	if o.Bucket == nil {`, `	if false {`}},
		[]string{". -run TestArgumentsThatCannotWorkAreRefusedUnsent"},
		12,
	},

	{"written without a condition", []edit{{"internal/s3api/object.go",
		`		IfMatch: ifMatch, IfNoneMatch: ifNoneMatch,
`, ``}}, []string{"./itest -run TestContention"}, 1},
	{
		"created without a condition",
		[]edit{{"internal/s3api/object.go", `o.put(ctx, key, body, nil, aws.String("*"))`,
			`o.put(ctx, key, body, nil, nil)`}},
		[]string{"./itest -run TestLinearizableRegister"},
		18,
	},
	{
		"a refused Do keeps others out",
		[]edit{{"term.go", `	if !over && !owned {`, `	if !over || !owned {`}},
		[]string{". -run TestARefusedDoKeepsNobodyOut"},
		8,
	},
	{
		"takes over after ten TTLs",
		[]edit{{"decide.go", `return time.Duration(float64(ttl) * (1 + o.drift))`,
			`return time.Duration(float64(ttl) * (10 + o.drift))`}},
		[]string{worlds},
		13,
	},
	{
		"Valid looks at no clock",
		[]edit{{"term.go", `ok, ranOut := t.state == held, t.remaining() <= 0`,
			`ok, ranOut := t.state == held, false`}},
		[]string{worlds, search},
		5,
	},
	{"nothing looks at the clocks", []edit{{"term.go", `ok, ranOut := t.state == held, t.remaining() <= 0`,
		`ok, ranOut := t.state == held, false`}, {"term.go", `	ranOut := t.state == held && t.remaining() <= 0
	if`, `	ranOut := false
	if`}}, []string{"./itest -run TestSuspendedProcess"}, 5},
	{
		"a ttl that a foreign client has kept counts",
		[]edit{{"decide.go", `	if !byLock(r) { // such`, `	if r.TTL <= 0 { // such`}},
		[]string{worlds, ". -run TestWhoMayTakeTheLock"},
		19,
	},
	{
		"a renewal whose answer comes when the lease is over has succeeded",
		[]edit{{"renewal.go", `	if over := t.whyOver(); over != nil { // the answer came too late
		err = over
	}
`, ``}},
		[]string{". -run TestARenewalThatIsAnsweredTooLate", ". -run TestACommitBesideARelease"}, 1,
	},
	{
		"a commit counts though an earlier renewal has landed instead",
		[]edit{{"renewal.go", `return ours.rec.Nonce == rec.Nonce ||`, `return ours.rec.Nonce != rec.Nonce ||`}},
		[]string{". -run TestACommitAfterARenewal"},
		6,
	},
	{"a release that has landed is forgotten", []edit{{"release.go", `		t.become(released)
		t.lock.turns`, `		t.lock.turns`}}, []string{". -run TestAReleaseIsToldOnce"}, 6},
	{"Run keeps a failed release to itself", []edit{{"elector.go", `	if err != nil && !ended(err) {
		l.log`, `	if err == nil && !ended(err) {
		l.log`}}, []string{". -run TestRunReturnsTheErrorOfItsLastRelease"}, 15},
	{
		"renewals are tried again late",
		[]edit{{"renewal.go", `max(min(t.lock.renew/2, remaining/4, maxBackoff), first)`,
			`t.lock.renew/2+0*remaining`}},
		[]string{". -run TestShortOutagesCostNoLease"},
		13,
	},
	{
		"a wake-up during the read is missed",
		[]edit{{"campaign.go", `		woken := line.Listen()
		lease, err := l.try(ctx, parent, waiting)
`, `		lease, err := l.try(ctx, parent, waiting)
		woken := line.Listen()
`}},
		[]string{". -run TestAWakeUpDuringTheRead"}, 21,
	},
	{
		"a wake-up that is put off is lost",
		[]edit{{"internal/bell/bell.go", `	c.AfterFunc(b.slot-now, b.Ring)`, `	b.late = false`}},
		[]string{". -run TestAMillionWakeUpsAreFewReads", "./internal/bell -run TestRequestsAreSpread"},
		21,
	},
	{
		"a release wakes nobody in its process",
		[]edit{{"internal/bell/bell.go", `	giveTurn(all)
`, ``}},
		[]string{". -run TestLocksOfOneProcessWakeEachOther"}, 21,
	},
	{
		"a release wakes all candidates of its process",
		[]edit{{"internal/bell/bell.go", `		if !w.queue {`, `		if w != nil {`}},
		[]string{". -run TestAReleaseCostsOneRead"}, 21,
	},
	{
		"a turn ends with the one who leaves the line",
		[]edit{{"internal/bell/bell.go", `	if w.turn || w.using {`, `	if w.turn && w.using {`}},
		[]string{"./internal/bell -run TestTurns"}, 21,
	},
	{
		"a turn ends with a failure",
		[]edit{{"campaign.go", `		line.Looked(l.leavesToOthers(err))`,
			`		line.Looked(l.leavesToOthers(err) && false)`}},
		[]string{". -run TestATurnIsPassedOn"}, 21,
	},
	{
		"a turn is passed on though another process has the lock",
		[]edit{{"campaign.go", `	return err != nil && (!held || l`, `	return err != nil && (held || l`}},
		[]string{". -run TestATurnEndsIfAnother"}, 21,
	},
	{
		"a read that came too early is not repeated",
		[]edit{{"internal/forecast/forecast.go", `r.extra < maxExtra {`, `r.extra < maxExtra-maxExtra {`}},
		[]string{"./internal/forecast -run TestReadsComeSoonAfterRenewals"},
		0,
	},
	{
		"a lease keeps itself alive",
		[]edit{{"lease.go", `func(forgotten *atomic.Bool) { forgotten.Store(true) }, t.forgotten)`,
			`func(t *term) { (*atomic.Bool).Store(t.forgotten, true) }, t)`}},
		[]string{". -run TestALeaseThatItsObserverRefersTo"},
		0,
	},

	{
		"a torn read taken for another's term",
		[]edit{{"renewal.go", `	unchanged := v.sameRecord(t.stored)`,
			`	unchanged := v.sameRecord(t.stored) && v.same(base)`}},
		[]string{". -run TestATornReadCostsNoLease"},
		6,
	},

	// Files.
	{
		"filestore: no flush before the rename",
		[]edit{{"internal/filestore/dir.go", `		err = c.dir.sync(f)`, `		err = nil`}},
		[]string{"./internal/filestore -run TestOrderOfAWrite"},
		18,
	},
	{
		"filestore: no flush of the directory",
		[]edit{{"internal/filestore/dir.go", `	if err := c.dir.sync(c.self); err != nil {`,
			`	if err := error(nil); err != nil {`}},
		[]string{"./internal/filestore -run TestOrderOfAWrite|TestDirectoryCannotBeSynced"},
		18,
	},
	{"filestore: no lock around compare and write", []edit{{"internal/filestore/dir.go",
		`	lock, err := c.lock()
	if err != nil {
		return err
	}
	err = c.check(allow)
`, `	err := c.check(allow)
`}, {"internal/filestore/dir.go", `	c.release(lock)
`, ``}}, []string{"./internal/filestore -run TestAnotherProcessHasLockedTheDirectory"}, 18},
	{"filestore: compared before the lock", []edit{{"internal/filestore/dir.go", `	err = c.check(allow)
	if err == nil && c`, `	err = nil
	if err == nil && c`}}, []string{"./internal/filestore -run TestEightProcessesLoseNoUpdate"}, 18},
	{"filestore: readers can lock the directory", []edit{{"internal/filestore/lockfile.go",
		`			locked, err := tryLock(f)`, `			locked, err := tryLock(c.self)`}},
		[]string{"./internal/filestore -run ^TestAReaderKeepsNobodyOut$"}, 0},
	{"filestore: readers can open the lock file", []edit{{"internal/filestore/lockfile.go",
		`	return 0o600 | write`, `	return 0o644 | write`}},
		[]string{"./internal/filestore -run ^TestTheLockFileIsForWriters$"}, 0},
	{"filestore: the lock file keeps the mode of an earlier directory", []edit{{"internal/filestore/lockfile.go",
		`		_ = giveAccess(f, dir, lockMode(dir))`, `		_ = dir`}},
		[]string{"./internal/filestore -run ^TestTheLockFileFollowsItsDirectory$"}, 0},
	{"filestore: the lock file of a stranger", []edit{{"internal/filestore/lockfile.go",
		`owner == self || mode&0o022 != 0 {`, `owner == self || mode != 0 {`}},
		[]string{"./internal/filestore -run ^TestTheLockFileFollowsItsDirectory$"}, 0},
	{"filestore: a lock file that nobody finds", []edit{{"internal/filestore/lockfile.go",
		`		if c.isLock(f) {`, `		if c.isLock(f) || f != nil {`}},
		[]string{"./internal/filestore -run ^TestTheLockFileIsReplaced$"}, 18},
	{"filestore: a lock file that is a link or a pipe", []edit{{"internal/filestore/lockfile.go",
		`		case !info.Mode().IsRegular():`, `		case info.Mode() == 0:`}},
		[]string{"./internal/filestore -run ^TestLockFilesThatAreNotFiles$"}, 0},
	{"command: doctor says nothing of a directory that everybody may write", []edit{{
		"cmd/leasehold/internal/doctor/file.go", `dir.Mode().Perm()&0o002 != 0:`, `dir.Mode().Perm() == 0:`}},
		[]string{"./cmd/leasehold -run ^TestDoctorOfADirectoryThatEverybodyMayWrite$"}, 0},
	{
		"filestore: an ETag of size and time",
		[]edit{{"internal/filestore/dir.go", "`\"` + rand.Text() + `\"`",
			`fmt.Sprintf("\"%d-%d\"", len(body), time.Now().Unix())`}},
		[]string{". -run TestFileStoreConforms"},
		18,
	},
	{
		"filestore: written in place",
		[]edit{{"internal/filestore/dir.go", `func() error { return c.root.Rename(temp, c.file) }`,
			`func() error { return c.root.WriteFile(c.file, data, 0o666) }`}},
		[]string{"./internal/filestore -run TestWritersAreKilled"},
		18,
	},
	{
		"filestore: deleted without the condition",
		[]edit{{"internal/filestore/dir.go", `c.change(matches(etag), func() error { return c.root.Remove`,
			`c.change(func(string) error { return nil }, func() error { return c.root.Remove`}},
		[]string{". -run TestFileStorePassesCheckStore"},
		18,
	},
	{
		"filestore: a network file system accepted",
		[]edit{{"internal/filestore/network_linux.go", `return networks[uint32(s.Type)], os`, `return "", os`}},
		[]string{"./internal/filestore -run TestNetworkFileSystemsAreRefused"},
		18,
	},
	{
		"filestore: a torn object accepted",
		[]edit{{
			"internal/filestore/object.go",
			`	case !whole, string(first[len(magic):]) != fmt.Sprintf("%08x", crc32.Checksum(rest, castagnoli)):`,
			`	case !whole:`,
		}},
		[]string{"./internal/filestore -run TestTornFilesAreRefused"},
		16,
	},
	{"filestore: a file that is no object is missing", []edit{{"internal/filestore/dir.go", `	if err != nil {
		return Object{ETag: contentETag(data), Body: body}, &`, `	if err != nil {
		return Object{}, missing
	}
	if err != nil {
		return Object{ETag: contentETag(data), Body: body}, &`}},
		[]string{"./internal/filestore -run TestFilesThatAreNotObjects"}, 16},
	{
		"filestore: a version of another process answered before it is on the disk",
		[]edit{{"internal/filestore/dir.go", `if err == nil && d.isOnDisk(key, o.ETag) {`, `if err == nil {`}},
		[]string{"./internal/filestore -run TestVersionsOfAnotherProcessAreOnTheDisk"},
		18,
	},
	{
		"filestore: forgets what is on the disk",
		[]edit{{"internal/filestore/dir.go", `	d.onDisk[key] = etag`, ``}},
		[]string{"./internal/filestore -run TestVersionsOfAnotherProcessAreOnTheDisk|TestReadsAfterAFailedRename"},
		0,
	},
	{
		"filestore: a strict umask locks others out",
		[]edit{{"internal/filestore/system_unix.go", `	return f.Chmod(mode)`, `	return nil`}},
		[]string{"./internal/filestore -run TestStrictUmaskLocksNobodyOut"},
		0,
	},
	{
		"filestore: an administrator's write takes the object over",
		[]edit{{"internal/filestore/system_unix.go", `		if f.Chown(int(was.Uid), int(was.Gid)) != nil {`,
			`		if true {`}},
		[]string{"./internal/filestore -run TestStrictUmaskLocksNobodyOut"},
		0,
	},
	{
		"filestore: an age of before the reboot",
		[]edit{{"internal/filestore/object.go", `if n.Clock == "" || n.Clock != s.Clock {`, `if n.Clock == "" {`}},
		[]string{"./internal/filestore -run TestAgeNeedsTheSameClock"},
		9,
	},

	// The modules beside the root.
	{
		"gcsstore: written without a condition",
		[]edit{{"gcsstore/gcsstore.go", `w := object.If(only).NewWriter(ctx)`, `w := object.NewWriter(ctx)`}},
		[]string{"./gcsstore -run TestConformsOnStrictServer"},
		22,
	},
	{
		"gcsstore: requests retried below the lock",
		[]edit{{"gcsstore/gcsstore.go", `storage.WithPolicy(storage.RetryNever)`, `storage.WithMaxAttempts(2)`}},
		[]string{"./gcsstore -run TestEveryCallIsOneRequest"},
		22,
	},
	{
		"gcsstore: dates in whole seconds taken for exact",
		[]edit{{"gcsstore/gcsstore.go", `age(now, r.Attrs.LastModified, s.slack)`,
			`age(now, r.Attrs.LastModified, 0)`}},
		[]string{"./gcsstore -run TestAgeIsByTheServersClock"},
		22,
	},
	{
		"gcsstore: a dead connection is used again",
		[]edit{{"gcsstore/client.go", `	if s.server.silent() {`, `	if false {`}},
		[]string{"./gcsstore -run TestASilentConnection"},
		0,
	},
	{"gcsstore: a page is an answer", []edit{{"gcsstore/gcsstore.go", `	err = heard.Load().foreign(http.StatusOK)
	if err == nil && r.Attrs.Generation <= 0 {`, `	if r.Attrs.Generation <= 0 {`}},
		[]string{"./gcsstore -run TestRepliesThatAreNotCloudStorages"}, 11},
	{
		"azblobstore: written without a condition",
		[]edit{{
			"azblobstore/azblobstore.go",
			`AccessConditions:        &blob.AccessConditions{ModifiedAccessConditions: &only},`,
			`AccessConditions:        nil,`,
		}},
		[]string{"./azblobstore -run TestConformsOnStrictServer"},
		22,
	},
	{
		"azblobstore: requests retried below the lock",
		[]edit{{"azblobstore/azblobstore.go", `policy.RetryOptions{MaxRetries: -1}`,
			`policy.RetryOptions{MaxRetries: 1}`}},
		[]string{"./azblobstore -run TestEveryCallIsOneRequest"},
		22,
	},
	{
		"azblobstore: dates in whole seconds taken for exact",
		[]edit{{"azblobstore/azblobstore.go", `age(now, written, s.slack)`, `age(now, written, 0)`}},
		[]string{"./azblobstore -run TestAgeIsByTheServersClock"},
		22,
	},
	{
		"azblobstore: a dead connection is used again",
		[]edit{{"azblobstore/azblobstore.go", `	if s.server.silent() {`, `	if false {`}},
		[]string{"./azblobstore -run TestASilentConnection"},
		0,
	},
	{
		"azblobstore: any version is replaced",
		[]edit{{"azblobstore/azblobstore.go", `	case !isETag(etag):`, `	case false:`}},
		[]string{"./azblobstore -run TestBadArguments"},
		22,
	},
	{
		"azblobstore: a damaged body is read",
		[]edit{{"azblobstore/azblobstore.go", `len(sum) == 0 || fips140.Enforced()`,
			`len(sum) > 0 || fips140.Enforced()`}},
		[]string{"./azblobstore -run TestBodyThatBreaksOff"},
		22,
	},
	{
		"azblobstore: an Azure lease is a conflict",
		[]edit{{
			"azblobstore/errors.go",
			`status == http.StatusPreconditionFailed && code == bloberror.ConditionNotMet && op != opGet`,
			`status == http.StatusPreconditionFailed && op != opGet`,
		}},
		[]string{"./azblobstore -run TestBlobsThatCannotBeWritten", "./azblobstore -run TestBlobThatSomebodyLeases"},
		22,
	},
	{
		"azblobstore: an endless Azure lease taken for one that ends",
		[]edit{{"azblobstore/errors.go", `endless && e.hint == breakLease`,
			`false && endless && e.hint == breakLease`}},
		[]string{"./azblobstore -run TestBlobThatSomebodyLeases"},
		22,
	},
	{
		"azblobstore: a missing container is a missing blob",
		[]edit{{
			"azblobstore/errors.go",
			`status == http.StatusNotFound && code == bloberror.BlobNotFound && op != opCreate`,
			`status == http.StatusNotFound && op != opCreate`,
		}},
		[]string{"./azblobstore -run TestErrors"},
		22,
	},
	{
		"azblobstore: a reply without Azure's headers counts",
		[]edit{{"azblobstore/errors.go", `	case reply.Header.Get(requestID) == "":`, `	case false:`}},
		[]string{"./azblobstore -run TestRepliesThatAreNotAzures"},
		11,
	},
	{
		"azblobstore: a followed redirect counts",
		[]edit{{"azblobstore/errors.go", `	case reply.Request != nil && reply.Request.Response != nil:`,
			`	case false:`}},
		[]string{"./azblobstore -run TestRepliesThatAreNotAzures"},
		11,
	},
	{
		"azblobstore: fenced: written without a condition",
		[]edit{{"azblobstore/fenced.go", `Metadata: metadata, AccessConditions: only, TransactionalValidation`,
			`Metadata: metadata, TransactionalValidation`}},
		[]string{"./azblobstore -run TestFencedStoreKeepsItsPromises$"},
		17,
	},
	{
		"azblobstore: fenced: blocks listed without a condition",
		[]edit{{"azblobstore/fenced.go", `Metadata: metadata, AccessConditions: only})`, `Metadata: metadata})`}},
		[]string{"./azblobstore -run TestFencedStoreKeepsItsPromises$"},
		17,
	},
	{
		"azblobstore: fenced: sealed without a condition",
		[]edit{{"azblobstore/fenced.go", `	_, only := conditions(old)`,
			`	only := (*blob.AccessConditions)(nil)`}},
		[]string{"./azblobstore -run TestFencedStoreKeepsItsPromises$"},
		17,
	},
	{
		"k8slock: shows its own name though it does not lead",
		[]edit{{"k8slock/k8slock.go", `(expired || rec.Holder == l.Identity())`, `expired`}},
		[]string{"./k8slock -run TestLeaseRunsOutBelowAStuckElector"},
		22,
	},
	{
		"k8slock: a second elector renews the term of the first",
		[]edit{{"k8slock/k8slock.go", `	case lease != nil && !l.leads(ctx, ler):`,
			`	case lease != nil && !l.leads(ctx, ler) && false:`}},
		[]string{"./k8slock -run TestSecondElectorOfALock|TestElectorThatHasLedRunsAgain"},
		22,
	},
	{
		"k8slock: a second elector sees its own name",
		[]edit{{"k8slock/k8slock.go", `	case leads && l.looks(ctx) && rec.Holder == l.Identity():`,
			`	case false:`}},
		[]string{"./k8slock -run TestSecondElectorOfALock|TestElectorThatHasLedRunsAgain"},
		22,
	},
	{
		"k8slock: electors told apart by the time of their tries alone",
		[]edit{{"k8slock/elector.go", `!looked && ler.`, `(!looked || looked) && ler.`}},
		[]string{"./k8slock -run TestSecondElectorOfALock|TestElectorThatHasLedRunsAgain"},
		22,
	},
	{
		"k8slock: electors told apart by their looks alone",
		[]edit{{"k8slock/elector.go", ` && ler.AcquireTime.Equal(&e.acquired)`, ``}},
		[]string{"./k8slock -run TestElectorThatHasLedRunsAgain"},
		22,
	},
	{
		"k8slock: releases while work of the term may run",
		[]edit{{"k8slock/k8slock.go", `		lease.Abandon()`, `		_ = lease.Release(context.Background())`}},
		[]string{"./k8slock -run TestStopWithoutReleaseOnCancel"},
		22,
	},
	{
		"azblobstore: the signature of a SAS in errors",
		[]edit{{"azblobstore/errors.go", `		e.cause = unsigned(err)`, `		e.cause = err`}},
		[]string{"./azblobstore -run ^TestNoErrorHasTheSignatureOfASAS$"},
		0,
	},
	{
		"command: the signature of a SAS in messages",
		[]edit{{"cmd/leasehold/internal/exit/exit.go", `strings.Fields(withoutQuery(err))`,
			`strings.Fields(err.Error())`}},
		[]string{"./cmd/leasehold -run ^TestNoMessageHasTheSignatureOfASAS$"},
		0,
	},
	{
		"k8slock: healthy while nobody can acquire",
		[]edit{{"k8slock/k8slock.go", `lasted > 2*l.duration {`, `lasted < 0 {`}},
		[]string{"./k8slock -run ^TestCheckWhileNobodyCanLead$"},
		0,
	},
	{
		"k8slock: failures of a lock that another holds count",
		[]edit{{"k8slock/k8slock.go", `	if ler.HolderIdentity != "" { // there is nothing to acquire
`, `	if false {
`}},
		[]string{"./k8slock -run ^TestCheckWhileNobodyCanLead$"},
		0,
	},
	{
		"k8slock: the token of a lease that is over",
		[]edit{{"k8slock/k8slock.go", `lease != nil && lease.Valid() {`, `lease != nil {`}},
		[]string{"./k8slock -run TestLeaseRunsOutBelowAStuckElector|TestLostTermIsOver"},
		22,
	},
	{
		"k8slock: the context goes on when the lease is lost",
		[]edit{{
			"k8slock/k8slock.go",
			`stop := context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })`,
			`stop := func() bool { return true }`,
		}},
		[]string{"./k8slock -run TestLostTermIsOver|TestLeaseRunsOut"},
		22,
	},
	{
		"gocronlock: does not look again once it has the lock",
		[]edit{{"gocronlock/locker.go", `	before, err := l.due(name, j, lease.Record(), began)`,
			`	before, err := []time.Time(nil), error(nil)`}},
		[]string{"./gocronlock -run TestAnotherRunsTheSlotAfterTheFirstRead"},
		22,
	},
	{
		"gocronlock: a run that could not be noted",
		[]edit{{"gocronlock/locker.go", `		err = lease.Commit(ctx, encode(began, before))`,
			`		_ = lease.Commit(ctx, encode(began, before))`}},
		[]string{"./gocronlock -run TestRunThatCannotBeNotedIsNotDone"},
		22,
	},
	{"gocronlock: the first slot after a crash is skipped", []edit{{
		"gocronlock/locker.go", `context.WithTimeout(ctx, l.spacing)`,
		`context.WithTimeout(ctx, min(l.spacing, time.Second))`,
	}}, []string{"./gocronlock -run TestAfterACrash|TestTheFirstSlotAfterACrashRuns"}, 22},
	{
		"gocronlock: runs though another leads",
		[]edit{{"gocronlock/elector.go", `	if e.Elector.IsLeader() {`,
			`	if _, ok := e.Leader(); ok || e.Elector.IsLeader() {`}},
		[]string{"./gocronlock -run TestElector"},
		22,
	},
	{"otellock: leads on after a loss", []edit{{"otellock/otellock.go",
		`		o.lost.Add(ctx, 1, metric.WithAttributes(result...))
		s.ended(now, e)
`, `		o.lost.Add(ctx, 1, metric.WithAttributes(result...))
`}}, []string{"./otellock -run TestScenarios|TestTheSpanOfALostTerm"}, 22},
	{"otellock: the end of an earlier term ends a later one",
		[]edit{{"otellock/otellock.go", `	if s.held == e.Token {
		s.end(`, `	if e.Token > 0 {
		s.end(`}}, []string{"./otellock -run TestScenarios|TestALaterTermEnds"}, 22},
	{"promlock: leads on after a loss", []edit{{"promlock/promlock.go",
		`		c.lost.WithLabelValues(e.Key, leasehold.Outcome(e.Err)).Inc()
		c.ended(s, e)
`, `		c.lost.WithLabelValues(e.Key, leasehold.Outcome(e.Err)).Inc()
`}}, []string{"./promlock -run TestScenarios"}, 22},
	{"promlock: the end of an earlier term ends a later one",
		[]edit{{"promlock/promlock.go", `	if s.held == e.Token {
		c.leader`, `	if e.Token > 0 {
		c.leader`}}, []string{"./promlock -run TestScenarios"}, 22},
	{"promlock: native histograms beside the buckets", []edit{{"promlock/promlock.go",
		`		opts.Buckets, opts.NativeHistogramBucketFactor = nil, 1.1`,
		`		opts.NativeHistogramBucketFactor = 1.1`}},
		[]string{"./promlock -run ^TestSeriesOfAnElector$", "./promlock -run ^TestNativeHistograms$"}, 0},
	{"promlock: a process that has not asked shows the token", []edit{{
		"promlock/alerts.yml",
		"max by (key) (leasehold_token and ignoring (op, outcome) " +
			`increase(leasehold_request_duration_seconds_count{outcome="ok"}[5m]) > 0)`,
		`max by (key) (leasehold_token)`,
	}}, []string{
		"./promlock/internal/rulestest -run TestNoAlertWhenPodsComeAndGo",
		"./promlock/internal/rulestest -run TestAlertsFire",
	}, 0},
	{"promlock: a process that is gone leads", []edit{{
		"promlock/alerts.yml",
		`(leasehold_leader and count_over_time(leasehold_leader[2m]) > 0) > 1`,
		`(leasehold_leader) > 1`,
	}}, []string{"./promlock/internal/rulestest -run TestAlertsFire"}, 0},
	{"promlock: a new process that is refused for a minute", []edit{{
		"promlock/alerts.yml",
		`"}[5m] offset 5m) > 0) > 0`,
		`"}[5m]) > 0) > 0`,
	}}, []string{"./promlock/internal/rulestest -run TestAlertsFire"}, 0},

	// The command.
	{"command: a guard that does not see renewals", []edit{{"cmd/leasehold/internal/guard/guard.go",
		`		termAt, killAt := g.times.get()
`, `		termAt, killAt := firstTerm, firstKill
`}, {
		"cmd/leasehold/internal/guard/guard.go",
		`	pause := int64(time.Millisecond) // between two looks for what is left
`, `	pause := int64(time.Millisecond) // between two looks for what is left
	firstTerm, firstKill := g.times.get()
`}}, []string{"./cmd/leasehold -run ^TestAGuardThatWasStoppedKnowsTheLastRenewal$"}, 29},
	{
		"command: lives on when leasehold is killed",
		[]edit{{"cmd/leasehold/internal/guard/guard.go", `changed, g.goneAt = nil, now`, `changed = nil`}},
		[]string{"./cmd/leasehold -run ^TestLeaseholdOrItsGuardIsKilled$"},
		28,
	},
	{
		"command: lives on for 20 s when leasehold is killed",
		[]edit{{"cmd/leasehold/internal/guard/guard.go", `changed, g.goneAt = nil, now`,
			`changed, g.goneAt = nil, now+int64(20*time.Second)`}},
		[]string{"./cmd/leasehold -run ^TestLeaseholdOrItsGuardIsKilled$"},
		28,
	},
	{
		"command: lives on when both are killed",
		[]edit{{
			"cmd/leasehold/internal/guard/guard_linux.go",
			`Setpgid: true, Pdeathsig: syscall.SIGKILL`, `Setpgid: true`}},
		[]string{"./cmd/leasehold -run ^TestLeaseholdAndItsGuardAreKilled$"},
		28,
	},
	{"command: the lock is released while the command lives", []edit{{"cmd/leasehold/internal/guard/guard.go",
		`if g.exited && g.over() {`, `if changed == nil || g.exited && g.over() {`}},
		[]string{"./cmd/leasehold -run ^TestNothingIsReleasedWhileSomethingLives$"}, 36},
	{"command: the lock of a killed leasehold is released without the drain", []edit{{"cmd/leasehold/crash.go",
		`250*time.Millisecond, o.Drain;`, `250*time.Millisecond, 0*o.Drain;`}},
		[]string{"./cmd/leasehold -run ^TestTheLockOfAKilledLeaseholdIsReleased$"}, 36},
	{"command: the lock of a killed leasehold is released after the lease is over",
		[]edit{{"cmd/leasehold/internal/guard/guard.go", `	end := killAt + int64(g.grace)`,
			`	end := killAt + int64(g.grace+time.Hour)`}},
		[]string{"./cmd/leasehold -run ^TestTheLockOfAKilledLeaseholdIsKept$"}, 36},
	{"command: the end of a term told before its release", []edit{{"cmd/leasehold/run.go",
		`		c.waiting.started(ctx, lease)
`, `		c.waiting.started(ctx, lease)
		defer c.waiting.stopped()
`}}, []string{"./cmd/leasehold -run ^TestTheEndOfATermIsToldAfterTheRelease$"}, 0},
	{"command: a signal lost while a command begins", []edit{{"cmd/leasehold/elect.go",
		`	for len(r.passed) > 0 {
		<-r.passed
	}
	return r.ending.Load() == nil
`, `	over := r.ending.Load() != nil
	for len(r.passed) > 0 {
		<-r.passed
	}
	return !over
`}}, []string{"./cmd/leasehold -run ^TestASignalReachesTheCommandThatBegins$"}, 0},
	{"command: no signal ends the tries to release", []edit{{"cmd/leasehold/run.go",
		`		context.AfterFunc(signalled, giveUp)`, `		_ = signalled`}},
		[]string{"./cmd/leasehold -run ^TestASignalEndsTheTriesToRelease$"}, 0},
	{"command: a handle that nobody has is released for as long as its lease lasts",
		[]edit{{"cmd/leasehold/campaign.go", `	ctx, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	return lease.Release(ctx)`, `	return lease.Release(ctx)`}},
		[]string{"./cmd/leasehold -run ^TestAHandleThatCannotBeWrittenHoldsNobodyUp$"}, 0},
	{"command: healthy though it is never let write", []edit{{"cmd/leasehold/waiting.go",
		`		if e.Op != "get" {`, `		if e.Op == "" {`}},
		[]string{"./cmd/leasehold -run ^TestTheHealthOfRunWhileNobodyCanLead$"}, 0},
	{"command: unhealthy long after the last try", []edit{{"cmd/leasehold/waiting.go",
		` && time.Since(w.vain.last) <= w.limit {`, ` {`}},
		[]string{"./cmd/leasehold -run ^TestTheHealthOfRunWhileNobodyCanLead$"}, 0},
	{"command: run does not follow the leader", []edit{{"cmd/leasehold/run.go",
		`	stop := c.waiting.follow(ctx, lock)`, `	stop := func() {}`}},
		[]string{"./cmd/leasehold -run ^TestAHandOverWithListen$"}, 0},
	{"command: healthy whatever the store says", []edit{{"cmd/leasehold/waiting.go",
		`	if silent <= w.limit {`, `	if silent >= 0 {`}},
		[]string{"./cmd/leasehold -run ^TestTheHealthOfAProcessThatWaits$"}, 0},
	{"command: advertised as every address", []edit{{"cmd/leasehold/listen.go",
		`	if everywhere(host) {`, `	if everywhere(host) && port == "" {`}},
		[]string{"./cmd/leasehold -run ^TestFlagsOfListen$"}, 0},
	{"command: /leader is 200 everywhere", []edit{{"cmd/leasehold/listen.go",
		`mux.Handle("/leader", w.peer)`, `mux.HandleFunc("/leader", func(http.ResponseWriter, *http.Request) {})`}},
		[]string{"./cmd/leasehold -run ^TestHAProxyFollowsTheLeader$",
			"./cmd/leasehold -run ^TestWhatListenServes$"}, 0},
	{"command: the guard has the socket of --listen", []edit{
		{"cmd/leasehold/listen.go", `	at := w.advertise
`, `	raw, _ := w.listener.(*net.TCPListener).SyscallConn()
	_ = raw.Control(func(fd uintptr) { _, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETFD, 0) })
	at := w.advertise
`},
		{"cmd/leasehold/listen.go", `	"sync/atomic"
`, `	"sync/atomic"
	"syscall"
`},
	}, []string{"./cmd/leasehold -run ^TestTheSocketOfAKilledLeasehold$"}, 0},
	{"command: the server of --listen takes every file", []edit{{"cmd/leasehold/listen.go",
		`maxConnections = 500`, `maxConnections = 500_000`}},
		[]string{"./cmd/leasehold -run ^TestAFloodOfConnections$"}, 0},
	{"command: the server of --listen fills the log", []edit{{"cmd/leasehold/listen.go",
		`if f.told.Swap(true) {`, `if f.told.Load() {`}},
		[]string{"./cmd/leasehold -run ^TestTheServerComplainsOnce$"}, 0},
	{"command: the end of a wait is that of a context", []edit{{"cmd/leasehold/campaign.go",
		`	case c.wait == 0:`, `	case c.wait >= 0:`}}, []string{"./cmd/leasehold -run ^TestTheEndOfAWait$"}, 0},
	{"command: a request that was cut off is why a wait was for nothing", []edit{{
		"cmd/leasehold/internal/place/store.go", `	case ctx.Err() == nil:`, `	default:`,
	}}, []string{"./cmd/leasehold -run ^TestTheEndOfAWait$"}, 0},
	{"command: why a table cannot be reached is not told", []edit{{"cmd/leasehold/tablerun.go",
		`		err = cmp.Or(l.c.store.Failure(), err)
`, ``}}, []string{"./cmd/leasehold -run ^TestNoWaitForATableThatCannotBeReached$"}, 0},
	{"command: break calls a lease that has run out held", []edit{{"cmd/leasehold/break.go",
		`		case "expired":`, `		case "":`}},
		[]string{"./cmd/leasehold -run ^TestBreakAsksAtATerminal$"}, 0},
	{"command: nobody is told at a terminal why --no-wait waits", []edit{{"cmd/leasehold/campaign.go",
		` || isTerminal(os.Stderr) {`, ` && isTerminal(os.Stderr) {`}},
		[]string{"./cmd/leasehold -run ^TestNoWaitAfterACrashAtATerminal$"}, 0},
	{"command: colours in a pipe", []edit{{"cmd/leasehold/terminal.go",
		`return kind != "" && kind != "dumb" && isTerminal(f)`, `return kind != "" && kind != "dumb"`}},
		[]string{"./cmd/leasehold -run ^TestColoursOnATerminal$"}, 0},
	{"command: colours though NO_COLOR is set", []edit{{"cmd/leasehold/terminal.go",
		`return os.Getenv("NO_COLOR") == "" && obeys(f)`, `return obeys(f)`}},
		[]string{"./cmd/leasehold -run ^TestColoursOnATerminal$"}, 0},
	{"command: a status that is not erased", []edit{{"cmd/leasehold/stderr.go",
		`			if shown {`, `			if shown && line.status {`}},
		[]string{"./cmd/leasehold -run ^TestAWaitOnATerminalCounts$"}, 0},
	{"command: each read begins the countdown anew", []edit{{"cmd/leasehold/internal/place/store.go",
		`before.etag == o.ETag {`, `before.etag == "" {`}},
		[]string{"./cmd/leasehold -run ^TestACountdownGoesOnOverReads$"}, 0},
	{"command: two formats of messages on a terminal", []edit{{"cmd/leasehold/main.go",
		`	case isTerminal(os.Stderr):`, `	case false:`}},
		[]string{"./cmd/leasehold -run ^TestMessagesOnATerminalHaveOneFormat$"}, 0},
	{"command: a time without its zone", []edit{{"cmd/leasehold/output.go",
		`time.DateTime + " -0700"`, `time.DateTime`}},
		[]string{"./cmd/leasehold -run ^TestTimesOfALock$"}, 0},
	{"command: the noise of an SDK without -v", []edit{{"cmd/leasehold/main.go",
		`			if !a.verbose {`, `			if a.verbose {`}},
		[]string{"./cmd/leasehold -run ^TestTheNoiseOfAnSDK$"}, 0},
	{"command: a value that is no file is completed by files", []edit{{"cmd/leasehold/completion.go",
		`	cmd.Flags().VisitAll(func(f *pflag.Flag) {`, `	cmd.Flags().Visit(func(f *pflag.Flag) {`}},
		[]string{"./cmd/leasehold -run ^TestCompletionOfFlags$"}, 0},
	{"command: TAB waits for as long as a store is silent", []edit{{"cmd/leasehold/completion.go",
		`completesFor = time.Second`, `completesFor = time.Minute`}},
		[]string{"./cmd/leasehold -run ^TestCompletionOfKeys$"}, 0},
	{"command: the dead of a table hold on", []edit{{"cmd/leasehold/tables.go",
		`return m.Error != "" && m.RenewedAt`, `return m.Error == "" && m.RenewedAt`}},
		[]string{"./cmd/leasehold -run ^TestStatusOfADeadMember$"}, 0},
	{"command: lives on when the guard is killed", []edit{{"cmd/leasehold/internal/guard/supervise.go", `	s.endAll()
	if lost ||`, `	if lost ||`}}, []string{"./cmd/leasehold -run ^TestLeaseholdOrItsGuardIsKilled$"}, 28},
	{"command: a sidecar is killed with a guard", []edit{{"cmd/leasehold/internal/guard/supervise.go",
		`sendAll(s.group(), s.mark, unix.SIGKILL, false)`, `sendAll(s.group(), "", unix.SIGKILL, false)`}},
		[]string{"./cmd/leasehold -run ^TestASidecarLivesOn$",
			"./cmd/leasehold -run ^TestTheCommandForNewLeadersIsAskedToEnd$"}, 0},
	{"command: what has left the process group lives on when the guard is killed", []edit{{
		"cmd/leasehold/internal/guard/guard_linux.go", `p.group == group || p.marked(mark)`, `p.group == group`}},
		[]string{"./cmd/leasehold -run ^TestASidecarLivesOn$"}, 28},
	{"command: the guard keeps the files of its caller", []edit{{"cmd/leasehold/internal/guard/guard.go",
		`	closeInherited()
`, ``}}, []string{"./cmd/leasehold -run ^TestTheGuardKeepsNoFileOfTheCaller$"}, 0},
	{"command: a lock is taken where there is no /proc", []edit{{"cmd/leasehold/internal/guard/guard_linux.go",
		`	case err != nil:
		return "there is no /proc,`, `	case err != nil:
		return ""
	case self == "":
		return "there is no /proc,`}}, []string{"./cmd/leasehold -run ^TestThereIsNoProc$"}, 0},
	{"command: elect outlives its terminal", []edit{{"cmd/leasehold/elect.go",
		`		if !r.hasLostTerminal() {`, `		if r.terminal || !r.hasLostTerminal() {`}, {
		"cmd/leasehold/elect.go", `(hungUp || r.hangUp.Load()) && r`, `hungUp && r`}},
		[]string{"./cmd/leasehold -run ^TestElectEndsWithItsTerminal$"}, 0},
	{"command: elect outlives the terminal that its command had", []edit{{
		"cmd/leasehold/internal/guard/supervise.go", `s.terminal && !HasTerminal()`, `false`}},
		[]string{"./cmd/leasehold -run ^TestElectEndsWithItsTerminal$"}, 0},
	{"command: SIGHUP ends a campaign", []edit{{"cmd/leasehold/elect.go",
		`return r.terminal && !guard.HasTerminal()`, `return !guard.HasTerminal()`}},
		[]string{"./cmd/leasehold -run ^TestElectPassesSIGHUPOnWithoutATerminal$"}, 0},
	{"command: a script needs a line for its interpreter", []edit{{"cmd/leasehold/internal/guard/guard.go",
		`errors.Is(err, syscall.ENOEXEC) && isText(path)`, `errors.Is(err, syscall.ENOEXEC) && isText("")`}},
		[]string{"./cmd/leasehold -run ^TestAScriptWithoutAnInterpreter$"}, 0},
	{"command: a program of another machine is run as a script", []edit{{"cmd/leasehold/internal/guard/guard.go",
		` && !bytes.Contains(first[:n], []byte{0})`, ` && !bytes.Contains(first[:n*0], []byte{0})`}},
		[]string{"./cmd/leasehold -run ^TestAScriptWithoutAnInterpreter$"}, 0},
	{"command: a release wakes nobody in a directory", []edit{{"cmd/leasehold/campaign.go",
		`			lock.Wake()
`, ``}}, []string{"./cmd/leasehold -run ^TestEightRunsOneAfterTheOther$"}, 0},
	{"command: a release wakes nobody in a table of a directory", []edit{{"cmd/leasehold/tablerun.go",
		`store.OnChange(table.Key(), table.Wake)`, `store.OnChange(table.Key(), func() {})`}},
		[]string{"./cmd/leasehold -run ^TestEightRunsOneAfterTheOther$"}, 0},
	{"command: nobody stands in for a guard that is stopped",
		[]edit{{"cmd/leasehold/internal/guard/supervise.go", `			s.killAll()
			backup =`, `			backup =`}}, []string{"./cmd/leasehold -run " +
			"^TestALeaseIsLostWhileTheGuardIsStopped$"}, 28},
	{
		"command: SIGKILL without SIGTERM",
		[]edit{{"cmd/leasehold/internal/guard/guard.go", `	g.signal(unix.SIGTERM)`, `	g.signal(unix.SIGKILL)`}},
		[]string{"./cmd/leasehold -run ^TestLeaseholdIsStopped$"},
		28,
	},
	{
		"command: SIGKILL when others may lead",
		[]edit{{"cmd/leasehold/internal/guard/supervise.go", `valid+int64(s.Margin/2)`, `valid+int64(2*s.Margin)`}},
		[]string{"./cmd/leasehold -run ^TestLeaseholdIsStopped$"},
		28,
	},
	{
		"command: what has left the process group is not found",
		[]edit{{"cmd/leasehold/internal/guard/guard_linux.go", `		if ours[p.pid] {
			found`, `		if ours[p.pid] && p.group != p.pid {
			found`}},
		[]string{"./cmd/leasehold -run ^TestLeaseholdIsStopped$"},
		28,
	},
	{"command: dead when the main thread has ended", []edit{{"cmd/leasehold/internal/guard/guard_linux.go",
		`f[0] == "X") && threads < 2,`,
		`f[0] == "X") && threads < 1<<30,`}},
		[]string{"./cmd/leasehold -run ^TestAProcessWithoutItsMainThread"}, 28},
	{"command: the number of a command is free while something of it is left", []edit{{
		"cmd/leasehold/internal/guard/guard.go",
		`	if g.cgroup.populated() || len(`,
		`	if !g.reaped {
		g.reap()
	}
	if g.cgroup.populated() || len(`}},
		[]string{"./cmd/leasehold -run ^TestTheNumberOfACommandIsNotUsedAgain$"}, 0},
	{"command: what is in the control group lives on when leasehold is killed", []edit{{
		"cmd/leasehold/internal/guard/guard.go",
		`		g.cgroup.kill()`,
		`		_ = g.cgroup`}},
		[]string{"./cmd/leasehold -run ^TestTheControlGroupIsEmptiedAndRemoved$"}, 28},
	{"command: what is in the control group lives on when the guard is killed", []edit{{
		"cmd/leasehold/internal/guard/supervise.go",
		`	s.cgroup.kill()
`, ``}},
		[]string{"./cmd/leasehold -run ^TestTheControlGroupIsEmptiedAndRemoved$"}, 28},
	{"command: what has left the control group lives on", []edit{{"cmd/leasehold/internal/guard/guard.go",
		`		g.cgroup.kill()`,
		`		if g.cgroup.kill(); g.cgroup != "" {
			return
		}`}},
		[]string{"./cmd/leasehold -run ^TestACommandLeavesItsControlGroup$"}, 28},
	{"command: a control group stays when leasehold is killed", []edit{{"cmd/leasehold/internal/guard/guard.go",
		`			g.cgroup.remove()
			return g.report() != nil`,
		`			return g.report() != nil`}},
		[]string{"./cmd/leasehold -run ^TestTheControlGroupIsEmptiedAndRemoved$"}, 0},
	{"command: not started where the system refuses a control group", []edit{{"cmd/leasehold/internal/guard/guard.go",
		`		outside, _ = errors.AsType[syscall.Errno](err)`,
		`		outside, _ = errors.AsType[syscall.Errno](err)
		return outside, err`}},
		[]string{"./cmd/leasehold -run ^TestAControlGroupInADelegatedPart$"}, 0},
	{"command: the guard's time counts from after the lease was asked", []edit{{
		"cmd/leasehold/internal/guard/supervise.go",
		`	now := bootTime()
	return now + int64(left())`,
		`	valid := left()
	return bootTime() + int64(valid)`}},
		[]string{"./cmd/leasehold/internal/guard -run ^TestTheGuardsTimeCountsFromBeforeTheLeaseIsAsked$"}, 28},
	{"command: nobody tells that the guard is stopped", []edit{{"cmd/leasehold/internal/guard/supervise.go",
		`s.guardStopped && !was`,
		`s.guardStopped && was && !was`}},
		[]string{"./cmd/leasehold -run ^TestRunWithAStoppedGuard$"}, 0},
	{"command: the guard has no threads in reserve", []edit{{"cmd/leasehold/internal/guard/guard.go",
		`	ReserveThreads(guardThreads)`,
		`	ReserveThreads(0 * guardThreads)`}},
		[]string{"./cmd/leasehold -run ^TestTheCommandUsesUpAllProcesses$"}, 0},
	{"command: threads in reserve end with their goroutines", []edit{{"cmd/leasehold/internal/guard/threads.go",
		`			runtime.UnlockOSThread()`,
		`			_ = 0`}},
		[]string{"./cmd/leasehold -run ^TestTheCommandUsesUpAllProcesses$"}, 0},
	{
		"command: a lost lease is not told",
		[]edit{{
			"cmd/leasehold/internal/guard/supervise.go",
			`result.Code, result.Lost = status.ExitStatus(), second == 1`,
			`result.Code, result.Lost = status.ExitStatus(), second == 2`}},
		[]string{"./cmd/leasehold -run ^TestExitCodesOfRun$"},
		30,
	},
	{
		"command: a signal is not told from an exit code",
		[]edit{{"cmd/leasehold/internal/guard/supervise.go", `		if status.Signaled() {`,
			`		if status.Signaled() && false {`}},
		[]string{"./cmd/leasehold -run ^TestExitCodesOfRun$"},
		30,
	},
	{
		"command: an exit code over 255",
		[]edit{{"cmd/leasehold/run.go", `heldCode < 0 || heldCode > 255`, `heldCode < 0`}},
		[]string{"./cmd/leasehold -run ^TestArgumentsThatCannotWork$"},
		30,
	},
	{
		"command: keys of a list as XML has them",
		[]edit{{"cmd/leasehold/internal/place/store.go", `Prefix: &prefix, EncodingType: types.EncodingTypeUrl, //`,
			`Prefix: &prefix, //`}},
		[]string{"./cmd/leasehold -run ^TestListWithForeignKeys$"},
		0,
	},
	{
		"command: a key that the list does not tell whole is free",
		[]edit{{"cmd/leasehold/internal/place/store.go", `if strings.ContainsRune(text, utf8.RuneError) {`,
			`if false && strings.ContainsRune(text, utf8.RuneError) {`}},
		[]string{"./cmd/leasehold -run ^TestListWithForeignKeys$"},
		0,
	},
	{
		"command: a lock that may not be read is no failure",
		[]edit{{"cmd/leasehold/status.go", `r.view.State == "denied" && refused == nil`,
			`r.view.State == "denied?" && refused == nil`}},
		[]string{"./cmd/leasehold -run ^TestListShowsWhatCannotBeRead$"},
		30,
	},
	{
		"command: the URL of a listed lock names another", []edit{{"cmd/leasehold/internal/place/url.go",
			`dir.EscapedPath()+url.PathEscape(l.Key)`,
			`dir.EscapedPath()+(&url.URL{Path: l.Key}).EscapedPath()`}},
		[]string{
			"./cmd/leasehold/internal/place -run ^FuzzURLOfALock$",
			"./cmd/leasehold -run ^TestAListedURLNamesItsLock$/directory",
		}, 34,
	},
	{
		"command: %2F in the URL of a file parts directories", []edit{{"cmd/leasehold/internal/place/url.go",
			`	text := u.RawPath
	if text == "" {`,
			`	text := u.Path
	if text == "" {`}},
		[]string{
			"./cmd/leasehold/internal/place -run ^FuzzURLOfALock$",
			"./cmd/leasehold -run ^TestAListedURLNamesItsLock$/directory",
		}, 34,
	},
	{"command: writes do not name their encryption",
		[]edit{{"cmd/leasehold/internal/place/store.go", `	if l.sse == "" {`, `	if true {`}},
		[]string{"./cmd/leasehold -run ^TestWritesNameTheirEncryption$"}, 0},
	{"command: a URL that is printed forgets the encryption",
		[]edit{{
			"cmd/leasehold/internal/place/url.go",
			`		"sse": l.sse, "sse-kms-key-id": l.sseKey} {`, `	} {`}},
		[]string{"./cmd/leasehold -run ^TestWritesNameTheirEncryption$"}, 0},
	{"command: an encryption that does not exist",
		[]edit{{"cmd/leasehold/internal/place/url.go", `	if why := badEncryption(l.sse, l.sseKey); why != "" {`,
			`	if why := badEncryption(l.sse, l.sseKey); false {`}},
		[]string{"./cmd/leasehold -run ^TestWrongURLs$"}, 0},
	{"command: requests of its own sign Accept-Encoding",
		[]edit{{"cmd/leasehold/internal/place/store.go", `append(o.APIOptions, s3api.UnsignedEncoding, l.encrypt)`,
			`append(o.APIOptions, l.encrypt)`}},
		[]string{"./cmd/leasehold -run ^TestWritesNameTheirEncryption$"}, 0},
	{
		"command: a list without a limit", []edit{{"cmd/leasehold/internal/place/store.go",
			`soon, cancel := context.WithTimeout(ctx, RequestLimit)
			page`,
			`soon, cancel := context.WithTimeout(ctx, 100*RequestLimit)
			page`}},
		[]string{"./cmd/leasehold -run ^TestEveryRequestEnds$/silent_s3_list"}, 30,
	},
	{
		"command: a web page is an empty list", []edit{{"cmd/leasehold/internal/place/store.go",
			`out.IsTruncated == nil && out.Name == nil`,
			`out.IsTruncated == nil && out.Name != nil`}},
		[]string{"./cmd/leasehold -run ^TestAWebPageIsNoStore$"}, 30,
	},
	{
		"command: a refusal of the metadata service is one of the store", []edit{{"cmd/leasehold/internal/exit/exit.go",
			`	if refusedCredentials(err) {
		return false
	}
`,
			``}, {"cmd/leasehold/internal/exit/exit.go",
			`	case refusedCredentials(err):
		return Config
`,
			``}},
		[]string{"./cmd/leasehold -run ^TestEveryExitCodeOfThePage$"}, 30,
	},
	{
		"command: help that could not be written has succeeded", []edit{{"cmd/leasehold/main.go",
			`	case unwritten != nil:`,
			`	case unwritten != nil && err != nil:`}},
		[]string{"./cmd/leasehold -run ^TestEveryExitCodeOfThePage$"}, 30,
	},
	{
		"command: a lock that cannot be read is not in the table", []edit{{"cmd/leasehold/status.go",
			`len(locations) == 1 && !a.json()`,
			`len(locations) > 0`}},
		[]string{"./cmd/leasehold -run ^TestStatusOfSeveralLocks$"}, 34,
	},
	{
		"command: a password of an endpoint is printed", []edit{{"cmd/leasehold/internal/place/url.go",
			`	query = inParameter.ReplaceAllString(query, "//...@")
`,
			``}},
		[]string{"./cmd/leasehold -run ^TestNoSecretOfAURLIsPrinted$"}, 34,
	},
	{
		"command: a doctor gives up among others", []edit{{"cmd/leasehold/internal/doctor/probe.go",
			`time.Since(began) > probePatience`,
			`time.Since(began) > probeRest`}},
		[]string{"./cmd/leasehold/internal/doctor -run ^TestADoctorAmongOthers$"}, 0,
	},
	{"command: a handle of an earlier version is one of this", []edit{{"cmd/leasehold/handle.go",
		"`^term=(", "`^(?:term=)?("}, {"cmd/leasehold/handle.go",
		`	case err == nil && oldHandle.MatchString(fragment):`,
		`	case err == nil && oldHandle.MatchString(text):`}},
		[]string{"./cmd/leasehold -run ^TestWhatIsNotAHandle$"}, 0},
	{"command: whoever renews is the holder", []edit{{"cmd/leasehold/handle.go",
		`	if found.Holder != "" {`, `	if found.Holder == "" {`}},
		[]string{"./cmd/leasehold -run ^TestAHandleGoesThroughThePipeline$"}, 0},
	{"command: a renewal has a TTL of its own", []edit{{"cmd/leasehold/handle.go",
		`cmp.Or(ttl, found.TTL, defaultTTL)`, `cmp.Or(ttl, defaultTTL)`}},
		[]string{"./cmd/leasehold -run ^TestAHandleGoesThroughThePipeline$"}, 0},
	{"command: a release that fails half way holds the lock", []edit{{"cmd/leasehold/handle.go",
		`h.resume(ctx, store, retryFor)`, `h.resume(ctx, store, 0)`}},
		[]string{"./cmd/leasehold -run ^TestReleaseThatFailsHalfWay$"}, 0},
	{"command: a release loses to hold", []edit{{"cmd/leasehold/handle.go",
		`!errors.Is(err, leasehold.ErrLost) {`, `lease.Token() > 0 {`}},
		[]string{"./cmd/leasehold -run ^TestReleaseBesideHold$"}, 0},
	{"command: a release leaves a member that hold has renewed", []edit{{"cmd/leasehold/tablehandle.go",
		`case !h.goesOn(ctx, store):`, `case true:`}},
		[]string{"./cmd/leasehold -run ^TestReleaseInATableBesideHold$"}, 0},
	{"command: hold takes a member that was released for one that was lost", []edit{{"cmd/leasehold/hold.go",
		`!h.inTable(ctx, store) {`, `false {`}},
		[]string{"./cmd/leasehold -run ^TestHoldInATable$"}, 0},
	{"command: the handle of another lease of the table is lost", []edit{{"cmd/leasehold/acquire.go",
		`case before.goesOn(ctx, store):`, `case false && before.goesOn(ctx, store):`}},
		[]string{"./cmd/leasehold -run ^TestStepsInATable$"}, 0},
	{"command: a lease of a table gets another TTL than the table names", []edit{{"cmd/leasehold/acquire.go",
		`case changed && h.table != nil:`, `case false:`}},
		[]string{"./cmd/leasehold -run ^TestStepsInATable$"}, 0},
	{"command: a handle costs a second read", []edit{{"cmd/leasehold/handle.go",
		`	case 2: // of Resume
`, ``}},
		[]string{"./cmd/leasehold -run ^TestRequestsOfSteps$"}, 0},
	{"command: hold brings an old TTL back", []edit{{"cmd/leasehold/handle.go",
		`	if !v.resumed && etag`, `	if v.object.ETag == "" && etag`}},
		[]string{"./cmd/leasehold -run ^TestANewTTLBesideHold$"}, 0},
	{
		"command: a handle that others can read",
		[]edit{{"cmd/leasehold/handle.go", `os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600`,
			`os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644`}},
		[]string{"./cmd/leasehold -run ^TestHandleFile$"},
		31,
	},
	{
		"command: a file that is a device is replaced by a handle", []edit{{"cmd/leasehold/handle.go",
			`	case !info.Mode().IsRegular():`,
			`	case info.Mode()&0 != 0:`}},
		[]string{"./cmd/leasehold -run ^TestHandleFileThatIsNone$"}, 31,
	},
	{
		"command: an acquire that fails empties the file of another", []edit{{"cmd/leasehold/handle.go",
			`	beside := filepath.Join(`,
			`	_ = os.Truncate(path, 0)
	beside := filepath.Join(`}},
		[]string{"./cmd/leasehold -run ^TestHandleFile$"}, 31,
	},
	{"command: hold goes on for ever", []edit{{
		"cmd/leasehold/hold.go",
		`		if !time.Now().Before(end) {`,
		`		if end.IsZero() {`,
	}}, []string{"./cmd/leasehold -run ^TestHoldEnds$"}, 0},
	{"command: hold gives up while the store fails", []edit{{
		"cmd/leasehold/hold.go",
		`	if err == nil || final(err) ||`,
		`	if err == nil || err != nil ||`,
	}}, []string{"./cmd/leasehold -run ^TestHoldGoesOnWhileTheStoreFails$"}, 0},
	{"command: a wait in silence", []edit{{
		"cmd/leasehold/campaign.go",
		`	case c.noWait:`,
		`	case !c.noWait:`,
	}}, []string{"./cmd/leasehold -run ^TestWhomOneWaitsForIsTold$"}, 0},
	{"command: SIGUSR1 to the whole group", []edit{{
		"cmd/leasehold/internal/guard/supervise.go",
		`		s.send(s.pid, number)
	default:`, `		s.send(-s.pid, number)
	default:`}}, []string{"./cmd/leasehold -run ^TestSignalsGoToTheCommandOrToItsGroup$"}, 32},
	{"command: SIGTERM to the command alone", []edit{{"cmd/leasehold/internal/guard/supervise.go", `	default:
		s.send(-s.pid, number)`, `	default:
		s.send(s.pid, number)`}}, []string{"./cmd/leasehold -run ^TestSignalsGoToTheCommandOrToItsGroup$"}, 32},
	{"command: a stopped command is not woken to end", []edit{{"cmd/leasehold/internal/guard/supervise.go",
		`		s.send(-s.pid, unix.SIGCONT) // one`,
		`		s.send(-s.pid, 0) // one`}},
		[]string{"./cmd/leasehold -run ^TestASignalReachesAStoppedCommand$"}, 32},
	{"command: a command stays stopped in the foreground", []edit{{"cmd/leasehold/internal/guard/supervise.go",
		`		s.wanted = time.After(200 * time.Millisecond)`,
		`		s.wanted = make(chan time.Time)`}},
		[]string{"./cmd/leasehold -run ^TestACommandIsBroughtToTheForeground$"}, 32},
	{"command: a command waits for a terminal that has gone", []edit{{"cmd/leasehold/internal/guard/supervise.go",
		`	default:
		s.Log.Warn("the command was stopped to wait`,
		`	default:
		s.wanted = time.After(200 * time.Millisecond)
		return
		s.Log.Warn("the command was stopped to wait`}},
		[]string{"./cmd/leasehold -run ^TestTheTerminalOfAStoppedCommandHasGone$"}, 32},
	{"command: an exit code in place of the command's signal", []edit{{"cmd/leasehold/main.go",
		`	guard.Raise(s)
`, ``}},
		[]string{"./cmd/leasehold -run TestEndsByTheSignalOfItsCommand|TestCtrlCEndsAScript"}, 30},
	{"command: leasehold leaves a core file", []edit{{"cmd/leasehold/internal/guard/guard_linux.go",
		`	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
`, ``}},
		[]string{"./cmd/leasehold -run ^TestEndsByTheSignalOfItsCommand$"}, 0},
	{
		"command: a command for new leaders is not killed",
		[]edit{{"cmd/leasehold/hooks.go", `[]unix.Signal{unix.SIGTERM, unix.SIGKILL}`, `[]unix.Signal{unix.SIGTERM}`}},
		[]string{"./cmd/leasehold -run ^TestElectEndsWhileACommandForNewLeadersHangs$"},
		32,
	},
	{
		"command: orphans stay",
		[]edit{{
			"cmd/leasehold/internal/guard/reap_linux.go",
			`_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil)`, `_ = unix.WNOHANG`}},
		[]string{"./cmd/leasehold -run ^TestOrphansLeaveNoZombies$"},
		33,
	},
	{
		"command: directions of writing reach the terminal",
		[]edit{{"cmd/leasehold/internal/exit/terminal.go", `r == utf8.RuneError || !unicode.IsPrint(r)`,
			`r == utf8.RuneError || unicode.IsControl(r)`}},
		[]string{"./cmd/leasehold -run ^TestNamesAreNoCommandsForTheTerminal$"},
		34,
	},
	{
		"command: a deleted lock was never taken",
		[]edit{{"cmd/leasehold/watch.go", `		s.State = "deleted"`, `		s.State = "free"`}},
		[]string{"./cmd/leasehold -run ^TestWatchHasALineForEachState$"},
		34,
	},
	{
		"a renewal in the background makes a context that it does not need",
		[]edit{{"request.go", `if ctx.Done() == nil {`, `if false {`}},
		[]string{"./bench -run ^TestCountsAreThoseOfThePage$"},
		0,
	},
	{
		"createonly: no LIST after a create",
		[]edit{{"createonly/createonly.go", `case versions[0] >= n+Keep:`, `case versions[0] >= 2*n+4*Keep:`}},
		[]string{"./createonly -run ^TestTheSleeper$", "./createonly -run ^TestALossyNetwork$"}, 18,
	},
	{
		"createonly: a write counts while its base is there",
		[]edit{{"createonly/createonly.go", `case versions[0] >= n+Keep:`,
			`case versions[0] >= n+Keep && versions[len(versions)-1] >= n:`}},
		[]string{"./createonly -run ^TestTheBaseIsStillThere$"}, 18,
	},
	{
		"createonly: a write counts one version too long",
		[]edit{{"createonly/createonly.go", `case versions[0] >= n+Keep:`, `case versions[0] > n+Keep:`}},
		[]string{"./createonly -run ^TestAWriteCountsBelowTheBound$"}, 18,
	},
	{
		"createonly: a version is deleted one write too early",
		[]edit{{"createonly/createonly.go", `if n+Keep <= versions[0] &&`, `if n+Keep <= versions[0]+1 &&`}},
		[]string{"./createonly -run ^TestTheSleeper$"}, 18,
	},
	{
		"createonly: a version that is missing is not noticed",
		[]edit{{"createonly/createonly.go", `		case gap == 0:`, `		case gap == 0 || true:`}},
		[]string{"./createonly -run ^TestBadInput$", "./createonly -run ^TestAGapThatAWriteFinds$"}, 18,
	},
	{
		"createonly: one LIST proves that a version is missing",
		[]edit{{"createonly/createonly.go", `case versions[0] == before:`,
			`case before == 0 || versions[0] == before:`}},
		[]string{"./createonly -run ^TestAListThatIsNotOfOneInstant$"}, 0,
	},
	{
		"createonly: a LIST without the writer's own version counts",
		[]edit{{"createonly/createonly.go", `if len(versions) == 0 || versions[0] < n {`,
			`if len(versions) == 0 {`}},
		[]string{"./createonly -run ^TestALaggingList$"}, 18,
	},
	{
		"createonly: a read counts when it has found the version",
		[]edit{{"createonly/createonly.go", `if versions[0] < n+Keep {`, `if err == nil || versions[0] < n+Keep {`}},
		[]string{"./createonly -run ^TestAReadThatMeetsASleeper$"}, 18,
	},
	{
		"createonly: a read counts one version too long",
		[]edit{{"createonly/createonly.go", `if versions[0] < n+Keep {`, `if versions[0] <= n+Keep {`}},
		[]string{"./createonly -run ^TestAReadThatMeetsASleeper$"}, 18,
	},
	{
		"createonly: a delete removes the object",
		[]edit{{"createonly/createonly.go", `_, err := s.replace(ctx, key, etag, tombstone)
	return err`, `n, err := parseETag(key, etag)
	if err == nil {
		err = s.objects.Delete(ctx, name(key, n))
	}
	return err`}},
		[]string{"./createonly -run ^TestADeletedKey$"}, 18,
	},
	{
		"createonly: a version that cannot be read does not exist",
		[]edit{{"createonly/createonly.go", `but reading it fails: %w", n, key, unknown(err))`,
			`but reading it fails: %w", n, key, err)`}},
		[]string{"./createonly -run ^TestAVersionThatCannotBeRead$"}, 18,
	},
	{
		"createonly: a create over an object is refused without a request",
		[]edit{{"createonly/createonly.go", `		n--
	}`, `		return "", leasehold.ErrPreconditionFailed
	}`}},
		[]string{"./createonly -run ^TestTheCanary$"}, 25,
	},
	{
		"createonly: lost deletes are never made up for",
		[]edit{{"createonly/createonly.go", `sweeps      = 4`, `sweeps      = 1`}},
		[]string{"./createonly -run ^TestLostDeletesAreMadeUpFor$"}, 0,
	},
	{
		"createonly: ETags of other keys are taken",
		[]edit{{"createonly/name.go", ` || !strings.HasPrefix(rest, shortHash([]byte(key))+"-") {`,
			` || !strings.Contains(rest, "-") {`}},
		[]string{"./createonly -run ^TestWrongArguments$", "./createonly -run ^TestConformance$"}, 0,
	},
	{
		"createonly: a LIST that is cut off may have any order",
		[]edit{{"createonly/name.go", `len(names) >= Listed && !slices.IsSorted(names)`, `len(names) > 2*Listed`}},
		[]string{"./createonly -run ^TestAListThatIsCutOff$"}, 18,
	},
	{
		"createonly: any answer is a list",
		[]edit{{"createonly/s3.go", `case aws.ToString(out.Prefix) != *in.Key:`, `case out == nil:`}},
		[]string{"./createonly -run ^TestAPageInsteadOfAList$"}, 11,
	},
	{
		"createonly: a LIST that does not go on is whole",
		[]edit{{"createonly/s3.go", `if enough || !aws.ToBool(out.IsTruncated) {`, `if enough || next == "" {`}},
		[]string{
			"./createonly -run ^TestAListThatDoesNotGoOn$",
			"./createonly -run ^TestAListThatEndsWithAToken$",
		}, 11,
	},
	{
		"createonly: a LIST may go in a circle",
		[]edit{{"createonly/s3.go", `if next == "" || next == aws.ToString(list.ContinuationToken) {`,
			`if next == "" {`}},
		[]string{"./createonly -run ^TestAListThatGoesInACircle$"}, 0,
	},
	{
		"createonly: a LIST in no order is read up to a page",
		[]edit{{"createonly/s3.go", `len(l.suffixes) >= Listed && slices.IsSorted(l.suffixes)`,
			`len(l.suffixes) >= Listed`}},
		[]string{"./createonly -run ^TestAListInNoOrder$"}, 18,
	},
	{
		"createonly: the body that an ETag names is not compared",
		[]edit{{"createonly/createonly.go", `case formatETag(key, n, there) != etag:`, `case len(there) < 0:`}},
		[]string{
			"./createonly -run ^TestAProcessThatWasOverlooked$",
			"./createonly -run ^TestALeaderThatWasOverlooked$",
		}, 18,
	},
	{
		"createonly: a write begins where its base is gone",
		[]edit{{"createonly/createonly.go", `case errors.Is(err, leasehold.ErrNotExist):
		return "", fmt.Errorf("writing`, `case errors.Is(err, leasehold.ErrNotExist):
		return s.write(ctx, key, n, body)
	case errors.Is(err, leasehold.ErrPreconditionFailed):
		return "", fmt.Errorf("writing`}},
		[]string{"./createonly -run ^TestAProcessThatWasOverlooked$"}, 0,
	},
	{
		"createonly: what fails after a create is final",
		[]edit{{"createonly/createonly.go", `			passing(err))`, `			err)`}},
		[]string{
			"./createonly -run ^TestWhatFailsAfterACreateIsNotFinal$",
			"./createonly -run ^TestALockWhoseListIsRefusedOnce$",
		}, 0,
	},
	{
		"createonly: a folder ends a lock",
		[]edit{{"createonly/name.go", `if strings.HasSuffix(object, "/") {`, `if object == "" {`}},
		[]string{"./createonly -run ^TestAListWithFoldersAndRepetitions$"}, 0,
	},
	{
		"createonly: a name that is listed twice is a gap",
		[]edit{{"createonly/name.go", `slices.Compact(versions), nil`, `versions, nil`}},
		[]string{"./createonly -run ^TestAListWithFoldersAndRepetitions$"}, 0,
	},
	{
		"createonly: many versions in no order are not swept",
		[]edit{{"createonly/createonly.go", `s.sweep(ctx, key, versions, max(sweeps, len(names)-Listed+1))`, ``}},
		[]string{"./createonly -run ^TestManyVersionsInNoOrder$"}, 0,
	},
	{
		"createonly: a delete that hangs is not told",
		[]edit{{"createonly/createonly.go", `failed(fmt.Errorf("a DELETE has not ended after %v", sweepTime))`, ``}},
		[]string{"./createonly -run ^TestDeletesThatAreLeftUndoneAreTold$"}, 0,
	},
	{
		"createonly: a key that no list shows is taken",
		[]edit{{"createonly/createonly.go", `why := storeapi.BadKey(key); why != "" &&`,
			`why := storeapi.BadKey("a"); why != "" &&`}},
		[]string{"./createonly -run ^TestWrongArguments$"}, 0,
	},
	{
		"command: a rule for the versions of a lock does not cover it",
		[]edit{{"cmd/leasehold/internal/doctor/s3settings.go", `	if d.at.CreateOnly {
`, `	if d.at.CreateOnly && d.at.Key == "" {
`}},
		[]string{"./cmd/leasehold -run ^TestDoctorFindsBadSettings$"}, 0,
	},
	{
		"createonly: If-None-Match beside the header for creates",
		[]edit{{"createonly/s3.go", `		in.IfNoneMatch = nil
`, ``}},
		[]string{"./createonly -run ^TestACreateIsNotRepeated$", "./createonly -run ^TestS3Conformance$"}, 0,
	},
	{
		"createonly: FileAlreadyExists is an unknown outcome",
		[]edit{{"internal/s3api/errors.go", `	"FileAlreadyExists": true,`, `	"FileAlreadyExists": false,`}},
		[]string{"./createonly -run ^TestS3Conformance$", ". -run ^TestS3AnswersBecomeTheErrorsOfStore$"}, 0,
	},
	{
		"createonly: ObjectAlreadyExists is an unknown outcome",
		[]edit{{"internal/s3api/errors.go", `	"ObjectAlreadyExists": true,`, `	"ObjectAlreadyExists": false,`}},
		[]string{
			". -run ^TestS3AnswersBecomeTheErrorsOfStore$",
			"./fenced -run ^TestFencedCreateThatIsRefusedByAnotherName$",
		}, 0,
	},
	{
		"a key may have a character that no list shows",
		[]edit{{"internal/storeapi/key.go", `strings.ContainsAny(key, "\ufffe\uffff")`,
			`strings.Contains(key, "\ufffe\uffff")`}},
		[]string{"./internal/storeapi -run ^TestEveryKeyCanBeListed$"}, 0,
	},
	{
		"checks: creates need not be enforced on a server that only creates",
		[]edit{{"internal/storecheck/storecheck.go", `			creates = err == nil
`, `			creates = true
`}},
		[]string{". -run ^TestCheckStoreOnAServerThatOnlyCreates$"}, 0,
	},
	{
		"checks: any store that fails only creates",
		[]edit{{"internal/storecheck/storecheck.go", `noUpdates = noUpdates || errors.Is(err, storeapi.ErrUnsafeStore)`,
			`noUpdates = noUpdates || err != nil`}},
		[]string{". -run ^TestCheckStoreNamesNoPackageForOtherFailures$"}, 0,
	},
	{
		"createonly: nobody waits for deletes that are left undone",
		[]edit{{"createonly/createonly.go", `pile := len(versions) > 2*Keep`, `pile := len(versions) > 2*Listed`}},
		[]string{"./createonly -run ^TestProcessesThatEndAfterAWrite$"}, 0,
	},
	{
		"createonly: a delete that hangs holds up a write",
		[]edit{{"createonly/createonly.go", `		case <-ctx.Done():
`, `		case <-time.After(sweepTime):
`}},
		[]string{"./createonly -run ^TestDeletesThatHang$"}, 0,
	},
	{
		"createonly: a key may stand in the place of versions",
		[]edit{{"createonly/createonly.go", `if strings.Contains("/"+key+"/", prefix("")) {`,
			`if strings.Contains(key, "//") {`}},
		[]string{"./createonly -run ^TestAKeyInThePlaceOfVersions$"}, 0,
	},
	{
		"command: a URL loses createonly=1",
		[]edit{{"cmd/leasehold/internal/place/url.go", `	if l.CreateOnly {
`, `	if l.CreateOnly && l.Scheme != "s3" {
`}},
		[]string{"./cmd/leasehold/internal/place -run ^TestURLOfALockThatOnlyCreates$"}, 0,
	},
	{
		"command: a list shows each version of a lock",
		[]edit{{"cmd/leasehold/internal/place/store.go", `if seen[key] || `, `if `}},
		[]string{"./cmd/leasehold/internal/place -run ^TestListOfLocksThatOnlyCreate$"}, 0,
	},
	{
		"command: a renewal waits for whoever reads standard error",
		[]edit{{"cmd/leasehold/stderr.go", `	default:
		l.dropped.Add(1)
	}
`, `	}
`}},
		[]string{"./cmd/leasehold -run ^TestErrorLinesThatNobodyReads$"}, 0,
	},
	{
		"command: the guard waits for whoever reads standard error",
		[]edit{{"cmd/leasehold/crash.go", `	a.output = o.Output
`, `	a.output = o.Output
	_, _ = os.Stderr.WriteString("leasehold was killed\n")
`}},
		[]string{"./cmd/leasehold -run ^TestNobodyReadsWhatTheGuardSays$"}, 36,
	},
	{
		"command: the /proc of another namespace is taken for its own",
		[]edit{{"cmd/leasehold/internal/guard/guard_linux.go", `self != strconv.Itoa(os.Getpid())`,
			`self == strconv.Itoa(-os.Getpid())`}},
		[]string{"./cmd/leasehold -run ^TestTheProcOfAnotherNamespace$"}, 29,
	},
	{
		"command: a request that never ends keeps its connection",
		[]edit{{"cmd/leasehold/listen.go", `ReadTimeout: 10 * time.Second, `, ``}},
		[]string{"./cmd/leasehold -run ^TestARequestThatNeverEnds$"}, 0,
	},
	{
		"command: those who wait for a term take every connection",
		[]edit{{"cmd/leasehold/listen.go", `running := make(chan struct{}, n)`,
			`running := make(chan struct{}, n+maxConnections)`}},
		[]string{"./cmd/leasehold -run ^TestManyWhoWait$"}, 0,
	},
	{
		"leaderhttp: requests wait for whoever reads the log",
		[]edit{{"leaderhttp/leaderhttp.go", `	if p.takes(t, inOrder) && err != nil {
`, `	if p.takes(t, inOrder) && err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
`}},
		[]string{"./leaderhttp -run ^TestAWarningThatNobodyReads$"}, 0,
	},
	{
		"createonly: a delete with a condition",
		[]edit{{"createonly/s3.go", `	in.IfMatch = nil
`, ``}},
		[]string{"./createonly -run ^TestRequestsOfS3HaveNoIfMatch$"}, 0,
	},
	{
		"table: a later request passes one that waits",
		[]edit{{"internal/tables/claims.go", `	return front{f.weight + c.weight(), min(`,
			`	return front{f.weight, min(`}},
		[]string{
			"./internal/tables -run ^TestAWriterBehindReadersDoesNotStarve$",
			"./internal/tables -run ^TestEveryState$",
		}, 39,
	},
	{
		"table: a reader weighs nothing",
		[]edit{{"internal/tables/claims.go", `	case c.Shared:
		return 1`,
			`	case c.Shared:
		return 0`}},
		[]string{"./internal/tables -run ^TestEverySequence$"}, 38,
	},
	{
		"table: a request that is dropped still counts",
		[]edit{{"internal/tables/table.go", `		*l.side(r) -= c.weight()
		if l.gone++`,
			`		if l.gone++`}},
		[]string{
			"./internal/tables -run ^TestWhoFreesALockHandsItOver$",
			"./internal/tables -run ^TestEverySequence$",
		}, 38,
	},
	{
		"table: what a member leaves behind stays",
		[]edit{{"internal/tables/table.go", `		if id.Member == member {
			t.Drop(id)`,
			`		if id.Member == member && false {
			t.Drop(id)`}},
		[]string{
			"./internal/tables -run ^TestEverySequence$",
			"./internal/tables -run ^TestARequestForSeveralLocksDoesNotStarve$",
		}, 45,
	},
	{
		"table: a number of a member comes again beside the living",
		[]edit{{"internal/tables/table.go", `		n = max(n, other+1)`,
			`		n = max(n, min(other+1, 2))`}},
		[]string{"./internal/tables -run ^TestMembers$"}, 38,
	},
	{
		"table: a grant has the revision before it",
		[]edit{{"internal/tables/table.go", `			t.turn(r, t.Revision)`,
			`			t.turn(r, max(t.Revision, 2)-1)`}},
		[]string{
			"./internal/tables -run ^TestWhoFreesALockHandsItOver$",
			"./internal/tables -run ^TestEverySequence$",
		}, 40,
	},
	{
		"table: a revision does not rise above those that are remembered",
		[]edit{{"internal/tables/table.go", `	t.Revision = max(t.Revision, atLeast) + 1`,
			`	t.Revision++`}},
		[]string{"./internal/tables -run ^TestTheRevisionRises$"}, 40,
	},
	{
		"table: holders that exclude one another are believed",
		[]edit{{"internal/tables/decode.go", `!(front{}).lets(c, l.held)`,
			`!(front{}).lets(c, l.held) && false`}},
		[]string{"./internal/tables -run ^TestDamagedTables$"}, 38,
	},
	{
		"table: a semaphore is taken for a lock",
		[]edit{{"internal/tables/table.go", `l.semaphore != c.semaphore()`, `!l.semaphore && c.semaphore()`}},
		[]string{"./internal/tables -run ^TestRefusedRequests$"}, 44,
	},
	{
		"table: a clone shares its requests",
		[]edit{{"internal/tables/table.go", `	for r := range live(t.held, t.waiting) {
		c.add(&r)
	}`,
			`	for _, r := range slices.Concat(t.held, t.waiting) {
		if r.Claims != nil {
			c.add(r)
		}
	}`}},
		[]string{
			"./internal/tables -run ^TestAClonesChangesAreItsOwn$",
			"./internal/tables -run ^TestEverySequence$",
		}, 38,
	},
	{
		"table: a table of a later version is read as one of this",
		[]edit{{"internal/tables/decode.go", `"table":    func() { d.number(version, version) },`,
			`"table":    func() { d.number(version, version+1) },`}},
		[]string{"./internal/tables -run ^TestDamagedTables$"}, 16,
	},
	{
		"table: a member that is not known is passed over",
		[]edit{{"internal/tables/decode.go", `			d.fail("a %s has no member %.80q", of, name)
			return`,
			`			_ = d.text()
			continue`}},
		[]string{"./internal/tables -run ^TestDamagedTables$"}, 16,
	},
	{
		"table: a request is granted though only one of its locks is free",
		[]edit{{"internal/tables/table.go", `slices.ContainsFunc(r.Claims, waits)`,
			`slices.ContainsFunc(r.Claims[:1], waits)`}},
		[]string{"./internal/tables -run ^TestEverySequence$"}, 38,
	},
	{
		"table: a table that is too large is written",
		[]edit{{"internal/tables/table.go", `size > limit {`, `size > 2*limit {`}},
		[]string{"./internal/tables -run ^TestTablesThatAreNotWritten$"}, 44,
	},
	{
		"table: those who wait have no room for their tokens",
		[]edit{{"internal/tables/table.go", `	return waiting * (`, `	return waiting / 1000 * (`}},
		[]string{"./internal/tables -run ^TestAdmissionLeavesRoomForEveryGrant$"}, 44,
	},
	{
		"table: a full table grants more than can be read",
		[]edit{{"internal/tables/table.go", `excess > 0 {`, `excess > leasehold.MaxObjectSize {`}},
		[]string{"./internal/tables -run ^TestAFullTableGrantsAsManyAsFit$"}, 44,
	},
	{
		"table: one with more slots passes one with fewer",
		[]edit{{"internal/tables/claims.go", `<= min(cmp.Or(f.room, whole), c.room())`, `<= c.room()`}},
		[]string{
			"./internal/tables -run ^TestASemaphoreGrowsAndShrinks$",
			"./internal/tables -run ^TestEverySequence$",
			"./internal/proof/sim -run ^TestTableSeeds$",
		}, 39,
	},
	{
		"table: a request that was dropped stands in line",
		[]edit{{"internal/tables/claims.go", `!other.dropped() && !yield(`, `!yield(`}},
		[]string{"./internal/tables -run ^TestEverySequence$"}, 45,
	},
	{
		"member: a term is over when its object is missing",
		[]edit{{"internal/membership/verdict.go", `		return Verdict{Unknown, "it has no object"}, true`,
			`		return Verdict{Over, "it has no object"}, true`}},
		[]string{"./internal/membership -run ^TestVerdicts$"}, 41,
	},
	{
		"member: a higher token of another object ends a term",
		[]edit{{"internal/membership/verdict.go", `	case same && rec.Token > q.term.Token:`,
			`	case s.exists && rec.Token > q.term.Token:`}},
		[]string{
			"./internal/membership -run ^TestVerdicts$",
			"./internal/membership -run ^TestAHigherTokenOfAnotherObject$",
			"./internal/proof/sim -run ^TestMemberSeeds$",
		}, 41,
	},
	{
		"member: the release of another term of its token ends a term",
		[]edit{{"internal/membership/verdict.go", `	case this && rec.Released():`,
			`	case same && rec.Token == q.term.Token && rec.Released():`}},
		[]string{
			"./internal/membership -run ^TestVerdicts$",
			"./internal/membership -run ^TestATokenThatComesAgain$",
		}, 41,
	},
	{
		"member: what replaces an object may change all the time",
		[]edit{{"internal/membership/verdict.go", `		return shown{objectID: r.ObjectID}
`,
			`		return shown{objectID: "another"}
`}},
		[]string{
			"./internal/membership -run ^TestWhatAnObjectShows$",
			"./internal/membership -run ^TestObjectsThatChangePlaces$",
		}, 41,
	},
	{
		"member: what replaces an object needs no time",
		[]edit{{"internal/membership/verdict.go", `	if s.stood < q.lasts(q.ttl) {`,
			`	if s.stood < q.lasts(q.ttl)/4 {`}},
		[]string{
			"./internal/membership -run ^TestVerdicts$",
			"./internal/membership -run ^TestAnObjectThatWasDeleted$",
			"./internal/proof/sim -run ^TestMemberSeeds$",
		}, 41,
	},
	{
		"member: to have taken the object ends a term",
		[]edit{{"internal/membership/judge.go", `	if err != nil || v.State != Over {`,
			`	if err != nil {`}},
		[]string{
			"./internal/membership -run ^TestAnObjectThatWasDeleted$",
			"./internal/proof/sim -run ^TestMemberSeeds$",
		}, 41,
	},
	{
		"member: an answer says what there is when it is looked at",
		[]edit{{"internal/membership/judge.go", `rec: rec, stood: before - j.since})`,
			`rec: rec, stood: after - j.since})`}},
		[]string{"./internal/membership -run ^TestAnAnswerThatIsOld$"}, 41,
	},
	{
		"member: a later term's object is removed",
		[]edit{{"internal/membership/group.go", ` || TermOf(key, rec) != TermOf(key, term)`, ``}},
		[]string{"./internal/membership -run ^TestALaterTermStays$"}, 42,
	},
	{
		"member: an object is removed though the group names its term",
		[]edit{{"internal/membership/member.go", ` || !forgotten {`, ` || !forgotten && false {`}},
		[]string{"./internal/membership -run ^TestAMemberLeavesNothing$"}, 42,
	},
	{
		"member: deletes go on where their condition is ignored",
		[]edit{{"internal/membership/group.go", `			g.deletes.Store(ignored)
`, ``}},
		[]string{"./internal/membership -run ^TestDeletesThatIgnoreTheirCondition$"}, 42,
	},
	{
		"member: a panic frees the member's lock",
		[]edit{{"internal/membership/member.go", `			lease.Abandon()
`, ``}},
		[]string{"./internal/membership -run ^TestAPanic$"}, 42,
	},
	{
		"member: the object of a broken member stays",
		[]edit{{"internal/membership/judge.go",
			`rec.Token == j.asks.term.Token && rec.TermID == j.asks.term.TermID {`,
			`TermOf(j.asks.term.Key, rec) == j.asks.term {`}},
		[]string{"./locktable -run ^TestBreak$"}, 43,
	},
	{
		"command: the member of a table is broken as any lock is",
		[]edit{{"cmd/leasehold/break.go", `storeapi.MemberAt(at.Key); ok {`,
			`storeapi.MemberAt(at.Key); ok && false {`}},
		[]string{"./cmd/leasehold -run ^TestTheCommandInATableIsDeadBeforeTheLeaseIs$"}, 0,
	},
	{
		"locktable: a write of unknown outcome is left to itself",
		[]edit{{"locktable/next.go", `	case s.mustWrite, s.differs &&`,
			`	case s.differs &&`}},
		[]string{"./locktable -run ^TestNext$", "./locktable -run ^TestLateWriteOfACancelledCaller$"}, 41,
	},
	{
		"locktable: tokens fall when the table is lost",
		[]edit{{"locktable/object.go", `tab.Seal(rand.Text()[:16], c.floor,`, `tab.Seal(rand.Text()[:16], 0,`}},
		[]string{"./locktable -run ^TestDeletedOrRestored$"}, 40,
	},
	{
		"locktable: a lease that the table does not hold any more goes on",
		[]edit{{"locktable/object.go", `		case r.state == held && (!there || row.Token != r.token):
`,
			`		case r.state == held && there && row.Token != r.token:
`}},
		[]string{"./locktable -run ^TestEditedByHand$"}, 38,
	},
	{
		"locktable: a lease is valid beyond its member's term",
		[]edit{{"locktable/lease.go", `	return r.state == held && r.term.lease.Valid()
`,
			`	return r.state == held
`}},
		[]string{"./internal/proof/sim -run ^TestTableSeeds$", "./itest -run ^TestTableOfAProcess$"}, 38,
	},
	{
		"locktable: a lock is handed over while its function runs",
		[]edit{{"locktable/term.go", `		case r.state == held && r.runs == running:
`,
			`		case r.state == held && r.runs == running && ctx == nil:
`}},
		[]string{
			"./locktable -run ^TestRunEndsWhileAFunctionRuns$",
			"./internal/proof/sim -run ^TestTableSeeds$",
		}, 41,
	},
	{
		"locktable: a member heals while a function of its lost term runs",
		[]edit{{"locktable/next.go", `	case !s.valid && s.busy:`,
			`	case !s.valid && s.busy && s.leaving && !s.leaving:`}},
		[]string{"./locktable -run ^TestNext$", "./internal/proof/sim -run ^TestTableSeeds$"}, 41,
	},
	{
		"locktable: a try waits in line",
		[]edit{{"locktable/tries.go", `if len(tab.Behind(id, r.claims, lives)) > 0 {`,
			`if len(tab.Behind(id, r.claims, lives)) > 1000 {`}},
		[]string{"./locktable -run ^TestTryAcquireLooksAgain$",
			"./locktable -run ^TestAVisitorWaitsForNobodyWhoLives$"}, 44,
	},
	{
		"locktable: a member that cannot free its locks keeps its term",
		[]edit{{"locktable/trouble.go", `	stuck := c.undropped != never &&`,
			`	stuck := c.undropped != never && !unread && c.tm == nil &&`}},
		[]string{"./locktable -run ^TestMemberThatMayNotWriteTheTable$"}, 44,
	},
	{
		"locktable: any object is looked at that the table names",
		[]edit{{"locktable/watcher.go", `l.member.Key != want {`,
			`l.member.Key == "" {`}},
		[]string{"./locktable -run ^TestMemberWithTheKeyOfAnotherObject$"}, 41,
	},
	{
		"locktable: a request that an edit has removed keeps its number",
		[]edit{{"locktable/object.go", `case r.state == waiting && r.asked: // removed by hand
			c.renumber(r)`,
			`case r.state == waiting && r.asked:
			r.asked = false`}},
		[]string{"./locktable -run ^TestAddedByHand$"}, 41,
	},
	{
		"locktable: what an edit has left ungranted stays so",
		[]edit{{"locktable/object.go", `if edited && v.tab.Unfinished(v.size) ||`,
			`if edited && v.tab.Unfinished(1 << 30) ||`}},
		[]string{"./locktable -run ^TestAnEditThatGrantsNothing$"}, 45,
	},
	{
		"locktable: reads hide that nothing can be written",
		[]edit{{"locktable/trouble.go", `	if written || !w.trouble.writing {`,
			`	if written || w.trouble.err != nil {`}},
		[]string{"./locktable -run ^TestATableThatCannotBeWritten$"}, 44,
	},
	{
		"locktable: a member that cannot read what it may hold keeps its term",
		[]edit{{"locktable/trouble.go", `	if unread && asked {`,
			`	if unread && asked && seen == nil {`}},
		[]string{"./locktable -run ^TestAGrantThatCannotBeRead$"}, 44,
	},
	{
		"locktable: a member that could not leave removes its object",
		[]edit{{"locktable/term.go", `forgotten = lost == nil && !c.mustWrite && !c.names(c.tm.named)`,
			`forgotten = lost == nil`}},
		[]string{"./locktable -run ^TestAMemberThatCannotLeave$"}, 42,
	},
	{
		"locktable: a member leaves without a look at what others have asked",
		[]edit{{"locktable/next.go", `	case s.leaving && !s.parted:`,
			`	case s.leaving && !s.parted && s.busy && !s.busy:`}},
		[]string{"./locktable -run ^TestNext$", "./locktable -run ^TestLeavingWhileOthersWait$"}, 42,
	},
	{
		"locktable: a leave that is refused for good is tried again",
		[]edit{{"locktable/trouble.go", `		c.refused = true
`, ``}},
		[]string{"./locktable -run ^TestAMemberThatCannotLeave$"}, 42,
	},
	{
		"locktable: Run says nothing of what it has left in the table",
		[]edit{{"locktable/term.go", `	if c.joined && !forgotten && c.leftAt`,
			`	if c == nil && !forgotten && c.leftAt`}},
		[]string{"./locktable -run ^TestAMemberThatCannotLeave$"}, 42,
	},
	{
		"locktable: a request keeps a member waiting whose term is lost",
		[]edit{{"locktable/term.go", `	if !valid { // a request that`,
			`	if !valid && w == nil { // a request that`}},
		[]string{"./locktable -run ^TestOnlyAFunctionThatStillRunsIsReported$"}, 42,
	},
	{
		"locktable: a member heals before the margin of a lease without a function is over",
		[]edit{{"locktable/term.go", `c.tm.unguarded && left > 0`,
			`c.tm.unguarded && left > c.ttl`}},
		[]string{"./locktable -run ^TestHealingWaitsForTheMargin$"}, 38,
	},
	{
		"locktable: the first of many who ask is written alone",
		[]edit{{"locktable/committer.go", `	if rings == c.heard {`,
			`	if rings >= c.heard {`}},
		[]string{"./locktable -run ^TestWhatIsWantedAtOneMomentIsWrittenTogether$"}, 14,
	},
	{
		"locktable: a wake-up during a read is lost",
		[]edit{{"locktable/object.go", `	c.well(false)
	same :=`,
			`	c.well(false)
	c.mu.Lock()
	c.wakes, c.called = 0, false
	c.mu.Unlock()
	same :=`}},
		[]string{"./locktable -run ^TestAWakeUpDuringAReadIsNotLost$"}, 21,
	},
	{
		"locktable: a second look at a version goes by its size",
		[]edit{{"locktable/object.go", `last.sum == v.sum {`,
			`(last.size == v.size || last.sum == v.sum) {`}},
		[]string{"./locktable -run ^TestEditedToTheSameSize$"}, 45,
	},
	{
		"locktable: an outage is waited out as a refusal is",
		[]edit{{"locktable/trouble.go", `		pause = min(pause, c.poll)`,
			`		pause = min(pause, c.ttl*100)`}},
		[]string{"./locktable -run ^TestPausesAfterFailures$"}, 27,
	},
	{
		"locktable: nobody who asks at once gets room when not all do",
		[]edit{{"locktable/object.go", `i >= 0 && over > 0; i-- {`, `i >= 0; i-- {`}},
		[]string{"./locktable -run ^TestManyRequestsForALittleRoom$"}, 44,
	},
	{
		"locktable: a member without a row looks for nobody",
		[]edit{{"locktable/watcher.go", `now < w.fullTill ||`,
			`now < w.fullTill && me > 0 ||`}},
		[]string{"./locktable -run ^TestADeadProcessHasFilledTheTable$"}, 45,
	},
	{
		"locktable: a write that only frees is refused for its size",
		[]edit{{"locktable/object.go", `!d.join && len(body) <= leasehold.MaxObjectSize {`,
			`!d.join && len(body) <= leasehold.MaxObjectSize/2 {`}},
		[]string{"./locktable -run ^TestATableThatIsLargerThanItMayBe$"}, 44,
	},
	{
		"locktable: after a panic the locks are free at once",
		[]edit{{"locktable/term.go", `		if !completed { // functions may still run`,
			`		if !completed && t == nil { // functions may still run`}},
		[]string{"./locktable -run ^TestAPanicOfAnObserver$"}, 38,
	},
	{
		"locktable: wrong wake-ups have no bound",
		[]edit{{"locktable/committer.go", `const maxWakes = 10`,
			`const maxWakes = 10_000`}},
		[]string{"./locktable -run ^TestForgedWakeUps$"}, 21,
	},
	{
		"locktable: every wake-up is for everybody in line",
		[]edit{{"locktable/committer.go", `			at.place++`,
			`			at.place += 0`}},
		[]string{"./locktable -run ^TestAWakeUpIsForTheFirstInLine$"}, 21,
	},
	{
		"locktable: a function begins under a term that has run out",
		[]edit{{"locktable/lease.go", `	case !r.term.lease.Valid():`,
			`	case !r.term.lease.Valid() && r.state != held:`}},
		[]string{"./locktable -run ^TestDoAfterAStop$"}, 38,
	},
	{
		"locktable: Do waits for a store for ever",
		[]edit{{"locktable/lease.go", `context.WithTimeout(context.WithoutCancel(caller), parting)`,
			`context.WithTimeout(context.WithoutCancel(caller), 1000*parting)`}},
		[]string{"./locktable -run ^TestDoWithoutAStore$"}, 44,
	},
	{
		"locktable: only the innermost lease of a call is looked at",
		[]edit{{"locktable/lease.go", `o != nil; o = o.outer {`, `o != nil; o = nil {`}},
		[]string{"./locktable -run ^TestACallUnderItsOwnLease$"}, 44,
	},
	{
		"locktable: a suspect in line brings no more neighbours",
		[]edit{{"locktable/watcher.go", `living >= neighbours+moreFor*suspects {`,
			`living >= neighbours {`}},
		[]string{"./locktable -run ^TestADeadLine$"}, 45,
	},
	{
		"locktable: whom nobody waits for is never looked at",
		[]edit{{"locktable/watcher.go", `		n++
		if w.first {`,
			`		if w.first {`}},
		[]string{"./locktable -run ^TestDeadReaders$"}, 45,
	},
	{
		"locktable: all members are looked at in each round",
		[]edit{{"locktable/watcher.go", `	n := w.more
`,
			`	n := w.more + 1000
`}},
		[]string{"./locktable -run ^TestLooksAtRest$"}, 45,
	},
	{
		"locktable: a member counts as alive that nobody has looked at",
		[]edit{{"locktable/watcher.go", `	if l == nil {
		return unknown
	}`,
			`	if l == nil {
		return alive
	}`}},
		[]string{"./locktable -run ^TestAVisitorOutlastsTheDead$"}, 45,
	},
	{
		"locktable: a dead member whose clock was ahead counts as alive",
		[]edit{{"locktable/watcher.go", `		l.changed == never && -allowance <= age && age <= m.TTL+allowance:`,
			`		l.changed == never && age <= m.TTL+allowance:`}},
		[]string{"./internal/proof/sim -run ^TestTableSeeds$"}, 45,
	},
	{
		"locktable: a try is asked for before anybody has looked",
		[]edit{{"locktable/tries.go", `				r.heldBack = !r.asked
`,
			`				r.heldBack = false
`}},
		[]string{"./locktable -run ^TestAVisitorWaitsForNobodyWhoLives$"}, 44,
	},
	{
		"locktable: no try waits for the first term",
		[]edit{{"locktable/want.go", `w.term == nil && w.hadTerm ||`,
			`w.term == nil ||`}},
		[]string{"./locktable -run ^TestTryAcquireInTheFirstTerm$"}, 44,
	},
	{
		"locktable: Inspect takes the dead for alive",
		[]edit{{"locktable/inspect.go", `	case age > ttl+allowance:`,
			`	case age > 1000*ttl+allowance:`}},
		[]string{"./locktable -run ^TestInspectTellsWhoIsDead$"}, 45,
	},
	{
		"locktable: a row of a copy is young again at each look",
		[]edit{{"locktable/difference.go", `		c.foreign[row.Number] = since
		if c.restored || now-since > strange*c.ttl {
			over = append(over, row.ID)
`,
			`		if c.restored || now-since > strange*c.ttl {
			over = append(over, row.ID)
			continue
		}
		if c.foreign[row.Number] = since; c.restored {
`}},
		[]string{"./locktable -run ^TestRowsOfACopyThatIsGone$"}, 45,
	},
	{
		"locktable: slots of outer leases do not count",
		[]edit{{"locktable/lease.go", `slots += o.r.claims[i].Slots; c.Of`, `n := slots + o.r.claims[i].Slots; c.Of`},
			{"locktable/lease.go", `== 0 || slots > c.Of {`, `== 0 || n > c.Of {`}},
		[]string{"./locktable -run ^TestSlotsUnderSlots$"}, 44,
	},
	{
		"locktable: requests are counted, not drawn",
		[]edit{{"locktable/want.go", `n := uint64(binary.LittleEndian.Uint32(b[:]))`,
			`n := w.calls + 0*uint64(binary.LittleEndian.Uint32(b[:]))`},
			{"locktable/want.go", `w.requests[n] == nil {`, `n > 0 {`}},
		[]string{"./locktable -run ^TestTwoCopiesOfAMachine$"}, 38,
	},
	{
		"locktable: a row is told by its number alone",
		[]edit{{"locktable/want.go", `r != nil && slices.Equal(r.claims, row.Claims) {`, `r != nil {`}},
		[]string{"./locktable -run ^TestACopyDrawsTheSameNumber$"}, 38,
	},
	{
		"locktable: a grant is told by its number alone",
		[]edit{{"locktable/object.go", `there := taken && slices.Equal(row.Claims, r.claims)`,
			`there := taken && slices.Equal(row.Claims, row.Claims)`}},
		[]string{"./locktable -run ^TestACopyDrawsTheSameNumber$"}, 38,
	},
	{
		"locktable: what a copy of the machine has asked for goes at once",
		[]edit{{"locktable/difference.go", `now-since > strange*c.ttl {`, `now-since >= 0 {`}},
		[]string{"./locktable -run ^TestTwoCopiesOfAMachine$"}, 38,
	},
	{
		"locktable: what a copy of the machine has asked for stays",
		[]edit{{"locktable/difference.go", `now-since > strange*c.ttl {`, `now-since > 1000*strange*c.ttl {`}},
		[]string{"./locktable -run ^TestRowsOfACopyThatIsGone$"}, 45,
	},
	{
		"locktable: a term that a copy of the machine shares is released",
		[]edit{{"locktable/term.go", `	if c.tm.copied { // another`,
			`	if c.tm.copied && c.tm.lease == nil { // another`}},
		[]string{"./locktable -run ^TestTwoCopiesOfAMachine$"}, 38,
	},
	{
		"locktable: a race that was lost is a failure",
		[]edit{{"locktable/object.go", `	case !lost.base.is(v):`, `	case !lost.base.is(v) && v.etag == "":`}},
		[]string{"./locktable -run ^TestACrowdThatWritesAllTheTime$"}, 44,
	},
	{
		"locktable: a try fails by a race",
		[]edit{{"locktable/object.go", `		errors.Is(err, leasehold.ErrConflict)
}`, `		false
}`}},
		[]string{"./locktable -run ^TestTryAcquireMeetsOtherWriters$"}, 44,
	},
	{
		"locktable: a restored table keeps its revision",
		[]edit{{"locktable/object.go", `		c.mustWrite = true // so that tokens go on`,
			`		// so that tokens go on`}},
		[]string{"./locktable -run ^TestTokensAfterARestore$"}, 40,
	},
	{
		"locktable: what a term that ends itself has held was released",
		[]edit{{"locktable/term.go", `			w.free(r, w.lossOf(r, tm.gaveUp))`,
			`			w.free(r, leasehold.ErrReleased)`}},
		[]string{"./locktable -run ^TestATermThatEndsItself$"}, 42,
	},
	{
		"locktable: a released lease has a deadline that lies ahead",
		[]edit{{"locktable/lease.go", `ended != 0 && was.Before(end) {`,
			`ended != 0 && end.Before(was) {`}},
		[]string{"./locktable -run ^TestDeadlineAfterRelease$"}, 38,
	},
	{
		"locktable: whoever leaves in a crowd has failed",
		[]edit{{"locktable/term.go", `		case lost != nil || !c.outrun: // else`,
			`		case lost != nil || !c.outrun || c != nil: // else`}},
		[]string{"./locktable -run ^TestManyLeaveAtOnce$"}, 42,
	},
	{
		"locktable: all that are in the way are looked at at once",
		[]edit{{"locktable/watcher.go", `		case w.under < maxLooks: // else`,
			`		case w.under < 1000*maxLooks: // else`}},
		[]string{"./locktable -run ^TestLooksAtOnce$"}, 45,
	},
	{
		"locktable: holders are looked at as slowly as all others",
		[]edit{{"locktable/watcher.go", `		for _, n := range a.Holders {`,
			`		for _, n := range a.Holders[len(a.Holders):] {`}},
		[]string{"./locktable -run ^TestDeadMember$"}, 45,
	},
	{
		"locktable: only the first holder of a semaphore is looked at",
		[]edit{{"locktable/watcher.go", `		for _, n := range a.Holders {`,
			`		for _, n := range a.Holders[:min(len(a.Holders), 1)] {`}},
		[]string{"./locktable -run ^TestADeadHolderOfASemaphore$"}, 45,
	},
	{
		"locktable: a member whose functions run is handed over",
		[]edit{{"locktable/detach.go", `	case tm.functions > 0:`, `	case false:`}},
		[]string{"./locktable -run ^TestWhatCannotBeDetached$"}, 41,
	},
	{
		"locktable: a member is handed over beside a copy of its machine",
		[]edit{{"locktable/detach.go", `	case tm.copied:`, `	case false:`}},
		[]string{"./locktable -run ^TestDetachBesideACopy$"}, 38,
	},
	{
		"locktable: a member is handed over before its last write is known",
		[]edit{{"locktable/next.go", `	case s.mustWrite, s.differs &&`,
			`	case s.mustWrite && !s.detaching, s.differs &&`}},
		[]string{"./locktable -run ^TestNext$", "./locktable -run ^TestDetachAfterAWriteOfUnknownOutcome$"}, 41,
	},
	{
		"locktable: whoever hands a member over frees it",
		[]edit{{"locktable/detach.go", `	c.tm.lease.Abandon() // and`, `	_ = c.tm.lease // and`}},
		[]string{"./locktable -run ^TestDetachAndResume$"}, 31,
	},
	{
		"locktable: the rows of a member that was handed over are strangers",
		[]edit{{"locktable/resume.go", `		t.requests[r.number] = r
`, ``}},
		[]string{"./locktable -run ^TestDetachAndResume$"}, 31,
	},
	{
		"locktable: a resumed member is in the table when it has ended",
		[]edit{{"locktable/term.go", `	c.joined = t.resumes(tm) // by`, `	_ = t.resumes(tm) // by`}},
		[]string{"./locktable -run ^TestResumedLeases$"}, 42,
	},
	{
		"locktable: a member goes on beside a late write of the process before",
		[]edit{{"locktable/object.go", ` || c.resuming() {
		c.mustWrite = true
	}
`, ` {
		c.mustWrite = true
	}
	c.mu.Lock()
	c.settleResumed(nil)
	c.mu.Unlock()
`}},
		[]string{"./locktable -run ^TestALateWriteOfAProcessBefore$"}, 41,
	},
	{
		"locktable: a member forgets the revision when it is handed over",
		[]edit{{"locktable/resume.go", `	t.floor = h.Table.Revision`, `	t.floor = 0`}},
		[]string{"./locktable -run ^TestResumeInATableThatHasChanged$"}, 40,
	},
	{
		"locktable: any secret goes with what a member holds",
		[]edit{{"internal/tables/handle.go",
			` && h.Member.TermID == handle.TermID(h.Member.Key, h.Term.Secret) {`, ` {`}},
		[]string{"./locktable -run ^TestWhatIsNoHandleOfATable$", "./internal/tables -run ^TestHandle$"}, 31,
	},
	{
		"members: a function that outlives a resumed term is healthy",
		[]edit{{"internal/membership/member.go", `r != nil && !r.lease.Valid() {`, `r != nil && false {`}},
		[]string{"./locktable -run ^TestAResumedTermIsLost$"}, 0,
	},
	{
		"members: a store that fails once ends a resumption",
		[]edit{{"internal/membership/member.go", `			errors.Is(err, leasehold.ErrPermanent):
			return nil, err`, `			true:
			return nil, err`}},
		[]string{"./locktable -run ^TestResumeWhileTheStoreFails$"}, 44,
	},
	{
		"a wait counts the TTL of the one who waits",
		[]edit{{"decide.go", `max(o.withDrift(r.TTL)-s.age,`, `max(o.withDrift(o.ttl)-s.age,`}},
		[]string{worlds},
		1,
	},
	{
		"the shorter TTL of an heir counts at once",
		[]edit{{"term.go", `rec.TTL = max(r.ttl, former.ttl)`, `rec.TTL = r.ttl`}},
		[]string{". -run ^TestHeirsWithOtherTTLs$"},
		1,
	},
	{
		"a version that was out of sight was there meanwhile",
		[]edit{{"observe.go", `v.same(last) && v.readBefore-last.readAfter <= limit:`, `v.same(last):`}},
		[]string{worlds},
		1,
	},
	{
		"TryAcquire watches nobody",
		[]edit{{"campaign.go", `ok && held.worthWatching(ctx) {`, `ok && false && held.worthWatching(ctx) {`}},
		[]string{worlds, ". -run ^TestAVisitorOutlastsAHolderThatIsGone$"},
		37,
	},
	{
		"TryAcquire waits for whoever holds the lock",
		[]edit{
			{"campaign.go", `return (e.SeemsGone || e.creating()) &&`, `return (e.Wait > 0 || e.creating()) &&`},
			{"campaign.go", `return !held.SeemsGone && !held.creating() || now.Nonce`, `return now.Nonce`},
		},
		[]string{worlds, ". -run ^TestAVisitorWaitsForNobodyWhoLives$"},
		37,
	},
	{
		"leaderhttp: a proxy of the environment is used",
		[]edit{{"leaderhttp/leaderhttp.go", `			DialContext:         (&net.Dialer`,
			`			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer`}},
		[]string{"./leaderhttp -run ^TestNoProxyBetweenPeers$"},
		35,
	},
	{
		"leaderhttp: a client may say that its request was forwarded",
		[]edit{{"leaderhttp/wait.go", `strconv.FormatUint(t.rec.Token, 10), t.rec.TermID)`,
			`strconv.FormatUint(t.rec.Token, 10), t.rec.TermID[:0])`}},
		[]string{"./leaderhttp -run ^TestTheMarkOfForwardedRequests$"},
		35,
	},
	{
		"leaderhttp: whoever knows the token may wait",
		[]edit{{"leaderhttp/wait.go", `q.Get("term")) == p.name(p.own)`, `p.own.rec.TermID) == p.name(p.own)`}},
		[]string{"./leaderhttp -run ^TestTheAnswersOfAPeer$"}, 35,
	},
	{
		"leaderhttp: what was not sent counts as sent",
		[]edit{{"leaderhttp/forward.go", `reached.Load() == connects ||`, ``}},
		[]string{"./leaderhttp -run ^TestARequestThatCannotBeSent$"}, 35,
	},
	{
		"leaderhttp: a transport that tells nothing has sent nothing",
		[]edit{{"leaderhttp/forward.go", `reached.Load() == connects`, `reached.Load() != connected`}},
		[]string{"./leaderhttp -run ^TestATransportThatTellsNothing$"}, 35,
	},
	{
		"leaderhttp: no app answers while it reads",
		[]edit{{"leaderhttp/forward.go", `	_ = http.NewResponseController(w).EnableFullDuplex()
`, ``}},
		[]string{"./leaderhttp -run ^TestAnAppThatAnswersWhileItReads$"}, 0,
	},
	{
		"leaderhttp: a body that is too large is not told of",
		[]edit{{"leaderhttp/forward.go", `	case isTooLarge:`, `	case isTooLarge && tooLarge == nil:`}},
		[]string{"./leaderhttp -run ^TestABodyThatIsTooLarge$"}, 0,
	},
	{
		"leaderhttp: a silent connection is kept",
		[]edit{{"leaderhttp/leaderhttp.go", `SendPingTimeout: 5 * time.Second,`, ``}},
		[]string{"./leaderhttp -run ^TestAnHTTP2ConnectionThatFallsSilent$"}, 0,
	},
	{
		"command: idle connections keep a health check out",
		[]edit{{"cmd/leasehold/listen.go", `oldest := slices.MinFunc(`, `oldest := slices.MaxFunc(`}},
		[]string{"./cmd/leasehold -run ^TestAFloodOfConnections$"}, 0,
	},
	{
		"command: whoever announces a body keeps a connection busy",
		[]edit{{"cmd/leasehold/listen.go", `		if r.ContentLength == 0 {`, `		if r.ContentLength >= -1 {`}},
		[]string{"./cmd/leasehold -run ^TestAFloodOfConnections$"}, 0,
	},
	{
		"leaderhttp: strangers are told who leads",
		[]edit{{"leaderhttp/wait.go", `map[string]bool{"leading": status == http.StatusOK}`,
			`map[string]bool{"leading": status == http.StatusOK, p.id: true}`}},
		[]string{"./leaderhttp -run ^TestTheAnswersOfAPeer$"}, 35,
	},
	{
		"locktable: tables of one process do not wake each other",
		[]edit{{"locktable/siblings.go", `			s.Wake()`, `			_ = s`}},
		[]string{"./locktable -run ^TestTablesOfOneProcessWakeEachOther$"}, 0,
	},
	{
		"locktable: nobody is told whose clock is ahead",
		[]edit{{"locktable/watcher.go", `l.ahead && !was {`, `l.ahead && was {`}},
		[]string{"./locktable -run ^TestTheLogTellsWhoseClockIsAhead$"}, 0,
	},
	{
		"locktable: a table that was full once is searched for ever",
		[]edit{{"locktable/object.go", `c.watcher.fullTill = c.clock.Now().Mono + c.ttl`,
			`c.watcher.fullTill = forever`}},
		[]string{"./locktable -run ^TestLooksAtAFullTableEnd$"}, 0,
	},
	{
		"locktable: the margin is not waited for after a loss that nobody saw",
		[]edit{{"locktable/committer.go", `	if !s.valid && c.lostAt == never {`,
			`	if !c.tm.lease.Valid() && c.lostAt == never {`}},
		[]string{"./locktable -run ^TestALeaseThatRunsOutAtAnyMoment$"}, 0,
	},
	{
		"locktable: an object that cannot be taken is asked for at once",
		[]edit{{"locktable/watcher.go", `	if s.err == nil { // else the judge`,
			`	if s.err != nil || s.err == nil { // else the judge`}},
		[]string{"./locktable -run ^TestADeadMemberThatCannotBeTaken$"}, 0,
	},
	{
		"locktable: an edit that leaves the revision is not seen",
		[]edit{{"locktable/object.go", `c.seen == nil || c.seen.tab != v.tab // also`,
			`!same // also`}},
		[]string{"./locktable -run ^TestAnEditThatLeavesTheRevision$"}, 0,
	},
	{
		"locktable: one that is refused room looks for nobody",
		[]edit{{"locktable/watcher.go", `now < w.fullTill ||`,
			`now < w.fullTill && me == 0 ||`}},
		[]string{"./locktable -run ^TestARefusedRequestLooksForTheDead$"}, 0,
	},
	{
		"locktable: a member that cannot be judged is looked at at each poll",
		[]edit{{"locktable/watcher.go", `	return now + clock.Jitter(w.clock, w.ttl)
`,
			`	return now + clock.Jitter(w.clock, w.poll/4)
`}},
		[]string{"./locktable -run ^TestMembersThatMayNotBeRead$"}, 0,
	},
	{
		"locktable: a try waits while all writes conflict",
		[]edit{{"locktable/object.go", `			c.failTries(lost.err)
`,
			`			_ = lost.err
`}},
		[]string{"./locktable -run ^TestTryAcquireWhileAllWritesConflict$"}, 0,
	},
	{
		"locktable: whoever takes the object of the dead shows their life",
		[]edit{{"locktable/watcher.go", `	if s.verdict.State == membership.Alive { // else`,
			`	if s.ended > 0 || s.ended <= 0 { // else`}},
		[]string{"./locktable -run ^TestAVisitorTakesNoEvictorForTheDead$"}, 0,
	},
	{
		"command: a link that was swapped in is followed",
		[]edit{{"cmd/leasehold/trusted.go", `flags |= syscall.O_NOFOLLOW | syscall.O_NONBLOCK`, `flags |= 0`}},
		[]string{"./cmd/leasehold -run ^TestALinkThatIsSwappedIn$"}, 0,
	},
	{
		"command: a page in a browser moves the leader",
		[]edit{{"cmd/leasehold/admin.go", `withoutBrowsers(withoutBodies(mux))`, `withoutBodies(mux)`}},
		[]string{"./cmd/leasehold -run ^TestAHandOverToAName$"}, 0,
	},
	{
		"command: a priority that nobody hears of",
		[]edit{{"cmd/leasehold/listen.go", `case flags.Changed("priority"):`, `case flags.Changed("admin"):`}},
		[]string{"./cmd/leasehold -run ^TestFlagsOfHandOvers$"}, 0,
	},
	{
		"leaderhttp: the address that a client gives is believed",
		[]edit{{"leaderhttp/forward.go", `strings.TrimPrefix(before+", "+host, ", "))`,
			`strings.TrimPrefix(before, host))`}},
		[]string{"./leaderhttp -run ^TestTheAddressOfAClient$"},
		35,
	},
	{
		"leaderhttp: a request whose body was taken away ends the process",
		[]edit{{"leaderhttp/body.go", `	if r.Body == nil {`, `	if b == nil {`}},
		[]string{"./leaderhttp -run ^TestARequestWithoutABody$"},
		35,
	},
	{
		"leaderhttp: an empty body arrives in chunks",
		[]edit{{"leaderhttp/forward.go", `pr.Out.Body == nil && mayBeRepeated(pr.Out)`, `pr.Out.Body == nil`}},
		[]string{"./leaderhttp -run ^TestForward$"},
		35,
	},
	{
		"command: a handle that others may write is read",
		[]edit{{"cmd/leasehold/trusted.go", `info.Mode().Perm()&0o022 != 0`, `info.Mode().Perm()&0o022 < 0`}},
		[]string{"./cmd/leasehold -run ^TestHandleFileOfSomebodyElse$"},
		34,
	},
	{
		"command: hold takes a zombie for a process",
		[]edit{{"cmd/leasehold/hold.go", ` && !zombie(pid)`, ` && pid > 0`}},
		[]string{"./cmd/leasehold -run ^TestHoldEndsWithAZombie$"},
		0,
	},
	{
		"the release of another term of the same token is free",
		[]edit{{"fencing.go", `		rec.Token == s.twice
`, `		false
`}},
		[]string{". -run ^TestTheReleaseOfAnotherTermOfTheSameTokenIsWaitedOut$"},
		1,
	},
	{
		"a longer term after a restore does not count",
		[]edit{{"fencing.go", `		latest.TTL = max(latest.TTL, rec.TTL)`, `		_ = latest.TTL`}},
		[]string{". -run ^TestALongerTermAfterARestoreIsWaitedOut$"},
		1,
	},
	{
		"a version of an undoer's own is never looked at",
		[]edit{{"decide.go", `free: s.exists && s.writtenByUs && !r.Released()`, `free: s.exists && !r.Released()`}},
		[]string{". -run ^TestDecideFollowsTheProof$"},
		1,
	},
	{
		"the machine of the proof reads >= as >",
		[]edit{{"internal/proof/invariant/compile.go", `return truth(a >= b)`, `return truth(a > b)`}},
		[]string{"./internal/proof/invariant -run ^TestTheMachineAgreesWithZ3$"},
		0,
	},
	{
		"the machine of the proof updates one function after another",
		[]edit{{"internal/proof/invariant/machine.go", `		do = append(do, func() { m.functions[f][at] = to })`,
			`		m.functions[f][at] = to`}},
		[]string{"./internal/proof/invariant -run ^TestTheMachineAgreesWithZ3$"},
		0,
	},
}
