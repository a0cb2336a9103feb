package main

// mutants are the mistakes that are planted, with the checks that must each catch them alone, and the number of the promise in
// docs/verification.md that they would break. Without a number they cost time, or are of a part of which no promise speaks.
var mutants = []mutant{
	{"no nonce", []edit{{"internal/wire/nonce.go", `return w.prefix + strconv.FormatUint(number, 36) + "." + w.checksum(number, r)`, `return strconv.FormatUint(min(number, 0), 36)`}}, []string{worlds}, 6},
	{"validity of an acquisition counted from the reply", []edit{{"lock.go", `	written := &version{exists`, `	sent = l.clock.Now()
	written := &version{exists`}}, []string{worlds}, 1},
	{"validity of a renewal counted from the reply", []edit{{"renewal.go", `		t.landed(ctx, etag, write{rec, sent})`, `		t.landed(ctx, etag, write{rec, t.lock.clock.Now()})`}}, []string{worlds}, 1},
	{"412 on a renewal taken as lost at once", []edit{{"renewal.go", `	case storeapi.Refused(err), errors.Is(err, storeapi.ErrConflict):`, `	case errors.Is(err, ErrPreconditionFailed):
		return false, t.lose(err)
	case storeapi.Refused(err), errors.Is(err, storeapi.ErrConflict):`}}, []string{worlds}, 6},
	{"any error on a renewal taken as lost at once", []edit{{"renewal.go", `	return false, err // nothing is known yet`, `	return false, t.lose(err) // nothing is known yet`}}, []string{worlds}, 6},
	{"404 on a renewal taken as lost at once", []edit{{"renewal.go", `	case storeapi.Refused(err), errors.Is(err, storeapi.ErrConflict):`, `	case errors.Is(err, ErrNotExist):
		return false, t.lose(err)
	case storeapi.Refused(err), errors.Is(err, storeapi.ErrConflict):`}}, []string{worlds}, 6},
	{"412 on an acquisition taken as held by another", []edit{{"lock.go", `case now.exists && l.landed(rec, now.rec):`,
		`case now.exists && l.landed(rec, now.rec) && !errors.Is(err, ErrPreconditionFailed):`}, {"observe.go", `writtenByUs: l.wrote(v.rec),`, `writtenByUs: false,`}}, []string{". -run ^TestAppliedWriteWithLostReplyIsOurs$", "./itest -run TestAmbiguousWrites"}, 6},
	{"release by DELETE", []edit{{"release.go", `		return t.put(ctx, markReleased)`, `		return t.lock.store.DeleteIfMatch(ctx, t.lock.key, t.stored.etag)`}}, []string{worlds, search}, 15},
	{"wall clock in the takeover rule", []edit{{"decide.go", `wait := o.withDrift(r.TTL) - s.age`, `wait := r.ExpiresAt.Sub(s.wall)`}}, []string{worlds}, 1},
	{"token reset at release", []edit{{"release.go", `r.ExpiresAt, r.Session = time.Time{}, nil`, `r.ExpiresAt, r.Session, r.Token = time.Time{}, nil, 0`}}, []string{worlds}, 4},
	{"token not raised at a takeover", []edit{{"lock.go", `return token + 1, nil`, `return max(token, 1), nil`}}, []string{worlds, search, "./itest -run TestThousandCycles"}, 4},
	{"the SDK's retryer left on", []edit{{"internal/s3api/bucket.go", `	o.Retryer = aws.NopRetryer{}
`, `	_ = aws.NopRetryer{}
`}}, []string{". -run TestOneStoreCallIsOneRequest"}, 14},
	{"takeover without drift allowance", []edit{{"decide.go", `return time.Duration(float64(ttl) * (1 + o.drift))`, `return ttl`}}, []string{worlds, search}, 1},
	{"no safety margin", []edit{{"term.go", `return t.lock.ttl - t.lock.margin - t.lock`, `return t.lock.ttl - t.lock`}}, []string{worlds, search}, 1},
	{"released while the function runs", []edit{{"lease.go", `context.AfterFunc(ctx, t.stopRenewingAfterTTL)`, `context.AfterFunc(ctx, func() { _ = t.release(context.WithoutCancel(ctx)) })`}}, []string{worlds}, 7},
	{"renewals stop when the function is told to", []edit{{"renewal.go", `t.renewUntil = t.lock.clock.Now().Mono + t.lock.ttl`, `t.renewUntil = t.lock.clock.Now().Mono`}}, []string{worlds}, 7},
	{"renewals go on for as long as the function takes", []edit{{"renewal.go", `t.state != held || t.lock.clock.Now().Mono >= t.renewUntil`, `t.state != held`}}, []string{". -run TestDoThatDoesNotReturnLosesTheLock|TestCallbackThatNeverReturns"}, 0},
	{"BOOTTIME ignored", []edit{{"internal/clock/clock.go", ` + max(r.Boot-start.Boot-d, 0)`, ``}}, []string{worlds}, 1},
	{"wall clock of the holder ignored", []edit{{"internal/clock/clock.go", ` + max(r.Wall-start.Wall-d, 0)`, ``}}, []string{worlds}, 1},
	{"only the clock that has counted most believed", []edit{{"internal/clock/clock.go", `d + max(r.Wall-start.Wall-d, 0) + max(r.Boot-start.Boot-d, 0)`,
		`max(d, r.Wall-start.Wall, r.Boot-start.Boot)`}}, []string{". -run TestAnyClockEndsALease|TestSuspendedHolderKnowsOnWaking"}, 0},
	{"age of one version counted for the next", []edit{{"observe.go", `case v.exists && v.same(last):`, `case v.exists && last.exists:`}}, []string{worlds}, 1},
	{"age counted from before the read", []edit{{"observe.go", `v := &version{readBefore: before, readAfter: l.clock.Now().Mono}`, `v := &version{readBefore: before, readAfter: l.clock.Now().Mono - l.ttl/10}`}}, []string{worlds}, 1},
	{"a lost lease comes back with a late renewal", []edit{{"term.go", `		_ = t.lose(t.whyRanOut())
	}
	return ok && !ranOut`, `		ok = false
	}
	return ok && !ranOut`}, {"term.go", `	if ranOut {
		_ = t.lose(errRanOut)
	}
	if overran`, `	if overran`}}, []string{worlds}, 5},
	{"one's own leftover waited out", []edit{{"observe.go", `writtenByUs: l.wrote(v.rec),`, `writtenByUs: false,`}}, []string{". -run TestGhostAcquisitionIsTakenOverAtOnce|TestElectorAloneLeadsAgain"}, 6},
	{"ownership judged by name", []edit{{"observe.go", `return sent.Nonce == found.Nonce && sent.Token == found.Token && l.wrote(found)`, `return sent.Holder == found.Holder`}}, []string{worlds, search}, 6},
	{"reclaim by every namesake", []edit{{"decide.go", `case s.sameIdentity && o.reclaim:`, `case s.sameIdentity:`}, {"observe.go", `v.rec.Holder == l.identity && byLock(v.rec) && l.mayReclaim(),`, `v.rec.Holder == l.identity,`}}, []string{". -run TestReclaimTakesItsOwn|TestWhoMayTakeTheLock"}, 0},
	{"a reply lost on release forgotten", []edit{{"release.go", `storeapi.Permanent(err) || t.lock.clock`, `storeapi.Permanent(err) || err != nil || t.lock.clock`}}, []string{". -run TestReleaseWithoutReplyIsRetried"}, 13},
	{"a record of no TTL trusted to the second", []edit{{"decide.go", `r.ExpiresAt.Add(o.skew).Sub(s.wall)`, `r.ExpiresAt.Sub(s.wall)`}}, []string{worlds, ". -run TestWhoMayTakeTheLock"}, 19},
	{"a corrupt record taken for free", []edit{{"observe.go", `			err = fmt.Errorf("%w (inspect the object`, `			return v, nil
			err = fmt.Errorf("%w (inspect the object`}}, []string{worlds, ". -run TestCorruptRecordIsNeverOverwritten", "./itest -run TestInterference"}, 16},
	{"an empty record taken for free", []edit{{"internal/wire/record.go", `	if expires == nil {
		return corrupt("no expires_at")
	}`, `	if expires == nil {
		expires = new(seconds)
	}`}}, []string{". -run TestBadRecordsAreNeverFree"}, 16},

	// Mistakes that an attack on the code found.
	{"S1: an age told later is counted", []edit{{"observe.go", `v.age = max(last.age+v.readAfter-last.readAfter, 0)`, `v.age = max(last.age+v.readAfter-last.readAfter, v.age)`}}, []string{worlds}, 9},
	{"S1: an age told for a new version is not bounded", []edit{{"observe.go", `		v.age = min(v.age, max(v.readAfter-last.readBefore, 0))
`, ``}}, []string{worlds}, 9},
	{"S1: the bound goes back with a late answer", []edit{{"observe.go", `		v.readBefore = max(v.readBefore, last.readBefore)
`, ``}}, []string{worlds}, 9},
	{"S2: a lost term does not wait for its function", []edit{{"term.go", `	case t.guarding():
		return t.lock.poll
`, ``}, {"term.go", `	case t.state == lost && t.function != returned:`, `	case t.state == lost && t.function != returned && !t.guarding():`}}, []string{worlds}, 8},
	{"S2: a lost term without a function leaves no margin", []edit{{"term.go", `	case t.state == lost && t.function != returned:`, `	case t.state == lost && t.function != returned && t.guarding():`}}, []string{". -run TestALostLeaseWithoutAFunction"}, 8},
	{"S3: a release under way keeps no sibling out", []edit{{"term.go", `	case t.state == releasing, !ended:`, `	case !ended:`}}, []string{". -run TestAReleaseUnderWayIsHeldForSiblings"}, 8},
	{"S3: a release that has landed is written again", []edit{{"renewal.go", `return ours.rec.Nonce == nonce || ours.rec.Released(), nil`, `return ours.rec.Nonce == nonce, nil`}}, []string{". -run TestAReleaseThatHasLandedIsNotWrittenAgain"}, 6},
	{"S3: a release that may have landed is called a loss", []edit{{"renewal.go", `case i < 0 && mayBeReleased:`, `case i < 0 && mayBeReleased && false:`}}, []string{". -run TestAReleaseThatHasLandedIsNoLoss"}, 6},
	{"S4: our nonce is enough, whoever raised the record", []edit{{"internal/wire/nonce.go", `return ok && err == nil && sum == w.checksum(number, r)`, `return ok && err == nil && sum != "" && number > 0`}}, []string{". -run TestARecordWithOurNonce"}, 6},
	{"L1: a lost race is an error", []edit{{"lock.go", `			return nil, cmp.Or(err, l.heldError(next.rec, verdict.wait))`, `			return nil, cmp.Or(err, ErrPreconditionFailed, l.heldError(next.rec, verdict.wait))`}}, []string{". -run TestALostRaceIsAlwaysErrHeld"}, 10},
	{"L2: no rest after a callback has released", []edit{{"elector.go", `errors.Is(context.Cause(lease.t.ctx), ErrReleased)`, `errors.Is(context.Cause(lease.t.ctx), errResigned)`}}, []string{". -run TestACallbackThatReleasesRestsAsAfterResign"}, 0},
	{"L3: a read that fails forgets the age", []edit{{"observe.go", `	case err != nil:
		return nil, err
	default:`, `	case err != nil:
		l.memory.mu.Lock()
		l.memory.last = nil
		l.memory.mu.Unlock()
		return nil, err
	default:`}}, []string{". -run TestReadsThatFailForgetNothing"}, 13},
	{"L5: failed tries are not logged", []edit{{"lock.go", `			if ctx.Err() == nil {
				l.log`, `			if ctx.Err() != nil {
				l.log`}}, []string{". -run TestFailuresAreTold"}, 12},
	{"L5: Run forgets why it never led", []edit{{"elector.go", `if ctx.Err() == nil || leftOver || neverAnswered {`, `if ctx.Err() == nil || leftOver || neverAnswered && false {`}}, []string{". -run TestFailuresAreTold"}, 12},
	{"L7: a corrupt record counts as an answer", []edit{{"request.go", `err == nil && op != "get":`, `err == nil:`}}, []string{". -run TestRunEndsOnACorruptRecord"}, 0},
	{"L11: a failed release of a cut-off acquisition is swallowed", []edit{{"elector.go", `if ctx.Err() == nil || leftOver || neverAnswered {`, `if ctx.Err() == nil || leftOver && false || neverAnswered {`}}, []string{". -run TestRunReportsARelease"}, 15},
	{"L12: a resting elector is unhealthy", []edit{{"elector.go", `			e.since.Store(int64(l.clock.Now().Mono + rest))
`, ``}}, []string{". -run TestCheckIsHealthyWhileAnElectorRests"}, 0},
	{"L14: a token that was repaired away comes back", []edit{{"observe.go", `m.highest > recorded && m.highest-recorded < implausible`, `m.highest > recorded`}}, []string{". -run TestTheLastTokenIsRepairedByBreak"}, 0},
	{"L15: two Locks of a process reclaim from each other", []edit{{"reclaim.go", `			return false
		}
	}
	return true`, `			break
		}
	}
	return true`}}, []string{". -run TestOneIdentityIsReclaimed"}, 8},
	{"unconfirmed writes are never settled", []edit{{"renewal.go", `t.stored, t.sent, t.unconfirmed, t.failure = v, w.sent, nil, nil`, `t.stored, t.sent, t.failure = v, w.sent, nil`}}, []string{". -run TestUnconfirmedWritesAreSettled"}, 0},
	{"S1: an age told without the user's trust", []edit{{"s3store.go", `	if !s.serverClock {`, `	if false {`}}, []string{". -run TestAgeIsToldByTheServersClockAlone"}, 9},
	{"S1: dates in whole seconds taken for exact", []edit{{"s3store.go", `max(o.Age-s.slack, 0)`, `max(o.Age, 0)`}}, []string{". -run TestAgeIsToldByTheServersClockAlone"}, 9},
	{"S1: a clock that is not the store's passes the check", []edit{{"internal/storecheck/probe.go", `case o.age < 0 || o.age > elapsed:`, `case o.age < 0:`}}, []string{". -run TestCheckStoreRefusesAClockThatIsNotTheStores"}, 9},
	{"S1: MemStore tells ages unasked", []edit{{"memstore.go", `if m.ServerClock {`, `if m != nil {`}}, []string{". -run TestMemStoreTellsNoAgeByDefault"}, 9},
	{"L4: a wrong endpoint is never told", []edit{{"internal/storeapi/server.go", `s.strange.Add(1) >= maxStrange && !s.genuine.Load()`, `s.strange.Add(1) < 0`}}, []string{". -run TestRepliesThatAreNoS3s"}, 11},
	{"L4: strange replies are final after good ones", []edit{{"internal/storeapi/server.go", `>= maxStrange && !s.genuine.Load()`, `>= maxStrange`}}, []string{". -run TestRepliesThatAreNoS3s"}, 11},
	{"L4: a followed redirect counts", []edit{{"internal/s3api/reply.go", `return reply.Request != nil && reply.Request.Response != nil`, `return false`}}, []string{". -run TestRepliesThatAreNoS3s"}, 11},
	{"L4: a page counts", []edit{{"internal/s3api/errors.go", `case webPage(header) || redirected:`, `case redirected:`}}, []string{". -run TestRepliesThatAreNoS3s"}, 11},
	{"L4: a refusal whose reason is cut off is final", []edit{{"internal/s3api/errors.go", `	case brokenOff(err): // the code`, `	case false: // the code`}}, []string{". -run TestRepliesThatAreNoS3s"}, 11},
	{"L5: this machine's faults are final for ever", []edit{{"internal/storeapi/server.go", `if s.answered.Load() {`, `if false {`}}, []string{". -run TestFaultsOfThisMachineMayPass"}, 0},
	{"L5: a credential service's answer is the store's", []edit{{"internal/s3api/errors.go", `ok && !credentials(err) {`, `ok {`}}, []string{". -run TestAnswersOfACredentialService"}, 0},
	{"L10: checks disturb one another", []edit{{"internal/storecheck/probe.go", `return p.shared && !bytes.HasPrefix(body, p.body("")) && bytes.HasPrefix(body, []byte(probeMark))`, `return false`}}, []string{". -run TestCheckStoresAtTheSameTime"}, 0},
	{"L10: a check leaves new objects each time", []edit{{"internal/storecheck/storecheck.go", `p.key, p.shared = shared, true`, `_ = shared`}}, []string{". -run TestCheckStoreWithCredentialsThatMayNotDelete"}, 0},
	{"storetest waits for a store that refuses everything", []edit{{"storetest/storetest.go", `tries > leastTries && progress.stopped()`, `tries > 20_000`}}, []string{"./storetest -run TestHopelessStoresFailSoon"}, 0},
	{"an elector's lease runs a second function", []edit{{"term.go", `	if !over && !owned {`, `	owned = t.guarding()
	if !over && !owned {`}}, []string{". -run TestElectorReleasesUnderLeaseDo"}, 8},
	{"reclaimed from a Lock without the option", []edit{{"reclaim.go", `l.sharesStore(other) && (`, `l.sharesStore(other) && other.reclaim && (`}}, []string{". -run TestReclaimFromASibling"}, 0},
	{"Run goes on though it may not write", []edit{{"elector.go", `return storeapi.Permanent(err) && !worked`, `return storeapi.Permanent(err) && !worked && l.lastAnswered.Load() < int64(began)`}}, []string{". -run TestRunWithReadOnlyCredentials"}, 12},
	{"an acquisition that came too late is left behind", []edit{{"lock.go", `l.cutOff(ctx, err, l.writeReleased(ctx, next))`, `l.cutOff(ctx, err, nil)`}}, []string{". -run TestTooLateAndCutOffLeavesAStrayLock"}, 15},
	{"a term whose callback returned early leaves no margin", []edit{{"elector.go", `				lease.t.functionEnded(leftAlone)
`, ``}}, []string{". -run TestATermWhoseCallbackReturnedEarly"}, 8},
	{"a lost term whose function has returned keeps others out", []edit{{"term.go", `		t.function = as`, `		t.function = leftAlone`}}, []string{". -run TestALostTermWhoseFunctionHasReturned"}, 8},
	{"a term does not block until its context has ended", []edit{{"term.go", `	case t.state == releasing, !ended:`, `	case t.state == releasing, !ended && false:`}}, []string{". -run TestATermBlocksUntilItsContextHasEnded"}, 8},
	{"C1: stopped without started", []edit{{"elector.go", `			if e.cb.OnNewLeader != nil {
				e.cb.OnNewLeader(lease.Record())
			}
			started = true`, `			started = true
			if e.cb.OnNewLeader != nil {
				e.cb.OnNewLeader(lease.Record())
			}`}}, []string{". -run TestNeverStoppedWithoutStarted"}, 7},
	{"never stopped", []edit{{"elector.go", `if started && e.cb.OnStoppedLeading != nil {`, `if started && e.cb.OnStoppedLeading != nil && term == nil {`}}, []string{worlds}, 7},

	// Fenced writes.
	{"fenced: a higher token overwritten", []edit{{"fenced/write.go", `case now.token > w.token:`, `case now.token > w.token && false:`}}, []string{fencedWorlds}, 17},
	{"fenced: written without a condition", []edit{{"fenced/s3.go", `ifMatch: &old.ID}`, `ifMatch: nil}`}}, []string{fencedWorlds, "./itest -run ^TestFencedStore$"}, 17},
	{"fenced: created without a condition", []edit{{"fenced/s3.go", `w.ifMatch, w.ifNoneMatch = nil, aws.String("*")`, `w.ifMatch = nil`}}, []string{fencedWorlds}, 17},
	{"fenced: no padding", []edit{{"fenced/s3.go", `if b.mode == PaddedBodies || w.meta`, `if w.meta`}}, []string{fencedWorlds}, 17},
	{"fenced: all tombstones alike", []edit{{"fenced/s3.go", `if b.mode == PaddedBodies || w.meta[metaGone] != "" {`, `if b.mode == PaddedBodies {`}}, []string{fencedWorlds}, 17},
	{"fenced: seals only what exists", []edit{{"fenced/store.go", `if old.ID != "" && old.token == token {`, `if old.ID == "" || old.token == token {`}}, []string{fencedWorlds}, 17},
	{"fenced: the token and the ETag of one HEAD taken for one version", []edit{{"fenced/s3.go", `if old.ID != "" && next.Settings == nil {`, `if false {`}}, []string{fencedWorlds}, 17},
	{"fenced: two reads compared by ETag alone", []edit{{"fenced/write.go", `return v.ID == w.ID && v.Metadata[metaNonce] == w.Metadata[metaNonce]`, `return v.ID == w.ID`}}, []string{fencedWorlds}, 17},
	{"fenced: seals what it read, not what it looked at", []edit{{"fenced/store.go", `		if !old.same(v) {
			return fmt.Errorf("sealing %q: %w", key, storeapi.ErrConflict)
		}
`, `		old.ID = v.ID
`}}, []string{fencedWorlds}, 17},
	{"fenced: seal keeps the old token", []edit{{"fenced/store.go", `		v.Metadata = users(v.Metadata)
`, `		v.Metadata, w = users(v.Metadata), &write{w.key, max(old.token, 1), w.nonce}
`}}, []string{fencedWorlds}, 17},
	{"fenced: a refusal taken as done", []edit{{"fenced/write.go", `		if storeapi.Permanent(err) || ctx.Err() != nil`, `		if errors.Is(err, leasehold.ErrPreconditionFailed) {
			return nil
		}
		if storeapi.Permanent(err) || ctx.Err() != nil`}, {"fenced/write.go", `	"encoding/hex"
`, `	"encoding/hex"
	"errors"
`}}, []string{fencedWorlds}, 17},
	{"fenced: memory without a condition", []edit{{"fenced/mem.go", `if m.objects[key].ID != old.ID {`, `if false {`}}, []string{"./fenced -run TestFencedStoreKeepsItsPromises"}, 17},
	{"fenced: own landed write not recognised", []edit{{"fenced/write.go", `case v.ID != "" && now.nonce == w.nonce:`, `case false:`}}, []string{"./fenced -run TestFenced"}, 17},
	{"fenced: padding shown to readers", []edit{{"fenced/s3padding.go", `bufio.NewReader(raw), white(nonce),`, `bufio.NewReader(raw), nil,`}}, []string{"./fenced -run TestFencedWrites"}, 17},
	{"fenced: no length taken for empty", []edit{{"fenced/s3.go", `Size: -1, ContentType`, `Size: 0, ContentType`}}, []string{"./fenced -run TestFencedBodiesOfUnknownLength"}, 17},
	{"fenced: cut bodies taken for whole", []edit{{"internal/storeapi/body.go", `err == io.EOF && (b.Size < 0 || b.got == b.Size):`, `err == io.EOF:`}}, []string{"./fenced -run TestFencedStoreAmongForeignAnswers"}, 17},
	{"fenced: padding cut unseen", []edit{{"fenced/s3padding.go", `bytes.Equal(ahead, u.pad):`, `len(ahead) <= len(u.pad):`}}, []string{"./fenced -run TestFencedPaddingIsOnlyCut"}, 17},
	{"fenced: seal cuts without a look", []edit{{"fenced/store.go", `return s.send(ctx, w, old, v, body)`, `return s.send(ctx, w, old, v, io.LimitReader(body, v.Size))`}}, []string{"./fenced -run TestFencedPaddingIsOnlyCut"}, 17},
	{"fenced: a part taken for the whole", []edit{{"internal/s3api/reply.go", `case !slices.Contains(statuses, reply.StatusCode):`, `case !slices.Contains(append(statuses, 206), reply.StatusCode):`}}, []string{"./fenced -run TestFencedStoreAmongForeignAnswers"}, 11},
	{"fenced: a completion without ETag counts", []edit{{"fenced/s3parts.go", `	return b.Genuine(s3api.Put, w.key, out.ETag, out.ResultMetadata)
`, `	_ = out
	return nil
`}}, []string{"./fenced -run TestFencedStoreAmongForeignAnswers"}, 11},
	{"fenced: an answer without ETag means an unsafe store", []edit{{"internal/s3api/reply.go", `		return b.NotS3(why, op, key)`, `		return fmt.Errorf("%w: %w", storeapi.ErrUnsafeStore, b.NotS3(why, op, key))`}, {"internal/s3api/reply.go", `	smithyhttp "github.com/aws/smithy-go/transport/http"
`, `	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold-go/leasehold/internal/storeapi"
`}}, []string{"./fenced -run TestFencedStoreAmongForeignAnswers"}, 11},
	{"fenced: redirects followed", []edit{{"internal/s3api/reply.go", `	case followed(reply):
`, `	case false:
`}}, []string{"./fenced -run TestFencedStoreAmongForeignAnswers"}, 11},
	{"fenced: If-Match of large writes not probed", []edit{{"fenced/s3check.go", `{{"If-Match", s3Write{key: key, ifMatch: &first}}, {"If-None-Match"`, `{{"If-None-Match"`}}, []string{"./fenced -run TestFencedLargeWritesNeedBoth"}, 17},
	{"fenced: If-None-Match of large writes not probed", []edit{{"fenced/s3check.go", `, {"If-None-Match", s3Write{key: key, ifNoneMatch: create}}}`, `}`}}, []string{"./fenced -run TestFencedLargeWritesNeedBoth"}, 17},
	{"fenced: large writes without a condition", []edit{{"fenced/s3parts.go", `UploadId: id, IfMatch: w.ifMatch, IfNoneMatch: w.ifNoneMatch,`, `UploadId: id,`}}, []string{"./fenced -run TestFencedLargeWrite"}, 17},
	{"fenced: a body that has stopped is waited for", []edit{{"internal/storeapi/body.go", `	b.idle.Reset(b.limit)
`, `	b.idle.Stop()
`}}, []string{"./fenced -run TestFencedRequestsHaveTimeLimits"}, 17},
	{"fenced: requests without a time limit", []edit{{"fenced/s3.go", `return context.WithTimeout(ctx, b.timeout+time.Duration(size)*time.Second/leastRate)`, `return context.WithCancel(ctx)`}}, []string{"./fenced -run TestFencedRequestsHaveTimeLimits"}, 17},
	{"fenced: the rest of a body not drained", []edit{{"internal/storeapi/body.go", `		_, _ = io.CopyN(io.Discard, b.raw, drainSize)
`, ``}}, []string{"./fenced -run TestFencedGetsReuseConnections"}, 17},
	{"fenced: tokens that no lock issues read", []edit{{"fenced/write.go", `token == 0 || token > storeapi.MaxToken {
		return c`, `token == 0 {
		return c`}}, []string{"./fenced -run TestFencedTokensThatNoLockIssues"}, 17},
	{"fenced: tokens that no lock issues written", []edit{{"fenced/write.go", `	if token == 0 || token > storeapi.MaxToken {`, `	if token == 0 {`}}, []string{"./fenced -run TestFencedTokensThatNoLockIssues"}, 17},
	{"fenced: tags lost by a seal", []edit{{"fenced/s3settings.go", `case aws.ToInt32(out.TagCount) > 0:`, `case false:`}}, []string{"./fenced -run TestFencedSealLosesNothing"}, 17},
	{"fenced: compressed bodies padded", []edit{{"fenced/s3settings.go", `		if b.mode == PaddedBodies {
			return s`, `		if false {
			return s`}}, []string{"./fenced -run TestFencedPaddingOfEncodedBodies"}, 17},
	{"fenced: options share the caller's map", []edit{{"fenced/store.go", `	m = maps.Clone(m)
`, `	_ = maps.Clone(m)
`}}, []string{"./fenced -run TestFencedOptionsAreCloned"}, 17},
	{"fencehttp: 200 for a write that did not run", []edit{{"fencehttp/fencehttp.go", `http.Error(w, "not carried out: "+err.Error()+"; try again", http.StatusServiceUnavailable)`, ``}}, []string{"./fencehttp -run TestAWriteThatHasNotRunIs503"}, 24},
	{"fencehttp: lower tokens not interrupted", []edit{{"fencehttp/fencehttp.go", `lower.interrupt(highest)`, `_ = lower`}}, []string{"./fencehttp -run TestAStoppedUpload"}, 24},
	{"fencehttp: a blocked read not interrupted", []edit{{"fencehttp/fencehttp.go", `_ = conn.SetReadDeadline(time.Unix(1, 0))`, ``}}, []string{"./fencehttp -run TestAStoppedUpload|TestAHijackedConnection"}, 24},
	{"fencehttp: interrupted without a cause", []edit{{"fencehttp/fencehttp.go", `cancel(&fenced.Error{Key: name, Token: token, Highest: highest})`, `_ = fenced.ErrFenced
	cancel(nil)`}}, []string{"./fencehttp -run TestAStoppedUpload"}, 24},
	{"fencehttp: let in beside a lower token when the wait is over", []edit{{"fencehttp/fencehttp.go", `return 0, errBusy`, `g.inside[v] = false
			return g.highest, nil`}}, []string{"./fencehttp -run TestTheWaitIsBounded"}, 24},
	{"fencehttp: no bound of the wait", []edit{{"fencehttp/fencehttp.go", `context.WithTimeout(ctx, f.wait)`, `context.WithCancel(ctx)`}}, []string{"./fencehttp -run TestMarksThatFail|TestTheWaitIsBounded"}, 24},
	{"fencehttp: a gate for each method", []edit{{"fencehttp/fencehttp.go", `g := f.of(name)
		defer f.leave(name)`, `g := f.of(r.Method + name)
		defer f.leave(r.Method + name)`}}, []string{"./fencehttp -run TestRoutesOfOneFenceWaitForEachOther"}, 24},
	{"fencehttp: tokens that no lock issues", []edit{{"fencehttp/fencehttp.go", `token == 0 || token > maxToken || len(values) > 1`, `token == 0 || len(values) > 1`}}, []string{"./fencehttp -run TestStatus"}, 24},
	{"fencehttp: marks tried without end", []edit{{"fencehttp/fencehttp.go", `case try == raiseTries:`, `case try == 3*raiseTries:`}}, []string{"./fencehttp -run TestStoreMarksEnd"}, 24},

	// Promises that no check proved.
	{"stopped twice", []edit{{"elector.go", `			e.calling(func() { e.cb.OnStoppedLeading(context.Cause(lease.t.ctx)) })`, `			e.calling(func() { e.cb.OnStoppedLeading(context.Cause(lease.t.ctx)) })
			e.calling(func() { e.cb.OnStoppedLeading(context.Cause(lease.t.ctx)) })`}}, []string{worlds}, 7},
	{"polls four times as often", []edit{{"lock.go", `min(l.untilNextRead(), held.Wait+spread)`, `min(l.untilNextRead()/4, held.Wait+spread)`}}, []string{worlds, ". -run TestWaitingCandidateReadsTwicePerRenewal"}, 14},
	{"polls twice as often", []edit{{"lock.go", `min(l.untilNextRead(), held.Wait+spread)`, `min(l.untilNextRead()/2, held.Wait+spread)`}}, []string{worlds}, 14},
	{"renews twice as often", []edit{{"renewal.go", `float64(t.lock.renew) * (1`, `float64(t.lock.renew/2) * (1`}}, []string{worlds}, 14},
	{"Watch reads twice as often", []edit{{"inspect.go", `			wait := clock.Jitter(l.clock, l.poll)`, `			wait := clock.Jitter(l.clock, l.poll/2)`}}, []string{worlds}, 14},
	{"no backoff while the store fails", []edit{{"lock.go", `wait, woken = l.backoff(&failures), nil`, `wait, woken = min(l.backoff(&failures), l.attempt/100), nil`}}, []string{worlds, ". -run TestAcquireBacksOffWhileTheStoreFails"}, 14},
	{"each read is sent twice", []edit{{"request.go", `	obj, err := l.store.Get(ctx, l.key)
`, `	_, _ = l.store.Get(ctx, l.key)
	obj, err := l.store.Get(ctx, l.key)
`}}, []string{worlds, "./itest -run TestRequestCounts"}, 14},
	{"wake-ups without a bound", []edit{{"wake.go", `l.bell.Request(l.clock, min(l.poll, l.ttl), maxWakes)`, `l.bell.Ring()`}}, []string{worlds, ". -run TestAMillionWakeUpsAreFewReads"}, 21},
	{"wake-ups wake nobody", []edit{{"wake.go", `		l.bell.Request(l.clock, min(l.poll, l.ttl), maxWakes)`, `		_ = maxWakes`}}, []string{worlds, ". -run TestWakeMakesWhoeverWaitsReadNow"}, 21},
	{"fairness forgotten", []edit{{"decide.go", `s.writtenByUs && o.fair && s.age < 2*o.poll:`, `s.writtenByUs && o.fair && s.age < 0:`}}, []string{worlds, ". -run TestFairness"}, 22},
	{"fairness for half the time", []edit{{"decide.go", `o.fair && s.age < 2*o.poll:`, `o.fair && s.age < o.poll:`}}, []string{worlds}, 22},
	{"a negative age counts", []edit{{"observe.go", `obj.ETag, max(obj.Age, 0)`, `obj.ETag, obj.Age`}}, []string{". -run TestNegativeAge"}, 9},
	{"an answer without ETag counts", []edit{{"request.go", `if err == nil && etag == "" {`, `if err == nil && etag == "" && false {`}}, []string{worlds}, 11},
	{"expires_at of renewals stays that of the acquisition", []edit{{"renewal.go", `rec.ExpiresAt = sent.Time().Add(t.lock.ttl)`, `rec.ExpiresAt = rec.AcquiredAt.Add(t.lock.ttl)`}}, []string{worlds}, 19},
	{"a foreign client's term is reclaimed", []edit{{"observe.go", ` && byLock(v.rec) &&`, ` &&`}}, []string{". -run TestReclaimLeavesAForeignClientsTermAlone"}, 19},
	{"Watch misses releases", []edit{{"inspect.go", `|| a.Released() != b.Released() ||`, `||`}}, []string{worlds, ". -run TestWatchYieldsEveryChangeOfTerm"}, 20},
	{"Watch keeps failures to itself", []edit{{"inspect.go", `if !yield(Record{}, l.named(err)) || storeapi.Permanent(err) {`, `if storeapi.Permanent(err) {`}}, []string{worlds}, 20},
	{"a fence lets former leaders pass", []edit{{"fenced/fence.go", `if token < f.highest || token == 0 {`, `if token == 0 {`}}, []string{worlds}, 3},
	{"the context of a lost lease goes on", []edit{{"term.go", `	t.mu.Unlock()
	t.cancel(cause)
`, `	t.mu.Unlock()
`}}, []string{worlds, search, ". -run TestDefinitiveLossEndsTheContextAtOnce"}, 2},
	{"a release sends nothing", []edit{{"release.go", `		return t.put(ctx, markReleased)`, `		_ = ctx
		return nil`}}, []string{worlds, search}, 15},
	{"an ETag's form that the server may ignore", []edit{{"internal/s3api/dialect.go", `			return unknown, errors.New("the server takes a wrong ETag if it has no quotes: it is not safe")`, `			o.dialect.Store(bare)`}}, []string{". -run TestAnETagsFormIsNeverGuessed"}, 40},
	{"a conflict taken for a matter of form", []edit{{"internal/s3api/dialect.go", `storeapi.Refused(err) {
			return false, nil`, `storeapi.Refused(err) {
			return true, nil`}}, []string{". -run TestTheUsualETagsCostNothing"}, 40},
	{"a form taken for learnt though the usual one works", []edit{{"internal/s3api/dialect.go", `			o.dialect.Store(asReceived)`, `			continue`}}, []string{". -run TestAnETagsFormIsNeverGuessed"}, 40},
	{"what learning met counts for the lock", []edit{{"internal/s3api/dialect.go", `Cause: errors.New(learning + why.Error())}`, `Cause: fmt.Errorf(learning+"%w", why)}`}}, []string{". -run TestErrorsOnTheObjectThatIsAsked"}, 40},
	{"a refusal that nobody has looked into counts", []edit{{"internal/s3api/dialect.go", `!still {
		return asReceived, err`, `!still || err != nil {
		return asReceived, nil`}}, []string{". -run TestErrorsWhileAnETagsFormIsLearnt"}, 40},
	{"each writer learns an ETag's form for itself", []edit{{"internal/s3api/dialect.go", `	if known := o.dialect.Load(); known != unknown {
		return known, nil
	}
`, ``}}, []string{". -run TestManyLearnAnETagsFormOnce"}, 40},
	{"each attempt asks for an ETag's form from the beginning", []edit{{"internal/s3api/dialect.go", `for ; q.asked < len(forms)`, `for q.asked = 0; q.asked < len(forms)`}}, []string{". -run TestAnETagsFormIsLearntInSeveralAttempts"}, 40},
	{"an ETag that means something else without quotes", []edit{{"internal/s3api/dialect.go", `text != "" && text != "*" {`, `text != "?" {`}}, []string{". -run TestETagsThatNeedTheirQuotes"}, 40},
	{"fenced: bodies in parts with the usual form", []edit{{"fenced/s3parts.go", `w.ifMatch = b.IfMatch(*w.ifMatch)`, `w.ifMatch = aws.String(*w.ifMatch)`}}, []string{"./fenced -run TestFencedWritesWithoutQuotes"}, 40},
	{"written without a condition", []edit{{"internal/s3api/object.go", `		IfMatch: ifMatch, IfNoneMatch: ifNoneMatch,
`, ``}}, []string{"./itest -run TestContention"}, 1},
	{"created without a condition", []edit{{"internal/s3api/object.go", `o.put(ctx, key, body, nil, aws.String("*"))`, `o.put(ctx, key, body, nil, nil)`}}, []string{"./itest -run TestLinearizableRegister"}, 18},
	{"a refused Do keeps others out", []edit{{"term.go", `	if !over && !owned {`, `	if !over || !owned {`}}, []string{". -run TestARefusedDoKeepsNobodyOut"}, 8},
	{"takes over after ten TTLs", []edit{{"decide.go", `return time.Duration(float64(ttl) * (1 + o.drift))`, `return time.Duration(float64(ttl) * (10 + o.drift))`}}, []string{worlds}, 13},
	{"Valid looks at no clock", []edit{{"term.go", `ok, ranOut := t.state == held, t.remaining() <= 0`, `ok, ranOut := t.state == held, false`}}, []string{worlds, search}, 5},
	{"nothing looks at the clocks", []edit{{"term.go", `ok, ranOut := t.state == held, t.remaining() <= 0`, `ok, ranOut := t.state == held, false`}, {"term.go", `	ranOut := t.state == held && t.remaining() <= 0
	if`, `	ranOut := false
	if`}}, []string{"./itest -run TestSuspendedProcess"}, 5},
	{"a ttl that a foreign client has kept counts", []edit{{"decide.go", `	if !byLock(r) { // such`, `	if r.TTL <= 0 { // such`}}, []string{worlds, ". -run TestWhoMayTakeTheLock"}, 19},
	{"a commit counts though an earlier renewal has landed instead", []edit{{"renewal.go", `return ours.rec.Nonce == nonce ||`, `return ours.rec.Nonce != nonce ||`}}, []string{". -run TestACommitAfterARenewal"}, 6},
	{"a release that has landed is forgotten", []edit{{"release.go", `		t.become(released)
		if t.base != nil {
			t.freed()`, `		if t.base != nil {
			t.freed()`}}, []string{". -run TestAReleaseIsToldOnce"}, 6},
	{"Run keeps a failed release to itself", []edit{{"elector.go", `	if err != nil && !ended(err) {
		l.log`, `	if err == nil && !ended(err) {
		l.log`}}, []string{". -run TestRunReturnsTheErrorOfItsLastRelease"}, 15},
	{"renewals are tried again late", []edit{{"renewal.go", `max(min(t.lock.renew/2, remaining/4), first)`, `t.lock.renew/2+0*remaining`}}, []string{". -run TestShortOutagesCostNoLease"}, 13},
	{"a wake-up during the read is missed", []edit{{"lock.go", `		woken, mark := l.bell.Listen(), following.mark()
		lease, err := try()`, `		mark := following.mark()
		lease, err := try()
		woken := l.bell.Listen()`}}, []string{". -run TestAWakeUpDuringTheRead"}, 21},
	{"a wake-up that is put off is lost", []edit{{"internal/bell/bell.go", `	c.AfterFunc(b.slot-now, b.Ring)`, `	b.late = false`}}, []string{". -run TestAMillionWakeUpsAreFewReads", "./internal/bell -run TestRequestsAreSpread"}, 21},
	{"a release wakes nobody in its process", []edit{{"wake.go", `		s.bell.Ring()`, `		_ = s`}}, []string{". -run TestLocksOfOneProcessWakeEachOther"}, 21},
	{"a read that came too early is not repeated", []edit{{"internal/forecast/forecast.go", `r.extra < maxExtra {`, `r.extra < maxExtra-maxExtra {`}}, []string{"./internal/forecast -run TestReadsComeSoonAfterRenewals"}, 0},
	{"a lease keeps itself alive", []edit{{"term.go", `func(forgotten *atomic.Bool) { forgotten.Store(true) }, t.forgotten)`, `func(t *term) { t.forgotten.Store(true) }, t)`}}, []string{". -run TestALeaseThatItsObserverRefersTo"}, 0},

	// Sessions.
	{"sessions: taken without a seal", []edit{{"peer.go", `			if err := p.seal(ctx, v, named); err != nil {
				return verdict{}, err
			}
`, `			p.isNowOver(named)
`}}, []string{worlds, search}, 25},
	{"sessions: a young version sealed", []edit{{"peer.go", `p.lock.withDrift(named.TTL)-p.lock.observed(v).age)
`, `p.lock.withDrift(named.TTL)-p.lock.observed(v).age) - p.lock.ttl/2
`}}, []string{worlds}, 25},
	{"sessions: sealed whatever is there", []edit{{"peer.go", `	err := p.lock.writeReleased(ctx, v)
`, `	if now, err := p.lock.read(ctx); err == nil && now.exists && v.exists {
		v = now
	}
	err := p.lock.writeReleased(ctx, v)
`}}, []string{worlds}, 25},
	{"sessions: an ambiguous seal counted", []edit{{"peer.go", `	if err == nil && v.exists {
`, `	if !storeapi.Refused(err) && v.exists {
`}}, []string{worlds}, 25},
	{"sessions: a lower token taken for the end", []edit{{"peer.go", `v.rec.SessionID != named.ID || v.rec.Token < named.Token || `, `v.rec.Token >= named.Token && v.rec.SessionID != named.ID || `}}, []string{worlds}, 25},
	{"sessions: the ID ignored", []edit{{"peer.go", `!v.exists || v.rec.SessionID != named.ID || v.rec.Token`, `!v.exists || v.rec.Token`}}, []string{worlds}, 25},
	{"sessions: the verdict kept for another term", []edit{{"peer.go", `return p.over[named.ID] >= named.Token`, `return p.over[named.ID] > 0`}}, []string{worlds}, 25},
	{"sessions: a missing object taken for the end", []edit{{"peer.go", `	if !v.exists {
		v = &version`, `	if !v.exists {
		p.isNowOver(named)
		v = &version`}}, []string{worlds, search}, 25},
	{"sessions: no wait after a missing object was created", []edit{{"peer.go", `	if err == nil && v.exists {
		p.isNowOver`, `	if err == nil {
		p.isNowOver`}}, []string{worlds, search}, 25},
	{"sessions: absence counted from a read", []edit{{"peer.go", `		case !v.exists:
		case p.shows`, `		case !v.exists:
			p.mu.Lock()
			first, noted := p.missing[named.term()]
			if !noted {
				first = p.began
				p.missing[named.term()] = first
			}
			p.mu.Unlock()
			if wait = p.lock.withDrift(named.TTL) - (p.lock.clock.Now().Mono - first); wait <= 0 {
				p.isNowOver(named)
				continue
			}
		case p.shows`}, {"peer.go", `!last.exists || p.shows(last, named)`, `p.shows(last, named)`}}, []string{worlds}, 25},
	{"sessions: an old sight of another object counted", []edit{{"peer.go", `fresh = p.began > read`, `fresh = true`}}, []string{". -run TestAnOldSightOfAnotherObject"}, 25},
	{"sessions: the ID drawn for each term", []edit{{"lock.go", `l.heartOf != nil && rec.SessionID == ""`, `l.heartOf != nil`}}, []string{worlds}, 25},
	{"sessions: ttl written into the lock", []edit{{"session.go", `r.TTL, r.ExpiresAt = 0, wire.LeaningTime()`, `r.TTL, r.ExpiresAt = base.lock.ttl, wire.LeaningTime()`}}, []string{worlds}, 25},
	{"sessions: a session member counts beside any expires_at", []edit{{"internal/wire/record.go", `ok && *expires == Leaning && o.TTL == 0`, `ok`}}, []string{". -run TestSessionMember"}, 19},
	{"sessions: Break let through", []edit{{"inspect.go", `case rec.Session != nil && !l.free`, `case rec.Session != nil && rec.Released() && !l.free`}}, []string{worlds, ". -run TestBreakOfALeaningLock"}, 25},
	{"sessions: a lock of another prefix", []edit{{"peer.go", `	case named.Lock != l.key:`, `	case named.Lock != l.key && l.key == "":`}}, []string{". -run TestAnotherPrefix"}, 25},
	{"sessions: an acquisition counts though the session has ended", []edit{{"lean.go", `	if s.state != held || s.leaning.closed || s.remaining() <= 0 {
		return false
	}`, ``}}, []string{". -run TestAnAcquisitionAfterTheEndOfTheSession"}, 26},
	{"sessions: leases go on after the loss", []edit{{"term.go", `	t.loseLeaning(cause)
`, ``}}, []string{worlds}, 26},
	{"sessions: leases valid after the loss", []edit{{"lean.go", `	if s.state != held {
		return 0
	}
	return s.remaining()`, `	return max(s.remaining(), 1)`}, {"term.go", `	t.loseLeaning(cause)
`, ``}}, []string{worlds}, 26},
	{"sessions: a commit counts after the end", []edit{{"renewal.go", `	if over := t.whyOver(); over != nil { // the answer came too late`, `	if over := t.whyOver(); over != nil && t.base == nil { // the answer came too late`}}, []string{". -run TestCommitAfterTheEndOfTheSession"}, 26},
	{"sessions: taken anew before the functions have returned", []edit{{"session.go", `		t.awaitLeaning()
`, ``}}, []string{worlds}, 27},
	{"sessions: the margin of leases without a function forgotten", []edit{{"lean.go", `			wait = max(wait, closedAt+s.lock.margin-now)`, `			_ = closedAt`}}, []string{". -run TestASessionWaitsForTheMargin"}, 27},
	{"sessions: a stuck function keeps the session", []edit{{"lean.go", `		case t.guarding():
			wait = limit`, `		case t.guarding():
			wait, limit = math.MaxInt64, math.MaxInt64`}}, []string{". -run TestAStuckFunctionDoesNotKeepTheSession"}, 28},
	{"sessions: debts forgotten", []edit{{"lean.go", `	if base == nil {
		return
	}
	t := &term{`, `	if base == nil || base.token > 0 {
		return
	}
	t := &term{`}}, []string{". -run TestAnAcquisitionOfUnknownOutcomeIsFreed"}, 28},
	{"sessions: a torn read ends a debt", []edit{{"lock.go", `			mayLand = now.sameRecord(v)`, `			mayLand = false`}}, []string{". -run TestATornReadProvesNoChange"}, 28},
	{"sessions: a torn read taken for another's term", []edit{{"renewal.go", `	unchanged := v.sameRecord(t.stored)`, `	unchanged := l.landed(t.stored.rec, v.rec)`}}, []string{". -run TestATornReadProvesNoChange"}, 28},
	{"sessions: failed releases forgotten", []edit{{"lean.go", `	case unreleased:
		owed = true`, `	case unreleased:
		owed = false`}}, []string{". -run TestAFailedReleaseIsTriedAgain"}, 28},
	{"sessions: forgotten leases kept", []edit{{"lean.go", `		case t.forgotten.Load():
`, `		case t.forgotten.Load() && t.token == 0:
`}}, []string{". -run TestAForgottenLeaseOfASession"}, 28},
	{"sessions: an overrunning function keeps the lock", []edit{{"lean.go", `		case now >= t.renewUntil:`, `		case false:`}}, []string{". -run TestAFunctionThatDoesNotReturnUnderASession"}, 28},
	{"sessions: locks never looked at", []edit{{"lean.go", `		case now >= t.lookAt:`, `		case false:`}}, []string{". -run TestLocksOfASessionAreLookedAt"}, 28},
	{"sessions: the locks not released at the end, though asked", []edit{{"lean.go", `	if s.lock.each {`, `	if s.lock.each && s.token == 0 {`}}, []string{". -run TestEachLockIsReleased"}, 28},
	{"sessions: a release that waits loses the lease", []edit{{"release.go", `	defer t.lock.wakeSiblings()
	if t.valid()`, `	defer t.lock.wakeSiblings()
	t.awaitSession()
	if t.valid()`}}, []string{". -run TestAFunctionThatReturnsJustBefore"}, 6},
	{"sessions: a torn look at a lock loses the lease", []edit{{"renewal.go", `	case unchanged:`, `	case unchanged && t.base == nil:`}}, []string{". -run TestATornReadCostsNoLease"}, 6},
	{"sessions: releases not told", []edit{{"lean.go", `		t.lock.session.tell(t.lock.key)
`, ``}}, []string{". -run TestWaitersOfASessionReadOnlyTheSession"}, 29},
	{"sessions: the end of a session not told", []edit{{"peer.go", `		if f.named.ID == named.ID && f.named.Token <= named.Token {`, `		if false {`}}, []string{". -run TestLocksOfADeadSessionAreTakenOver"}, 29},
	{"sessions: each lock is read", []edit{{"peer.go", `	return clock.Jitter(f.l.clock, f.l.untilLook())`, `	return clock.Jitter(f.l.clock, f.l.poll)`}}, []string{". -run TestWaitersOfASessionReadOnlyTheSession"}, 29},
	{"sessions: a gap is not noticed", []edit{{"peer.go", `			p.ringLater(f)
`, ``}}, []string{". -run TestAGapIsNoticed"}, 29},

	// Shards.
	{"shards: the plan alone decides", []edit{{"shards/shard.go", `g.session.Lock(shardKey(g.prefix, w.id))`, `g.session.Lock(shardKey(g.prefix, w.id+"/"+g.member))`}}, []string{shardWorlds, "./shards -run TestJoinAndLeave"}, 30},
	{"shards: called though the lease is over", []edit{{"shards/shard.go", `	for failures := 0; lease.Valid(); { // after`, `	for failures := 0; ; { // after`}}, []string{"./shards -run TestAHandlerIsNotCalledAfterASuspend"}, 31},
	{"shards: handlers hear of the end two TTLs late", []edit{{"shards/shard.go", `		err := g.call(ctx, shard)
`, `		late, end := context.WithCancel(context.WithoutCancel(ctx))
		defer context.AfterFunc(ctx, func() { g.clock.AfterFunc(2*g.ttl, end) })()
		err := g.call(late, shard)
`}}, []string{shardWorlds}, 31},
	{"shards: released before the handler has returned", []edit{{"shards/shard.go", `		err := g.call(ctx, shard)
`, `		done := make(chan error, 1)
		go func() { done <- g.call(ctx, shard) }()
		var err error
		select {
		case err = <-done:
		case <-ctx.Done():
		}
`}}, []string{shardWorlds, "./shards -run TestAHandlerThatDoesNotReturn"}, 31},
	{"shards: handlers that do not return are not reported", []edit{{"shards/check.go", `w.endedAt > 0 && now-w.endedAt > g.poll`, `w.endedAt > 0 && now < w.endedAt`}}, []string{"./shards -run TestAHandlerThatDoesNotReturn"}, 37},
	{"shards: what moves is not released", []edit{{"shards/member.go", `			w.stop(errMoved)
`, `			_ = w
`}}, []string{shardWorlds, "./shards -run TestJoinAndLeave"}, 32},
	{"shards: one member gets all that are left over", []edit{{"shards/assign.go", `		if i < left%len(order) {
			a.quota[m]++
		}`, `		if i == 0 {
			a.quota[m] += left % len(order)
		}`}}, []string{shardWorlds, "./shards -run ^TestAssign$"}, 32},
	{"shards: expired sessions count as held", []edit{{"shards/watch.go", `	if m.live && maySeal && now >= m.since+m.ttl {`, `	if m.live && maySeal && now < 0 {`}}, []string{shardWorlds, "./shards -run TestDeaths"}, 32},
	{"shards: nobody stands in for a planner that is gone", []edit{{"shards/member.go", `		stands = now-c.seen >= silence*g.ttl
`, ``}}, []string{shardWorlds, "./shards -run TestDeaths"}, 32},
	{"shards: a member that the plan omits does not enter the roster again", []edit{{"shards/roster.go", `	if e.joined && p.has(g.member) && p.gen`, `	if e.joined && p != nil && p.gen`}}, []string{"./shards -run TestAMemberThatTheRosterHasLost"}, 34},
	{"shards: a member that a plan for another number of shards has is content", []edit{{"shards/roster.go", ` && p.generation == g.set.generation() && len(refused) == 0`, ` && len(refused) == 0`}}, []string{shardWorlds}, 35},
	{"shards: each plan from scratch", []edit{{"shards/planner.go", `	next := assign(p.plan, ids, who)`, `	next := assign(nil, ids, who)`}}, []string{"./shards -run TestAJoinMovesItsShare"}, 33},
	{"shards: homes forgotten", []edit{{"shards/assign.go", `			a.home[id] = home
`, `			_ = home
`}}, []string{"./shards -run TestAMemberThatRestartsGetsItsShardsBack|TestARollingRestartMovesTwice"}, 33},
	{"shards: does not wait until nobody comes", []edit{{"shards/planner.go", `w.readAt-p.came >= g.poll*8/10`, `w.readAt > 0`}}, []string{"./shards -run TestMembersThatCome"}, 33},
	{"shards: written at every look", []edit{{"shards/planner.go", `	if p.plan.says(next) && !p.unsure && p.inForce() {`, `	if len(next.ids) == 0 && p.plan.says(next) && !p.unsure && p.inForce() {`}}, []string{shardWorlds}, 32},
	{"shards: a plan that is damaged or replaced stays", []edit{{"shards/planner.go", `!p.unsure && p.inForce() {`, `!p.unsure {`}}, []string{shardWorlds, "./shards -run TestAnOldPlan"}, 34},
	{"shards: a plan that was put back to none stays so", []edit{{"shards/planner.go", `!g.planless && !errors.Is`, `!errors.Is`}}, []string{"./shards -run TestThePlanIsPutBackToNone"}, 34},
	{"shards: a damaged plan stops all members", []edit{{"shards/member.go", `		if err == nil || errors.Is(err, errBadPlan) {
			if g`, `		if err == nil {
			if g`}}, []string{"./shards -run TestThePlannerAndItsDeputyDie"}, 34},
	{"shards: candidates do not hear that the planner's lock is another", []edit{{"shards/member.go", `				g.plannerLock.Wake()`, `				_ = g.plannerLock.Wake`}}, []string{"./shards -run TestThePlannersLockAsItWasAtFirst"}, 34},
	{"shards: a list that hangs stops the planner", []edit{{"shards/planner.go", `context.WithTimeout(p.ctx, g.ttl/2)`, `context.WithTimeout(p.ctx, 1000*g.ttl)`}}, []string{shardWorlds, "./shards -run TestAListThatHangs"}, 32},
	{"shards: members of a damaged roster forgotten", []edit{{"shards/watch.go", `		names = append(names, p.members...)
`, ``}}, []string{"./shards -run TestADamagedRoster"}, 34},
	{"shards: an old roster believed", []edit{{"shards/planner.go", `	stale := found && me.Generation != mine.Generation
`, `	stale := found && me.Generation == "" && mine.Generation == ""
`}}, []string{"./shards -run TestAnOldRoster"}, 34},
	{"shards: no list empties the plan", []edit{{"shards/planner.go", `			p.listed = p.plan.ids
`, ``}}, []string{"./shards -run TestNamesThatChange"}, 34},
	{"shards: pieces of another plan used", []edit{{"shards/pieces.go", `!bytes.Equal(digest[:], o.Digest)`, `len(digest) == 0`}}, []string{"./shards -run TestPiecesOfTwoPlans"}, 34},
	{"shards: pieces of a higher token overwritten", []edit{{"shards/pieces.go", `if err := confirm(ctx); err != nil {`, `if err := error(nil); err != nil {`}}, []string{"./shards -run TestPiecesOfTwoPlans"}, 34},
	{"shards: pieces that are older than the planner's lock respected", []edit{{"shards/planner.go", `	return p.lease.Commit(ctx, p.lease.Record().Payload)`, `	return errors.New("it may be deposed")`}}, []string{"./shards -run TestPiecesThatAreOlder"}, 34},
	{"shards: the planner does not read its pieces again", []edit{{"shards/member.go", `checks := g.planner != nil && asked`, `checks := g.planner == nil && g.planner != nil && asked`}}, []string{"./shards -run TestAPieceIsWrittenAgain"}, 34},
	{"shards: large plans not cut", []edit{{"shards/planner.go", `	if len(body) > maxInline {`, `	if len(body) > 1<<30 {`}}, []string{shardWorlds, "./shards -run TestPlansTooLarge"}, 32},
	{"shards: a planner of the minority plans", []edit{{"shards/planner.go", `	if elected := p.vote(w); elected != p.g.set.generation() {`, `	if elected := p.vote(w); elected == "" {`}}, []string{shardWorlds, "./shards -run TestTwoSetsOnOnePrefix|TestTheNumberOfShardsChanges"}, 35},
	{"shards: a plan for another number of shards followed", []edit{{"shards/member.go", `p != nil && p.generation == g.set.generation()`, `p != nil`}}, []string{"./shards -run TestAMemberWithAnotherSet"}, 35},
	{"shards: refusals not told", []edit{{"shards/shard.go", `	g.refusals[w.id] = true
`, ``}}, []string{"./shards -run TestAMemberThatCannotTakeSomeShards"}, 36},
	{"shards: no pause after refusals", []edit{{"shards/planner.go", `return coolDown * p.g.ttl << max(min(c.times, 7)-1, 0) }`, `return 0 }`}}, []string{"./shards -run TestNobodyCanTakeAShard"}, 36},
	{"shards: the pause after refusals does not grow", []edit{{"shards/planner.go", `p.g.ttl << max(min(c.times, 7)-1, 0) }`, `p.g.ttl }`}}, []string{"./shards -run TestNobodyCanTakeAShard"}, 36},
	{"shards: a planner that cannot publish stays", []edit{{"shards/planner.go", `		g.resign(2 * g.ttl)
`, ``}}, []string{"./shards -run TestAPlannerThatCannotPublish"}, 36},
	{"shards: a planner that cannot release stays", []edit{{"shards/member.go", `	case now-c.stuck >= g.ttl:`, `	case now < 0:`}}, []string{"./shards -run TestAPlannerThatCannotPublish"}, 36},
	{"shards: one new session after the other", []edit{{"shards/member.go", ` && *c.session != c.left
`, `
`}}, []string{"./shards -run TestAPlannerThatIsAlone"}, 36},
	{"shards: a handler that fails ends the work", []edit{{"shards/shard.go", `		case err == nil:
			<-ctx`, `		case err == nil || failures >= 0:
			<-ctx`}}, []string{"./shards -run TestHandlersThatFail"}, 37},
	{"shards: a panic counts as the end", []edit{{"shards/shard.go", `			err = fmt.Errorf("the handler panicked: %v\n%s", r, debug.Stack())`, `			_ = fmt.Errorf("the handler panicked: %v\n%s", r, debug.Stack())`}}, []string{"./shards -run TestHandlersThatFail"}, 37},
	{"shards: handlers that fail are called again at once", []edit{{"shards/shard.go", `clock.Backoff(g.clock, &failures, min(g.poll/4, time.Second), 4*g.ttl)`, `clock.Backoff(g.clock, &failures, min(g.poll/4, time.Second), time.Second)`}}, []string{"./shards -run TestHandlersThatFail"}, 37},
	{"shards: starts not bounded", []edit{{"shards/group.go", `make(ctxmutex.Mutex, o.starts)`, `make(ctxmutex.Mutex, o.starts+1000)`}}, []string{"./shards -run TestStartsAreBounded"}, 37},
	{"shards: the deputy does not watch along", []edit{{"shards/member.go", `	watches := deputy && !paused
`, `	watches := deputy && paused
`}}, []string{"./shards -run TestTheDeputyHasWatchedAlong"}, 38},
	{"shards: without a session the plan is read all the time", []edit{{"shards/member.go", `left > 0 && !entrance.joined {`, `entrance.at > 0 && !entrance.joined {`}}, []string{shardWorlds, "./shards -run TestAMemberWithoutASession"}, 39},
	{"shards: all enter the roster at once", []edit{{"shards/roster.go", `		e.at = now + g.within(g.poll/2)
`, `		e.at = now + 1
`}}, []string{"./shards -run TestJoinsAreSpread"}, 39},
	{"shards: left members stay in the roster", []edit{{"shards/planner.go", `!m.live && now-m.absent >= memoryTTLs*p.g.ttl:`, `!m.live && now < 0:`}}, []string{"./shards -run TestAMemberThatLeftIsForgotten"}, 39},

	// Files.
	{"filestore: no flush before the rename", []edit{{"internal/filestore/dir.go", `		err = c.dir.sync(f)`, `		err = nil`}}, []string{"./internal/filestore -run TestOrderOfAWrite"}, 18},
	{"filestore: no flush of the directory", []edit{{"internal/filestore/dir.go", `	if err := c.dir.sync(c.self); err != nil {`, `	if err := error(nil); err != nil {`}}, []string{"./internal/filestore -run TestOrderOfAWrite|TestDirectoryCannotBeSynced"}, 18},
	{"filestore: no lock around compare and write", []edit{{"internal/filestore/dir.go", `	if err := c.lock(); err != nil {
		return c.failed(err)
	}
`, ``}}, []string{"./internal/filestore -run TestAnotherProcessHasLockedTheDirectory"}, 18},
	{"filestore: compared before the lock", []edit{{"internal/filestore/dir.go", `	err := c.check(allow)
	if err == nil && c`, `	err := error(nil)
	if err == nil && c`}}, []string{"./internal/filestore -run TestEightProcessesLoseNoUpdate"}, 18},
	{"filestore: an ETag of size and time", []edit{{"internal/filestore/dir.go", "`\"` + rand.Text() + `\"`", `fmt.Sprintf("\"%d-%d\"", len(body), time.Now().Unix())`}}, []string{". -run TestFileStoreConforms"}, 18},
	{"filestore: written in place", []edit{{"internal/filestore/dir.go", `func() error { return c.root.Rename(temp, c.file) }`, `func() error { return c.root.WriteFile(c.file, data, 0o666) }`}}, []string{"./internal/filestore -run TestWritersAreKilled"}, 18},
	{"filestore: deleted without the condition", []edit{{"internal/filestore/dir.go", `c.change(matches(etag), func() error { return c.root.Remove`, `c.change(func(string) error { return nil }, func() error { return c.root.Remove`}}, []string{". -run TestFileStorePassesCheckStore"}, 18},
	{"filestore: a network file system accepted", []edit{{"internal/filestore/network_linux.go", `return networks[uint32(s.Type)], os`, `return "", os`}}, []string{"./internal/filestore -run TestNetworkFileSystemsAreRefused"}, 18},
	{"filestore: a torn object accepted", []edit{{"internal/filestore/object.go", `	case !whole, string(first[len(magic):]) != fmt.Sprintf("%08x", crc32.Checksum(rest, castagnoli)):`, `	case !whole:`}}, []string{"./internal/filestore -run TestTornFilesAreRefused"}, 16},
	{"filestore: a file that is no object is missing", []edit{{"internal/filestore/dir.go", `	if err != nil {
		return Object{ETag: contentETag(data)}, &`, `	if err != nil {
		return Object{}, missing
	}
	if err != nil {
		return Object{ETag: contentETag(data)}, &`}}, []string{"./internal/filestore -run TestFilesThatAreNotObjects"}, 16},
	{"filestore: an age of before the reboot", []edit{{"internal/filestore/object.go", `if n.Clock == "" || n.Clock != s.Clock {`, `if n.Clock == "" {`}}, []string{"./internal/filestore -run TestAgeNeedsTheSameClock"}, 9},

	// The modules beside the root.
	{"gcsstore: written without a condition", []edit{{"gcsstore/gcsstore.go", `w := object.If(only).NewWriter(ctx)`, `w := object.NewWriter(ctx)`}}, []string{"./gcsstore -run TestConformsOnStrictServer"}, 23},
	{"gcsstore: requests retried below the lock", []edit{{"gcsstore/gcsstore.go", `storage.WithPolicy(storage.RetryNever)`, `storage.WithMaxAttempts(2)`}}, []string{"./gcsstore -run TestEveryCallIsOneRequest"}, 23},
	{"gcsstore: dates in whole seconds taken for exact", []edit{{"gcsstore/gcsstore.go", `max(now.Sub(r.Attrs.LastModified)-s.slack, 0)`, `max(now.Sub(r.Attrs.LastModified), 0)`}}, []string{"./gcsstore -run TestAgeIsByTheServersClock"}, 23},
	{"gcsstore: a page is an answer", []edit{{"gcsstore/gcsstore.go", `	err = heard.Load().foreign(http.StatusOK)
	if err == nil && r.Attrs.Generation <= 0 {`, `	if r.Attrs.Generation <= 0 {`}}, []string{"./gcsstore -run TestRepliesThatAreNotCloudStorages"}, 11},
	{"azblobstore: written without a condition", []edit{{"azblobstore/azblobstore.go", `AccessConditions:        &blob.AccessConditions{ModifiedAccessConditions: &only},`, `AccessConditions:        nil,`}}, []string{"./azblobstore -run TestConformsOnStrictServer"}, 23},
	{"azblobstore: requests retried below the lock", []edit{{"azblobstore/azblobstore.go", `policy.RetryOptions{MaxRetries: -1}`, `policy.RetryOptions{MaxRetries: 1}`}}, []string{"./azblobstore -run TestEveryCallIsOneRequest"}, 23},
	{"azblobstore: dates in whole seconds taken for exact", []edit{{"azblobstore/azblobstore.go", `max(now.Sub(written)-s.slack, 0)`, `max(now.Sub(written), 0)`}}, []string{"./azblobstore -run TestAgeIsByTheServersClock"}, 23},
	{"azblobstore: any version is replaced", []edit{{"azblobstore/azblobstore.go", `	case !isETag(etag):`, `	case false:`}}, []string{"./azblobstore -run TestBadArguments"}, 23},
	{"azblobstore: a damaged body is read", []edit{{"azblobstore/azblobstore.go", `len(sum) == 0 || fips140.Enforced()`, `len(sum) > 0 || fips140.Enforced()`}}, []string{"./azblobstore -run TestBodyThatBreaksOff"}, 23},
	{"azblobstore: an Azure lease is a conflict", []edit{{"azblobstore/errors.go", `status == http.StatusPreconditionFailed && code == bloberror.ConditionNotMet && op != opGet`, `status == http.StatusPreconditionFailed && op != opGet`}}, []string{"./azblobstore -run TestBlobsThatCannotBeWritten", "./azblobstore -run TestBlobThatSomebodyLeases"}, 23},
	{"azblobstore: a missing container is a missing blob", []edit{{"azblobstore/errors.go", `status == http.StatusNotFound && code == bloberror.BlobNotFound && op != opCreate`, `status == http.StatusNotFound && op != opCreate`}}, []string{"./azblobstore -run TestErrors"}, 23},
	{"azblobstore: a reply without Azure's headers counts", []edit{{"azblobstore/errors.go", `	case reply.Header.Get(requestID) == "":`, `	case false:`}}, []string{"./azblobstore -run TestRepliesThatAreNotAzures"}, 11},
	{"azblobstore: a followed redirect counts", []edit{{"azblobstore/errors.go", `	case reply.Request != nil && reply.Request.Response != nil:`, `	case false:`}}, []string{"./azblobstore -run TestRepliesThatAreNotAzures"}, 11},
	{"k8slock: shows its own name though it does not lead", []edit{{"k8slock/k8slock.go", `(expired || rec.Holder == l.Identity())`, `expired`}}, []string{"./k8slock -run TestLeaseRunsOutBelowAStuckElector"}, 23},
	{"k8slock: releases while work of the term may run", []edit{{"k8slock/k8slock.go", `		lease.Abandon()`, `		_ = lease.Release(context.Background())`}}, []string{"./k8slock -run TestStopWithoutReleaseOnCancel"}, 23},
	{"k8slock: the token of a lease that is over", []edit{{"k8slock/k8slock.go", `lease != nil && lease.Valid() {`, `lease != nil {`}}, []string{"./k8slock -run TestLeaseRunsOutBelowAStuckElector|TestLostTermIsOver"}, 23},
	{"k8slock: the context goes on when the lease is lost", []edit{{"k8slock/k8slock.go", `stop := context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })`, `stop := func() bool { return true }`}}, []string{"./k8slock -run TestLostTermIsOver|TestLeaseRunsOut"}, 23},
	{"gocronlock: does not look again once it has the lock", []edit{{"gocronlock/locker.go", `	before, err := l.due(name, j, lease.Record(), began)`, `	before, err := []time.Time(nil), error(nil)`}}, []string{"./gocronlock -run TestAnotherRunsTheSlotAfterTheFirstRead"}, 23},
	{"gocronlock: a run that could not be noted", []edit{{"gocronlock/locker.go", `		err = lease.Commit(ctx, encode(began, before))`, `		_ = lease.Commit(ctx, encode(began, before))`}}, []string{"./gocronlock -run TestRunThatCannotBeNotedIsNotDone"}, 23},
	{"gocronlock: runs though another leads", []edit{{"gocronlock/elector.go", `	if e.Elector.IsLeader() {`, `	if _, ok := e.Leader(); ok || e.Elector.IsLeader() {`}}, []string{"./gocronlock -run TestElector"}, 23},
	{"otellock: leads on after a loss", []edit{{"otellock/otellock.go", `		o.lost.Add(ctx, 1, metric.WithAttributes(result...))
		s.ended(now, e)
`, `		o.lost.Add(ctx, 1, metric.WithAttributes(result...))
`}}, []string{"./otellock -run TestScenarios|TestTheSpanOfALostTerm"}, 23},
	{"otellock: the end of an earlier term ends a later one", []edit{{"otellock/otellock.go", `	if s.held == e.Token {
		s.end(`, `	if e.Token > 0 {
		s.end(`}}, []string{"./otellock -run TestScenarios|TestALaterTermEnds"}, 23},
	{"promlock: leads on after a loss", []edit{{"promlock/promlock.go", `		c.lost.WithLabelValues(e.Key, e.Outcome()).Inc()
		c.ended(s, e)
`, `		c.lost.WithLabelValues(e.Key, e.Outcome()).Inc()
`}}, []string{"./promlock -run TestScenarios"}, 23},
	{"promlock: the end of an earlier term ends a later one", []edit{{"promlock/promlock.go", `	if s.held == e.Token {
		c.leader`, `	if e.Token > 0 {
		c.leader`}}, []string{"./promlock -run TestScenarios"}, 23},
}
