package payload

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// AppendRow appends a row's encoding to b. Its times must be such as [UTC] gives.
func AppendRow(b []byte, r *bodycam.Row) []byte {
	e := encoder{b}
	m := e.begin()
	e.int(m, 1, int64(r.Index))
	e.text(m, 2, string(r.Kind))
	e.text(m, 3, r.CallID)
	e.text(m, 4, r.Tool)
	e.text(m, 5, r.Command)
	e.text(m, 6, r.Args)
	e.text(m, 7, r.Text)
	e.texts(m, 8, r.Files)
	e.text(m, 9, r.Output)
	e.flag(m, 10, r.Cut)
	if r.Exit != nil {
		e.key(m, 11)
		e.b = dcbor.AppendInt(e.b, int64(*r.Exit))
	}
	e.flag(m, 12, r.Failed)
	e.text(m, 13, r.Reason)
	e.time(m, 14, r.Arrived)
	e.time(m, 15, r.Ended)
	e.time(m, 16, r.Claimed)
	e.text(m, 17, r.Source)
	e.int(m, 18, int64(r.Line))
	return e.b
}

// UTC is a time as it is recorded: without a zone, and none where its year has no four digits, as JSON wants it. Such a
// year can only be a transcript's.
func UTC(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

func (e *encoder) flag(m int, k byte, v bool) {
	if v {
		e.key(m, k)
		e.b = dcbor.AppendBool(e.b, true)
	}
}

// time appends seconds since 1970 and nanoseconds: a transcript may claim a time that 64 bits of nanoseconds don't hold.
func (e *encoder) time(m int, k byte, t time.Time) {
	if !t.IsZero() {
		e.key(m, k)
		e.b = dcbor.AppendInt(dcbor.AppendInt(dcbor.AppendArray(e.b, 2), t.Unix()), int64(t.Nanosecond()))
	}
}

func (d *decoder) time() time.Time {
	d.Array() // how many it has, encoding it again tells
	return UTC(time.Unix(d.Int(), d.Int()))
}

// ParseRow reads a row's payload.
func ParseRow(b []byte) (*bodycam.Row, error) {
	r := &bodycam.Row{}
	if isJSON(b) {
		if err := json.Unmarshal(b, r); err != nil {
			return nil, fmt.Errorf("%w: reading a row: %w", ErrForm, err)
		}
		return r, nil
	}
	err := parse("a row", b, func(d *decoder) { d.row(r) }, func() []byte { return AppendRow(nil, r) })
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (d *decoder) row(r *bodycam.Row) {
	text := map[uint64]*string{
		3: &r.CallID, 4: &r.Tool, 5: &r.Command, 6: &r.Args, 7: &r.Text, 9: &r.Output, 13: &r.Reason, 17: &r.Source,
	}
	times := map[uint64]*time.Time{14: &r.Arrived, 15: &r.Ended, 16: &r.Claimed}
	d.fields(func(k uint64) bool {
		switch {
		case k == 1:
			r.Index = int(d.Int())
		case k == 2:
			r.Kind = bodycam.RowKind(d.Text())
		case k == 8:
			r.Files = d.texts()
		case k == 10:
			r.Cut = d.Bool()
		case k == 11:
			n := int(d.Int())
			r.Exit = &n
		case k == 12:
			r.Failed = d.Bool()
		case k == 18:
			r.Line = int(d.Int())
		case text[k] != nil:
			*text[k] = d.Text()
		case times[k] != nil:
			*times[k] = d.time()
		default:
			return false
		}
		return true
	})
}
