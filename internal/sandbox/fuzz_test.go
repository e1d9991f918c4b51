//go:build linux

package sandbox

import (
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

// The box's /etc/passwd can be anything by the time a command asks for a user.
func FuzzFindUser(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\nme:x:5:6::/home/me:/bin/sh\n", "me")
	f.Fuzz(func(t *testing.T, passwd, name string) {
		u, ok := findUser(strings.NewReader(passwd), name)
		if ok && (u.Name != name || u.UID >= boxinit.IDs || u.GID >= boxinit.IDs || !strings.HasPrefix(u.Home, "/") || !strings.Contains(passwd, name)) {
			t.Errorf("%q in %q gave %+v", name, passwd, u)
		}
	})
}
