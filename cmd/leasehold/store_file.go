package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/filestore"
)

// openFile opens the directory of a file URL.
func (l location) openFile() (*backend, error) {
	store := leasehold.NewFileStore(l.bucket)
	page := func(ctx context.Context, prefix, _ string) ([]listed, string, error) {
		if err := leasehold.Describe(store).Err; err != nil {
			return nil, "", err
		}
		objects, err := l.files(prefix)
		return objects, "", err
	}
	b := newBackend(store, page, func() {})
	b.local = true
	return b, nil
}

// files are the objects in the directory, in the order of their names. The name of a file has the
// key, unless it is too long: then the file
// itself has it.
func (l location) files(prefix string) (objects []listed, err error) {
	entries, err := os.ReadDir(l.bucket)
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".object") {
			continue
		}
		o := listed{key: filestore.KeyOf(entry.Name())}
		if o.key == "" {
			o.key, o.err = keyIn(l.bucket, entry.Name())
		}
		switch {
		case errors.Is(o.err, fs.ErrNotExist): // it was removed since
			continue
		case o.err != nil:
			o.key = entry.Name()
		}
		if strings.HasPrefix(o.key, prefix) {
			objects = append(objects, o)
		}
	}
	return objects, err
}

// maxHeader bounds the two lines before a body: a key has at most 1024 bytes, and JSON makes six of
// each at most.
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
