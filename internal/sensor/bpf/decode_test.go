package bpf

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"testing"
	"unsafe"

	"github.com/bodycam-dev/bodycam"
)

// raw makes a record as the kernel side does, with its ring head.
func raw[T any](r sensorRec, body T, tail ...string) []byte {
	text := strings.Join(tail, "")
	n := recSize + int(unsafe.Sizeof(body)) + len(text)
	b := make([]byte, ringHead, ringHead+(n+7)&^7)
	binary.LittleEndian.PutUint32(b, uint32(n))
	b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&r)), recSize)...)
	b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&body)), unsafe.Sizeof(body))...)
	b = append(b, text...)
	return b[:cap(b)]
}

func head(kind sensorKind, source sensorSource, seq uint64) sensorRec {
	return sensorRec{Kind: uint8(kind), Source: uint8(source), Seq: seq, Time: 1000 + seq, Start: 500, Tgid: 7, Tid: 7, Nr: -1}
}

// chunk decodes a run of records with their ring heads. Where a head says more than there is, the rest is one record.
func (d *decoder) chunk(b []byte) error {
	for len(b) >= ringHead {
		n := int(binary.LittleEndian.Uint32(b))
		b = b[ringHead:]
		n = min(n, len(b))
		if err := d.one(b[:n:n]); err != nil {
			return err
		}
		b = b[min((n+7)&^7, len(b)):]
	}
	return nil
}

func testDecoder(t testing.TB, max int, sink func(*bodycam.Event)) *decoder {
	t.Helper()
	tables, err := calls()
	if err != nil {
		t.Fatal(err)
	}
	return newDecoder(tables, 0, "/root", max, func(e *bodycam.Event) error { sink(e); return nil })
}

func openRecord(seq uint64, given, path string) []byte {
	r := head(sensorKindK_OPEN, sensorSourceSRC_OPEN, seq)
	r.Nr, r.Abi, r.Type = 257, uint8(bodycam.ABIAMD64), uint8(bodycam.TypeOpen)
	o := sensorOpened{Fmode: fmodeRead, Ino: 9, Dev: 8<<20 | 1, Imode: 0o100644, Walk: walkObject, Slot: 5, Given: uint16(len(given)), Path: uint16(len(path))}
	return raw(r, o, path, given)
}

func TestOpenAndFlush(t *testing.T) {
	var got []bodycam.Event
	d := testDecoder(t, 100, func(e *bodycam.Event) { got = append(got, *e) })
	b := openRecord(1, "f", "/d/f")
	fl := sensorFlush{Oid: 2 << 12, Opens: 41, FirstOpen: 2000, LastOpen: 3000, Closes: 2, FirstClose: 2500, LastClose: 3100, Rd: 10, Wr: 20, Slot: 5, Mapped: 1}
	b = append(b, raw(head(sensorKindK_FLUSH, sensorSourceSRC_CLOSE, 2), fl)...)
	if err := d.chunk(b); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Fatalf("%d events, want open, repeated open, close", len(got))
	}
	if e := got[0]; e.Path != "/d/f" || e.PathGiven != "f" || e.Access != bodycam.Read || e.Dev != 8<<32|1 || e.N() != 1 || e.Marks != 0 {
		t.Errorf("open: %+v", e)
	}
	if e := got[1]; e.Path != "/d/f" || e.Count != 41 || e.Boot != 2000 || e.LastBoot != 3000 || e.NR != 257 {
		t.Errorf("repeated open: %+v", e)
	}
	if e := got[2]; e.Type != bodycam.TypeClose || e.Path != "/d/f" || e.Count != 2 || e.BytesRead != 10 || e.BytesWritten != 20 || !e.Mapped {
		t.Errorf("close: %+v", e)
	}
	if c := d.count[sensorSourceSRC_OPEN]; c.Emitted != 2 || c.Folded != 40 {
		t.Errorf("open counters %+v", c)
	}
}

// What a sink keeps of an event stays as it was, though the events' memory is used again and their strings share theirs.
func TestStringsStay(t *testing.T) {
	records := found(3000)
	var paths, names, want []string
	d := testDecoder(t, 100, func(e *bodycam.Event) {
		paths, names = append(paths, e.Path), append(names, e.PathGiven)
		want = append(want, strings.Clone(e.Path))
	})
	if err := d.chunk(records); err != nil {
		t.Fatal(err)
	}
	clear(records)
	long := strings.Repeat("/long", 500)
	if err := d.chunk(append(opened(1, 1, 1, "other", long), opened(2, 1, 2, "", "")...)); err != nil {
		t.Fatal(err)
	}
	if n := len(paths); n != 3002 || paths[3000] != long || names[3000] != "other" || paths[3001] != "" || names[3001] != "" {
		t.Errorf("the last events: %q, %q", paths[3000:], names[3000:])
	}
	for i := range 3000 {
		if paths[i] != want[i] || !strings.HasSuffix(want[i], "/"+names[i]) {
			t.Fatalf("the path %q became %q, by the name %q", want[i], paths[i], names[i])
		}
	}
}

