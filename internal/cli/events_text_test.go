package cli

import (
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// What the text view says where a path alone would not do.
func TestEventLine(t *testing.T) {
	for _, c := range []struct {
		e    bodycam.Event
		want string
	}{
		{bodycam.Event{Type: bodycam.TypeMount, NR: 165, ABI: bodycam.ABIAMD64, Path: "/workspace/m", Path2: "/root/.ssh"}, " /root/.ssh on /workspace/m"},
		{bodycam.Event{Type: bodycam.TypeMount, NR: 165, ABI: bodycam.ABIAMD64, Path: "/m", Path2Given: "../s", Errno: 1}, " ../s on /m EPERM"},
		{bodycam.Event{Type: bodycam.TypeDenied, NR: 248, ABI: bodycam.ABIAMD64, Errno: 1}, " add_key EPERM"},
		{bodycam.Event{Type: bodycam.TypeFork, NR: 435, ABI: bodycam.ABIAMD64, Errno: 38, Count: 7, Marks: bodycam.MarkRefused}, " clone3 ENOSYS ×7 !refused"},
		{bodycam.Event{Type: bodycam.TypeDenied, NR: 248, ABI: bodycam.ABIAMD64, Errno: 1, Detail: "add_key"}, " add_key EPERM"},
		{bodycam.Event{Type: bodycam.TypeRename, NR: 82, ABI: bodycam.ABIAMD64, Path: "/a", Path2: "/b"}, " /a -> /b"},
		{bodycam.Event{Type: bodycam.TypePtrace, NR: 101, ABI: bodycam.ABIAMD64, Signal: 16, Detail: "PTRACE_ATTACH"}, " PTRACE_ATTACH"},
	} {
		if got := string(eventLine(nil, &c.e)); !strings.HasSuffix(got, c.want) {
			t.Errorf("%q doesn't end with %q", got, c.want)
		}
	}
}
