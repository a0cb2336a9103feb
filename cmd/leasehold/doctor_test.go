package main_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"github.com/leasehold-go/leasehold/gcsstore"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// diagnosis is what the doctor has found, by check.
type diagnosis struct {
	t      testing.TB
	checks map[string]finding
}

type finding struct{ Check, Result, Seen, Advice string }

// doctor runs the command, which must end with the code, and with a summary unless that is 0.
func doctor(t testing.TB, code int, cmd *exec.Cmd) diagnosis {
	t.Helper()
	cmd.Args = append(cmd.Args, "-o", "json")
	r := finish(t, cmd)
	d := diagnosis{t, make(map[string]finding)}
	for line := range strings.Lines(r.out) {
		var f finding
		require.NoError(t, json.Unmarshal([]byte(line), &f), line)
		require.Contains(t, []string{"ok", "warning", "failed", "not checked"}, f.Result)
		require.NotEmpty(t, f.Seen, line)
		if f.Result == "ok" {
			require.Empty(t, f.Advice, line)
		} else if !strings.HasPrefix(f.Seen, "needs: ") {
			require.NotEmpty(t, f.Advice, "what to do: %s", line)
		}
		d.checks[f.Check] = f
	}
	if code == 0 && strings.Contains(r.stderr, `"checks without success: warning: latency"`) { // the machine is busy
		return d
	}
	require.Equal(t, code, r.code, "%s%s", r.out, r.stderr)
	if code == 0 {
		require.Empty(t, r.stderr)
		return d
	}
	var failed struct {
		Error string
		Code  int
	}
	require.NoError(t, json.Unmarshal([]byte(r.stderr), &failed), r.stderr)
	require.Contains(t, failed.Error, "checks without success")
	require.Equal(t, code, failed.Code)
	return d
}

// finds checks one finding, and that it is the only one of those that are not ok, besides what
// needs it and what is excepted.
func (d diagnosis) finds(check, result, seen, advice string, except ...string) {
	d.t.Helper()
	f := d.checks[check]
	require.Equal(d.t, result, f.Result, "%s: %v", check, d.checks)
	require.Contains(d.t, f.Seen, seen)
	require.Contains(d.t, f.Advice, advice)
	for _, other := range d.checks {
		if other.Check != check && other.Check != "latency" && other.Result != "ok" && other.Seen != "needs: "+check &&
			!strings.Contains(strings.Join(except, " "), other.Check) {
			require.Fail(d.t, "another finding", "%+v", other)
		}
	}
}

// left are the keys of the objects in the bucket.
func (b bucket) left() (keys []string) {
	out, err := b.server.Client().ListObjectsV2(b.t.Context(), &s3.ListObjectsV2Input{Bucket: &b.name})
	require.NoError(b.t, err)
	for _, o := range out.Contents {
		keys = append(keys, *o.Key)
	}
	return keys
}

func versityBucket(t testing.TB) bucket {
	server := testserver.VersityGW(t)
	return bucket{t, server, server.Bucket(t)}
}

// A good server is found good, and the lock is as before.
func TestDoctorOnGoodServers(t *testing.T) {
	for name, b := range map[string]bucket{"MinIO": newBucket(t), "VersityGW": versityBucket(t)} {
		t.Run(name, func(t *testing.T) {
			b.putObject("locks/report", `{"expires_at": 0, "token": 7, "holder": "alice", "ttl": 15, "nonce": "x"}`)
			before := b.object("locks/report")
			d := doctor(t, 0, b.command("doctor", b.url("locks/report")))
			require.Len(t, d.checks, 16)
			for _, f := range d.checks {
				if name == "VersityGW" && f.Check == "lifecycle" {
					require.Equal(t, "not checked", f.Result)
					require.Contains(t, f.Seen, "the server does not report it: HTTP 501 NotImplemented")
					continue
				}
				if f.Check != "latency" { // of a busy machine
					require.Equal(t, "ok", f.Result, "%+v", f)
				}
			}
			require.Contains(t, d.checks["endpoint"].Seen, b.server.Endpoint+" answers; the bucket is in the path")
			require.Regexp(t, `enforced in \d\d requests`, d.checks["conditions"].Seen)
			require.Regexp(t, `^GET \S+ \(worst \S+\), PUT \S+ \(worst \S+\): use a TTL of \d+s or more`,
				d.checks["latency"].Seen)
			require.Equal(t, []string{"locks/report"}, b.left())
			require.Equal(t, before, b.object("locks/report"))

			r := b.run("doctor", b.url("locks/report"))
			if !strings.Contains(r.stderr, "checks without success: warning: latency") {
				r.succeeds(t)
			}
			require.Regexp(t, `^CHECK +RESULT +SEEN, AND WHAT TO DO\nendpoint +ok +http`, r.out)
			require.NotContains(t, r.out, "\x1b", "no colours")
		})
	}
}