// A slot whose file is not known any more must not lend its name to another's numbers.
func TestFlushOfForgottenSlot(t *testing.T) {
	var got []bodycam.Event
	d := testDecoder(t, 100, func(e *bodycam.Event) { got = append(got, *e) })
	fl := sensorFlush{Oid: 99 << 12, Closes: 1, Rd: 1, Slot: 5, Ino: 77}
	if err := d.chunk(append(openRecord(1, "f", "/d/f"), raw(head(sensorKindK_FLUSH, sensorSourceSRC_CLOSE, 2), fl)...)); err != nil {
		t.Fatal(err)
	}
	if e := got[1]; e.Path != "" || e.Ino != 77 || e.Marks&bodycam.MarkTruncated == 0 {
		t.Errorf("close of an unknown file: %+v", e)
	}
}

// A thread that executes a program takes over its leader's id. What its cache held comes before, under its own.
func TestExecFromThread(t *testing.T) {
	var got []bodycam.Event
	d := testDecoder(t, 100, func(e *bodycam.Event) { got = append(got, *e) })
	b := openRecord(1, "f", "/d/f")
	b[ringHead+int(unsafe.Offsetof(sensorRec{}.Tid))] = 8
	flush := head(sensorKindK_FLUSH, sensorSourceSRC_CLOSE, 2)
	flush.Tid = 8
	b = append(b, raw(flush, sensorFlush{Oid: 2 << 12, Closes: 1, Rd: 1, Slot: 5})...)
	b = append(b, raw(head(sensorKindK_EXEC, sensorSourceSRC_EXEC, 3), sensorExecuted{OldTid: 8})...)
	if err := d.chunk(b); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[1].Path != "/d/f" || got[1].TID != 8 || len(d.tasks) != 0 {
		t.Errorf("%d tasks are kept; events %+v", len(d.tasks), got)
	}
}

func execRecords(argv string, pieces int, drop int) []byte {
	b := raw(head(sensorKindK_EXEC, sensorSourceSRC_EXEC, 1), sensorExecuted{Argv: uint64(len(argv)), OldTid: 7, Parent: 1, ParentStart: 2, Exe: 9, Cwd: 1, Given: 4}, "/bin/true", "/", "true")
	size := (len(argv) + pieces - 1) / pieces
	for i := range pieces {
		part := argv[i*size : min(len(argv), (i+1)*size)]
		if i == drop {
			continue
		}
		b = append(b, raw(head(sensorKindK_ARGV, sensorSourceSRC_PART, uint64(2+i)), sensorPiece{Offset: uint64(i * size)}, part)...)
	}
	return append(b, raw(head(sensorKindK_EXIT, sensorSourceSRC_EXIT, 99), sensorLife{})...)
}

func TestArgv(t *testing.T) {
	argv := "a\x00\x00" + strings.Repeat("x", 300) + "\x00"
	for _, c := range []struct {
		name      string
		max, drop int
		cut, hash bool
	}{{"whole", 1000, -1, false, false}, {"cut", 100, -1, true, true}, {"piece lost", 1000, 1, true, false}, {"cut and lost", 100, 2, true, false}} {
		t.Run(c.name, func(t *testing.T) {
			var got []bodycam.Event
			d := testDecoder(t, c.max, func(e *bodycam.Event) { got = append(got, *e) })
			if err := d.chunk(execRecords(argv, 4, c.drop)); err != nil {
				t.Fatal(err)
			}
			e := got[0]
			if e.Type != bodycam.TypeExec || e.ArgvLen != uint64(len(argv)) || e.Parent.PID != 1 {
				t.Fatalf("%+v", e)
			}
			if cut := e.Marks&bodycam.MarkArgvCut != 0; cut != c.cut {
				t.Errorf("cut %v, want %v", cut, c.cut)
			}
			if !c.cut && (len(e.Argv) != 3 || e.Argv[1] != "") {
				t.Errorf("argv %q", e.Argv)
			}
			if want := sha256.Sum256([]byte(argv)); (e.ArgvHash == want) != c.hash {
				t.Errorf("hash of the whole: %v, want %v", e.ArgvHash == want, c.hash)
			}
		})
	}
}

// An argv that is not too long comes with the exec itself; of more than is to be kept there is the hash.
func TestArgvInOneRecord(t *testing.T) {
	argv := "a\x00\x00" + strings.Repeat("x", 300) + "\x00"
	for _, max := range []int{1000, 100} {
		var got []bodycam.Event
		d := testDecoder(t, max, func(e *bodycam.Event) { got = append(got, *e) })
		x := sensorExecuted{Argv: uint64(len(argv)), OldTid: 7, Exe: 9, Cwd: 1, Given: 4, Script: 2, Interpreter: 1, Args: uint16(len(argv))}
		if err := d.chunk(raw(head(sensorKindK_EXEC, sensorSourceSRC_EXEC, 1), x, "/bin/true", "/", "true", "/s", argv)); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 {
			t.Fatalf("%d events", len(got))
		}
		e := got[0]
		if e.Exe != "/bin/true" || e.CWD != "/" || e.PathGiven != "true" || e.Script != "/s" || e.ArgvLen != uint64(len(argv)) {
			t.Errorf("%+v", e)
		}
		cut := max < len(argv)
		if (e.Marks&bodycam.MarkArgvCut != 0) != cut || !cut && (len(e.Argv) != 3 || e.Argv[2] != argv[3:303]) {
			t.Errorf("at most %d: argv %q, marks %v", max, e.Argv, e.Marks.Names())
		}
		if want := sha256.Sum256([]byte(argv)); (e.ArgvHash == want) != cut {
			t.Errorf("at most %d: hash of the whole: %v", max, e.ArgvHash == want)
		}
	}
}

