// Package exit has what leasehold says when it ends: the exit codes, the code and the advice for an
// error of a store or a lock, in words of the command, and what a terminal must not obey.
package exit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"google.golang.org/api/googleapi"

	"github.com/leasehold-go/leasehold"
)

// The exit codes. Those from 64 on are the ones of sysexits.h, where it has one that fits.
const (
	Usage      = 64
	Store      = 69
	Bug        = 70
	Output     = 74
	Held       = 75
	Permission = 77
	Config     = 78
	Lost       = 79
	CannotExec = 126
	NotFound   = 127
	Signal     = 128 // plus the number of the signal
)

// Codes is the table of the help text, the man page and docs/cli.md.
var Codes = []struct{ Code, Meaning string }{
	{"0", "done"},
	{"the command's", "`run` passes on the exit code of its command"},
	{"64", "wrong arguments: an unknown command or flag, a malformed URL or handle, another token than the lock's"},
	{"69", "the store cannot be reached, does not answer, or has no room"},
	{"70", "a bug, or the guard process was killed; the command is dead"},
	{"74", "the result could not be written; `acquire` has released the lock again"},
	{
		"75",
		"another holder has the lock, even at the end of `--wait`; try again later. `status --exit-code`: a " +
			"lock is held or expired",
	},
	{"77", "the store denies access"},
	{
		"78",
		"wrong configuration: no such bucket, no region or credentials, a store that is not safe for locks, a lock " +
			"that is corrupt",
	},
	{
		"79",
		"the lease was lost; the command is dead, or was not started. `hold`: even after `--for`",
	},
	{"126", "the command cannot be executed; a lock taken for it was released again"},
	{"127", "there is no such command; as 126"},
	{"128+n", "ended by signal n: the command, or leasehold while it waited"},
}

// Error is an error with the exit code that it leads to.
type Error struct {
	code int
	err  error
}

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// Errorf is an [Error] of this exit code. The text says what to do, and may wrap errors with %w.
func Errorf(code int, format string, args ...any) error {
	return &Error{code, fmt.Errorf(format, args...)}
}

// Interrupted is the failure of a command that the signal has ended.
type Interrupted struct{ Signal syscall.Signal }

func (i Interrupted) Error() string { return "ended by signal " + i.Signal.String() }

// GaveUp is the end of --wait.
type GaveUp struct {
	After time.Duration
	Err   error // what has prevented the acquisition
}

func (g *GaveUp) Error() string { return g.after() + g.Err.Error() }
func (g *GaveUp) Unwrap() error { return g.Err }

func (g *GaveUp) after() string { return fmt.Sprintf("gave up after %v (--wait): ", g.After) }

// Code is the exit code for err: the code of an Error, or the one that fits the error of a store or
// a lock. It is 0 for nil.
func Code(err error) int {
	var failed *Error
	var signal Interrupted
	var unknownHost *net.DNSError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failed):
		return failed.code
	case errors.As(err, &signal):
		return Signal + int(signal.Signal)
	case errors.Is(err, leasehold.ErrLost), errors.Is(err, leasehold.ErrReleased):
		return Lost
	case errors.Is(err, leasehold.ErrUnsafeStore), errors.Is(err, leasehold.ErrCorruptRecord):
		return Config
	case refusedCredentials(err):
		return Config
	case Denied(err):
		return Permission
	case errors.As(err, &unknownHost):
		return Store
	case errors.Is(err, leasehold.ErrPermanent):
		return Config
	case errors.Is(err, leasehold.ErrHeld):
		return Held
	}
	return Store
}

// refusedCredentials reports whether it is not the store that has refused a request, but the
// service from which its credentials come: a machine's metadata service, say.
func refusedCredentials(err error) bool {
	op, ok := errors.AsType[*smithy.OperationError](err)
	if !ok || op.Err == nil || !strings.HasPrefix(op.Err.Error(), "get identity: ") {
		return false
	}
	reply, ok := errors.AsType[*smithyhttp.ResponseError](op.Err)
	if !ok {
		return false
	}
	status := reply.HTTPStatusCode()
	return status >= 400 && status < 500 && status != http.StatusTooManyRequests
}

// Denied reports whether the store, or the system for a file, denies access.
func Denied(err error) bool {
	var network *net.OpError
	if errors.As(err, &network) {
		return false // a firewall
	}
	if refusedCredentials(err) {
		return false
	}
	status := HTTPStatus(err)
	return status == http.StatusUnauthorized || status == http.StatusForbidden || errors.Is(err, fs.ErrPermission)
}

// HTTPStatus is the HTTP status of the answer that err is about, 0 if there was none.
func HTTPStatus(err error) int {
	if reply, ok := errors.AsType[*googleapi.Error](err); ok {
		return reply.Code
	}
	if reply, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return reply.StatusCode
	}
	if reply, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err); ok {
		return reply.HTTPStatusCode()
	}
	return 0
}

