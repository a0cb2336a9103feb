package locktable

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Break ends the term of a member by force, if the member is in exactly the term with this token.
// [Table.Inspect] shows the names and tokens of members. Break is an administrator's tool for a
// process that hangs and cannot be ended.
//
// The member notices at its next renewal, after a third of its TTL at most. The contexts of all its
// leases then end, with an error that matches [leasehold.ErrLost], and the member takes a new term
// once its functions have returned. Other members get its locks once they have seen the break for
// the member's TTL. By then its leases have expired in any case, so a lock still has one holder. If
// a function continues although its context has ended, only a resource that checks tokens stops its
// writes.
//
// A single request cannot be broken. Its holder reads the table only every few TTLs, and another
// member would hold the lock too until then.
//
// Break also repairs a member's record that was damaged. In that case pass a token that is no lower
// than any token that the member has had. Break does not change any other object. The error then
// matches [leasehold.ErrCorruptRecord] and says what the object is.
//
// The error matches [leasehold.ErrPreconditionFailed] if the member is in another term, and
// [leasehold.ErrNotExist] if the member has no object. If the term has ended already, Break returns
// nil. [Table.Run] need not be running. Any member may call Break, while others use the table.
func (t *Table) Break(ctx context.Context, member string, token uint64) error {
	err := t.group.Break(ctx, t.key+storeapi.MembersFolder+member, token)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return t.named(err)
}
