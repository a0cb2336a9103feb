package place

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
func (l Location) openFile() (*Store, error) {
	store := leasehold.NewFileStore(l.Bucket)
	page := func(ctx context.Context, prefix, _ string) ([]Object, string, error) {
		if err := leasehold.Describe(store).Err; err != nil {
			return nil, "", err
		}
		objects, err := l.files(prefix)
		return objects, "", err
	}
	b := NewStore(store, page, func() {})
	b.local, b.dir = true, l.Bucket
	return b, nil
}

// OnChange calls f after each change of the object of a key, until stop. It does so for a
// directory, where the system reports changes. A bucket reports none. f must not block for long.
func (b *Store) OnChange(key string, f func()) (stop func()) {
	if b.dir != "" {
		if stop, err := changes(b.dir, filestore.FileName(key), f); err == nil {
			return stop
		}
	}
	return func() {}
}

// files are the objects in the directory, in the order of their names. The name of a file has the
// key, unless it is too long: then the file itself has it.
func (l Location) files(prefix string) (objects []Object, err error) {
	entries, err := os.ReadDir(l.Bucket)
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".object") {
			continue
		}
		o := Object{Key: filestore.KeyOf(entry.Name())}
		if o.Key == "" {
			o.Key, o.Err = keyIn(l.Bucket, entry.Name())
		}
		switch {
		case errors.Is(o.Err, fs.ErrNotExist): // it was removed since
			continue
		case o.Err != nil:
			o.Key = entry.Name()
		}
		if strings.HasPrefix(o.Key, prefix) {
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