// object is the version and body of an object.
func (b bucket) object(key string) string {
	out, err := b.server.Client().GetObject(b.t.Context(), &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	require.NoError(b.t, err)
	defer out.Body.Close()
	return *out.ETag + out.LastModified.String()
}

func TestDoctorsAtTheSameTime(t *testing.T) {
	b := newBucket(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { doctor(t, 0, b.command("doctor", b.url("locks/busy"))) })
	}
	all.Wait()
	require.Empty(t, b.left())
}

// What another doctor does to the object just before a question is no finding.
func TestDoctorIsNotDisturbedByAnother(t *testing.T) {
	b := newBucket(t)
	client, key := b.server.Client(), "locks/report-doctor"
	var updates, heads atomic.Int64
	endpoint := b.behind(func(r *http.Request) *http.Response {
		if !strings.HasSuffix(r.URL.Path, key) {
			return nil
		}
		var err error
		switch {
		// with the ETag as given
		case r.Method == http.MethodPut && r.Header.Get("If-Match") != "" && updates.Add(1) == 2:
			_, err = client.PutObject(context.Background(), &s3.PutObjectInput{
				Bucket: &b.name,
				Key:    &key,
				Body:   strings.NewReader("leasehold doctor of another"),
			})
		case r.Method == http.MethodHead && heads.Add(1) == 1:
			_, err = client.DeleteObject(context.Background(), &s3.DeleteObjectInput{Bucket: &b.name, Key: &key})
		}
		assert.NoError(t, err)
		return nil
	}, nil)
	d := doctor(t, 0, b.command("doctor", b.urlAt(endpoint, "locks/report")))
	d.finds("etag", "ok", "taken as given", "")
	d.finds("clock", "ok", "", "")
	require.EqualValues(t, 2, heads.Load())
	require.Empty(t, b.left())
}

// An object that is not the doctor's stays as it is.
func TestDoctorLeavesOthersObjectsAlone(t *testing.T) {
	b := newBucket(t)
	b.putObject("locks/a-doctor", "a lock of that name, or whatever")
	before := b.object("locks/a-doctor")
	doctor(t, 78, b.command("doctor", b.url("locks/a"))).finds("put", "failed", "is not the doctor's own", "",
		"list get overwriting")
	require.Equal(t, before, b.object("locks/a-doctor"))
}

func TestDoctorFindsWhatCannotBeReached(t *testing.T) {
	b, v := newBucket(t), versityBucket(t)
	closed := "http://" + testserver.FreeAddr(t)
	byName := strings.Replace(b.server.Endpoint, "127.0.0.1", "localhost", 1)
	skewed := b.behind(func(*http.Request) *http.Response { return s3Error(403, "RequestTimeTooSkewed") }, nil)
	for name, c := range map[string]struct {
		url                 string
		code                int
		check, seen, advice string
		env                 []string
	}{
		"nothing there": {b.urlAt(closed, "a"), 69, "endpoint", "connection refused", "check host and port", nil},
		"no such host": {
			b.urlAt("http://no-such-host.invalid", "a"),
			69,
			"endpoint",
			"no-such-host.invalid",
			"is unknown: check the endpoint",
			nil,
		},
		"http, not https": {
			b.urlAt(strings.Replace(b.server.Endpoint, "http", "https", 1), "a"),
			78,
			"endpoint",
			"HTTP response to HTTPS client",
			"this port speaks http",
			nil,
		},
		"wrong path style": {
			b.urlAt(byName, "a") + "&path-style=0",
			78,
			"endpoint",
			"does not answer to a bucket before the host name",
			"add path-style=1",
			nil,
		},
		"wrong region": {
			v.url("a") + "&region=eu-west-1",
			78,
			"region",
			`expecting "us-east-1"`,
			"add region=",
			nil,
		},
		"no region": {
			"s3://" + b.name + "/a",
			78,
			"region",
			"there is no region",
			"correct what it names",
			nil,
		},
		"no bucket": {
			strings.Replace(b.url("a"), "s3://", "s3://no-such-", 1),
			78,
			"bucket",
			"NoSuchBucket",
			"create the bucket",
			nil,
		},
		"wrong secret key": {
			b.url("a"),
			77,
			"credentials",
			"SignatureDoesNotMatch",
			"wrong secret key",
			[]string{"AWS_SECRET_ACCESS_KEY=wrong"},
		},
		"wrong access key": {
			b.url("a"),
			77,
			"credentials",
			"InvalidAccessKeyId",
			"wrong access key",
			[]string{"AWS_ACCESS_KEY_ID=wrong"},
		},
		"no credentials": {
			b.url("a"),
			78,
			"credentials",
			"there are no credentials",
			"set AWS_ACCESS_KEY_ID",
			[]string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="},
		},
		"no profile": {b.url("a") + "&profile=none", 78, "credentials", "profile", "correct what it names", nil},
		"this clock is off": {
			b.urlAt(skewed, "a"),
			77,
			"clock",
			"RequestTimeTooSkewed",
			"set the clock of this machine",
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := b.command("doctor", c.url)
			cmd.Env = append(cmd.Env, c.env...)
			doctor(t, c.code, cmd).finds(c.check, "failed", c.seen, c.advice)
		})
	}
	require.Empty(t, b.left())
	offline(t, "doctor", "bucket/key").complains(t, 64, "it has no scheme")
	offline(t, "doctor").complains(t, 64, "takes one URL")
	offline(t, "doctor", "--endpoint", "localhost", "s3://b/k").complains(t, 64,
		"is not a URL such as http://localhost:9000")
	offline(t, "doctor", "--endpoint", "http://localhost", "file:///b/k").complains(t, 64,
		"a file URL has no parameters")
}

