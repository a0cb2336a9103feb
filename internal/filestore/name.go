package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

const (
	suffix  = ".object"
	maxName = 140 // bytes; the file systems of Linux and macOS allow 255, eCryptfs 143
)

// FileName is the name of a key's file. Different keys have different names, even if a file system
// ignores case or changes Unicode: the name has only lower-case ASCII letters, digits, "-", "_",
// "." and "%", which begins two digits in base 16. If that is too long, a hash after "~" replaces
// the rest of the key.
func FileName(key string) string {
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteString(hex.EncodeToString([]byte{c}))
		}
	}
	name := b.String()
	if len(name)+len(suffix) > maxName {
		sum := sha256.Sum256([]byte(key))
		hash := "~" + hex.EncodeToString(sum[:])
		name = name[:maxName-len(suffix)-len(hash)] + hash
	}
	return name + suffix
}

// KeyOf is the key whose file has this name. It is "" if the name does not show it: a hash replaces
// a part of the key, or no Dir has written the file.
func KeyOf(name string) string {
	key, err := url.PathUnescape(strings.TrimSuffix(name, suffix))
	if err != nil || FileName(key) != name {
		return ""
	}
	return key
}
