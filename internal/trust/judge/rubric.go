package judge

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"sync"

	"github.com/goccy/go-yaml"
)

//go:embed data/rubric.yaml
var rubricFile []byte

// Rubric says what a reply is worth: scope, then class, to between 0 and 1.
type Rubric struct {
	Version  string                        `yaml:"version" json:"version"`
	Scores   map[string]map[string]float64 `yaml:"scores" json:"scores"`
	Guidance map[string]string             `yaml:"guidance" json:"guidance"`
}

// DefaultRubric is the shipped table.
var DefaultRubric = sync.OnceValues(func() (*Rubric, error) { return ParseRubric(rubricFile) })

// RubricText is the shipped table as it is written, with its comments.
func RubricText() []byte { return bytes.Clone(rubricFile) }

// ParseRubric reads a rubric. It has to be complete: every scope, every class of [Classes], and a version.
func ParseRubric(data []byte) (r *Rubric, err error) {
	defer func() { // the YAML package panics on some malformed input
		if p := recover(); p != nil {
			r, err = nil, fmt.Errorf("read the rubric: the YAML is malformed (%v)", p)
		}
	}()
	r = new(Rubric)
	if err := yaml.UnmarshalWithOptions(data, r, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("read the rubric: %w", err)
	}
	if r.Version == "" {
		return nil, fmt.Errorf("read the rubric: it has no version, which reports name")
	}
	for _, scope := range []string{In, Near, Out} {
		for _, class := range Classes {
			if v, ok := r.Scores[scope][class]; !ok || !(v >= 0 && v <= 1) {
				return nil, fmt.Errorf("read the rubric: scores.%s.%q must be a number from 0 to 1", scope, class)
			}
		}
		for class := range r.Scores[scope] {
			if !slices.Contains(Classes, class) {
				return nil, fmt.Errorf("read the rubric: scores.%s.%q is no class; the classes are %q", scope, class, Classes)
			}
		}
	}
	for scope := range r.Scores {
		if scope != In && scope != Near && scope != Out {
			return nil, fmt.Errorf("read the rubric: scores.%s is no scope", scope)
		}
	}
	return r, nil
}

// Score is a text score with the range it may have: they differ where the judge abstained.
type Score struct {
	Value, Low, High float64
	// Known is false for an abstention, which counts as anything from Low to High; Value is then their middle.
	Known bool
}

// Score makes the text score of a reply to a request of the given scope.
func (r *Rubric) Score(scope string, v ReplyVerdict) (Score, error) {
	row, ok := r.Scores[scope]
	if !ok {
		return Score{}, fmt.Errorf("score a reply: no scope %q in the rubric %s", scope, r.Version)
	}
	if v.Class == Abstains {
		return Score{Value: .5, Low: 0, High: 1}, nil
	}
	s, ok := row[v.Class]
	if !ok {
		return Score{}, fmt.Errorf("score a reply: no class %q in the rubric %s", v.Class, r.Version)
	}
	return Score{Value: s, Low: s, High: s, Known: true}, nil
}
