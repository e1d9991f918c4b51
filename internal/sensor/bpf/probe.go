package bpf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// Feature is something that the sensor needs, or could use, of the kernel.
type Feature struct {
	Name   string
	OK     bool
	Needed bool   // without it the sensor does not start
	Why    string // where it isn't OK: what the kernel said, and what to do
}

// Probe finds what this kernel and this user can do, by trying it: every program of the sensor is loaded, and for the back
// end to come an LSM program is attached for a moment. It takes about half a second and leaves nothing behind.
func Probe() []Feature {
	out := []Feature{probed("kernel types (BTF)", true, needBTF())}
	if !out[0].OK {
		return out
	}
	if err := permitted(); errors.Is(err, os.ErrPermission) {
		return append(out, Feature{Name: "loading BPF programs", Needed: true, Why: errPermission.Error()})
	}
	_ = raiseMemlock() // where it was needed and failed, loading says so
	types := btf.NewCache()
	spec, err := newObject(types, false)
	if err != nil {
		return append(out, probed("kernel new enough", true, err))
	}
	programs := tryPrograms(spec)
	if !spec.old && slices.ContainsFunc(programs, missing) { // loading goes on to the other object then
		if old, err := newObject(types, true); err == nil {
			if others := tryPrograms(old); !slices.ContainsFunc(others, missing) {
				programs = others
			}
		}
	}
	out = append(out, programs...)
	for _, f := range []Feature{probed("fentry", false, tryTracing()), probed("lsm", false, tryLSM())} {
		if !f.OK {
			f.Why = "not needed: the programs above do without"
		}
		out = append(out, f)
	}
	return out
}

// missing tells that the sensor doesn't start for want of a feature.
func missing(f Feature) bool { return f.Needed && !f.OK }

// tryPrograms loads each program of an object.
func tryPrograms(spec *object) []Feature {
	var names []string
	for n := range spec.Programs {
		names = append(names, n)
	}
	sort.Slice(names, func(i, j int) bool {
		return spec.Programs[names[i]].SectionName < spec.Programs[names[j]].SectionName
	})
	var out []Feature
	for _, n := range names {
		f := Feature{Name: spec.Programs[n].SectionName, Why: "not needed: Linux 6.7 brings it; before, the end of the call tells the address of a unix socket"}
		if spec.unix || !slices.Contains(unixPrograms, n) {
			f = probed(f.Name, true, loadOne(spec.CollectionSpec, n))
		}
		out = append(out, f)
	}
	return out
}

func probed(name string, needed bool, err error) Feature {
	f := Feature{Name: name, Needed: needed, OK: err == nil}
	if err != nil {
		f.Why, _, _ = strings.Cut(err.Error(), "\n") // a verifier's log goes on for pages
	}
	return f
}

// errPermission is the reason that Probe gives where the kernel let this user try nothing.
var errPermission = errors.New("this user is not permitted to load BPF programs: root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, are needed")

// permitted tells whether this user may make BPF maps at all. Where not, every further try fails in a way of its own,
// and speaks of anything but permission.
func permitted() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return err
	}
	return m.Close()
}

// loadOne loads one program with its maps.
func loadOne(spec *ebpf.CollectionSpec, name string) error {
	one := spec.Copy()
	for n := range one.Programs {
		if n != name {
			delete(one.Programs, n)
		}
	}
	one.Maps[sensorMapRing].MaxEntries = 1 << 16
	c, err := ebpf.NewCollection(one)
	if err != nil {
		return hint(err)
	}
	c.Close()
	return nil
}

// hint says what to do about an error from the kernel.
func hint(err error) error {
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w (a kernel of 6.1 or later is needed)", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w (root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, are needed)", err)
	}
	return err
}

// returnZero is a program that does nothing.
var returnZero = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}

func tryTracing() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bodycam_probe", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "security_file_open",
		License: "GPL", Instructions: returnZero,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return err
	}
	return l.Close()
}

func tryLSM() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bodycam_probe", Type: ebpf.LSM, AttachType: ebpf.AttachLSMMac, AttachTo: "file_open",
		License: "GPL", Instructions: returnZero,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachLSM(link.LSMOptions{Program: p})
	if err != nil {
		return fmt.Errorf("%w (is bpf among the LSMs that the kernel was started with?)", err)
	}
	return l.Close()
}
