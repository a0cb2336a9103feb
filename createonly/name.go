package createonly

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold"
)

// Version n of a key is the object key/.leasehold-versions/.leasehold-m, where m is highestName
// minus n in 16 digits. No lock can have such a name, because the last part of its key must not
// begin with ".leasehold-". The versions have a separate directory, because some servers list only
// whole directories. No key may contain that directory, because its objects would be in the list of
// another lock.
const (
	digits      = 16
	highestName = 9_999_999_999_999_999
	maxName     = 1024 // bytes, of S3
)

func prefix(key string) string { return key + "/.leasehold-versions/" }

func name(key string, n uint64) string {
	return fmt.Sprintf("%s.leasehold-%0*d", prefix(key), digits, highestName-n)
}

// KeyOf returns the key of which an object with this name is a version, and false for other
// objects. Use it in programs that list a bucket.
func KeyOf(object string) (key string, ok bool) {
	key, _, ok = strings.Cut(object, prefix(""))
	if !ok {
		return "", false
	}
	versions, err := parseNames(key, []string{object})
	return key, err == nil && len(versions) == 1
}

// parseNames returns the versions of the objects in a LIST of key, the highest first. It passes
// over folders, which some programs make as empty objects.
func parseNames(key string, names []string) ([]uint64, error) {
	versions, before := make([]uint64, 0, len(names)), prefix(key)+".leasehold-"
	for _, object := range names {
		if strings.HasSuffix(object, "/") {
			continue
		}
		number, ok := strings.CutPrefix(object, before)
		m, err := strconv.ParseUint(number, 10, 64)
		if !ok || len(number) != digits || err != nil || m >= highestName {
			return nil, fmt.Errorf("%w: the object %q is not a version of a lock (remove it, or use another key)",
				leasehold.ErrPermanent, object)
		}
		versions = append(versions, highestName-m)
	}
	slices.SortFunc(versions, func(a, b uint64) int { return cmp.Compare(b, a) })
	return slices.Compact(versions), nil // a LIST of several pages may show a name twice
}

// unordered reports whether names may be a part of a LIST that does not have the highest version.
func unordered(names []string) bool { return len(names) >= Listed && !slices.IsSorted(names) }

// formatETag returns the ETag of a version: its number, and hashes of its key and its body.
func formatETag(key string, n uint64, body []byte) string {
	return fmt.Sprintf("%d-%s-%s", n, shortHash([]byte(key)), shortHash(body))
}

func shortHash(data []byte) string {
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%x", sum[:8])
}

// parseETag returns the number of the version that an ETag names. The hash of the key refuses the
// ETags of other keys and stores.
func parseETag(key, etag string) (n uint64, err error) {
	if etag == "" {
		return 0, fmt.Errorf("writing %q: %w: the ETag is empty", key, leasehold.ErrPermanent)
	}
	number, rest, _ := strings.Cut(etag, "-")
	n, err = strconv.ParseUint(number, 10, 64)
	if err != nil || n == 0 || n >= highestName || number != strconv.FormatUint(n, 10) ||
		!strings.HasPrefix(rest, shortHash([]byte(key))+"-") {
		return 0, fmt.Errorf("writing %q: %w: %.80q is not the ETag of a version of this key", key,
			leasehold.ErrPreconditionFailed, etag)
	}
	return n, nil
}
