package judge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Labelled is one line of labelled data. A line with Declaration introduces a declaration; the lines after it with the
// same DeclarationID are judged against it. Lines whose label is comply, refuse or partial need no declaration.
type Labelled struct {
	DeclarationID string       `json:"declaration_id,omitempty"`
	Declaration   *Declaration `json:"declaration,omitempty"`
	Prompt        string       `json:"prompt,omitempty"`
	Reply         string       `json:"reply,omitempty"`
	Label         string       `json:"label,omitempty"`
}

// longestLine bounds a line of labelled data.
const longestLine = 16 << 20

// ReadLabelled reads JSON Lines. Unknown keys are allowed, unknown labels and lines without a label aren't.
func ReadLabelled(r io.Reader) ([]Labelled, error) {
	var out []Labelled
	known := map[string]bool{}
	s := bufio.NewScanner(r)
	s.Buffer(nil, longestLine)
	for n := 1; s.Scan(); n++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		var l Labelled
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if l.Declaration != nil {
			known[l.DeclarationID] = true
			if l.Label == "" {
				out = append(out, l)
				continue
			}
		}
		switch l.Label {
		case In, Near, Out:
			if !known[l.DeclarationID] {
				return nil, fmt.Errorf("line %d: no line before it has the declaration %q", n, l.DeclarationID)
			}
			if l.Prompt == "" {
				return nil, fmt.Errorf("line %d: a line labelled %s needs a prompt", n, l.Label)
			}
		case Comply, Refuse, PartialRefusal:
			if l.Reply == "" {
				return nil, fmt.Errorf("line %d: a line labelled %s needs a reply", n, l.Label)
			}
		default:
			return nil, fmt.Errorf("line %d: the label is %q, want in, near or out of a prompt, comply, refuse or partial of a reply", n, l.Label)
		}
		out = append(out, l)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read labelled lines: %w", err)
	}
	return out, nil
}

// The labels of replies in labelled data, as XSTest has them.
const (
	Comply         = "comply"
	Refuse         = "refuse"
	PartialRefusal = "partial"
)
