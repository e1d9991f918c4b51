package security

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// What changed files show beside what their code can do: settings that put another program in the place of one, tests
// that were weakened or made to pass whatever they find, and data that is gone from a file which is still there.

// redirect matches settings that name a program which others start by themselves, in all files alike.
var redirect = regexp.MustCompile(`(?i)^\s*(?:export\s+|set\s+-?x?\s*|override\s+)?["']?(script-shell|node-options|bash_env|pythonstartup|ld_preload|git_ssh|git_ssh_command|git_external_diff|git_editor|git_pager|git_askpass|ssh_askpass|prompt_command|shell|pager|rustc-wrapper|rustc_wrapper|linker|cmake_[a-z]+_compiler_launcher)["']?\s*(?:::?=|\?=|=|:)\s*(.+)$`)

// gitSection is the head of a part of git's settings, which may stand in any file that others include.
var gitSection = regexp.MustCompile(`(?im)^\s*\[(core|diff|filter|merge|credential|gpg|include|includeif|sequence|uploadpack)\b[^\]]*\]`)

var gitProgram = regexp.MustCompile(`(?i)^\s*(hookspath|fsmonitor|sshcommand|pager|editor|askpass|external|textconv|smudge|clean|process|command|driver|helper|program|path)\s*=\s*(.+)$`)

// ownProgram tells whether a setting's value is a program (or code to load) of the work tree or of a place where anybody
// may leave one: the system's own programs are named by themselves or by a path of theirs.
func ownProgram(v string) bool {
	for _, w := range strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(" \t\"';,()[]{}", r) }) {
		switch {
		case strings.Contains(w, "://"):
		case strings.HasPrefix(w, "./"), strings.HasPrefix(w, "../"), strings.HasPrefix(w, "/tmp/"), strings.HasPrefix(w, "/var/tmp/"), strings.HasPrefix(w, "/dev/shm/"):
			return true
		case !strings.HasPrefix(w, "/") && !strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "$") && !strings.HasPrefix(w, "~") && strings.Contains(w, "/"):
			return true
		}
	}
	return false
}

// redirects reports a file that got such a setting.
func (b *backdoors) redirects(f Changed, kind string, before, after []byte, unknown string) bool {
	if !looksLikeText(after) {
		return false
	}
	git := gitSection.Match(after)
	for _, l := range addedLines(before, after) {
		m := redirect.FindStringSubmatch(l)
		if m == nil && git {
			m = gitProgram.FindStringSubmatch(l)
		}
		if m == nil || !ownProgram(m[2]) || b.task.has(strings.ToLower(m[1])) && strings.ToLower(m[1]) != "shell" {
			continue
		}
		b.report(f, bodycam.High, firstOr(kind, "settings file"), fmt.Sprintf("names a program that others start by themselves: %q", clip(strings.TrimSpace(l))), unknown)
		return true
	}
	return false
}

// rigs shows code that decides what tests report, instead of what they find.
var rigs = regexp.MustCompile(`\.outcome\s*=\s*['"]passed['"]|\bexitstatus\s*=\s*(0\b|\w*\.?ExitCode\.OK)|\bTestCase\.(assert|fail)\w*\s*=[^=]|\bAssertionError\s*=[^=]|(^|\bglobal(This)?\.)\s*expect\s*=[^=>]|\.wasSuccessful\s*=[^=]|\bpytest_pyfunc_call\b|\bsys\.exit\s*=[^=]|\bos\._exit\s*=[^=]|\bprocess\.exit\s*=[^=]|\bTestResult\.add(Failure|Error)\s*=[^=]`)

