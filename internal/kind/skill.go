package kind

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

const (
	skillFile     = "SKILL.md"
	maxSkillFile  = 1 << 20
	maxSkillCount = 1000
	maxDocument   = 64 << 10 // bytes of a SKILL.md that a plan keeps
)

// frontMatter is what a SKILL.md says of itself between two lines of three dashes.
type frontMatter struct {
	Name        string
	Description string
}

// parseFrontMatter reads the head of a SKILL.md. A file without one has an empty front matter; a broken one is an
// error, with what could be read. Unknown keys are fine.
func parseFrontMatter(data []byte) (frontMatter, error) {
	var fm frontMatter
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(data, []byte("---\n"))
	if !ok {
		return fm, nil
	}
	head, _, ok := bytes.Cut(append([]byte("\n"), rest...), []byte("\n---"))
	if !ok {
		return fm, errors.New("the front matter has no end: want a line of three dashes")
	}
	n, probs := parseYAML(head, &source{name: skillFile})
	if err := probs.Err(); err != nil {
		return fm, err
	}
	if n == nil {
		return fm, nil
	}
	if n.kind != mapNode {
		return fm, fmt.Errorf("the front matter is %s, not a map", n.kind)
	}
	fm.Name = strings.TrimSpace(n.get("name").scalar())
	fm.Description = strings.TrimSpace(n.get("description").scalar())
	return fm, nil
}

// scalar is a value's text; empty for lists, maps and nothing.
func (n *node) scalar() string {
	if n == nil || n.kind == listNode || n.kind == mapNode {
		return ""
	}
	return n.text
}

// readSkill reads the skill in dir. Notes tell of a front matter that can't be read or that names it otherwise.
func readSkill(dir, taskDir string) (Skill, []Note, error) {
	s := Skill{Name: filepath.Base(dir), Host: dir}
	m, err := ReadManifest(dir)
	if err != nil {
		return s, nil, fmt.Errorf("skill %s: %w", s.Name, err)
	}
	s.Files, s.SHA256 = m.Files, m.SHA256
	file := filepath.Join(dir, skillFile)
	shown := relTo(taskDir, file)
	var notes []Note
	data, err := readIn(dir, skillFile, maxSkillFile)
	if err != nil {
		return s, []Note{{File: shown, Text: "skill " + s.Name + ": " + cause(err).Error()}}, nil
	}
	s.Document = bodycam.Escape(string(data[:min(len(data), maxDocument)]))
	fm, err := parseFrontMatter(data)
	if err != nil {
		notes = append(notes, Note{File: shown, Text: "skill " + s.Name + ": " + err.Error()})
	}
	if fm.Name != "" && fm.Name != s.Name {
		notes = append(notes, Note{File: shown, Text: fmt.Sprintf("skill %s calls itself %s", s.Name, quote(fm.Name))})
	}
	s.Description = fm.Description
	return s, notes, nil
}

// findSkills looks for directories with a SKILL.md below dir; a skill inside a skill is part of the outer one.
func findSkills(dir string) ([]string, error) {
	var out []string
	err := walkHost(dir, nil, func(e hostEntry) error {
		if filepath.Base(e.rel) != skillFile || e.mode.IsDir() {
			return nil
		}
		if len(out) >= maxSkillCount {
			return fmt.Errorf("more than %d skills", maxSkillCount)
		}
		out = append(out, filepath.Join(dir, filepath.Dir(e.rel)))
		return nil
	})
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("looking for skills in %s: %w", dir, err)
	}
	sort.Strings(out)
	kept := out[:0]
	for _, d := range out {
		if len(kept) == 0 || !strings.HasPrefix(d+"/", kept[len(kept)-1]+"/") {
			kept = append(kept, d)
		}
	}
	return kept, nil
}
