package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/createonly"
	"github.com/leasehold-go/leasehold/internal/probe"
	"github.com/leasehold-go/leasehold/internal/s3api"
)

// s3Doctor checks a bucket of S3.
type s3Doctor struct {
	*exam
	at     place.Location
	client *s3.Client
}

func examineS3(ctx context.Context, at place.Location, sides bool) Report {
	names := []string{"endpoint", "region", "credentials", "bucket", "list", "get", "put", "delete", "conditions",
		"etag", "clock", "latency"}
	if sides {
		names = append(names, "sides")
	}
	r := newReport(append(names, "versioning", "lifecycle", "object lock", "overwriting")...)
	const correct = "correct what it names, in the environment, ~/.aws/config or the URL"
	client, err := at.S3Client(ctx)
	if err != nil {
		guilty := "credentials"
		if strings.Contains(err.Error(), "there is no region") {
			guilty = "region"
		}
		r.fail(guilty, exit.Code(err), correct, "%s", exit.Message(err))
		return r
	}
	soon, cancel := context.WithTimeout(ctx, place.RequestLimit)
	_, err = client.Options().Credentials.Retrieve(soon)
	cancel()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		r.fail("credentials", exit.Store,
			"run doctor again; if it stays, look at the role of the machine, or at the process of the profile",
			"the source of the credentials has not answered within %v", place.RequestLimit)
		return r
	case err != nil:
		r.fail("credentials", exit.Config, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a profile, or "+
			"give the machine a role", "there are no credentials")
		return r
	}
	store, err := at.Open(ctx)
	if err != nil {
		r.fail("endpoint", exit.Code(err), correct, "%s", exit.Message(err))
		return r
	}
	defer store.Close()
	bucket := "arn:aws:s3:::" + at.Bucket
	objects := bucket + "/" + lockPattern(at.Key)
	d := &s3Doctor{newExam(r, at, store, permissions{
		list: "allow s3:ListBucket on " + bucket, get: "allow s3:GetObject on " + objects,
		put: "allow s3:PutObject on " + objects + "; if a policy demands encryption, add sse=AES256 or sse=aws:kms " +
			"to the URL", delete: "s3:DeleteObject",
		other: lookAtServer,
	}), at, client}
	err = d.look(ctx)
	if !d.reached(ctx, err) {
		return r
	}
	var found leasehold.Report
	if at.CreateOnly {
		d.createOnly(ctx, err)
		return r
	}
	if d.admitted(ctx, err) && d.dialect(ctx) {
		found = d.conditions(ctx)
		if r.of("conditions").code == exit.Config && !d.cached {
			r.skip("etag", "see conditions", "conditions are not enforced")
		}
		if !d.cached {
			d.clocks(ctx, found.ServerClock)
		}
		d.latency(ctx)
	}
	if r.unimplemented("put", "etag") { // then it may be one that only creates
		found = d.conditions(ctx)
		if put := r.of("put"); put.Result == resultFailed && !d.createsOnly {
			r.skip("conditions", "see put", "needs: put")
		}
	}
	d.overwriting(ctx)
	d.remove(ctx, found.Leftover)
	d.settings(ctx)
	return r
}

// createOnly checks a bucket in which objects are only created, after a first read that has ended
// with err. What it writes stays, as the versions of a lock do.
func (d *s3Doctor) createOnly(ctx context.Context, err error) {
	const unused = "not used where objects are only created"
	for _, name := range []string{"etag", "clock"} {
		d.report.skip(name, "nothing is to be done", unused)
	}
	d.report.skip("overwriting", "let nothing but leasehold write and delete here", unused)
	admitted := !d.listDenied(ctx, err) && d.admitted(ctx, err)
	if admitted || d.report.of("put").code == exit.Config {
		d.conditions(ctx)
	}
	if admitted {
		d.latency(ctx)
		d.deletes(ctx)
	}
	d.settings(ctx)
}

// listDenied checks the permission to list, which reads and writes need, too. The first read has
// ended with err.
func (d *s3Doctor) listDenied(ctx context.Context, err error) bool {
	if !exit.Denied(err) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, place.RequestLimit)
	defer cancel()
	if _, err = createonly.NewS3(d.client, d.at.Bucket).List(ctx, d.key+"/"); !exit.Denied(err) {
		return false
	}
	d.report.fail("list", exit.Permission, d.needs.list, "%s", brief(err))
	return true
}

