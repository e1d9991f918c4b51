package bpf

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// kernelTypes makes the types of a kernel.
func kernelTypes(t *testing.T, types ...btf.Type) *btf.Spec {
	t.Helper()
	b, err := btf.NewBuilder(types, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, &btf.MarshalOptions{Order: binary.LittleEndian})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// A kernel that lacks what no object does without is named, with what it lacks, before anything is tried.
func TestTooOld(t *testing.T) {
	helpers := func(names ...string) btf.Type {
		e := &btf.Enum{Name: "bpf_func_id", Size: 4}
		for i, n := range names {
			e.Values = append(e.Values, btf.EnumValue{Name: n, Value: uint64(i)})
		}
		return e
	}
	request := &btf.Struct{Name: "io_cmd_data", Size: 8}
	if err := tooOld(kernelTypes(t, helpers("BPF_FUNC_find_vma", "BPF_FUNC_loop"), request)); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		types []btf.Type
		want  string
	}{
		{[]btf.Type{helpers("BPF_FUNC_find_vma"), request}, "Linux 6.1 or later: it lacks bpf_loop; the ptrace"},
		{[]btf.Type{helpers("BPF_FUNC_unspec")}, "lacks bpf_find_vma, bpf_loop, io_uring's requests as of 6.0;"},
		{nil, "too old"},
	} {
		if err := tooOld(kernelTypes(t, append(c.types, &btf.Int{Name: "int", Size: 4})...)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.types, err, c.want)
		}
	}
}

// Both objects have the same maps, programs and variables, since the same code loads them.
func TestObjectsAreAlike(t *testing.T) {
	fresh, err := loadSensor()
	if err != nil {
		t.Fatal(err)
	}
	old, err := loadSensorOld()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range fresh.Maps {
		if o := old.Maps[name]; o == nil || o.KeySize != m.KeySize || o.ValueSize != m.ValueSize || o.Type != m.Type || o.MaxEntries != m.MaxEntries {
			if !strings.HasPrefix(name, ".") {
				t.Errorf("map %s: %v, in the old object %v", name, m, o)
			}
		}
	}
	for name, p := range fresh.Programs {
		if o := old.Programs[name]; o == nil || o.SectionName != p.SectionName {
			t.Errorf("program %s: %v, in the old object %v", name, p, o)
		}
	}
	for name, v := range fresh.Variables {
		if o := old.Variables[name]; o == nil || o.Size() != v.Size() {
			t.Errorf("variable %s: %v, in the old object %v", name, v, o)
		}
	}
}
