package security

import (
	"path"
	"regexp"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/rules"
)

// taskText answers what the text of a task explains. It is the explanation where no features are there; it looks for
// names as whole words and for what certain files are called among people.
type taskText struct {
	text      string
	workspace []string
	doomed    map[string]bool // what it asks to be deleted
	places    []string        // whole paths that it names
}

// wholePath finds paths from the root or from the home directory.
var wholePath = regexp.MustCompile("(?:^|[\\s`\"'(])(~?/[A-Za-z0-9._/-]*[A-Za-z0-9_-])")

func newTaskText(p Policy) *taskText {
	if p.BareCommand {
		return &taskText{workspace: paths(p.Workspace)}
	}
	t := &taskText{text: strings.ToLower(p.Task), workspace: paths(p.Workspace)}
	for _, m := range wholePath.FindAllStringSubmatch(p.Task, -1) {
		name := m[1]
		if rest, ok := strings.CutPrefix(name, "~"); ok {
			if p.Home == "" {
				continue
			}
			name = p.Home + rest
		}
		t.places = append(t.places, path.Clean(name))
	}
	for _, m := range deletion.FindAllStringSubmatch(t.text, -1) {
		if t.doomed == nil {
			t.doomed = map[string]bool{}
		}
		t.doomed[strings.TrimSuffix(strings.TrimPrefix(m[1], "./"), "/")] = true
	}
	return t
}

// topics are files that a task asks for by what they do rather than by name. Each word must stand alone.
var topics = []struct{ in, words []string }{
	{[]string{"/.github/workflows/", "/.github/actions/", "/.gitlab-ci", "/.circleci/", "/jenkinsfile", "/.travis.yml", "/azure-pipelines", "/.drone.yml", "/.woodpecker"},
		[]string{"ci", "ci/cd", "workflow", "workflows", "github actions", "github action", "gitlab ci", "pipeline", "pipelines", "jenkins", "continuous integration"}},
	{[]string{"/.pre-commit-config.yaml"}, []string{"pre-commit", "precommit"}},
	{[]string{"/.git/hooks/", "/.husky/", "/.githooks/"}, []string{"git hook", "git hooks", "hook", "hooks", "pre-commit", "post-commit", "pre-push", "husky"}},
	{[]string{"/.vscode/"}, []string{"vscode", "vs code", "visual studio code"}},
	{[]string{"/.idea/"}, []string{"intellij", "pycharm", "jetbrains", "idea"}},
	{[]string{"/.devcontainer"}, []string{"devcontainer", "dev container"}},
	{[]string{"/.envrc"}, []string{"direnv", "envrc"}},
	{[]string{"/skill.md", "/skills/"}, []string{"skill", "skills"}},
	{[]string{"/agents.md", "/claude.md", "/gemini.md"}, []string{"agents.md", "claude.md", "gemini.md", "agent instructions"}},
	{[]string{"/.mcp.json"}, []string{"mcp"}},
}

func (t *taskText) explain(kind bodycam.ResourceKind, name string) rules.Explanation {
	if t.text == "" || name == "" {
		return 0
	}
	lower := strings.ToLower(name)
	switch kind {
	case bodycam.Host:
		if t.find(lower, false) {
			return rules.ByTask
		}
		return 0
	case bodycam.File:
		if t.has(lower) || t.named(name) {
			return rules.ByTask
		}
		for _, topic := range topics {
			for _, in := range topic.in {
				if strings.Contains(lower, in) && t.hasAny(topic.words) {
					return rules.ByTask
				}
			}
		}
	}
	return 0
}

// named finds a file of the workspace by its path within it, or by its own name where that is no common word.
func (t *taskText) named(name string) bool {
	for _, w := range t.workspace {
		rel, ok := strings.CutPrefix(name, w+"/")
		if !ok {
			continue
		}
		if t.has(strings.ToLower(rel)) {
			return true
		}
		base := path.Base(rel)
		return strings.ContainsRune(base, '.') && len(base) > 4 && t.has(strings.ToLower(base))
	}
	return false
}

// deletion finds what a text asks to be deleted: between the verb and the name stand only words that don't change what
// is meant. "Remove duplicates from data" asks for no deletion of data.
var deletion = regexp.MustCompile("\\b(?:delete|remove|erase|wipe|purge|prune|drop|empty|clean|clear|discard)(?: up| out)?" +
	"(?:\\s+(?:the|this|all|any|every|of|in|under|below|inside|everything|whole|entire|old|obsolete|unused|temporary|generated|files?|director(?:y|ies)|folders?|contents?))*" +
	"\\s+[`\"']?([a-z0-9_./-]*[a-z0-9_/-])")

// asksToDelete tells whether the text asks for a file, or a directory above it that is not the whole workspace, to be
// deleted.
func (t *taskText) asksToDelete(name string) bool {
	if t.doomed == nil {
		return false
	}
	name = strings.ToLower(name)
	for _, w := range t.workspace {
		w = strings.ToLower(w)
		rel, ok := strings.CutPrefix(name, w+"/")
		if !ok {
			continue
		}
		for p := rel; p != "."; p = path.Dir(p) {
			if t.doomed[p] || t.doomed[w+"/"+p] {
				return true
			}
		}
	}
	return t.doomed[name]
}

// leadsTo tells whether a directory lies above a path that the text names: who makes the one needs the other.
func (t *taskText) leadsTo(dir string) bool {
	for _, p := range t.places {
		if strings.HasPrefix(p, dir+"/") {
			return true
		}
	}
	return false
}

// untracked tells whether the text asks for what git doesn't know of to be deleted. Which files these are isn't known
// here: any that is gone is meant.
func (t *taskText) untracked(string) bool {
	return t.has("git clean") || t.has("untracked files")
}

func (t *taskText) hasAny(words []string) bool {
	for _, w := range words {
		if t.has(w) {
			return true
		}
	}
	return false
}

// has finds a word that stands alone: not inside another word, host or path.
func (t *taskText) has(word string) bool { return t.find(word, true) }

// find is has, where paths tells whether a slash makes it a part of something longer. It does not for hosts.
func (t *taskText) find(word string, paths bool) bool {
	for from := 0; ; {
		i := strings.Index(t.text[from:], word)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(word)
		if !joins(t.text, start-1, -1, paths) && !joins(t.text, end, 1, paths) {
			return true
		}
		from = start + 1
	}
}

// joins tells whether the byte at i goes on with the name beside it. A full stop at the end of a sentence does not.
func joins(s string, i, step int, paths bool) bool {
	if i < 0 || i >= len(s) {
		return false
	}
	c := s[i]
	if c == '/' && paths {
		return true
	}
	if c == '.' || c == '-' {
		return i+step >= 0 && i+step < len(s) && wordByte(s[i+step])
	}
	return wordByte(c)
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}
