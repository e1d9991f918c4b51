package session

import (
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sandbox/seccomp"
	"github.com/bodycam-dev/bodycam/internal/sensor/bpf"
)

// Whatever the sandbox's filter refuses is in the table of the calls that the sensor records when they fail.
func TestRefusedIsWatched(t *testing.T) {
	for _, mode := range []seccomp.Mode{seccomp.Strict, seccomp.Observe} {
		refused := seccomp.Refused(mode)
		if len(refused) < 20 {
			t.Errorf("%s refuses only %d calls", mode, len(refused))
		}
		for _, nr := range refused {
			if !bpf.Watches(bodycam.ABIAMD64, int32(nr)) {
				t.Errorf("%s refuses %s, which the bpf sensor doesn't record", mode, bodycam.SyscallName(bodycam.ABIAMD64, int32(nr)))
			}
		}
	}
	if bpf.Watches(bodycam.ABIAMD64, 39) {
		t.Error("getpid is watched: the test proves nothing")
	}
}
