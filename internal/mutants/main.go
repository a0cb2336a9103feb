// Command mutants plants classic mistakes of distributed locks in a copy of the code, one at a time, and shows which check
// catches each: the simulation (and after how many worlds), the exhaustive search, or the unit tests. A mutant that survives
// is a gap in the checks and makes the command fail.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// edit replaces one piece of code, which must occur exactly once.
type edit struct{ file, old, new string }

type mutant struct {
	name  string
	edits []edit
	by    string // the check that must catch it, as arguments of go test; empty: any check
}

var mutants = []mutant{
	{"no nonce", []edit{{"internal/wire/nonce.go", `return w.prefix + strconv.FormatUint(number, 36) + "." + w.checksum(number, r)`, `return strconv.FormatUint(min(number, 0), 36)`}}, ""},
	{"validity of an acquisition counted from the reply", []edit{{"lock.go", `	written := &version{exists`, `	sent = l.clock.Now()
	written := &version{exists`}}, ""},
	{"validity of a renewal counted from the reply", []edit{{"renewal.go", `		t.landed(ctx, etag, write{rec, sent})`, `		t.landed(ctx, etag, write{rec, t.lock.clock.Now()})`}}, ""},
	{"412 on a renewal taken as lost at once", []edit{{"renewal.go", `	case storeapi.Refused(err), errors.Is(err, storeapi.ErrConflict):`, `	case errors.Is(err, ErrPreconditionFailed):
		return false, t.lose(err)
	case storeapi.Refused(err), errors.Is(err, storeapi.ErrConflict):`}}, ""},
	{"any error on a renewal taken as lost at once", []edit{{"renewal.go", `	return false, err // nothing is known yet`, `	return false, t.lose(err) // nothing is known yet`}}, ""},
	{"404 on a renewal taken as lost at once", []edit{{"renewal.go", `	case storeapi.Refused(err), errors.Is(err, storeapi.ErrConflict):`, `	case errors.Is(err, ErrNotExist):
		return false, t.lose(err)
	case storeapi.Refused(err), errors.Is(err, storeapi.ErrConflict):`}}, ""},
	{"412 on an acquisition taken as held by another", []edit{{"lock.go", `case now.exists && l.landed(rec, now.rec):`,
		`case now.exists && l.landed(rec, now.rec) && !errors.Is(err, ErrPreconditionFailed):`}, {"observe.go", `writtenByUs: l.wrote(v.rec),`, `writtenByUs: false,`}}, ""},
	{"release by DELETE", []edit{{"release.go", `		return t.put(ctx, func(r *Record) { r.ExpiresAt = time.Time{} })`, `		return t.lock.store.DeleteIfMatch(ctx, t.lock.key, t.stored.etag)`}}, ""},
	{"wall clock in the takeover rule", []edit{{"decide.go", `if wait := o.withDrift(r.TTL) - s.age; wait > 0 {`, `if wait := r.ExpiresAt.Sub(s.wall); wait > 0 {`}}, ""},
	{"token reset at release", []edit{{"release.go", `func(r *Record) { r.ExpiresAt = time.Time{} }`, `func(r *Record) { r.ExpiresAt, r.Token = time.Time{}, 0 }`}}, ""},
	{"token not raised at a takeover", []edit{{"lock.go", `return token + 1, nil`, `return max(token, 1), nil`}}, ""},
	{"the SDK's retryer left on", []edit{{"internal/s3api/bucket.go", `	o.Retryer = aws.NopRetryer{}
`, `	_ = aws.NopRetryer{}
`}}, ". -run TestOneStoreCallIsOneRequest"},
	{"takeover without drift allowance", []edit{{"decide.go", `return time.Duration(float64(ttl) * (1 + o.drift))`, `return ttl`}}, ""},
	{"no safety margin", []edit{{"term.go", `return t.lock.ttl - t.lock.margin - t.lock`, `return t.lock.ttl - t.lock`}}, ""},
	{"released while the function runs", []edit{{"lease.go", `context.AfterFunc(ctx, t.stopRenewingAfterTTL)`, `context.AfterFunc(ctx, func() { _ = t.release(context.WithoutCancel(ctx)) })`}}, ""},
	{"renewals stop when the function is told to", []edit{{"renewal.go", `t.renewUntil = t.lock.clock.Now().Mono + t.lock.ttl`, `t.renewUntil = t.lock.clock.Now().Mono`}}, ""},
	{"renewals go on for as long as the function takes", []edit{{"renewal.go", `t.state != held || t.lock.clock.Now().Mono >= t.renewUntil`, `t.state != held`}}, ". -run TestDoThatDoesNotReturnLosesTheLock|TestCallbackThatNeverReturns"},
	{"BOOTTIME ignored", []edit{{"internal/clock/clock.go", ` + max(r.Boot-start.Boot-d, 0)`, ``}}, ""},
	{"wall clock of the holder ignored", []edit{{"internal/clock/clock.go", ` + max(r.Wall-start.Wall-d, 0)`, ``}}, ""},
	{"only the clock that has counted most believed", []edit{{"internal/clock/clock.go", `d + max(r.Wall-start.Wall-d, 0) + max(r.Boot-start.Boot-d, 0)`,
		`max(d, r.Wall-start.Wall, r.Boot-start.Boot)`}}, ". -run TestAnyClockEndsALease|TestSuspendedHolderKnowsOnWaking"},
	{"age of one version counted for the next", []edit{{"observe.go", `case v.exists && v.same(last):`, `case v.exists && last.exists:`}}, ""},
	{"age counted from before the read", []edit{{"observe.go", `v := &version{readBefore: before, readAfter: l.clock.Now().Mono}`, `v := &version{readBefore: before, readAfter: l.clock.Now().Mono - l.ttl/10}`}}, ""},
	{"a lost lease comes back with a late renewal", []edit{{"term.go", `		_ = t.lose(errRanOut)
	}
	return ok && !ranOut`, `		ok = false
	}
	return ok && !ranOut`}, {"term.go", `	if ranOut {
		_ = t.lose(errRanOut)
	}
	if overran`, `	if overran`}}, ""},
	{"one's own leftover waited out", []edit{{"observe.go", `writtenByUs: l.wrote(v.rec),`, `writtenByUs: false,`}}, ". -run TestGhostAcquisitionIsTakenOverAtOnce|TestElectorAloneLeadsAgain"},
	{"ownership judged by name", []edit{{"observe.go", `return sent.Nonce == found.Nonce && sent.Token == found.Token && l.wrote(found)`, `return sent.Holder == found.Holder`}}, ""},
	{"reclaim by every namesake", []edit{{"decide.go", `case s.sameIdentity && o.reclaim:`, `case s.sameIdentity:`}, {"observe.go", `v.rec.Holder == l.identity && l.mayReclaim(),`, `v.rec.Holder == l.identity,`}}, ". -run TestReclaimTakesItsOwn|TestWhoMayTakeTheLock"},
	{"a reply lost on release forgotten", []edit{{"release.go", `storeapi.Permanent(err) || t.lock.clock`, `storeapi.Permanent(err) || err != nil || t.lock.clock`}}, ". -run TestReleaseWithoutReplyIsRetried"},
	{"a record of no TTL trusted to the second", []edit{{"decide.go", `r.ExpiresAt.Add(o.skew).Sub(s.wall)`, `r.ExpiresAt.Sub(s.wall)`}}, ". -run TestWhoMayTakeTheLock"},
	{"a corrupt record taken for free", []edit{{"observe.go", `			err = fmt.Errorf("%w (inspect the object`, `			return v, nil
			err = fmt.Errorf("%w (inspect the object`}}, ". -run TestCorruptRecordIsNeverOverwritten"},
	{"an empty record taken for free", []edit{{"internal/wire/record.go", `	if expires == nil {
		return corrupt("no expires_at")
	}`, `	if expires == nil {
		expires = new(seconds)
	}`}}, ". -run TestBadRecordsAreNeverFree"},

	// Mistakes that an attack on the code found.
	{"S1: an age told later is counted", []edit{{"observe.go", `v.age = max(last.age+v.readAfter-last.readAfter, 0)`, `v.age = max(last.age+v.readAfter-last.readAfter, v.age)`}}, "./internal/sim -run TestSeeds"},
	{"S1: an age told for a new version is not bounded", []edit{{"observe.go", `		v.age = min(v.age, max(v.readAfter-last.readBefore, 0))
`, ``}}, "./internal/sim -run TestSeeds"},
	{"S1: the bound goes back with a late answer", []edit{{"observe.go", `		v.readBefore = max(v.readBefore, last.readBefore)
`, ``}}, "./internal/sim -run TestSeeds"},
	{"S2: a lost term does not wait for its function", []edit{{"term.go", `	case t.guarding():
		return t.lock.poll
`, ``}, {"term.go", `	case t.state == lost && t.function != returned:`, `	case t.state == lost && t.function != returned && !t.guarding():`}}, "./internal/sim -run TestSeeds"},
	{"S2: a lost term without a function leaves no margin", []edit{{"term.go", `	case t.state == lost && t.function != returned:`, `	case t.state == lost && t.function != returned && t.guarding():`}}, ". -run TestALostLeaseWithoutAFunction"},
	{"S3: a release under way keeps no sibling out", []edit{{"term.go", `	case t.state == releasing, !ended:`, `	case !ended:`}}, ". -run TestAReleaseUnderWayIsHeldForSiblings"},
	{"S3: a release that has landed is written again", []edit{{"renewal.go", `return ours.rec.Nonce == rec.Nonce || ours.rec.Released(), nil`, `return ours.rec.Nonce == rec.Nonce, nil`}}, ". -run TestAReleaseThatHasLandedIsNotWrittenAgain"},
	{"S3: a release that may have landed is called a loss", []edit{{"renewal.go", `case i < 0 && mayBeReleased:`, `case i < 0 && mayBeReleased && false:`}}, ". -run TestAReleaseThatHasLandedIsNoLoss"},
	{"S4: our nonce is enough, whoever raised the record", []edit{{"internal/wire/nonce.go", `return ok && err == nil && sum == w.checksum(number, r)`, `return ok && err == nil && sum != "" && number > 0`}}, ". -run TestARecordWithOurNonce"},
	{"L1: a lost race is an error", []edit{{"lock.go", `			return nil, l.heldError(next.rec, l.decide(l.observed(next)).wait)`, `			return nil, err`}}, ". -run TestALostRaceIsAlwaysErrHeld"},
	{"L2: no rest after a callback has released", []edit{{"elector.go", `errors.Is(context.Cause(lease.t.ctx), ErrReleased)`, `errors.Is(context.Cause(lease.t.ctx), errResigned)`}}, ". -run TestACallbackThatReleasesRestsAsAfterResign"},
	{"L3: a read that fails forgets the age", []edit{{"observe.go", `	case err != nil:
		return nil, err
	default:`, `	case err != nil:
		l.memory.mu.Lock()
		l.memory.last = nil
		l.memory.mu.Unlock()
		return nil, err
	default:`}}, ". -run TestReadsThatFailForgetNothing"},
	{"L5: failed tries are not logged", []edit{{"lock.go", `			if ctx.Err() == nil {
				l.log`, `			if ctx.Err() != nil {
				l.log`}}, ". -run TestFailuresAreTold"},
	{"L5: Run forgets why it never led", []edit{{"elector.go", `if ctx.Err() == nil || leftOver || neverAnswered {`, `if ctx.Err() == nil || leftOver || neverAnswered && false {`}}, ". -run TestFailuresAreTold"},
	{"L7: a corrupt record counts as an answer", []edit{{"request.go", `err == nil && op != "get":`, `err == nil:`}}, ". -run TestRunEndsOnACorruptRecord"},
	{"L11: a failed release of a cut-off acquisition is swallowed", []edit{{"elector.go", `if ctx.Err() == nil || leftOver || neverAnswered {`, `if ctx.Err() == nil || leftOver && false || neverAnswered {`}}, ". -run TestRunReportsARelease"},
	{"L12: a resting elector is unhealthy", []edit{{"elector.go", `			e.since.Store(int64(l.clock.Now().Mono + rest))
`, ``}}, ". -run TestCheckIsHealthyWhileAnElectorRests"},
	{"L14: a token that was repaired away comes back", []edit{{"observe.go", `m.highest > recorded && m.highest-recorded < implausible`, `m.highest > recorded`}}, ". -run TestTheLastTokenIsRepairedByBreak"},
	{"L15: two Locks of a process reclaim from each other", []edit{{"reclaim.go", `			return false
		}
	}
	return true`, `			break
		}
	}
	return true`}}, ". -run TestOneIdentityIsReclaimed"},
	{"unconfirmed writes are never settled", []edit{{"renewal.go", `t.stored, t.sent, t.unconfirmed, t.failure = v, w.sent, nil, nil`, `t.stored, t.sent, t.failure = v, w.sent, nil`}}, ". -run TestUnconfirmedWritesAreSettled"},
	{"S1: an age told without the user's trust", []edit{{"s3store.go", `	if !s.serverClock {`, `	if false {`}}, ". -run TestAgeIsToldByTheServersClockAlone"},
	{"S1: dates in whole seconds taken for exact", []edit{{"s3store.go", `max(o.Age-s.slack, 0)`, `max(o.Age, 0)`}}, "./internal/sim -run TestSeeds"},
	{"S1: a clock that is not the store's passes the check", []edit{{"internal/storecheck/probe.go", `case o.age < 0 || o.age > elapsed:`, `case o.age < 0:`}}, ". -run TestCheckStoreRefusesAClockThatIsNotTheStores"},
	{"S1: MemStore tells ages unasked", []edit{{"memstore.go", `if m.ServerClock {`, `if m != nil {`}}, ". -run TestMemStoreTellsNoAgeByDefault"},
	{"L4: a wrong endpoint is never told", []edit{{"internal/storeapi/server.go", `s.strange.Add(1) >= maxStrange && !s.genuine.Load()`, `s.strange.Add(1) < 0`}}, ". -run TestRepliesThatAreNoS3s"},
	{"L4: strange replies are final after good ones", []edit{{"internal/storeapi/server.go", `>= maxStrange && !s.genuine.Load()`, `>= maxStrange`}}, ". -run TestRepliesThatAreNoS3s"},
	{"L4: a followed redirect counts", []edit{{"internal/s3api/reply.go", `return reply.Request != nil && reply.Request.Response != nil`, `return false`}}, ". -run TestRepliesThatAreNoS3s"},
	{"L4: a page counts", []edit{{"internal/s3api/errors.go", `case webPage(header) || redirected:`, `case redirected:`}}, ". -run TestRepliesThatAreNoS3s"},
	{"L4: a refusal whose reason is cut off is final", []edit{{"internal/s3api/errors.go", `	case brokenOff(err): // the code`, `	case false: // the code`}}, ". -run TestRepliesThatAreNoS3s"},
	{"L5: this machine's faults are final for ever", []edit{{"internal/storeapi/server.go", `if s.answered.Load() {`, `if false {`}}, ". -run TestFaultsOfThisMachineMayPass"},
	{"L5: a credential service's answer is the store's", []edit{{"internal/s3api/errors.go", `ok && !credentials(err) {`, `ok {`}}, ". -run TestAnswersOfACredentialService"},
	{"L10: checks disturb one another", []edit{{"internal/storecheck/probe.go", `return p.shared && !bytes.HasPrefix(body, p.body("")) && bytes.HasPrefix(body, []byte(probeMark))`, `return false`}}, ". -run TestCheckStoresAtTheSameTime"},
	{"L10: a check leaves new objects each time", []edit{{"internal/storecheck/storecheck.go", `p.key, p.shared = shared, true`, `_ = shared`}}, ". -run TestCheckStoreWithCredentialsThatMayNotDelete"},
	{"storetest waits for a store that refuses everything", []edit{{"storetest/storetest.go", `tries > leastTries && progress.stopped()`, `tries > 20_000`}}, "./storetest -run TestHopelessStoresFailSoon"},
	{"an elector's lease runs a second function", []edit{{"term.go", `	if !over && !owned {`, `	owned = t.guarding()
	if !over && !owned {`}}, ". -run TestElectorReleasesUnderLeaseDo"},
	{"reclaimed from a Lock without the option", []edit{{"reclaim.go", `	if l.hasName &&`, `	if l.reclaim &&`}}, ". -run TestReclaimFromASibling"},
	{"Run goes on though it may not write", []edit{{"elector.go", `return storeapi.Permanent(err) && !worked`, `return storeapi.Permanent(err) && !worked && l.lastAnswered.Load() < int64(began)`}}, ". -run TestRunWithReadOnlyCredentials"},
	{"an acquisition that came too late is left behind", []edit{{"lock.go", `l.cutOff(ctx, err, l.writeReleased(ctx, next))`, `l.cutOff(ctx, err, nil)`}}, ". -run TestTooLateAndCutOffLeavesAStrayLock"},
	{"a term whose callback returned early leaves no margin", []edit{{"elector.go", `				lease.t.functionEnded(leftAlone)
`, ``}}, ". -run TestATermWhoseCallbackReturnedEarly"},
	{"a lost term whose function has returned keeps others out", []edit{{"term.go", `		t.function = as`, `		t.function = leftAlone`}}, ". -run TestALostTermWhoseFunctionHasReturned"},
	{"a term does not block until its context has ended", []edit{{"term.go", `	case t.state == releasing, !ended:`, `	case t.state == releasing, !ended && false:`}}, ". -run TestATermBlocksUntilItsContextHasEnded"},
	{"C1: stopped without started", []edit{{"elector.go", `			if e.cb.OnNewLeader != nil {
				e.cb.OnNewLeader(lease.Record())
			}
			started = true`, `			started = true
			if e.cb.OnNewLeader != nil {
				e.cb.OnNewLeader(lease.Record())
			}`}}, ". -run TestNeverStoppedWithoutStarted"},
	{"never stopped", []edit{{"elector.go", `if started && e.cb.OnStoppedLeading != nil {`, `if started && e.cb.OnStoppedLeading == nil {`}}, "./internal/sim -run TestSeeds"},

	// Fenced writes.
	{"fenced: a higher token overwritten", []edit{{"fenced/write.go", `case now.token > w.token:`, `case now.token > w.token && false:`}}, ""},
	{"fenced: written without a condition", []edit{{"fenced/s3.go", `ifMatch: &old.ID}`, `ifMatch: nil}`}}, ""},
	{"fenced: created without a condition", []edit{{"fenced/s3.go", `w.ifMatch, w.ifNoneMatch = nil, aws.String("*")`, `w.ifMatch = nil`}}, ""},
	{"fenced: no padding", []edit{{"fenced/s3.go", `if b.mode == PaddedBodies || w.meta`, `if w.meta`}}, ""},
	{"fenced: all tombstones alike", []edit{{"fenced/s3.go", `if b.mode == PaddedBodies || w.meta[metaGone] != "" {`, `if b.mode == PaddedBodies {`}}, ""},
	{"fenced: seals only what exists", []edit{{"fenced/store.go", `if old.ID != "" && old.token == token {`, `if old.ID == "" || old.token == token {`}}, ""},
	{"fenced: the token and the ETag of one HEAD taken for one version", []edit{{"fenced/s3.go", `if old.ID != "" && next.Settings == nil {`, `if false {`}}, ""},
	{"fenced: two reads compared by ETag alone", []edit{{"fenced/write.go", `return v.ID == w.ID && v.Metadata[metaNonce] == w.Metadata[metaNonce]`, `return v.ID == w.ID`}}, ""},
	{"fenced: seals what it read, not what it looked at", []edit{{"fenced/store.go", `		if !old.same(v) {
			return fmt.Errorf("sealing %q: %w", key, storeapi.ErrConflict)
		}
`, `		old.ID = v.ID
`}}, ""},
	{"fenced: seal keeps the old token", []edit{{"fenced/store.go", `		v.Metadata = users(v.Metadata)
`, `		v.Metadata, w = users(v.Metadata), &write{w.key, max(old.token, 1), w.nonce}
`}}, ""},
	{"fenced: a refusal taken as done", []edit{{"fenced/write.go", `		if storeapi.Permanent(err) || ctx.Err() != nil`, `		if errors.Is(err, leasehold.ErrPreconditionFailed) {
			return nil
		}
		if storeapi.Permanent(err) || ctx.Err() != nil`}, {"fenced/write.go", `	"encoding/hex"
`, `	"encoding/hex"
	"errors"
`}}, ""},
	{"fenced: memory without a condition", []edit{{"fenced/mem.go", `if m.objects[key].ID != old.ID {`, `if false {`}}, "./fenced -run TestFencedStoreKeepsItsPromises"},
	{"fenced: own landed write not recognised", []edit{{"fenced/write.go", `case v.ID != "" && now.nonce == w.nonce:`, `case false:`}}, "./fenced -run TestFenced"},
	{"fenced: padding shown to readers", []edit{{"fenced/s3padding.go", `bufio.NewReader(raw), white(nonce),`, `bufio.NewReader(raw), nil,`}}, "./fenced -run TestFencedWrites"},
	{"fenced: no length taken for empty", []edit{{"fenced/s3.go", `Size: -1, ContentType`, `Size: 0, ContentType`}}, "./fenced -run TestFencedBodiesOfUnknownLength"},
	{"fenced: cut bodies taken for whole", []edit{{"internal/storeapi/body.go", `err == io.EOF && (b.Size < 0 || b.got == b.Size):`, `err == io.EOF:`}}, "./fenced -run TestFencedStoreAmongForeignAnswers"},
	{"fenced: padding cut unseen", []edit{{"fenced/s3padding.go", `bytes.Equal(ahead, u.pad):`, `len(ahead) <= len(u.pad):`}}, "./fenced -run TestFencedPaddingIsOnlyCut"},
	{"fenced: seal cuts without a look", []edit{{"fenced/store.go", `return s.send(ctx, w, old, v, body)`, `return s.send(ctx, w, old, v, io.LimitReader(body, v.Size))`}}, "./fenced -run TestFencedPaddingIsOnlyCut"},
	{"fenced: a part taken for the whole", []edit{{"internal/s3api/reply.go", `case !slices.Contains(statuses, reply.StatusCode):`, `case !slices.Contains(append(statuses, 206), reply.StatusCode):`}}, "./fenced -run TestFencedStoreAmongForeignAnswers"},
	{"fenced: a completion without ETag counts", []edit{{"fenced/s3parts.go", `	return b.Genuine(s3api.Put, w.key, out.ETag, out.ResultMetadata)
`, `	_ = out
	return nil
`}}, "./fenced -run TestFencedStoreAmongForeignAnswers"},
	{"fenced: an answer without ETag means an unsafe store", []edit{{"internal/s3api/reply.go", `		return b.NotS3(why, op, key)`, `		return fmt.Errorf("%w: %w", storeapi.ErrUnsafeStore, b.NotS3(why, op, key))`}, {"internal/s3api/reply.go", `	smithyhttp "github.com/aws/smithy-go/transport/http"
`, `	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold-go/leasehold/internal/storeapi"
`}}, "./fenced -run TestFencedStoreAmongForeignAnswers"},
	{"fenced: redirects followed", []edit{{"internal/s3api/reply.go", `	case followed(reply):
`, `	case false:
`}}, "./fenced -run TestFencedStoreAmongForeignAnswers"},
	{"fenced: If-Match of large writes not probed", []edit{{"fenced/s3check.go", `{{"If-Match", s3Write{key: key, ifMatch: &first}}, {"If-None-Match"`, `{{"If-None-Match"`}}, "./fenced -run TestFencedLargeWritesNeedBoth"},
	{"fenced: If-None-Match of large writes not probed", []edit{{"fenced/s3check.go", `, {"If-None-Match", s3Write{key: key, ifNoneMatch: create}}}`, `}`}}, "./fenced -run TestFencedLargeWritesNeedBoth"},
	{"fenced: large writes without a condition", []edit{{"fenced/s3parts.go", `UploadId: id, IfMatch: w.ifMatch, IfNoneMatch: w.ifNoneMatch,`, `UploadId: id,`}}, "./fenced -run TestFencedLargeWrite"},
	{"fenced: a body that has stopped is waited for", []edit{{"internal/storeapi/body.go", `	b.idle.Reset(b.limit)
`, `	b.idle.Stop()
`}}, "./fenced -run TestFencedRequestsHaveTimeLimits"},
	{"fenced: requests without a time limit", []edit{{"fenced/s3.go", `return context.WithTimeout(ctx, b.timeout+time.Duration(size)*time.Second/leastRate)`, `return context.WithCancel(ctx)`}}, "./fenced -run TestFencedRequestsHaveTimeLimits"},
	{"fenced: the rest of a body not drained", []edit{{"internal/storeapi/body.go", `		_, _ = io.CopyN(io.Discard, b.raw, drainSize)
`, ``}}, "./fenced -run TestFencedGetsReuseConnections"},
	{"fenced: tokens that no lock issues read", []edit{{"fenced/write.go", `token == 0 || token > storeapi.MaxToken {
		return c`, `token == 0 {
		return c`}}, "./fenced -run TestFencedTokensThatNoLockIssues"},
	{"fenced: tokens that no lock issues written", []edit{{"fenced/write.go", `	if token == 0 || token > storeapi.MaxToken {`, `	if token == 0 {`}}, "./fenced -run TestFencedTokensThatNoLockIssues"},
	{"fenced: tags lost by a seal", []edit{{"fenced/s3settings.go", `case aws.ToInt32(out.TagCount) > 0:`, `case false:`}}, "./fenced -run TestFencedSealLosesNothing"},
	{"fenced: compressed bodies padded", []edit{{"fenced/s3settings.go", `		if b.mode == PaddedBodies {
			return s`, `		if false {
			return s`}}, "./fenced -run TestFencedPaddingOfEncodedBodies"},
	{"fenced: options share the caller's map", []edit{{"fenced/store.go", `	m = maps.Clone(m)
`, `	_ = maps.Clone(m)
`}}, "./fenced -run TestFencedOptionsAreCloned"},
	{"fencehttp: 200 for a write that did not run", []edit{{"fencehttp/fencehttp.go", `http.Error(w, "not carried out: "+err.Error()+"; try again", http.StatusServiceUnavailable)`, ``}}, "./fencehttp -run TestAWriteThatHasNotRunIs503"},
	{"fencehttp: lower tokens not interrupted", []edit{{"fencehttp/fencehttp.go", `lower.interrupt(highest)`, `_ = lower`}}, "./fencehttp -run TestAStoppedUpload"},
	{"fencehttp: a blocked read not interrupted", []edit{{"fencehttp/fencehttp.go", `_ = conn.SetReadDeadline(time.Unix(1, 0))`, ``}}, "./fencehttp -run TestAStoppedUpload|TestAHijackedConnection"},
	{"fencehttp: interrupted without a cause", []edit{{"fencehttp/fencehttp.go", `cancel(&fenced.Error{Key: name, Token: token, Highest: highest})`, `_ = fenced.ErrFenced
	cancel(nil)`}}, "./fencehttp -run TestAStoppedUpload"},
	{"fencehttp: let in beside a lower token when the wait is over", []edit{{"fencehttp/fencehttp.go", `return 0, errBusy`, `g.inside[v] = false
			return g.highest, nil`}}, "./fencehttp -run TestTheWaitIsBounded"},
	{"fencehttp: no bound of the wait", []edit{{"fencehttp/fencehttp.go", `context.WithTimeout(ctx, f.wait)`, `context.WithCancel(ctx)`}}, "./fencehttp -run TestMarksThatFail|TestTheWaitIsBounded"},
	{"fencehttp: a gate for each method", []edit{{"fencehttp/fencehttp.go", `g := f.of(name)
		defer f.leave(name)`, `g := f.of(r.Method + name)
		defer f.leave(r.Method + name)`}}, "./fencehttp -run TestRoutesOfOneFenceWaitForEachOther"},
	{"fencehttp: tokens that no lock issues", []edit{{"fencehttp/fencehttp.go", `token == 0 || token > maxToken || len(values) > 1`, `token == 0 || len(values) > 1`}}, "./fencehttp -run TestStatus"},
	{"fencehttp: marks tried without end", []edit{{"fencehttp/fencehttp.go", `case try == raiseTries:`, `case try == 3*raiseTries:`}}, "./fencehttp -run TestStoreMarksEnd"},
}

