package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Kind is what an object is for.
type Kind string

// The kinds of objects of this module that users give a key. Their content shows the kind.
const (
	Lock  Kind = "a lock of package leasehold"
	Table Kind = "a table of package locktable"
	Mark  Kind = "a fencing mark of package fencehttp"
)

// KindOf returns the kind of an object, even of one that was cut off or changed since. It returns
// "" if nothing in the object says what it is.
func KindOf(body []byte) Kind {
	text := trim(body)
	members := membersOf(text)
	_, err := decode(body)
	switch {
	case err == nil, members == nil && lockBegins.Match(text), ofLock(members):
		return Lock
	case number.Match(members["table"]), members["held"] != nil && members["waiting"] != nil, tableBegins.Match(text):
		return Table
	case len(members) == 1 && number.Match(members["token"]):
		return Mark
	}
	return ""
}

// Misplaced returns an error that names the content of an object that is not of the kind that was
// wanted, Lock or Table. It returns nil if the object is of that kind, or was before it was
// damaged. An object without content may have been a lock.
func Misplaced(want Kind, body []byte) error {
	found := KindOf(body)
	if found == want || want == Lock && begins(trim(body)) {
		return nil
	}
	short, _, _ := strings.Cut(string(want), " of package ")
	err := &storeapi.Error{
		Kind: storeapi.ErrCorruptRecord, Hint: use[found], Cause: fmt.Errorf("it is %s, not %s", found, short),
	}
	if found == "" {
		err.Cause = fmt.Errorf("corrupt %s, or none at all: %s", strings.TrimPrefix(short, "a "), describe(body))
		err.Hint = overwrite[want]
	}
	return err
}

// Advised is the error of Decode for the object of a lock with this key, with what to do about it.
func Advised(key string, err error) error {
	if _, told := errors.AsType[*storeapi.Error](err); told {
		return err
	}
	hint := "inspect the object, then repair it with Lock.Break"
	if _, _, member := storeapi.MemberAt(key); member {
		hint = "inspect the object, then repair it with Table.Break of package locktable"
	}
	return fmt.Errorf("%w (%s)", err, hint)
}

var (
	use = map[Kind]string{
		Lock:  "use it by leasehold.NewLock, or use another key",
		Table: "use locks in it by locktable.New, or use another key",
		Mark:  "use another key",
	}
	overwrite = map[Kind]string{
		Lock: `use another key; or, if it was this lock, write {"expires_at":0,"token":N} over it with the store's ` +
			"own tools, where N is no lower than any token of the lock",
		Table: "use another key; or, if it was this table, delete it with the store's own tools while it is unused",
	}
)

const written = `{"expires_at":` // is how each record begins

var (
	number      = regexp.MustCompile(`^"?-?\d[-+.\deE]*"?$`) // an editor may have put it in quotes
	tableBegins = regexp.MustCompile(`^\{\s*"table"\s*:\s*\d`)
	// how a record begins that is not JSON any more
	lockBegins = regexp.MustCompile(`^\{\s*"expires_at"\s*:[^"]*($|"\w*"?\s*:?\s*$|"token"\s*:\s*-?\d)`)

	numbers = []string{"expires_at", "token", "ttl", "acquired_at", "renewed_at"}
	texts   = []string{"nonce", "object_id", "term_id"}
	rest    = []string{"holder", "metadata", "payload"}
)

// trim removes what an editor puts around a text, and zeros, which some file systems leave of a
// file after a crash.
func trim(body []byte) []byte { return bytes.Trim(body, "\ufeff \t\r\n\x00") }

// begins reports whether text is no more than the beginning of a record, or {}.
func begins(text []byte) bool {
	return strings.HasPrefix(written, string(text)) || string(text) == "{}"
}

// membersOf returns the members of a JSON object, or nil.
func membersOf(text []byte) (members map[string]json.RawMessage) {
	if json.Unmarshal(text, &members) != nil {
		return nil
	}
	return members
}

// ofLock reports whether a JSON object was a record before it was damaged. It has expires_at and a
// token, or expires_at and nothing that a record does not have, or three other members as they are
// in a record. Others have an expires_at too, but with a token that is a text.
func ofLock(members map[string]json.RawMessage) bool {
	kept, others := 0, 0
	for name, value := range members {
		switch {
		case slices.Contains(numbers, name) && number.Match(value), slices.Contains(texts, name) && value[0] == '"':
			kept++
		case name == "token", !slices.Contains(slices.Concat(numbers, texts, rest), name):
			others++
		}
	}
	return kept > 2 || members["expires_at"] != nil && (number.Match(members["token"]) || kept > 0 && others == 0)
}

// describe says what an object looks like. Of a JSON object it shows names alone, because values
// may be secrets.
func describe(body []byte) string {
	const shown = 5
	members := slices.Sorted(maps.Keys(membersOf(trim(body))))
	more := ""
	if len(members) > shown {
		members, more = members[:shown], " and more"
	}
	switch {
	case len(body) == 0:
		return "it is empty"
	case len(members) > 0:
		return fmt.Sprintf("a JSON object with the members %.40q%s", members, more)
	case utf8.Valid(body):
		return fmt.Sprintf("%d bytes of text that begin with %.16q", len(body), body)
	}
	return fmt.Sprintf("%d bytes that are not text and begin with %.16q", len(body), body)
}