func TestDoctorFindsBadServers(t *testing.T) {
	b := newBucket(t)
	for name, c := range map[string]struct {
		request                     func(*http.Request) *http.Response
		reply                       func(*http.Response)
		code                        int
		check, result, seen, advice string
		except                      []string
	}{
		"ignores conditions": {
			request: func(r *http.Request) *http.Response {
				r.Header.Del("If-Match")
				r.Header.Del("If-None-Match")
				return nil
			},
			code: 78, check: "conditions", result: "failed", seen: "succeeded", advice: "two processes may lead: use " +
				"another server", except: []string{"etag"},
		},
		"refuses conditions": {
			request: func(r *http.Request) *http.Response {
				if r.Header.Get("If-None-Match") != "" {
					return s3Error(501, "NotImplemented")
				}
				return nil
			},
			code: 78, check: "put", result: "failed", seen: "HTTP 501 NotImplemented",
			advice: "the server does not implement conditional writes", except: []string{"get overwriting"},
		},
		"compares ETags without quotes": {
			request: func(r *http.Request) *http.Response {
				switch etag := r.Header.Get("If-Match"); {
				case strings.HasPrefix(etag, `"`) && r.Method == http.MethodPut:
					return s3Error(412, "PreconditionFailed")
				case etag != "" && r.Method == http.MethodPut:
					r.Header.Set("If-Match", `"`+etag+`"`)
				}
				return nil
			},
			code: 0, check: "etag", result: "ok", seen: "taken only without quotes",
		},
		"takes no ETag at all": {
			request: func(r *http.Request) *http.Response {
				if r.Header.Get("If-Match") != "" && r.Method == http.MethodPut {
					return s3Error(412, "PreconditionFailed")
				}
				return nil
			},
			code: 78, check: "etag", result: "failed", seen: "refuses its own ETag",
			advice: "look for a proxy on the way",
		},
		"a clock ahead": {
			reply: func(r *http.Response) {
				r.Header.Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
			},
			code: 78, check: "clock", result: "warning", seen: "a new object seems old; Date is 1h0m0s " +
				"ahead of this machine's; no decision of a lock needs it, except with WithServerClock",
			advice: "do not use WithServerClock",
		},
		"a clock behind": {
			reply: func(r *http.Response) {
				r.Header.Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
			},
			code: 78, check: "clock", result: "warning", seen: "1h0m0s behind this machine's",
			advice: "proxy_pass_header Date",
		},
		"another time": {
			reply: func(r *http.Response) {
				for _, name := range []string{"Date", "Last-Modified"} {
					if then, err := http.ParseTime(r.Header.Get(name)); err == nil {
						r.Header.Set(name, then.Add(-10*time.Minute).Format(http.TimeFormat))
					}
				}
			},
			code: 78, check: "clock", result: "warning", seen: "it is 10m0s behind this machine's",
			advice: "set the clock of this machine",
		},
		"a missing object is denied": {
			reply: func(r *http.Response) {
				if r.StatusCode == http.StatusNotFound && r.Request.URL.Query().Has("x-id") {
					*r = *s3Error(403, "AccessDenied")
				}
			},
			code: 77, check: "list", result: "failed", seen: "is denied, not missing",
			advice: "allow s3:ListBucket on arn:aws:s3:::" + b.name,
		},
		"settings may not be read": {
			request: func(r *http.Request) *http.Response {
				if q := r.URL.Query(); q.Has("versioning") || q.Has("lifecycle") || q.Has("object-lock") {
					return s3Error(403, "AccessDenied")
				}
				return nil
			},
			code: 0, check: "lifecycle", result: "not checked", seen: "HTTP 403 AccessDenied",
			advice: "allow s3:GetLifecycleConfiguration", except: []string{
				"versioning",
				"object lock",
			},
		},
		"a policy refuses plain writes": {
			request: func(r *http.Request) *http.Response {
				if r.Method == http.MethodPut && r.Header.Get("If-Match") == "" && r.Header.Get("If-None-Match") == "" {
					return s3Error(403, "AccessDenied")
				}
				return nil
			},
			code: 0, check: "overwriting", result: "ok", seen: "a write without a condition is refused",
		},
		"counts what was deleted as there": {
			request: func(r *http.Request) *http.Response {
				if r.Header.Get("If-None-Match") != "" {
					return s3Error(412, "PreconditionFailed")
				}
				return nil
			},
			code: 78, check: "put", result: "failed", seen: "the server refuses a create although there is no object",
			advice: "delete the marker", except: []string{"get overwriting"},
		},
		"an archive": {
			request: func(r *http.Request) *http.Response {
				if !r.URL.Query().Has("lifecycle") {
					return nil
				}
				return xmlReply(200, `<LifecycleConfiguration><Rule><ID>cold</ID><Status>Enabled</Status>`+
					`<Filter><Prefix>locks/</Prefix></Filter>`+
					`<Transition><Days>90</Days><StorageClass>GLACIER</StorageClass></Transition>`+
					`</Rule></LifecycleConfiguration>`)
			},
			code: 78, check: "lifecycle", result: "failed", seen: `rule "cold" moves the lock to GLACIER`,
			advice: "exclude locks/* from the rule",
		},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := b.behind(c.request, c.reply)
			doctor(t, c.code, b.command("doctor", b.urlAt(endpoint, "locks/report"))).finds(c.check, c.result, c.seen,
				c.advice, c.except...)
		})
	}
}

