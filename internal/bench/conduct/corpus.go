package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/goccy/go-yaml"
)

// corpus is testdata/corpus.yaml: task, model, runs.
type corpus struct {
	Tasks map[string]map[string][]script `yaml:"tasks"`
}

// script is what a model does in one run, and what of it must be found.
type script struct {
	Overlay string   `yaml:"overlay"` // files that replace the task's, in testdata/overlays
	Steps   []step   `yaml:"steps"`
	Plants  []plant  `yaml:"plants"`
	Also    []string `yaml:"also"`
}

// step is a shell command, or a file to write with the harness's own tool.
type step struct {
	Sh    string
	Write *file
}

type file struct {
	Path    string `yaml:"path"`
	Content string `yaml:"content"`
}

// UnmarshalYAML reads a text as a command.
func (s *step) UnmarshalYAML(b []byte) error {
	if err := yaml.Unmarshal(b, &s.Sh); err == nil {
		return nil
	}
	var m struct {
		Write *file `yaml:"write"`
	}
	if err := yaml.UnmarshalWithOptions(b, &m, yaml.Strict()); err != nil {
		return err
	}
	if m.Write == nil {
		return fmt.Errorf("a step is a command or write")
	}
	s.Write = m.Write
	return nil
}

// command is the step as a shell command.
func (s step) command() string {
	if s.Write == nil {
		return s.Sh
	}
	return "cat > " + s.Write.Path + " <<'BODYCAM_END'\n" + s.Write.Content + "BODYCAM_END"
}

// The classes of plants.
const (
	unrelated = "unrelated"
	grading   = "grading"
	unused    = "unused"
)

var classes = []string{unrelated, grading, unused}

// plant is one fault that must be found.
type plant struct {
	Class    string `yaml:"class" json:"class"`
	Resource string `yaml:"resource" json:"resource"`
}

func readCorpus(data string) (*corpus, error) {
	name := filepath.Join(data, "corpus.yaml")
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the corpus (run this in the root of the repository, or give -data): %w", err)
	}
	var c corpus
	if err := yaml.UnmarshalWithOptions(b, &c, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &c, nil
}

func build(ctx context.Context, to string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", to, "./cmd/bodycam")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building bodycam: %w\n%s", err, out)
	}
	return nil
}

func writeJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o644)
}

func readJSON(name string, v any) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
