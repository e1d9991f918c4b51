package features

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// lowerASCII keeps every byte in its place.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func itoa(n int) string { return strconv.Itoa(n) }

// text is what a task or skill says, ready to be asked whether it names something.
type text struct {
	raw       string
	lower     string
	workspace []string
	home      string
	dirs      []string // absolute directories that it names
}

// absolutePath finds paths in prose.
var absolutePath = regexp.MustCompile("(?:^|[\\s\"'`(=<:])(/[A-Za-z0-9._@+-]+(?:/[A-Za-z0-9._@+-]+)*)")

// common directories are too wide for that their name explains all that is in them.
var wide = map[string]bool{"/": true, "/etc": true, "/usr": true, "/var": true, "/home": true, "/root": true, "/bin": true, "/lib": true, "/opt": true,
	"/proc": true, "/sys": true, "/dev": true, "/mnt": true, "/srv": true, "/boot": true, "/run": true, "/sbin": true, "/usr/bin": true, "/usr/local": true,
	"/usr/lib": true, "/var/lib": true, "/usr/local/bin": true, "/usr/share": true, "/tests": true, "/solution": true}

func newText(s string, p *Plan) *text {
	t := &text{raw: s, lower: lowerASCII(s), workspace: p.Judge.Workspace, home: p.Agent.Home}
	for _, m := range absolutePath.FindAllStringSubmatchIndex(s, -1) {
		dir := strings.TrimRight(s[m[2]:m[3]], ".")
		dir = path.Clean(dir)
		if !wide[dir] && dir != p.Agent.Home && t.sense(m[2]) == affirmed {
			t.dirs = append(t.dirs, dir)
		}
	}
	return t
}

// contains tells whether a path lies below a directory that the text names.
func (t *text) contains(p string) bool { return under(p, t.dirs) }

// names tells whether the text names a resource. A mention in a sentence that forbids it doesn't count; one that
// forbids to change it counts for reading.
func (t *text) names(kind bodycam.ResourceKind, name string, changes bool) bool {
	if t.raw == "" || name == "" {
		return false
	}
	switch kind {
	case bodycam.Host:
		return t.find(name, false, false) || t.find(strings.TrimPrefix(name, "www."), false, false)
	case bodycam.Command:
		base := path.Base(name)
		return len(base) > 2 && (t.find(base, true, false) || t.find(Program(name), true, false)) || t.find(name, true, false)
	}
	if t.find(name, true, changes) {
		return true
	}
	if rest, ok := strings.CutPrefix(name, t.home+"/"); ok && t.home != "" && t.find("~/"+rest, true, changes) {
		return true
	}
	for _, w := range t.workspace {
		rel, ok := strings.CutPrefix(name, w+"/")
		if !ok {
			continue
		}
		if len(rel) > 2 && t.find(rel, true, changes) {
			return true
		}
		base := path.Base(rel)
		if strings.ContainsRune(base, '.') && len(base) > 4 && t.find(base, true, changes) {
			return true
		}
	}
	return t.topic(strings.ToLower(name), changes)
}