// fenced reports whether the mutant is in package fenced, which has its own simulation.
func (m mutant) fenced() bool {
	return len(m.edits) > 0 && strings.HasPrefix(m.edits[0].file, "fenced/")
}

func main() {
	seeds := flag.Int("seeds", 4000, "number of simulated worlds for each mutant; a quarter as many of fenced writes")
	all := flag.Bool("all", false, "run every check, not only up to the first that catches the mutant")
	only := flag.String("only", "", "run only mutants whose name contains this text")
	from := flag.String("from", "", "skip the mutants before the first whose name contains this text")
	flag.Parse()
	root, err := os.Getwd()
	check(err)
	dir, err := os.MkdirTemp("", "mutants")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	for _, sub := range []string{"internal", "storetest", "fencehttp", "fenced"} {
		check(os.CopyFS(filepath.Join(dir, sub), os.DirFS(filepath.Join(root, sub))))
	}
	files, err := filepath.Glob(filepath.Join(root, "*.go"))
	check(err)
	for _, f := range append(files, filepath.Join(root, "go.mod"), filepath.Join(root, "go.sum")) {
		if name := filepath.Base(f); name != "readme_test.go" && name != "example_test.go" {
			body, err := os.ReadFile(f)
			check(err)
			check(os.WriteFile(filepath.Join(dir, name), body, 0o644))
		}
	}
	for _, m := range mutants {
		for _, e := range m.edits {
			body, err := os.ReadFile(filepath.Join(dir, e.file))
			check(err)
			if n := bytes.Count(body, []byte(e.old)); n != 1 {
				check(fmt.Errorf("mutant %q: the code to replace occurs %[3]d times in %[2]s, not once", m.name, e.file, n))
			}
		}
	}
	// A check that fails without a mutant proves nothing.
	if by := (mutant{}).try(dir, *seeds, true); by != [3]string{} {
		check(fmt.Errorf("the checks fail without a mutant: %q", by))
	}
	if by := (mutant{edits: []edit{{file: "fenced/store.go"}}}).try(dir, *seeds, true); by != [3]string{} {
		check(fmt.Errorf("the checks of fenced writes fail without a mutant: %q", by))
	}
	mutants = mutants[max(0, slices.IndexFunc(mutants, func(m mutant) bool { return strings.Contains(m.name, *from) })):]
	var survivors []string
	fmt.Printf("| mutant | simulation: after how many worlds | exhaustive search | unit tests |\n| --- | --- | --- | --- |\n")
	for _, m := range mutants {
		if !strings.Contains(m.name, *only) {
			continue
		}
		by := m.try(dir, *seeds, *all)
		if by == [3]string{} {
			by[0] = "**NOTHING**"
			survivors = append(survivors, m.name)
		}
		fmt.Printf("| %s | %s | %s | %s |\n", m.name, by[0], by[1], by[2])
	}
	if len(survivors) > 0 {
		fmt.Fprintf(os.Stderr, "%d mutants survived: %q\n", len(survivors), survivors)
		_ = os.RemoveAll(dir)
		os.Exit(1)
	}
}

