package query

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
)

// maxFileText is how much of a file is searched, in bytes.
const maxFileText = 1 << 20

// access tells how a record's payload could be had.
type access uint8

const (
	opened access = iota
	closed        // no key for it
	erased        // its keys were destroyed, all or some of the batch's
)

// opener turns records into documents.
type opener struct {
	lr      *ledger.Reader
	batches *store.Batches
	procs   bodycam.Processes    // fills in what a sensor says once: a process's program, arguments and directory
	life    func(*bodycam.Event) // hears of events that change that; may be nil
	head    []byte               // scratch
	body    []byte
}

func newOpener(lr *ledger.Reader) *opener {
	return &opener{lr: lr, batches: store.NewBatches(lr)}
}

// each calls f with every document of a record: one for each event of a batch, else one. index is -1 where the record
// is no batch. Without body only the record's own document is made. f must not keep the document.
func (o *opener) each(rec *ledger.ReadRecord, body bool, f func(index int, d *Doc) error) (access, error) {
	if !body || rec.Type < ledger.TypeUser {
		return opened, f(-1, &Doc{Record: o.record(rec, -1)})
	}
	if rec.Type == store.RecordEvents && rec.Form.Batch() {
		return o.events(rec, f)
	}
	raw, err := o.payload(rec)
	if a := accessOf(err); a != opened {
		return a, f(-1, &Doc{Record: o.record(rec, -1)})
	}
	if err != nil {
		return opened, err
	}
	return opened, f(-1, &Doc{Record: o.record(rec, -1), Body: raw})
}

func accessOf(err error) access {
	switch {
	case errors.Is(err, ledger.ErrNoKey):
		return closed
	case errors.Is(err, ledger.ErrErased):
		return erased
	}
	return opened
}

func (o *opener) events(rec *ledger.ReadRecord, f func(int, *Doc) error) (access, error) {
	events, err := o.batches.Events(rec)
	if a := accessOf(err); a != opened {
		return a, f(-1, &Doc{Record: o.record(rec, -1)})
	}
	if err != nil {
		return opened, err
	}
	a := opened
	for i, b := range events {
		if b == nil {
			a = erased
			continue
		}
		var e bodycam.Event
		if err := bodycam.DecodeEvent(b, &e); err != nil {
			return a, fmt.Errorf("record %d, event %d: %w", rec.Seq, i, err)
		}
		if o.life != nil && changesProcess(&e) {
			o.life(&e)
		}
		o.procs.Observe(&e)
		o.body = e.AppendJSON(o.body[:0])
		if err := f(i, &Doc{Record: o.record(rec, i), Body: o.body}); err != nil {
			return a, err
		}
	}
	return a, nil
}

// changesProcess tells whether an event changes what is known of a process.
func changesProcess(e *bodycam.Event) bool {
	switch e.Type {
	case bodycam.TypeExec, bodycam.TypeFork, bodycam.TypeChdir:
		return !e.Failed()
	}
	return false
}

// payload is a record's payload as JSON.
func (o *opener) payload(rec *ledger.ReadRecord) ([]byte, error) {
	if rec.Type == store.RecordFile {
		return o.file(rec)
	}
	if rec.Form.Batch() {
		return nil, nil // a batch of another program's
	}
	b, err := o.lr.Payload(rec)
	if err != nil {
		return nil, err
	}
	doc, err := store.PayloadJSON(rec.Type, b, false)
	if err != nil {
		return nil, nil // of no form that we know: another program's
	}
	if rec.Type == store.RecordAction {
		return withTool(doc), nil
	}
	return doc, nil
}

// withTool adds the member tool, the name by which actions are mostly asked for.
func withTool(b []byte) []byte {
	var a struct {
		Intent struct {
			Tool string `json:"tool"`
		} `json:"intent"`
	}
	trimmed := space(b)
	if json.Unmarshal(b, &a) != nil || len(trimmed) < 2 || trimmed[0] != '{' {
		return b
	}
	tool, err := json.Marshal(a.Intent.Tool)
	if err != nil {
		return b
	}
	out := append([]byte(`{"tool":`), tool...)
	if rest := space(trimmed[1:]); len(rest) > 0 && rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, trimmed[1:]...)
}

func (o *opener) file(rec *ledger.ReadRecord) ([]byte, error) {
	w := &headed{}
	if err := o.lr.PayloadTo(rec, w); err != nil {
		return nil, err
	}
	doc, err := store.PayloadJSON(store.RecordFile, w.b, w.more)
	if err != nil {
		return nil, nil // no file of ours
	}
	return doc, nil
}

// headed keeps the beginning of what is written to it.
type headed struct {
	b    []byte
	more bool
}

func (h *headed) Write(p []byte) (int, error) {
	if room := maxFileText - len(h.b); len(p) > room {
		h.b = append(h.b, p[:room]...)
		h.more = true
	} else {
		h.b = append(h.b, p...)
	}
	return len(p), nil
}

// record is what the ledger's record says, as JSON.
func (o *opener) record(rec *ledger.ReadRecord, index int) []byte {
	b := append(o.head[:0], `{"seq":`...)
	b = strconv.AppendUint(b, rec.Seq, 10)
	if index >= 0 {
		b = append(b, `,"index":`...)
		b = strconv.AppendInt(b, int64(index), 10)
	}
	b = append(b, `,"type":"`...)
	b = append(b, store.TypeName(rec.Type)...)
	b = append(b, `","kind":`...)
	b = append(b, jsonString(rec.Kind)...)
	b = append(b, `,"epoch":`...)
	b = strconv.AppendUint(b, rec.Epoch, 10)
	b = append(b, `,"time":"`...)
	b = time.Unix(0, rec.Wall).UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","wall":`...)
	b = strconv.AppendInt(b, rec.Wall, 10)
	if rec.Group != 0 {
		b = append(b, `,"group":`...)
		b = strconv.AppendUint(b, rec.Group, 10)
	}
	b = append(b, `,"digest":"`...)
	b = hex.AppendEncode(b, rec.Digest[:])
	o.head = append(b, `"}`...)
	return o.head
}

func jsonString(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`)
	}
	return b
}