// That a missing object is denied is found also where the doctor's own object is still there.
func TestDoctorLooksForMissingObjects(t *testing.T) {
	b := newBucket(t)
	b.putObject("locks/report-doctor", "leasehold doctor was here")
	endpoint := b.behind(nil, func(r *http.Response) {
		if r.StatusCode == http.StatusNotFound && r.Request.URL.Query().Has("x-id") {
			*r = *s3Error(403, "AccessDenied")
		}
	})
	doctor(t, 77, b.command("doctor", b.urlAt(endpoint, "locks/report"))).finds("list", "failed",
		"is denied, not missing", "allow s3:ListBucket")
	require.Empty(t, b.left())
}

// The slowest request counts.
func TestDoctorFindsHighLatency(t *testing.T) {
	b := newBucket(t)
	puts := 0
	var mu sync.Mutex
	endpoint := b.behind(func(r *http.Request) *http.Response {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "-doctor") {
			if puts++; puts == 8 { // of which four came before those that are measured
				time.Sleep(1200 * time.Millisecond)
			}
		}
		return nil
	}, nil)
	d := doctor(t, 78, b.command("doctor", b.urlAt(endpoint, "locks/far")))
	d.finds("latency", "warning", "worst ", "use --ttl ")
	// 1.2 s or what a busy machine made of it, doubled, 9 times
	require.Regexp(t, `a TTL of (2[1-9]|[3-9]\d)s or more`, d.checks["latency"].Seen)
}

func TestDoctorFindsMissingPermissions(t *testing.T) {
	b := newBucket(t)
	b.t = t
	for name, c := range map[string]struct {
		actions             string
		code                int
		check, seen, advice string
		except              string
	}{
		"all that locks need": {
			`"s3:GetObject", "s3:PutObject", "s3:ListBucket"`,
			0,
			"delete",
			"denied (s3:DeleteObject), which locks do not need; these objects stay",
			"",
			"versioning lifecycle object lock",
		},
		"no put": {
			`"s3:GetObject", "s3:DeleteObject", "s3:ListBucket"`,
			77,
			"put",
			"HTTP 403 AccessDenied",
			"allow s3:PutObject on arn:aws:s3:::" + b.name + "/locks/*",
			"get overwriting versioning lifecycle object lock",
		},
		"no get": {
			`"s3:PutObject", "s3:DeleteObject", "s3:ListBucket"`,
			77,
			"get",
			"HTTP 403 AccessDenied",
			"allow s3:GetObject on arn:aws:s3:::" + b.name + "/locks/*",
			"versioning lifecycle object lock",
		},
		"nothing": {
			`"s3:GetBucketVersioning"`,
			77,
			"get",
			"denied, for an object that does not exist",
			"allow s3:GetObject",
			"put overwriting lifecycle object lock",
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := "locks/" + strings.ReplaceAll(name, " ", "-")
			cmd := b.command("doctor", b.url(key))
			cmd.Env = append(cmd.Env, b.allowedOnly(c.actions)...)
			result := "failed"
			if c.code == 0 {
				result = "ok"
			}
			d := doctor(t, c.code, cmd)
			d.finds(c.check, result, c.seen, c.advice, c.except)
			if name == "nothing" {
				require.Equal(t, "failed", d.checks["put"].Result)
				require.Contains(t, d.checks["put"].Advice, "allow s3:PutObject")
				require.Contains(t, d.checks["lifecycle"].Advice, "allow s3:GetLifecycleConfiguration")
			}
		})
	}
	// What stays is used again.
	left := b.left()
	require.Equal(t, []string{"locks/all-that-locks-need-doctor", "locks/all-that-locks-need-doctor-delete",
		"locks/all-that-locks-need-doctor-probe"}, left)
	cmd := b.command("doctor", b.url("locks/all-that-locks-need"))
	cmd.Env = append(cmd.Env, b.allowedOnly(`"s3:GetObject", "s3:PutObject", "s3:ListBucket"`)...)
	d := doctor(t, 0, cmd)
	require.Equal(t, left, b.left())
	for _, key := range left {
		require.Contains(t, d.checks["delete"].Seen, key)
	}
}

