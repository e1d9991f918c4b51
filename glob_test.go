package bodycam

import "testing"

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"**/.ssh/id_*", "/root/.ssh/id_rsa", true},
		{"**/.ssh/id_*", "/root/.ssh/sub/id_rsa", false},
		{"/etc/ssl/**", "/etc/ssl/certs/x.pem", true},
		{"/etc/*", "/etc/a/b", false},
		{"**", "/x", true},
		{"/a/**/z", "/a/z", true},
		{"/a/**/z", "/a/b/c/z", true},
		{"/a/[b", "/a/[b", false},
	} {
		if got := Glob(c.pattern, c.path); got != c.want {
			t.Errorf("Glob(%q, %q) = %v", c.pattern, c.path, got)
		}
	}
}
