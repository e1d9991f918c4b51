package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// document reads formats that are one JSON document: it gathers the lines and reads them at the end.
type document struct {
	list
	read   func(d *document, at time.Time, data []byte) error
	data   []byte
	tooBig bool
	done   bool
}

func (p *document) Line(_ time.Time, line []byte) error {
	if len(p.data)+len(line)+1 > maxDocument {
		if p.tooBig {
			return nil
		}
		p.tooBig = true
		return fmt.Errorf("the transcript is larger than %d MiB: what follows is not read", maxDocument>>20)
	}
	p.data = append(append(p.data, line...), '\n')
	return nil
}

func (p *document) Finish(at time.Time) []bodycam.Row {
	if p.done {
		return p.rows
	}
	p.done = true
	data := p.data
	p.data = nil
	if len(bytes.TrimSpace(data)) == 0 {
		return p.rows
	}
	if p.tooBig {
		p.add(at, bodycam.Row{Kind: bodycam.RowError, Text: fmt.Sprintf("the transcript is larger than %d MiB", maxDocument>>20), Cut: true})
	}
	if err := p.read(p, at, data); err != nil {
		p.raised = false
		p.add(at, bodycam.Row{Kind: bodycam.RowError, Text: "the transcript could not be read to its end: " + err.Error(), Failed: true})
		if len(p.rows) == 1 {
			p.raw(at, bytes.TrimSpace(data))
		}
	}
	return p.rows
}

// array walks to the array under one of the keys of the top-level object (or the array that is the whole document,
// where keys is empty) and hands each element over with the line it begins on. A document that breaks off still
// gives the elements before the break. The other keys' values are returned where they are short.
func array(data []byte, keys []string, each func(line int, raw json.RawMessage) error) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	rest := map[string]json.RawMessage{}
	at, line := 0, 1 // offset up to which line feeds were counted
	elements := func() error {
		for dec.More() {
			from := int(dec.InputOffset())
			for from < len(data) && (data[from] == ',' || data[from] == ' ' || data[from] == '\n' || data[from] == '\r' || data[from] == '\t') {
				from++
			}
			line += bytes.Count(data[at:from], []byte("\n"))
			at = from
			var raw json.RawMessage
			if err := dec.Decode(&raw); err != nil {
				return fmt.Errorf("line %d: %w", line, err)
			}
			if err := each(line, raw); err != nil {
				return err
			}
		}
		_, err := dec.Token()
		return err
	}
	tok, err := dec.Token()
	if err != nil {
		return rest, err
	}
	if tok == json.Delim('[') {
		if len(keys) > 0 {
			return rest, fmt.Errorf("the document is a list, not an object with %q", keys[0])
		}
		return rest, elements()
	}
	if tok != json.Delim('{') {
		return rest, fmt.Errorf("the document is %T, not an object", tok)
	}
	found := false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return rest, err
		}
		name, _ := key.(string)
		if !found && slices.Contains(keys, name) {
			if tok, err = dec.Token(); err != nil {
				return rest, err
			}
			if tok == json.Delim('[') {
				found = true
				if err := elements(); err != nil {
					return rest, err
				}
				continue
			}
			if tok == json.Delim('{') {
				return rest, fmt.Errorf("%q is not a list", name)
			}
			continue
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return rest, err
		}
		rest[name] = raw
	}
	if !found {
		return rest, fmt.Errorf("the document has no list %q", keys)
	}
	return rest, nil
}

// element decodes one element and points the rows that follow at its line.
func (p *document) element(line int, raw json.RawMessage, v any) error {
	p.line = line
	return p.decode(raw, v)
}

// readSWEAgent reads a .traj of SWE-agent.
func readSWEAgent(p *document, at time.Time, data []byte) error {
	n := 0
	rest, err := array(data, []string{"trajectory"}, func(line int, raw json.RawMessage) error {
		var s struct {
			Action      string  `json:"action"`
			Observation string  `json:"observation"`
			Thought     string  `json:"thought"`
			Seconds     float64 `json:"execution_time"`
		}
		if err := p.element(line, raw, &s); err != nil {
			p.raw(at, raw)
			return nil
		}
		n++
		row := call(fmt.Sprintf("step-%d", n), "bash", nil)
		row.Command, row.Reason = trimLine(s.Action), s.Thought
		if row.Command == "" { // a step without an action: the model only spoke
			if p.o.KeepReasoning {
				p.add(at, bodycam.Row{Kind: bodycam.RowMessage, Reason: s.Thought, Output: s.Observation})
			} else {
				p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: "step without an action", Output: s.Observation})
			}
			return nil
		}
		i := p.add(at, row)
		p.finish(at, i, s.Observation, nil, false)
		return nil
	})
	if info := rest["info"]; len(info) > 0 {
		var in struct {
			Exit string `json:"exit_status"`
		}
		if json.Unmarshal(info, &in) == nil && in.Exit != "" {
			p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: "exit status " + in.Exit})
		}
	}
	return err
}

// trimLine takes the line feed off that some formats end a command with.
func trimLine(s string) string { return string(bytes.TrimRight([]byte(s), "\r\n")) }