// deletes checks the permission to delete old versions.
func (d *s3Doctor) deletes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, place.RequestLimit)
	defer cancel()
	err := createonly.NewS3(d.client, d.at.Bucket).Delete(ctx, d.key+"-missing-"+rand.Text()[:10])
	switch {
	case err == nil:
		d.report.ok("delete", "allowed")
	case exit.Denied(err):
		d.report.fail("delete", exit.Permission, "allow "+d.needs.delete+", without which old versions pile up", "%s",
			brief(err))
	default:
		d.report.broke("delete", err, d.needs.other)
	}
}

// lockPattern is the pattern of a policy for the lock at key and its neighbours.
func lockPattern(key string) string {
	if i := strings.LastIndex(key, "/"); i >= 0 {
		return key[:i+1] + "*"
	}
	return key + "*"
}

// reached judges the first request. It reports whether the bucket is there, and these credentials
// are known.
func (d *s3Doctor) reached(ctx context.Context, err error) bool {
	r, options := d.report, d.client.Options()
	server, style := cmp.Or(place.WithoutSecrets(aws.ToString(options.BaseEndpoint)), "Amazon S3"),
		"before the host name"
	if options.UsePathStyle {
		style = "in the path"
	}
	basics := func() {
		r.ok("endpoint", "%s answers; the bucket is %s", server, style)
		r.ok("region", "%s", options.Region)
		r.ok("credentials", "accepted")
	}
	guilty := guiltyS3(err)
	if (guilty != "" || exit.Denied(err)) && options.BaseEndpoint != nil && d.otherStyle(ctx) {
		other := "0"
		if !options.UsePathStyle {
			other = "1"
		}
		r.fail("endpoint", exit.Config, "add path-style="+other+" to the parameters of the URL",
			"%s does not answer to a bucket %s, but does in the other style", server, style)
		return false
	}
	switch guilty {
	case "":
		basics()
		r.ok("bucket", "%s exists", d.at.Bucket)
		return true
	case "bucket":
		basics()
	case "region", "credentials", "clock":
		r.ok("endpoint", "%s answers; the bucket is %s", server, style)
	}
	advice := map[string]string{
		"bucket": "create the bucket, or correct its name", "region": "add region=NAME, the region of the bucket, " +
			"to the parameters of the URL, or set AWS_REGION",
		"credentials": "correct the credentials", "clock": "set the clock of this machine: S3 refuses requests that " +
			"are 15 minutes off",
		"endpoint": "check host and port, the network, and that this is an S3 server",
	}[guilty]
	if guilty == "region" {
		seen := brief(err)
		if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorMessage() != "" {
			seen = firstLine(api.ErrorMessage()) // it names the right one
		}
		if region := d.regionOf(ctx); region != "" {
			seen, advice = fmt.Sprintf("the bucket is in %s, not in %s", region, options.Region), "add region="+region+
				" to the parameters of the URL, or set AWS_REGION"
		}
		r.fail(guilty, exit.Config, advice, "%s", seen)
		return false
	}
	r.broke(guilty, err, advice)
	return false
}

// guiltyS3 is the check that an error of the first request belongs to, "" if the error says that
// all those are well.
func guiltyS3(err error) string {
	code := apiCode(err)
	switch code {
	case "NoSuchBucket", "InvalidBucketName":
		return "bucket"
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "MovedPermanently", "IllegalLocationConstraintException":
		return "region"
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidTokenId", "ExpiredToken",
		"ExpiredTokenException", "TokenRefreshRequired":
		return "credentials"
	case "RequestTimeTooSkewed":
		return "clock"
	}
	if err == nil || exit.Denied(err) || errors.As(err, new(*exit.Error)) {
		return ""
	}
	return "endpoint"
}

// otherStyle reports whether the bucket is there with its name at the other place of the URL.
func (d *s3Doctor) otherStyle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, place.RequestLimit)
	defer cancel()
	other := s3.New(d.client.Options(), func(o *s3.Options) { o.UsePathStyle = !o.UsePathStyle })
	var store leasehold.Store = leasehold.NewS3Store(other, d.at.Bucket)
	if d.at.CreateOnly {
		store = createonly.New(createonly.NewS3(other, d.at.Bucket))
	}
	_, err := store.Get(ctx, d.key)
	return err == nil || errors.Is(err, leasehold.ErrNotExist)
}

// regionOf is the bucket's region, "" if the server does not report it.
func (d *s3Doctor) regionOf(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, place.RequestLimit)
	defer cancel()
	_, err := d.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &d.at.Bucket})
	if reply, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && reply.Response != nil {
		return reply.Response.Header.Get("X-Amz-Bucket-Region")
	}
	return ""
}