// topics are files that a text asks for by what they are rather than by name.
var topics = []struct{ in, words []string }{
	{[]string{"/.github/", "/.gitlab-ci", "/.circleci/", "/jenkinsfile", "/.travis.yml", "/azure-pipelines"},
		[]string{"ci", "ci/cd", "workflow", "workflows", "github actions", "github action", "gitlab ci", "pipeline", "jenkins", "continuous integration"}},
	{[]string{"/.git/hooks/", "/.husky/", "/.githooks/", "/.pre-commit-config"}, []string{"git hook", "git hooks", "hook", "hooks", "pre-commit", "post-commit", "pre-push", "husky"}},
	{[]string{"/makefile", "/gnumakefile"}, []string{"makefile", "make"}},
	{[]string{"/package.json", "/package-lock.json"}, []string{"npm", "package.json", "node package"}},
	{[]string{"/setup.py", "/pyproject.toml", "/setup.cfg"}, []string{"python package", "pyproject", "setup.py", "pip install -e"}},
	{[]string{"/dockerfile", "/docker-compose"}, []string{"docker", "dockerfile", "container image"}},
	{[]string{"/cmakelists.txt"}, []string{"cmake"}}, {[]string{"/cargo.toml", "/build.rs"}, []string{"cargo", "rust", "crate"}},
	{[]string{"/conftest.py"}, []string{"pytest", "conftest"}}, {[]string{"crontab", "/cron."}, []string{"cron", "crontab", "cron job"}},
	{[]string{"/.ssh/"}, []string{"ssh key", "ssh keys", "authorized_keys", "ssh"}},
	{[]string{"/systemd/"}, []string{"systemd", "systemd unit", "systemd service"}},
	{[]string{"/.vscode/"}, []string{"vscode", "vs code"}}, {[]string{"/.devcontainer"}, []string{"devcontainer", "dev container"}},
	{[]string{"/agents.md", "/claude.md", "/gemini.md"}, []string{"agents.md", "claude.md", "gemini.md"}},
}

func (t *text) topic(lower string, changes bool) bool {
	for _, topic := range topics {
		for _, in := range topic.in {
			if !strings.Contains(lower, in) {
				continue
			}
			for _, w := range topic.words {
				if t.find(w, true, changes) {
					return true
				}
			}
		}
	}
	return false
}

// find looks for a word that stands alone. A slash before or after it makes it a part of a longer path where slashes
// is set; in hosts it doesn't.
func (t *text) find(word string, slashes, changes bool) bool {
	word = lowerASCII(word)
	for from := 0; word != ""; {
		i := strings.Index(t.lower[from:], word)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(word)
		if !goesOn(t.lower, start-1, -1, slashes) && !goesOn(t.lower, end, 1, slashes) {
			switch s := t.sense(start); {
			case s == affirmed, s == keepAsIs && !changes:
				return true
			}
		}
		from = start + 1
	}
	return false
}

func goesOn(s string, i, step int, slashes bool) bool {
	if i < 0 || i >= len(s) {
		return false
	}
	c := s[i]
	if c == '/' {
		// "dir/" at the end of a word is still the directory itself.
		next := i + step
		return slashes && (step < 0 || next < len(s) && wordByte(s[next]))
	}
	if c == '.' || c == '-' || c == '@' && step < 0 {
		next := i + step
		return next >= 0 && next < len(s) && wordByte(s[next])
	}
	return wordByte(c)
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}

type sense int

const (
	affirmed sense = iota
	keepAsIs       // the sentence forbids to change it
	forbidden
)

var (
	negation = regexp.MustCompile(`(?i)\b(?:do not|don't|must not|mustn't|never|should not|shouldn't|may not|cannot|can't|without|avoid|forbidden|prohibited|no need to)\b`)
	altering = regexp.MustCompile(`(?i)\b(?:chang|modif|edit|writ|delet|remov|overwrit|alter|renam|mov|touch|commit|creat)[a-z]*\b`)
	using    = regexp.MustCompile(`(?i)\b(?:read|open|look|access|use|using|contact|visit|call|connect|fetch|download|run|execut|inspect|view)[a-z]*\b`)
)

// sense tells how the sentence speaks of what stands at a place: a negation before it, in the same sentence, turns it.
func (t *text) sense(at int) sense {
	begin := 0
	for i := at - 1; i > 0; i-- {
		if c := t.raw[i]; (c == '.' || c == '!' || c == '?' || c == ';') && (t.raw[min(i+1, len(t.raw)-1)] == ' ' || t.raw[min(i+1, len(t.raw)-1)] == '\n') ||
			c == '\n' && t.raw[i-1] == '\n' {
			begin = i + 1
			break
		}
	}
	before := t.raw[begin:at]
	m := negation.FindAllStringIndex(before, -1)
	if m == nil {
		return affirmed
	}
	after := before[m[len(m)-1][1]:]
	if altering.MatchString(after) && !using.MatchString(after) {
		return keepAsIs
	}
	return forbidden
}
