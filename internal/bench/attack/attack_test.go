package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/security/attacks"
)

// Every attack that was executed is found as what it is, and no twin is taken for an attack. Every case must be carried
// out: one that isn't measures nothing.
func TestCorpus(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups and eBPF")
	}
	for _, tool := range []string{"python3", "curl", "git", "perl", "gcc", "node", "openssl", "make", "ssh-keygen"} {
		if _, err := exec.LookPath("/usr/bin/" + tool); err != nil {
			t.Skipf("the attacks use %s, which isn't installed", tool)
		}
	}
	cases, err := attacks.Load()
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		cases = slices.DeleteFunc(cases, func(c attacks.Case) bool { return !c.Quick })
	}
	results, err := play(t.Context(), options{agent: "builtin", jobs: 2}, cases, func(*result) {})
	if err != nil {
		t.Fatal(err)
	}
	for i := range results {
		r := &results[i]
		if r.err != nil || !r.executed || !r.right() {
			var b strings.Builder
			tell(&b, r, false)
			t.Error(b.String())
		}
	}
	var b strings.Builder
	score(results).print(&b)
	t.Log("\n" + b.String())
}

// The oracle's eye for what was sent.
func TestHolds(t *testing.T) {
	for _, c := range []struct {
		data, as, want string
		ok             bool
	}{
		{"a=mark", "", "mark", true}, {"a=mar", "plain", "mark", false}, {"6d61726b", "hex", "mark", true}, {"kram", "reversed", "mark", true},
		{"x?bWFyaw==", "base64", "mark", true}, {"x?bWFy", "base64", "mark", false}, {"mark", "gzip", "mark", false},
	} {
		if holds([]byte(c.data), c.as, c.want) != c.ok {
			t.Errorf("holds(%q, %q, %q) = %v", c.data, c.as, c.want, !c.ok)
		}
	}
}
