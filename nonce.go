package leasehold

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
)

// A nonce is the Lock's own prefix, a number, and a checksum of token and expiry. By the prefix a Lock recognises its own
// writes; by the checksum it tells them from the record of a foreign client that raised token or expiry and kept the members
// it does not know, the nonce among them.

// sign gives rec a fresh nonce, after which its token and expiry must not change.
func (l *Lock) sign(rec *Record) {
	number := l.writes.Add(1)
	rec.Nonce = l.noncePrefix + strconv.FormatUint(number, 36) + "." + l.checksum(number, *rec)
}

// wrote reports whether this very Lock value wrote rec.
func (l *Lock) wrote(rec Record) bool {
	rest, ok := strings.CutPrefix(rec.Nonce, l.noncePrefix)
	text, sum, _ := strings.Cut(rest, ".")
	number, err := strconv.ParseUint(text, 36, 64)
	return ok && err == nil && sum == l.checksum(number, rec)
}

// landed reports whether what stands in the store is this Lock's write sent.
func (l *Lock) landed(sent, stands Record) bool {
	return sent.Nonce == stands.Nonce && sent.Token == stands.Token && l.wrote(stands)
}

func (l *Lock) checksum(number uint64, rec Record) string {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], number)
	binary.LittleEndian.PutUint64(b[8:], rec.Token)
	binary.LittleEndian.PutUint64(b[16:], math.Float64bits(float64(epoch(rec.ExpiresAt))))
	return strconv.FormatUint(maphash.Bytes(l.seed, b[:]), 36)
}
