package bpf

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor/sensortest"
)

// opener is a shell loop: a process that opens files as fast as a shell can.
const opener = `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); : <"$1/f$((i % 200))"; done`

// flood runs eight openers at once in a directory of 200 files; it opens them 160,000 times in all.
func flood(t *testing.T) (cmd *exec.Cmd, dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(dir, "f"+strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd = exec.Command("/bin/sh", "-c", `for n in 1 2 3 4 5 6 7 8; do sh -c "$0" sh "$1" & done; wait`, opener, dir)
	return cmd, dir
}

// A sink that can't keep up pauses the target; nothing is lost, and everybody is running again afterwards.
func TestSlowSinkLosesNothing(t *testing.T) {
	cmd, dir := flood(t)
	var opens atomic.Uint64
	h := observed(t, Options{RingBytes: 1 << 20}, cmd, func(e *bodycam.Event) error {
		if e.Type == bodycam.TypeOpen && strings.HasPrefix(e.Path, dir+"/f") {
			if opens.Add(e.N())%20 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		return nil
	})
	complete(t, h)
	if opens.Load() != 160000 {
		t.Errorf("%d opens in the record, want 160000", opens.Load())
	}
	if h.Stopped == 0 {
		t.Error("the sink was slow and the ring small, but the target was never paused")
	}
	if !cmd.ProcessState.Success() {
		t.Errorf("the paused workload ended with %v", cmd.ProcessState)
	}
	t.Logf("paused %d times", h.Stopped)
}

// A sink that doesn't come back at all has the target paused too, though the reader waits for it.
func TestStuckSinkPausesTarget(t *testing.T) {
	needRoot(t)
	dir := newCgroup(t)
	goOn := make(chan struct{})
	var n uint64
	s := started(t, dir, Options{RingBytes: 1 << 20}, func(e *bodycam.Event) error {
		<-goOn
		n += e.N()
		return nil
	})
	cmd, _ := flood(t)
	inCgroup(t, cmd, dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for s.pause.pauses() == 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	close(goOn)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	untilEmpty(t, dir)
	h, err := s.Stop()
	if err != nil {
		t.Error(err)
	}
	complete(t, h)
	if n != h.Total.Seen {
		t.Errorf("%d calls in the record, counters %+v", n, h.Total)
	}
}

// While records come, Within bounds how late one is delivered.
func TestWithin(t *testing.T) {
	late := func(o Options) time.Duration {
		var lates []int64
		observed(t, o, exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 400 ]; do : < /dev/null; /bin/sleep 0.001; i=$((i+1)); done"), func(e *bodycam.Event) error {
			if e.Type == bodycam.TypeExec {
				lates = append(lates, bootNow()-int64(e.Boot))
			}
			return nil
		})
		if len(lates) < 300 {
			t.Fatalf("%d programs", len(lates))
		}
		slices.Sort(lates)
		return time.Duration(lates[len(lates)/2])
	}
	if prompt, usual := late(Options{Within: 5 * time.Millisecond}), late(Options{}); prompt > usual/2 {
		t.Errorf("half of the records are later than %v, usually %v", prompt, usual)
	}
}

// After a time without records the next one is delivered at once, not when the reader looks the next time.
func TestIdleReaderIsWoken(t *testing.T) {
	needRoot(t)
	dir := newCgroup(t)
	events := make(chan bodycam.Type, 100)
	s := started(t, dir, Options{}, func(e *bodycam.Event) error { events <- e.Type; return nil })
	for asleep := uint32(1); asleep != 0 && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
		if err := s.prog.objs.WakeAt.Get(&asleep); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * pollInterval) // by now it sleeps for long
	cmd := exec.Command("/bin/sleep", "100")
	inCgroup(t, cmd, dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-events:
	case <-time.After(idleInterval / 2):
		t.Error("the reader sleeps on")
	}
	var again uint32
	if err := s.prog.objs.WakeAt.Get(&again); err != nil || again == 0 {
		t.Errorf("%v; the reader is woken at %d bytes while records come", err, again)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// Without back-pressure the same flood loses records: the loss is counted, exactly.
func TestLossIsCounted(t *testing.T) {
	cmd, _ := flood(t)
	h := observed(t, Options{RingBytes: 1 << 20, NoPause: true}, cmd, func(*bodycam.Event) error {
		time.Sleep(20 * time.Microsecond)
		return nil
	})
	if h.Total.Lost == 0 || h.Gaps == 0 {
		t.Fatalf("nothing was lost, so this tests nothing: %+v", h)
	}
	if !h.Total.Balanced() {
		t.Errorf("counters %+v", h.Total)
	}
	if c := bodycam.Assess([]bodycam.Health{h}); c.Complete {
		t.Error("a record with losses counts as complete")
	}
	if h.Stopped != 0 {
		t.Errorf("paused %d times", h.Stopped)
	}
}

// A sink that fails ends the record, not the workload.
func TestFailingSink(t *testing.T) {
	needRoot(t)
	dir := newCgroup(t)
	s := started(t, dir, Options{RingBytes: 1 << 20}, func(*bodycam.Event) error { return os.ErrClosed })
	cmd, _ := flood(t)
	inCgroup(t, cmd, dir)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	h, err := s.Stop()
	if err == nil || h.Failed == "" {
		t.Errorf("Stop: %v, health %+v: want the sink's error in both", err, h)
	}
	if !h.Total.Balanced() || h.Total.Lost == 0 {
		t.Errorf("counters %+v: want what the sink refused counted as lost", h.Total)
	}
}

// Stop delivers what live processes have gathered so far.
func TestStopWhileRunning(t *testing.T) {
	needRoot(t)
	dir, work := newCgroup(t), t.TempDir()
	var c sensortest.Collector
	s := started(t, dir, Options{}, c.Sink)
	cmd := exec.Command("/bin/sh", "-c", `for i in 1 2 3 4 5; do : >>"$0/f"; done; exec 3>"$0/out"; echo hello >&3; echo >"$0/ready"; exec sleep 100`, work)
	inCgroup(t, cmd, dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if _, err := os.Stat(work + "/ready"); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	h, err := s.Stop()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	complete(t, h)
	var opens, written uint64
	for _, e := range c.Events() {
		switch {
		case e.Type == bodycam.TypeOpen && e.Path == work+"/f":
			opens += e.N()
		case e.Type == bodycam.TypeClose && e.Path == work+"/out":
			written += e.BytesWritten
		}
	}
	if opens != 5 || written != 6 {
		t.Errorf("%d opens and %d bytes written, want 5 and 6", opens, written)
	}
}

// Real work leaves a complete record.
func TestRealWork(t *testing.T) {
	module := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module m\n\ngo 1.24\n", "main.go": "package main\n\nimport \"net/http\"\n\nfunc main() { _ = http.ListenAndServe(\"\", nil) }\n"} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(module, "m"), ".")
	build.Dir, build.Env = module, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	for name, cmd := range map[string]*exec.Cmd{
		"find":  exec.Command("find", "/usr", "-xdev", "-newermt", "2090-01-01"),
		"build": build,
	} {
		t.Run(name, func(t *testing.T) {
			var n uint64
			h := observed(t, Options{}, cmd, func(e *bodycam.Event) error { n++; return nil })
			complete(t, h)
			if !cmd.ProcessState.Success() {
				t.Errorf("%v", cmd.ProcessState)
			}
			if n != h.Total.Emitted || n < 100 {
				t.Errorf("%d events, counters %+v", n, h.Total)
			}
		})
	}
}

// What happens outside of the cgroup is not recorded.
func TestOutsideIsIgnored(t *testing.T) {
	needRoot(t)
	dir := newCgroup(t)
	s := started(t, dir, Options{}, func(e *bodycam.Event) error { t.Errorf("an event from outside: %+v", e); return nil })
	if out, err := exec.Command("/bin/sh", "-c", "cat /etc/hostname; ls /").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h, err := s.Stop()
	if err != nil || h.Total != (bodycam.Counters{}) {
		t.Errorf("%v, counters %+v", err, h.Total)
	}
}

func TestBadStarts(t *testing.T) {
	for _, c := range []struct {
		opt  Options
		want string
	}{{Options{Backend: BackendLSM}, "not built"}, {Options{Backend: "x"}, "no sensor back end"}, {Options{RingBytes: 3 << 20}, "power of two"}} {
		if _, err := New(c.opt); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.opt, err, c.want)
		}
	}
	needRoot(t)
	for dir, want := range map[string]string{"relative": "absolute", t.TempDir(): "cgroup v2", "/nonexistent": "no such file"} {
		s, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context(), target(dir), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}

