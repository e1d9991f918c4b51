// Package probe makes the questions of a trust audit from a declaration: in scope, out of scope and near-miss.
//
// The generator is deterministic: the same declaration, seed and background give the same probes. Probes are plain JSON
// Lines that people can write, edit, keep and replay.
package probe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/bodycam-dev/bodycam/internal/trust"
)

// maxProbe bounds a probe's line, in bytes.
const maxProbe = 1 << 20

// Write writes probes as JSON Lines.
func Write(w io.Writer, list []trust.Probe) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	for i := range list {
		if err := e.Encode(&list[i]); err != nil {
			return fmt.Errorf("writing probe %s: %w", list[i].ID, err)
		}
	}
	return b.Flush()
}

// Read reads probes from JSON Lines. Blank lines and those that begin with # are left out. Ids are made where there are
// none. d, if it isn't nil, must have the skills that probes name.
func Read(r io.Reader, d *trust.Declaration) ([]trust.Probe, error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxProbe)
	var out []trust.Probe
	ids, texts := map[string]int{}, map[string]int{}
	for n := 1; s.Scan(); n++ {
		line := bytes.TrimSpace(s.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var p trust.Probe
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&p); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if p.ID == "" {
			p.ID = fmt.Sprintf("%s-file-%d", p.Scope, n)
		}
		if p.Origin == "" {
			p.Origin = "file"
		}
		if err := check(&p, d); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if at, ok := ids[p.ID]; ok {
			return nil, fmt.Errorf("line %d: id %q is that of line %d", n, p.ID, at)
		}
		if at, ok := texts[key(p.Text)]; ok && p.Of == "" {
			return nil, fmt.Errorf("line %d: its text is that of line %d: use repeats to ask again", n, at)
		}
		ids[p.ID], texts[key(p.Text)] = n, n
		out = append(out, p)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("reading probes: %w", err)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no probe in it")
	}
	return out, nil
}

func check(p *trust.Probe, d *trust.Declaration) error {
	switch p.Scope {
	case trust.In, trust.Out, trust.Near:
	default:
		return fmt.Errorf("scope %q: want in, out or near", p.Scope)
	}
	if strings.TrimSpace(p.Text) == "" {
		return errors.New("the probe has no text")
	}
	if p.Skill == "" || d == nil {
		return nil
	}
	for _, s := range d.Skills {
		if s.ID == p.Skill {
			return nil
		}
	}
	return fmt.Errorf("the declaration has no skill %q", p.Skill)
}

// Repeat makes each probe be sent n times.
func Repeat(list []trust.Probe, n int) []trust.Probe {
	if n <= 1 {
		return list
	}
	out := make([]trust.Probe, 0, n*len(list))
	for r := 1; r <= n; r++ { // whole rounds: what changes over time then hits all probes alike
		for _, p := range list {
			p.Of, p.Repeat = p.ID, r
			p.ID = fmt.Sprintf("%s.%d", p.ID, r)
			out = append(out, p)
		}
	}
	return out
}

// key makes texts comparable: their words in lower case.
func key(s string) string { return strings.Join(words(s), " ") }

func words(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// stop are words that say nothing of a topic.
var stop = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(`a an and any are as at be by can could do does for from get give have help how i if in into is it its just
		let like make me my need of on or our out please provide provides service should show some tell than that the their them they this to
		up use user users using want we what when where which who will with would you your agent skill tool tools about information via
		given based ask asks answer answers handle handles return returns retrieve retrieves current`) {
		m[w] = true
	}
	return m
}()

// content are the words of a text that may say what it is about.
func content(s string) []string {
	var out []string
	for _, w := range words(s) {
		if len(w) > 2 && !stop[w] {
			out = append(out, w)
		}
	}
	return out
}

// stem cuts the endings that make words of one kind differ.
func stem(w string) string {
	for _, e := range []string{"ations", "ation", "ings", "ing", "ies", "ers", "er", "ed", "es", "s"} {
		if len(w) > len(e)+3 && strings.HasSuffix(w, e) {
			return w[:len(w)-len(e)]
		}
	}
	return w
}
