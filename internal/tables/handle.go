package tables

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Handle names the term of a member for a process that did not begin it, and has what the member
// holds.
type Handle struct {
	Term   handle.Handle // of the member's own lock
	Key    string        // of the table
	Member Member
	Table  *Table // the version that the term was handed over in, without other members
}

// handleMark parts the handle of the member's lock, which has a secret, from the table.
const handleMark = "."

// HandleOf returns the text of the handle of member n, which has the secret of the member's lock.
// It needs no escapes in a URL.
func (t *Table) HandleOf(n uint64, lock string) string {
	c := t.Clone()
	for other := range t.members {
		if other != n {
			c.Leave(other)
		}
	}
	return lock + handleMark + base64.RawURLEncoding.EncodeToString(c.Encode())
}

// ParseHandle parses what HandleOf returns. Its error does not quote the text.
func ParseHandle(text string) (h Handle, err error) {
	wrong := func(cause, hint string) (Handle, error) {
		return Handle{}, &storeapi.Error{Kind: leasehold.ErrPermanent, Cause: errors.New(cause), Hint: hint}
	}
	term, body, ok := strings.Cut(text, handleMark)
	h.Term, err = handle.Parse(term)
	if !ok && err == nil {
		return wrong("it is the handle of a lock, not of a member of a table", "use Lock.Resume of package leasehold")
	}
	decoded, bad := base64.RawURLEncoding.Strict().DecodeString(body)
	if err == nil && bad == nil {
		h.Table, bad = Decode(decoded)
	}
	if err == nil && bad == nil && len(h.Table.members) == 1 {
		for _, h.Member = range h.Table.members {
		}
		h.Key, ok = strings.CutSuffix(h.Member.Key, storeapi.MembersFolder+h.Member.Name)
		if ok && h.Member.Token == h.Term.Token && h.Member.TermID == handle.TermID(h.Member.Key, h.Term.Secret) {
			return h, nil
		}
	}
	return wrong("the handle was cut short or changed", "pass all of what Table.Detach returned")
}
