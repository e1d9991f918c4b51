package bodycam

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"testing"
)

// full returns an event with every field set.
func full(t testing.TB) *Event {
	e := &Event{
		Seq: 7, Time: 1_790_000_000_123_456_789, Boot: 99_000_000_001, Type: TypeConnect, NR: 42, ABI: ABIAMD64, Sensor: "bpf",
		Window: WindowAgent, Proc: Proc{123, 456}, TID: 124, Parent: Proc{1, 2}, UID: 1000, GID: 1001, SID: 9,
		Exe: "/usr/bin/curl", Argv: []string{"curl", "", "\xff\n"}, CWD: "/w", Script: "/w/a.sh", ArgvLen: 9,
		ArgvHash: [32]byte{1}, Path: "/a,b", PathGiven: "../a,b", Path2: "/c", Path2Given: "c", Dev: 8<<32 | 1, Ino: 77,
		Access: Read | Create, Flags: 0x241, Bytes: 5, BytesRead: 6, BytesWritten: 7, Mapped: true, Count: 3, LastBoot: 100_000_000_000,
		Proto: ProtoTCP, Local: netip.MustParseAddrPort("10.0.0.2:4444"), Remote: netip.MustParseAddrPort("[2001:db8::1]:443"),
		UnixAddr: "@x", Host: "example.org", HostSource: HostSNI, Answers: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Cookie: 5, Child: Proc{8, 9}, Signal: 9, Status: 256, Errno: 13, Marks: MarkRaced | MarkDeleted, Detail: "<b>",
	}
	v := reflect.ValueOf(e).Elem()
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Fatalf("field %s is not set in the test's event", v.Type().Field(i).Name)
		}
	}
	return e
}

func TestBinaryRoundTrip(t *testing.T) {
	for _, e := range []*Event{full(t), {NR: -1}, {NR: 0, Type: TypeOpen}, {NR: -1, Argv: []string{}}, {NR: -1, Argv: []string{""}}} {
		b := e.AppendBinary(nil)
		var got Event
		if err := DecodeEvent(b, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(&got, e) {
			t.Errorf("read back\n%+v, want\n%+v", got, *e)
		}
		for n := range b {
			keep := got
			if err := DecodeEvent(b[:n], &got); !errors.Is(err, ErrEvent) {
				t.Errorf("cut to %d of %d bytes: %v", n, len(b), err)
			} else if !reflect.DeepEqual(keep, got) {
				t.Fatal("a failed read changed the event")
			}
		}
	}
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add(full(f).AppendBinary(nil))
	f.Add([]byte{0})
	f.Add([]byte{0x80, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Event
		if err := DecodeEvent(b, &e); err != nil {
			return
		}
		if again := e.AppendBinary(nil); !bytes.Equal(b, again) {
			t.Fatalf("two encodings of one event: %x and %x", b, again)
		}
		if !json.Valid(e.AppendJSON(nil)) {
			t.Fatalf("not JSON: %s", e.AppendJSON(nil))
		}
	})
}

func TestJSON(t *testing.T) {
	e := full(t)
	var m map[string]any
	if err := json.Unmarshal(e.AppendJSON(nil), &m); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"type": "connect", "syscall": "connect", "abi": "x86_64", "pid": 123.0, "exe": "/usr/bin/curl", "path": "/a,b", "path_given": "../a,b",
		"dev_ino": "8:1:77", "access": "read,create", "addr": "@x", "port": 443.0, "host": "example.org", "host_source": "sni", "errno": 13.0,
		"error": "EACCES", "count": 3.0, "window": "agent", "sensor": "bpf", "detail": "<b>",
	} {
		if m[key] != want {
			t.Errorf("%s is %v, want %v", key, m[key], want)
		}
	}
	if got := m["argv"].([]any)[2]; got != `\xff`+"\n" {
		t.Errorf("argv[2] is %q", got)
	}
}

func BenchmarkAppendBinary(b *testing.B) {
	open := &Event{
		Seq: 40_000, Time: 1_790_000_000_000_000_000, Boot: 82_000_000_000, Sensor: "bpf", Window: WindowAgent, Type: TypeOpen, NR: 257, ABI: ABIAMD64,
		Proc: Proc{4242, 81_000_000_000}, TID: 4242, Parent: Proc{4200, 80_000_000_000}, UID: 1000, GID: 1000, SID: 4200,
		Path: "/usr/share/doc/libpython3.12-stdlib/changelog", PathGiven: "changelog", Dev: 8<<32 | 1, Ino: 1311771, Access: Read | Dir, Flags: 0x98000, Count: 1,
	}
	for name, e := range map[string]*Event{"every field": full(b), "open": open} {
		b.Run(name, func(b *testing.B) {
			buf := e.AppendBinary(nil)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				buf = e.AppendBinary(buf[:0])
			}
		})
	}
}

func BenchmarkDecodeEvent(b *testing.B) {
	buf := full(b).AppendBinary(nil)
	var e Event
	b.ReportAllocs()
	for b.Loop() {
		if err := DecodeEvent(buf, &e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	e := full(b)
	buf := e.AppendJSON(nil)
	b.ReportAllocs()
	for b.Loop() {
		buf = e.AppendJSON(buf[:0])
	}
}

func TestProcesses(t *testing.T) {
	var p Processes
	sh, child := Proc{10, 1}, Proc{11, 2}
	for _, e := range []*Event{
		{Seq: 1, Type: TypeExec, NR: -1, Proc: sh, Exe: "/bin/sh", Argv: []string{"sh"}, CWD: "/w"},
		{Seq: 2, Type: TypeFork, NR: -1, Proc: sh, Child: child, Boot: 5},
		{Seq: 3, Type: TypeExec, NR: 59, ABI: ABIAMD64, Proc: child, Exe: "/nope", Errno: 2},
		{Seq: 4, Type: TypeChdir, NR: 80, ABI: ABIAMD64, Proc: child, Path: "/tmp"},
	} {
		p.Observe(e)
	}
	open := &Event{Seq: 5, Type: TypeOpen, NR: 2, Proc: child, Path: "/tmp/x"}
	p.Observe(open)
	if open.Exe != "/bin/sh" || open.CWD != "/tmp" || open.Parent != sh {
		t.Errorf("the child's open says exe %q, cwd %q, parent %v", open.Exe, open.CWD, open.Parent)
	}
	if tree := p.Tree(child); len(tree) != 2 || tree[0].PID != 10 || tree[1].PID != 11 {
		t.Errorf("tree is %v", tree)
	}
}
