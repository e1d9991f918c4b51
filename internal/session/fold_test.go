package session

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
)

// Loops of IPC and of refused calls are few events, whose counts and amounts are exact, beside either sensor.
func TestFoldsIPC(t *testing.T) {
	needRoot(t)
	const script = `
import ctypes
call = ctypes.CDLL(None).syscall
q = call(68, 0, 0o1600)               # msgget
m = ctypes.create_string_buffer(b"\1" + bytes(7) + b"hello")
for i in range(3000):
    call(69, q, m, 5, 0)              # msgsnd
    call(70, q, m, 5, 0, 0)           # msgrcv
for i in range(1000):
    call(31, call(29, 0, 4096, 0o1600), 0, 0)  # shmget of something new, shmctl IPC_RMID
for i in range(2000):
    call(165, 0, 0, 0, 0, 0)          # mount
call(71, q, 0, 0)
`
	for _, sensor := range []string{"bpf", "ptrace"} {
		r := mustRun(t, options(t, []string{"/usr/bin/python3", "-c", script}, func(p *kind.Plan) { p.Sensors = []string{sensor} }))
		calls, told, bytes := map[string]uint64{}, map[string]int{}, uint64(0)
		for _, e := range events(t, r) {
			if name := e.Syscall(); e.Type == bodycam.TypeIPC || name == "mount" {
				calls[name] += e.N()
				told[name]++
				if e.Type == bodycam.TypeIPC {
					bytes += e.Bytes
				}
				if e.N() > 1 && (e.LastBoot < e.Boot || name == "shmget" && e.Detail != "shared memory key 0x0, 4096 bytes") {
					t.Errorf("%s: folded as %q, from %d to %d", sensor, e.Detail, e.Boot, e.LastBoot)
				}
			}
		}
		if want := map[string]uint64{"msgget": 1, "msgsnd": 3000, "msgrcv": 3000, "shmget": 1000, "mount": 2000}; fmt.Sprint(calls) != fmt.Sprint(want) || bytes != 2*3000*5 {
			t.Errorf("%s: the record has calls %v, want %v; %d bytes", sensor, calls, want, bytes)
		}
		for name, n := range told {
			if n > 40 {
				t.Errorf("%s: %s is %d events", sensor, name, n)
			}
		}
		var sum uint64
		for _, h := range r.Info.Sensors {
			sum += h.Total.Seen
		}
		if r.Info.Counts.Calls+r.Info.Counts.ByType["mark"] > sum {
			t.Errorf("%s: %d calls are in the record, and the sensors saw %d", sensor, r.Info.Counts.Calls, sum)
		}
	}
}

// However events are mixed, none is lost, none is told twice, the first of its like comes at once, and nothing stays untold beyond
// its process's end.
func TestFolder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var f folder
		in, out := map[string]uint64{}, map[string]uint64{}
		bytesIn, bytesOut, told := uint64(0), uint64(0), 0
		name := func(e *bodycam.Event) string {
			return fmt.Sprint(e.Type, e.Proc.PID, e.NR, e.Errno, unnumbered(e.Detail))
		}
		tell := func(e *bodycam.Event) error {
			out[name(e)] += e.N()
			bytesOut += e.Bytes
			told++
			return nil
		}
		boot := uint64(1)
		for range 2000 {
			boot += uint64(rnd.IntN(1_000_000))
			e := bodycam.Event{Type: []bodycam.Type{bodycam.TypeIPC, bodycam.TypeDenied, bodycam.TypeOpen, bodycam.TypeExit}[rnd.IntN(40)/13],
				Proc: bodycam.Proc{PID: int32(rnd.IntN(3)), Start: 1}, TID: int32(rnd.IntN(9)), NR: int32(rnd.IntN(2)), Errno: int32(rnd.IntN(2)), Boot: boot, Count: uint64(rnd.IntN(3))}
			if e.Type == bodycam.TypeIPC {
				e.Bytes, e.Detail = uint64(rnd.IntN(10)), fmt.Sprintf("messages key 0x0 is %d", rnd.IntN(1000))
			}
			in[name(&e)] += e.N()
			bytesIn += e.Bytes
			first := f.pending == nil
			taken, err := f.take(&e, tell)
			if err != nil || taken && (!folds(&e) || first) {
				t.Fatalf("%+v is taken %v, %v", e, taken, err)
			}
			if !taken {
				tell(&e)
			}
			if e.Type == bodycam.TypeExit {
				for _, r := range f.pending {
					if r.of == e.Proc {
						t.Fatalf("%+v has ended, and %+v is untold", e.Proc, r)
					}
				}
			}
		}
		if err := f.flush(tell, nil); err != nil || len(f.pending) != 0 {
			t.Fatal(err, f.pending)
		}
		if fmt.Sprint(in) != fmt.Sprint(out) || bytesIn != bytesOut {
			t.Fatalf("%d bytes in\n%v\n%d out\n%v", bytesIn, in, bytesOut, out)
		}
		if told > 1900 {
			t.Fatalf("%d events were told of 2000: hardly anything is folded", told)
		}
	}
	if d := unnumbered("shared memory key 0x5 is 12, 4096 bytes"); strings.Contains(d, "12") {
		t.Error(d)
	}
}
