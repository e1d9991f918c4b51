package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/declare"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

// The files of an audit's directory. All but the report are its evidence: the report can be made again from them.
const (
	MetaFile        = "audit.json"
	DeclarationFile = "declaration.raw" // as served
	ProbesFile      = "probes.jsonl"
	DroppedFile     = "dropped.jsonl" // probes that the scope judge found to belong to another scope
	ExchangesFile   = "exchanges.jsonl"
	TracesFile      = "traces.jsonl" // as received over OTLP
	CallsFile       = "calls.jsonl"
	EffectsFile     = "effects.jsonl"
	OpinionsFile    = "opinions.jsonl"
	ToolsFile       = "tools.json"
	ReportFile      = "report.json"
)

// Schema is the version of an audit's directory.
const Schema = 1

// Meta is what an audit is of, and how it was made. It holds no secret.
type Meta struct {
	Schema      int                `json:"schema"`
	Tool        string             `json:"tool,omitempty"`
	Target      string             `json:"target"`
	Started     time.Time          `json:"started"`
	Ended       time.Time          `json:"ended,omitzero"`
	Seed        uint64             `json:"seed"`
	PerScope    int                `json:"per_scope"`
	Repeat      int                `json:"repeat"`
	Rounds      int                `json:"rounds,omitempty"` // of probes added
	Judge       string             `json:"judge"`
	Traces      string             `json:"traces,omitempty"` // where traces were promised
	Kernel      bool               `json:"kernel_record,omitempty"`
	Hosts       []string           `json:"allowed_hosts,omitempty"`
	Reached     string             `json:"reached_by,omitempty"` // SHA-256 of how the agent is reached and run: target, command, sandbox
	Declaration *trust.Declaration `json:"declaration"`
	Variants    []declare.Variant  `json:"variants,omitempty"`
	Signatures  json.RawMessage    `json:"signatures,omitempty"`
	Findings    []bodycam.Finding  `json:"findings,omitempty"`
	Notes       []string           `json:"notes,omitempty"`
}

// writeFile replaces a file as a whole.
func writeFile(dir, name string, b []byte) error {
	tmp := filepath.Join(dir, "."+name+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("writing the audit's %s: %w", name, err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("writing the audit's %s: %w", name, err)
	}
	return nil
}

func writeJSON(dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the audit's %s: %w", name, err)
	}
	return writeFile(dir, name, append(b, '\n'))
}

func writeLines[T any](dir, name string, list []T) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i := range list {
		if err := e.Encode(&list[i]); err != nil {
			return fmt.Errorf("encoding the audit's %s: %w", name, err)
		}
	}
	return writeFile(dir, name, b.Bytes())
}

// readLines reads JSON Lines; a missing file has none. A last line without its end was cut off by a crash and is left
// out, where cut is true.
func readLines[T any](dir, name string, cut bool) ([]T, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the audit's %s: %w", name, err)
	}
	defer f.Close()
	var out []T
	r := bufio.NewReaderSize(f, 1<<20)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && (len(line) == 0 || cut) {
			return out, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading the audit's %s: %w", name, err)
		}
		var v T
		if jerr := json.Unmarshal(line, &v); jerr != nil {
			return nil, fmt.Errorf("the audit's %s, line %d: %w", name, n, jerr)
		}
		out = append(out, v)
		if err != nil {
			return out, nil
		}
	}
}

// Asked are all exchanges of an unfinished audit, with those that were put aside after an interruption.
func Asked(dir string) ([]trust.Exchange, error) {
	names, err := filepath.Glob(filepath.Join(dir, "interrupted-*-"+ExchangesFile))
	if err != nil {
		return nil, fmt.Errorf("reading what was asked before: %w", err)
	}
	var out []trust.Exchange
	for _, name := range append(names, filepath.Join(dir, ExchangesFile)) {
		list, err := readLines[trust.Exchange](dir, filepath.Base(name), true)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// opinion is a line of OpinionsFile.
type opinion struct {
	Probe string `json:"probe"`
	trust.ReplyOpinion
}

// Load reads an audit's evidence, for scoring it again.
func Load(dir string) (*Meta, *score.Evidence, error) {
	b, err := os.ReadFile(filepath.Join(dir, MetaFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s is no audit's directory: it has no %s", dir, MetaFile)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("opening the audit: %w", err)
	}
	m := new(Meta)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, nil, fmt.Errorf("opening the audit %s: %w", dir, err)
	}
	if m.Schema > Schema {
		return nil, nil, fmt.Errorf("the audit %s was made by a newer bodycam (schema %d): update bodycam to read it", dir, m.Schema)
	}
	if m.Declaration == nil {
		return nil, nil, fmt.Errorf("the audit %s has no declaration", dir)
	}
	e := &score.Evidence{Declaration: m.Declaration, Exchanges: map[string]*trust.Exchange{}, Calls: map[string][]trust.Calls{},
		Opinions: map[string]trust.ReplyOpinion{}, Tools: map[string]trust.FitOpinion{}, Findings: m.Findings, Hosts: m.Hosts, TracesPromised: m.Traces != ""}
	if e.Probes, err = readLines[trust.Probe](dir, ProbesFile, false); err != nil {
		return nil, nil, err
	}
	xs, err := readLines[trust.Exchange](dir, ExchangesFile, true)
	if err != nil {
		return nil, nil, err
	}
	for i := range xs {
		x := &xs[i]
		e.Exchanges[x.Probe] = x
	}
	calls, err := readLines[trust.Calls](dir, CallsFile, false)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range calls {
		e.Calls[c.Probe] = append(e.Calls[c.Probe], c)
	}
	effects, err := readLines[trust.Effects](dir, EffectsFile, false)
	if err != nil {
		return nil, nil, err
	}
	if len(effects) > 0 {
		e.Effects = map[string]*trust.Effects{}
		for i := range effects {
			e.Effects[effects[i].Probe] = &effects[i]
		}
	}
	ops, err := readLines[opinion](dir, OpinionsFile, true)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range ops {
		e.Opinions[o.Probe] = o.ReplyOpinion
	}
	b, err = os.ReadFile(filepath.Join(dir, ToolsFile))
	if err == nil {
		err = json.Unmarshal(b, &e.Tools)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the audit's %s: %w", ToolsFile, err)
	}
	return m, e, nil
}
