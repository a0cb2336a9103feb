// Package storehttp classifies the errors of requests, for authors of a leasehold.Store or a
// fenced.Backend over HTTP. The stores of this project for S3, Cloud Storage and Azure use it.
//
// A lock retries after every error except errors that match leasehold.ErrPermanent, so a store has
// to distinguish a wrong setting from a temporary fault. One reply or error alone does not show
// which it is. An unknown host is a typing error at the first request, and a moment without DNS an
// hour later. A web page may come from a proxy that answers for the server for a minute, or from an
// endpoint that has never been the store's. Its status may be 200, or mean "absent" or "refused" in
// the store's own protocol. A [Server] remembers what distinguishes these cases. A store has one
// Server, and reports the outcome of each request to it:
//
//   - An answer that only the store's own server gives, be it a success or a refusal:
//     [Server.Heard]. Only such an answer may become leasehold.ErrNotExist, ErrPreconditionFailed
//     or ErrConflict. Look for a header that others do not send, and for a redirect that was
//     followed.
//   - An answer of any busy server or proxy, such as a 503: [Server.Answer]. The error has no kind.
//   - Any other answer: [Server.Stranger] is the kind of its error.
//   - No answer, or a body that breaks off: [Server.Unanswered]. If [HintUnsent] knows the error,
//     [Server.Unsent] is its kind.
//
// While [Server.Silent] reports true, requests say "Connection: close". [Age] is for a store that
// trusts the server's clock. Each error is an [Error] with the kind, the cause, and a hint what to
// do. The client below a store must not repeat requests: see leasehold.Store.
package storehttp
