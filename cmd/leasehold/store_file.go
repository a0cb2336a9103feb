package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/leasehold-go/leasehold"
)

// openFile opens the directory of a file URL.
func (l location) openFile() (*backend, error) {
	store := leasehold.NewFileStore(l.bucket)
	keys := func(ctx context.Context, prefix string) iter.Seq2[string, error] {
		if err := leasehold.Describe(store).Err; err != nil {
			return func(yield func(string, error) bool) { yield("", err) }
		}
		return l.fileKeys(ctx, prefix)
	}
	return &backend{&careful{Store: store, local: true}, keys, func() {}}, nil
}

// fileKeys are the keys of the objects in the directory, in order. The name of a file has the key, unless it is too long: then the file
// itself has it.
func (l location) fileKeys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names, err := os.ReadDir(l.bucket)
		if err != nil {
			yield("", err)
			return
		}
		for _, entry := range names {
			name, ok := strings.CutSuffix(entry.Name(), ".object")
			if !ok || ctx.Err() != nil {
				continue
			}
			key, err := keyOf(name), error(nil)
			if key == "" {
				key, err = keyIn(filepath.Join(l.bucket, entry.Name()))
			}
			switch {
			case errors.Is(err, fs.ErrNotExist): // it was removed since
				continue
			case err != nil:
				key = entry.Name()
			}
			if strings.HasPrefix(key, prefix) && !yield(key, err) {
				return
			}
		}
	}
}

// keyOf is the key of which a file has this name; "" if the name does not tell. A FileStore writes lower-case letters, digits, "-", "_"
// and "." as they are, and other bytes as "%" and two digits.
func keyOf(name string) string {
	const plain = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	key, err := url.PathUnescape(name)
	if err != nil || strings.Trim(name, plain+"%") != "" {
		return ""
	}
	var again strings.Builder
	for i := range len(key) {
		if strings.IndexByte(plain, key[i]) >= 0 {
			again.WriteByte(key[i])
		} else {
			fmt.Fprintf(&again, "%%%02x", key[i])
		}
	}
	if again.String() != name {
		return ""
	}
	return key
}

// maxHeader bounds the two lines before a body: a key has at most 1024 bytes, and JSON makes six of each at most.
const maxHeader = 8 << 10

// keyIn reads the key of the object in a file, which is in its second line.
func keyIn(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewReaderSize(f, maxHeader)
	var header struct{ Key string }
	if _, err = lines.ReadSlice('\n'); err == nil {
		var line []byte
		if line, err = lines.ReadSlice('\n'); err == nil {
			err = json.Unmarshal(line, &header)
		}
	}
	if err != nil || header.Key == "" {
		return "", errors.New("the file is not an object of leasehold (move it away)")
	}
	return header.Key, nil
}
