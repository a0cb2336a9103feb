package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"google.golang.org/api/googleapi"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/probe"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/storecheck"
)

// exam is one object next to the lock's, on which the doctor tries what a lock does.
type exam struct {
	report Report
	store  *place.Store
	key    string
	etag   string        // of the version last read or written; "" if there is none
	pause  time.Duration // before each write but the first
	needs  permissions
	dirty  bool // there may be an object

	enforces    string // what the server must do
	createsOnly bool   // it has conditional creates and no updates
	cached      bool   // reads do not show the writes before them
}

// permissions says what to allow, for each check that can be denied, and what to do about other
// errors.
type permissions struct{ list, get, put, delete, other string }

const (
	toldApart  = "a missing object is reported as missing, not as denied"
	neverTaken = "an object that does not exist is denied, not missing: a lock that was never taken could not be taken"
)

const lookAtServer = "run doctor again; if it stays, look at the log of the server"

var mark = probe.Mark{Begins: "leasehold doctor ", Whose: "the doctor's"}

const (
	// patience bounds the time for one write, which fails if another doctor has written before.
	// Between two tries it rests for up to longestRest: doctors that continue at once stay in step,
	// and make each other's writes fail again and again.
	patience    = 30 * time.Second
	longestRest = 200 * time.Millisecond
)

var (
	errOwnETag = errors.New("the server refuses the ETag that it has just returned")
	errGhost   = errors.New("the server refuses a create although there is no object")
	errCrowd   = errors.New("other doctors write the doctor's object all the time (run one doctor at a time)")
)

// newExam is an exam for a lock.
func newExam(r Report, at place.Location, store *place.Store, needs permissions) *exam {
	enforces := "enforces If-Match and If-None-Match"
	if at.CreateOnly {
		enforces = "enforces If-None-Match, and whose lists show at once what was created"
	}
	return &exam{report: r, store: store, key: doctorKey(at), needs: needs, enforces: enforces}
}

// doctorKey is the key of the doctor's object. Where objects are only created it is another one,
// because servers that keep objects as files have no room for both.
func doctorKey(at place.Location) string {
	if at.CreateOnly {
		return at.Key + "-createonly-doctor"
	}
	return at.Key + "-doctor"
}

// look reads the object. It is no error that there is none.
func (p *exam) look(ctx context.Context) error {
	o, err := p.store.Get(ctx, p.key)
	if err == nil || errors.Is(err, leasehold.ErrCorruptRecord) {
		err = mark.Own(p.key, o.Body)
	}
	switch p.etag = ""; {
	case err == nil:
		p.etag = o.ETag
	case errors.Is(err, leasehold.ErrNotExist):
		return nil
	case errors.Is(err, probe.ErrNotOwn):
		return exit.Errorf(exit.Config, "%w", err)
	}
	return err
}

// write writes the object once, over whatever version there is.
func (p *exam) write(ctx context.Context) error {
	ghosts := 0
	for began := time.Now(); ; {
		p.dirty = true
		body := []byte(mark.Begins + rand.Text())
		etag, err := probe.Put(ctx, p.store, p.key, body, p.etag)
		switch {
		case err == nil:
			p.etag = etag
			return nil
		case !probe.Refused(err):
			return err
		case time.Since(began) > patience:
			return errCrowd
		}
		if err := storeapi.Pause(ctx, mathrand.N(longestRest)); err != nil {
			return err
		}
		before := p.etag
		if err := p.look(ctx); err != nil {
			return err
		}
		switch conflict := errors.Is(err, storeapi.ErrConflict); {
		case p.etag == before && before != "" && !conflict:
			return errOwnETag
		case p.etag != before || conflict:
			ghosts = 0
		case ghosts == 3: // not an object of another doctor, which comes and goes
			return errGhost
		default:
			ghosts++
		}
	}
}

// ask writes the object, and then asks the server a question about it, again if the question finds
// that another doctor has removed or replaced the object since.
func (p *exam) ask(ctx context.Context, question func(ctx context.Context) error) error {
	return probe.Undisturbed(ctx, func() error {
		p.rest(ctx)
		if err := p.write(ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, place.RequestLimit)
		defer cancel()
		return question(ctx)
	})
}