// ofTheCommand says in words of the command what the library says in words of its Go API.
var ofTheCommand = strings.NewReplacer(
	"with Lock.Break", `with "leasehold break"`,
	"with Table.Break of package locktable", `with "leasehold break"`,
	"Lock.Break repairs it", `"leasehold break" repairs it`,
	"a table of package locktable, not", "a table of locks, not",
	"use locks in it by locktable.New, or use another key",
	`"leasehold run" with --slots N, --shared or --lock NAME takes a lock in it`,
	"a lock of package leasehold, not a table", "a lock, not a table of locks",
	"use it by leasehold.NewLock, or use another key", "leave --lock, --shared and --slots out, or give another URL",
	"use another key; or, if it was this", "give another URL; or, if it was this",
	"(use another key)", "(give another URL)",
	"set UsePathStyle in the client's options", "add path-style=1 to the parameters of the URL",
	"set the client's region: AWS_REGION, or Region in its options;", "set AWS_REGION, or add ?region=NAME to the URL;",
	" (a path belongs into WithKeyPrefix)", "",
	"demand that each write names its encryption", "demand that each write names its encryption, as sse=AES256 or "+
		"sse=aws:kms in the URL does",
	"waiting: context deadline exceeded: ", "", // the store has answered: the reason of the wait follows
	"context deadline exceeded", "no answer in time",
	"holder must be", "--holder must be",
	"poll interval ", "--interval ",
	"uses its locks read, write and search permission", "uses its locks read, write and search permission; "+
		"if the last slash is a part of the lock's name, write %2F for it",
	"a bucket for locks between machines", "an s3, gs or azblob URL for locks between machines",
	"the bucket is in another region than the client's, or at another endpoint",
	"the bucket is in another region, or at another endpoint: add ?region=NAME or ?endpoint=URL to the URL",
	"check the client's endpoint and region, and the bucket's name",
	"check the endpoint and the region, and the bucket's name",
	"leaderhttp: ", "",
	": leasehold: ", ": ",
	`set "url" by leasehold.WithMetadata`, "start it with --listen",
	"give each process a separate URL", "give each process a separate --advertise",
	"the answer does not come from a Peer: serve one at /.leasehold/", "the answer does not come from leasehold: "+
		"check the leader's --advertise",
	"the client has no credentials", "there are no credentials",
	"pass all of what Lease.Handle returned", "pass what acquire has printed",
	"package createonly keeps locks with creates alone, or a header in their place",
	"if it has conditional creates, add createonly=1 to the parameters of the URL",
	" (remove WithServerClock)", "",
)

// plainNumber is the library's hint for a duration that a Go program gives as a number. The
// duration of a flag has a unit.
var plainNumber = regexp.MustCompile(` \(a plain number counts nanoseconds: write \d+\*time\.Second\)`)

// Reword is text of the library in words of the command.
func Reword(text string) string {
	return plainNumber.ReplaceAllString(ofTheCommand.Replace(text), "")
}

// flagOf are the flags of the options that messages begin with.
var flagOf = map[string]string{"TTL ": "--ttl ", "safety margin ": "--margin "}

// noise is what an SDK says of an answer that it has not got, or of what the answer has not.
var noise = regexp.MustCompile(`https? response error StatusCode: 0, RequestID: [^,]*, HostID: [^,]*, ` +
	`|\b(RequestID|HostID): , `)

// Quiet is text without what an SDK has put into it that says nothing.
func Quiet(text string) string { return noise.ReplaceAllString(text, "") }

// Message is err in one line that says what to do.
func Message(err error) string { return Quiet(Whole(err)) }

// Whole is [Message] with all that the SDK says.
func Whole(err error) string {
	text := Reword(explain(err))
	for option, flag := range flagOf {
		if rest, ok := strings.CutPrefix(text, option); ok {
			return flag + rest
		}
	}
	return text
}

// withoutQuery is the text of err without the query of its URL, which has the signature of a SAS.
func withoutQuery(err error) string {
	text := err.Error()
	if request, ok := errors.AsType[*url.Error](err); ok {
		bare, _, _ := strings.Cut(request.URL, "?")
		text = strings.ReplaceAll(text, request.URL, bare)
	}
	return text
}

func explain(err error) string {
	if gaveUp, ok := errors.AsType[*GaveUp](err); ok {
		text := strings.TrimPrefix(explain(gaveUp.Err), "lock is ")
		return gaveUp.after() + strings.Replace(text, "(try again later)", "(run it again, or raise --wait)", 1)
	}
	text := strings.TrimPrefix(strings.Join(strings.Fields(withoutQuery(err)), " "), "leasehold: ")
	var failed *Error
	switch {
	case errors.As(err, &failed), errors.Is(err, leasehold.ErrHeld) && strings.HasSuffix(text, ")"):
		return text
	case errors.Is(err, leasehold.ErrHeld):
		return text + " (try again later)"
	}
	var request *url.Error
	var connection *net.OpError
	if errors.As(err, &request) && errors.As(err, &connection) && !errors.Is(err, leasehold.ErrPermanent) {
		// The SDKs put a dozen words before and after what matters.
		host := request.URL
		if u, err := url.Parse(request.URL); err == nil {
			host = u.Scheme + "://" + u.Host
		}
		text = fmt.Sprintf("cannot reach the store at %s: %v", host, connection)
	}
	switch {
	case Code(err) != Store || strings.HasSuffix(text, ")"):
	case connection != nil || errors.Is(err, context.DeadlineExceeded):
		text += " (is the server running? check the endpoint and the network)"
	default:
		text += " (try again later)"
	}
	return cmp.Or(text, "unknown error")
}
