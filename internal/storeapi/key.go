package storeapi

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxToken is the highest fencing token: JSON readers of many languages count no further without loss.
const MaxToken = 1<<53 - 1

// MaxKey is the length of the longest key, in bytes.
const MaxKey = 1024

// BadKey says what is wrong with a key that stores would read differently from one another. It returns "" if nothing is.
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
	case strings.Contains(key, `\`):
		return "has a backslash, which some servers take for a slash"
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