// dialect checks in which form the server takes the ETags that it has given. It reports whether
// that is one that the library uses.
func (d *s3Doctor) dialect(ctx context.Context) bool {
	r := d.report
	bare := false // it refuses its ETag as it has given it
	err := d.ask(ctx, func(ctx context.Context) error {
		given := d.etag
		if bare = refused(d.as(ctx, given)); !bare {
			return nil
		}
		err := d.look(ctx)
		if err == nil && d.etag != given { // another doctor was faster
			return probe.ErrDisturbed
		}
		return err
	})
	switch {
	case err == nil && bare:
		r.ok("etag", "taken only without quotes, which leasehold finds out by itself")
	case err == nil && d.as(ctx, strings.Trim(d.etag, `"`)) == nil:
		r.ok("etag", "taken as given, and also without quotes")
	case err == nil:
		r.ok("etag", "taken as given")
	case errors.Is(err, errOwnETag):
		r.fail("etag", exit.Config, "look for a proxy on the way that changes ETags, and go around it; or use "+
			"another server", "the server refuses its own ETag")
		return false
	default:
		r.broke("etag", err, lookAtServer)
		return false
	}
	return true
}

// refused reports whether a write was refused for its condition.
func refused(err error) bool {
	return exit.HTTPStatus(err) == http.StatusPreconditionFailed
}

// as writes with an ETag in this form.
func (d *s3Doctor) as(ctx context.Context, etag string) error {
	return d.put(ctx, func(in *s3.PutObjectInput) { in.IfMatch = &etag })
}

// put writes the object by a request that the library does not send.
func (d *s3Doctor) put(ctx context.Context, change func(*s3.PutObjectInput)) error {
	ctx, cancel := context.WithTimeout(ctx, place.RequestLimit)
	defer cancel()
	body := mark.Begins + rand.Text()
	in := &s3.PutObjectInput{
		Bucket: &d.at.Bucket, Key: &d.key, Body: strings.NewReader(body),
		ContentMD5: s3api.NewBucket(d.at.Bucket).MD5([]byte(body)),
	}
	change(in)
	out, err := d.client.PutObject(ctx, in, asTheLibrary)
	if err == nil {
		d.etag = aws.ToString(out.ETag)
	}
	return err
}

// asTheLibrary sets up a request as leasehold.S3Store does.
func asTheLibrary(o *s3.Options) {
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.Retryer = aws.NopRetryer{}
}

// clocks reads an object that was just written, for its Date and Last-Modified.
func (d *s3Doctor) clocks(ctx context.Context, verdict leasehold.ClockVerdict) {
	var out *s3.HeadObjectOutput
	err := d.ask(ctx, func(ctx context.Context) (err error) {
		out, err = d.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &d.at.Bucket, Key: &d.key}, asTheLibrary)
		if exit.HTTPStatus(err) == http.StatusNotFound {
			return probe.ErrDisturbed
		}
		return err
	})
	if err != nil {
		d.report.broke("clock", err, "run doctor again")
		return
	}
	now, _ := awsmiddleware.GetServerTime(out.ResultMetadata)
	d.clock(verdict, now, aws.ToTime(out.LastModified))
}

// overwriting checks whether a write without a condition is refused, which only a policy can do.
func (d *s3Doctor) overwriting(ctx context.Context) {
	r := d.report
	if r.of("put").Result != resultOK {
		r.skip("overwriting", "see put", "needs: put")
		return
	}
	advice := ""
	if endpoint := aws.ToString(d.client.Options().BaseEndpoint); endpoint == "" ||
		strings.Contains(endpoint, ".amazonaws.com") {
		advice = "; the policy that leasehold doctor --policy prints forbids it"
	}
	switch err := d.put(ctx, func(*s3.PutObjectInput) {}); {
	case err == nil:
		r.ok("overwriting", "a write without a condition is accepted: let nothing but leasehold write here%s", advice)
	case exit.Denied(err):
		r.ok("overwriting", "a write without a condition is refused")
	default:
		r.skip("overwriting", "run doctor again", "%s", brief(err))
	}
}

// apiCode is the code of an error of S3.
func apiCode(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// unsettled notes that a setting of the bucket could not be read.
func (r Report) unsettled(name, action string, err error) {
	if exit.Denied(err) {
		r.skip(name, "allow "+action+" to the one who runs doctor, or ask the owner of the bucket", "%s", brief(err))
		return
	}
	status := exit.HTTPStatus(err)
	if status == http.StatusNotImplemented || status == http.StatusMethodNotAllowed || status == http.StatusNotFound ||
		status == http.StatusBadRequest {
		r.skip(name, "look at the settings of the server itself", "the server does not report it: %s", brief(err))
		return
	}
	r.skip(name, "run doctor again", "%s", brief(err))
}
