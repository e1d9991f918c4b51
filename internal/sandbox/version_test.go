//go:build linux

package sandbox

import "testing"

func TestNotBefore(t *testing.T) {
	for release, want := range map[string]bool{
		"5.10.0-43-cloud-amd64": false, "5.15.0-25-generic": false, "5.14.0-427.13.1.el9_4.x86_64": false, "5.18.19": false,
		"5.19.0": true, "5.19-rc1": true, "6.1.0-50-amd64": true, "6.18.0+": true, "10.0": true, "odd": true, "": true,
	} {
		if got := notBefore(release, 5, 19); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}
