package query

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

func TestRecordFields(t *testing.T) {
	for _, text := range []string{`record.sequence == 3`, `type == "x" && record.tpye == "event"`, `1 == record."kinds"`} {
		var se *SyntaxError
		if _, err := Parse(text); !errors.As(err, &se) || se.Hint == "" {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, f := range recordFields {
		if _, err := Parse("record." + f + " == null"); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// TestEventFields: every member that an event's JSON can have is known.
func TestEventFields(t *testing.T) {
	e := bodycam.Event{Type: bodycam.TypeExit}
	fillAll(reflect.ValueOf(&e).Elem())
	var m map[string]any
	if err := json.Unmarshal(e.AppendJSON(nil), &m); err != nil {
		t.Fatal(err)
	}
	known := map[string]kindSet{}
	for _, f := range eventFields {
		name, s := spelt(f)
		known[name] = s
		if _, ok := m[name]; !ok {
			t.Errorf("no event has the field %q", name)
		}
	}
	for name, v := range m {
		if list, ok := v.([]any); ok {
			v = list[0]
		}
		b, err := json.Marshal(v)
		got, ok := scalar(b)
		if err != nil || !ok || known[name] != setOf(got.kind) {
			t.Errorf("an event's field %q is %s (%v), known as %b", name, b, err, known[name])
		}
	}
}

// fillAll gives every field a value that isn't zero.
func fillAll(v reflect.Value) {
	switch v.Interface().(type) {
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.MustParseAddrPort("192.0.2.1:7")))
		return
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.1")))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Type" {
				fillAll(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillAll(v.Index(0))
	case reflect.Array:
		fillAll(v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	default:
		v.SetUint(1)
	}
}

func TestVocabulary(t *testing.T) {
	for text, want := range map[string]bool{
		"tool": true, "intent.tool": true, "intent.args.command": true, "policy.verdict": true, "policy[0].verdict": true, "effects.observed.open": true,
		"process_tree.exe": true, "argv[0]": true, "text": true, "sha256": true, "request.scope": true, "approver": true, "task.name": true, "effects.diff.a.b": true,
		"mistyped.field": false, "polici.verdict": false, "policy.verdikt": false, "tool.name": false, "intent.argz.command": false,
	} {
		x, err := Parse(text + " == 1")
		if err != nil {
			t.Fatal(err)
		}
		x.root.operands(func(o *operand) {
			if _, ok := mayBe(o.path); ok != want {
				t.Errorf("%s: known %v", text, !want)
			}
		})
	}
	for name, want := range map[string]string{
		"polici.verdict": "policy.verdict", "verdict": "policy.verdict", "to0l": "tool", "pth": "path", "severty": "severity", "qqqqqqqqqqqq": "",
	} {
		if _, known := vocabulary()[name]; known {
			continue
		}
		if got := nearest(name); got != want {
			t.Errorf("%s: nearest %q, want %q", name, got, want)
		}
	}
}

func TestHas(t *testing.T) {
	doc := []byte(`{"a": {"b": [{"c": null}, {"d": [1, {"e": 2}]}]}, "f": []}`)
	for text, want := range map[string]bool{
		"a": true, "a.b": true, "a.b.c": true, "a.b.d": true, "a.b.d.e": true, "a.b[0].c": true, "a.b[1].c": false, "f": true, "f.x": false, "a.c": false, "g": false, "a.b.d[1].e": true,
	} {
		x, err := Parse(text + " == 1")
		if err != nil {
			t.Fatal(err)
		}
		x.root.operands(func(o *operand) {
			if has(doc, o.path) != want {
				t.Errorf("%s: there %v", text, !want)
			}
		})
	}
}
