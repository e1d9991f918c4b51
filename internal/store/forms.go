package store

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
)

// PayloadJSON is the JSON form of a record's payload: of an action, a finding or a row, of run.json, of a file (its head and,
// where it is UTF-8, its content as the member text). Nil where it has none. cut tells that b is only the beginning.
func PayloadJSON(t ledger.Type, b []byte, cut bool) ([]byte, error) {
	switch t {
	case RecordAction:
		return formOf(b, payload.ParseAction)
	case RecordFinding:
		return formOf(b, payload.ParseFinding)
	case RecordRow:
		return formOf(b, payload.ParseRow)
	case RecordFile:
		return fileJSON(b, cut)
	case RecordDelegation:
		return delegation.JSON(b)
	}
	if cut || !json.Valid(b) {
		return nil, nil
	}
	return b, nil
}

// formOf keeps a payload that is JSON as it is: it was recorded before the binary form.
func formOf[V any](b []byte, parse func([]byte) (*V, error)) ([]byte, error) {
	v, err := parse(b)
	if err != nil {
		return nil, err
	}
	if b[0] == '{' {
		return b, nil
	}
	out, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("writing a payload as JSON: %w", err)
	}
	return out, nil
}

func fileJSON(b []byte, cut bool) ([]byte, error) {
	head, n, err := payload.ParseFileHead(b)
	if err != nil {
		return nil, err
	}
	out := struct {
		payload.FileHead
		Text *string `json:"text,omitempty"`
	}{FileHead: head}
	if text := b[n:]; !cut && utf8.Valid(text) {
		s := string(text)
		out.Text = &s
	}
	return json.Marshal(out)
}