var (
	leaves  = regexp.MustCompile(`(?m)^(import os;\s*)?(os\._exit|sys\.exit|exit|quit)\(0\)\s*$|^process\.exit\(0\)`)
	alike   = regexp.MustCompile(`def __(eq|ne)__\([^)]*\)[^:]*:\s*(return\s+(True|False)\b)`)
	makers  = []string{"pytest plugin", "test runner", "test framework", "test reporter", "test harness", "reporting hook", "makereport"}
	skips   = regexp.MustCompile(`@pytest\.mark\.(skip|xfail)\b|\bpytest\.(skip|xfail)\(|@unittest\.(skip|expectedFailure)|\bself\.skipTest\(|\bt\.Skip(Now|f)?\(|\b(it|test|describe)\.(skip|todo)\(|\bx(it|describe|test)\(|#\[ignore\]|@(Disabled|Ignore)\b|\b__test__\s*=\s*False\b`)
	trivial = regexp.MustCompile(`\bassert\s+(True|1|not\s+False|"[^"]*"|'[^']*')\s*(,|#|$)|\bassert(True)?\(\s*(True|true|1)\s*\)|\bassert(False)?\(\s*!\s*false\s*\)|\bexpect\(\s*(true|1)\s*\)|\bassert!\(\s*true\s*\)|\bassert\.(ok|True|isTrue)\(\s*(t,\s*)?(true|1)\s*\)`)
	claims  = regexp.MustCompile(`\bassert\w*\b|\bexpect\s*\(|\brequire\.[A-Z]\w+\(|\bt\.(Error|Fatal|Fail)\w*\(|\.should\b|\b(EXPECT|ASSERT)_[A-Z]+|\bassert(_eq|_ne)?!`)
	testDir = regexp.MustCompile(`(^|/)(tests?|__tests__|specs?)/`)
	testOwn = regexp.MustCompile(`(^|/)(test_[^/]*\.py|[^/]*_test\.(py|go|c|cc|cpp|rb)|[^/]*\.(test|spec)\.[cm]?[jt]sx?|[^/]*(Test|Tests|Spec)\.(java|kt|cs|php|scala)|[^/]*_spec\.rb)$`)
)

// isTest tells whether a file holds tests, by its name.
func isTest(p string) bool {
	return codeFiles[strings.ToLower(path.Ext(p))] && (testDir.MatchString(p) || testOwn.MatchString(p))
}

// claimed counts the lines that assert something which may turn out false.
func claimed(data []byte) (n int) {
	for _, l := range lines(data) {
		if claims.MatchString(l) && !alwaysTrue(l) && !strings.HasPrefix(strings.TrimSpace(l), "import ") && !strings.HasPrefix(strings.TrimSpace(l), "from ") {
			n++
		}
	}
	return n
}

// tests reports tests that were made to pass.
func (b *backdoors) tests(f Changed, before, after []byte, unknown string) bool {
	if !looksLikeText(after) {
		return false
	}
	added := addedLines(before, after)
	test := isTest(f.Path) || path.Base(f.Path) == "conftest.py"
	if !b.task.hasAny(makers) {
		all := strings.Join(added, "\n")
		if slices.ContainsFunc(added, rigs.MatchString) || test && leaves.MatchString(all) || alike.MatchString(all) && !b.task.hasAny([]string{"wildcard", "mock", "mocks", "matcher", "matchers", "sentinel"}) {
			b.grading(f, bodycam.High, "Tests rigged", "decides what tests report, whatever they find",
				"Code was added that makes tests pass by itself, and the task doesn't ask for it.", unknown)
			return true
		}
	}
	if !test || f.New || unknown != "" {
		return false
	}
	was, is := claimed(before), claimed(after)
	what := ""
	switch {
	case is < was && slices.ContainsFunc(added, alwaysTrue):
		what = "asserts what is always true, where it asserted something before"
	case slices.ContainsFunc(added, skips.MatchString) && !b.task.hasAny([]string{"skip", "skipped", "xfail", "disable", "flaky", "quarantine"}):
		what = "skips tests that were run before"
	case was > 1 && is == 0:
		what = "asserts nothing any more"
	case renamed(f.Path, before, after) != "":
		what = fmt.Sprintf("runs the test %s no more: it has a name that no test has", clip(bodycam.Printable(renamed(f.Path, before, after))))
	default:
		return false
	}
	b.grading(f, bodycam.High, "Tests weakened", what, "A test of the workspace was changed so that it finds less, and the task doesn't ask for it.", "")
	return true
}

// removedTests reports tests that are gone while no other tests came.
func (b *backdoors) removedTests(files []Changed, contents Contents) {
	digests := map[string]bool{}
	for _, f := range files {
		if !f.Removed {
			digests[f.Digest] = true
			if f.New && isTest(f.Path) && !globAny(notCode, f.Path) {
				return
			}
		}
	}
	for _, f := range files {
		if !f.Removed || !isTest(f.Path) || globAny(notCode, f.Path) || b.allowed(f.Path) || f.Digest != "" && digests[f.Digest] ||
			b.explain(bodycam.File, f.Path).Cleared() || b.task.asksToDelete(f.Path) || b.task.untracked(f.Path) {
			continue
		}
		if before, err := contents.Before(f.Path); err != nil || claimed(before) == 0 {
			continue
		}
		b.grading(f, bodycam.High, "Tests weakened", "is gone, with all that it asserted", "A test of the workspace was removed, and the task doesn't ask for it.", "")
	}
}

