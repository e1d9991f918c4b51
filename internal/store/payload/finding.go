package payload

import (
	"encoding/json"
	"fmt"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// AppendFinding appends a finding's encoding to b.
func AppendFinding(b []byte, f *bodycam.Finding) []byte {
	e := encoder{b}
	m := e.begin()
	e.text(m, 1, f.Analysis)
	e.text(m, 2, f.Rule)
	e.text(m, 3, f.Class)
	e.int(m, 4, int64(f.Severity))
	e.text(m, 5, f.Title)
	e.text(m, 6, f.Detail)
	e.text(m, 7, f.Verdict)
	e.uints(m, 8, f.Events)
	e.uints(m, 9, f.Records)
	e.uint(m, 10, f.Count)
	if f.Row != nil {
		e.key(m, 11)
		e.b = dcbor.AppendInt(e.b, int64(*f.Row))
	}
	e.text(m, 12, f.RowText)
	if len(f.Tree) > 0 {
		e.key(m, 13)
		e.b = dcbor.AppendArray(e.b, len(f.Tree))
		for i := range f.Tree {
			p := &f.Tree[i]
			s := e.begin()
			e.int(s, 1, int64(p.PID))
			e.uint(s, 2, p.Start)
			e.text(s, 3, p.Exe)
			e.texts(s, 4, p.Argv)
		}
	}
	e.text(m, 14, f.Resource)
	e.text(m, 15, f.Naming)
	e.texts(m, 16, f.Tags)
	e.text(m, 17, f.Suppressed)
	return e.b
}

func (e *encoder) texts(m int, k byte, list []string) {
	if len(list) == 0 {
		return
	}
	e.key(m, k)
	e.b = dcbor.AppendArray(e.b, len(list))
	for _, s := range list {
		e.b = dcbor.AppendText(e.b, valid(s))
	}
}

func (d *decoder) texts() (out []string) {
	d.list(func() { out = append(out, d.Text()) })
	return out
}

// ParseFinding reads a finding's payload, also one that is JSON.
func ParseFinding(b []byte) (*bodycam.Finding, error) {
	f := &bodycam.Finding{}
	if isJSON(b) {
		if err := json.Unmarshal(b, f); err != nil {
			return nil, fmt.Errorf("%w: reading a finding: %w", ErrForm, err)
		}
		return f, nil
	}
	err := parse("a finding", b, func(d *decoder) { d.finding(f) }, func() []byte { return AppendFinding(nil, f) })
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *decoder) finding(f *bodycam.Finding) {
	text := map[uint64]*string{
		1: &f.Analysis, 2: &f.Rule, 3: &f.Class, 5: &f.Title, 6: &f.Detail, 7: &f.Verdict, 12: &f.RowText,
		14: &f.Resource, 15: &f.Naming, 17: &f.Suppressed,
	}
	d.fields(func(k uint64) bool {
		switch k {
		case 4:
			f.Severity = bodycam.Severity(d.Int())
		case 8:
			f.Events = d.uints()
		case 9:
			f.Records = d.uints()
		case 10:
			f.Count = d.Uint()
		case 11:
			n := int(d.Int())
			f.Row = &n
		case 13:
			d.list(func() { f.Tree = append(f.Tree, d.process()) })
		case 16:
			f.Tags = d.texts()
		default:
			s := text[k]
			if s == nil {
				return false
			}
			*s = d.Text()
		}
		return true
	})
}

func (d *decoder) process() (p bodycam.ProcessRef) {
	d.fields(func(k uint64) bool {
		switch k {
		case 1:
			p.PID = int32(d.Int())
		case 2:
			p.Start = d.Uint()
		case 3:
			p.Exe = d.Text()
		case 4:
			p.Argv = d.texts()
		default:
			return false
		}
		return true
	})
	return p
}
