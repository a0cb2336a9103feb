package leasehold

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// handle names a term for a process that did not begin it: see [Lease.Handle].
type handle struct {
	token  uint64
	secret string
}

// newSecret returns random text with 130 bits of entropy.
func newSecret() string { return rand.Text() }

// termID returns the ID of the term whose handle has this secret. The record contains the ID alone,
// so a reader of the record can check a handle, but cannot make one.
func termID(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:16])
}

// isHash reports whether the ID of a term can be the hash of a secret. Foreign clients and older
// versions write other IDs.
func isHash(id string) bool {
	sum, err := hex.DecodeString(id)
	return err == nil && len(sum) == 16 && id == strings.ToLower(id)
}

func (h handle) String() string { return strconv.FormatUint(h.token, 10) + "-" + h.secret }

// parseHandle parses what String returns. Its error does not quote the text, which contains a
// secret.
func parseHandle(text string) (handle, error) {
	number, secret, _ := strings.Cut(text, "-")
	token, err := strconv.ParseUint(number, 10, 64)
	h := handle{token, secret}
	if err != nil || token == 0 || token > MaxToken || h.String() != text || !isSecret(secret) {
		return handle{}, &storeapi.Error{
			Kind:  ErrPermanent,
			Cause: errors.New("the handle was cut short or changed"),
			Hint:  "pass all of what Lease.Handle returned",
		}
	}
	return h, nil
}

func isSecret(text string) bool {
	return len(text) == len(rand.Text()) && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < '2' || r > '7')
	})
}
