package payload

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// fill sets every field below v, so that one that the encoding forgets shows.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(-62_000_000_000+int64(*n), 5).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Slice:
		switch v.Interface().(type) {
		case json.RawMessage:
			v.SetBytes([]byte(`{"n":` + strings.Repeat("7", *n%9+1) + `}`))
			return
		case []byte:
			v.SetBytes([]byte{byte(*n), 0xff})
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, k := range []string{"zz", "b", "a"} {
			e := reflect.New(v.Type().Elem()).Elem()
			fill(e, n)
			v.SetMapIndex(reflect.ValueOf(k), e)
		}
	case reflect.String:
		v.SetString("text " + strings.Repeat("é", *n%5))
	case reflect.Int, reflect.Int32, reflect.Int64:
		if v.Type() == reflect.TypeFor[bodycam.Severity]() {
			v.SetInt(3)
			return
		}
		v.SetInt(int64(-1000 + 7**n))
	case reflect.Uint64:
		v.SetUint(uint64(*n) << 20)
	case reflect.Float64:
		v.SetFloat(0.25)
	default:
		panic(v.Kind())
	}
}

func filledAction() *bodycam.Action {
	a := &bodycam.Action{}
	n := 0
	fill(reflect.ValueOf(a).Elem(), &n)
	a.Code[0].SHA256 = strings.Repeat("0a", 32)
	a.Code[1].SHA256 = strings.Repeat("0A", 32) // no digest as we write them: stays a text
	a.Delegation.Log = strings.Repeat("ff", 32)
	return a
}

func filledFinding() *bodycam.Finding {
	f := &bodycam.Finding{}
	n := 0
	fill(reflect.ValueOf(f).Elem(), &n)
	return f
}

func filledRow() *bodycam.Row {
	r := &bodycam.Row{}
	n := 0
	fill(reflect.ValueOf(r).Elem(), &n)
	return r
}

func TestEveryFieldIsKept(t *testing.T) {
	a := filledAction()
	b := AppendAction(nil, a)
	if err := dcbor.Check(b); err != nil {
		t.Fatal(err)
	}
	if back, err := ParseAction(b); err != nil || !reflect.DeepEqual(a, back) {
		t.Errorf("%v\n%+v\n%+v", err, a, back)
	}
	r := filledRow()
	b = AppendRow(nil, r)
	if err := dcbor.Check(b); err != nil {
		t.Fatal(err)
	}
	if back, err := ParseRow(b); err != nil || !reflect.DeepEqual(r, back) {
		t.Errorf("%v\n%+v\n%+v", err, r, back)
	}
	f := filledFinding()
	b = AppendFinding(nil, f)
	if err := dcbor.Check(b); err != nil {
		t.Fatal(err)
	}
	if back, err := ParseFinding(b); err != nil || !reflect.DeepEqual(f, back) {
		t.Errorf("%v\n%+v\n%+v", err, f, back)
	}
}

// Every byte in every place: only lower-case digits make a digest.
func TestDigest(t *testing.T) {
	for at := range 64 {
		for c := range 256 {
			s := []byte(strings.Repeat("0123456789abcdef", 4))
			s[at] = byte(c)
			want, err := hex.DecodeString(string(s))
			is := err == nil && bytes.Equal(s, bytes.ToLower(s))
			b := appendDigest(nil, string(s))
			if is != (b[0] == 0x58) || is && !bytes.Equal(b[2:], want) {
				t.Fatalf("%q is %x", s, b)
			}
		}
	}
}

// What has nothing in it is an empty map, and what isn't there and what is empty stay apart where that means something.
func TestEmpty(t *testing.T) {
	if b := AppendAction(nil, &bodycam.Action{}); !bytes.Equal(b, []byte{0xa0}) {
		t.Errorf("an empty action is %x", b)
	}
	zero := 0
	a := &bodycam.Action{Approval: &bodycam.Approval{}, Effects: bodycam.Effects{Exit: &zero}}
	back, err := ParseAction(AppendAction(nil, a))
	if err != nil || back.Approval == nil || back.Effects.Exit == nil || back.Delegation != nil {
		t.Errorf("%+v, %v", back, err)
	}
}

// Payloads of runs that were recorded before are JSON.
func TestOlderForm(t *testing.T) {
	a, f := filledAction(), filledFinding()
	for _, v := range []any{a, f} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var back any
		if v == any(a) {
			back, err = ParseAction(b)
		} else {
			back, err = ParseFinding(b)
		}
		if err != nil || !reflect.DeepEqual(v, back) {
			t.Errorf("%v: %+v", err, back)
		}
	}
	old := []byte(`{"name":"agent/stdout","size":5,"sha256":"00"}` + "\nsaid\n")
	if h, n, err := ParseFileHead(old); err != nil || h.Name != "agent/stdout" || string(old[n:]) != "said\n" {
		t.Errorf("%+v, %d, %v", h, n, err)
	}
}

