package features

import (
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// A mount is told with what was mounted, not only with where.
func TestMountNamesItsSource(t *testing.T) {
	x := NewExtractor(nil, nil)
	x.Add(&bodycam.Event{Type: bodycam.TypeMount, NR: 165, ABI: bodycam.ABIAMD64, Path: "/workspace/m", Path2: "/root/.ssh", Seq: 1, Proc: bodycam.Proc{PID: 7, Start: 1}})
	f := x.Finish()
	if len(f.Special) != 1 || f.Special[0].Detail != "/root/.ssh on /workspace/m" {
		t.Errorf("special: %+v", f.Special)
	}
}
