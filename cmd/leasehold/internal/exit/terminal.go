package exit

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is text of one line with everything escaped that a terminal may obey, or that moves the
// text next to it: names come from the bucket, and other people may have written them.
func Printable(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if hidden(r) {
			escaped := strconv.QuoteToASCII(text[:size])
			b.WriteString(escaped[1 : len(escaped)-1])
		} else {
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// hidden reports whether a character cannot be seen: control characters, directions of writing,
// line ends, and bytes that are not UTF-8.
func hidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