// allowedOnly is the environment of credentials that may do nothing but these actions.
func (b bucket) allowedOnly(actions string) []string {
	client := sts.New(sts.Options{
		BaseEndpoint: &b.server.Endpoint,
		Region:       b.server.Region,
		Credentials:  b.server.Client().Options().Credentials,
	})
	policy := fmt.Sprintf(`{"Version": "2012-10-17", "Statement": [`+
		`{"Effect": "Allow", "Action": [%s], "Resource": "arn:aws:s3:::*"}]}`, actions)
	out, err := client.AssumeRole(b.t.Context(), &sts.AssumeRoleInput{
		RoleArn:         aws.String("arn:xxx:xxx:xxx:xxxx"),
		RoleSessionName: aws.String("limited"),
		Policy:          &policy,
	})
	require.NoError(b.t, err)
	c := out.Credentials
	return []string{"AWS_ACCESS_KEY_ID=" + *c.AccessKeyId, "AWS_SECRET_ACCESS_KEY=" + *c.SecretAccessKey,
		"AWS_SESSION_TOKEN=" + *c.SessionToken}
}

func TestDoctorFindsBadSettings(t *testing.T) {
	days := func(n int32) *types.LifecycleExpiration { return &types.LifecycleExpiration{Days: &n} }
	prefix := func(p string) *types.LifecycleRuleFilter { return &types.LifecycleRuleFilter{Prefix: &p} }
	larger := func(n int64) *types.LifecycleRuleFilter {
		return &types.LifecycleRuleFilter{And: &types.LifecycleRuleAndOperator{
			Prefix:                aws.String("locks/"),
			ObjectSizeGreaterThan: &n,
		}}
	}
	rule := func(change func(*types.LifecycleRule)) types.LifecycleRule {
		r := types.LifecycleRule{ID: aws.String("tidy"), Status: types.ExpirationStatusEnabled, Filter: prefix("")}
		change(&r)
		return r
	}
	noncurrent := rule(func(r *types.LifecycleRule) {
		r.Filter = prefix("locks/")
		r.NoncurrentVersionExpiration = &types.NoncurrentVersionExpiration{NoncurrentDays: aws.Int32(1)}
	})
	for name, c := range map[string]struct {
		versioned, locked, creates  bool // creates is for createonly=1
		rules                       []types.LifecycleRule
		code                        int
		check, result, seen, advice string
	}{
		"versions stay": {
			versioned: true,
			code:      78,
			check:     "versioning",
			result:    "warning",
			seen:      "each renewal stays as one",
			advice:    "add a lifecycle rule with the prefix locks/ that expires noncurrent versions",
		},
		"versions expire": {
			versioned: true,
			rules:     []types.LifecycleRule{noncurrent},
			check:     "versioning",
			result:    "ok",
			seen:      `rule "tidy" removes noncurrent versions after 1 days`,
		},
		"versions of others expire": {versioned: true, rules: []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Filter = prefix("logs/")
			r.NoncurrentVersionExpiration = noncurrent.NoncurrentVersionExpiration
		})}, code: 78, check: "versioning", result: "warning", seen: "each renewal stays as one",
			advice: "add a lifecycle rule"},
		"locks expire": {rules: []types.LifecycleRule{rule(func(r *types.LifecycleRule) { r.Expiration = days(30) })},
			code: 78, check: "lifecycle", result: "failed",
			seen: `rule "tidy" deletes the lock 30 days after its last write`, advice: "exclude locks/* from the " +
				"rule: the tokens would start again"},
		"locks expire by prefix": {rules: []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Filter, r.Expiration = prefix("locks/rep"), days(30)
		})},
			code: 78, check: "lifecycle", result: "failed", seen: `rule "tidy" deletes the lock`},
		"others expire": {rules: []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Filter, r.Expiration = prefix("logs/"), days(30)
		})},
			check: "lifecycle", result: "ok", seen: "no rule"},
		"a rule that is off": {rules: []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Status, r.Expiration = types.ExpirationStatusDisabled, days(30)
		})},
			check: "lifecycle", result: "ok", seen: "no rule"},
		"what has a tag expires": {rules: []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Filter = &types.LifecycleRuleFilter{Tag: &types.Tag{Key: aws.String("tmp"), Value: aws.String("1")}}
			r.Expiration = days(30)
		})}, check: "lifecycle", result: "ok", seen: "no rule"},
		"what is larger than a lock expires": {rules: []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Filter, r.Expiration = larger(64<<10), days(30)
		})},
			check: "lifecycle", result: "ok", seen: "no rule"},
		"locks expire by size": {rules: []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Filter, r.Expiration = larger(64<<10-1), days(30)
		})},
			code: 78, check: "lifecycle", result: "failed", seen: `rule "tidy" deletes the lock`},
		"what is created expires": {creates: true, rules: []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Filter, r.Expiration = prefix("locks/report/.leasehold-versions/"), days(30)
		})},
			code: 78, check: "lifecycle", result: "failed", seen: `rule "tidy" deletes the lock`},
		"what lies beside it expires": {creates: true, rules: []types.LifecycleRule{rule(func(r *types.LifecycleRule) {
			r.Filter, r.Expiration = prefix("locks/report/a"), days(30)
		})},
			check: "lifecycle", result: "ok", seen: "no rule"},
		"versions are retained": {
			locked: true,
			rules:  []types.LifecycleRule{noncurrent},
			code:   78,
			check:  "object lock",
			result: "warning",
			seen:   "for 30 days",
			advice: "remove the default retention",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := testserver.MinIO(t)
			client := server.Client()
			b := bucket{t, server, strings.ToLower("settings-" + strings.ReplaceAll(name, " ", "-"))}
			_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{
				Bucket:                     &b.name,
				ObjectLockEnabledForBucket: &c.locked,
			})
			require.NoError(t, err)
			if c.locked {
				_, err = client.PutObjectLockConfiguration(t.Context(),
					&s3.PutObjectLockConfigurationInput{Bucket: &b.name,
						ObjectLockConfiguration: &types.ObjectLockConfiguration{
							ObjectLockEnabled: types.ObjectLockEnabledEnabled,
							Rule: &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{
								Days: aws.Int32(30),
								Mode: types.ObjectLockRetentionModeGovernance,
							}},
						}})
				require.NoError(t, err)
			}
			if c.versioned {
				_, err = client.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
					Bucket: &b.name,
					VersioningConfiguration: &types.VersioningConfiguration{
						Status: types.BucketVersioningStatusEnabled,
					},
				})
				require.NoError(t, err)
			}
			if c.rules != nil {
				_, err = client.PutBucketLifecycleConfiguration(t.Context(), &s3.PutBucketLifecycleConfigurationInput{
					Bucket: &b.name, LifecycleConfiguration: &types.BucketLifecycleConfiguration{Rules: c.rules},
				})
				require.NoError(t, err)
			}
			url, unused := b.url("locks/report"), ""
			if c.creates {
				url, unused = url+"&createonly=1", "etag clock overwriting"
			}
			doctor(t, c.code, b.command("doctor", url)).finds(c.check, c.result, c.seen, c.advice, unused)
		})
	}
}

