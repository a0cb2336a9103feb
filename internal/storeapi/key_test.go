package storeapi

import (
	"encoding/xml"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Servers list keys in XML, so no key may have a character that XML cannot carry. Others may.
func TestEveryKeyCanBeListed(t *testing.T) {
	refused, allowed := 0, []rune(nil)
	for r := rune(0); r <= utf8.MaxRune; r++ {
		switch {
		case !utf8.ValidRune(r):
		case BadKey("a"+string(r)+"b") == "":
			allowed = append(allowed, r)
		default:
			refused++
		}
	}
	require.Equal(t, 65+1+2, refused, "control characters, the backslash, U+FFFE and U+FFFF")
	text, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"Contents"`
		Key     string
	}{Key: string(allowed)})
	require.NoError(t, err)
	var listed struct{ Key string }
	require.NoError(t, xml.Unmarshal(text, &listed))
	require.True(t, string(allowed) == listed.Key)
}