// Everything the sensor needs works where these tests run: a program that stops loading fails here by name.
func TestProbe(t *testing.T) {
	needRoot(t)
	for _, f := range Probe() {
		if f.Needed && !f.OK {
			t.Errorf("%s: %s", f.Name, f.Why)
		}
		if !f.OK && f.Why == "" {
			t.Errorf("%s is refused without a reason", f.Name)
		}
	}
}

// The committed object is what the sources make, to the byte.
func TestGenerated(t *testing.T) {
	clang, err := exec.LookPath("clang-19")
	if err != nil {
		t.Skip("clang-19 is not installed")
	}
	if _, err := exec.LookPath("llvm-strip-19"); err != nil {
		t.Skip("llvm-strip-19 is not installed")
	}
	t.Logf("with %s", clang)
	dir := t.TempDir()
	text, err := os.ReadFile("gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gen.go"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "src"), os.DirFS("src")); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	_, line, ok := strings.Cut(string(text), "//go:generate go run ")
	if !ok {
		t.Fatal("gen.go has no go:generate line")
	}
	// The tool is built here, in the module, and runs there, in another directory.
	tool := filepath.Join(dir, "bpf2go")
	args := splitQuoted(line)
	if out, err := exec.Command("go", "build", "-o", tool, args[0]).CombinedOutput(); err != nil {
		t.Fatalf("building bpf2go: %v\n%s", err, out)
	}
	cmd := exec.Command(tool, args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOPACKAGE=bpf")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("bpf2go: %v\n%s", err, out)
	}
	for _, name := range []string{"sensor_x86_bpfel.o", "sensor_x86_bpfel.go"} {
		a, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(here, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s is not what its sources make: run go generate", name)
		}
		if bytes.Contains(b, []byte(filepath.Dir(filepath.Dir(here)))) {
			t.Errorf("%s holds a path of this machine", name)
		}
	}
}

// splitQuoted splits a go:generate line at blanks outside of double quotes.
func splitQuoted(line string) []string {
	var out []string
	for i, part := range strings.Split(strings.TrimSpace(line), `"`) {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}
