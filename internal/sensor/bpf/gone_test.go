package bpf

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/sensor/sensortest"
)

// closedMeanwhile is a program of which one thread reads all of a file at once, while another closes the descriptor: the kernel goes on
// reading. It tries until the close came in time, and prints how much was read. "own" has the reading thread open the file itself.
const closedMeanwhile = `
import os, sys, threading, time
size = os.stat(sys.argv[1]).st_size
buf = bytearray(size)
total = 0
while True:
    ready, done = threading.Event(), []
    box = [os.open(sys.argv[1], os.O_RDONLY)] if sys.argv[2] != "own" else []
    def run():
        if not box:
            box.append(os.open(sys.argv[1], os.O_RDONLY))
        ready.set()
        n = os.readv(box[0], [buf])
        done.append(n)
    t = threading.Thread(target=run)
    t.start()
    ready.wait()
    time.sleep(0.005)
    os.close(box[0])
    early = not done
    t.join()
    total += sum(done)
    if early and done == [size]:
        break
print(total)`

// What a thread reads from a file that it opened is told also where another thread has closed the descriptor by then.
func TestClosedWhileReading(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const size = 256 << 20
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"own", "other"} {
		var c sensortest.Collector
		cmd := exec.Command("/usr/bin/python3", "-c", closedMeanwhile, name, who)
		var out bytes.Buffer
		cmd.Stdout = &out
		h := observed(t, Options{}, cmd, c.Sink)
		complete(t, h)
		read := bytesRead(&c, name)
		total, err := strconv.ParseUint(strings.TrimSpace(out.String()), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if who == "own" && read != total {
			t.Errorf("%d bytes read, want %d", read, total)
		}
		if who == "other" && read < total && !strings.Contains(h.Note, "told of no file") {
			t.Errorf("%d bytes read, and the note is %q", read, h.Note)
		}
	}
}
