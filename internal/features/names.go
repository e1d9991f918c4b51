package features

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// NameRule says how a part of a name that differs between runs by chance alone is replaced, so that names compare.
type NameRule struct {
	Name    string
	In      string // "file": paths; "text": arguments of commands; "both"
	Pattern *regexp.Regexp
	With    string
	// Example becomes Want: what the tests check and docs/ANALYSES.md shows.
	Example, Want string
}

// tempDirs is the beginning of a path in a directory for temporary files.
const tempDirs = `((?:/var)?/tmp/|/dev/shm/|/run/user/[0-9]+/)`

// NameRules are applied in this order, each to what the one before left.
var NameRules = []NameRule{
	{"process", "both", regexp.MustCompile(`/proc/[0-9]+(/|$)`), `/proc/<pid>$1`, "/proc/4211/environ", "/proc/<pid>/environ"},
	{"thread", "both", regexp.MustCompile(`(/proc/[^/]+)/task/[0-9]+`), `$1/task/<tid>`, "/proc/self/task/77/comm", "/proc/self/task/<tid>/comm"},
	{"descriptor", "both", regexp.MustCompile(`(/proc/[^/]+|/dev)/fd(info)?/[0-9]+`), `$1/fd$2/<n>`, "/proc/self/fd/63", "/proc/self/fd/<n>"},
	{"terminal", "both", regexp.MustCompile(`/dev/pts/[0-9]+`), `/dev/pts/<n>`, "/dev/pts/3", "/dev/pts/<n>"},
	{"anonymous", "both", regexp.MustCompile(`\b(pipe|socket|anon_inode|memfd):\[?[0-9]+\]?`), `$1:<n>`, "pipe:[4711]", "pipe:<n>"},
	{"uuid", "both", regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), `<uuid>`,
		"/w/3f2504e0-4f89-41d3-9a0c-0305e82c3301.json", "/w/<uuid>.json"},
	{"time", "both", regexp.MustCompile(`\b(?:19|20)[0-9]{2}[-_.]?[01][0-9][-_.]?[0-3][0-9](?:[-_.T ]?[0-2][0-9][-_.:h]?[0-5][0-9](?:[-_.:]?[0-5][0-9](?:[.,][0-9]+)?)?)Z?`), `<time>`,
		"/w/log-2026-11-30T15:25:34.97Z.txt", "/w/log-<time>.txt"},
	{"day", "both", regexp.MustCompile(`\b(?:19|20)[0-9]{2}[-_.][01][0-9][-_.][0-3][0-9]\b`), `<day>`, "/w/2026/report-2026-11-30.md", "/w/2026/report-<day>.md"},
	{"epoch", "both", regexp.MustCompile(`\b1[4-9][0-9]{8}(?:[.]?[0-9]{3,9})?\b`), `<time>`, "/w/run-1764516334.log", "/w/run-<time>.log"},
	{"git object", "file", regexp.MustCompile(`/objects/[0-9a-f]{2}/[0-9a-f]{38,62}$`), `/objects/<hash>`,
		"/w/.git/objects/ab/0123456789abcdef0123456789abcdef012345", "/w/.git/objects/<hash>"},
	{"git temporary", "file", regexp.MustCompile(`/(?:[0-9a-f]{2}/)?tmp_(obj|pack|idx)_[A-Za-z0-9]{6}`), `/tmp_${1}_<tmp>`, "/w/.git/objects/3a/tmp_obj_Xy12ab", "/w/.git/objects/tmp_obj_<tmp>"},
	{"hash", "both", regexp.MustCompile(`\b(?:[0-9a-f]{64}|[0-9a-f]{56}|[0-9a-f]{40}|[0-9a-f]{32})\b`), `<hash>`,
		"/root/.cache/pip/d41d8cd98f00b204e9800998ecf8427e", "/root/.cache/pip/<hash>"},
	{"bytecode", "file", regexp.MustCompile(`(\.pyc)\.[0-9]+$`), `$1.<n>`, "/w/__pycache__/a.cpython-311.pyc.139914128", "/w/__pycache__/a.cpython-311.pyc.<n>"},
	{"unnamed", "file", regexp.MustCompile(`/#[0-9]+$`), `/#<n>`, "/var/tmp/#103", "/var/tmp/#<n>"},
	{"mktemp", "both", regexp.MustCompile(tempDirs + `((?:[A-Za-z0-9_+-]+\.)?)(?:[A-Za-z0-9_]{8,12})(/|$)`), ``, "/tmp/tmp.Xa81LmQq0z/out", "/tmp/tmp.<tmp>/out"},
	{"here-document", "file", regexp.MustCompile(tempDirs + `sh-thd\.[A-Za-z0-9]+`), `${1}sh-thd.<tmp>`, "/tmp/sh-thd.k29fA1", "/tmp/sh-thd.<tmp>"},
	{"temporary suffix", "both", regexp.MustCompile(tempDirs + `((?:[^/]*?[A-Za-z])[-._]?)[0-9]{4,}`), `$1$2<n>`, "/tmp/go-build2213814741/b001", "/tmp/go-build<n>/b001"},
	{"compiler", "both", regexp.MustCompile(tempDirs + `cc[A-Za-z0-9]{6}(\.[a-z]+)`), `${1}cc<tmp>$2`, "/tmp/ccQ1x9Zb.o", "/tmp/cc<tmp>.o"},
	{"in-place edit", "file", regexp.MustCompile(`/sed([a-z]{0,5}[A-Z0-9][A-Za-z0-9]{0,5})$`), ``, "/w/sedq1Xz0P", "/w/sed<tmp>"},
	{"pid suffix", "both", regexp.MustCompile(`([.-](?:tmp|lock|pid|swp|bak))[.-]?[0-9]{2,}(?:[.-][0-9a-f]+)?$`), `$1.<n>`, "/w/package.json.tmp.31337", "/w/package.json.tmp.<n>"},
}