// try plants the mutant, runs the checks, and restores the code. It returns what each check found, or "" if it passed.
func (m mutant) try(dir string, seeds int, all bool) (by [3]string) {
	for _, e := range m.edits {
		if e.old == "" {
			continue
		}
		path := filepath.Join(dir, e.file)
		body, err := os.ReadFile(path)
		check(err)
		check(os.WriteFile(path, bytes.Replace(body, []byte(e.old), []byte(e.new), 1), 0o644))
		defer func() { check(os.WriteFile(path, body, 0o644)) }()
	}
	if m.by != "" {
		if out, ok := run(dir, []string{"SEEDS=" + fmt.Sprint(seeds)}, strings.Fields(m.by)...); !ok {
			by[2] = summary(out)
			if found := after.FindStringSubmatch(out); found != nil {
				by[0], by[2] = "after "+found[1]+": "+firstViolation(out), ""
			}
		}
		return by
	}
	worlds, test := []string{"SEEDS=" + fmt.Sprint(seeds)}, "TestSeeds"
	if m.fenced() {
		worlds, test = []string{"FENCED=" + fmt.Sprint(seeds/4)}, "TestFencedSeeds"
	}
	if out, ok := run(dir, worlds, "./internal/sim", "-run", test); !ok {
		if found := after.FindStringSubmatch(out); found != nil {
			by[0] = "after " + found[1] + ": " + firstViolation(out)
		} else {
			by[0] = summary(out)
		}
		if !all {
			return by
		}
	}
	if !m.fenced() { // the search has no fenced writes
		if out, ok := run(dir, nil, "./internal/explore", "-run", "TestAll/(no_faults|a_suspend|a_fault)$"); !ok {
			by[1] = firstExplored(out)
			if !all {
				return by
			}
		}
	}
	if out, ok := run(dir, nil, "-short", "."); !ok {
		by[2] = summary(out)
	}
	return by
}

