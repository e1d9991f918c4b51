// Package attacks is a corpus of small attacks on a sandbox, and of harmless twins that look like them. Each is a
// declarative file: a workspace, a skill or a tool's output, what the model does, and an oracle that tells, without any
// sensor of ours, whether the attack really executed. `go run ./internal/bench/attack` plays them.
//
// All attacks were written for this corpus. They are bounded: they harm nothing but the sandbox that they run in.
package attacks

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/goccy/go-yaml"
)

//go:embed attack/*.yaml benign/*.yaml
var files embed.FS

// Case is one attack or one harmless twin.
type Case struct {
	Name  string   `yaml:"-"`              // of its file, without the ending
	Harm  bool     `yaml:"-"`              // an attack
	Class string   `yaml:"class"`          // class of rules that the attack belongs to, or that the twin looks like
	Title string   `yaml:"title"`          // one line
	Also  []string `yaml:"also,omitempty"` // further classes of which a finding counts as naming the attack

	Instruction string            `yaml:"instruction"`         // the task's text
	Workspace   map[string]string `yaml:"workspace,omitempty"` // files below /workspace
	Files       map[string]string `yaml:"files,omitempty"`     // further files of the sandbox, by absolute path
	Setup       string            `yaml:"setup,omitempty"`     // shell script, as root, before the agent starts
	Skill       Skill             `yaml:"skill,omitempty"`
	Turns       []map[string]any  `yaml:"turns,omitempty"` // of the scripted model; default: reads the skill, runs its run.sh
	Tests       string            `yaml:"tests,omitempty"` // a file of the task's tests that only the oracle has: expected.txt

	// Command is a bare command instead of a task: the case is played as "bodycam run -- COMMAND" in the workspace. There is
	// no instruction then, no setup, no skill, and of the oracle only what was sent.
	Command []string `yaml:"command,omitempty"`

	Decoys  bool   `yaml:"decoys,omitempty"`
	Seccomp string `yaml:"seccomp,omitempty"` // default: strict
	User    string `yaml:"user,omitempty"`
	PIDs    int    `yaml:"pids,omitempty"`
	Allow   Allow  `yaml:"allow,omitempty"` // what the kind declares legitimate for such tasks
	Quick   bool   `yaml:"quick,omitempty"` // belongs to the short selection
	Oracle  Oracle `yaml:"oracle"`
}

// Skill is what the task brings along for the agent.
type Skill struct {
	Name  string            `yaml:"name"`
	Text  string            `yaml:"text"`  // of SKILL.md, after its head
	Files map[string]string `yaml:"files"` // scripts/run.sh …
}

// Allow is what the kind of such tasks allows.
type Allow struct {
	Files    []string `yaml:"files,omitempty"`
	Commands []string `yaml:"commands,omitempty"`
}

// Oracle tells whether a case was carried out. All that is given must hold.
type Oracle struct {
	// Script is run in the sandbox after the agent ended, outside what is observed; exit status 0: it was carried out.
	Script string `yaml:"script,omitempty"`
	// Sent is what the stand-in server must have got.
	Sent []Sent `yaml:"sent,omitempty"`
}

// Sent is something that the stand-in server must have got.
type Sent struct {
	Host string `yaml:"host"`
	// Contains is looked for in the address and body of requests to the host; MARKER stands for the run's own marker.
	Contains string `yaml:"contains"`
	As       string `yaml:"as,omitempty"` // how it is written: plain (default), base64, gzip, hex, reversed
}

// Marker stands in a case's texts for a value that is new in every run.
const Marker = "MARKER"

// Load reads the corpus, attacks first, each in the order of names.
func Load() ([]Case, error) {
	var out []Case
	for _, dir := range []string{"attack", "benign"} {
		names, err := fs.Glob(files, dir+"/*.yaml")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			b, err := files.ReadFile(name)
			if err != nil {
				return nil, err
			}
			c := Case{Name: strings.TrimSuffix(path.Base(name), ".yaml"), Harm: dir == "attack"}
			if err := yaml.UnmarshalWithOptions(b, &c, yaml.Strict()); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if err := c.check(); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out = append(out, c)
		}
	}
	return out, nil
}

func (c *Case) check() error {
	switch {
	case c.Title == "" || c.Class == "" || c.Instruction == "" && len(c.Command) == 0:
		return fmt.Errorf("want class, title and instruction, or a command")
	case len(c.Command) > 0 && (c.Instruction != "" || c.Setup != "" || len(c.Files)+len(c.Skill.Files)+len(c.Turns) > 0 || c.Oracle.Script != ""):
		return fmt.Errorf("a bare command has no instruction, setup, files, skill, turns and oracle's script")
	case c.Oracle.Script == "" && len(c.Oracle.Sent) == 0:
		return fmt.Errorf("without an oracle nobody knows whether it was carried out")
	case len(c.Command) == 0 && len(c.Turns) == 0 && c.Skill.Files["scripts/run.sh"] == "":
		return fmt.Errorf("want turns, or a skill with scripts/run.sh")
	}
	if c.Skill.Name == "" {
		c.Skill.Name = "helper"
	}
	return nil
}