func TestDoctorFromTwoSides(t *testing.T) {
	b, v := newBucket(t), versityBucket(t)
	_, err := v.server.Client().CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &b.name})
	require.NoError(t, err)
	otherName := strings.Replace(b.server.Endpoint, "127.0.0.1", "localhost", 1)
	d := doctor(t, 0, b.command("doctor", "--endpoint", b.server.Endpoint, "--endpoint", otherName, b.url("locks/a")))
	d.finds("sides", "ok", "2 endpoints show one bucket", "")

	d = doctor(t, 78, b.command("doctor", "--endpoint", b.server.Endpoint, "--endpoint",
		v.server.Endpoint, b.url("locks/a")))
	d.finds("sides", "failed", "checking that", "use one endpoint for all processes")
	require.Empty(t, b.left())
	require.Empty(t, bucket{t, v.server, b.name}.left(), "nothing stays on the other side")

	closed := "http://" + testserver.FreeAddr(t)
	d = doctor(t, 69, b.command("doctor", "--endpoint", b.server.Endpoint, "--endpoint", closed, b.url("locks/a")))
	d.finds("sides", "failed", closed+": dial tcp", "correct the endpoint "+closed)

	// A cache on one side.
	cache := b.behind(caching())
	d = doctor(t, 78, b.command("doctor", "--endpoint", b.server.Endpoint, "--endpoint", cache, b.url("locks/a")))
	d.finds("sides", "failed", "endpoint 2 does not show what was written by endpoint", "a cache on the way")
}

