package leaderhttp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
)

const (
	// mark is the header of a forwarded request. It names the term whose leader must answer, so a
	// process that does not lead that term refuses the request, and does not forward it again. In
	// an answer it says that the request was refused.
	mark    = "Leasehold-Forwarded"
	refused = "refused"

	maxOver = 10 * time.Second // for the answer of a leader whose term was seen to end
)

// Forward returns a handler that runs next if this process leads, under a context that ends with
// the lease. Otherwise it sends the request to the leader, with its Host and body. That includes a
// stream in either direction or in both at once, and a WebSocket. (Over HTTP/1, an app that answers
// while it reads has to call [http.ResponseController.EnableFullDuplex], as without Forward.) The
// handler answers 503 itself in two cases, and the body says which:
//
//   - with Retry-After (3 s): the request was not carried out. For 2 s ([WithPatience]) there was
//     no leader, or it could not be reached. Or 1,000 requests already wait for a leader, or the
//     leader has refused a request whose body cannot be sent again.
//   - without Retry-After: the request was sent, and no answer came, because the leader has
//     crashed, or its term ended 10 s ago. It is not known whether the request was carried out.
//
// If a body is larger than an [http.MaxBytesReader] in front of Forward allows, the answer is 413.
//
// While there is no leader, this process reads the record after 20 ms, 40 ms, and so on up to 300
// ms, once for all requests. Its elector also reports the next leader.
//
// No request is carried out twice. A request that the leader has refused, or that could not be sent
// to it, goes to the next leader, and to three leaders at most. A leader whose term has only just
// begun may not know of its term yet, so it gets the request again. For such repeats, the handler
// keeps the part that was read of a body of up to 64 KiB with a Content-Length. A request with any
// other body is not sent again once the handler has begun to read the body.
//
// A forwarded request has the header Leasehold-Forwarded, which names the lock and the term,
// including the term's ID. Any process that does not lead that term answers 421 Misdirected
// Request, so a request is forwarded once at most. A client that sets the header gets the same
// answer, unless it can read the lock object, which has the ID. next does not see the header. Use
// [Forwarded] to detect a forwarded request.
//
// For next, the remote address of a forwarded request is the process that forwarded it. For every
// request, forwarded or not, the client's address is the last entry in X-Forwarded-For, as the
// first of your processes saw it. Earlier entries are not to be trusted, because the client may
// have sent them. Forward must see the path that the client sent, so do not put [http.StripPrefix]
// around it.
func (p *Peer) Forward(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.lead(w, r, next, p.send) })
}

// passing passes a request to the leader of a term, or answers it. again says that another leader
// may get the request: it was not answered, not carried out, and nothing of its body is lost.
type passing func(*term, http.ResponseWriter, *http.Request, *keptBody) (again bool)

// lead runs next if this process leads, or passes r to the leader. While there is no leader, it
// waits.
func (p *Peer) lead(w http.ResponseWriter, r *http.Request, next http.Handler, pass passing) {
	body := keep(r)
	_, own := p.known()
	if marks, ok := r.Header[mark]; ok {
		if own.leads() && len(marks) == 1 && marks[0] == p.name(own) {
			run(own, next, w, r, body) // and not sent on if the term ends just now
			return
		}
		w.Header().Set(mark, refused)
		http.Error(w, "not carried out: this process does not lead the term that "+mark+" names",
			http.StatusMisdirectedRequest)
		return
	}
	v := visit{Peer: p, w: w, r: r, body: body}
	defer v.leave()
	for {
		last, own, changed := p.state()
		switch {
		case own.leads():
			v.leave()
			run(own, next, w, r, body)
			return
		case last != own && v.may(last):
			if v.leave(); !pass(last, w, r, body) {
				return
			}
			v.failed(last)
		case !v.wait(last, changed):
			return
		}
	}
}

type (
	leaseKey     struct{}
	forwardedKey struct{}
)

// Forwarded reports whether a handler of [Peer.Forward] runs for a request that another process has
// forwarded. ctx is the context of the handler's request.
func Forwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }

// Lease returns the lease under which a handler of [Peer.Forward] runs. ctx is the context of the
// handler's request. For any other context Lease returns nil. Pass the lease's token to every
// resource to which the handler writes.
func Lease(ctx context.Context) *leasehold.Lease {
	lease, _ := ctx.Value(leaseKey{}).(*leasehold.Lease)
	return lease
}

