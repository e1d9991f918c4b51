package store

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// benchEvent is what a sensor says of a file that `find` opens, about 150 bytes in binary.
func benchEvent() bodycam.Event {
	return bodycam.Event{
		Time: 1_790_000_000_000_000_000, Boot: 82_000_000_000, Sensor: "bpf", Window: bodycam.WindowAgent, Type: bodycam.TypeOpen, NR: 257, ABI: bodycam.ABIAMD64,
		Proc: bodycam.Proc{PID: 4242, Start: 81_000_000_000}, TID: 4242, Parent: bodycam.Proc{PID: 4200, Start: 80_000_000_000}, UID: 1000, GID: 1000, SID: 4200,
		Path: "/usr/share/doc/libpython3.12-stdlib/changelog", PathGiven: "libpython3.12-stdlib", Dev: 8<<32 | 1, Ino: 1311771, Access: bodycam.Read | bodycam.Dir, Flags: 0x98000, Count: 1,
	}
}

// BenchmarkWriterEvent is the whole path of a kernel event: encoding, the working copy, and, sealed, the batch with its
// salts, tree and cipher. All goroutines' work counts: compare user time and B/op, not only ns/op.
func BenchmarkWriterEvent(b *testing.B) {
	for _, sealed := range []bool{false, true} {
		name := "copy"
		if sealed {
			name = "copy+sealed"
		}
		b.Run(name, func(b *testing.B) {
			var seal *Sealing
			if sealed {
				id, err := age.GenerateHybridIdentity()
				if err != nil {
					b.Fatal(err)
				}
				seal = &Sealing{Recipients: []age.Recipient{id.Recipient()}, Recorder: "bench"}
				for _, alg := range []checkpoint.Algorithm{checkpoint.Ed25519, checkpoint.MLDSA44} {
					s, err := checkpoint.NewSigner(alg, make([]byte, 32))
					if err != nil {
						b.Fatal(err)
					}
					seal.Signers = append(seal.Signers, s)
				}
			}
			w, err := Create(filepath.Join(b.TempDir(), "r"), bodycam.Run{ID: "r", Started: time.Now()}, seal)
			if err != nil {
				b.Fatal(err)
			}
			e := benchEvent()
			began := cpuTime(b)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				e.Boot += 1000
				e.Time += 1000
				if err := w.Event(&e); err != nil {
					b.Fatal(err)
				}
				n++
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64((cpuTime(b)-began).Nanoseconds())/float64(n), "cpu-ns/op")
			b.ReportMetric(float64(len(e.AppendBinary(nil))), "event-B")
		})
	}
}

// cpuTime is what the process has used of the processors, all goroutines together.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReadEvents is one pass over a run's events, as every analysis makes it.
func BenchmarkReadEvents(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "r")
	w, err := Create(dir, bodycam.Run{ID: "r", Started: time.Now()}, nil)
	if err != nil {
		b.Fatal(err)
	}
	e := benchEvent()
	const n = 20_000
	for range n {
		if err := w.Event(&e); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Events(func(*bodycam.Event) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/n, "ns/event")
}
