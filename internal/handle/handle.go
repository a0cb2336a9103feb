// Package handle has the handle of a term: its token and its secret. A process that has the handle
// signs with the key that the secret makes. The record has the hash of the public key.
package handle

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Handle names a term for a process that did not begin it.
type Handle struct {
	Token  uint64
	Secret string
}

// NewSecret returns random text with 130 bits of entropy.
func NewSecret() string { return rand.Text() }

// key is the key of the term of this lock whose handle has this secret. A copy of the object under
// another key is another lock, to which the handle does not belong. No key has a line feed, so no
// other key and secret are hashed alike.
func key(lock, secret string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(lock + "\n" + secret))
	return ed25519.NewKeyFromSeed(seed[:])
}

// TermID returns the ID of the term of this lock whose handle has this secret. The record contains
// the ID alone, so a reader of the record can check a handle or a signature, but cannot make one.
func TermID(lock, secret string) string {
	return idOf(key(lock, secret).Public().(ed25519.PublicKey))
}

func idOf(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:16])
}

// Sign signs text by the key of the term of this lock whose handle has this secret.
func Sign(lock, secret string, text []byte) (public, signature []byte) {
	private := key(lock, secret)
	return private.Public().(ed25519.PublicKey), ed25519.Sign(private, text)
}

// Signed reports whether the signature of text is by the key of the term with this ID.
func Signed(termID string, text, public, signature []byte) bool {
	return len(public) == ed25519.PublicKeySize && idOf(public) == termID && ed25519.Verify(public, text, signature)
}

// IsHash reports whether the ID of a term can be the hash of a secret. Foreign clients and older
// versions write other IDs.
func IsHash(id string) bool {
	sum, err := hex.DecodeString(id)
	return err == nil && len(sum) == 16 && id == strings.ToLower(id)
}

// String returns the handle as text, which contains the secret.
func (h Handle) String() string { return strconv.FormatUint(h.Token, 10) + "-" + h.Secret }

// Parse parses what String returns. Its error does not quote the text, which contains a
// secret.
func Parse(text string) (Handle, error) {
	number, secret, _ := strings.Cut(text, "-")
	token, err := strconv.ParseUint(number, 10, 64)
	h := Handle{token, secret}
	if strings.Contains(secret, ".") {
		return Handle{}, &storeapi.Error{
			Kind:  storeapi.ErrPermanent,
			Cause: errors.New("it is the handle of a member of a table, or was changed"),
			Hint:  "pass what Table.Detach returned to locktable.Resume",
		}
	}
	if err != nil || token == 0 || token > storeapi.MaxToken || h.String() != text || !isSecret(secret) {
		return Handle{}, &storeapi.Error{
			Kind:  storeapi.ErrPermanent,
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
