package doctor

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/probe"
)

// onePutASecond is the pause between writes to one object of Cloud Storage, which accepts one a
// second.
const onePutASecond = 1100 * time.Millisecond

func examineGS(ctx context.Context, at place.Location, sides bool) Report {
	names := []string{"endpoint", "credentials", "bucket", "list", "get", "put", "delete",
		"conditions", "clock", "latency"}
	if sides {
		names = append(names, "sides")
	}
	r := newReport(append(names, "versioning", "lifecycle", "retention", "soft delete")...)
	client, err := at.GSClient(ctx)
	if err != nil {
		r.fail("credentials", exit.Config, "run gcloud auth application-default login, set "+
			"GOOGLE_APPLICATION_CREDENTIALS, or give the machine a service account", "%s", exit.Message(err))
		return r
	}
	defer client.Close()
	store, err := at.Open(ctx)
	if err != nil {
		r.fail("credentials", exit.Config, "correct the credentials", "%s", exit.Message(err))
		return r
	}
	defer store.Close()
	const role = " on the bucket, or give the role roles/storage.objectUser"
	p := newExam(r, at, store, permissions{
		list: "allow storage.objects.list" + role, get: "allow storage.objects.get" + role,
		put:    "allow storage.objects.create, and storage.objects.delete for overwriting," + role,
		delete: "storage.objects.delete",
		other:  lookAtServer,
	})
	p.pause = onePutASecond
	err = p.look(ctx)
	if err == nil && p.etag == "" {
		// Emulators answer alike for a missing bucket. Without the permission to read the bucket's
		// settings, there is another error.
		soon, cancel := context.WithTimeout(ctx, place.RequestLimit)
		if _, missing := client.Bucket(at.Bucket).Attrs(soon); errors.Is(missing, storage.ErrBucketNotExist) {
			err = missing
		}
		cancel()
	}
	if !p.reachedGS(at, err) {
		return r
	}
	var found leasehold.Report
	if p.admitted(ctx, err) {
		found = p.conditions(ctx)
		p.clocksGS(ctx, client.Bucket(at.Bucket), found.ServerClock)
		p.latency(ctx)
	}
	p.remove(ctx, found.Leftover)
	settingsGS(ctx, r, client.Bucket(at.Bucket), at.Key)
	return r
}

// reachedGS judges the first request. It reports whether the bucket is there, and these credentials
// are known.
func (p *exam) reachedGS(at place.Location, err error) bool {
	r := p.report
	server := "Google Cloud Storage"
	if at.Endpoint != "" {
		server = at.Endpoint
	}
	status := 0
	if reply, ok := errors.AsType[*googleapi.Error](err); ok {
		status = reply.Code
	}
	switch {
	case err == nil, status == http.StatusForbidden, strings.Contains(exit.Message(err), "not the doctor's own"):
		r.ok("endpoint", "%s answers", server)
		r.ok("credentials", "accepted")
		r.ok("bucket", "%s exists", at.Bucket)
		return true
	case status == http.StatusUnauthorized, strings.Contains(err.Error(), "access token"):
		r.broke("credentials", err, "correct the credentials")
	case status == http.StatusNotFound, errors.Is(err, storage.ErrBucketNotExist):
		r.ok("endpoint", "%s answers", server)
		r.ok("credentials", "accepted")
		r.fail("bucket", exit.Config, "create the bucket, or correct its name", "%s does not exist", at.Bucket)
	default:
		r.broke("endpoint", err, "check host and port, the network, and that this is Cloud Storage")
	}
	return false
}

// clocksGS reads an object that was just written. The client does not show the Date of the answer,
// which CheckStore has measured.
func (p *exam) clocksGS(ctx context.Context, bucket *storage.BucketHandle, verdict leasehold.ClockVerdict) {
	var attrs *storage.ObjectAttrs
	err := p.ask(ctx, func(ctx context.Context) (err error) {
		attrs, err = bucket.Object(p.key).Attrs(ctx)
		if errors.Is(err, storage.ErrObjectNotExist) {
			return probe.ErrDisturbed
		}
		return err
	})
	if err != nil {
		p.report.broke("clock", err, "run doctor again")
		return
	}
	p.clock(verdict, attrs.Updated, time.Time{})
}

// settingsGS checks what the bucket does with objects by itself.
func settingsGS(ctx context.Context, r Report, bucket *storage.BucketHandle, key string) {
	ctx, cancel := context.WithTimeout(ctx, place.RequestLimit)
	defer cancel()
	attrs, err := bucket.Attrs(ctx)
	if err != nil {
		for _, name := range []string{"versioning", "lifecycle", "retention", "soft delete"} {
			r.unsettled(name, "storage.buckets.get", err)
		}
		return
	}
	r.ok("lifecycle", "no rule takes the lock away")
	noncurrent := false
	for _, rule := range attrs.Lifecycle.Rules {
		only := rule.Condition
		if len(only.MatchesPrefix) > 0 && !slices.ContainsFunc(only.MatchesPrefix, func(p string) bool {
			return strings.HasPrefix(key, p)
		}) ||
			len(only.MatchesSuffix) > 0 && !slices.ContainsFunc(only.MatchesSuffix, func(s string) bool {
				return strings.HasSuffix(key, s)
			}) ||
			rule.Action.Type != storage.DeleteAction {
			continue
		}
		if only.Liveness == storage.Archived || only.NumNewerVersions > 0 || only.DaysSinceNoncurrentTime > 0 ||
			!only.NoncurrentTimeBefore.IsZero() {
			noncurrent = true
			continue
		}
		r.fail("lifecycle", exit.Config, "exclude "+lockPattern(key)+" from the rule: the tokens would start again",
			"a rule deletes the lock")
	}
	switch {
	case !attrs.VersioningEnabled:
		r.ok("versioning", "off")
	case noncurrent:
		r.ok("versioning", "on; a rule removes noncurrent versions")
	default:
		r.warn("versioning", "switch versioning off, or add a lifecycle rule that deletes noncurrent versions "+
			"after a day",
			"on, and no rule removes noncurrent versions: each renewal stays as one")
	}
	if p := attrs.RetentionPolicy; p != nil && p.RetentionPeriod > 0 {
		r.fail("retention", exit.Config, "remove the retention policy, or use another bucket",
			"no lock can be renewed: objects cannot be overwritten for %v", p.RetentionPeriod)
	} else {
		r.ok("retention", "no policy")
	}
	if p := attrs.SoftDeletePolicy; p != nil && p.RetentionDuration > 0 {
		r.warn("soft delete", "switch soft delete off for this bucket",
			"each renewal stays for %v, and is paid for", p.RetentionDuration)
	} else {
		r.ok("soft delete", "off")
	}
}
