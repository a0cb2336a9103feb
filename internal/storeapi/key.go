package storeapi

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxToken is the highest fencing token: JSON readers of many languages count no further without
// loss.
const MaxToken = 1<<53 - 1

// MaxKey is the length of the longest key, in bytes.
const MaxKey = 1024

// OwnNames begins the last path segment of objects that the library writes next to the user's
// objects, as ".leasehold-etag".
const OwnNames = ".leasehold-"

// BadKey says what is wrong with a key that stores would read differently from one another, or that
// is the library's own. It returns "" if nothing is.
func BadKey(key string) string {
	switch {
	case key == "":
		return "is empty"
	case len(key) > MaxKey:
		return "is longer than 1024 bytes, the limit of S3"
	case !utf8.ValidString(key):
		return "is not valid UTF-8"
	case strings.ContainsFunc(key, unicode.IsControl):
		return "has a control character"
	// except control characters, these are all that XML 1.0 cannot carry
	case strings.ContainsAny(key, "\ufffe\uffff"):
		return "has the character U+FFFE or U+FFFF, which no list of keys can show"
	case strings.Contains(key, `\`):
		return "has a backslash, which some servers take for a slash"
	}
	if strings.HasPrefix(key[strings.LastIndex(key, "/")+1:], OwnNames) {
		return "has a name that leasehold itself writes"
	}
	for segment := range strings.SplitSeq(key, "/") {
		switch segment {
		case "":
			return "has an empty path segment"
		case ".", "..":
			return `has a path segment "." or ".."`
		}
	}
	return ""
}

// MembersFolder separates the key of a table of package locktable from the name of a member, in the
// key of that member's lock. The key of the table alone must not be a folder, because some servers
// refuse an object below another.
const MembersFolder = ".members/"

// MemberAt reports whether a key belongs to the lock of a table's member, and to which member.
func MemberAt(key string) (table, member string, ok bool) {
	i := strings.LastIndex(key, MembersFolder)
	if i <= 0 {
		return "", "", false
	}
	return key[:i], key[i+len(MembersFolder):], true
}