// run runs next under the own term t.
func run(t *term, next http.Handler, w http.ResponseWriter, r *http.Request, body *keptBody) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(t.leading, func() { cancel(context.Cause(t.leading)) })()
	ctx = context.WithValue(ctx, leaseKey{}, t.lease)
	header := r.Header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	if _, forwarded := header[mark]; forwarded {
		header.Del(mark)
		ctx = context.WithValue(ctx, forwardedKey{}, true)
	} else if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil { // as SetXForwarded does
		before := strings.Join(header["X-Forwarded-For"], ", ")
		header.Set("X-Forwarded-For", strings.TrimPrefix(before+", "+host, ", "))
	}
	led := r.WithContext(ctx)
	led.Header = header
	if body.touched.Load() { // by a try to send it
		led.Body = body.reader()
	}
	// The server removes a form's temporary files, but looks for them only in its own request.
	defer func() { r.MultipartForm = led.MultipartForm }()
	next.ServeHTTP(w, led)
}

// later answers a request that was not carried out. The client may repeat it after 3 s, which is
// the default poll interval.
func later(w http.ResponseWriter, text string) {
	w.Header().Set("Retry-After", "3")
	http.Error(w, text, http.StatusServiceUnavailable)
}

// How far the last try to reach a leader has come. A transport that reports nothing leaves it at 0.
const (
	connects  = 1 + iota // to the leader, or to a proxy in front: nothing of the request is sent
	connected            // the request may have been sent
)

var errRefused = errors.New("refused by a process that does not lead that term")

// send is a passing: it sends r to the leader of t and passes its answer on.
func (p *Peer) send(t *term, w http.ResponseWriter, r *http.Request, kept *keptBody) (again bool) {
	if t.url == nil {
		later(w, "not carried out: there is no leader whom this process can reach; try again")
		return false
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(t.over, func() { time.AfterFunc(maxOver, cancel) })()
	body := kept.reader()
	// A transport tries again only what it has not sent, so the last try decides.
	var reached atomic.Int32
	in := r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { reached.Store(connects) },
		GotConn: func(httptrace.GotConnInfo) { reached.Store(connected) },
	}))
	in.Body = body
	failed := p.proxy(t, w, in)
	_ = body.Close()
	dial, ok := errors.AsType[*net.OpError](failed)
	unsent := errors.Is(failed, errRefused) || reached.Load() == connects || ok && dial.Op == "dial"
	tooLarge, isTooLarge := errors.AsType[*http.MaxBytesError](failed)
	switch {
	case failed == nil:
	case isTooLarge: // of a handler in front of this one; the leader has the beginning alone
		http.Error(w, tooLarge.Error(), http.StatusRequestEntityTooLarge)
	case !unsent:
		http.Error(w, "the leader has not answered: whether the request was carried out is not known",
			http.StatusServiceUnavailable)
	case kept.spoilt():
		later(w, "not carried out: the term of the leader has ended; try again")
	default:
		return true
	}
	return false
}

// proxy sends r to the leader of t and passes its answer on. If it returns an error, nothing was
// answered.
func (p *Peer) proxy(t *term, w http.ResponseWriter, r *http.Request) (failed error) {
	(&httputil.ReverseProxy{
		Transport: p.client.Transport,
		ErrorLog:  slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(t.url)
			pr.Out.URL.RawQuery, pr.Out.Host = pr.In.URL.RawQuery, pr.In.Host
			pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
			pr.SetXForwarded()
			for _, name := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := pr.In.Header[name]; ok { // of a proxy in front of this process
					pr.Out.Header[name] = v
				}
			}
			pr.Out.Header.Set(mark, p.name(t))
			if pr.Out.Body == nil && mayBeRepeated(pr.Out) {
				pr.Out.Body = pr.In.Body
			}
		},
		ModifyResponse: func(res *http.Response) error {
			if res.StatusCode == http.StatusMisdirectedRequest && res.Header.Get(mark) == refused {
				return errRefused
			}
			// So that an app which answers while it reads can do so over HTTP/1, too. HTTP/2 needs
			// no leave. Before an answer of this process, the server has to read the body.
			_ = http.NewResponseController(w).EnableFullDuplex()
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}).ServeHTTP(w, r)
	return failed
}

// mayBeRepeated reports whether http.Transport sends a request without a body again if a connection
// breaks, although it may have been carried out. It never does so with a body that it cannot
// rewind; but a body of unknown length of a POST, PUT or PATCH arrives in chunks.
func mayBeRepeated(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil
	}
	return true
}