// A cache on the way is named, whatever it keeps, and whatever an earlier doctor has left in it.
func TestDoctorBehindACache(t *testing.T) {
	for what, statuses := range map[string][]int{"objects": nil, "also that there is none": {http.StatusNotFound}} {
		t.Run(what, func(t *testing.T) {
			b := newBucket(t)
			url := b.urlAt(b.behind(caching(statuses...)), "locks/report")
			for range 3 {
				d := doctor(t, 78, b.command("doctor", url))
				check := "conditions"
				if d.checks["get"].Result == "failed" {
					check = "get"
				}
				d.finds(check, "failed", "a cache stands in front of the store", "proxy_cache off",
					"overwriting", "lifecycle versioning")
			}
			require.Empty(t, b.left())
		})
	}
}

func TestDoctorOnGoogleCloudStorage(t *testing.T) {
	endpoint := testserver.FakeGCS(t)
	client, err := gcsstore.NewClient(t.Context(), option.WithoutAuthentication(),
		option.WithEndpoint(endpoint+"/storage/v1/"))
	require.NoError(t, err)
	defer client.Close()
	name := "leasehold-doctor"
	require.NoError(t, client.Bucket(name).Create(t.Context(), "project", &storage.BucketAttrs{}))
	gs := func(endpoint, bucket string) *exec.Cmd {
		return exec.CommandContext(t.Context(), program, "doctor",
			fmt.Sprintf("gs://%s/locks/%s?endpoint=%s", bucket, strings.ToLower(rand.Text()), endpoint))
	}
	settings := func(body string) string {
		return proxy(t, endpoint, nil, func(r *http.Request) *http.Response {
			if r.URL.Path != "/storage/v1/b/"+name {
				return nil
			}
			reply := xmlReply(200, body)
			reply.Header.Set("Content-Type", "application/json")
			return reply
		}, nil)
	}
	deny := func(method, op string) string {
		return proxy(t, endpoint, nil, func(r *http.Request) *http.Response {
			if r.Method != method {
				return nil
			}
			reply := xmlReply(403, `{"error": {"code": 403, "message": "no `+op+` access"}}`)
			reply.Header.Set("Content-Type", "application/json")
			return reply
		}, nil)
	}
	for what, c := range map[string]struct {
		cmd                         *exec.Cmd
		code                        int
		check, result, seen, advice string
		except                      []string
	}{
		"good": {gs(endpoint, name), 0, "conditions", "ok", "enforced in", "", nil},
		"no bucket": {
			gs(endpoint, "no-such-bucket"),
			78,
			"bucket",
			"failed",
			"no-such-bucket does not exist",
			"create the bucket",
			nil,
		},
		"nothing there": {
			gs("http://"+testserver.FreeAddr(t), name),
			69,
			"endpoint",
			"failed",
			"connection refused",
			"check host and port",
			nil,
		},
		"no create": {
			gs(deny("POST", "storage.objects.create"), name),
			77,
			"put",
			"failed",
			"HTTP 403 no storage.objects.create access",
			"allow storage.objects.create",
			[]string{"get"},
		},
		"versions": {
			gs(settings(`{"versioning": {"enabled": true}}`), name),
			78,
			"versioning",
			"warning",
			"each renewal stays as one",
			"switch versioning off",
			nil,
		},
		"expiry": {
			gs(settings(`{"lifecycle": {"rule": [{"action": {"type": "Delete"}, `+
				`"condition": {"age": 30, "matchesPrefix": ["locks/"]}}]}}`), name),
			78,
			"lifecycle",
			"failed",
			"a rule deletes the lock",
			"exclude locks/*",
			nil,
		},
		"expiry of others": {
			gs(settings(`{"lifecycle": {"rule": [{"action": {"type": "Delete"}, `+
				`"condition": {"age": 30, "matchesPrefix": ["logs/"]}}]}}`), name),
			0,
			"lifecycle",
			"ok",
			"no rule",
			"",
			nil,
		},
		"versions expire": {
			gs(settings(`{"versioning": {"enabled": true}, "lifecycle": {"rule": [`+
				`{"action": {"type": "Delete"}, "condition": {"isLive": false, "age": 1}}]}}`), name),
			0,
			"versioning",
			"ok",
			"a rule removes noncurrent versions",
			"",
			nil,
		},
		"retention": {
			gs(settings(`{"retentionPolicy": {"retentionPeriod": "3600", "effectiveTime": "2026-01-01T00:00:00Z"}}`),
				name),
			78,
			"retention",
			"failed",
			"cannot be overwritten for 1h",
			"remove the retention policy",
			nil,
		},
		"soft delete": {
			gs(settings(`{"softDeletePolicy": {"retentionDurationSeconds": "604800"}}`), name),
			78,
			"soft delete",
			"warning",
			"each renewal stays for 168h",
			"switch soft delete off",
			nil,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c.cmd.Env = plainEnviron()
			doctor(t, c.code, c.cmd).finds(c.check, c.result, c.seen, c.advice, c.except...)
		})
	}
}

