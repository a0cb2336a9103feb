package fenced

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

const (
	metaPad = metaPrefix + "padding" // bytes at the end of the body that are not the caller's
	padding = 8 * nonceSize
)

// white returns a nonce written in spaces and tabs.
func white(nonce string) []byte {
	bits, _ := hex.DecodeString(nonce)
	space := make([]byte, 0, padding)
	for _, b := range bits {
		for i := range 8 {
			space = append(space, " \t"[b>>i&1])
		}
	}
	return space
}

// pad returns body with the padding of w at its end, and adds the padding to size if that is known.
func (w *s3Write) pad(body io.Reader, size *int64) io.Reader {
	w.meta[metaPad] = strconv.Itoa(padding)
	if *size >= 0 {
		*size += padding
	}
	return io.MultiReader(body, bytes.NewReader(white(w.meta[metaNonce])))
}

// unpad returns the body of v without its padding, and sets v's size to the size of the body.
// current reports whether v is still the current version.
func unpad(v *Version, raw io.ReadCloser, doing string, current func() bool) (io.ReadCloser, error) {
	text, padded := v.Metadata[metaPad]
	if !padded {
		return raw, nil
	}
	nonce := v.Metadata[metaNonce]
	if text != strconv.Itoa(padding) || len(nonce) != 2*nonceSize || v.Size >= 0 && v.Size < padding {
		return nil, &storeapi.Error{
			Doing: doing, Kind: leasehold.ErrCorruptRecord,
			Cause: fmt.Errorf("metadata %s is %q, of a body of %d bytes", metaPad, text, v.Size),
		}
	}
	u := &unpadded{Closer: raw, size: v.Size, pad: white(nonce), doing: doing, current: current}
	u.buffered = bufio.NewReader(io.TeeReader(raw, &u.got))
	v.Size = max(v.Size-padding, -1)
	return u, nil
}

// unpadded is a body without its padding.
type unpadded struct {
	io.Closer
	buffered *bufio.Reader
	size     int64   // of the body with its padding; -1: unknown
	got      counter // bytes of it
	pad      []byte  // what must come last
	doing    string
	current  func() bool
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// Read holds back as many bytes as the padding has, until it knows whether they are the last.
func (u *unpadded) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	ahead, err := u.buffered.Peek(len(u.pad) + 1)
	switch {
	case err == nil:
		return u.buffered.Read(p[:min(len(p), u.buffered.Buffered()-len(u.pad))])
	case err != io.EOF, bytes.Equal(ahead, u.pad):
		return 0, err
	case int64(u.got) == u.size && u.current(): // another client's body under our metadata
		return 0, &storeapi.Error{
			Doing: u.doing,
			Kind:  leasehold.ErrCorruptRecord,
			Cause: errors.New("the body does not end with its padding"),
		}
	}
	// The body broke off unseen, or it belongs to the next version: VersityGW may send the old
	// headers and the new body.
	return 0, &storeapi.Error{
		Doing: u.doing,
		Cause: fmt.Errorf("the body does not end with its padding: %w", io.ErrUnexpectedEOF),
	}
}