// ruleNeeds says for most rules what a name must hold, one of, for the rule to find anything: looking for that costs a
// hundredth of what the pattern does.
var ruleNeeds = map[string][]string{
	"process": {"/proc/"}, "thread": {"/task/"}, "descriptor": {"/fd"}, "terminal": {"/dev/pts/"}, "anonymous": {"pipe:", "socket:", "anon_inode:", "memfd:"},
	"uuid": {"-"}, "time": {"19", "20"}, "day": {"19", "20"}, "epoch": {"14", "15", "16", "17", "18", "19"}, "git object": {"/objects/"}, "git temporary": {"/tmp_"},
	"bytecode": {".pyc."}, "unnamed": {"/#"}, "mktemp": temporary, "here-document": {"sh-thd."}, "temporary suffix": temporary, "compiler": {"/cc"}, "in-place edit": {"/sed"},
	"pid suffix": {"tmp", "lock", "pid", "swp", "bak"},
}

// temporary are in every path that begins as tempDirs does.
var temporary = []string{"/tmp/", "/dev/shm/", "/run/user/"}

// leastFor is the least length of what a rule finds.
var leastFor = map[string]int{"uuid": 36, "hash": 32, "epoch": 10, "time": 12, "day": 10}

// needs holds both, in the rules' order.
var needs = func() (out []need) {
	for i := range NameRules {
		n := NameRules[i].Name
		out = append(out, need{ruleNeeds[n], leastFor[n]})
	}
	return out
}()

type need struct {
	one   []string
	least int
}

// met tells whether a name can have what the rule looks for.
func (n *need) met(name string) bool {
	return len(name) >= n.least && (n.one == nil || slices.ContainsFunc(n.one, func(s string) bool { return strings.Contains(name, s) }))
}

// mostNamed bounds the length of names that are looked at: longer ones are kept as they are.
const mostNamed = 1 << 10

// CommonName turns a path, host or argument into what is the same in every run that does the same.
// text tells that it is an argument rather than a path.
func CommonName(name string, text bool) string {
	if len(name) > mostNamed || !mayVary(name) {
		return name
	}
	for i := range NameRules {
		r := &NameRules[i]
		if text && r.In == "file" || !text && r.In == "text" || !needs[i].met(name) {
			continue
		}
		switch r.Name {
		case "mktemp":
			name = r.Pattern.ReplaceAllStringFunc(name, mktemp)
			continue
		case "in-place edit":
			name = r.Pattern.ReplaceAllStringFunc(name, inPlace)
			continue
		}
		name = r.Pattern.ReplaceAllString(name, r.With)
	}
	return name
}