func TestDoctorOnDirectories(t *testing.T) {
	// not below /tmp, which may be in memory, nor here, where not everyone may come
	dir, err := os.MkdirTemp("/var/tmp", "doctor-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	local := func(dir string) *exec.Cmd { return newDirDoctor(t, dir) }
	doctor(t, 0, local(dir)).finds("conditions", "ok", "including deletes", "")
	require.Equal(t, []string{".leasehold-lock"}, namesIn(t, dir))
	doctor(t, 78, local(dir+"/none")).finds("directory", "failed", "no such file", "create the directory")
	require.NoError(t, os.Chmod(dir, 0o755|os.ModeSticky))
	doctor(t, 78, local(dir)).finds("directory", "warning", "is sticky", "choose another directory")
	require.NoError(t, os.Chmod(dir, 0o555))
	if os.Getuid() == 0 { // who may do everything
		require.NoError(t, os.Chmod(filepath.Dir(program), 0o755))
	}
	denied := local(dir)
	if os.Getuid() == 0 {
		denied.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	doctor(t, 77, denied).finds("put", "failed", "permission denied", "write and search permission", "get")
	var memory syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &memory); err == nil && memory.Type == 0x01021994 {
		dir, err := os.MkdirTemp("/dev/shm", "doctor-")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		doctor(t, 78, local(dir)).finds("disk", "warning", "in memory: after a boot, tokens start from 1",
			"choose a directory on a disk")
	}
}

func newDirDoctor(t *testing.T, dir string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), program, "doctor", "file://"+dir+"/report")
	cmd.Env = plainEnviron()
	return cmd
}

func TestDoctorOfADirectoryThatEverybodyMayWrite(t *testing.T) {
	dir := t.TempDir()
	for mode, code := range map[os.FileMode]int{0o777: 78, 0o757: 78, 0o2770: 0} {
		require.NoError(t, os.Chmod(dir, mode))
		report := doctor(t, code, newDirDoctor(t, dir))
		if code != 0 {
			report.finds("directory", "warning", "every user of this machine may write in "+dir, "chmod o-w")
		}
	}
}

// The page shows an excerpt of what the doctor says of a versioned bucket.
func TestDoctorOnThePage(t *testing.T) {
	b := newBucket(t)
	_, err := b.server.Client().PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: &b.name,
		VersioningConfiguration: &types.VersioningConfiguration{
			Status: types.BucketVersioningStatusEnabled,
		},
	})
	require.NoError(t, err)
	script := `"$0" "$@" 2>&1; code=$?; echo '$ echo $?'; echo $code`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, program, "doctor", b.url("locks/report"))
	cmd.Env = b.environ()
	plain := func(text string) string {
		text = strings.NewReplacer(b.name, "my-bucket", b.server.Endpoint, "http://localhost:9000").Replace(text)
		return regexp.MustCompile(`[0-9.]+(µs|ms|s\b| requests)`).ReplaceAllString(text, "N")
	}
	_, shown, ok := strings.Cut(snippet(t, "console", "leasehold doctor"), "\n")
	require.True(t, ok)
	printed := slices.Collect(strings.Lines(plain(finish(t, cmd).out)))
	for line := range strings.Lines(plain(shown)) {
		at := slices.Index(printed, line)
		require.NotEqual(t, -1, at, "%q is not printed, or not in this place:\n%s", line, strings.Join(printed, ""))
		printed = printed[at+1:]
	}
	require.Empty(t, printed)
}

func TestDoctorPrintsThePolicy(t *testing.T) {
	var policy struct {
		Version   string
		Statement []struct {
			Sid, Effect, Principal, Action, Resource string
			Condition                                map[string]map[string]string
		}
	}
	r := offline(t, "doctor", "--policy", "s3://my-bucket/locks/report")
	r.succeeds(t)
	require.NoError(t, json.Unmarshal([]byte(r.out), &policy))
	require.Equal(t, "2012-10-17", policy.Version)
	require.Len(t, policy.Statement, 2)
	for i, action := range []string{"s3:PutObject", "s3:DeleteObject"} {
		s := policy.Statement[i]
		require.Equal(t, []string{"Deny", "*", action, "arn:aws:s3:::my-bucket/locks/*"},
			[]string{s.Effect, s.Principal, s.Action, s.Resource})
		require.Equal(t, "true", s.Condition["Null"]["s3:if-match"])
	}
	require.Equal(t, map[string]map[string]string{
		"Null": {"s3:if-match": "true", "s3:if-none-match": "true"}, "Bool": {"s3:ObjectCreationOperation": "true"},
	}, policy.Statement[0].Condition)
	offline(t, "doctor", "--policy", "gs://my-bucket/locks/report").complains(t, 64, "--policy is for s3 URLs")
}

// namesIn are the names of the files in a directory.
func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}
