package locktable

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Break ends the term of a member by force, if it is in exactly the term with this token.
// [Table.Inspect] shows the names and tokens of members. It is an administrator's tool, for a
// process that hangs and that nobody can end.
//
// The member notices at its next renewal, after a third of its TTL at most. The contexts of all its
// leases end then, with an error that matches [leasehold.ErrLost], and it takes a new term once its
// functions have returned. Others get its locks when they have seen the break for the member's TTL.
// By then its leases have run out in any case, so a lock still has one holder. A function that goes
// on although its context has ended is stopped by nothing but the token.
//
// A single request cannot be broken. Its holder reads the table only every few TTLs, and meanwhile
// another would hold the lock too.
//
// Break also repairs a member's record that was damaged. Pass a token then that is no lower than
// any that the member has had. Another object is left alone, and the error, which matches
// [leasehold.ErrCorruptRecord], says what it is.
//
// The error matches [leasehold.ErrPreconditionFailed] if the member is in another term, and
// [leasehold.ErrNotExist] if it has no object. A term that is over is no error. Run need not be
// running. Break may be called while others use the table, and by any of its members.
func (t *Table) Break(ctx context.Context, member string, token uint64) error {
	err := t.group.Break(ctx, t.key+storeapi.MembersFolder+member, token)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return t.named(err)
}