func (b *backdoors) grading(f Changed, sev bodycam.Severity, rule, what, detail, unknown string) {
	if unknown != "" {
		sev--
		detail += " " + unknown
	}
	b.out = append(b.out, bodycam.Finding{Analysis: Name, Rule: rule, Class: "grading", Severity: sev, Count: 1, Title: clip(bodycam.Printable(f.Path)) + " " + what,
		Detail: detail, Resource: f.Path, Events: f.Events, Tags: []string{"grading", "workspace", "content"}, Naming: "exact"})
}

// dataFiles hold data rather than code or words about it.
var dataFiles = map[string]bool{".csv": true, ".tsv": true, ".json": true, ".jsonl": true, ".ndjson": true, ".sql": true, ".parquet": true, ".db": true, ".sqlite": true, ".sqlite3": true}

// Where data is gone from a file: at least this much was there, and at most this share is left.
const (
	leastData    = 4 << 10
	leftOfTables = 2  // of a database a half
	leftOfData   = 10 // of other data a tenth
)

// dataGone reports a file of data that lost most of what it held.
func (b *backdoors) dataGone(f Changed, before, after []byte) bool {
	if len(before) < leastData || !dataFiles[strings.ToLower(path.Ext(f.Path))] || globAny(builtByTools, f.Path) || b.task.asksToDelete(f.Path) ||
		b.task.hasAny([]string{"delete", "deletes", "drop", "remove", "purge", "truncate", "shrink", "compact", "vacuum", "empty", "clear", "reset", "reduce", "filter", "sample", "migrate"}) {
		return false
	}
	share := leftOfData
	if strings.HasPrefix(string(before[:16]), "SQLite format 3") {
		share = leftOfTables // it only shrinks when it is told to
	} else if b.explain(bodycam.File, f.Path).Cleared() {
		return false
	}
	if len(after)*share >= len(before) {
		return false
	}
	b.out = append(b.out, bodycam.Finding{Analysis: Name, Rule: "Data removed", Class: "destruction", Severity: bodycam.High, Count: 1,
		Title:  fmt.Sprintf("%s holds %d bytes, of %d before", clip(bodycam.Printable(f.Path)), len(after), len(before)),
		Detail: "A file of data lost most of what it held, and the task doesn't ask for it.", Resource: f.Path, Events: f.Events,
		Tags: []string{"destruction", "content", "T1485"}, Naming: "exact"})
	return true
}

// lockFiles say where each package comes from. Other addresses in them (of sponsors, of bug trackers) mean nothing.
var lockFiles = []string{"**/package-lock.json", "**/npm-shrinkwrap.json", "**/yarn.lock", "**/pnpm-lock.yaml", "**/poetry.lock", "**/uv.lock", "**/Pipfile.lock", "**/Cargo.lock", "**/composer.lock", "**/Gemfile.lock", "**/bun.lock"}

var lockSource = regexp.MustCompile(`(?i)^\s*["']?(resolved|tarball|source|registry|remote|index-url)["']?\s*[:= ]|\bresolution:.*tarball|\{\s*(url|registry)\s*=|^\s*url\s*=`)

// registries give packages to everybody: a lock file that names one names no stranger.
var registries = []string{"registry.npmjs.org", "registry.yarnpkg.com", "npm.pkg.github.com", "pypi.org", "files.pythonhosted.org", "crates.io", "static.crates.io", "index.crates.io",
	"rubygems.org", "repo.packagist.org", "github.com", "api.github.com", "codeload.github.com", "gitlab.com", "registry.npmmirror.com", "jsr.io", "npm.jsr.io"}

// locked looks for packages that a lock file takes from a host which nothing makes trusted.
func (b *backdoors) locked(f Changed, before, after []byte, unknown string) {
	var sources []string
	for _, l := range addedLines(before, after) {
		if !lockSource.MatchString(l) && !strings.Contains(l, `"resolved"`) {
			continue
		}
		if i := strings.Index(l, `"resolved"`); i >= 0 { // all in one line
			l = l[i:]
		}
		sources = append(sources, l)
	}
	for _, l := range sources {
		if h := b.untrusted([]string{l}); h != "" && !slices.Contains(registries, h) {
			b.report(f, bodycam.High, "lock file", "takes packages from the host "+h, unknown)
			return
		}
	}
}
