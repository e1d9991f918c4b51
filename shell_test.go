package bodycam

import (
	"slices"
	"strings"
	"testing"
)

func TestSplitShell(t *testing.T) {
	for in, want := range map[string][]string{
		``:                               nil,
		`a b`:                            {"a", "b"},
		"  a\t b\n":                      {"a", "b"},
		`'' ""`:                          {"", ""},
		`'a b'"c d"e\ f`:                 {"a bc de f"},
		`"a\"b\n\$"`:                     {`a"b\n$`},
		`bash -lc "echo 'x' \""'$H"; f'`: {"bash", "-lc", `echo 'x' "$H"; f`},
		"a\\\nb":                         {"ab"},
		`a;b`:                            {"a;b"},
	} {
		got, ok := SplitShell(in)
		if !ok || !slices.Equal(got, want) {
			t.Errorf("SplitShell(%q) = %q, %v; want %q", in, got, ok, want)
		}
	}
	for _, bad := range []string{`'a`, `"a`, `a "b\"`} {
		if _, ok := SplitShell(bad); ok {
			t.Errorf("SplitShell(%q) accepts an open quote", bad)
		}
	}
}

func TestShellScript(t *testing.T) {
	for in, want := range map[string]string{
		"bash|-lc|ls -la":                       "ls -la",
		"/bin/sh|-c|ls|name|arg":                "ls",
		"-bash|-c|ls":                           "ls",
		"bash|--norc|-euo|pipefail|-c|ls":       "ls",
		"bash|-o|pipefail|-c|ls":                "ls",
		"bash|-c|--|ls":                         "ls",
		"bash|--rcfile|x|-ic|ls":                "ls",
		"/usr/bin/env|-i|PATH=/bin|bash|-c|ls":  "ls",
		"timeout|--kill-after=5|10|bash|-c|ls":  "ls",
		"busybox|sh|-c|ls":                      "ls",
		"bash|script.sh|-c":                     "",
		"bash|-x|script.sh":                     "",
		"bash|-c":                               "",
		"python3|-c|print(1)":                   "",
		"ls|bash|-c|x":                          "",
		"":                                      "",
		"bash|+e|-c|ls":                         "ls",
		"/nix/store/abc-bash-5.2/bin/bash|-c|a": "a",
	} {
		var argv []string
		if in != "" {
			argv = strings.Split(in, "|")
		}
		got, ok := ShellScript(argv)
		if got != want || ok != (want != "") {
			t.Errorf("ShellScript(%q) = %q, %v; want %q", argv, got, ok, want)
		}
	}
}

func TestUnwrap(t *testing.T) {
	for in, want := range map[string]string{
		`/bin/bash -lc 'ls -la'`:              `ls -la`,
		`bash -c "echo \"a\" && b"`:           `echo "a" && b`,
		`bash -c 'a' && rm x`:                 `bash -c 'a' && rm x`,
		`bash -c 'a'; b`:                      `bash -c 'a'; b`,
		`bash -c 'a' > out`:                   `bash -c 'a' > out`,
		`ls -la`:                              `ls -la`,
		`bash -c 'open`:                       `bash -c 'open`,
		`timeout 5 bash -c 'a|b'`:             `a|b`,
		"/bin/bash -lc \"cat <<'E'\nx\nE\n\"": "cat <<'E'\nx\nE\n",
		`bash run.sh`:                         `bash run.sh`,
		`bash -c ls extra`:                    `ls`,
		`/usr/bin/zsh -lc 'echo '"'"'q'"'"''`: `echo 'q'`,
	} {
		if got := Unwrap(in); got != want {
			t.Errorf("Unwrap(%q) = %q, want %q", in, got, want)
		}
	}
}

// A word that is quoted comes back as it was, whatever bytes it has.
func FuzzSplitShell(f *testing.F) {
	f.Add("it's \"x\" \\ \n", "b")
	f.Add("", "\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		q := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'" }
		got, ok := SplitShell(q(a) + " " + q(b))
		if !ok || !slices.Equal(got, []string{a, b}) {
			t.Errorf("%q, %q became %q, %v", a, b, got, ok)
		}
		SplitShell(a)
		Unwrap(a)
		// A shell takes a script that begins like an option for an option.
		if script := Unwrap("bash -lc " + q(a)); script != a && !strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "+") {
			t.Errorf("Unwrap gave %q for %q", script, a)
		}
	})
}
