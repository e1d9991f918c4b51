package rules

import (
	"os"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// What the sensor records of System V IPC, message queues and sockets has a name for evt.type: that of the call.
func TestCallsOfIPCAndSockets(t *testing.T) {
	b, err := os.ReadFile("../internal/sensor/bpf/calls.tsv")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(b)) {
		c := strings.Split(line, "\t")
		if line[0] == '#' || len(c) < 2 || c[1] != "ipc" && c[1] != "socket" {
			continue
		}
		seen++
		typ, _ := bodycam.ParseType(c[1])
		id, ok := linux().byName[c[0]]
		if !ok || !linux().calls[id].types.has(typ) {
			t.Errorf("%s isn't known to be of type %s", c[0], c[1])
		}
	}
	if seen < 15 {
		t.Errorf("only %d calls are recorded", seen)
	}
	s := load(t, ruleOf("evt.type in (socket, shmget)"))
	if u := s.Unsupported(); len(u) > 0 {
		t.Fatalf("unsupported: %v", u)
	}
	e := s.NewEngine(NewTable())
	for nr, typ := range map[int32]bodycam.Type{41: bodycam.TypeSocket, 29: bodycam.TypeIPC} {
		if len(e.Event(&bodycam.Event{Type: typ, Proc: id(12), NR: nr, ABI: bodycam.ABIAMD64})) != 1 {
			t.Errorf("an event of type %s isn't found by its call", typ)
		}
	}
}
