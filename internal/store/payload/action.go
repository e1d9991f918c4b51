package payload

import (
	"encoding/json"
	"fmt"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// AppendAction appends an action's encoding to b.
func AppendAction(b []byte, a *bodycam.Action) []byte {
	e := encoder{b}
	m := e.begin()
	s := e.sub(m, 1)
	e.text(s, 1, a.Intent.Tool)
	e.json(s, 2, a.Intent.Args)
	e.end(m, s)
	if len(a.Policy) > 0 {
		e.key(m, 2)
		e.b = dcbor.AppendArray(e.b, len(a.Policy))
		for i := range a.Policy {
			p := &a.Policy[i]
			s := e.begin()
			e.text(s, 1, p.Name)
			e.text(s, 2, p.Version)
			e.text(s, 3, p.Verdict)
			e.text(s, 4, p.Reason)
		}
	}
	if p := a.Approval; p != nil {
		s := e.sub(m, 3) // there also where it is empty
		e.text(s, 1, p.Approver)
		e.text(s, 2, p.Prompt)
		e.text(s, 3, p.Decision)
		e.int(s, 4, p.Time)
		e.bytes(s, 5, p.Signature)
		e.text(s, 6, p.Key)
	}
	e.execution(m, &a.Execution)
	e.effects(m, &a.Effects)
	s = e.sub(m, 6)
	if len(a.Context.Sources) > 0 {
		e.key(s, 1)
		e.b = dcbor.AppendArray(e.b, len(a.Context.Sources))
		for _, c := range a.Context.Sources {
			e.b = appendDigest(dcbor.AppendText(dcbor.AppendArray(e.b, 2), valid(c.Name)), c.SHA256)
		}
	}
	e.uints(s, 2, a.Context.Upstream)
	e.text(s, 3, a.Context.Environment)
	e.end(m, s)
	if len(a.Code) > 0 {
		e.key(m, 7)
		e.b = dcbor.AppendArray(e.b, len(a.Code))
		for _, c := range a.Code {
			e.b = appendDigest(dcbor.AppendText(dcbor.AppendArray(e.b, 2), valid(c.Name)), c.SHA256)
		}
	}
	if d := a.Delegation; d != nil {
		s := e.sub(m, 8)
		e.text(s, 1, d.Requester)
		e.digest(s, 2, d.Parent)
		e.text(s, 3, d.Scope)
		e.digest(s, 4, d.Log)
		e.bytes(s, 5, d.Signature)
	}
	return e.b
}

func (e *encoder) execution(m int, x *bodycam.Execution) {
	s := e.sub(m, 4)
	e.text(s, 1, x.Command)
	e.json(s, 2, x.Params)
	e.int(s, 3, x.Started)
	if x.Ended != 0 {
		e.key(s, 4)
		e.b = dcbor.AppendInt(e.b, x.Ended-x.Started)
	}
	if len(x.Env) > 0 {
		e.key(s, 5)
		keys := sortedKeys(x.Env)
		e.b = dcbor.AppendMap(e.b, len(keys))
		for _, k := range keys {
			e.b = dcbor.AppendText(dcbor.AppendText(e.b, k), valid(x.Env[k]))
		}
	}
	e.end(m, s)
}

func (e *encoder) effects(m int, f *bodycam.Effects) {
	s := e.sub(m, 5)
	e.text(s, 1, f.Return)
	e.text(s, 2, f.Error)
	if f.Exit != nil {
		e.key(s, 3)
		e.b = dcbor.AppendInt(e.b, int64(*f.Exit))
	}
	e.json(s, 4, f.Diff)
	e.json(s, 5, f.External)
	if len(f.Events) > 0 {
		e.key(s, 6)
		e.b = dcbor.AppendArray(e.b, 2*len(f.Events))
		for _, r := range f.Events {
			e.b = dcbor.AppendUint(dcbor.AppendUint(e.b, r[0]), r[1])
		}
	}
	if len(f.Observed) > 0 {
		e.key(s, 7)
		keys := sortedKeys(f.Observed)
		e.b = dcbor.AppendMap(e.b, len(keys))
		for _, k := range keys {
			e.b = dcbor.AppendUint(dcbor.AppendText(e.b, k), f.Observed[k])
		}
	}
	if f.Confidence != 0 {
		e.key(s, 8)
		e.b = dcbor.AppendFloat(e.b, f.Confidence)
	}
	e.end(m, s)
}

// ParseAction reads an action's payload, also one that is JSON.
func ParseAction(b []byte) (*bodycam.Action, error) {
	a := &bodycam.Action{}
	if isJSON(b) {
		if err := json.Unmarshal(b, a); err != nil {
			return nil, fmt.Errorf("%w: reading an action: %w", ErrForm, err)
		}
		return a, nil
	}
	err := parse("an action", b, func(d *decoder) { d.action(a) }, func() []byte { return AppendAction(nil, a) })
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (d *decoder) action(a *bodycam.Action) {
	d.fields(func(k uint64) bool {
		switch k {
		case 1:
			d.intent(&a.Intent)
		case 2:
			d.list(func() { a.Policy = append(a.Policy, d.policy()) })
		case 3:
			a.Approval = &bodycam.Approval{}
			d.approval(a.Approval)
		case 4:
			d.execution(&a.Execution)
		case 5:
			d.effects(&a.Effects)
		case 6:
			d.context(&a.Context)
		case 7:
			d.list(func() { name, sum := d.pinned(); a.Code = append(a.Code, bodycam.CodeDigest{Name: name, SHA256: sum}) })
		case 8:
			a.Delegation = &bodycam.Delegation{}
			d.delegation(a.Delegation)
		default:
			return false
		}
		return true
	})
}

func (d *decoder) intent(v *bodycam.Intent) {
	d.fields(func(k uint64) bool {
		switch k {
		case 1:
			v.Tool = d.Text()
		case 2:
			v.Args = d.json()
		default:
			return false
		}
		return true
	})
}

func (d *decoder) policy() (v bodycam.Policy) {
	d.fields(func(k uint64) bool {
		switch k {
		case 1:
			v.Name = d.Text()
		case 2:
			v.Version = d.Text()
		case 3:
			v.Verdict = d.Text()
		case 4:
			v.Reason = d.Text()
		default:
			return false
		}
		return true
	})
	return v
}

func (d *decoder) approval(v *bodycam.Approval) {
	d.fields(func(k uint64) bool {
		switch k {
		case 1:
			v.Approver = d.Text()
		case 2:
			v.Prompt = d.Text()
		case 3:
			v.Decision = d.Text()
		case 4:
			v.Time = d.Int()
		case 5:
			v.Signature = d.bytes()
		case 6:
			v.Key = d.Text()
		default:
			return false
		}
		return true
	})
}

func (d *decoder) execution(v *bodycam.Execution) {
	d.fields(func(k uint64) bool {
		switch k {
		case 1:
			v.Command = d.Text()
		case 2:
			v.Params = d.json()
		case 3:
			v.Started = d.Int()
		case 4:
			v.Ended = v.Started + d.Int()
		case 5:
			v.Env = map[string]string{}
			for range d.Map() {
				k := d.Text()
				v.Env[k] = d.Text()
			}
		default:
			return false
		}
		return true
	})
}

func (d *decoder) effects(v *bodycam.Effects) {
	d.fields(func(k uint64) bool {
		switch k {
		case 1:
			v.Return = d.Text()
		case 2:
			v.Error = d.Text()
		case 3:
			n := int(d.Int())
			v.Exit = &n
		case 4:
			v.Diff = d.json()
		case 5:
			v.External = d.json()
		case 6:
			flat := d.uints()
			for i := 0; i+1 < len(flat); i += 2 {
				v.Events = append(v.Events, [2]uint64{flat[i], flat[i+1]})
			}
		case 7:
			v.Observed = map[string]uint64{}
			for range d.Map() {
				k := d.Text()
				v.Observed[k] = d.Uint()
			}
		case 8:
			v.Confidence = d.Float()
		default:
			return false
		}
		return true
	})
}

func (d *decoder) context(v *bodycam.Context) {
	d.fields(func(k uint64) bool {
		switch k {
		case 1:
			d.list(func() {
				name, sum := d.pinned()
				v.Sources = append(v.Sources, bodycam.Source{Name: name, SHA256: sum})
			})
		case 2:
			v.Upstream = d.uints()
		case 3:
			v.Environment = d.Text()
		default:
			return false
		}
		return true
	})
}

// pinned reads a name and its digest.
func (d *decoder) pinned() (name, sum string) {
	d.Array() // how many it has, encoding it again tells
	return d.Text(), d.digest()
}

func (d *decoder) delegation(v *bodycam.Delegation) {
	d.fields(func(k uint64) bool {
		switch k {
		case 1:
			v.Requester = d.Text()
		case 2:
			v.Parent = d.digest()
		case 3:
			v.Scope = d.Text()
		case 4:
			v.Log = d.digest()
		case 5:
			v.Signature = d.bytes()
		default:
			return false
		}
		return true
	})
}
