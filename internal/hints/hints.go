// Package hints is what a session's record tells of the locks that were released under it: a running number and the hashes of the
// last keys. It says when to look at a lock and decides nothing.
package hints

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
)

// size is how many releases a record tells.
const size = 256

const format = 1 // the first byte

// Log is the last releases, the newest at the end. The zero value is empty. Log is not safe for concurrent use.
type Log struct {
	Number uint64 // of releases since the first session of the object
	recent []uint32
}

// Resume goes on with the log of an earlier term. If encoded is none, the number is one that no reader expects.
func (l *Log) Resume(encoded []byte) {
	if l.Number > 0 {
		return
	}
	if before, ok := Decode(encoded); ok {
		*l = before
		return
	}
	l.Number = rand.Uint64()>>1 + 1
}

// Add adds a release.
func (l *Log) Add(key string) {
	l.Number++
	l.recent = append(l.recent, hash(key))
	if len(l.recent) > size {
		l.recent = append(l.recent[:0:0], l.recent[1:]...)
	}
}

// Encode returns l as it stands in the record.
func (l *Log) Encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{format}, l.Number)
	for _, h := range l.recent {
		b = binary.BigEndian.AppendUint32(b, h)
	}
	return b
}

// Decode reads what Encode has written.
func Decode(b []byte) (l Log, ok bool) {
	if len(b) < 9 || b[0] != format || (len(b)-9)%4 != 0 || len(b) > 9+4*size {
		return Log{}, false
	}
	l.Number = binary.BigEndian.Uint64(b[1:])
	for rest := b[9:]; len(rest) > 0; rest = rest[4:] {
		l.recent = append(l.recent, binary.BigEndian.Uint32(rest))
	}
	return l, true
}

// MayHave reports whether key may have been released after the release with this number: a hash of it is there, or l does not go
// back that far.
func (l *Log) MayHave(key string, after uint64) bool {
	missed := l.Number - after // wraps if after is not of this log
	if missed > uint64(len(l.recent)) {
		return true
	}
	h := hash(key)
	for _, r := range l.recent[uint64(len(l.recent))-missed:] {
		if r == h {
			return true
		}
	}
	return false
}

// Oldest is the number before the first release that l tells.
func (l *Log) Oldest() uint64 { return l.Number - uint64(len(l.recent)) }

// Full reports whether l may have forgotten releases.
func (l *Log) Full() bool { return len(l.recent) == size }

// Gap reports whether l does not go back to the release with this number.
func (l *Log) Gap(after uint64) bool { return l.Number-after > uint64(len(l.recent)) }

func hash(key string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return h.Sum32()
}
