package bpf

import (
	"fmt"
	"path"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// opened makes the record of an open by openat, of a program that began a while ago and isn't root.
func opened(seq uint64, pid uint32, slot uint16, given, path string) []byte {
	r := head(sensorKindK_OPEN, sensorSourceSRC_OPEN, seq)
	r.Nr, r.Abi, r.Type = 257, uint8(bodycam.ABIAMD64), uint8(bodycam.TypeOpen)
	r.Time, r.Start, r.Tgid, r.Tid, r.Uid, r.Gid, r.Sid = 82_000_000_000+20_000*seq, uint64(pid)*1_000_000_000, pid, pid, 1000, 1000, 4200
	return raw(r, sensorOpened{Asked: 0x98000, Fmode: fmodeRead, Ino: 1_311_771 + seq, Dev: 8<<20 | 1, Imode: 0o40755, Walk: walkObject, Slot: slot,
		Given: uint16(len(given)), Path: uint16(len(path))}, path, given)
}

// found makes the records of a `find` that opens n directories, by the name in the folder above, as fts does.
func found(n int) []byte {
	words := []string{"share", "python3.12", "dist-packages", "node_modules", "lib", "x86_64-linux-gnu", "include", "doc", "perl-base", "__pycache__", "testdata", "internal"}
	var b []byte
	at := []string{"/usr/share/doc", "/usr/lib/python3/dist-packages"}
	for i := range n {
		name := fmt.Sprintf("%s-%d", words[i%len(words)], i)
		dir := path.Join(at[i%len(at)], name)
		if len(dir) < 90 && len(at) < 500 {
			at = append(at, dir)
		}
		b = append(b, opened(uint64(i+1), 4242, uint16(i)%cacheSlots, name, dir)...)
	}
	return b
}

// spawned makes the records of n programs that are forked, executed, load a library, and end.
func spawned(n int) []byte {
	var b []byte
	seq := uint64(0)
	for i := range n {
		pid := uint32(1000 + i%30000)
		rec := func(kind sensorKind, source sensorSource, tid uint32) sensorRec {
			seq++
			r := head(kind, source, seq)
			r.Time, r.Tgid, r.Tid, r.Start, r.Uid, r.Gid, r.Sid = 82_000_000_000+20_000*seq, tid, tid, uint64(tid)*1_000_000_000, 1000, 1000, 4200
			return r
		}
		open := func(slot uint16, p string) []byte {
			seq++
			return opened(seq, pid, slot, p, p)
		}
		b = append(b, raw(rec(sensorKindK_FORK, sensorSourceSRC_FORK, 7), sensorLife{Tgid: pid, Start: uint64(pid) * 1_000_000_000})...)
		b = append(b, raw(rec(sensorKindK_EXEC, sensorSourceSRC_EXEC, pid), sensorExecuted{Argv: 5, OldTid: int32(pid), Parent: 7, ParentStart: 7_000_000_000, Exe: 13, Cwd: 5, Given: 9, Args: 5}, "/usr/bin/true", "/work", "/bin/true", "true\x00")...)
		b = append(b, open(3, "/etc/ld.so.cache")...)
		b = append(b, open(4, "/lib/x86_64-linux-gnu/libc.so.6")...)
		b = append(b, raw(rec(sensorKindK_FLUSH, sensorSourceSRC_CLOSE, pid), sensorFlush{Oid: seq << 12, Closes: 1, Slot: 3, Mapped: 1, Mmaps: 1})...)
		b = append(b, raw(rec(sensorKindK_EXIT, sensorSourceSRC_EXIT, pid), sensorLife{})...)
	}
	return b
}

// The way of an event from the ring to its encoded form, of a sink that only encodes. The records are spread over as
// much memory as they are in the ring, so they come from outside of the processor's nearest caches.
func BenchmarkDecode(b *testing.B) {
	for name, records := range map[string][]byte{"find": found(56_000), "forkexec": spawned(7_000)} {
		b.Run(name, func(b *testing.B) {
			var buf []byte
			var events, size int
			d := testDecoder(b, 1<<18, func(e *bodycam.Event) {
				buf = e.AppendBinary(buf[:0])
				events++
				size += len(buf)
			})
			d.offset = 1_790_000_000_000_000_000
			b.ReportAllocs()
			for b.Loop() {
				if err := d.chunk(records); err != nil {
					b.Fatal(err)
				}
			}
			per := float64(b.N) / float64(events)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
			b.ReportMetric(float64(size)/float64(events), "encoded-B")
			b.ReportMetric(float64(len(records))*per, "record-B")
			b.ReportMetric(0, "ns/op")
		})
	}
}
