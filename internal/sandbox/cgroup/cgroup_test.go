//go:build linux

package cgroup

import "testing"

func TestUnescapeMount(t *testing.T) {
	for in, want := range map[string]string{"/a": "/a", `/a\040b\134`: `/a b\`, `/x\04`: `/x\04`, `/x\999`: `/x\999`} {
		if got := unescapeMount(in); got != want {
			t.Errorf("%q gave %q, want %q", in, got, want)
		}
	}
}