// admitted checks the permissions to read and write, after a first read that has ended with err. It
// reports whether a lock can work.
func (p *exam) admitted(ctx context.Context, err error) bool {
	r := p.report
	missing := exit.Denied(err)
	if err == nil && p.etag == "" {
		r.ok("list", toldApart)
	}
	err = p.write(ctx)
	written := p.etag
	switch {
	case (errors.Is(err, errOwnETag) || errors.Is(err, errGhost)) && p.behindCache(ctx):
		return false
	case err == nil, errors.Is(err, errOwnETag):
		r.ok("put", "allowed")
	case errors.Is(err, errGhost):
		r.fail("put", exit.Config, "a versioned bucket of VersityGW counts delete markers as objects: delete the "+
			"marker, or choose another bucket", "%v", err)
	case exit.Denied(err):
		r.fail("put", exit.Permission, p.needs.put, "%s", brief(err))
	default:
		r.broke("put", err, p.needs.other)
	}
	if r.of("put").Result != resultOK && p.etag == "" {
		if missing {
			r.fail("get", exit.Permission, p.needs.get, "denied, for an object that does not exist")
		} else {
			r.skip("get", "see put", "there is no object to read")
		}
		return false
	}
	etag := p.etag
	switch err := p.look(ctx); {
	case err == nil && p.etag != written && p.behindCache(ctx): // else another doctor has written
		p.etag = written
		return false
	case err == nil:
		r.ok("get", "allowed")
		if missing {
			r.fail("list", exit.Permission, p.needs.list, neverTaken)
		} else if r.of("list").Result != resultOK {
			p.missing(ctx)
		}
	case exit.Denied(err):
		p.etag = etag
		r.fail("get", exit.Permission, p.needs.get, "%s", brief(err))
	default:
		r.broke("get", err, p.needs.other)
	}
	return r.of("put").Result == resultOK && r.of("get").Result == resultOK && r.of("list").Result == resultOK
}

// missing checks that the server reports an object that does not exist as missing, not as denied.
func (p *exam) missing(ctx context.Context) {
	switch _, err := p.store.Get(ctx, p.key+"-missing-"+rand.Text()[:10]); {
	case errors.Is(err, leasehold.ErrNotExist):
		p.report.ok("list", toldApart)
	case exit.Denied(err):
		p.report.fail("list", exit.Permission, p.needs.list, neverTaken)
	default:
		p.report.broke("list", err, p.needs.other)
	}
}

const behindCache = "let the cache pass all requests of this bucket to the server (nginx: proxy_cache off), or give " +
	"the endpoint of the server"

// behindCache finds out why a read has not shown the write before it. It reports whether that is a
// cache, and says so.
func (p *exam) behindCache(ctx context.Context) bool {
	_, err := leasehold.CheckStore(ctx, p.store.Store, p.key)
	if p.cached = errors.Is(err, storecheck.ErrStale); p.cached {
		p.report.fail("get", exit.Config, behindCache, "%s", brief(err))
	}
	return p.cached
}

// conditions runs the checks of leasehold.CheckStore.
func (p *exam) conditions(ctx context.Context) leasehold.Report {
	r := p.report
	// The store below the layer that keeps the server's clock away.
	found, err := leasehold.CheckStore(ctx, p.store.Store, p.key)
	first := brief(err)
	switch {
	case found.ConditionalPuts:
		deletes := "including deletes"
		if !found.ConditionalDeletes {
			deletes = "but not in deletes, which locks do not need; objects of tables' former members may stay"
		}
		r.ok("conditions", "enforced in %d requests, %s", found.Requests, deletes)
	case errors.Is(err, storecheck.ErrCreatesOnly):
		p.createsOnly = true
		r.fail("conditions", exit.Config, "add createonly=1 to the parameters of the URL, and use package createonly "+
			"in Go: see "+storesPage, "%s", first)
	case errors.Is(err, storecheck.ErrStale):
		p.cached = true
		r.fail("conditions", exit.Config, behindCache, "%s", first)
	case errors.Is(err, leasehold.ErrUnsafeStore):
		r.fail("conditions", exit.Config, "two processes may lead: use another server, or a version of this one that "+
			p.enforces+". If there is a proxy, let it pass these headers. See "+storesPage, "%s", first)
	default:
		r.broke("conditions", err, p.needs.other)
	}
	return found
}

const storesPage = "https://github.com/leasehold-go/leasehold/blob/main/docs/stores.md"

// clockFar is a difference of clocks at which S3 soon refuses signatures, which it does at 15
// minutes.
const clockFar = 5 * time.Minute

// clock judges what CheckStore has measured, and how far the server's clock is from this machine's.
// modified is the time of the object that was written just before now, or zero.
func (p *exam) clock(verdict leasehold.ClockVerdict, now, modified time.Time) {
	const trust = "no decision of a lock needs it, except with WithServerClock"
	const where = "do not use WithServerClock, and mistrust AGE in leasehold status; or let the proxy pass the " +
		"server's Date (nginx: proxy_pass_header Date)"
	r := p.report
	ahead := time.Until(now)
	if ahead = ahead.Round(time.Second); ahead.Abs() > clockFar {
		ahead = ahead.Round(time.Minute)
	}
	offset := "as this machine's"
	switch {
	case ahead > place.ServerSlack:
		offset = fmt.Sprintf("%v ahead of this machine's", ahead)
	case ahead < -place.ServerSlack:
		offset = fmt.Sprintf("%v behind this machine's", -ahead)
	}
	switch gap := now.Sub(modified); {
	case now.IsZero():
		r.skip("clock", "see "+storesPage, "the server sends no Date")
	case verdict == leasehold.ClockWrong:
		r.warn("clock", where, "Date and Last-Modified come from different clocks: a new object seems old; "+
			"Date is %s; %s", offset, trust)
	case !modified.IsZero() && (gap < -place.ServerSlack || gap > place.RequestLimit):
		r.warn("clock", where, "Date and Last-Modified come from different clocks: they differ by %v for a new "+
			"object; Date is %s; %s", gap.Abs().Round(time.Second), offset, trust)
	case ahead.Abs() > clockFar:
		r.warn("clock", "set the clock of this machine or of the server: S3 refuses requests that are "+
			"15 minutes off", "it is %s; %s", offset, trust)
	default:
		r.ok("clock", "%s; %s", offset, trust)
	}
}