// mayVary is a quick test that spares most names the rules: all of them need a digit or a temporary directory.
func mayVary(s string) bool {
	if strings.Contains(s, "/tmp/") || strings.Contains(s, "/shm/") || strings.Contains(s, "/sed") || strings.Contains(s, "tmp_") {
		return true
	}
	return strings.ContainsAny(s, "0123456789")
}

var mktempName = regexp.MustCompile(`^(.*/)((?:[A-Za-z0-9_+-]+\.)?)([A-Za-z0-9_]{8,12})(/?)$`)

// mktemp replaces a name that looks as mktemp(3) and Python's tempfile make them; a plain word is none.
func mktemp(s string) string {
	m := mktempName.FindStringSubmatch(s)
	if m == nil {
		return s
	}
	name := m[3]
	if rest, ok := strings.CutPrefix(name, "tmp"); ok && m[2] == "" && len(rest) == 8 { // Python
		return m[1] + "tmp<tmp>" + m[4]
	}
	if !random(name) {
		return s
	}
	return m[1] + m[2] + "<tmp>" + m[4]
}

// inPlace replaces the name that sed -i makes: six letters or digits, of which at least one is no small letter.
func inPlace(s string) string {
	if len(s) != len("/sedXXXXXX") {
		return s
	}
	return "/sed<tmp>"
}

// random tells whether a word mixes at least two of digits, lower-case and upper-case letters in a way that words
// don't: an upper-case letter or digit after a lower-case letter or between.
func random(s string) bool {
	changes, last := 0, 0
	for i := 0; i < len(s); i++ {
		class := 0
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			class = 1
		case c >= 'a' && c <= 'z':
			class = 2
		case c >= 'A' && c <= 'Z':
			class = 3
		default:
			return false
		}
		if last != 0 && class != last {
			changes++
		}
		last = class
	}
	return changes >= 3
}

// Level says how much of a command line belongs to a command's name.
type Level string

// The levels.
const (
	LevelExecutable Level = "executable" // the resolved program alone
	LevelSubcommand Level = "subcommand" // and what it was told to be: git commit, python3 -m pip, bash run.sh
	LevelArgv       Level = "argv"       // and all arguments, normalised
)

// interpreters run what their first operand names.
var interpreters = map[string]bool{"python": true, "node": true, "nodejs": true, "deno": true, "bun": true, "perl": true, "ruby": true,
	"php": true, "lua": true, "Rscript": true, "tclsh": true, "expect": true, "java": true, "julia": true, "osascript": true, "pwsh": true}

// multi are programs whose first operand says what they do.
var multi = map[string]bool{"git": true, "apt": true, "apt-get": true, "apk": true, "dnf": true, "yum": true, "pip": true, "uv": true, "poetry": true,
	"conda": true, "npm": true, "npx": true, "yarn": true, "pnpm": true, "cargo": true, "rustup": true, "go": true, "docker": true, "podman": true,
	"kubectl": true, "helm": true, "systemctl": true, "service": true, "gh": true, "aws": true, "gcloud": true, "az": true, "terraform": true,
	"openssl": true, "make": true, "dotnet": true, "mvn": true, "gradle": true, "ip": true, "busybox": true, "gem": true, "bundle": true, "brew": true,
	"snap": true, "flatpak": true, "loginctl": true, "nmcli": true, "tmux": true, "ollama": true, "hf": true, "pytest": false}

// versioned takes the version off a program's name: python3.11 is python.
var versioned = regexp.MustCompile(`^([A-Za-z][A-Za-z-]*?)-?[0-9][0-9.]*$`)

// Program is a program's plain name: the base of its path, without a version.
func Program(exe string) string {
	b := path.Base(strings.TrimPrefix(exe, "-"))
	if m := versioned.FindStringSubmatch(b); m != nil {
		return m[1]
	}
	return b
}