// One record may tell of several slots.
func TestFlushOfSeveralSlots(t *testing.T) {
	var got []bodycam.Event
	d := testDecoder(t, 100, func(e *bodycam.Event) { got = append(got, *e) })
	b := openRecord(1, "f", "/d/f")
	two := [2]sensorFlush{{Oid: 2 << 12, Closes: 1, Rd: 3, Slot: 5}, {Oid: 9 << 12, Closes: 2, Wr: 4, Slot: 6, Ino: 12}}
	b = append(b, raw(head(sensorKindK_FLUSH, sensorSourceSRC_CLOSE, 2), two)...)
	b = append(b, raw(head(sensorKindK_FLUSH, sensorSourceSRC_CLOSE, 3), two[0], "x")...)
	if err := d.chunk(b); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[1].Path != "/d/f" || got[1].BytesRead != 3 || got[2].Ino != 12 || got[2].BytesWritten != 4 || got[2].Count != 2 {
		t.Errorf("events %+v", got)
	}
	if c := d.count[sensorSourceSRC_CLOSE]; c.Lost != 1 {
		t.Errorf("a record with half a slot more: %+v", c)
	}
}

func TestRootIsTakenOff(t *testing.T) {
	d := testDecoder(t, 100, func(*bodycam.Event) {})
	host, inside := record{sensorRec: &sensorRec{Flags: recHostNS}}, record{sensorRec: &sensorRec{}}
	for _, c := range []struct {
		r          record
		path, want string
	}{{host, "/root/etc", "/etc"}, {host, "/root", "/"}, {host, "/rootless", "/rootless"}, {inside, "/root/x", "/root/x"}} {
		if got := d.place(c.r, []byte(c.path)); got != c.want {
			t.Errorf("%q is shown as %q, want %q", c.path, got, c.want)
		}
	}
}

func TestMalformedIsCountedAsLost(t *testing.T) {
	d := testDecoder(t, 100, func(*bodycam.Event) { t.Error("an event from a malformed record") })
	r := head(sensorKindK_OPEN, sensorSourceSRC_OPEN, 1)
	if err := d.chunk(raw(r, uint64(0))); err != nil {
		t.Fatal(err)
	}
	if d.count[sensorSourceSRC_OPEN].Lost != 1 {
		t.Errorf("counters %+v", d.count)
	}
}

func TestCallTables(t *testing.T) {
	tables, err := calls()
	if err != nil {
		t.Fatal(err)
	}
	if c := tables.amd64[257]; c.Act != uint8(sensorActA_OPEN) || c.Type != uint8(bodycam.TypeOpen) || c.Dfd != 1 || c.Path != 2 {
		t.Errorf("openat is %+v", c)
	}
	if c := tables.amd64[520]; c.Act != uint8(sensorActA_EXEC) {
		t.Errorf("x32's execve is %+v", c)
	}
	if c := tables.i386[5]; c.Act != uint8(sensorActA_OPEN) {
		t.Errorf("i386's open is %+v", c)
	}
	for _, bad := range []string{"open", "nosuch\topen\topen\t-\t-\t-\t-\t-\t-\t-", "open\tnosuch\topen\t-\t-\t-\t-\t-\t-\t-", "open\topen\tnosuch\t-\t-\t-\t-\t-\t-\t-", "open\topen\topen\t7\t-\t-\t-\t-\t-\t-"} {
		if _, err := parseCalls(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(openRecord(1, "f", "/d/f"))
	f.Add(execRecords("a\x00b\x00", 2, -1))
	f.Add(raw(head(sensorKindK_EXEC, sensorSourceSRC_EXEC, 1), sensorExecuted{Argv: 2, Exe: 2, Cwd: 1, Args: 2}, "/p", "/", "p\x00"))
	n := sensorNet{Op: uint16(sensorNetopNET_OUT), Plen: 29, Family: afINet, Proto: 17}
	f.Add(raw(head(sensorKindK_DNS, sensorSourceSRC_PART, 1), n, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01"))
	f.Add(raw(head(sensorKindK_NET, sensorSourceSRC_NET, 1), sensorNet{Op: 1, Family: afUnix, Ulen: 3, Upath: [112]uint8{0, 'a', 'b'}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append(make([]byte, 0, len(b)+8), b...)
		d := testDecoder(t, 64, func(e *bodycam.Event) {
			if e.N() == 0 || e.Sensor != Name {
				t.Errorf("%+v", e)
			}
		})
		if err := d.chunk(b); err != nil {
			t.Fatal(err)
		}
		if err := d.finish(); err != nil {
			t.Fatal(err)
		}
	})
}