func TestRefused(t *testing.T) {
	good := AppendAction(nil, filledAction())
	for name, b := range map[string][]byte{
		"trailing":       append(bytes.Clone(good), 0),
		"cut":            good[:len(good)-1],
		"empty":          {},
		"no map":         {0x80},
		"unknown key":    {0xa1, 0x09, 0x01},
		"key twice":      {0xa2, 0x01, 0xa0, 0x01, 0xa0},
		"empty field":    {0xa1, 0x01, 0xa0},
		"odd ranges":     {0xa1, 0x05, 0xa1, 0x06, 0x81, 0x01},
		"three in a pin": {0xa1, 0x07, 0x81, 0x83, 0x61, 'a', 0x61, 'b', 0x61, 'c'},
	} {
		if a, err := ParseAction(b); !errors.Is(err, ErrForm) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if f, err := ParseFinding([]byte{0xa1, 0x12, 0x01}); !errors.Is(err, ErrForm) {
		t.Errorf("%+v, %v", f, err)
	}
}

// What a transcript claims may be no time that JSON can say.
func TestTimes(t *testing.T) {
	for text, there := range map[string]bool{"9999-12-31T23:59:59-01:00": false, "0000-01-01T00:00:00+01:00": false, "9999-12-31T23:59:59+01:00": true, "1969-01-01T00:00:00.5Z": true} {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseRow(AppendRow(nil, &bodycam.Row{Claimed: UTC(at)}))
		if err != nil || back.Claimed.IsZero() == there || there && !back.Claimed.Equal(at) {
			t.Errorf("%s: %+v, %v", text, back, err)
		}
		if _, err := json.Marshal(back); err != nil {
			t.Error(err)
		}
	}
}

// A head that comes in parts is asked for again until it is whole.
func TestFileHead(t *testing.T) {
	want := FileHead{"agent/out", 3, strings.Repeat("ab", 32)}
	b := append(AppendFileHead(nil, want), "abc"...)
	for cut := range len(b) - 3 {
		if _, _, err := ParseFileHead(b[:cut]); !errors.Is(err, ErrMore) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	h, n, err := ParseFileHead(b)
	if err != nil || h != want || string(b[n:]) != "abc" {
		t.Errorf("%+v, %d, %v", h, n, err)
	}
	if _, _, err := ParseFileHead([]byte{0xa3, 0x02, 0, 0, 0, 0, 0}); !errors.Is(err, ErrForm) {
		t.Errorf("a false head: %v", err)
	}
}

func TestBytesThatAreNoText(t *testing.T) {
	a := &bodycam.Action{Intent: bodycam.Intent{Tool: "a\xffb", Args: json.RawMessage("\"\xff\"")}}
	b := AppendAction(nil, a)
	if err := dcbor.Check(b); err != nil {
		t.Fatal(err)
	}
	if back, err := ParseAction(b); err != nil || back.Intent.Tool != "a\uFFFDb" {
		t.Errorf("%+v, %v", back, err)
	}
}

func FuzzPayload(f *testing.F) {
	f.Add(AppendAction(nil, filledAction()))
	f.Add(AppendFinding(nil, filledFinding()))
	f.Add(AppendRow(nil, filledRow()))
	f.Add(AppendFileHead(nil, FileHead{"a", 1, strings.Repeat("ab", 32)}))
	f.Add([]byte(`{"name":"a"}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := ParseAction(b); err == nil && !isJSON(b) && !bytes.Equal(AppendAction(nil, a), b) {
			t.Errorf("%x is read and written as %x", b, AppendAction(nil, a))
		}
		if v, err := ParseFinding(b); err == nil && !isJSON(b) && !bytes.Equal(AppendFinding(nil, v), b) {
			t.Errorf("%x is read and written as %x", b, AppendFinding(nil, v))
		}
		if v, err := ParseRow(b); err == nil && !isJSON(b) {
			if !bytes.Equal(AppendRow(nil, v), b) {
				t.Errorf("%x is read and written as %x", b, AppendRow(nil, v))
			}
			if _, err := json.Marshal(v); err != nil {
				t.Error(err)
			}
		}
		if h, n, err := ParseFileHead(b); err == nil && (n > len(b) || !isJSON(b) && !bytes.Equal(AppendFileHead(nil, h), b[:n])) {
			t.Errorf("%x: %d, %+v", b, n, h)
		}
	})
}

func BenchmarkAction(b *testing.B) {
	a := filledAction()
	a.Execution.Env, a.Effects.Observed = nil, nil
	var buf []byte
	b.Run("CBOR", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendAction(buf[:0], a)
		}
		b.ReportMetric(float64(len(buf)), "bytes")
	})
	b.Run("JSON", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			j, err := json.Marshal(a)
			if err != nil {
				b.Fatal(err)
			}
			n = len(j)
		}
		b.ReportMetric(float64(n), "bytes")
	})
}

func TestActionMakesNoGarbage(t *testing.T) {
	a := filledAction()
	a.Execution.Env, a.Effects.Observed = nil, nil // maps must be sorted
	buf := make([]byte, 0, 4<<10)
	if n := testing.AllocsPerRun(20, func() { AppendAction(buf, a) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