// commandName names an execution at a level. exe is the resolved program; script what an interpreter was started
// for by "#!"; operands that are paths are taken relative to cwd.
func (x *Extractor) commandName(e *bodycam.Event, level Level) string {
	p := x.plan
	exe := p.CommonPath(e.Exe)
	if level == LevelExecutable || len(e.Argv) == 0 {
		return exe
	}
	if level == LevelArgv {
		var b strings.Builder
		b.WriteString(exe)
		for _, a := range e.Argv[1:] {
			b.WriteByte(' ')
			b.WriteString(quoteArg(x.commonArg(a, e.CWD)))
		}
		return b.String()
	}
	if e.Script != "" {
		return exe + " " + p.CommonPath(e.Script)
	}
	prog := Program(e.Exe)
	switch {
	case bodycam.IsShell(e.Exe) || interpreters[prog]:
		op, path := operand(e.Exe, e.Argv)
		if path {
			return exe + " " + p.CommonPath(absolute(op, e.CWD))
		}
		return exe + " " + CommonName(op, true)
	case multi[prog]:
		if sub := firstWord(e.Argv[1:]); sub != "" {
			return exe + " " + CommonName(sub, true)
		}
	}
	return exe
}

// mostArgs bounds the cache of normalised arguments.
const mostArgs = 50_000

// commonArg is CommonName of an argument, cut; one that is a path of a skill is named as its file is.
func (x *Extractor) commonArg(a, cwd string) string {
	if len(a) <= mostArg && strings.Contains(a, "/") && !strings.ContainsAny(a, " \n") {
		if full := x.plan.CommonPath(absolute(a, cwd)); strings.HasPrefix(full, "skill:") {
			return full
		}
	}
	a = clipArg(a)
	name, ok := x.args[a]
	if !ok {
		name = CommonName(a, true)
		if len(x.args) < mostArgs {
			x.args[a] = name
		}
	}
	return name
}

// operand says what an interpreter was told to run: "-c", "-m module", "-" or a script's path.
func operand(exe string, argv []string) (what string, isPath bool) {
	shell := bodycam.IsShell(exe)
	for i := 1; i < len(argv); i++ {
		a := argv[i]
		switch {
		case a == "-" || a == "":
			return "-", false
		case a == "--":
			if i+1 < len(argv) {
				return argv[i+1], true
			}
			return "-", false
		case strings.HasPrefix(a, "--"), a[0] == '+':
		case a == "-m" && i+1 < len(argv):
			return "-m " + argv[i+1], false
		case a == "-o" || a == "-O" || a == "-W" || a == "-X" || a == "-r" || a == "-I":
			i++
		case a[0] == '-':
			// Options run together: bash -lc, perl -lane. -e of a shell is no code.
			if shell && strings.Contains(a, "c") || !shell && (a == "-c" || len(a) <= 5 && strings.HasSuffix(a, "e")) {
				return "-c", false
			}
			if shell && strings.Contains(a, "s") {
				return "-", false
			}
			if shell && (strings.HasSuffix(a, "o") || strings.HasSuffix(a, "O")) { // -euo pipefail
				i++
			}
		default:
			return a, true
		}
	}
	return "-", false
}

// firstWord is the first argument that is neither an option nor an option's value as far as one can tell.
func firstWord(args []string) string {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "-C" || a == "-c" || a == "--git-dir" || a == "--work-tree" || a == "--namespace" || a == "-n" || a == "-f" {
			i++
			continue
		}
		if a != "" && a[0] != '-' {
			return a
		}
	}
	return ""
}

func absolute(p, cwd string) string {
	if path.IsAbs(p) || cwd == "" {
		return path.Clean(p)
	}
	return path.Join(cwd, p)
}

const mostArg = 200 // bytes of one argument that are kept in a name

func clipArg(a string) string {
	if len(a) <= mostArg {
		return a
	}
	return a[:mostArg] + "…"
}

func quoteArg(a string) string {
	if a != "" && !strings.ContainsAny(a, " \t\n'\"") {
		return a
	}
	return "'" + strings.ReplaceAll(a, "'", `'"'"'`) + "'"
}
