package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// settings checks what the bucket does with objects by itself.
func (d *s3Doctor) settings(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*place.RequestLimit)
	defer cancel()
	rules, err := d.rules(ctx)
	switch {
	case err != nil:
		d.report.unsettled("lifecycle", "s3:GetLifecycleConfiguration", err)
	default:
		d.expiry(rules)
	}
	d.versions(ctx, rules, err)
	d.objectLock(ctx)
}

// rules are the lifecycle rules that cover the lock's object.
func (d *s3Doctor) rules(ctx context.Context) (rules []types.LifecycleRule, err error) {
	out, err := d.client.GetBucketLifecycleConfiguration(ctx,
		&s3.GetBucketLifecycleConfigurationInput{Bucket: &d.at.Bucket})
	if apiCode(err) == "NoSuchLifecycleConfiguration" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, rule := range out.Rules {
		if rule.Status == types.ExpirationStatusEnabled && covers(rule, d.objectName()) {
			rules = append(rules, rule)
		}
	}
	return rules, nil
}

// objectName is what the name of the lock's object is, or begins with.
func (d *s3Doctor) objectName() string {
	if d.at.CreateOnly {
		return d.at.Key + "/.leasehold-versions/.leasehold-"
	}
	return d.at.Key
}

// covers reports whether a rule is for a lock's object at key, which has no tags.
func covers(rule types.LifecycleRule, key string) bool {
	prefix := aws.ToString(rule.Prefix) //nolint:staticcheck // old rules have it
	var larger int64
	if f := rule.Filter; f != nil {
		prefix += aws.ToString(f.Prefix)
		larger = aws.ToInt64(f.ObjectSizeGreaterThan)
		tags := f.Tag != nil
		if f.And != nil {
			prefix += aws.ToString(f.And.Prefix)
			larger = max(larger, aws.ToInt64(f.And.ObjectSizeGreaterThan))
			tags = tags || len(f.And.Tags) > 0
		}
		if tags {
			return false
		}
	}
	return strings.HasPrefix(key, prefix) && larger < wire.MaxSize
}

func ruleName(rule types.LifecycleRule) string { return fmt.Sprintf("rule %q", aws.ToString(rule.ID)) }

// archives are the storage classes whose objects cannot be read at once.
var archives = []types.TransitionStorageClass{types.TransitionStorageClassGlacier,
	types.TransitionStorageClassDeepArchive}

// expiry looks for rules that take the lock's current version away.
func (d *s3Doctor) expiry(rules []types.LifecycleRule) {
	for _, rule := range rules {
		advice := fmt.Sprintf("exclude %s from the rule: the tokens would start again", lockPattern(d.at.Key))
		if e := rule.Expiration; e != nil && (e.Days != nil || e.Date != nil) {
			after := fmt.Sprintf("%d days after its last write", aws.ToInt32(e.Days))
			if e.Date != nil {
				after = "on " + e.Date.Format("2006-01-02")
			}
			d.report.fail("lifecycle", exit.Config, advice, "%s deletes the lock %s", ruleName(rule), after)
			return
		}
		for _, t := range rule.Transitions {
			if slices.Contains(archives, t.StorageClass) {
				d.report.fail("lifecycle", exit.Config, fmt.Sprintf("exclude %s from the rule", lockPattern(d.at.Key)),
					"%s moves the lock to %s, where it cannot be read", ruleName(rule), t.StorageClass)
				return
			}
		}
	}
	d.report.ok("lifecycle", "no rule takes the lock away")
}

// versions checks that a bucket with versions does not keep one of each renewal for ever. rulesErr
// says why the rules are unknown.
func (d *s3Doctor) versions(ctx context.Context, rules []types.LifecycleRule, rulesErr error) {
	r := d.report
	out, err := d.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &d.at.Bucket})
	switch {
	case err != nil:
		r.unsettled("versioning", "s3:GetBucketVersioning", err)
		return
	case out.Status != types.BucketVersioningStatusEnabled:
		r.ok("versioning", "off")
		return
	}
	for _, rule := range rules {
		if e := rule.NoncurrentVersionExpiration; e != nil {
			r.ok("versioning", "on; %s removes noncurrent versions after %d days", ruleName(rule),
				aws.ToInt32(e.NoncurrentDays))
			return
		}
	}
	seen := "on, and no rule removes noncurrent versions: each renewal stays as one"
	if rulesErr != nil {
		seen = "on; each renewal stays as a noncurrent version, if no rule removes them"
	}
	r.warn("versioning", fmt.Sprintf("add a lifecycle rule with the prefix %s that expires noncurrent versions "+
		"after a day", strings.TrimSuffix(lockPattern(d.at.Key), "*")), "%s", seen)
}

// objectLock checks that no default retention keeps every version.
func (d *s3Doctor) objectLock(ctx context.Context) {
	r := d.report
	out, err := d.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &d.at.Bucket})
	switch {
	case apiCode(err) == "ObjectLockConfigurationNotFoundError":
		r.ok("object lock", "off")
		return
	case err != nil:
		r.unsettled("object lock", "s3:GetBucketObjectLockConfiguration", err)
		return
	}
	if config := out.ObjectLockConfiguration; config != nil && config.Rule != nil &&
		config.Rule.DefaultRetention != nil {
		kept := config.Rule.DefaultRetention
		if r.of("etag").Result == resultFailed && r.of("versioning").Result == resultOK { // the only version is kept
			r.fail("object lock", exit.Config, "remove the default retention, or use another bucket",
				"a lock can be written but not renewed or released for %d days", aws.ToInt32(kept.Days)+
					365*aws.ToInt32(kept.Years))
			return
		}
		r.warn("object lock", "remove the default retention, or use another bucket: no rule can remove the "+
			"versions before",
			"each renewal stays as a version for %d days", aws.ToInt32(kept.Days)+365*aws.ToInt32(kept.Years))
		return
	}
	r.ok("object lock", "no default retention")
}
