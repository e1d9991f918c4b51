package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// FileHead stands before the content of a file of the run directory.
type FileHead struct {
	Name   string `json:"name"` // relative to the run directory, slash-separated, escaped
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// maxHead bounds a head, in bytes.
const maxHead = 64 << 10

// ErrMore tells that a head isn't whole yet.
var ErrMore = errors.New("the head of a file isn't whole")

// AppendFileHead appends a head's encoding to b; the file's content follows it.
func AppendFileHead(b []byte, h FileHead) []byte {
	b = dcbor.AppendMap(b, 3)
	b = dcbor.AppendText(append(b, 1), valid(h.Name))
	b = dcbor.AppendInt(append(b, 2), h.Size)
	return appendDigest(append(b, 3), h.SHA256)
}

// ParseFileHead reads the head at the beginning of b and returns its length: the content stands behind it. Where b is
// too short it returns ErrMore. The older form is a line of JSON.
func ParseFileHead(b []byte) (h FileHead, n int, err error) {
	if len(b) == 0 {
		return h, 0, ErrMore
	}
	if isJSON(b) {
		line, _, whole := bytes.Cut(b[:min(len(b), maxHead)], []byte{'\n'})
		switch {
		case !whole && len(b) >= maxHead:
			return h, 0, fmt.Errorf("%w: the head of a file has no end", ErrForm)
		case !whole:
			return h, 0, ErrMore
		}
		if err := json.Unmarshal(line, &h); err != nil {
			return FileHead{}, 0, fmt.Errorf("%w: reading the head of a file: %w", ErrForm, err)
		}
		return h, len(line) + 1, nil
	}
	d := &decoder{Decoder: dcbor.NewDecoder(b[:min(len(b), maxHead)])}
	if d.Map() != 3 && d.Err() == nil {
		return h, 0, fmt.Errorf("%w: the head of a file has three members", ErrForm)
	}
	d.Key(1)
	h.Name = d.Text()
	d.Key(2)
	h.Size = d.Int()
	d.Key(3)
	h.SHA256 = d.digest()
	if err := d.Err(); err != nil {
		if d.Short() && len(b) < maxHead {
			return FileHead{}, 0, ErrMore
		}
		return FileHead{}, 0, fmt.Errorf("%w: reading the head of a file: %w", ErrForm, err)
	}
	if n = d.Offset(); string(AppendFileHead(nil, h)) != string(b[:n]) || h.Size < 0 {
		return FileHead{}, 0, fmt.Errorf("%w: reading the head of a file: encoding it again gives other bytes", ErrForm)
	}
	return h, n, nil
}