const (
	latencyTries = 10
	// requestShare is how many times a request fits into the TTL: run tries a renewal three times
	// in the third of the TTL between the time when it is due and the margin.
	requestShare = 9
	latencyRoom  = 2 // how much slower than the slowest request one may be
	commonTTL    = 15 * time.Second
)

// latency measures reads and writes.
func (p *exam) latency(ctx context.Context) {
	r := p.report
	if p.cached { // it would be the latency of the cache
		return
	}
	var gets, puts []time.Duration
	for range latencyTries {
		began := time.Now()
		if err := p.look(ctx); err != nil {
			r.broke("latency", err, "run doctor again")
			return
		}
		gets = append(gets, time.Since(began))
		p.rest(ctx)
		began = time.Now()
		if err := p.write(ctx); err != nil {
			r.broke("latency", err, "run doctor again")
			return
		}
		puts = append(puts, time.Since(began))
	}
	worst := max(slices.Max(gets), slices.Max(puts))
	ttl := max(worst*requestShare*latencyRoom, cmp.Or(p.store.Describe().MinTTL, time.Second)).Round(time.Millisecond)
	if rest := ttl % time.Second; rest > 0 {
		ttl += time.Second - rest
	}
	seen := fmt.Sprintf("GET %s, PUT %s: use a TTL of %v or more, because run gives up a request after a ninth of "+
		"the TTL, and that should be twice the time of the slowest", spread(gets), spread(puts), ttl)
	if ttl > commonTTL {
		r.warn("latency", fmt.Sprintf("use --ttl %v or more, or a store that is nearer", ttl), "%s", seen)
		return
	}
	r.ok("latency", "%s", seen)
}

// spread is the median and the maximum.
func spread(all []time.Duration) string {
	slices.Sort(all)
	unit := time.Millisecond / 10
	return fmt.Sprintf("%v (worst %v)", all[len(all)/2].Round(unit), all[len(all)-1].Round(unit))
}

func (p *exam) rest(ctx context.Context) {
	if p.pause > 0 {
		_ = storeapi.Pause(ctx, p.pause) // what follows says that ctx has ended
	}
}

// remove removes the object, and checks the permission to do so.
func (p *exam) remove(ctx context.Context, leftover []string) {
	if !p.dirty {
		return
	}
	r := p.report
	if p.etag == "" {
		_ = p.look(ctx)
	}
	if p.etag == "" {
		return
	}
	err := p.store.DeleteIfMatch(ctx, p.key, p.etag)
	switch {
	case err == nil, storeapi.Refused(err): // another doctor uses it
		r.ok("delete", "allowed")
	case exit.Denied(err):
		left := append([]string{p.key}, leftover...)
		slices.Sort(left)
		r.ok("delete", "denied (%s), which locks do not need; these objects stay, and are used again: %s",
			p.needs.delete, strings.Join(slices.Compact(left), ", "))
	default:
		r.skip("delete", "delete the object "+p.key, "%s", brief(err))
	}
}

// brief is an error without what the report says elsewhere.
func brief(err error) string {
	if err == nil {
		return ""
	}
	err = firstProblem(err)
	if api, ok := errors.AsType[*googleapi.Error](err); ok {
		return strings.TrimSpace(fmt.Sprintf("HTTP %d %s", api.Code,
			cmp.Or(firstLine(api.Message), http.StatusText(api.Code))))
	}
	if api, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return strings.TrimSpace(fmt.Sprintf("HTTP %d %s", api.StatusCode, api.ErrorCode))
	}
	reply, answered := errors.AsType[*smithyhttp.ResponseError](err)
	api, ok := errors.AsType[smithy.APIError](err)
	if ok && answered {
		return fmt.Sprintf("HTTP %d %s", reply.HTTPStatusCode(), api.ErrorCode())
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		return firstLine(request.Err.Error())
	}
	text := exit.Message(err)
	if e, ok := errors.AsType[advised](err); ok && e.Advice() != "" {
		text = strings.Replace(text, " ("+e.Advice()+")", "", 1)
	}
	return text
}

// firstProblem is the first of the problems of leasehold.CheckStore.
func firstProblem(err error) error {
	if joined, ok := errors.Unwrap(err).(interface{ Unwrap() []error }); ok {
		if _, one := joined.(advised); !one {
			return joined.Unwrap()[0]
		}
	}
	return err
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
