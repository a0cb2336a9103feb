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
	{"release by DELETE", []edit{{"release.go", `		return t.put(ctx, func(r *Record) { r.ExpiresAt = time.Time{} })`, `		return t.lock.store.DeleteIfMatch(ctx, t.lock.key, t.stored.etag)`}}, []string{worlds, search}, 15},
	{"wall clock in the takeover rule", []edit{{"decide.go", `wait := o.withDrift(r.TTL) - s.age`, `wait := r.ExpiresAt.Sub(s.wall)`}}, []string{worlds}, 1},
	{"token reset at release", []edit{{"release.go", `func(r *Record) { r.ExpiresAt = time.Time{} }`, `func(r *Record) { r.ExpiresAt, r.Token = time.Time{}, 0 }`}}, []string{worlds}, 4},
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
	{"a lost lease comes back with a late renewal", []edit{{"term.go", `		_ = t.lose(errRanOut)
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
	{"S3: a release that has landed is written again", []edit{{"renewal.go", `return ours.rec.Nonce == rec.Nonce || ours.rec.Released(), nil`, `return ours.rec.Nonce == rec.Nonce, nil`}}, []string{". -run TestAReleaseThatHasLandedIsNotWrittenAgain"}, 6},
	{"S3: a release that may have landed is called a loss", []edit{{"renewal.go", `case i < 0 && mayBeReleased:`, `case i < 0 && mayBeReleased && false:`}}, []string{". -run TestAReleaseThatHasLandedIsNoLoss"}, 6},
	{"S4: our nonce is enough, whoever raised the record", []edit{{"internal/wire/nonce.go", `return ok && err == nil && sum == w.checksum(number, r)`, `return ok && err == nil && sum != "" && number > 0`}}, []string{". -run TestARecordWithOurNonce"}, 6},
	{"L1: a lost race is an error", []edit{{"lock.go", `			return nil, l.heldError(next.rec, l.decide(l.observed(next)).wait)`, `			return nil, err`}}, []string{". -run TestALostRaceIsAlwaysErrHeld"}, 10},
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
	{"reclaimed from a Lock without the option", []edit{{"reclaim.go", `other.identity == l.identity && (`, `other.identity == l.identity && other.reclaim && (`}}, []string{". -run TestReclaimFromASibling"}, 0},
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
	{"never stopped", []edit{{"elector.go", `if started && e.cb.OnStoppedLeading != nil {`, `if started && e.cb.OnStoppedLeading == nil {`}}, []string{worlds}, 7},

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
	{"expires_at of renewals stays that of the acquisition", []edit{{"renewal.go", `rec.RenewedAt, rec.ExpiresAt = sent.Time(), sent.Time().Add(t.lock.ttl)`, `rec.RenewedAt = sent.Time()
	if !rec.Released() {
		rec.ExpiresAt = rec.AcquiredAt.Add(t.lock.ttl)
	}`}}, []string{worlds}, 19},
	{"a foreign client's term is reclaimed", []edit{{"observe.go", ` && byLock(v.rec) &&`, ` &&`}}, []string{". -run TestReclaimLeavesAForeignClientsTermAlone"}, 19},
	{"Watch misses releases", []edit{{"inspect.go", `|| a.Released() != b.Released() ||`, `||`}}, []string{worlds, ". -run TestWatchYieldsEveryChangeOfTerm"}, 20},
	{"Watch keeps failures to itself", []edit{{"inspect.go", `if !yield(Record{}, l.named(err)) || storeapi.Permanent(err) {`, `if storeapi.Permanent(err) {`}}, []string{worlds}, 20},
	{"a fence lets former leaders pass", []edit{{"fenced/fence.go", `if token < f.highest || token == 0 {`, `if token == 0 {`}}, []string{worlds}, 3},
	{"the context of a lost lease goes on", []edit{{"term.go", `	t.mu.Unlock()
	t.cancel(cause)
`, `	t.mu.Unlock()
`}}, []string{worlds, search, ". -run TestDefinitiveLossEndsTheContextAtOnce"}, 2},
	{"a release sends nothing", []edit{{"release.go", `		return t.put(ctx, func(r *Record) { r.ExpiresAt = time.Time{} })`, `		_ = ctx
		return nil`}}, []string{worlds, search}, 15},
	{"written without a condition", []edit{{"internal/s3api/object.go", `		IfMatch: ifMatch, IfNoneMatch: ifNoneMatch,
`, ``}}, []string{"./itest -run TestContention"}, 1},
	{"created without a condition", []edit{{"internal/s3api/object.go", `o.put(ctx, key, body, nil, aws.String("*"))`, `o.put(ctx, key, body, nil, nil)`}}, []string{"./itest -run TestLinearizableRegister"}, 18},
	{"a refused Do keeps others out", []edit{{"term.go", `	if !over && !owned {`, `	if !over || !owned {`}}, []string{". -run TestARefusedDoKeepsNobodyOut"}, 8},
	{"takes over after ten TTLs", []edit{{"decide.go", `return time.Duration(float64(ttl) * (1 + o.drift))`, `return time.Duration(float64(ttl) * (10 + o.drift))`}}, []string{worlds}, 13},
	{"Valid looks at no clock", []edit{{"term.go", `ok, ranOut := t.state == held, t.remaining() <= 0`, `ok, ranOut := t.state == held, false`}}, []string{worlds, search, "./itest -run TestSuspendedProcess"}, 5},
	{"a ttl that a foreign client has kept counts", []edit{{"decide.go", `	if !byLock(r) { // such`, `	if r.TTL <= 0 { // such`}}, []string{worlds, ". -run TestWhoMayTakeTheLock"}, 19},
	{"a commit counts though an earlier renewal has landed instead", []edit{{"renewal.go", `return ours.rec.Nonce == rec.Nonce ||`, `return ours.rec.Nonce != rec.Nonce ||`}}, []string{". -run TestACommitAfterARenewal"}, 6},
	{"a release that has landed is forgotten", []edit{{"release.go", `		t.become(released)
		t.lock.log`, `		t.lock.log`}}, []string{". -run TestAReleaseIsToldOnce"}, 6},
	{"Run keeps a failed release to itself", []edit{{"elector.go", `	if err != nil && !ended(err) {
		l.log`, `	if err == nil && !ended(err) {
		l.log`}}, []string{". -run TestRunReturnsTheErrorOfItsLastRelease"}, 15},
	{"renewals are tried again late", []edit{{"renewal.go", `max(min(t.lock.renew/2, remaining/4), first)`, `t.lock.renew/2+0*remaining`}}, []string{". -run TestShortOutagesCostNoLease"}, 13},
	{"a wake-up during the read is missed", []edit{{"lock.go", `		woken := l.bell.Listen()
		lease, err := try()`, `		lease, err := try()
		woken := l.bell.Listen()`}}, []string{". -run TestAWakeUpDuringTheRead"}, 21},
	{"a wake-up that is put off is lost", []edit{{"internal/bell/bell.go", `	c.AfterFunc(b.slot-now, b.Ring)`, `	b.late = false`}}, []string{". -run TestAMillionWakeUpsAreFewReads", "./internal/bell -run TestRequestsAreSpread"}, 21},
	{"a release wakes nobody in its process", []edit{{"wake.go", `		s.bell.Ring()`, `		_ = s`}}, []string{". -run TestLocksOfOneProcessWakeEachOther"}, 21},
	{"a read that came too early is not repeated", []edit{{"internal/forecast/forecast.go", `r.extra < maxExtra {`, `r.extra < maxExtra-maxExtra {`}}, []string{"./internal/forecast -run TestReadsComeSoonAfterRenewals"}, 0},
	{"a lease keeps itself alive", []edit{{"term.go", `func(forgotten *atomic.Bool) { forgotten.Store(true) }, t.forgotten)`, `func(t *term) { t.forgotten.Store(true) }, t)`}}, []string{". -run TestALeaseThatItsObserverRefersTo"}, 0},

	// The modules beside the root.
	{"gcsstore: written without a condition", []edit{{"gcsstore/gcsstore.go", `w := object.If(only).NewWriter(ctx)`, `w := object.NewWriter(ctx)`}}, []string{"./gcsstore -run TestConformsOnStrictServer"}, 23},
	{"gcsstore: requests retried below the lock", []edit{{"gcsstore/gcsstore.go", `storage.WithPolicy(storage.RetryNever)`, `storage.WithMaxAttempts(2)`}}, []string{"./gcsstore -run TestEveryCallIsOneRequest"}, 23},
	{"gcsstore: dates in whole seconds taken for exact", []edit{{"gcsstore/gcsstore.go", `max(now.Sub(r.Attrs.LastModified)-s.slack, 0)`, `max(now.Sub(r.Attrs.LastModified), 0)`}}, []string{"./gcsstore -run TestAgeIsByTheServersClock"}, 23},
	{"gcsstore: a page is an answer", []edit{{"gcsstore/gcsstore.go", `	err = heard.Load().foreign(http.StatusOK)
	if err == nil && r.Attrs.Generation <= 0 {`, `	if r.Attrs.Generation <= 0 {`}}, []string{"./gcsstore -run TestRepliesThatAreNotCloudStorages"}, 11},
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
