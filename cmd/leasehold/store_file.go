package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/filestore"
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
			if !strings.HasSuffix(entry.Name(), ".object") || ctx.Err() != nil {
				continue
			}
			key, err := filestore.KeyOf(entry.Name()), error(nil)
			if key == "" {
				key, err = keyIn(l.bucket, entry.Name())
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

// maxHeader bounds the two lines before a body: a key has at most 1024 bytes, and JSON makes six of each at most.
const maxHeader = 8 << 10

// keyIn reads the key of the object in a file, which is in its second line.
func keyIn(dir, name string) (string, error) {
	f, err := os.Open(filepath.Join(dir, name))
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
	if err != nil || header.Key == "" || filestore.FileName(header.Key) != name {
		return "", errors.New("the file is not an object of leasehold (move it away)")
	}
	return header.Key, nil
}
