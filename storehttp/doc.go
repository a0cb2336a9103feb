// Package storehttp is for authors of a leasehold.Store or a fenced.Backend over HTTP. The stores
// of this project for S3, Cloud Storage and Azure are made with it.
//
// A lock waits out every error but those that match leasehold.ErrPermanent, so a store has to tell
// a wrong setting from a fault that passes. One reply or error alone does not tell that. An unknown
// host is a typing error at the first request, and a moment without DNS an hour later. A web page
// may come from a proxy that stands in for the server for a minute, or from an endpoint that has
// never been the store's; its status may be 200, or mean "absent" or "refused" in the store's own
// protocol. A [Server] remembers what tells them apart. A store has one, and tells it the outcome
// of each request:
//
//   - An answer that only the store's own server gives, be it a success or a refusal:
//     [Server.Heard]. Only such an answer may become leasehold.ErrNotExist, ErrPreconditionFailed
//     or ErrConflict. Look for a header that others do not send, and for a redirect that was
//     followed.
//   - An answer of anybody who is busy, such as a 503: [Server.Answer]. The error has no kind.
//   - Any other answer: [Server.Stranger] is the kind of its error.
//   - No answer, or a body that breaks off: [Server.Unanswered]. If [HintUnsent] knows the error,
//     [Server.Unsent] is its kind.
//
// While [Server.Silent] reports true, requests say "Connection: close". [Age] is for a store that
// trusts the server's clock. Each error is an [Error]: the kind, the cause, and what to do. The
// client below a store must not repeat requests: see leasehold.Store.
package storehttp
