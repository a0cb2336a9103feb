package filestore

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// A file is a line with the magic text and the checksum of all that follows, a line with the header
// as JSON, and the body.
const (
	magic     = "leasehold object 1 "
	maxHeader = 8 << 10 // both lines together: a key has at most 1024 bytes, which JSON can make six times as long
)

// header is what is kept of an object in addition to its body.
type header struct {
	Key  string `json:"key"`
	ETag string `json:"etag"`
	stamp
}

// stamp is when an object was written, which is not before Create or Replace was called. It does
// not come from a wall clock.
type stamp struct {
	// names a clock that is the same for all who read this name; "": none is known
	Clock   string        `json:"clock,omitempty"`
	Written time.Duration `json:"written,omitempty"` // what it showed
}

// age is how long ago s was, or 0 if it was of another clock.
func (s stamp) age() time.Duration {
	n := now()
	if n.Clock == "" || n.Clock != s.Clock {
		return 0
	}
	return storeapi.CredibleAge(n.Written - s.Written)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encode(h header, body []byte) []byte {
	head, err := json.Marshal(h)
	if err != nil {
		panic(err) // strings and a number
	}
	rest := append(append(head, '\n'), body...)
	return append(fmt.Appendf(nil, "%s%08x\n", magic, crc32.Checksum(rest, castagnoli)), rest...)
}

// decode undoes encode. It refuses what was cut off or changed, with as much of the body as there
// is. The body of what encode has not made is all of it.
func decode(data []byte) (h header, body []byte, err error) {
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	head, body, whole := bytes.Cut(rest, []byte("\n"))
	if body == nil {
		body = []byte{}
	}
	switch {
	case len(data) == 0:
		return h, body, errors.New("it is empty")
	case !bytes.HasPrefix(first, []byte(magic)):
		if !bytes.HasPrefix([]byte(magic), first) {
			body = data
		}
		return h, body, fmt.Errorf("it does not begin with %q", magic)
	case !whole, string(first[len(magic):]) != fmt.Sprintf("%08x", crc32.Checksum(rest, castagnoli)):
		return h, body, errors.New("its checksum is wrong, so it was cut off or changed")
	}
	if err := json.Unmarshal(head, &h); err != nil {
		return h, body, fmt.Errorf("its second line: %w", err)
	}
	if h.ETag == "" {
		return h, body, errors.New("it has no ETag")
	}
	return h, body, nil
}

// contentETag is the ETag of a file that decode does not accept, so that it can be replaced.
func contentETag(data []byte) string { return fmt.Sprintf(`"content-%x"`, sha256.Sum256(data)) }