var (
	explored = regexp.MustCompile(`explore_test.go:\d+: ([a-zA-Z].*)`)
	after    = regexp.MustCompile(`after (\d+) worlds`)
	failed   = regexp.MustCompile(`--- FAIL: (\w+)`)
)

func firstViolation(out string) string {
	_, rest, _ := strings.Cut(out, "violations:\n")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

func firstExplored(out string) string {
	if found := explored.FindStringSubmatch(out); found != nil {
		return found[1]
	}
	return summary(out)
}

func summary(out string) string {
	if found := failed.FindAllStringSubmatch(out, -1); found != nil {
		names := found[0][1]
		if len(found) > 1 {
			names += fmt.Sprintf(" and %d more", len(found)-1)
		}
		return names
	}
	if strings.Contains(out, "build failed") || strings.Contains(out, "setup failed") {
		check(fmt.Errorf("the mutant does not build:\n%s", out))
	}
	if strings.Contains(out, "test timed out") || strings.Contains(out, "deadlock") {
		return "tests hang"
	}
	line, _, _ := strings.Cut(out, "\n")
	return line
}

func run(dir string, env []string, args ...string) (out string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-vet=off", "-count=1", "-timeout=20m"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "GOWORK=off"), env...)
	body, err := cmd.CombinedOutput()
	return string(body), err == nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}
