package main

import (
	"bufio"
	"context"
	"encoding/json"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/leasehold-go/leasehold"
)

// openFile opens the directory of a file URL.
func (l location) openFile() (*backend, error) {
	store := leasehold.NewFileStore(l.bucket)
	keys := func(ctx context.Context, prefix string) iter.Seq2[string, error] {
		if err := store.Validate(); err != nil {
			return func(yield func(string, error) bool) { yield("", err) }
		}
		return l.fileKeys(ctx, prefix)
	}
	return &backend{&careful{Store: store, local: true}, keys, func() {}}, nil
}

// fileKeys are the keys of the objects in the directory. The second line of each file has the key.
func (l location) fileKeys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names, err := os.ReadDir(l.bucket)
		if err != nil {
			yield("", err)
			return
		}
		for _, entry := range names {
			if !strings.HasSuffix(entry.Name(), ".object") || !entry.Type().IsRegular() {
				continue
			}
			key, err := keyOf(filepath.Join(l.bucket, entry.Name()))
			if err == nil && strings.HasPrefix(key, prefix) && !yield(key, nil) || ctx.Err() != nil {
				return
			}
		}
	}
}

// maxHeader bounds the two lines before a body: a key has at most 1024 bytes, and JSON makes six of each at most.
const maxHeader = 8 << 10

// keyOf reads the key of the object in a file. It fails for a file that was removed since, or that is none of leasehold's.
func keyOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewReaderSize(f, maxHeader)
	if _, err := lines.ReadSlice('\n'); err != nil {
		return "", err
	}
	var header struct{ Key string }
	line, err := lines.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &header)
	}
	return header.Key, err
}
