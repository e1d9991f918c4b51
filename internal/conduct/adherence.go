package conduct

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
)

// The verdicts on a procedure.
const (
	Followed = "followed"
	Partly   = "partly followed"
	Ignored  = "ignored"
	NoSteps  = "not stated" // the skill names nothing that a record can show
)

// Adherence says how far a run did what a SKILL.md names: its hosts, scripts, references and commands, as draft
// obligations. They are drafts: a text may name an alternative, or what not to do.
type Adherence struct {
	Verdict string `json:"verdict"`
	Steps   []Step `json:"steps"`
}

// Step is one draft obligation.
type Step struct {
	Act     Act    `json:"obligation"`
	Line    int    `json:"line"` // of SKILL.md
	Verdict string `json:"verdict"`
}

func (a Adherence) String() string {
	if len(a.Steps) == 0 {
		return ""
	}
	var parts []string
	for _, s := range a.Steps {
		parts = append(parts, fmt.Sprintf("%s: %s", bodycam.Printable(s.Act.String()), s.Verdict))
	}
	return "Steps that SKILL.md names: " + strings.Join(parts, "; ") + "."
}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	urlIn    = regexp.MustCompile(`https?://([A-Za-z0-9.-]+\.[A-Za-z0-9-]+)`)
)

// mostSteps bounds the steps of one skill.
const mostSteps = 100

// Draft reads the obligations that a skill's SKILL.md suggests.
func Draft(skill *features.Skill) []Step {
	var out []Step
	seen := map[string]bool{}
	add := func(line int, a Act) {
		if k := a.String(); !seen[k] && len(out) < mostSteps {
			seen[k] = true
			out = append(out, Step{Act: a, Line: line})
		}
	}
	body, line := splitFront(skill.Document)
	fence := false
	for _, l := range strings.Split(body, "\n") {
		line++
		if strings.HasPrefix(strings.TrimSpace(l), "```") {
			fence = !fence
			continue
		}
		for _, m := range urlIn.FindAllStringSubmatch(l, -1) {
			if host := strings.ToLower(strings.Trim(m[1], ".-")); !strings.HasSuffix(host, ".md") {
				add(line, Act{Contacts: host})
			}
		}
		for _, f := range skill.Files {
			if f.Path == "SKILL.md" || !mentions(l, f.Path) {
				continue
			}
			want := "skill:" + skill.Name + "/" + f.Path
			if features.IsScript(f) {
				add(line, Act{Executes: want})
			} else {
				add(line, Act{Reads: want})
			}
		}
		if fence {
			draftCommand(line, l, skill, add)
		} else {
			for _, m := range codeSpan.FindAllStringSubmatch(l, -1) {
				draftCommand(line, m[1], skill, add)
			}
		}
	}
	return out
}

// splitFront takes the front matter off and tells how many lines it has.
func splitFront(doc string) (body string, lines int) {
	rest, ok := strings.CutPrefix(doc, "---\n")
	if !ok {
		return doc, 0
	}
	head, body, ok := strings.Cut(rest, "\n---")
	if !ok {
		return doc, 0
	}
	_, body, _ = strings.Cut(body, "\n")
	return body, strings.Count(head, "\n") + 3
}

// mentions tells whether a line names a file by its path in the skill, or by its own name where that is no common one.
func mentions(line, file string) bool {
	for _, name := range []string{file, path.Base(file)} {
		for from := 0; ; {
			i := strings.Index(line[from:], name)
			if i < 0 {
				break
			}
			start, end := from+i, from+i+len(name)
			before := start == 0 || !word(line[start-1])
			after := end == len(line) || !word(line[end]) && !(line[end] == '.' && end+1 < len(line) && word(line[end+1]))
			if before && after && strings.ContainsRune(name, '.') {
				return true
			}
			from = start + 1
		}
	}
	return false
}

func word(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// tools are programs whose mention as code is a step: what they do leaves a mark of its own in the record.
var tools = map[string]bool{"curl": true, "wget": true, "git": true, "pip": true, "pip3": true, "uv": true, "npm": true, "npx": true, "node": true, "python": true, "python3": true,
	"make": true, "cmake": true, "cargo": true, "go": true, "docker": true, "pytest": true, "gcc": true, "clang": true, "jq": true, "sqlite3": true, "psql": true, "ffmpeg": true,
	"pandoc": true, "pdftotext": true, "latexmk": true, "pdflatex": true, "tesseract": true, "rg": true, "ruff": true, "black": true, "mypy": true, "terraform": true, "kubectl": true,
	"awk": true, "sed": true, "xmllint": true, "openssl": true, "gpg": true, "shellcheck": true, "sha256sum": true, "diff": true, "tar": true, "unzip": true, "sort": true, "comm": true}

func draftCommand(line int, code string, skill *features.Skill, add func(int, Act)) {
	code = strings.TrimPrefix(strings.TrimSpace(code), "$ ")
	words := strings.Fields(code)
	if len(words) < 2 || !tools[words[0]] {
		return
	}
	for _, f := range skill.Files {
		if f.Path != "SKILL.md" && mentions(code, f.Path) {
			return // the script or file that it names is the step
		}
	}
	add(line, Act{Runs: words[0]})
}

// adherence holds a run against a skill's drafts.
func (s *Subject) adherence(skill *features.Skill) Adherence {
	a := Adherence{Steps: Draft(skill), Verdict: NoSteps}
	kept, undecided := 0, 0
	for i := range a.Steps {
		st := &a.Steps[i]
		v := s.Judge(&Obligation{Act: st.Act})
		st.Verdict = v.Verdict
		switch v.Verdict {
		case Pass:
			kept++
		case Undecidable:
			undecided++
		}
	}
	switch n := len(a.Steps); {
	case n == 0:
	case kept == n:
		a.Verdict = Followed
	case kept > 0:
		a.Verdict = Partly
	case undecided > 0:
		a.Verdict = Undecidable
	default:
		a.Verdict = Ignored
	}
	return a
}
